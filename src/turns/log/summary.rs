//! What a log holds in the end.

use std::sync::Arc;

use crate::agent::{TokenUsage, TranscriptRecord};
use crate::reply::EnclosedFile;

/// What a turn has come to when it ends.
#[derive(Clone, Debug, Default)]
pub struct TurnSummary {
    /// The whole text.
    pub text: Arc<String>,
    /// Whether that is another one than what was told, and not only longer.
    pub differs: bool,
    /// The names of the tools that were used, each once.
    pub tools: Vec<String>,
    /// The files that came in the text, in order.
    pub files: Vec<EnclosedFile>,
    /// How many came beside those.
    pub more_files: usize,
    /// How what is attached to the question is remembered; `None` if it was not fetched here.
    pub attached: Option<String>,
    /// What it cost.
    pub usage: TokenUsage,
    /// Messages that the agent told, in order.
    pub records: Vec<TranscriptRecord>,
    /// Bytes of text, from its beginning, that people have been shown.
    pub shown: usize,
}
