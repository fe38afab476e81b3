//! Adapter for a person at a terminal or a script at a pipe: the whole core, without a network.
//!
//! There is one person, `owner`, and one room. [`stdin_kind`] finds out what standard input is connected to, which
//! decides the room and how we talk:
//!
//! - **a terminal**: a chat with a prompt. Answers appear while they are written.
//! - **lines** from a pipe or a file: one prompt per line, answered in order. Standard output gets only the agent's
//!   words, as they come, each answer ended by one newline. The gateway's own words go to standard error, also those
//!   at the end of an answer. A final answer that differs from the streamed text follows it whole, on a line of its
//!   own. The platform ends with the input, and the conversation with the process: the next process has another
//!   reader, who did not ask. [`Console::is_unanswered`] keeps for the exit code whether everything was answered.
//! - **nothing**: nobody writes; the platform waits until it is stopped.
//!
//! A repeated [`SendKey`] prints once while the process lives. A terminal forgets nothing and reports nothing, so
//! after a restart a message can appear a second time.
//!
//! One plain thread reads (`inbound`) and one writes (`outbound`), so neither end can block the runtime. Either
//! thread may hang in the operating system for ever, and the process can still end.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts"))]

mod config;
mod id;
mod inbound;
mod line;
mod outbound;
mod pipe;
mod sanitize;
mod screen;
mod stdin;
mod turn_taking;
mod wording;

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use talaria_platform::{
    BodyKind, BoxFuture, CancellationToken, Inbox, MessageBody, MessageId, Place, PlaceLifetime, Platform,
    PlatformCapabilities, PlatformError, PlatformErrorKind, RoomId, SendKey, ShowMode, Signal,
};
use tokio::sync::Mutex;

pub use crate::config::{ConsoleKind, ConsoleSettings};
use crate::inbound::InputReader;
pub use crate::line::LONGEST as LONGEST_LINE;
use crate::outbound::{OutputHandle, OutputSurface};
use crate::pipe::PipeOutput;
use crate::screen::TerminalScreen;
pub use crate::stdin::{StdinKind, stdin_kind};
use crate::turn_taking::TurnTaking;
pub use crate::wording::ConsoleTexts;

/// Room of the person at a terminal.
const TERMINAL: &str = "console";

/// Prefix of the rooms of pipes.
const PIPE: &str = "pipe-";

/// Source of a person's prompts.
pub enum ConsoleInput {
    /// A terminal: a person types, and sees what they type.
    Terminal(Box<dyn BufRead + Send>),
    /// Prompts, one per line.
    Lines(Box<dyn BufRead + Send>),
    /// No input: nobody writes.
    Nothing,
}

impl ConsoleInput {
    /// Standard input, as the kind that [`stdin_kind`] finds.
    pub fn stdin() -> Self {
        match stdin_kind() {
            StdinKind::Terminal => Self::Terminal(Box::new(BufReader::new(io::stdin()))),
            StdinKind::Lines => Self::Lines(Box::new(BufReader::new(io::stdin()))),
            StdinKind::Nothing => Self::Nothing,
        }
    }
}

/// Where a person, or a script, reads.
pub struct ConsoleOutput {
    /// Standard output: the whole chat at a terminal, only the answers in a pipe.
    pub answers: Box<dyn Write + Send>,
    /// Standard error: for [`ConsoleInput::Lines`] gets every message that is not an answer.
    pub notices: Box<dyn Write + Send>,
    /// Whether `answers` ends in a terminal, which shows overwritten text and obeys control characters.
    pub terminal: bool,
    /// Whether `answers` may be styled.
    pub colour: bool,
}

impl ConsoleOutput {
    /// Standard output and standard error. Styled only for a terminal, and not if `NO_COLOR` is set.
    pub fn stdio() -> Self {
        let terminal = io::stdout().is_terminal();
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            answers: Box::new(io::stdout()),
            notices: Box::new(io::stderr()),
            terminal,
            colour: terminal && !unwanted,
        }
    }
}

/// The console as a [`Platform`].
pub struct Console {
    show: ShowMode,
    /// The terminal's conversation continues after the next start. Each pipe has one of its own: a script's answers
    /// must not depend on an earlier conversation.
    room: RoomId,
    /// Decides whether the person or the agent speaks next; `inbound` gives the agent the turn, `finish` gives it back.
    turn_taking: TurnTaking,
    /// Locked while `run` runs. Kept here so that a second `run` offers the event that the first could not get
    /// accepted.
    inbound: Mutex<InputReader>,
    outbound: OutputHandle,
    /// Set by `finish` for a failed answer and by `inbound` for a line that is too long.
    unanswered: Arc<AtomicBool>,
    /// Text that `end` prints.
    interrupted: String,
}

