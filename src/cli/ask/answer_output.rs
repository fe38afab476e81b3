//! Writes the answer to standard output as it grows, and lines about the run to standard error.
//!
//! A program gets every byte of the answer. At a terminal control characters are shown, because a terminal would obey
//! them; the lines of standard error are always written so, because people look at them.

use std::io::{self, IsTerminal as _, Write};

use super::failure::AskFailure;
use crate::util::{terminal_text, visible_line};

/// Most characters of a line about a step.
const STEP: usize = 120;

/// Most characters of another line.
const LINE: usize = 1000;

/// Most lines that wait while a person is asked; the agent waits then, so there are few.
const HELD: usize = 200;

/// Most bytes of an answer. The server allows less.
const ANSWER: usize = 32 * 1024 * 1024;

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Kind of a line on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A tool began.
    Step,
    /// A tool failed.
    FailedStep,
    /// The agent's reasoning.
    Thought,
    /// The state of the run.
    Notice,
    /// An ask of the agent and its answer. Printed even if nothing else is.
    Question,
}

/// Standard output and standard error.
pub(super) struct AnswerOutput {
    answers: Box<dyn Write + Send>,
    lines: Box<dyn Write + Send>,
    look: OutputLook,
    /// The answer as far as it came.
    text: String,
    /// Bytes of `text` that are on standard output.
    written: usize,
    /// The last character on standard output is not a line end.
    is_line_open: bool,
    /// The unfinished line of the reasoning.
    thought: String,
    /// Lines that wait until a person has been asked; `None` while nobody is.
    held: Option<Vec<String>>,
    /// Standard output cannot be written any more.
    broken: Option<io::ErrorKind>,
}

/// How it is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OutputLook {
    /// The answer is not written: the JSON document has it.
    pub is_json: bool,
    /// Lines about steps, thoughts and the state of the run are left out.
    pub is_quiet: bool,
    /// The answer goes to a terminal.
    pub is_screen: bool,
    /// The lines go to a terminal.
    pub are_lines_on_screen: bool,
    /// The lines may be styled.
    pub has_style: bool,
}

