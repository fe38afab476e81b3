//! The reading half: lines of the input become prompts in the inbox.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use talaria_platform::{
    AuthorTrust, EventAuthor, EventBatch, EventId, Inbox, IncomingMessage, Place, PlatformError,
    PlatformErrorKind, RoomEvent, RoomEventKind, RoomId, RoomInfo, UserId,
};
use tokio::sync::mpsc;

use crate::line::{self, InputLine, LONGEST};
use crate::outbound::OutputHandle;
use crate::turn_taking::TurnTaking;
use crate::{ConsoleInput, ConsoleTexts, id};

/// The only person there is.
const OWNER: &str = "owner";

/// Lines that may wait for the core. One: the rest can wait where it is, and does not need memory.
const LINES: usize = 1;

/// The input and what is not handed over yet.
///
/// Every wait in here may be given up when the platform stops; then the line at hand is lost, as
/// everything is that a person types into a program that ends.
pub struct InputReader {
    source: LineSource,
    room: RoomId,
    /// A file or pipe is read on only when the prompt before is answered.
    in_turns: bool,
    /// Lines that ended with a backslash.
    draft: String,
    /// Read but not accepted yet. Stays here until it is, over as many runs as that takes.
    pending: Option<RoomEvent>,
    turn_taking: TurnTaking,
    outbound: OutputHandle,
    /// A line was refused; read by [`Console::is_unanswered`](crate::Console::is_unanswered).
    unanswered: Arc<AtomicBool>,
    wording: ConsoleTexts,
}

enum LineSource {
    /// Nobody will write anything.
    Nothing,
    /// `run` was not called yet.
    Unread(Box<dyn BufRead + Send>),
    /// The other end is the reading thread; it hangs up at the end of the input.
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
                if !self.turn_taking.is_done() && !self.wording.leaving.is_empty() {
                    // The core ends when every answer has; whoever cannot wait should know how not to.
                    let _ = self.outbound.notice(&self.wording.leaving).await;
                }
                return Ok(());
            };
            let event = event(self.room.clone(), text);
            self.turn_taking.ask(event.id.clone());
            self.pending = Some(event);
        }
    }

    /// Starts the thread that reads, the first time. A plain thread, because nothing can interrupt a
    /// read from a terminal, and the runtime would wait for one of its own threads at the end.
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

    /// The next thing the person has to say, or `None` at the end of the input.
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

    /// Adds a line to the draft; returns the draft when that was its last one.
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
        // What leaves other programs. In a file it is a line like any other.
        if !self.in_turns && self.draft.is_empty() && matches!(line.trim(), "/quit" | "/exit") {
            self.outbound.notice(&self.wording.quit).await.map_err(lost)?;
            return Ok(None);
        }
        let text = std::mem::take(&mut self.draft) + line;
        if text.trim().is_empty() {
            // While an answer is on its way, the prompt comes with its end.
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
        // Whoever holds the terminal of this process could as well read its memory.
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
