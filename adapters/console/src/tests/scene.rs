//! A console whose keyboard and screen are in memory.

use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::conformance::{ConformanceWorld, MemoryInbox, SendKeySupport};
use talaria_platform::{
    BoxFuture, CancellationToken, EventId, MessageBody, MessageId, Place, Platform, PlatformError, SendKey,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Console, ConsoleInput, ConsoleOutput, ConsoleTexts};

/// A console, its keyboard and its output.
pub struct Scene {
    pub console: Arc<Console>,
    keyboard: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    out: Paper,
    err: Paper,
    /// Whether typed text appears in the output, as on a terminal.
    echoes: bool,
}

/// Texts for the console.
pub fn wording() -> ConsoleTexts {
    ConsoleTexts {
        greeting: "Welcome.".into(),
        leaving: "Leaving soon.".into(),
        quit: "Ctrl-D leaves.".into(),
        replaced: "Another answer follows.".into(),
        interrupted: "(interrupted)".into(),
        too_long: "Too long.".into(),
    }
}

/// Look of a terminal.
#[derive(PartialEq)]
pub enum Style {
    Plain,
    Colour,
}

impl Scene {
    pub fn terminal(style: Style) -> Self {
        Self::new(true, style == Style::Colour, wording())
    }

    /// A terminal with every optional text left out.
    pub fn quiet() -> Self {
        let quiet = ConsoleTexts { greeting: String::new(), leaving: String::new(), ..wording() };
        Self::new(true, false, quiet)
    }

    pub fn lines() -> Self {
        Self::new(false, false, wording())
    }

    fn new(terminal: bool, colour: bool, wording: ConsoleTexts) -> Self {
        let (keyboard, keys) = mpsc::channel();
        let (out, err) = (Paper::default(), Paper::default());
        let input = Box::new(BufReader::new(Typed { keys, rest: Vec::new() }));
        let input = if terminal { ConsoleInput::Terminal(input) } else { ConsoleInput::Lines(input) };
        let output = output(&out, &err, terminal, colour);
        let console = Arc::new(Console::new(input, output, wording).unwrap());
        Self { console, keyboard: Mutex::new(Some(keyboard)), out, err, echoes: terminal }
    }

    /// A second console's output, onto the papers of this scene.
    pub fn output(&self) -> ConsoleOutput {
        output(&self.out, &self.err, false, false)
    }

    pub fn types(&self, keys: &str) {
        if self.echoes {
            self.out.clone().write_all(keys.as_bytes()).unwrap();
        }
        self.keyboard.lock().as_ref().unwrap().send(keys.into()).unwrap();
    }

    pub fn types_end(&self) {
        self.keyboard.lock().take();
    }

    pub fn closes_output(&self) {
        self.out.closed.store(true, Ordering::Relaxed);
    }

    /// Starts `run`.
    pub fn runs(&self) -> (JoinHandle<Result<(), PlatformError>>, Arc<MemoryInbox>) {
        let (console, inbox) = (Arc::clone(&self.console), Arc::new(MemoryInbox::new()));
        let taken = Arc::clone(&inbox);
        (tokio::spawn(async move { console.run(taken, CancellationToken::new()).await }), inbox)
    }

    /// Waits for a prompt and returns its id.
    pub async fn hears(&self, inbox: &MemoryInbox, text: &str) -> EventId {
        soon(inbox.until(|inbox| inbox.messages(text).pop())).await.id
    }

    /// Waits until the output ends with `end`.
    pub async fn shows(&self, end: &str) {
        soon(async {
            self.out.text.subscribe().wait_for(|text| text.ends_with(end.as_bytes())).await.unwrap();
        })
        .await;
    }

    pub async fn sends(&self, key: &str, body: MessageBody) -> MessageId {
        soon(self.console.send(&self.place(), &SendKey::from(key), &body)).await.unwrap()
    }

    pub async fn edits(&self, message: &MessageId, body: MessageBody) {
        soon(self.console.edit(&self.place(), message, &SendKey::from("edit"), &body)).await.unwrap();
    }

    pub fn out(&self) -> String {
        self.out.text()
    }

    pub fn err(&self) -> String {
        self.err.text()
    }
}

impl ConformanceWorld for Scene {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::clone(&self.console) as Arc<dyn Platform>
    }

    fn place(&self) -> Place {
        Place { room: self.console.room.clone(), thread: None }
    }

    fn person_says<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        self.types(&format!("{text}\n"));
        Box::pin(async {})
    }

    fn shown(&self) -> BoxFuture<'_, Vec<String>> {
        let out = self.out().replace("…\u{8} \u{8}", "");
        let ours = |line: &&str| !line.is_empty() && !line.starts_with("> ") && !line.starts_with("· ");
        let shown = out.lines().filter(ours).map(str::to_owned).collect();
        Box::pin(async { shown })
    }

    fn keys(&self) -> SendKeySupport {
        SendKeySupport::WithinProcess
    }

    fn resumes(&self) -> bool {
        false
    }
}

fn output(out: &Paper, err: &Paper, terminal: bool, colour: bool) -> ConsoleOutput {
    ConsoleOutput { answers: Box::new(out.clone()), notices: Box::new(err.clone()), terminal, colour }
}

/// Bounds a wait by the real clock: the console's threads do not see tokio's paused time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.unwrap()
}

/// The keyboard's end of the input; dropping the sender ends the input.
struct Typed {
    keys: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Typed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.keys.recv().unwrap_or_default();
        }
        let taken = self.rest.as_slice().read(into)?;
        self.rest.drain(..taken);
        Ok(taken)
    }
}

/// Everything printed so far.
#[derive(Clone, Default)]
struct Paper {
    text: watch::Sender<Vec<u8>>,
    closed: Arc<AtomicBool>,
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.text.borrow().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.text.send_modify(|text| text.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
