//! One turn by codex: opens the thread of the session, starts the turn in it, and follows it to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use talaria_platform::CancellationToken;

use super::CodexAgent;
use super::app_server::LinkUse;
use super::failure::{self, TurnFailure, cut_short};
use super::link::CodexLink;
use super::request::wire_input;
use super::thread_report::ThreadReport;
use super::threads::{OpenThread, ThreadOpener};
use super::turn_context::FRAGMENTS_SINCE;
use super::turn_guard::TurnGuard;
use super::turn_loop::{LoopEnd, TurnLoop};
use super::wire::ThreadFault;
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput as _, AgentTurn, PreparedTurn, TurnEnd, TurnEvent,
};
use crate::agents::jsonrpc::RpcError;
use crate::agents::prompt_request::PromptRequest;
use crate::agents::timed_output::TimedOutput;
use crate::agents::turn_files::TurnFiles;
use crate::config::make_workspace;
use crate::i18n::TextKey;

/// Longest wait for an earlier turn that still runs in the thread.
const EARLIER_TURN: Duration = Duration::from_secs(10);

/// One turn.
pub struct TurnRun<'a> {
    pub agent: &'a CodexAgent,
    pub turn: &'a AgentTurn,
    pub out: &'a TimedOutput<'a>,
    pub stop: &'a CancellationToken,
}

/// A turn that codex has accepted.
struct StartedTurn {
    thread: OpenThread,
    guard: TurnGuard,
    id: String,
    /// Removed when the turn is over.
    _files: TurnFiles,
}

