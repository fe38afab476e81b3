//! The forge surface: programs run coding agents, once (`POST /run`) or in sessions of several turns (`/sessions`).
//!
//! A forge session is a session of its app over the same engine, limits and store as everything else; its turns are
//! submitted through `submit`. What it has beside: an agent by name, a working folder of its own, turns that are counted and
//! never wait, a life that the [`sweeper`](sweep_regularly) ends, and an audit. Clients of this surface know errors in a form
//! of their own (`error_form`), and events as the agent sent them (`agent_lines`).

mod admin_tokens;
mod agent_lines;
mod copy_quota;
mod error_form;
mod folders;
mod health;
mod multipart;
mod prompt_files;
mod result_text;
mod run;
mod session_view;
mod sessions;
mod sweeper;
mod turn;
mod turn_answer;
mod turn_clock;
mod turn_events;
mod turn_outcome;
mod uploads;

use std::path::PathBuf;
use std::time::Duration;

use axum::http::StatusCode;

pub use admin_tokens::{AdminTokenList, AppTokenView, MadeToken, NewAppToken, RevokedAppToken};
pub use admin_tokens::{
    authenticate, list as list_tokens, make as make_token, one as one_token, revoke as revoke_token,
};
pub use error_form::{ForgeErrorSchema, is_forge_path, reshape};
pub use folders::ForgeFolders;
pub use health::{ForgeHealth, health};
pub use run::{RunBody, RunResult, run};
pub use session_view::{AuditView, ClosedForgeSession, ForgeSessionList, ForgeSessionView, MadeForgeSession};
pub use sessions::{ForgeListQuery, NewSessionBody, audit, close, create, list, show};
pub use sweeper::sweep_regularly;
pub use turn::{CancelledTurn, TurnBody, cancel, turn};
pub use turn_answer::TurnAnswerSchema;
pub use uploads::{UploadForm, UploadedFile, upload};

use super::{ApiError, Caller, Server};
use crate::config::ForgeConfig;
use crate::ids::AgentName;

/// Settings of the forge surface.
#[derive(Clone, Debug, Default)]
pub struct ForgeSettings {
    /// The section `forge` of the configuration.
    pub config: ForgeConfig,
    /// The folder that holds the folders of sessions and the uploaded files. Made when it is first needed.
    pub folder: PathBuf,
}

/// `Retry-After` of a turn that comes while another one runs.
const BUSY_AGAIN: Duration = Duration::from_secs(2);

/// `Retry-After` when too many sessions are open: one of them must be closed first.
const FULL_AGAIN: Duration = Duration::from_secs(30);

/// Most bytes of a prompt.
const LONGEST_PROMPT: usize = 4 * 1024 * 1024;

/// Time limit of a turn that names none.
const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest time limit of a turn, in seconds.
const LONGEST_TIMEOUT: u64 = 24 * 60 * 60;

/// The session was closed.
pub fn closed() -> ApiError {
    ApiError::new(StatusCode::GONE, "session_closed", "This session is closed; begin a new one")
}

/// A turn of the session has not ended.
pub fn busy() -> ApiError {
    let message = "A turn runs in this session; ask again when it has ended, or cancel it";
    let retry_after = Some(BUSY_AGAIN);
    ApiError { retry_after, ..ApiError::new(StatusCode::CONFLICT, "turn_in_progress", message) }
}

/// A turn for a forge session came through another surface.
pub fn elsewhere() -> ApiError {
    let message = "This session takes its turns at POST /sessions/{session_id}/turn";
    ApiError::new(StatusCode::CONFLICT, "forge_session", message)
}

/// Another surface would end a forge session, without the close that its app is told of.
pub fn ended_elsewhere() -> ApiError {
    let message = "This session ends with DELETE /sessions/{session_id}, and cannot be forked";
    ApiError::new(StatusCode::CONFLICT, "forge_session", message)
}

