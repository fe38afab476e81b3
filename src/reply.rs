//! Folds the events of a turn into the text that should be visible now.
//!
//! The conversation asks a [`Reply`] for a [`snapshot`](Reply::snapshot) whenever delivery may show something.
//! A snapshot is always the whole text, never a delta. [`finished`] makes the text that stays. Pure: no time,
//! no platform.
//!
//! Neither reasoning nor files come here: the turn engine removes them with a [`ReasoningFilter`] and a
//! [`FileFilter`] first.

pub(crate) mod fence;
mod file_filter;
mod outcome;
mod reasoning_filter;
mod split;
mod spoken;

use std::borrow::Cow;

use crate::agent::{Step, StepState};
use crate::util::{clip, code_span, one_line};

use self::fence::{CodeFence, FenceTracker};
pub use self::file_filter::{EnclosedFile, FILE as LARGEST_FILE, FileFilter, FileTrouble, TextOrFile};
pub use self::outcome::{TurnOutcome, bare, finished};
pub use self::reasoning_filter::{ReasoningFilter, TextOrReasoning};
pub use self::split::{into_parts, split};
pub use self::spoken::spoken_text;

/// Most running tools that are tracked; more could not be shown anyway.
const STEPS: usize = 16;
/// Longest list of running tools that is shown, in characters.
const STEP_CHARS: usize = 60;
/// Longest subject of a call that is shown, in characters.
const DETAIL_CHARS: usize = 80;
/// Separates the answer from a line about it.
const BLANK_LINE: &str = "\n\n";

/// The reply of one turn so far.
#[derive(Debug, Default)]
pub struct Reply {
    answer: GrowingText,
    /// Text that people could read before a crash; they are never shown less while the turn runs again.
    already_shown: GrowingText,
    /// The running tools, in the order they began.
    running: Vec<RunningTool>,
    notice: Option<String>,
}

/// The platform's way to show a growing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowStyle {
    /// By replacing the text: it may change, and may end with a temporary line.
    Edit {
        /// The longest text in bytes, at least 200.
        max: usize,
    },
    /// By appending to the text: each snapshot begins with the one before.
    Append,
}

impl Reply {
    /// Creates the reply of a turn that begins. `already_shown` is the text that was visible when an earlier
    /// run of the turn was lost; empty for a new turn.
    pub fn new(already_shown: String) -> Self {
        let mut reply = Self::default();
        reply.already_shown.push(&already_shown);
        reply
    }

    /// Appends to the answer.
    pub fn push_text(&mut self, text: &str) {
        self.answer.push(text);
    }

    /// Records that a tool call began, changed or ended.
    pub fn step(&mut self, step: Step) {
        let known = self.running.iter().position(|tool| tool.id == step.id);
        match (step.state, known) {
            (StepState::Running, Some(at)) => self.running[at] = RunningTool::new(step),
            (StepState::Running, None) if self.running.len() == STEPS => {}
            (StepState::Running, None) => self.running.push(RunningTool::new(step)),
            (StepState::Done | StepState::Failed, Some(at)) => {
                self.running.remove(at);
            }
            (StepState::Done | StepState::Failed, None) => {}
        }
    }

    /// Sets the notice to show now; `None` removes it.
    pub fn notice(&mut self, notice: Option<String>) {
        self.notice = notice;
    }

    /// The answer so far, without additions and without `already_shown`.
    pub fn text(&self) -> &str {
        &self.answer.text
    }

    /// Bytes of the text, from its beginning, that a snapshot shows: it may have been cut to the longest
    /// message, and have additions.
    pub fn shown_by(&self, snapshot: &str) -> usize {
        let same = |text: &str| match text.starts_with(snapshot) {
            // The usual case, and on a terminal the only one: checked for each frame, so it must be cheap.
            true => snapshot.len(),
            false => text.bytes().zip(snapshot.bytes()).take_while(|(a, b)| a == b).count(),
        };
        same(&self.answer.text).max(same(&self.already_shown.text))
    }

    /// The whole text that should be visible now; empty if there is nothing to show yet. Its cost depends on
    /// the visible text, not on the whole answer.
    pub fn snapshot(&self, style: ShowStyle) -> Cow<'_, str> {
        match style {
            ShowStyle::Edit { max } => self.edited(max),
            ShowStyle::Append => Cow::Borrowed(self.appended()),
        }
    }

    /// The longer of `already_shown` and the answer, with its fence closed, and the line below it.
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

    /// The answer as it grows. Until it has caught up with `already_shown`, or if it differs from it,
    /// `already_shown` stays: printed text cannot be taken back.
    fn appended(&self) -> &str {
        // The finished text has no trailing white space either.
        let (answer, already_shown) = (self.answer.text.trim_end(), self.already_shown.text.trim_end());
        if answer.starts_with(already_shown) { answer } else { already_shown }
    }

    /// The line below the answer, at most `max` bytes. A notice is rarer than a tool call and says why nothing
    /// moves, so it takes precedence.
    fn line(&self, max: usize) -> String {
        let line = match &self.notice {
            Some(notice) => notice.trim().to_owned(),
            None if self.running.is_empty() => String::new(),
            None => match self.running.as_slice() {
                [RunningTool { name, detail, .. }] if !detail.is_empty() => format!("⚙️ {name}: {detail}"),
                running => {
                    let names: Vec<_> = running.iter().map(|tool| tool.name.as_str()).collect();
                    format!("⚙️ {}…", clip(&names.join(", "), STEP_CHARS))
                }
            },
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

/// A running tool. Its texts come from the agent: they must neither break the line nor change the direction of the text
/// behind them.
#[derive(Debug)]
struct RunningTool {
    id: String,
    name: String,
    /// The subject of the call, as code; empty if there is none. Shown while no other tool runs.
    detail: String,
}

impl RunningTool {
    fn new(step: Step) -> Self {
        let detail =
            step.detail.map(|detail| one_line(&detail, usize::MAX)).filter(|detail| !detail.is_empty());
        Self {
            id: step.id,
            name: one_line(&step.title, STEP_CHARS),
            detail: detail.map(|detail| code_span(&detail, DETAIL_CHARS)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
