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
}

impl ThreadReport {
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
        let report = ThreadReport { thread: "01".into(), cwd: "/w".into(), begun: true };
        assert_eq!(ThreadReport::read(Some(&report.to_value())), Some(report));
        assert_eq!(ThreadReport::read(Some(&json!({ "window": "told" }))), None);
        assert_eq!(ThreadReport::read(None), None);
    }
}