fn full() -> ApiError {
    let message = "Too many sessions are open on this server; close one, or ask again later";
    let retry_after = Some(FULL_AGAIN);
    ApiError { retry_after, ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", message) }
}

/// Checks the prompt of a turn.
fn checked_prompt(prompt: String) -> Result<String, ApiError> {
    if prompt.trim().is_empty() {
        return Err(ApiError::wrong("prompt", "There must be a prompt, and not an empty one"));
    }
    if prompt.len() > LONGEST_PROMPT {
        let message = format!("The prompt is larger than {LONGEST_PROMPT} bytes");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "prompt_too_large", message));
    }
    Ok(prompt)
}

/// Reads the time limit of a turn.
fn timeout(seconds: Option<u64>) -> Result<Duration, ApiError> {
    match seconds {
        None => Ok(USUAL_TIMEOUT),
        Some(seconds) if (1..=LONGEST_TIMEOUT).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        Some(_) => {
            let message = format!("It is a number of seconds from 1 to {LONGEST_TIMEOUT}");
            Err(ApiError::wrong("timeout_secs", message))
        }
    }
}

/// Reads the name of a model.
fn model(written: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(model) = written.map(|model| model.trim().to_owned()).filter(|model| !model.is_empty()) else {
        return Ok(None);
    };
    if model.chars().count() > 128 || model.contains(char::is_control) {
        return Err(ApiError::wrong("model", "A model has a name of one line with at most 128 characters"));
    }
    Ok(Some(model))
}

impl Server {
    /// The agent with this name, or the one for requests that name none. An unknown name is refused: another agent must not
    /// be asked in its place.
    async fn forge_agent(&self, caller: &Caller, name: Option<&str>) -> Result<AgentName, ApiError> {
        let agents = self.turns.agents();
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        let wanted = name.unwrap_or(&self.settings.forge.config.run_agent);
        let Some(agent) = AgentName::new(wanted) else {
            let message = "The name of an agent has 1 to 64 letters, digits, `_`, `-` and `.`";
            return Err(ApiError::wrong("agent", message));
        };
        let Some(known) = agents.get(&agent) else {
            let usable = agents.iter().filter(|(_, other)| other.about().takes_folder);
            let usable = usable.map(|(name, _)| name).filter(|name| self.admits(caller, name));
            let usable: Vec<_> = usable.map(AgentName::as_str).collect();
            let missing = match name {
                Some(_) => format!("There is no agent {agent}"),
                None => format!("No `agent` is named, and the usual one, {agent}, does not exist"),
            };
            let message = format!("{missing}; there are: {}", usable.join(", "));
            return Err(ApiError { code: "unknown_agent", ..ApiError::wrong("agent", message) });
        };
        self.admit(caller, &agent).await?;
        if !known.about().takes_folder {
            let message =
                format!("The agent {agent} cannot work in a folder of its own; name one that is a program");
            return Err(ApiError { code: "agent_without_folder", ..ApiError::wrong("agent", message) });
        }
        Ok(agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_a_time_limit_whatever_is_asked() {
        assert_eq!(timeout(None).ok(), Some(USUAL_TIMEOUT));
        assert_eq!(timeout(Some(1)).ok(), Some(Duration::from_secs(1)));
        for wrong in [0, LONGEST_TIMEOUT + 1, u64::MAX] {
            assert_eq!(timeout(Some(wrong)).map_err(|problem| problem.status.as_u16()), Err(400));
        }
    }

    #[test]
    fn a_prompt_has_words_and_a_bound() {
        assert_eq!(checked_prompt(" hi ".to_owned()).ok().as_deref(), Some(" hi "), "unchanged");
        let status = |prompt: String| checked_prompt(prompt).map_err(|problem| problem.status.as_u16());
        assert_eq!(status(" \n".to_owned()), Err(400));
        assert!(status("x".repeat(LONGEST_PROMPT)).is_ok());
        assert_eq!(status("x".repeat(LONGEST_PROMPT + 1)), Err(413));
    }
}
