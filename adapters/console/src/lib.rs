//! A person at a terminal, as a platform: the same core as for any chat network, without a network.
//!
//! There is one person, `owner`, and one room. What stands at the other end of standard input decides
//! which, and how we talk ([`stdin_kind`]):
//!
//! - **a terminal**: a chat with a prompt. Answers appear while they are written.
//! - **lines** from a pipe or a file: one prompt per line, answered in order. Standard output gets
//!   the agent's words and nothing else, as they come, each answer ended by one newline; everything the gateway says
//!   itself goes to standard error, also what it says at the end of an answer. An answer that turns out differently
//!   from what was written stands whole behind that, on a line of its own. The end of the input ends the platform, and
//!   the end of the process the conversation: the next one has another reader, who did not ask. Whether
//!   everything was answered is remembered for the exit code ([`Console::is_unanswered`]).
//! - **nothing**: nobody writes; the platform waits for its end.
//!
//! A repeated [`SendKey`] prints once for as long as the process lives. A terminal forgets nothing
//! and tells us nothing, so over a restart a message can appear a second time.
//!
//! Neither end may hold the runtime up: one plain thread reads (`inbound`), one writes (`outbound`).
//! Either may hang in the operating system for ever, and the process can still end.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts"))]

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

use crate::inbound::InputReader;
pub use crate::line::LONGEST as LONGEST_LINE;
use crate::outbound::{OutputHandle, OutputSurface};
use crate::pipe::PipeOutput;
use crate::screen::TerminalScreen;
pub use crate::stdin::{StdinKind, stdin_kind};
use crate::turn_taking::TurnTaking;
pub use crate::wording::ConsoleTexts;

/// The room of whoever sits at a terminal.
const TERMINAL: &str = "console";

/// What the rooms of pipes begin with.
const PIPE: &str = "pipe-";

/// What a person writes with.
pub enum ConsoleInput {
    /// Somebody types and sees what they type.
    Terminal(Box<dyn BufRead + Send>),
    /// Prompts, one per line.
    Lines(Box<dyn BufRead + Send>),
    /// Nobody.
    Nothing,
}

impl ConsoleInput {
    /// Standard input, as what it is.
    pub fn stdin() -> Self {
        match stdin_kind() {
            StdinKind::Terminal => Self::Terminal(Box::new(BufReader::new(io::stdin()))),
            StdinKind::Lines => Self::Lines(Box::new(BufReader::new(io::stdin()))),
            StdinKind::Nothing => Self::Nothing,
        }
    }
}

/// What a person reads.
pub struct ConsoleOutput {
    /// Standard output: the chat itself, or the answers alone.
    pub answers: Box<dyn Write + Send>,
    /// Standard error: where [`ConsoleInput::Lines`] puts what is no answer.
    pub notices: Box<dyn Write + Send>,
    /// Whether `answers` ends in a terminal, which shows what is overwritten and obeys what it is sent.
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

/// The platform.
pub struct Console {
    show: ShowMode,
    /// The terminal's conversation goes on with the next start. Each pipe has one of its own: what a script
    /// is told must not depend on what somebody said before.
    room: RoomId,
    /// Whose turn it is to speak; `inbound` hands the word over, `finish` hands it back.
    turn_taking: TurnTaking,
    /// Locked for as long as `run` runs. Kept here so that a second `run` offers what the first could
    /// not get accepted.
    inbound: Mutex<InputReader>,
    outbound: OutputHandle,
    /// Set by `finish` and by `inbound`, which refuses lines that are too long.
    unanswered: Arc<AtomicBool>,
    /// Said by `end`.
    interrupted: String,
}

impl Console {
    /// A console that is read when [`run`](Platform::run) is called. Fails only if the system has no
    /// thread left for the writer.
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

    /// Called once, when nothing more will be shown: says of an answer that still grows that it was interrupted. The
    /// next start may go on with it.
    pub async fn end(&self) {
        self.outbound.cut_short(&self.interrupted).await;
    }

    /// What ended at a terminal, in an earlier process, is shown in a pipe but is no answer to anything there.
    fn body_for<'a>(&self, place: &Place, body: &'a MessageBody) -> Cow<'a, MessageBody> {
        match place.room == self.room {
            true => Cow::Borrowed(body),
            false => Cow::Owned(MessageBody { kind: BodyKind::Notice, failed: false, ..body.clone() }),
        }
    }

    /// What every shown body ends with, whether it was sent or edited.
    fn finish<T>(&self, body: &MessageBody, shown: io::Result<T>) -> Result<T, PlatformError> {
        match shown {
            Ok(value) => {
                if body.failed {
                    self.unanswered.store(true, Ordering::Relaxed);
                }
                self.turn_taking.shown(body);
                Ok(value)
            }
            // Half of it may have been written, and nothing can be taken back: trying again would
            // only print it a second time.
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
            // An error may be followed by another `run`; everything else is the end.
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
