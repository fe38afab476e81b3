//! One turn by an agent: finds or starts the process of the session, opens the conversation in it, sends the prompt and
//! follows it to its end.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use talaria_platform::CancellationToken;

use super::AcpAgent;
use super::environment::entry_secrets;
use super::failure::{self, cut_short};
use super::pool::{Acquired, PlaceKey, PooledProcess, ProcessPlace, ProcessWish};
use super::process::{AcpProcess, StartError};
use super::prompt::{self, PromptWords, prompt_blocks};
use super::session::{LoadError, SessionReport};
use super::turn_loop::{LoopEnd, TurnLoop};
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput as _, AgentTurn, PreparedTurn, SessionMessage, TurnEnd, TurnEvent,
};
use crate::agents::prompt_request::PromptRequest;
use crate::agents::timed_output::TimedOutput;
use crate::agents::turn_files::TurnFiles;
use crate::config::make_workspace;
use crate::i18n::TextKey;
use crate::util::hash;

/// One turn.
pub struct TurnRun<'a> {
    pub agent: &'a AcpAgent,
    pub turn: &'a AgentTurn,
    pub out: &'a TimedOutput<'a>,
    pub stop: &'a CancellationToken,
}

/// A process with the conversation of the session.
struct OpenTurn {
    process: PooledProcess,
    report: SessionReport,
    /// The agent does not know what was said before.
    is_new: bool,
}

