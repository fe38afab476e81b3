//! The state of a server, in words for operators and in words for rooms.
//!
//! An operator gets the exact reason of a failure. It may quote the server and name paths, so a room gets the kind only.

use serde::{Deserialize, Serialize};

use crate::i18n::{LocalizedText, TextKey};
use crate::util::one_line;

/// Characters of a reason that operators are shown: the library's words, those of the process, and ours between them.
const REASON: usize = 1_000;

/// One server, for operators and rooms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it runs.
    pub state: McpServerState,
    /// Number of tools that it offers; 0 if they were never learned.
    pub tools: usize,
}

/// State of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServerState {
    /// Switched off in the configuration.
    Disabled,
    /// Nobody needs it now.
    NotStarted,
    /// It is about to run.
    Starting,
    /// It runs.
    Running,
    /// It failed, and is started again when it is needed after a pause.
    Failed(McpFailure),
}

/// Why a server does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpFailure {
    /// Kind of the failure, which a room may know.
    pub kind: McpFailureKind,
    /// The exact reason in one line, for operators. It may have words of the server.
    pub reason: String,
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpFailureKind {
    /// Its program could not be started, or its client could not be made.
    NotStarted,
    /// Nobody answers at its address.
    Unreachable,
    /// It was not ready within its time limit.
    TooSlow,
    /// It ended, or closed the connection.
    Ended,
    /// It answered with an HTTP status that is no success.
    Refused {
        /// The status.
        status: u16,
    },
    /// It did not keep to the protocol, or sent too much.
    Faulty,
}

impl McpFailure {
    /// A failure with its exact reason.
    pub(super) fn new(kind: McpFailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

impl McpServerStatus {
    /// One line for a room.
    pub fn room_line(&self) -> LocalizedText {
        let state = match &self.state {
            McpServerState::Disabled => TextKey::StatusMcpDisabled.into(),
            McpServerState::NotStarted => TextKey::StatusMcpNotStarted.into(),
            McpServerState::Starting => TextKey::StatusMcpStarting.into(),
            McpServerState::Running => TextKey::StatusMcpRunning.into(),
            McpServerState::Failed(failure) => {
                TextKey::StatusMcpFailed.with("why", failure.kind.room_words())
            }
        };
        let tools = match (&self.state, self.tools) {
            (McpServerState::NotStarted | McpServerState::Starting, 0) => TextKey::StatusMcpUnknown.into(),
            // Nobody can call them now, whether or not they were learned before.
            (McpServerState::Failed(_) | McpServerState::Disabled, _) => LocalizedText::from(0_usize),
            (McpServerState::NotStarted | McpServerState::Starting | McpServerState::Running, tools) => {
                LocalizedText::from(tools)
            }
        };
        TextKey::StatusMcp.with("server", self.name.as_str()).with("state", state).with("tools", tools)
    }
}

impl McpServerState {
    /// The state in a word or two for operators.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Disabled => "switched off",
            Self::NotStarted => "not started",
            Self::Starting => "starts",
            Self::Running => "runs",
            Self::Failed(_) => "failed",
        }
    }

    /// The exact reason of a failure, for operators.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Failed(failure) => Some(one_line(&failure.reason, REASON)),
            Self::Disabled | Self::NotStarted | Self::Starting | Self::Running => None,
        }
    }
}

impl McpFailureKind {
    /// The kind in our own words, a part of a sentence.
    fn room_words(self) -> LocalizedText {
        match self {
            Self::NotStarted => TextKey::McpFailedStart.into(),
            Self::Unreachable => TextKey::McpFailedReach.into(),
            Self::TooSlow => TextKey::McpFailedTime.into(),
            Self::Ended => TextKey::McpFailedEnd.into(),
            Self::Refused { status } => TextKey::McpFailedRefusal.with("status", status),
            Self::Faulty => TextKey::McpFailedProtocol.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(state: McpServerState, tools: usize) -> String {
        McpServerStatus { name: "files".to_owned(), state, tools }.room_line().to_string()
    }

    #[test]
    fn a_room_is_told_the_kind_of_a_failure_and_never_its_words() {
        let failed = |kind| line(McpServerState::Failed(McpFailure::new(kind, "/srv/key: no")), 7);
        let kinds = [
            McpFailureKind::NotStarted,
            McpFailureKind::Unreachable,
            McpFailureKind::TooSlow,
            McpFailureKind::Ended,
            McpFailureKind::Refused { status: 401 },
            McpFailureKind::Faulty,
        ];
        insta::assert_snapshot!(kinds.map(failed).join("\n"), @"
        MCP server files: does not work, because it could not be started. Tools: 0.
        MCP server files: does not work, because it could not be reached. Tools: 0.
        MCP server files: does not work, because it did not answer in time. Tools: 0.
        MCP server files: does not work, because it ended. Tools: 0.
        MCP server files: does not work, because it refused us (401). Tools: 0.
        MCP server files: does not work, because it did not keep to the protocol. Tools: 0.
        ");
    }

    #[test]
    fn a_room_is_told_the_state_and_the_number_of_tools() {
        let states = [
            (McpServerState::Running, 11),
            (McpServerState::NotStarted, 0),
            (McpServerState::NotStarted, 11),
            (McpServerState::Starting, 0),
            (McpServerState::Disabled, 0),
        ];
        insta::assert_snapshot!(states.map(|(state, tools)| line(state, tools)).join("\n"), @"
        MCP server files: runs. Tools: 11.
        MCP server files: not started. Tools: not known yet.
        MCP server files: not started. Tools: 11.
        MCP server files: is being started. Tools: not known yet.
        MCP server files: switched off. Tools: 0.
        ");
    }
}
