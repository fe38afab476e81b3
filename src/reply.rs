//! What should be visible for a turn now.
//!
//! A [`Reply`] folds the events of one turn; the conversation asks it for a [`snapshot`](Reply::snapshot)
//! whenever delivery may show something. A snapshot is always the whole text, never a delta.
//! [`finished`] makes the words that stay. Pure: no time, no platform.
//!
//! Neither thoughts nor files come here: the turn engine takes them out with a [`ThinkFilter`] and a [`FileFilter`]
//! first.

mod fence;
mod files;
mod split;
mod think;
mod verbatim;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::agent::{Step, StepState};
use crate::words::{Phrase, Text, Words};

use self::fence::{Fence, FenceTracker};
pub use self::files::{Enclosed, FILE as LARGEST_FILE, FileFilter, Piece, Trouble};
pub use self::split::{into_parts, split};
pub use self::think::{Part, ThinkFilter};
pub use self::verbatim::{code_block, code_span, fenced};

/// Tools that are looked at as running at once; more could not be shown anyway.
const STEPS: usize = 16;
/// The longest list of running tools that is shown, in characters.
const STEP_CHARS: usize = 60;
/// Between the answer and a line about it.
const BLANK_LINE: &str = "\n\n";

/// One turn as far as it has come.
#[derive(Debug, Default)]
pub struct Reply {
    answer: Answer,
    /// What people could read before a crash; they are never shown less while the turn runs again.
    floor: Answer,
    /// Ids and cleaned names of the tools that run, in the order they began.
    running: Vec<(String, String)>,
    notice: Option<String>,
}

/// How a platform shows a growing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By replacing the text: it may be mended, and may end with a line that goes away again.
    Edit {
        /// The longest text in bytes, at least 200.
        max: usize,
    },
    /// By adding to the text: each snapshot begins with the one before.
    Append,
}

impl Reply {
    /// A turn that begins. `floor` is the text that was visible when an earlier run of it was
    /// lost; empty for a new turn.
    pub fn new(floor: String) -> Self {
        let mut reply = Self::default();
        reply.floor.push(&floor);
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
        same(&self.answer.text).max(same(&self.floor.text))
    }

    /// The whole text that should be visible now; empty if there is nothing to show yet.
    /// Costs what is visible, not what has come.
    pub fn snapshot(&self, style: Style) -> Cow<'_, str> {
        match style {
            Style::Edit { max } => self.edited(max),
            Style::Append => Cow::Borrowed(self.appended()),
        }
    }

    /// The longer of floor and answer, its fence closed, and the line below it.
    fn edited(&self, max: usize) -> Cow<'_, str> {
        let longer = if self.floor.text.len() > self.answer.text.len() { &self.floor } else { &self.answer };
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
        let (answer, floor) = (self.answer.text.trim_end(), self.floor.text.trim_end());
        if answer.starts_with(floor) { answer } else { floor }
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

/// How a turn ended, for people. Stored with the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent said all it wanted.
    Done,
    /// Somebody stopped it.
    Stopped,
    /// The agent reached a length limit.
    Limit,
    /// It broke off after text had come.
    CutShort {
        /// Why, as part of a sentence.
        words: Phrase,
    },
    /// It failed.
    Failed {
        /// What happened and what to do, as one calm sentence.
        words: Phrase,
    },
    /// The process ended while it ran, and it cannot be run again safely.
    Interrupted,
    /// The connection was lost while it may have run, and it cannot be run again safely.
    Unknown {
        /// What happened, as part of a sentence or as one.
        words: Phrase,
    },
    /// It was taken out of the line before it began.
    Cancelled {
        /// Why, as one calm sentence.
        words: Phrase,
    },
}

impl Outcome {
    /// What it is called in the log, and why it came to that, in the log's language.
    pub fn for_the_log(&self) -> (&'static str, Option<String>) {
        let why = |words: &Phrase| Some(bare(&words.to_string()).to_owned()).filter(|why| !why.is_empty());
        match self {
            Self::Done => ("done", None),
            Self::Stopped => ("stopped", None),
            Self::Limit => ("limit", None),
            Self::CutShort { words } => ("cut_short", why(words)),
            Self::Failed { words } => ("failed", why(words)),
            Self::Interrupted => ("interrupted", None),
            Self::Unknown { words } => ("unknown", why(words)),
            Self::Cancelled { words } => ("cancelled", why(words)),
        }
    }
}

