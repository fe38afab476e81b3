//! What should be visible for a turn now.
//!
//! A [`Reply`] folds the events of one turn; the conversation asks it for a [`snapshot`](Reply::snapshot)
//! whenever delivery may show something. A snapshot is always the whole text, never a delta.
//! [`finished`] makes the words that stay. Pure: no time, no platform.
//!
//! Neither thoughts nor files come here: the turn engine takes them out with a [`ReasoningFilter`] and a [`FileFilter`]
//! first.

pub(crate) mod fence;
mod file_filter;
mod outcome;
mod reasoning_filter;
mod split;

use std::borrow::Cow;

use crate::agent::{Step, StepState};
use crate::util::{clip, one_line};

use self::fence::{CodeFence, FenceTracker};
pub use self::file_filter::{EnclosedFile, FILE as LARGEST_FILE, FileFilter, FileTrouble, TextOrFile};
pub use self::outcome::{TurnOutcome, bare, finished};
pub use self::reasoning_filter::{ReasoningFilter, TextOrReasoning};
pub use self::split::{into_parts, split};

/// Tools that are looked at as running at once; more could not be shown anyway.
const STEPS: usize = 16;
/// The longest list of running tools that is shown, in characters.
const STEP_CHARS: usize = 60;
/// Between the answer and a line about it.
const BLANK_LINE: &str = "\n\n";

/// One turn as far as it has come.
#[derive(Debug, Default)]
pub struct Reply {
    answer: GrowingText,
    /// What people could read before a crash; they are never shown less while the turn runs again.
    already_shown: GrowingText,
    /// Ids and cleaned names of the tools that run, in the order they began.
    running: Vec<(String, String)>,
    notice: Option<String>,
}

/// How a platform shows a growing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowStyle {
    /// By replacing the text: it may be mended, and may end with a line that goes away again.
    Edit {
        /// The longest text in bytes, at least 200.
        max: usize,
    },
    /// By adding to the text: each snapshot begins with the one before.
    Append,
}

impl Reply {
    /// A turn that begins. `already_shown` is the text that was visible when an earlier run of it was
    /// lost; empty for a new turn.
    pub fn new(already_shown: String) -> Self {
        let mut reply = Self::default();
        reply.already_shown.push(&already_shown);
        reply
    }

    /// More of the answer.
    pub fn push_text(&mut self, text: &str) {
        self.answer.push(text);
    }

    /// A tool call began, changed or ended.
    pub fn step(&mut self, step: Step) {
        let known = self.running.iter().position(|(id, _)| *id == step.id);
        match (step.state, known) {
            (StepState::Running, Some(at)) => self.running[at].1 = tool_name(&step.title),
            (StepState::Running, None) if self.running.len() == STEPS => {}
            (StepState::Running, None) => self.running.push((step.id, tool_name(&step.title))),
            (StepState::Done | StepState::Failed, Some(at)) => {
                self.running.remove(at);
            }
            (StepState::Done | StepState::Failed, None) => {}
        }
    }

    /// Something people should know now; replaces the notice before, `None` takes it away.
    pub fn notice(&mut self, notice: Option<String>) {
        self.notice = notice;
    }

    /// The answer so far, without anything added and without the floor.
    pub fn text(&self) -> &str {
        &self.answer.text
    }

    /// How many bytes of the text a snapshot shows, from its beginning: it may have been cut to the longest
    /// message, and something may have been added.
    pub fn shown_by(&self, snapshot: &str) -> usize {
        let same = |text: &str| match text.starts_with(snapshot) {
            // The usual case, and on a terminal the only one: looked at for each frame, so it must be cheap.
            true => snapshot.len(),
            false => text.bytes().zip(snapshot.bytes()).take_while(|(a, b)| a == b).count(),
        };
        same(&self.answer.text).max(same(&self.already_shown.text))
    }

    /// The whole text that should be visible now; empty if there is nothing to show yet.
    /// Costs what is visible, not what has come.
    pub fn snapshot(&self, style: ShowStyle) -> Cow<'_, str> {
        match style {
            ShowStyle::Edit { max } => self.edited(max),
            ShowStyle::Append => Cow::Borrowed(self.appended()),
        }
    }

    /// The longer of floor and answer, its fence closed, and the line below it.
    fn edited(&self, max: usize) -> Cow<'_, str> {
        let longer = if self.already_shown.text.len() > self.answer.text.len() {
            &self.already_shown
        } else {
            &self.answer
        };
        let text = longer.text.trim_end();
        let line = self.line(max / 2);
        if text.is_empty() {
            return Cow::Owned(line);
        }
        let below = if line.is_empty() { 0 } else { BLANK_LINE.len() + line.len() };
        let closing = longer.fences.open().map_or(0, |fence| 1 + fence.closing_len());

        let body = if text.len() + closing + below > max {
            Cow::Owned(split::beginning(text, max.saturating_sub(below)))
        } else {
            closed(text, longer.fences.open())
        };
        if line.is_empty() { body } else { Cow::Owned(body.into_owned() + BLANK_LINE + line.as_str()) }
    }

    /// The answer as it grows. As long as it has not caught up with the floor, or if it turned out
    /// differently, the floor stays: what has been printed cannot be taken back.
    fn appended(&self) -> &str {
        // White space at the end is not there in the finished text either.
        let (answer, already_shown) = (self.answer.text.trim_end(), self.already_shown.text.trim_end());
        if answer.starts_with(already_shown) { answer } else { already_shown }
    }

    /// The one line below the answer, at most `max` bytes. A notice is rarer than a tool call and
    /// says why nothing moves, so it goes first.
    fn line(&self, max: usize) -> String {
        let line = match &self.notice {
            Some(notice) => notice.trim().to_owned(),
            None if self.running.is_empty() => String::new(),
            None => {
                let names: Vec<_> = self.running.iter().map(|(_, name)| name.as_str()).collect();
                format!("⚙️ {}…", clip(&names.join(", "), STEP_CHARS))
            }
        };
        if line.len() <= max {
            return line;
        }
        let end = line.floor_char_boundary(max.saturating_sub('…'.len_utf8()));
        line[..end].to_owned() + "…"
    }
}

/// A text that grows, and the fence that is open at its end.
#[derive(Debug, Default)]
struct GrowingText {
    text: String,
    fences: FenceTracker,
}

impl GrowingText {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.fences.push(text);
    }
}

/// The text with its open fence closed.
fn closed<'a>(text: &'a str, open: Option<&CodeFence>) -> Cow<'a, str> {
    match open {
        Some(fence) => Cow::Owned(format!("{text}\n{}", fence.closing())),
        None => Cow::Borrowed(text),
    }
}

/// A tool's name as it may stand in a line. The name comes from the agent: it must neither break the
/// line nor turn the direction of what follows.
fn tool_name(title: &str) -> String {
    one_line(title, STEP_CHARS)
}

#[cfg(test)]
mod tests;
