//! The agent of kind `codex`: turns by a `codex app-server` that runs on this machine.
//!
//! One process serves all turns of an agent (`AppServer`). Each session has a thread of its own in it
//! (`threads`), whose id is stored with the session and resumed after a restart. A turn (`turn_run`) is started in the
//! thread and followed (`turn_loop`) until codex ends it. A turn that may have run is never run again by itself.

pub mod account;
mod app_server;
pub mod approvals;
pub mod binary;
pub mod dynamic_tools;
pub mod enable;
mod environment;
mod failure;
pub mod item_steps;
mod link;
mod loaded_thread;
pub mod migration;
mod mirror;
mod own_server;
pub mod patch_summary;
pub mod projector;
mod request;
mod servers;
mod start;
mod thread_report;
mod threads;
mod token_count;
pub mod turn_context;
mod turn_guard;
mod turn_loop;
mod turn_queue;
mod turn_run;
mod turn_text;
mod waiting_message;
mod wire;

use std::sync::Arc;

use talaria_platform::{BoxFuture, CancellationToken};

use self::account::{StatusReader, ThreadFacts};
use self::app_server::AppServer;
use self::approvals::ApprovalPolicy;
use self::dynamic_tools::ThreadTools;
use self::migration::TOOLS_SERVER;
use self::thread_report::ThreadReport;
use self::turn_context::TurnContext;
use self::turn_run::TurnRun;
use super::prompt_request::PromptRequest;
use super::services::AgentServices;
use super::timed_output::TimedOutput;
use crate::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTurn, EndedSession, LearningTools,
    PreparedTurn, TurnEnd,
};
use crate::config::CodexConfig;
use crate::i18n::{LocalizedText, TextKey};
use crate::store::unix_now;

pub use environment::codex_environment;
pub use link::CodexLink;
pub use servers::CodexServers;

/// The agent of kind `codex`.
pub struct CodexAgent {
    config: CodexConfig,
    /// Its tools that conversations teach something. Threads get a memory if it is one of them.
    learns: LearningTools,
    context: TurnContext,
    tools: ThreadTools,
    server: AppServer,
    servers: Arc<CodexServers>,
}

impl CodexAgent {
    /// An agent for an entry of kind `codex`. Starts nothing.
    pub fn new(config: CodexConfig, services: &AgentServices) -> Self {
        let offered = config.tools_server;
        Self::with_tools(config, LearningTools { memory: offered, skills: offered }, services)
    }

    /// An agent whose threads have these of our own tools. Starts nothing.
    pub fn with_tools(config: CodexConfig, learns: LearningTools, services: &AgentServices) -> Self {
        let servers = services.codex.clone();
        let memory = learns.memory.then(|| services.store.clone());
        let skills = (learns.skills && config.tools_server).then(|| services.skills.clone());
        Self {
            learns,
            context: TurnContext::new(memory.clone(), skills),
            tools: ThreadTools::new(memory),
            server: AppServer::new(config.clone(), servers.clone()),
            config,
            servers,
        }
    }

    fn status_lines(&self, reader: StatusReader) -> Vec<LocalizedText> {
        let policy = self.server.policy();
        let facts = policy.as_ref().map(|policy| ThreadFacts {
            model: policy.model.as_deref(),
            approval: &policy.approval,
            sandbox: &policy.sandbox,
            profile: policy.profile.as_deref(),
        });
        self.server.account().lines(facts, reader, unix_now())
    }

    /// The rules for requests of codex.
    fn approval_policy(&self, has_own_server: bool) -> ApprovalPolicy {
        let own_server = has_own_server.then(|| TOOLS_SERVER.to_owned());
        ApprovalPolicy { permissions: self.config.permissions.escalation, own_server }
    }
}

impl Agent for CodexAgent {
    fn about(&self) -> AgentInfo {
        let name = match &self.config.model {
            Some(model) => TextKey::AgentCodexModel.with("model", model.as_str()),
            None => TextKey::AgentCodex.into(),
        };
        // A changed history is another session to us, and gets a thread of its own with that history.
        AgentInfo { learns: self.learns, ..AgentInfo::new(AgentKind::Codex, name) }
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

    fn state_lines(&self) -> Vec<LocalizedText> {
        self.status_lines(StatusReader::Room)
    }

    fn operator_lines(&self) -> Vec<LocalizedText> {
        self.status_lines(StatusReader::Operator)
    }

    fn program_version(&self) -> Option<String> {
        self.server.version().map(|version| version.to_string())
    }

    fn retire(&self) {
        if let Some(link) = self.server.running() {
            self.servers.spawn("codex-retire", link.retire());
        }
    }

    /// Archives the thread, so that a running codex frees it. One that does not run holds nothing.
    fn end(&self, ended: EndedSession) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let thread = ThreadReport::read(Some(&ended.upstream));
            let (Some(report), Some(link)) = (thread, self.server.running()) else { return };
            let _route = link.claim(&report.thread).await;
            if let Err(error) = link.archive(&report.thread).await {
                tracing::debug!(%error, "the thread of a session that is over was not archived");
            }
        })
    }
}