/// The text that stays when a turn has ended. Never blank unless the outcome's own words are.
pub fn finished(text: &str, outcome: &Outcome, words: &Words) -> String {
    let text = text.trim_end();
    let say = |text: Text| words.say(&text.into());
    let line = match outcome {
        Outcome::Done if text.is_empty() => say(Text::EmptyAnswer),
        Outcome::Done => return text.to_owned(),
        Outcome::Stopped => say(Text::Stopped),
        Outcome::Limit => say(Text::LengthLimit),
        Outcome::CutShort { words: why } => words.say(&Text::CutShort.with("why", words.say(why).trim())),
        Outcome::Failed { words: why } => match words.say(why).trim() {
            why if why.starts_with('⚠') => why.to_owned(),
            why => format!("⚠️ {why}"),
        },
        Outcome::Interrupted => say(Text::Interrupted),
        Outcome::Unknown { words: why } => {
            let sentence = if text.is_empty() { Text::UnknownNothing } else { Text::UnknownSome };
            words.say(&sentence.with("why", bare(&words.say(why))))
        }
        Outcome::Cancelled { words: why } => return words.say(why).trim_end().to_owned(),
    };
    if text.is_empty() {
        return line;
    }
    let mut fences = FenceTracker::default();
    fences.push(text);
    closed(text, fences.open()).into_owned() + BLANK_LINE + line.as_str()
}

/// Words without a sign before them and without their full stop, to be put into a sentence.
fn bare(words: &str) -> &str {
    words.trim_start_matches(['⚠', '\u{fe0f}', ' ']).trim_end().trim_end_matches('.')
}

/// A text that grows, and the fence that is open at its end.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    fences: FenceTracker,
}

impl Answer {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.fences.push(text);
    }
}

/// The text with its open fence closed.
fn closed<'a>(text: &'a str, open: Option<&Fence>) -> Cow<'a, str> {
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

/// Somebody else's words as a part of one line of ours: at most `chars` characters, nothing that breaks
/// the line, hides, or turns the direction of what follows.
pub fn one_line(text: &str, chars: usize) -> String {
    let visible: String = text.chars().filter(|c| c.is_whitespace() || !invisible(*c)).collect();
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    clip(&line, chars).to_owned()
}

