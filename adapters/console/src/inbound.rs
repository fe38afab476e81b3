//! Reads lines of the input and hands them to the inbox as prompts.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use talaria_platform::{
    AuthorTrust, EventAuthor, EventBatch, EventId, Inbox, IncomingMessage, Place, PlatformError,
    PlatformErrorKind, RoomEvent, RoomEventKind, RoomId, RoomInfo, UserId,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::line::{self, InputLine, LONGEST};
use crate::outbound::OutputHandle;
use crate::turn_taking::TurnTaking;
use crate::{ConsoleInput, ConsoleTexts, id};

/// Id of the only person.
const OWNER: &str = "owner";

/// Lines that may wait for the core. One: the other lines can wait in the pipe and need no memory here.
const LINES: usize = 1;

/// How long the answers after the end of the input may take until the person is told what the program waits for. The
/// agent reports its end a moment after its last words.
const PATIENCE: Duration = Duration::from_millis(500);

/// The input, and the line that is not handed over yet.
///
/// Stopping the platform may end every wait in here. The current line is lost then, like everything that a person
/// types into a program that ends.
pub struct InputReader {
    source: LineSource,
    room: RoomId,
    /// Whether each prompt waits for the answer to the one before, as for a file or pipe.
    in_turns: bool,
    /// Earlier lines of this prompt: those that ended with a backslash.
    draft: String,
    /// The event that was read and is not accepted yet. Stays here until `accept` succeeds, over as many runs as that
    /// takes.
    pending: Option<RoomEvent>,
    turn_taking: TurnTaking,
    outbound: OutputHandle,
    /// Set when a line was refused; read by [`Console::is_unanswered`](crate::Console::is_unanswered).
    unanswered: Arc<AtomicBool>,
    wording: ConsoleTexts,
}

enum LineSource {
    /// Nobody writes.
    Nothing,
    /// `run` was not called yet.
    Unread(Box<dyn BufRead + Send>),
    /// Lines from the reading thread, which hangs up at the end of the input.
    Lines(mpsc::Receiver<io::Result<InputLine>>),
}

impl InputReader {
    pub fn new(
        input: ConsoleInput,
        room: RoomId,
        turn_taking: TurnTaking,
        outbound: OutputHandle,
        unanswered: Arc<AtomicBool>,
        wording: ConsoleTexts,
    ) -> Self {
        let (source, in_turns) = match input {
            ConsoleInput::Terminal(input) => (LineSource::Unread(input), false),
            ConsoleInput::Lines(input) => (LineSource::Unread(input), true),
            ConsoleInput::Nothing => (LineSource::Nothing, false),
        };
        let (draft, pending) = (String::new(), None);
        Self { source, room, in_turns, draft, pending, turn_taking, outbound, unanswered, wording }
    }

    /// Hands prompts over until the input ends. May be called again after an error.
    pub async fn read(&mut self, inbox: &dyn Inbox) -> Result<(), PlatformError> {
        self.start().await?;
        loop {
            if let Some(event) = &self.pending {
                let batch = EventBatch { events: vec![event.clone()], ..EventBatch::default() };
                let accepted = inbox.accept(batch).await;
                accepted
                    .map_err(|error| PlatformError::new(PlatformErrorKind::Retry { after: None }, error))?;
                self.pending = None;
            }
            if self.in_turns {
                self.turn_taking.free().await;
            }
            let Some(text) = self.prompt().await? else {
                let is_done = timeout(PATIENCE, self.turn_taking.done()).await.is_ok();
                if !is_done && !self.wording.leaving.is_empty() {
                    // The core ends after the last answer; a person who cannot wait should know how to leave now.
                    let _ = self.outbound.notice(&self.wording.leaving).await;
                }
                return Ok(());
            };
            let event = event(self.room.clone(), text);
            self.turn_taking.ask(event.id.clone());
            self.pending = Some(event);
        }
    }

