//! The conversation in a process: opened anew, or opened again after its process was ended.
//!
//! A conversation that the agent no longer has is never replaced silently: people are told, or the turn fails. Silence is
//! no such news: then the turn fails and the conversation stays what it is.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure;
use super::process::AcpProcess;
use super::settings::SessionSettings;
use crate::agent::{AgentError, AgentErrorKind, UPSTREAM_BYTES};
use crate::agents::jsonrpc::{RpcError, RpcFault};
use crate::agents::sorted_json::text_field;
use crate::i18n::TextKey;
use crate::util::hash;

/// Time limit of `session/new`. Agents start programs of their own for it.
const NEW: Duration = Duration::from_secs(60);

/// Our notes about the conversation of a session, as they are stored with the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReport {
    /// The agent's id of it.
    pub acp_session: String,
    /// The folder that it works in. A session in another folder is another conversation.
    pub cwd: String,
    /// Whether a prompt was sent in it. Agents keep nothing of a conversation without one.
    pub begun: bool,
    /// Hash of the words of ours that the agent was told last; empty for none.
    #[serde(default)]
    pub context: String,
}

/// A conversation that is open in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSession {
    /// The agent's id of it.
    pub id: String,
    /// Whether a prompt was sent in it.
    pub is_begun: bool,
    /// The model and the effort that can be chosen.
    pub settings: SessionSettings,
}

/// Why a conversation could not be opened again.
#[derive(Debug)]
pub enum LoadError {
    /// The agent does not have it.
    Forgotten(RpcFault),
    /// The agent did not answer in time, ended, or failed for another reason, which may pass.
    Failed(RpcError),
}

/// Codes with which agents say that they do not have a conversation, or cannot open any again.
const UNKNOWN_SESSION: [i64; 3] = [-32_002, -32_601, -32_602];

/// Words of the same, of agents that give every fault one code.
const UNKNOWN_WORDS: [&str; 6] = [
    "not found",
    "no rollout",
    "invalid session",
    "unknown session",
    "no previous session",
    "does not exist",
];

/// Whether the agent says that it does not have the conversation. A failure of any other kind may pass, and what the
/// conversation knows must not be lost for it.
fn is_unknown_session(fault: &RpcFault) -> bool {
    let data = fault.data.as_ref().map(Value::to_string).unwrap_or_default();
    let said = format!("{} {data}", fault.message).to_lowercase();
    UNKNOWN_SESSION.contains(&fault.code) || UNKNOWN_WORDS.iter().any(|words| said.contains(words))
}

impl SessionReport {
    /// Reads a stored report; `None` if there is none of ours.
    pub fn read(stored: Option<&Value>) -> Option<Self> {
        serde_json::from_value(stored?.clone()).ok()
    }

    /// The value to store.
    pub fn to_value(&self) -> Value {
        json!(self)
    }

    /// Whether a report about this conversation can be stored, whatever else it says.
    fn can_name(id: &str, cwd: &str) -> bool {
        let (acp_session, cwd) = (id.to_owned(), cwd.to_owned());
        let longest = Self { acp_session, cwd, begun: false, context: hash([""]) };
        longest.to_value().to_string().len() <= UPSTREAM_BYTES
    }
}

impl OpenSession {
    fn read(id: &str, answer: &Value) -> Self {
        Self { id: id.to_owned(), is_begun: false, settings: SessionSettings::read(answer) }
    }
}

impl AcpProcess {
    /// Opens a new conversation, and returns its id.
    pub async fn new_session(&mut self, cwd: &str) -> Result<String, AgentError> {
        let params = json!({ "cwd": cwd, "mcpServers": [] });
        let answer = match self.call("session/new", params, NEW).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, stderr = failure::shown_stderr(&self.rpc), "an agent opens no conversation");
                return Err(failure::no_session(&error));
            }
        };
        let id = text_field(&answer, "sessionId").to_owned();
        if id.is_empty() {
            tracing::error!("an agent opened a conversation without an id");
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpSession));
        }
        if !SessionReport::can_name(&id, cwd) {
            tracing::error!(
                bytes = id.len(),
                "an agent gave its conversation an id that is too long to be stored"
            );
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpSession));
        }
        self.session = Some(OpenSession::read(&id, &answer));
        Ok(id)
    }

    /// Opens a conversation of an earlier process. The agent repeats it, which nobody is shown.
    pub async fn load_session(&mut self, id: &str, cwd: &str, deadline: Duration) -> Result<(), LoadError> {
        let params = json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] });
        match self.call("session/load", params, deadline).await {
            Ok(answer) => {
                self.session = Some(OpenSession { is_begun: true, ..OpenSession::read(id, &answer) });
                Ok(())
            }
            Err(RpcError::Fault(fault)) if is_unknown_session(&fault) => Err(LoadError::Forgotten(fault)),
            Err(error) => Err(LoadError::Failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_another_agent_is_none() {
        let report =
            SessionReport { acp_session: "s1".into(), cwd: "/w".into(), begun: true, context: String::new() };
        assert_eq!(SessionReport::read(Some(&report.to_value())), Some(report));
        assert_eq!(SessionReport::read(Some(&json!({ "thread": "t" }))), None);
        assert_eq!(SessionReport::read(None), None);
    }

    #[test]
    fn only_a_conversation_that_is_not_there_counts_as_forgotten() {
        let fault = |code, message: &str, data| RpcFault { code, message: message.to_owned(), data };
        for known in [
            fault(-32_002, "Resource not found: s1", None),
            fault(-32_602, "Invalid params", None),
            fault(-32_603, "Internal error", Some(json!({ "details": "no rollout found for thread id s1" }))),
            fault(
                -32_603,
                "Internal error",
                Some(json!({ "details": "invalid session id: found `n` at 1" })),
            ),
        ] {
            assert!(is_unknown_session(&known), "{known}");
        }
        let passing = fault(-32_603, "Internal error", Some(json!({ "details": "No space left on device" })));
        assert!(!is_unknown_session(&passing));
    }
}