/// Control characters, marks of direction, and characters without width.
fn invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        // Tags and selectors without a glyph: nobody sees them, but a model reads whole sentences in them.
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// The first `chars` characters.
fn clip(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EDIT: Style = Style::Edit { max: 200 };

    fn reply(text: &str) -> Reply {
        let mut reply = Reply::default();
        reply.push_text(text);
        reply
    }

    fn step(id: &str, title: &str, state: StepState) -> Step {
        Step { id: id.into(), title: title.into(), state }
    }

    #[test]
    fn text_is_shown_as_it_comes() {
        let mut reply = Reply::default();
        assert_eq!(reply.snapshot(EDIT), "");
        reply.push_text("Hel");
        assert_eq!(reply.snapshot(EDIT), "Hel");
        reply.push_text("lo\n\n");
        assert_eq!(reply.snapshot(EDIT), "Hello");
        assert_eq!(reply.snapshot(Style::Append), "Hello");
    }

    #[test]
    fn running_tools_have_one_line_at_the_end() {
        let mut reply = reply("Let me look.\n");
        reply.step(step("1", "web_search", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ web_search…");
        reply.step(step("2", "read", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ web_search, read…");
        reply.step(step("1", "web_search", StepState::Done));
        reply.step(step("2", "read file", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ read file…");
        reply.step(step("2", "read file", StepState::Failed));
        reply.step(step("3", "never seen", StepState::Done));
        assert_eq!(reply.snapshot(EDIT), "Let me look.");
    }

    #[test]
    fn a_tool_before_the_first_word_stands_alone() {
        let mut reply = Reply::default();
        reply.step(step("1", "calc", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "⚙️ calc…");
        assert_eq!(reply.snapshot(Style::Append), "");
    }

    #[test]
    fn a_tool_name_is_cleaned() {
        let mut reply = Reply::default();
        reply.step(step("1", "rm\u{202e}\n\t -rf\u{7}\u{200b}", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "⚙️ rm -rf…");
        reply.step(step("1", "\u{2066}", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "⚙️ …", "a name for it is given before it comes here");
        reply.step(step("1", &"ä".repeat(100), StepState::Running));
        assert_eq!(reply.snapshot(EDIT), format!("⚙️ {}…", "ä".repeat(45)), "at most half of 200 bytes");
        assert_eq!(reply.snapshot(Style::Edit { max: 1000 }), format!("⚙️ {}…", "ä".repeat(60)));
    }

    #[test]
    fn a_notice_goes_before_the_tools_until_it_is_taken_away() {
        let mut reply = reply("So far");
        reply.step(step("1", "calc", StepState::Running));
        reply.notice(Some("Trying again until 14:05.".into()));
        assert_eq!(reply.snapshot(EDIT), "So far\n\nTrying again until 14:05.");
        reply.notice(None);
        assert_eq!(reply.snapshot(EDIT), "So far\n\n⚙️ calc…");
    }

    #[test]
    fn an_open_fence_is_closed_but_not_where_text_is_appended() {
        let mut reply = reply("Run:\n   ```sh\n   ls\n");
        reply.step(step("1", "calc", StepState::Running));
        assert_eq!(reply.snapshot(EDIT), "Run:\n   ```sh\n   ls\n   ```\n\n⚙️ calc…");
        assert_eq!(reply.snapshot(Style::Append), "Run:\n   ```sh\n   ls");
    }

    #[test]
    fn what_does_not_fit_shows_its_beginning() {
        let mut reply = reply(&"word ".repeat(100));
        let shown = reply.snapshot(EDIT).into_owned();
        assert!(shown.starts_with("word word") && shown.ends_with("word …") && shown.len() > 190, "{shown}");
        reply.step(step("1", "calc", StepState::Running));
        let shown = reply.snapshot(EDIT).into_owned();
        assert!(shown.ends_with("word …\n\n⚙️ calc…") && shown.len() <= 200, "{shown}");
    }

    #[test]
    fn after_a_crash_never_less_is_shown_than_before() {
        let mut reply = Reply::new("One two three".into());
        assert_eq!(reply.snapshot(EDIT), "One two three");
        reply.push_text("One two");
        assert_eq!(reply.snapshot(EDIT), "One two three");
        assert_eq!(reply.snapshot(Style::Append), "One two three");
        assert_eq!(reply.text(), "One two");
        reply.push_text(" three four");
        assert_eq!(reply.snapshot(EDIT), "One two three four");
        assert_eq!(reply.snapshot(Style::Append), "One two three four");
    }

    #[test]
    fn appended_text_is_not_taken_back_when_a_repeat_turns_out_differently() {
        let mut reply = Reply::new("One two".into());
        reply.push_text("Uno due tre");
        assert_eq!(reply.snapshot(EDIT), "Uno due tre");
        assert_eq!(reply.snapshot(Style::Append), "One two");
    }

    #[test]
    fn the_end_is_said_below_the_text() {
        let words = || Phrase::from("the connection broke");
        for (outcome, with_text, alone) in [
            (Outcome::Done, "Hi", "(No response from remote agent)"),
            (Outcome::Stopped, "Hi\n\n(stopped)", "(stopped)"),
            (
                Outcome::Limit,
                "Hi\n\n(cut short: the length limit was reached)",
                "(cut short: the length limit was reached)",
            ),
            (
                Outcome::CutShort { words: words() },
                "Hi\n\n(cut short: the connection broke)",
                "(cut short: the connection broke)",
            ),
            (Outcome::Failed { words: words() }, "Hi\n\n⚠️ the connection broke", "⚠️ the connection broke"),
            (Outcome::Failed { words: "⚠️ Busy.".into() }, "Hi\n\n⚠️ Busy.", "⚠️ Busy."),
            (
                Outcome::Interrupted,
                "Hi\n\n(interrupted — /retry runs it again)",
                "(interrupted — /retry runs it again)",
            ),
            (Outcome::Cancelled { words: words() }, "the connection broke", "the connection broke"),
        ] {
            assert_eq!(finished("Hi \n", &outcome, &Words::default()), with_text);
            assert_eq!(finished(" \n", &outcome, &Words::default()), alone);
        }
    }

    #[test]
    fn an_open_fence_is_closed_before_the_end_is_said() {
        assert_eq!(finished("~~~\nls", &Outcome::Stopped, &Words::default()), "~~~\nls\n~~~\n\n(stopped)");
    }

    #[test]
    fn an_outcome_can_be_stored() {
        for outcome in [Outcome::Interrupted, Outcome::Failed { words: "no".into() }] {
            let stored = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&stored).unwrap(), outcome);
        }
        assert_eq!(serde_json::to_string(&Outcome::Done).unwrap(), r#""done""#);
        let earlier = r#"{"failed":{"words":"no"}}"#;
        assert_eq!(serde_json::from_str::<Outcome>(earlier).unwrap(), Outcome::Failed { words: "no".into() });
    }

    proptest! {
        #[test]
        fn snapshots_fit_and_appended_ones_only_grow(
            chunks in prop::collection::vec("(?s)([a-zü\n ]|```|~~~){0,60}", 0..20),
            floor in "[a-z`\n]{0,30}",
            title in "(?s).{0,80}",
            notice in prop::option::of("(?s).{0,300}"),
            max in 200usize..400,
        ) {
            let mut reply = Reply::new(floor);
            reply.step(step("1", &title, StepState::Running));
            reply.notice(notice);
            let mut before = String::new();
            for chunk in chunks {
                reply.push_text(&chunk);
                let shown = reply.snapshot(Style::Edit { max });
                prop_assert!(shown.len() <= max, "{} bytes", shown.len());
                let now = reply.snapshot(Style::Append).into_owned();
                prop_assert!(now.starts_with(&before));
                before = now;
            }
        }
    }
}
