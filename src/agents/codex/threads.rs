//! Opens the thread of a session: the one that is loaded, the one that codex has stored, or a new one.
//!
//! A thread that codex no longer has is never replaced silently: the room is told. A new thread under a conversation that
//! has a history is given that history.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::failure;
use super::link::{CodexLink, ThreadRoute, UnusedThread};
use super::loaded_thread::LoadedThread;
use super::migration::ToolsServer;
use super::mirror::history_items;
use super::own_server::has_own_server;
use super::thread_report::ThreadReport;
use super::wire::{self, EffectivePolicy, ThreadFault};
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, SessionMessage, TurnEvent};
use crate::agents::jsonrpc::{RpcAnswer, RpcError, RpcFault};
use crate::config::CodexConfig;
use crate::i18n::{LocalizedText, TextKey};
use crate::testing::failpoint;
use crate::util::code_span;

/// Longest wait for another process that has the thread open. An earlier process of ours may be about to end.
const OTHER_WRITER: Duration = Duration::from_secs(5);

/// Pause between two questions whether the thread is free.
const OTHER_WRITER_PAUSE: Duration = Duration::from_millis(250);

/// Characters of a word of codex in the log.
const LOGGED: usize = 60;

/// Everything that is needed to open a thread.
pub struct ThreadOpener<'a> {
    /// The agent's configuration.
    pub config: &'a CodexConfig,
    /// The process.
    pub link: &'a Arc<CodexLink>,
    /// Our tools server, as codex should start it.
    pub tools_server: &'a ToolsServer,
    /// Takes reports and remarks.
    pub out: &'a dyn AgentOutput,
    /// The folder of the session.
    pub cwd: &'a str,
    /// Messages for a thread that does not know them.
    pub history: &'a [SessionMessage],
    /// Further members of `thread/start`.
    pub extra: Vec<(&'static str, Value)>,
}

/// An open thread.
pub struct OpenThread {
    /// Codex' id of it.
    pub id: String,
    /// The rules that hold in it.
    pub policy: EffectivePolicy,
    /// Whether the tools server that it calls by our name is our own.
    pub has_own_server: bool,
    /// The right to it.
    pub route: ThreadRoute,
}

/// The end of an attempt to resume a thread.
enum ResumeEnd {
    /// The thread is loaded.
    Loaded(OpenThread),
    /// Codex does not have it.
    Forgotten,
}