impl TurnRun<'_> {
    /// Runs the turn to its end.
    pub async fn run(&self, prepared: PreparedTurn) -> Result<TurnEnd, AgentError> {
        let unfit = || AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume);
        let request = PromptRequest::parse(&prepared.request).ok_or_else(unfit)?;
        let folder = self.folder()?;
        // Until the prompt is sent there is nothing to cancel.
        let opened = tokio::select! {
            opened = self.open(&folder) => opened?,
            () = self.stop.cancelled() => return Ok(TurnEnd::Stopped),
        };
        let OpenTurn { process: mut pooled, mut report, is_new } = opened;
        let Some(process) = pooled.process() else { return Err(unfit()) };
        tokio::select! {
            () = process.apply_choices(self.turn) => {}
            () = self.stop.cancelled() => return Ok(TurnEnd::Stopped),
        }
        let context_hash =
            if request.context.trim().is_empty() { String::new() } else { hash([request.context.as_str()]) };
        let words = PromptWords {
            heading: prompt::heading(self.turn.asked_in_room),
            context: if context_hash == report.context { "" } else { &request.context },
            history: if is_new { &request.history } else { &[] },
        };
        let mut files = TurnFiles::new(folder.clone());
        let blocks =
            prompt_blocks(&request, words, &process.abilities, &mut files, &folder).map_err(|error| {
                tracing::error!(%error, "the attachments of a prompt cannot be stored");
                AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexFolder)
            })?;
        process.refuse_waiting().await;
        if self.stop.is_cancelled() {
            self.rest(pooled);
            return Ok(TurnEnd::Stopped);
        }
        let before = report.clone();
        report = SessionReport { begun: true, context: context_hash, ..report };
        if self.turn.upstream != Some(report.to_value()) {
            // A conversation that nobody could find after our death would be work that is lost.
            self.out.store_upstream(report.to_value()).await?;
        }
        self.tell_facts(json!({ "acp_session_id": report.acp_session }));
        if let Some(session) = &mut process.session {
            session.is_begun = true;
        }
        // The agent gets it now.
        files.keep_attachments();
        drop((prepared, request));
        self.follow(pooled, before, &blocks).await
    }

    /// The folder of the session. It is made if it is missing.
    fn folder(&self) -> Result<PathBuf, AgentError> {
        let config = &self.agent.config;
        let folder = match (&self.turn.folder, &config.cwd) {
            (Some(folder), _) | (None, Some(folder)) => folder.clone(),
            (None, None) => config.workspace.join(&self.turn.conversation.0),
        };
        let unusable = |error: std::io::Error| {
            tracing::error!(%error, folder = %folder.display(), "the folder of a session cannot be used");
            AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexFolder)
        };
        make_workspace(&folder).map_err(unusable)?;
        match folder.to_str() {
            Some(_) => Ok(folder),
            None => Err(unusable(std::io::ErrorKind::InvalidFilename.into())),
        }
    }

    /// A process in which the conversation of the session is open. May be dropped at any time.
    async fn open(&self, folder: &Path) -> Result<OpenTurn, AgentError> {
        let AcpAgent { pool, number, .. } = self.agent;
        let cwd = folder.to_str().unwrap_or_default().to_owned();
        // In another folder it is another conversation.
        let report = SessionReport::read(self.turn.upstream.as_ref()).filter(|report| report.cwd == cwd);
        let wish = ProcessWish {
            key: PlaceKey { agent: *number, session: self.turn.session.clone() },
            conversation: self.turn.conversation.clone(),
            app: self.turn.app.clone(),
            opens: report.as_ref().map(|report| report.acp_session.clone()),
        };
        loop {
            let acquired = pool.acquire(&wish).await.map_err(|error| {
                tracing::warn!(%error, "a turn gets no process");
                failure::no_place(error)
            })?;
            match acquired {
                Acquired::Warm(mut process) => {
                    let open = process.process().and_then(|process| process.session.clone());
                    match (open, &report) {
                        (Some(open), Some(report)) if open.id == report.acp_session => {
                            return Ok(OpenTurn { process: *process, report: report.clone(), is_new: false });
                        }
                        // The history was changed, or the folder.
                        _ => process.end().await,
                    }
                }
                Acquired::Cold(place) => return self.start(place, folder, cwd, report).await,
            }
        }
    }

    /// Starts a process, and opens the conversation in it.
    async fn start(
        &self,
        place: ProcessPlace,
        folder: &Path,
        cwd: String,
        report: Option<SessionReport>,
    ) -> Result<OpenTurn, AgentError> {
        let AcpAgent { pool, config, times, .. } = self.agent;
        let failed = |error: StartError| {
            tracing::error!(%error, agent = %self.turn.agent, "there is no agent for the turn");
            let stderr = failure::start_stderr(&error, &entry_secrets(config));
            self.tell_facts(json!({ "stop_reason": "error", "stderr": stderr }));
            failure::no_start(&error)
        };
        let process = AcpProcess::spawn(pool, config, folder).map_err(|error| failed(error.into()))?;
        // It has its place before it is greeted: a turn that is given up meanwhile frees the place only when the
        // process has ended.
        let mut pooled = place.fill(process);
        let Some(process) = pooled.process() else {
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpNoStart));
        };
        process.greet(times.initialize).await.map_err(failed)?;
        process.abilities.loads &= config.load;
        self.agent.version.lock().clone_from(&process.abilities.version);
        // Agents keep nothing of a conversation without a prompt.
        let begun = report.filter(|report| report.begun);
        if begun.is_none() && self.turn.wants_raw && self.turn.history.iter().any(is_told) {
            tracing::error!("nobody knows the conversation of a program's session any more");
            self.tell_facts(json!({ "stop_reason": "error", "session_lost": true }));
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpLost));
        }
        if let Some(report) = begun {
            if self.load(process, &report).await? {
                return Ok(OpenTurn { process: pooled, report, is_new: false });
            }
            if self.turn.wants_raw {
                // A program is told, and decides for itself.
                self.tell_facts(json!({ "stop_reason": "error", "session_lost": true }));
                return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpLost));
            }
            let is_told = self.turn.history.iter().any(is_told);
            let remark = if is_told { TextKey::AcpForgot } else { TextKey::AcpForgotAll };
            self.out.emit(TurnEvent::Remark(remark.into()));
        }
        let id = match process.new_session(&cwd).await {
            Ok(id) => id,
            Err(error) => {
                let stderr =
                    failure::told_stderr(&process.rpc.stderr_tail(), &entry_secrets(&self.agent.config));
                self.tell_facts(json!({ "stop_reason": "error", "stderr": stderr }));
                return Err(error);
            }
        };
        let report = SessionReport { acp_session: id, cwd, begun: false, context: String::new() };
        self.out.emit(TurnEvent::Upstream(report.to_value()));
        Ok(OpenTurn { process: pooled, report, is_new: true })
    }

    /// Opens the conversation of an earlier process. False if the agent no longer has it. Silence does not mean that: then
    /// the turn fails, and the conversation stays what it is.
    async fn load(&self, process: &mut AcpProcess, report: &SessionReport) -> Result<bool, AgentError> {
        if !process.abilities.loads {
            tracing::warn!("the agent cannot open a conversation of an earlier process");
            return Ok(false);
        }
        let deadline = self.agent.times.load;
        let error = match process.load_session(&report.acp_session, &report.cwd, deadline).await {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        let stderr = failure::shown_stderr(&process.rpc);
        match error {
            LoadError::Forgotten(fault) => {
                tracing::warn!(%fault, stderr, "the agent does not have the conversation of the session");
                Ok(false)
            }
            LoadError::Failed(error) => {
                tracing::error!(%error, stderr, "the agent did not open the conversation of the session");
                let stderr =
                    failure::told_stderr(&process.rpc.stderr_tail(), &entry_secrets(&self.agent.config));
                let mut facts = json!({ "stop_reason": "error", "stderr": stderr });
                if self.turn.wants_raw {
                    facts["session_lost"] = json!(true);
                }
                self.tell_facts(facts);
                Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeAcpLoad))
            }
        }
    }

    /// Sends the prompt and follows it to its end. `before` is the report of the session without this prompt.
    async fn follow(
        &self,
        mut pooled: PooledProcess,
        before: SessionReport,
        blocks: &[Value],
    ) -> Result<TurnEnd, AgentError> {
        let Some(process) = pooled.process() else { return Err(cut_short(TextKey::BrokeAcpDied)) };
        let mut turn_loop = TurnLoop::new(self, process, &before.cwd, blocks);
        let end = turn_loop.run().await;
        let (reason, is_at_rest) = match &end {
            LoopEnd::Answered(reason) => (reason.clone(), true),
            LoopEnd::Refused(_) | LoopEnd::TooLarge => ("error".to_owned(), true),
            LoopEnd::Gone(_) => ("error".to_owned(), false),
            LoopEnd::Stopped | LoopEnd::Halted | LoopEnd::Timeout | LoopEnd::Error(_) => {
                let last = turn_loop.wind_down(self.agent.times.cancel).await;
                let is_at_rest = last.is_some();
                let own = match &end {
                    LoopEnd::Timeout => "timeout",
                    LoopEnd::Error(_) => "error",
                    _ => "cancelled",
                };
                (last.filter(|_| own == "cancelled").unwrap_or_else(|| own.to_owned()), is_at_rest)
            }
        };
        turn_loop.close(matches!(&end, LoopEnd::Answered(reason) if reason != "cancelled")).await;
        let (was_declined, has_worked) = (turn_loop.was_declined, turn_loop.has_worked);
        drop(turn_loop);
        let is_taken = match &end {
            LoopEnd::TooLarge => false,
            LoopEnd::Refused(_) => has_worked,
            _ => true,
        };
        if !is_taken {
            // The conversation is what it was; one without a prompt is not there to be opened again.
            self.out.emit(TurnEvent::Upstream(before.to_value()));
            if let Some(session) = pooled.process().and_then(|process| process.session.as_mut()) {
                session.is_begun = before.begun;
            }
        }
        let end = self.judge(end, was_declined);
        let mut facts = json!({ "stop_reason": if reason.is_empty() { "unknown" } else { &reason } });
        if end.is_err()
            && let Some(process) = pooled.process()
        {
            let stderr = process.rpc.stderr_tail();
            tracing::warn!(stderr = failure::shown_stderr(&process.rpc), reason, "a turn of an agent failed");
            facts["stderr"] = failure::told_stderr(&stderr, &entry_secrets(&self.agent.config)).into();
        }
        self.tell_facts(facts);
        if is_at_rest {
            self.rest(pooled);
        } else {
            tracing::warn!("a process is ended, because nobody knows what it is doing");
            // In a task of its own.
            drop(pooled);
        }
        end
    }

    /// The end of the turn for the engine. An agent that answers the prompt has ended its turn as it wanted, whatever
    /// word it has for that: some say `cancelled` or `refusal` when they were refused a permission.
    fn judge(&self, end: LoopEnd, was_declined: bool) -> Result<TurnEnd, AgentError> {
        match end {
            LoopEnd::Answered(reason) => match reason.as_str() {
                "max_tokens" => Ok(TurnEnd::Limit),
                // A program reads the agent's own word; a room needs a sentence.
                "max_turn_requests" if self.turn.wants_raw => Ok(TurnEnd::Limit),
                "refusal" if self.turn.wants_raw || was_declined => Ok(TurnEnd::Done),
                "max_turn_requests" => Err(cut_short(TextKey::BrokeAcpRequests)),
                "refusal" => Err(cut_short(TextKey::BrokeAcpRefusal)),
                // Programs are told the agent's own word, also one that we do not know.
                _ => Ok(TurnEnd::Done),
            },
            LoopEnd::Refused(fault) => {
                tracing::error!(%fault, "an agent refused a prompt");
                Err(failure::refused_prompt(&fault))
            }
            LoopEnd::TooLarge => Err(AgentError::new(AgentErrorKind::Unfit, TextKey::BrokeAcpTooLarge)),
            LoopEnd::Stopped => Ok(TurnEnd::Stopped),
            LoopEnd::Timeout => Err(cut_short(TextKey::BrokeCodexTime)),
            LoopEnd::Halted => Err(cut_short(TextKey::AskHalted)),
            LoopEnd::Gone(process) => {
                tracing::error!(%process, "an agent died during a turn");
                Err(cut_short(TextKey::BrokeAcpDied))
            }
            LoopEnd::Error(error) => Err(error),
        }
    }

    /// Keeps a process for the next turn of its session.
    fn rest(&self, pooled: PooledProcess) {
        pooled.rest(self.agent.config.idle, self.agent.stop.clone());
    }

    fn tell_facts(&self, facts: Value) {
        if let Value::Object(facts) = facts {
            let told: Map<String, Value> = facts.into_iter().filter(|(_, value)| *value != "").collect();
            self.out.emit(TurnEvent::Facts(told));
        }
    }
}

/// Whether a message is among those that a new conversation is told.
fn is_told(message: &SessionMessage) -> bool {
    !message.content.trim().is_empty()
}
