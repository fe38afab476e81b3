//! Writes messages: one thread owns the output, everyone else holds a handle to it.

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::Duration;

use talaria_platform::{BodyKind, MessageBody, MessageId, SendKey};
use tokio::sync::{mpsc, oneshot};

use crate::id;
use crate::pipe::PipeOutput;
use crate::screen::TerminalScreen;

/// Orders that may wait for the writer. Few: a caller that shows a message waits for it anyway.
const ORDERS: usize = 16;

/// Messages whose key and text are remembered. Few: a repeated send follows the first one closely, and each message
/// may hold a whole answer.
const REMEMBERED: usize = 64;

/// Longest time that the end of the process waits for the last newline. Usually it takes no time.
const LEAVING: Duration = Duration::from_millis(200);

/// A handle to the thread that writes. The thread ends when the last handle is gone.
#[derive(Clone)]
pub struct OutputHandle {
    orders: mpsc::Sender<WriteOrder>,
}

/// The kind of output that the writer writes to.
pub enum OutputSurface {
    /// A terminal, for a person.
    Screen(TerminalScreen),
    /// Two streams, for a program.
    Pipe(PipeOutput),
}

impl OutputSurface {
    fn show(&mut self, message: &MessageId, before: &str, body: &MessageBody) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.show(message, before, body),
            Self::Pipe(pipe) => pipe.show(message, body),
        }
    }

    fn notice(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.notice(text),
            Self::Pipe(pipe) => {
                pipe.notice(text);
                Ok(())
            }
        }
    }

    fn is_pipe(&self) -> bool {
        matches!(self, Self::Pipe(_))
    }

    /// Text of a body to remember. A pipe keeps its own record of what it has written.
    fn kept(&self, body: MessageBody) -> String {
        if self.is_pipe() { String::new() } else { body.markdown }
    }

    /// Applies a change that only a person needs.
    fn on_screen(&mut self, change: impl FnOnce(&mut TerminalScreen) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Screen(screen) => change(screen),
            Self::Pipe(_) => Ok(()),
        }
    }
}

type ReplySender<T> = oneshot::Sender<io::Result<T>>;

enum WriteOrder {
    Send(SendKey, MessageBody, ReplySender<MessageId>),
    Edit(MessageId, MessageBody, ReplySender<()>),
    Typing(bool),
    Greet,
    Entered,
    Again { continued: bool },
    Notice(String, ReplySender<()>),
    Close(ReplySender<()>),
    CutShort(String, ReplySender<()>),
}

impl OutputHandle {
    /// Starts the writing thread.
    pub fn start(surface: OutputSurface) -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel(ORDERS);
        let writer = OutputWriter { surface, printed: VecDeque::new() };
        thread::Builder::new().name("console-out".to_owned()).spawn(move || writer.work(inbox))?;
        Ok(Self { orders })
    }

    /// Prints a new message, unless its key was printed before.
    pub async fn send(&self, key: &SendKey, body: &MessageBody) -> io::Result<MessageId> {
        self.ask(|answer| WriteOrder::Send(key.clone(), body.clone(), answer)).await
    }

    /// Prints the part of a message that is new.
    pub async fn edit(&self, message: &MessageId, body: &MessageBody) -> io::Result<()> {
        self.ask(|answer| WriteOrder::Edit(message.clone(), body.clone(), answer)).await
    }

    /// Prints the greeting, on a screen only.
    pub async fn greet(&self) {
        self.tell(WriteOrder::Greet).await;
    }

    /// Reports that the person pressed enter.
    pub async fn entered(&self) {
        self.tell(WriteOrder::Entered).await;
    }

    /// Asks the person for another line, or with `continued` for the rest of this one.
    pub async fn again(&self, continued: bool) {
        self.tell(WriteOrder::Again { continued }).await;
    }

    /// Prints a text for the person that is no message. Returns when it is printed, because the process may end right
    /// after.
    pub async fn notice(&self, text: &str) -> io::Result<()> {
        self.ask(|answer| WriteOrder::Notice(text.to_owned(), answer)).await
    }

    /// Shows or hides the typing sign. Best effort, like any signal: dropped while the writer is busy.
    pub fn typing(&self, on: bool) {
        let _ = self.orders.try_send(WriteOrder::Typing(on));
    }

    /// Stops asking for lines. Waits until the cursor has left the line, but only for `LEAVING`: an output that is
    /// stuck must not keep the process from ending.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(LEAVING, self.ask(WriteOrder::Close)).await;
    }

    /// Ends the output. Prints these words behind an answer that still grows, so that it does not pass for a whole
    /// one. Waits no longer than [`Self::close`] does.
    pub async fn cut_short(&self, words: &str) {
        let order = |answer| WriteOrder::CutShort(words.to_owned(), answer);
        let _ = tokio::time::timeout(LEAVING, self.ask(order)).await;
    }

    async fn ask<T>(&self, order: impl FnOnce(ReplySender<T>) -> WriteOrder) -> io::Result<T> {
        let (answer, outcome) = oneshot::channel();
        self.tell(order(answer)).await;
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("the writer has ended")))
    }

    async fn tell(&self, order: WriteOrder) {
        // Fails only if the writer has ended; a caller that waits for an outcome learns it there.
        let _ = self.orders.send(order).await;
    }
}