impl ThreadOpener<'_> {
    /// Opens the thread that the report of an earlier turn names, to which the caller has a right, or a new one. By then a
    /// report names it.
    pub async fn open(&self, earlier: Option<(ThreadReport, ThreadRoute)>) -> Result<OpenThread, AgentError> {
        // In another folder it is another thread.
        let earlier = earlier.filter(|(report, _)| report.cwd == self.cwd);
        let mut has_forgotten = false;
        if let Some((report, route)) = earlier {
            match self.resume(&report, route).await? {
                ResumeEnd::Loaded(thread) => return Ok(thread),
                // Codex keeps nothing of a thread in which no turn was started.
                ResumeEnd::Forgotten => has_forgotten = report.begun || report.is_replacement,
            }
        }
        let (thread, is_told) = self.start(has_forgotten).await?;
        let remark = match (has_forgotten, is_told) {
            (true, true) => Some(TextKey::CodexForgot),
            (true, false) => Some(TextKey::CodexForgotAll),
            (false, true) => None,
            (false, false) => Some(TextKey::CodexNoHistory),
        };
        if let Some(remark) = remark {
            self.remark(remark);
        }
        Ok(thread)
    }

    fn remark(&self, remark: TextKey) {
        self.out.emit(TurnEvent::Remark(LocalizedText::from(remark)));
    }

    /// Opens a thread that codex has.
    async fn resume(&self, report: &ThreadReport, mut route: ThreadRoute) -> Result<ResumeEnd, AgentError> {
        let thread = &report.thread;
        if let Some(loaded) = self.link.thread(thread) {
            if self.holds_grants(&loaded).await {
                let LoadedThread { policy, has_own_server, .. } = loaded;
                let id = thread.clone();
                let has_own_server = match has_own_server {
                    Some(known) => known,
                    None => self.look_for_own_server(thread).await,
                };
                return Ok(ResumeEnd::Loaded(OpenThread { id, policy, has_own_server, route }));
            }
            tracing::info!("an approval was revoked or has expired; the thread is opened anew");
            self.link.unload(thread).await.map_err(|error| self.error(&error))?;
        }
        // News of the thread may come before we have read the answer that it is open.
        route.opening();
        let deadline = Instant::now() + OTHER_WRITER;
        let mut has_unarchived = false;
        loop {
            let mut params = wire::thread_params(self.config, self.cwd, self.link.version);
            params.insert("threadId".to_owned(), json!(thread));
            // A conversation may be long, and we need nothing of it.
            params.insert("excludeTurns".to_owned(), json!(true));
            let fault = match self.call("thread/resume", Value::Object(params)).await {
                Ok(answer) => {
                    route.opened(UnusedThread::Stored);
                    if report.is_replacement {
                        // An earlier process of ours may have died before it said so. Codex keeps a thread without a turn
                        // only if it was given the conversation.
                        self.remark(TextKey::CodexForgot);
                    }
                    return self.adopt(route, thread, &answer).await.map(ResumeEnd::Loaded);
                }
                Err(RpcError::Fault(fault)) => fault,
                Err(error) => return Err(self.error(&error)),
            };
            match ThreadFault::of(&fault) {
                ThreadFault::Forgotten => {
                    tracing::warn!(%fault, begun = report.begun, "codex does not have the thread of the session");
                    return Ok(ResumeEnd::Forgotten);
                }
                ThreadFault::OpenElsewhere if Instant::now() < deadline => {
                    tokio::time::sleep(OTHER_WRITER_PAUSE).await;
                }
                // An earlier process of ours died while it opened the thread anew.
                ThreadFault::Archived if !has_unarchived => {
                    has_unarchived = true;
                    let params = json!({ "threadId": thread });
                    self.call("thread/unarchive", params).await.map_err(|error| self.error(&error))?;
                }
                ThreadFault::OpenElsewhere
                | ThreadFault::Archived
                | ThreadFault::NotLoaded
                | ThreadFault::Overloaded
                | ThreadFault::Other => return Err(self.error(&RpcError::Fault(fault))),
            }
        }
    }

    /// Starts a new thread and gives it the conversation so far. False if codex cannot take that.
    async fn start(&self, is_replacement: bool) -> Result<(OpenThread, bool), AgentError> {
        let mut params = wire::thread_params(self.config, self.cwd, self.link.version);
        params.extend(self.extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let answer = self.call("thread/start", Value::Object(params)).await;
        let answer = answer.map_err(|error| self.error(&error))?;
        let Some(thread) = answer.result["thread"]["id"].as_str() else {
            return Err(self.error(&RpcError::Fault(RpcFault::new(0, "the answer names no thread"))));
        };
        let Some(mut route) = self.link.attach(thread) else {
            return Err(self.error(&RpcError::Fault(RpcFault::new(0, "the new thread is not new"))));
        };
        route.opened(UnusedThread::New);
        let report = ThreadReport::new(thread, self.cwd, is_replacement);
        // A thread that nobody knows after our death would be work that is lost.
        self.out.store_upstream(report.to_value()).await?;
        failpoint("codex.thread_stored");
        // Before it counts as loaded: if this breaks off, nobody knows what codex has of it, and the next turn opens the
        // thread anew.
        let is_told = self.tell_history(thread).await?;
        Ok((self.adopt(route, thread, &answer).await?, is_told))
    }

    /// Whether the tools server that a loaded thread calls by our name is our own. It is remembered.
    async fn look_for_own_server(&self, thread: &str) -> bool {
        let found = has_own_server(self.link, self.config, self.tools_server, self.cwd).await;
        self.link.change_thread(thread, |state| state.has_own_server = Some(found));
        found
    }

    /// Remembers a thread that codex has opened for us. At once: from the answer on there may be news of it.
    async fn adopt(
        &self,
        mut route: ThreadRoute,
        thread: &str,
        answer: &RpcAnswer,
    ) -> Result<OpenThread, AgentError> {
        let policy = EffectivePolicy::read(&answer.result);
        self.check_policy(&policy)?;
        route.loaded(LoadedThread::new(policy.clone(), answer.position));
        let has_own_server = self.look_for_own_server(thread).await;
        Ok(OpenThread { id: thread.to_owned(), policy, has_own_server, route })
    }

    /// Refuses a thread in which a person does not decide: one whose requests a model answers, and one that would run
    /// commands without a sandbox that we know and without asking, unless the operator means it.
    fn check_policy(&self, policy: &EffectivePolicy) -> Result<(), AgentError> {
        if policy.has_other_reviewer() {
            let reviewer = policy.reviewer.as_deref().map(|reviewer| code_span(reviewer, LOGGED));
            tracing::error!(reviewer, "codex would not leave its requests to people");
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexReviewer));
        }
        if policy.is_unrestricted() && !self.config.unrestricted {
            tracing::error!(
                approval = code_span(&policy.approval, LOGGED),
                sandbox = code_span(&policy.sandbox, LOGGED),
                "codex would run commands without a sandbox and without asking; see `unrestricted`"
            );
            return Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeCodexUnrestricted));
        }
        Ok(())
    }

    /// Gives a new thread the conversation so far. False if codex cannot take it.
    async fn tell_history(&self, thread: &str) -> Result<bool, AgentError> {
        let items = history_items(self.history);
        if items.is_empty() {
            return Ok(true);
        }
        let params = json!({ "threadId": thread, "items": items });
        match self.call("thread/inject_items", params).await {
            Ok(_) => Ok(true),
            Err(error @ (RpcError::Fault(_) | RpcError::TooLarge { .. })) => {
                tracing::warn!(%error, "codex does not take the conversation so far");
                Ok(false)
            }
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Whether every approval that codex knows for the thread still holds.
    async fn holds_grants(&self, loaded: &LoadedThread) -> bool {
        match loaded.grants() {
            Some([]) => true,
            Some(grants) => self.out.still_granted(grants.to_vec()).await,
            None => false,
        }
    }

    /// Calls a method. A codex that is stuck is ended, so that a turn finds another one: no turn has begun yet.
    async fn call(&self, method: &str, params: Value) -> Result<RpcAnswer, RpcError> {
        let answer = self.link.call(method, params).await;
        if matches!(answer, Err(RpcError::Deadline)) {
            self.link.end_if_stuck().await;
        }
        answer
    }

    fn error(&self, error: &RpcError) -> AgentError {
        tracing::warn!(%error, "codex did not open a thread");
        failure::before_the_turn(error)
    }
}
