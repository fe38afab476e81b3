//! The result of a turn, taken out of its log at the end.

use std::mem;
use std::sync::Arc;

use super::TurnLog;
use crate::agent::TokenUsage;
use crate::i18n::LocalizedText;
use crate::reply::EnclosedFile;

/// Text, files, tools and cost of a turn that has ended. The engine stores it.
#[derive(Clone, Debug, Default)]
pub struct TurnSummary {
    /// The whole final text.
    pub text: Arc<String>,
    /// Whether the final text is not an extension of the text that readers already received.
    pub differs: bool,
    /// Names of the tools that were used, each once.
    pub tools: Vec<String>,
    /// Files contained in the text, in order.
    pub files: Vec<EnclosedFile>,
    /// Number of files left out because there were too many.
    pub more_files: usize,
    /// Text that stands for the prompt's attachments in the transcript; `None` if this process did not fetch them.
    pub attached: Option<String>,
    /// Token usage reported by the agent.
    pub usage: TokenUsage,
    /// Names and values about the run for programs.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Sentences of ours that stay below the answer.
    pub remarks: Vec<LocalizedText>,
    /// Bytes of text, from its beginning, that people have been shown.
    pub shown: usize,
}

impl TurnLog {
    /// Returns the whole text, the tools and the cost. The text may be long, so it moves out of the log unless readers
    /// may still come.
    pub fn take_summary(&self) -> TurnSummary {
        let mut inner = self.lock();
        let settled = inner.settled.take();
        // The agent is done, so nobody compares with this text any more. It may be as long as the log's own, which may
        // stay.
        inner.before = String::new();
        let told = || if self.for_readers { inner.text.clone() } else { mem::take(&mut inner.text) };
        TurnSummary {
            text: settled.map_or_else(told, Arc::new),
            differs: inner.differs,
            tools: mem::take(&mut inner.tools),
            files: mem::take(&mut inner.files),
            more_files: inner.more_files,
            attached: inner.attached.take(),
            usage: inner.usage,
            facts: mem::take(&mut inner.facts),
            remarks: mem::take(&mut inner.remarks),
            shown: inner.shown,
        }
    }
}
