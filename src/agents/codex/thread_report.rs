//! Our notes about the thread of a session, as they are stored with the session.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Notes about a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Codex' id of the thread.
    pub thread: String,
    /// The folder that it works in. A session in another folder is another thread.
    pub cwd: String,
    /// Whether a turn was started in it. Codex keeps nothing of a thread before.
    #[serde(default)]
    pub begun: bool,
    /// Whether it stands for a thread that codex has lost, which people may not have been told yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replacement: bool,
}

impl ThreadReport {
    /// Notes about a thread in which a turn was started.
    pub fn begun(thread: &str, cwd: &str) -> Self {
        Self { thread: thread.to_owned(), cwd: cwd.to_owned(), begun: true, is_replacement: false }
    }

    /// Notes about a thread in which nothing was started. `is_replacement`: codex has lost the one before it.
    pub fn new(thread: &str, cwd: &str, is_replacement: bool) -> Self {
        Self { begun: false, is_replacement, ..Self::begun(thread, cwd) }
    }

    /// Reads a stored report; `None` if there is none, or it is of another agent.
    pub fn read(report: Option<&Value>) -> Option<Self> {
        Self::deserialize(report?).ok()
    }

    /// The report to store.
    pub fn to_value(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_and_those_of_others_are_left_alone() {
        for report in [ThreadReport::begun("01", "/w"), ThreadReport::new("01", "/w", true)] {
            assert_eq!(ThreadReport::read(Some(&report.to_value())), Some(report));
        }
        let older = json!({ "thread": "01", "cwd": "/w" });
        assert_eq!(ThreadReport::read(Some(&older)), Some(ThreadReport::new("01", "/w", false)));
        assert_eq!(ThreadReport::read(Some(&json!({ "window": "told" }))), None);
        assert_eq!(ThreadReport::read(None), None);
    }
}