impl Console {
    /// Makes a console that is read when [`run`](Platform::run) is called. Fails only if the system has no thread
    /// left for the writer.
    pub fn new(input: ConsoleInput, output: ConsoleOutput, wording: ConsoleTexts) -> io::Result<Self> {
        let room = match &input {
            ConsoleInput::Terminal(_) | ConsoleInput::Nothing => RoomId::new(TERMINAL),
            ConsoleInput::Lines(_) => RoomId::new(format!("{PIPE}{}", id::unique())),
        };
        let (show, surface) = match &input {
            ConsoleInput::Terminal(_) => (
                ShowMode::Append,
                OutputSurface::Screen(TerminalScreen::new(output, wording.greeting.clone())),
            ),
            ConsoleInput::Lines(_) => {
                (ShowMode::Append, OutputSurface::Pipe(PipeOutput::new(output, wording.replaced.clone())))
            }
            ConsoleInput::Nothing => {
                (ShowMode::Once, OutputSurface::Pipe(PipeOutput::new(output, wording.replaced.clone())))
            }
        };
        let (turn_taking, outbound) = (TurnTaking::new(), OutputHandle::start(surface)?);
        let unanswered = Arc::<AtomicBool>::default();
        let interrupted = wording.interrupted.clone();
        let inbound = InputReader::new(
            input,
            room.clone(),
            turn_taking.clone(),
            outbound.clone(),
            unanswered.clone(),
            wording,
        );
        Ok(Self { show, room, turn_taking, inbound: Mutex::new(inbound), outbound, unanswered, interrupted })
    }

    /// Whether a prompt was not answered, or not to its end, as far as this console knows: it failed, was refused or
    /// was interrupted, or the answer could not be written.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) || !self.turn_taking.is_free()
    }

    /// Called once, when nothing more will be shown: marks an answer that still grows as interrupted. The next
    /// process may continue it.
    pub async fn end(&self) {
        self.outbound.cut_short(&self.interrupted).await;
    }

    /// Adapts a body to the room. A message for a terminal's room of an earlier process is shown in a pipe too, but
    /// as a notice: it answers no prompt there.
    fn body_for<'a>(&self, place: &Place, body: &'a MessageBody) -> Cow<'a, MessageBody> {
        match place.room == self.room {
            true => Cow::Borrowed(body),
            false => Cow::Owned(MessageBody { kind: BodyKind::Notice, failed: false, ..body.clone() }),
        }
    }

    /// Records the outcome of every send and edit.
    fn finish<T>(&self, body: &MessageBody, shown: io::Result<T>) -> Result<T, PlatformError> {
        match shown {
            Ok(value) => {
                if body.failed {
                    self.unanswered.store(true, Ordering::Relaxed);
                }
                self.turn_taking.shown(body);
                Ok(value)
            }
            // Half of the text may be printed, and nothing can be taken back: a retry would print it a second time.
            Err(error) => {
                self.turn_taking.close();
                Err(PlatformError::new(PlatformErrorKind::Fatal, error))
            }
        }
    }
}

impl Platform for Console {
    fn about(&self) -> PlatformCapabilities {
        PlatformCapabilities {
            show: self.show,
            delete: false,
            react: false,
            threads: false,
            media: false,
            max_text: usize::MAX / 2,
            rate: None,
        }
    }

    fn run(
        &self,
        inbox: Arc<dyn Inbox>,
        stop: CancellationToken,
    ) -> BoxFuture<'_, Result<(), PlatformError>> {
        Box::pin(async move {
            let mut inbound = self.inbound.lock().await;
            let ended = stop.run_until_cancelled(inbound.read(inbox.as_ref())).await;
            // After an error the core may call `run` again; any other result is the end.
            if !matches!(ended, Some(Err(_))) {
                self.outbound.close().await;
            }
            ended.unwrap_or(Ok(()))
        })
    }

    fn lasts(&self, place: &Place) -> PlaceLifetime {
        match place.room.as_str().starts_with(PIPE) {
            true if place.room == self.room => PlaceLifetime::Process,
            true => PlaceLifetime::Gone,
            false => PlaceLifetime::Always,
        }
    }

    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>> {
        Box::pin(async move {
            if self.lasts(place) == PlaceLifetime::Gone {
                return Ok(MessageId::new(key.as_str()));
            }
            let body = self.body_for(place, body);
            self.finish(&body, self.outbound.send(key, &body).await)
        })
    }

    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        _key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async move {
            if self.show == ShowMode::Once {
                return Err(PlatformErrorKind::Unsupported.into());
            }
            if self.lasts(place) == PlaceLifetime::Gone {
                return Ok(());
            }
            let body = self.body_for(place, body);
            self.finish(&body, self.outbound.edit(message, &body).await)
        })
    }

    fn signal<'a>(&'a self, place: &'a Place, signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match signal {
                Signal::Typing(_) if self.lasts(place) == PlaceLifetime::Gone => {}
                Signal::Typing(on) => {
                    self.turn_taking.answering(on);
                    self.outbound.typing(on);
                }
                Signal::Read(_) => {}
            }
        })
    }
}

#[cfg(test)]
mod tests;