impl TurnRun<'_> {
    /// Runs the turn to its end.
    pub async fn run(&self, prepared: PreparedTurn) -> Result<TurnEnd, AgentError> {
        let unfit = || AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume);
        let request = PromptRequest::parse(&prepared.request).ok_or_else(unfit)?;
        let report = ThreadReport::read(self.turn.upstream.as_ref());
        let opened = async {
            let mut has_restarted = false;
            loop {
                let used = self.agent.server.connect().await.map_err(|error| {
                    tracing::error!(%error, "there is no codex for the turn");
                    error.agent_error()
                })?;
                let thread = self.open_thread(&used.link, &request, report.clone()).await;
                // A codex that ends now, perhaps because it did not obey an earlier turn, has not seen this one.
                if used.link.rpc().is_gone() && !has_restarted {
                    has_restarted = true;
                    continue;
                }
                return Ok((used, thread?));
            }
        };
        // Until the turn is started there is nothing to interrupt.
        let (used, thread) = tokio::select! {
            opened = opened => opened?,
            () = self.stop.cancelled() => return Ok(TurnEnd::Stopped),
        };
        let end = match self.start_turn(&used, thread, request).await {
            Ok(started) => {
                // Codex has it now.
                drop(prepared);
                self.follow(&used.link, started).await
            }
            Err(error) => Err(error),
        };
        self.agent.servers.spawn("codex-idle-threads", used.link.clone().close_idle_threads());
        if end.is_ok() {
            self.agent.server.worked();
        }
        end
    }

    /// Opens the thread of the session. No turn runs in it by then.
    async fn open_thread(
        &self,
        link: &Arc<CodexLink>,
        request: &PromptRequest,
        report: Option<ThreadReport>,
    ) -> Result<OpenThread, AgentError> {
        let cwd = self.folder()?;
        let earlier = match report {
            None => None,
            Some(report) => match tokio::time::timeout(EARLIER_TURN, link.claim(&report.thread)).await {
                Ok(route) => Some((report, route)),
                Err(_) => return Err(earlier_turn()),
            },
        };
        let mut extra: Vec<_> =
            self.agent.tools.specs().map(|tools| ("dynamicTools", tools)).into_iter().collect();
        if !takes_fragments(link) {
            let words = self.agent.context.instructions(&self.told_turn(request)).await;
            extra.extend(words.map(|words| ("developerInstructions", json!(words))));
        }
        let opener = ThreadOpener {
            config: &self.agent.config,
            link,
            tools_server: &self.agent.servers.tools_server,
            out: self.out,
            cwd: &cwd,
            history: &request.history,
            extra,
        };
        let thread = opener.open(earlier).await?;
        self.agent.server.note_policy(&thread.policy);
        // Codex may have begun a turn by itself as soon as the thread was open, which is being ended.
        match tokio::time::timeout(EARLIER_TURN, link.idle(&thread.id)).await {
            Ok(()) => Ok(thread),
            Err(_) => Err(earlier_turn()),
        }
    }

    /// The turn with the words that the request kept of it.
    fn told_turn(&self, request: &PromptRequest) -> AgentTurn {
        AgentTurn { context: request.context.clone(), ..self.turn.clone() }
    }

    /// The folder of the session. It is made if it is missing.
    fn folder(&self) -> Result<String, AgentError> {
        let config = &self.agent.config;
        let folder: PathBuf = match (&self.turn.folder, &config.cwd) {
            (Some(folder), _) | (None, Some(folder)) => folder.clone(),
            (None, None) => config.workspace.join(&self.turn.conversation.0),
        };
        let unusable = |error: std::io::Error| {
            tracing::error!(%error, folder = %folder.display(), "the folder of a session cannot be used");
            AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexFolder)
        };
        make_workspace(&folder).map_err(unusable)?;
        folder.to_str().map(str::to_owned).ok_or_else(|| unusable(std::io::ErrorKind::InvalidFilename.into()))
    }

    /// Starts the turn. A thread that codex has unloaded meanwhile is resumed once.
    async fn start_turn(
        &self,
        used: &LinkUse,
        thread: OpenThread,
        request: PromptRequest,
    ) -> Result<StartedTurn, AgentError> {
        let (link, mut thread, cwd) = (&used.link, thread, self.folder()?);
        let mut files = TurnFiles::new(self.agent.servers.pictures().join(&self.turn.id.0));
        let input = wire_input(&request, &mut files, Path::new(&cwd)).map_err(|error| {
            tracing::error!(%error, "the attachments of a prompt cannot be stored");
            AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexFolder)
        })?;
        let mut has_resumed = false;
        loop {
            let params = self.turn_params(link, &thread, &request, &input).await;
            let mut guard = TurnGuard::new(link.clone(), self.agent.servers.clone(), &thread.id);
            let started = link.call("turn/start", Value::Object(params)).await;
            if !matches!(started, Err(RpcError::Fault(_) | RpcError::TooLarge { .. })) {
                // It may run.
                files.keep_attachments();
            }
            let error = match started {
                Ok(answer) => match answer.result["turn"]["id"].as_str() {
                    Some(id) => {
                        guard.named(id);
                        return Ok(StartedTurn { thread, guard, id: id.to_owned(), _files: files });
                    }
                    // Its messages could not be told from those of another turn. The guard ends it.
                    None => {
                        tracing::error!("codex started a turn and did not name it");
                        return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexRefused));
                    }
                },
                Err(error) => error,
            };
            tracing::warn!(%error, "codex did not start a turn");
            guard.refused(&error);
            if let RpcError::Fault(fault) = &error
                && ThreadFault::of(fault) == ThreadFault::NotLoaded
                && !has_resumed
            {
                has_resumed = true;
                drop(guard);
                link.remove_thread(&thread.id);
                let report = ThreadReport::begun(&thread.id, &cwd);
                // The right to it is taken again.
                drop(thread);
                thread = self.open_thread(link, &request, Some(report)).await?;
                continue;
            }
            return Err(failure::at_the_start(&error));
        }
    }

    async fn turn_params(
        &self,
        link: &CodexLink,
        thread: &OpenThread,
        request: &PromptRequest,
        input: &[Value],
    ) -> Map<String, Value> {
        let config = &self.agent.config;
        let mut params = Map::new();
        params.insert("threadId".to_owned(), json!(thread.id));
        params.insert("input".to_owned(), json!(input));
        if let Some(model) = self.turn.model.as_ref().or(config.model.as_ref()) {
            params.insert("model".to_owned(), json!(model));
        }
        if let Some(effort) = self.turn.effort.as_ref().or(config.effort.as_ref()) {
            params.insert("effort".to_owned(), json!(effort));
        }
        if takes_fragments(link) {
            let epoch = link.thread(&thread.id).map_or(0, |state| state.epoch);
            if let Some(fragments) = self.agent.context.fragments(&self.told_turn(request), epoch).await {
                params.insert("additionalContext".to_owned(), fragments);
            }
        }
        params
    }

    /// Follows a started turn to its end.
    async fn follow(&self, link: &Arc<CodexLink>, started: StartedTurn) -> Result<TurnEnd, AgentError> {
        let StartedTurn { thread, guard, id, _files } = started;
        let cwd = self.folder()?;
        let report = ThreadReport::begun(&thread.id, &cwd);
        self.out.emit(TurnEvent::Upstream(report.to_value()));
        let facts = json!({ "codex_thread_id": thread.id, "codex_turn_id": id });
        if let Value::Object(facts) = facts {
            self.out.emit(TurnEvent::Facts(facts));
        }
        let mut turn_loop = TurnLoop::new(self, link, &thread, &id, &cwd);
        let end = turn_loop.run().await;
        let mut unanswered = turn_loop.close(&end).await;
        match &end {
            LoopEnd::Done | LoopEnd::Failed(_) | LoopEnd::Interrupted | LoopEnd::Gone(_) => guard.ended(&id),
            LoopEnd::Stopped
            | LoopEnd::Timeout
            | LoopEnd::Halted
            | LoopEnd::UsedUp
            | LoopEnd::Displaced
            | LoopEnd::Overflow
            | LoopEnd::Error(_) => {
                // The router does not wait for a turn that reads no more.
                unanswered.extend(thread.route.queue.leave());
                guard.end().await;
            }
        }
        link.refuse(unanswered).await;
        match end {
            LoopEnd::Done => Ok(TurnEnd::Done),
            LoopEnd::Stopped => Ok(TurnEnd::Stopped),
            LoopEnd::Timeout => Err(cut_short(TextKey::BrokeCodexTime)),
            LoopEnd::Halted => Err(AgentError::new(AgentErrorKind::CutShort, TextKey::AskHalted)),
            LoopEnd::UsedUp => Err(cut_short(TextKey::BrokeCodexBudget)),
            LoopEnd::Displaced => Err(cut_short(TextKey::BrokeCodexEarlier)),
            LoopEnd::Interrupted => Err(cut_short(TextKey::BrokeCodexInterrupted)),
            LoopEnd::Overflow => Err(cut_short(TextKey::BrokeNoRoom)),
            LoopEnd::Error(error) => Err(error),
            LoopEnd::Gone(process) => {
                tracing::error!(%process, "codex died during a turn");
                Err(failure::died())
            }
            LoopEnd::Failed(TurnFailure::ContextFull) => {
                let guard = TurnGuard::new(link.clone(), self.agent.servers.clone(), &thread.id);
                let words = match turn_loop.compact(guard).await {
                    true => TextKey::BrokeCodexCompacted,
                    false => TurnFailure::ContextFull.words(),
                };
                Err(cut_short(words))
            }
            LoopEnd::Failed(failure) => Err(cut_short(failure.words())),
        }
    }
}

/// The error of a turn while another one still runs in its thread.
fn earlier_turn() -> AgentError {
    let busy = AgentErrorKind::Busy { after: None, rate_limited: false };
    AgentError::new(busy, TextKey::BrokeCodexEarlier)
}

/// Whether this codex takes words beside the prompt. One that does not tell its version is new.
fn takes_fragments(link: &CodexLink) -> bool {
    link.version.is_none_or(|version| version >= FRAGMENTS_SINCE)
}
