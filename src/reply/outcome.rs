//! The outcome of a turn, and the final text of its reply.

use serde::{Deserialize, Serialize};

use super::fence::FenceTracker;
use super::{BLANK_LINE, closed};
use crate::i18n::{LocalizedText, TextCatalog, TextKey};

/// End of a turn as people see it. Stored with the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The agent finished its answer.
    Done,
    /// A person or a program stopped it.
    Stopped,
    /// The agent reached a length limit.
    Limit,
    /// The answer broke off after some text had come.
    CutShort {
        /// Why, as part of a sentence.
        words: LocalizedText,
    },
    /// The turn failed.
    Failed {
        /// The failure and the next step, as one calm sentence.
        words: LocalizedText,
    },
    /// Nothing ran, because the agent is away or busy, and the caller does not wait for it.
    Unavailable {
        /// The failure and the next step, as one calm sentence.
        words: LocalizedText,
        /// Whether the upstream refused it for too many requests.
        rate_limited: bool,
        /// Seconds after which a retry is worthwhile.
        retry_after: u64,
    },
    /// The process ended during the turn, and the turn cannot be repeated safely.
    Interrupted,
    /// The connection was lost while the turn may have run, and it cannot be repeated safely.
    Unknown {
        /// The failure, as part of a sentence or as one.
        words: LocalizedText,
    },
    /// The turn was removed from the queue before it began.
    Cancelled {
        /// Why, as one calm sentence.
        words: LocalizedText,
    },
}

impl TurnOutcome {
    /// Name of the outcome and its reason, for the log and in the log's language.
    pub fn for_the_log(&self) -> (&'static str, Option<String>) {
        let why =
            |words: &LocalizedText| Some(bare(&words.to_string()).to_owned()).filter(|why| !why.is_empty());
        match self {
            Self::Done => ("done", None),
            Self::Stopped => ("stopped", None),
            Self::Limit => ("limit", None),
            Self::CutShort { words } => ("cut_short", why(words)),
            Self::Failed { words } => ("failed", why(words)),
            Self::Unavailable { words, .. } => ("unavailable", why(words)),
            Self::Interrupted => ("interrupted", None),
            Self::Unknown { words } => ("unknown", why(words)),
            Self::Cancelled { words } => ("cancelled", why(words)),
        }
    }
}

/// The final text of a turn. Never blank unless the outcome's own words are.
pub fn finished(text: &str, outcome: &TurnOutcome, words: &TextCatalog) -> String {
    let text = text.trim_end();
    let say = |text: TextKey| words.say(&text.into());
    let line = match outcome {
        TurnOutcome::Done if text.is_empty() => say(TextKey::EmptyAnswer),
        TurnOutcome::Done => return text.to_owned(),
        TurnOutcome::Stopped => say(TextKey::Stopped),
        TurnOutcome::Limit => say(TextKey::LengthLimit),
        TurnOutcome::CutShort { words: why } => {
            // Most reasons are parts of a sentence; errors of a request are sentences of their own.
            words.say(&TextKey::CutShort.with("why", bare(&words.say(why))))
        }
        TurnOutcome::Failed { words: why } | TurnOutcome::Unavailable { words: why, .. } => {
            match words.say(why).trim() {
                why if why.starts_with('⚠') => why.to_owned(),
                why => format!("⚠️ {why}"),
            }
        }
        TurnOutcome::Interrupted => say(TextKey::Interrupted),
        TurnOutcome::Unknown { words: why } => {
            let sentence = if text.is_empty() { TextKey::UnknownNothing } else { TextKey::UnknownSome };
            words.say(&sentence.with("why", bare(&words.say(why))))
        }
        TurnOutcome::Cancelled { words: why } => return words.say(why).trim_end().to_owned(),
    };
    if text.is_empty() {
        return line;
    }
    let mut fences = FenceTracker::default();
    fences.push(text);
    closed(text, fences.open()).into_owned() + BLANK_LINE + line.as_str()
}

/// A text without its leading sign and its full stop, to be used inside a sentence.
pub fn bare(words: &str) -> &str {
    words.trim_start_matches(['⚠', '\u{fe0f}', ' ']).trim_end().trim_end_matches('.')
}
