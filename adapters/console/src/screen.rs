//! Writes for a person at a terminal: a prompt, text that grows, and marks for notices and asks.
//!
//! A terminal can only print at the cursor, so this file keeps track of where the cursor is.

use std::io::{self, Write};

use talaria_platform::{BodyKind, MessageBody, MessageId};

use crate::ConsoleOutput;
use crate::sanitize::clean;

const PROMPT: &str = "> ";
const CONTINUED: &str = "  ";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";
const TYPING: &str = "…";
/// One step back, a space over the sign, and one step back again; works on any terminal, with or without styles.
const ERASE_TYPING: &str = "\u{8} \u{8}";

/// A terminal and the position of its cursor.
pub struct TerminalScreen {
    output: ConsoleOutput,
    /// Printed once, before the first prompt; may be empty.
    greeting: String,
    at: CursorPosition,
    /// Whether nobody reads the input any more: then no prompt is shown.
    closed: bool,
}

#[derive(Debug, PartialEq)]
enum CursorPosition {
    /// At the beginning of an empty line.
    LineStart,
    /// Behind the prompt, or behind the person's unfinished line.
    Prompt,
    /// Behind the typing sign.
    Typing,
    /// Behind the text of a message that still grows.
    Text {
        of: MessageId,
        /// Whether the text ended with a newline.
        line_start: bool,
    },
}

impl TerminalScreen {
    pub fn new(output: ConsoleOutput, greeting: String) -> Self {
        Self { output, greeting, at: CursorPosition::LineStart, closed: false }
    }

    /// Prints the greeting and asks for the first line.
    pub fn greet(&mut self) -> io::Result<()> {
        let greeting = std::mem::take(&mut self.greeting);
        if greeting.is_empty() { self.again(false) } else { self.notice(&greeting) }
    }

    /// Shows `body` of a message whose text `before` is on the screen. Prints only the addition if `body` extends
    /// `before`; prints any other text whole on a new line, because nothing can be taken back.
    pub fn show(&mut self, message: &MessageId, before: &str, body: &MessageBody) -> io::Result<()> {
        // Compares the texts as the agent wrote them: a character that is cleaned away must not look like a change.
        match body.markdown.strip_prefix(before) {
            Some("") => {}
            Some(new) if self.is_behind(message) => self.text(message, body.kind, new)?,
            Some(new) => self.begin(message, body.kind, new)?,
            None => self.begin(message, body.kind, &body.markdown)?,
        }
        if body.done {
            self.prompt()?;
        }
        self.output.answers.flush()
    }

    /// Prints a line of the gateway and asks for the next line.
    pub fn notice(&mut self, text: &str) -> io::Result<()> {
        self.fresh_line()?;
        self.put(BodyKind::Notice, mark(BodyKind::Notice))?;
        self.put(BodyKind::Notice, text)?;
        self.put(BodyKind::Answer, "\n")?;
        self.prompt()?;
        self.output.answers.flush()
    }

    /// Shows the typing sign, but only at the beginning of an empty line; `false` removes it.
    pub fn typing(&mut self, on: bool) -> io::Result<()> {
        match self.at {
            CursorPosition::LineStart if on && self.output.terminal => {
                self.put(BodyKind::Notice, TYPING)?;
                self.at = CursorPosition::Typing;
            }
            CursorPosition::Typing if !on => self.fresh_line()?,
            CursorPosition::LineStart
            | CursorPosition::Prompt
            | CursorPosition::Typing
            | CursorPosition::Text { .. } => {}
        }
        self.output.answers.flush()
    }

    /// Notes that the person pressed enter; the terminal itself has moved the cursor.
    pub fn entered(&mut self) {
        match &mut self.at {
            CursorPosition::Text { line_start, .. } => *line_start = true,
            at @ (CursorPosition::LineStart | CursorPosition::Prompt | CursorPosition::Typing) => {
                *at = CursorPosition::LineStart
            }
        }
    }

    /// Asks for a line again, or with `continued` for the rest of one.
    pub fn again(&mut self, continued: bool) -> io::Result<()> {
        if self.at == CursorPosition::LineStart {
            self.ask(if continued { CONTINUED } else { PROMPT })?;
        }
        self.output.answers.flush()
    }

    /// Leaves the line, so that the next program that writes to the terminal starts on a fresh one.
    pub fn close(&mut self) -> io::Result<()> {
        self.closed = true;
        if matches!(self.at, CursorPosition::Prompt | CursorPosition::Typing) {
            self.fresh_line()?;
        }
        self.output.answers.flush()
    }

    /// Prints below everything else that the answer above is not whole.
    pub fn cut_short(&mut self, words: &str) -> io::Result<()> {
        self.fresh_line()?;
        self.put(BodyKind::Answer, "\n")?;
        self.put(BodyKind::Notice, words)?;
        self.put(BodyKind::Answer, "\n")?;
        self.output.answers.flush()
    }

    fn is_behind(&self, message: &MessageId) -> bool {
        matches!(&self.at, CursorPosition::Text { of, .. } if of == message)
    }

    fn begin(&mut self, message: &MessageId, kind: BodyKind, text: &str) -> io::Result<()> {
        self.fresh_line()?;
        self.put(kind, mark(kind))?;
        self.text(message, kind, text)
    }

    fn text(&mut self, message: &MessageId, kind: BodyKind, text: &str) -> io::Result<()> {
        let text = indented(kind, &clean(text));
        self.put(kind, &text)?;
        let line_start = match &self.at {
            CursorPosition::Text { line_start, .. } if text.is_empty() => *line_start,
            _ => text.ends_with('\n'),
        };
        self.at = CursorPosition::Text { of: message.clone(), line_start };
        Ok(())
    }

    /// Ends the current line and asks for the next one.
    fn prompt(&mut self) -> io::Result<()> {
        if self.at != CursorPosition::Prompt {
            self.fresh_line()?;
            self.ask(PROMPT)?;
        }
        Ok(())
    }

    fn ask(&mut self, prompt: &str) -> io::Result<()> {
        if !self.closed {
            self.put(BodyKind::Answer, prompt)?;
            self.at = CursorPosition::Prompt;
        }
        Ok(())
    }

    fn fresh_line(&mut self) -> io::Result<()> {
        let gap = match self.at {
            CursorPosition::LineStart | CursorPosition::Text { line_start: true, .. } => "",
            CursorPosition::Prompt | CursorPosition::Text { line_start: false, .. } => "\n",
            CursorPosition::Typing => ERASE_TYPING,
        };
        self.put(BodyKind::Answer, gap)?;
        self.at = CursorPosition::LineStart;
        Ok(())
    }

    fn put(&mut self, kind: BodyKind, text: &str) -> io::Result<()> {
        let out = &mut self.output.answers;
        match kind {
            BodyKind::Notice if self.output.colour && !text.is_empty() => write!(out, "{DIM}{text}{PLAIN}"),
            BodyKind::Answer | BodyKind::Notice | BodyKind::Ask => out.write_all(text.as_bytes()),
        }
    }
}

/// Prefix of a message, so that a notice or ask is not taken for the agent's words, even without styles.
fn mark(kind: BodyKind) -> &'static str {
    match kind {
        BodyKind::Answer => "",
        BodyKind::Notice => "· ",
        BodyKind::Ask => "? ",
    }
}

/// Indents further lines of a message with a mark to the width of that mark.
fn indented(kind: BodyKind, text: &str) -> String {
    match kind {
        BodyKind::Answer => text.to_owned(),
        BodyKind::Notice | BodyKind::Ask => text.replace('\n', "\n  "),
    }
}