/// State of the writing thread.
struct OutputWriter {
    surface: OutputSurface,
    /// The latest messages, oldest first, at most [`REMEMBERED`].
    printed: VecDeque<PrintedMessage>,
}

struct PrintedMessage {
    /// `None` for a message of an earlier process, which can only be edited.
    key: Option<SendKey>,
    id: MessageId,
    /// The text as the agent wrote it, as far as [`OutputSurface::kept`] keeps it.
    text: String,
    done: bool,
    /// Whether it is the agent's words, and not a notice or ask.
    is_answer: bool,
}

impl OutputWriter {
    fn work(mut self, mut orders: mpsc::Receiver<WriteOrder>) {
        while let Some(order) = orders.blocking_recv() {
            let done = match order {
                // The caller may be gone by now; printed text stays printed.
                WriteOrder::Send(key, body, answer) => {
                    let _ = answer.send(self.send(key, body));
                    Ok(())
                }
                WriteOrder::Edit(message, body, answer) => {
                    let _ = answer.send(self.edit(message, body));
                    Ok(())
                }
                WriteOrder::Notice(text, answer) => {
                    let _ = answer.send(self.surface.notice(&text));
                    Ok(())
                }
                WriteOrder::Typing(on) => self.surface.on_screen(|screen| screen.typing(on)),
                WriteOrder::Greet => self.surface.on_screen(TerminalScreen::greet),
                WriteOrder::Entered => self.surface.on_screen(|screen| {
                    screen.entered();
                    Ok(())
                }),
                WriteOrder::Again { continued } => self.surface.on_screen(|screen| screen.again(continued)),
                WriteOrder::Close(answer) => {
                    let _ = answer.send(self.surface.on_screen(TerminalScreen::close));
                    Ok(())
                }
                WriteOrder::CutShort(words, answer) => {
                    let _ = answer.send(self.cut_short(&words));
                    Ok(())
                }
            };
            if let Err(error) = done {
                // Decoration is not worth an error of its own: the next answer will meet the same error.
                tracing::debug!(%error, "standard output cannot be written");
            }
        }
    }

    fn send(&mut self, key: SendKey, body: MessageBody) -> io::Result<MessageId> {
        if let Some(printed) = self.printed.iter().find(|printed| printed.key.as_ref() == Some(&key)) {
            return Ok(printed.id.clone());
        }
        let id = MessageId::new(id::unique());
        self.print(Some(key), id.clone(), body)?;
        Ok(id)
    }

    fn edit(&mut self, message: MessageId, body: MessageBody) -> io::Result<()> {
        let Some(printed) = self.printed.iter_mut().find(|printed| printed.id == message) else {
            // The message is from before a restart. The person has to see the text, and printing all of it is the
            // only way.
            return self.print(None, message, body);
        };
        let over = printed.done && (printed.text == body.markdown || self.surface.is_pipe());
        if over {
            return Ok(());
        }
        self.surface.show(&message, &printed.text, &body)?;
        printed.done = body.done;
        printed.text = self.surface.kept(body);
        Ok(())
    }

    fn print(&mut self, key: Option<SendKey>, id: MessageId, body: MessageBody) -> io::Result<()> {
        self.surface.show(&id, "", &body)?;
        if self.printed.len() == REMEMBERED {
            self.printed.pop_front();
        }
        let (done, is_answer) = (body.done, body.kind == BodyKind::Answer);
        let text = self.surface.kept(body);
        self.printed.push_back(PrintedMessage { key, id, text, done, is_answer });
        Ok(())
    }

    fn cut_short(&mut self, words: &str) -> io::Result<()> {
        let is_growing = self.printed.iter().any(|printed| printed.is_answer && !printed.done);
        match is_growing && !words.is_empty() {
            true => self.surface.on_screen(|screen| screen.cut_short(words)),
            false => Ok(()),
        }
    }
}
