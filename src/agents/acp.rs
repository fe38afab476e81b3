//! The agent of kind `acp`: turns by any program of this machine that speaks the Agent Client Protocol.
//!
//! Each session has a process of its own, which is started for its first turn and kept for a while after each
//! (`pool`). The conversation in it (`session`) is opened again in another process if the agent can do that. A turn
//! (`turn_run`) sends the prompt and follows it (`turn_loop`) until the agent answers it. A turn that may have run is
//! never run again by itself.

mod abilities;
mod environment;
mod failure;
mod files;
mod permissions;
mod plan;
pub mod pool;
mod process;
mod projector;
mod prompt;
mod session;
mod settings;
mod tool_calls;
mod turn_loop;
mod turn_run;
mod turn_text;
mod usage;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::{BoxFuture, CancellationToken};

use self::pool::{AcpPool, PlaceKey};
use self::turn_run::TurnRun;
use super::codex::binary::look_up;
use super::process::memory_of;
use super::prompt_request::PromptRequest;
use super::services::AgentServices;
use super::timed_output::TimedOutput;
use crate::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, EndedSession, PreparedTurn, TurnEnd,
};
use crate::config::AcpConfig;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::SessionId;
use crate::util::one_line;

pub use environment::acp_environment;

/// Characters of a program's name.
const NAME_CHARS: usize = 60;

/// Bytes of a mebibyte.
const MIB: i64 = 1024 * 1024;

/// The agent of kind `acp`.
pub struct AcpAgent {
    config: AcpConfig,
    times: AcpTimes,
    pool: Arc<AcpPool>,
    /// Tells this agent from all others in the pool.
    number: u64,
    /// Fired when this is dropped, or the gateway ends.
    stop: CancellationToken,
    /// Version that the last process told.
    version: Mutex<Option<String>>,
}

/// Time limits that no person waits longer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcpTimes {
    /// Of the greeting. A program that is no agent may never answer. Default 30 s.
    pub initialize: Duration,
    /// Of opening a conversation again, which repeats all of it. Default 60 s.
    pub load: Duration,
    /// Of the end of a turn that was cancelled. Shorter than the time that the engine gives an agent to stop. Default 3 s.
    pub cancel: Duration,
}

impl Default for AcpTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { initialize: seconds(30), load: seconds(60), cancel: seconds(3) }
    }
}

impl AcpAgent {
    /// An agent for an entry of kind `acp`. Starts nothing.
    pub fn new(config: AcpConfig, services: &AgentServices) -> Self {
        Self::with_times(config, AcpTimes::default(), services)
    }

    /// An agent with other time limits, for tests. Starts nothing.
    pub fn with_times(config: AcpConfig, times: AcpTimes, services: &AgentServices) -> Self {
        let pool = services.acp.clone();
        let (number, stop) = pool.new_agent();
        Self { config, times, pool, number, stop, version: Mutex::default() }
    }

    /// Name of the program, for people.
    fn program(&self) -> String {
        let name = Path::new(&self.config.command).file_name().unwrap_or_default();
        one_line(&name.to_string_lossy(), NAME_CHARS)
    }
}

impl Drop for AcpAgent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Agent for AcpAgent {
    fn about(&self) -> AgentInfo {
        // A changed history is another session to us, and gets a conversation of its own with that history.
        AgentInfo::new(AgentKind::Acp, TextKey::AgentAcp.with("program", self.program()))
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move { Ok(PreparedTurn::new(turn, PromptRequest::of(turn).to_bytes())) })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        Box::pin(async move {
            let out = TimedOutput::new(out);
            TurnRun { agent: self, turn, out: &out, stop: &stop }.run(prepared).await
        })
    }

    fn operator_lines(&self) -> Vec<LocalizedText> {
        let processes = self.pool.markers_of(self.number);
        let line = TextKey::StatusAcpProcesses.with("count", processes.len());
        let memory = memory_of(&processes) / MIB;
        vec![line.with("limit", self.pool.limit()).with("memory", memory.to_string())]
    }

    fn program_version(&self) -> Option<String> {
        self.version.lock().clone()
    }

    fn has_program(&self) -> bool {
        let folder = self.config.cwd.as_ref().unwrap_or(&self.config.workspace);
        let environment = acp_environment(&self.config, folder);
        look_up(&self.config.command, environment.get(OsStr::new("PATH")).map(OsString::as_os_str)).is_some()
    }

    fn has_process(&self, conversation: &SessionId) -> bool {
        self.pool.has_process(self.number, conversation)
    }

    /// Ends the process of the session. The conversation itself stays with the agent.
    fn end(&self, ended: EndedSession) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let key = PlaceKey { agent: self.number, session: ended.session };
            self.pool.end_session(&key).await;
        })
    }
}