    /// Starts the reading thread on the first call. A plain thread, because nothing can interrupt a read from a
    /// terminal, and at its end the runtime would wait for one of its own threads.
    async fn start(&mut self) -> Result<(), PlatformError> {
        match std::mem::replace(&mut self.source, LineSource::Nothing) {
            LineSource::Unread(input) => {
                let (sender, lines) = mpsc::channel(LINES);
                let thread = thread::Builder::new().name("console-in".to_owned());
                thread.spawn(move || pump(input, &sender)).map_err(lost)?;
                self.source = LineSource::Lines(lines);
                self.outbound.greet().await;
            }
            started => self.source = started,
        }
        Ok(())
    }

    /// The next prompt of the person, or `None` at the end of the input.
    async fn prompt(&mut self) -> Result<Option<String>, PlatformError> {
        loop {
            match self.line().await? {
                Some(InputLine::Text(line)) => {
                    self.outbound.entered().await;
                    if let Some(text) = self.add(&line).await? {
                        return Ok(Some(text));
                    }
                }
                Some(InputLine::TooLong) => {
                    self.outbound.entered().await;
                    self.refuse().await?;
                }
                None => {
                    let rest = std::mem::take(&mut self.draft);
                    return Ok((!rest.trim().is_empty()).then_some(rest));
                }
            }
        }
    }

    async fn line(&mut self) -> Result<Option<InputLine>, PlatformError> {
        let LineSource::Lines(lines) = &mut self.source else { return std::future::pending().await };
        tokio::select! {
            biased;
            () = self.turn_taking.closed() => Err(lost("what is answered cannot be shown any more")),
            line = lines.recv() => line.transpose().map_err(lost),
        }
    }

    /// Adds a line to the draft; returns the draft if this line completes it.
    async fn add(&mut self, line: &str) -> Result<Option<String>, PlatformError> {
        if self.draft.len() + line.len() > LONGEST {
            self.refuse().await?;
            return Ok(None);
        }
        // A backslash in a file means a backslash: there, one prompt is one line.
        if let Some(part) = line.strip_suffix('\\').filter(|_| !self.in_turns) {
            self.draft.push_str(part);
            self.draft.push('\n');
            self.outbound.again(true).await;
            return Ok(None);
        }
        // These words leave other programs. In a file they are an ordinary line.
        if !self.in_turns && self.draft.is_empty() && matches!(line.trim(), "/quit" | "/exit") {
            self.outbound.notice(&self.wording.quit).await.map_err(lost)?;
            return Ok(None);
        }
        let text = std::mem::take(&mut self.draft) + line;
        if text.trim().is_empty() {
            // While an answer is on its way, its end shows the next prompt.
            if self.turn_taking.is_free() {
                self.outbound.again(false).await;
            }
            return Ok(None);
        }
        Ok(Some(text))
    }

    async fn refuse(&mut self) -> Result<(), PlatformError> {
        self.draft.clear();
        self.unanswered.store(true, Ordering::Relaxed);
        self.outbound.notice(&self.wording.too_long).await.map_err(lost)
    }
}

fn pump(mut input: Box<dyn BufRead + Send>, lines: &mpsc::Sender<io::Result<InputLine>>) {
    while let Some(line) = line::next(input.as_mut()).transpose() {
        let broken = line.is_err();
        if lines.blocking_send(line).is_err() || broken {
            return;
        }
    }
}

fn event(room: RoomId, text: String) -> RoomEvent {
    RoomEvent {
        id: EventId::new(id::unique()),
        place: Place { room, thread: None },
        room: RoomInfo { name: None, direct: true },
        // A person who holds the terminal of this process could as well read its memory.
        author: EventAuthor {
            id: UserId::from(OWNER),
            name: None,
            trust: AuthorTrust::Verified,
            bot: false,
            device: None,
        },
        secure: true,
        kind: RoomEventKind::Message(IncomingMessage::text(text)),
    }
}

fn lost(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Fatal, cause)
}