impl AnswerOutput {
    /// The streams of this process.
    pub(super) fn stdio(is_json: bool, is_quiet: bool) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let are_lines_on_screen = io::stderr().is_terminal();
        let look = OutputLook {
            is_json,
            is_quiet,
            is_screen: io::stdout().is_terminal(),
            are_lines_on_screen,
            has_style: are_lines_on_screen && !is_plain,
        };
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()), look)
    }

    pub(super) fn new(
        answers: Box<dyn Write + Send>,
        lines: Box<dyn Write + Send>,
        look: OutputLook,
    ) -> Self {
        Self {
            answers,
            lines,
            look,
            text: String::new(),
            written: 0,
            is_line_open: false,
            thought: String::new(),
            held: None,
            broken: None,
        }
    }

    /// The answer so far.
    pub(super) fn answer(&self) -> &str {
        &self.text
    }

    /// The answer.
    pub(super) fn into_answer(self) -> String {
        self.text
    }

    /// Adds more of the answer.
    pub(super) fn push_text(&mut self, text: &str) -> Result<(), AskFailure> {
        if self.text.len() + text.len() > ANSWER {
            return Err(AskFailure::unanswered("the answer is too long"));
        }
        self.end_thought();
        self.text.push_str(text);
        self.write_text()
    }

    /// Takes the whole answer, which is not the text that came before, or continues it.
    pub(super) fn replace_text(&mut self, whole: String) -> Result<(), AskFailure> {
        if let Some(more) = whole.strip_prefix(self.text.as_str()) {
            let more = more.to_owned();
            return self.push_text(&more);
        }
        self.end_thought();
        if !self.look.is_json && self.written > 0 {
            self.line(LineKind::Notice, "The agent has replaced its answer; the whole new one follows.");
            self.end_line()?;
        }
        self.text = whole;
        self.written = 0;
        self.write_text()
    }

    /// Adds more of the reasoning. It is written line by line.
    pub(super) fn push_thought(&mut self, text: &str) {
        if self.look.is_quiet {
            return;
        }
        self.thought.push_str(text);
        while let Some(end) = self.thought.find('\n') {
            let rest = self.thought.split_off(end + 1);
            let line = std::mem::replace(&mut self.thought, rest);
            self.thought_line(&line);
        }
        if self.thought.chars().nth(LINE).is_some() {
            self.end_thought();
        }
    }

    /// Ends the line of the reasoning.
    pub(super) fn end_thought(&mut self) {
        let line = std::mem::take(&mut self.thought);
        self.thought_line(&line);
    }

    fn thought_line(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.line(LineKind::Thought, line);
        }
    }

    /// Writes a line to standard error. The text may be a stranger's.
    pub(super) fn line(&mut self, kind: LineKind, text: &str) {
        if kind != LineKind::Thought {
            self.end_thought();
        }
        if self.look.is_quiet && kind != LineKind::Question {
            return;
        }
        let (mark, most) = match kind {
            LineKind::Step => ("⚙ ", STEP),
            LineKind::FailedStep => ("✗ ", STEP),
            LineKind::Thought => ("~ ", LINE),
            LineKind::Notice => ("· ", LINE),
            LineKind::Question => ("? ", LINE),
        };
        let words = format!("{mark}{}", visible_line(text, most));
        let line = match self.look.has_style && kind != LineKind::Question {
            true => format!("{DIM}{words}{PLAIN}\n"),
            false => format!("{words}\n"),
        };
        match &mut self.held {
            Some(held) if held.len() < HELD => held.push(line),
            Some(_) => {}
            None => self.write_line(&line),
        }
    }

    /// Holds everything back while a person is asked, so that the question stays in sight.
    pub(super) fn hold(&mut self) {
        self.end_thought();
        self.fresh_line();
        self.held.get_or_insert_default();
    }

    /// Writes what was held back.
    pub(super) fn release(&mut self) -> Result<(), AskFailure> {
        for line in self.held.take().unwrap_or_default() {
            self.write_line(&line);
        }
        self.write_text()
    }

    /// Ends the last line.
    pub(super) fn end(&mut self) -> Result<(), AskFailure> {
        self.end_thought();
        self.release()?;
        self.end_line()
    }

    fn write_text(&mut self) -> Result<(), AskFailure> {
        if self.look.is_json || self.held.is_some() {
            return Ok(());
        }
        let Some(new) = self.text.get(self.written..).filter(|new| !new.is_empty()) else {
            return self.state();
        };
        let written = match self.look.is_screen {
            true => self.answers.write_all(terminal_text(new).as_bytes()),
            false => self.answers.write_all(new.as_bytes()),
        };
        self.is_line_open = !new.ends_with('\n');
        self.written = self.text.len();
        let flushed = written.and_then(|()| self.answers.flush());
        self.note(flushed)
    }

    fn end_line(&mut self) -> Result<(), AskFailure> {
        if !std::mem::take(&mut self.is_line_open) {
            return self.state();
        }
        let written = self.answers.write_all(b"\n").and_then(|()| self.answers.flush());
        self.note(written)
    }

    fn note(&mut self, written: io::Result<()>) -> Result<(), AskFailure> {
        self.broken = self.broken.or(written.err().map(|error| error.kind()));
        self.state()
    }

    fn state(&self) -> Result<(), AskFailure> {
        match self.broken {
            None => Ok(()),
            Some(io::ErrorKind::BrokenPipe) => {
                Err(AskFailure::unanswered("nobody reads the answer any more"))
            }
            Some(kind) => Err(AskFailure::unanswered(format!("standard output cannot be written: {kind}"))),
        }
    }

    /// Leaves the line of the answer if the lines go to the same terminal.
    fn fresh_line(&mut self) {
        if self.look.is_screen && self.look.are_lines_on_screen {
            // A failure is noticed with the next text.
            let _ = self.end_line();
        }
    }

    fn write_line(&mut self, line: &str) {
        self.fresh_line();
        // Without standard error the lines are lost, and the answer is not.
        let _ = self.lines.write_all(line.as_bytes()).and_then(|()| self.lines.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    /// An output whose two streams go to one place, as at a terminal.
    fn screen() -> (AnswerOutput, Shared) {
        let shared = Shared::default();
        let look = OutputLook { is_screen: true, are_lines_on_screen: true, ..OutputLook::default() };
        (AnswerOutput::new(Box::new(shared.clone()), Box::new(shared.clone()), look), shared)
    }

    #[test]
    fn lines_stand_between_the_parts_of_the_answer() {
        let (mut output, shared) = screen();
        output.push_thought("Let me\nsee");
        output.push_text("I look.").unwrap();
        output.line(LineKind::Step, "terminal: ls\n\u{1b}[2J");
        output.push_text("Done\u{1b}]0;x\u{7}.").unwrap();
        output.end().unwrap();
        assert_eq!(shared.text(), "~ Let me\n~ see\nI look.\n⚙ terminal: ls␊␛[2J\nDone␛]0;x␇.\n");
        assert_eq!(output.into_answer(), "I look.Done\u{1b}]0;x\u{7}.");
    }

    #[test]
    fn nothing_is_written_while_a_person_is_asked_and_nothing_is_lost() {
        let (mut output, shared) = screen();
        output.push_text("One ").unwrap();
        output.hold();
        output.push_text("two").unwrap();
        output.line(LineKind::Notice, "later");
        assert_eq!(shared.text(), "One \n");
        output.release().unwrap();
        output.end().unwrap();
        assert_eq!(shared.text(), "One \n· later\ntwo\n");
    }

    #[test]
    fn a_program_gets_every_byte_and_a_replaced_answer_whole() {
        let (answers, lines) = (Shared::default(), Shared::default());
        let mut output =
            AnswerOutput::new(Box::new(answers.clone()), Box::new(lines.clone()), OutputLook::default());
        output.push_text("Half\u{1b}").unwrap();
        output.replace_text("Half\u{1b} and more".to_owned()).unwrap();
        output.replace_text("Other".to_owned()).unwrap();
        output.end().unwrap();
        assert_eq!(answers.text(), "Half\u{1b} and more\nOther\n");
        assert_eq!(lines.text(), "· The agent has replaced its answer; the whole new one follows.\n");
        assert_eq!(output.into_answer(), "Other");
    }
}
