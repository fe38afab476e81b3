//! Follows a turn of codex: takes its messages in their order, answers its requests, and notices when it must end early.
//!
//! Silence is no failure: a turn ends when codex says so, when its process is gone, when a person stops it, or at its own
//! deadline, which does not run while an ask is open. Requests are answered beside the messages that follow them, because
//! codex goes on with other work while a person thinks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::approvals::{self, ApprovalAnswer, ApprovalContext, ApprovalPolicy, ItemCache};
use super::failure::TurnFailure;
use super::item_steps::StepTracker;
use super::link::CodexLink;
use super::loaded_thread::ActiveTurn;
use super::projector::Projector;
use super::threads::OpenThread;
use super::token_count::TokenCount;
use super::turn_guard::TurnGuard;
use super::turn_queue::{QueueEnd, QueueItem, TurnQueue};
use super::turn_run::TurnRun;
use super::turn_text::TurnText;
use crate::agent::{AgentError, AgentOutput as _, TurnEvent};
use crate::agents::jsonrpc::{IncomingMessage, ProcessFailure, RequestId, RpcFault};
use crate::agents::open_requests::OpenRequests;
use crate::agents::sorted_json::text_field;
use crate::i18n::TextKey;
use crate::util::{code_span, one_line};

/// Shortest wait before the deadline is looked at again.
const TICK: Duration = Duration::from_millis(200);

/// Time limit of a summary that codex makes of a conversation that is too long.
const COMPACTION: Duration = Duration::from_secs(300);

/// Characters of codex' own words in the log.
const LOGGED: usize = 500;

/// Characters of a single word of codex in the log.
const WORD: usize = 60;

/// Code of our answer to a request if too many wait already.
const TOO_MANY: i64 = -32_600;

/// The end of the loop.
pub enum LoopEnd {
    /// The turn is complete.
    Done,
    /// A person stopped it.
    Stopped,
    /// Its time is up.
    Timeout,
    /// Nobody answered an ask in time.
    Halted,
    /// The budget of tokens is used up.
    UsedUp,
    /// A turn that codex began by itself runs in the thread in its place.
    Displaced,
    /// Codex ended it before it was complete.
    Interrupted,
    /// It failed at codex or at its provider.
    Failed(TurnFailure),
    /// The process is gone.
    Gone(ProcessFailure),
    /// We did not keep up with its messages.
    Overflow,
    /// We cannot go on.
    Error(AgentError),
}

/// One turn of codex while it runs.
pub struct TurnLoop<'a> {
    run: &'a TurnRun<'a>,
    link: &'a Arc<CodexLink>,
    queue: &'a Arc<TurnQueue>,
    thread: &'a str,
    turn: &'a str,
    cwd: &'a str,
    policy: ApprovalPolicy,
    text: TurnText,
    projector: Projector,
    steps: StepTracker,
    items: ItemCache,
    tokens: TokenCount,
    /// The last error that codex reported; the turn may still go on.
    failure: Option<TurnFailure>,
    /// Whether people are shown a notice about a broken connection.
    has_notice: bool,
    /// Requests that people think about.
    requests: OpenRequests<'a, ApprovalAnswer>,
}

impl<'a> TurnLoop<'a> {
    /// A loop for a turn that codex has accepted.
    pub fn new(
        run: &'a TurnRun<'a>,
        link: &'a Arc<CodexLink>,
        open: &'a OpenThread,
        turn: &'a str,
        cwd: &'a str,
    ) -> Self {
        let thread = open.id.as_str();
        Self {
            run,
            link,
            queue: &open.route.queue,
            thread,
            turn,
            cwd,
            // The last look before the turn: codex may have failed to read its configuration while the thread was opened.
            policy: run.agent.approval_policy(open.has_own_server && !link.distrusts_own_server()),
            text: TurnText::default(),
            projector: Projector::new(thread),
            steps: StepTracker::default(),
            items: ItemCache::default(),
            tokens: TokenCount::default(),
            failure: None,
            has_notice: false,
            requests: OpenRequests::default(),
        }
    }

    /// Runs until the turn ends, or must be ended.
    pub async fn run(&mut self) -> LoopEnd {
        let limit = self.run.agent.config.turn_timeout;
        loop {
            let left = limit.saturating_sub(self.run.out.elapsed());
            if left.is_zero() {
                return LoopEnd::Timeout;
            }
            let end = tokio::select! {
                biased;
                () = self.run.stop.cancelled() => Some(LoopEnd::Stopped),
                Some((id, answer)) = self.requests.next() => self.reply(id, answer).await,
                item = self.queue.next() => match item {
                    QueueItem::Message(message) => self.take(message).await,
                    QueueItem::End(QueueEnd::Gone(failure)) => Some(LoopEnd::Gone(failure)),
                    QueueItem::End(QueueEnd::Overflow) => Some(LoopEnd::Overflow),
                },
                () = tokio::time::sleep(left.max(TICK)) => None,
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Shows that steps have ended, and the text as it should be; records everything that did not end before the turn.
    /// Waits only for the store, because a turn that was stopped has little time. Returns the requests of codex that
    /// were not answered; their asks are withdrawn.
    pub async fn close(&mut self, end: &LoopEnd) -> Vec<RequestId> {
        let unanswered = self.requests.withdraw_all();
        self.show_notice(None);
        if !matches!(end, LoopEnd::Done) {
            for step in self.steps.broken_off() {
                self.run.out.emit(TurnEvent::Step(step));
            }
        }
        if let Some(text) = self.text.replacement() {
            self.run.out.replace_text(text);
        }
        // The engine takes all text behind the last record for the rest of the answer. That is not enough here: a command
        // may end while a message is streamed, and the text may be another than its pieces.
        let open = self.text.open_text().unwrap_or_default();
        let mut messages =
            self.projector.completed(&json!({ "type": "agentMessage", "id": "", "text": open }));
        messages.extend(self.projector.broken_off());
        for message in messages {
            if let Err(error) = self.run.out.record(message).await {
                tracing::warn!(%error, "the end of a turn was not recorded");
                break;
            }
        }
        unanswered
    }

    /// Lets codex summarise the conversation, which is too long for the model. False if it did not.
    pub async fn compact(&mut self, mut guard: TurnGuard) -> bool {
        self.show_notice(Some(TextKey::CodexCompacts));
        let stop = self.run.stop;
        let epoch = self.link.thread(self.thread).map_or(0, |state| state.epoch);
        let compacting = async {
            let params = json!({ "threadId": self.thread });
            if let Err(error) = self.link.call("thread/compact/start", params).await {
                tracing::warn!(%error, "codex does not summarise the conversation");
                guard.refused(&error);
                return;
            }
            // The answer does not name the turn that summarises.
            let mut begun = None;
            while let QueueItem::Message(message) = self.queue.next().await {
                let turn = message.params["turn"]["id"].as_str().map(str::to_owned);
                self.link.refuse(message.request).await;
                if message.method == "thread/tokenUsage/updated" {
                    // The summary costs too. A budget that it uses up ends the next turn, not this one.
                    let _ = self.count(&message.params["tokenUsage"]);
                }
                match (message.method.as_str(), turn) {
                    ("turn/started", Some(turn)) => begun = Some(turn),
                    ("turn/completed", Some(turn)) if begun.as_ref() == Some(&turn) => {
                        return guard.ended(&turn);
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            ended = tokio::time::timeout(COMPACTION, compacting) => if ended.is_err() {
                tracing::warn!("codex takes too long to summarise the conversation");
            },
            () = stop.cancelled() => {}
        }
        self.show_notice(None);
        self.link.thread(self.thread).is_some_and(|state| state.epoch > epoch)
    }

    /// Takes one message. Returns the end if it is the last one, or the turn must end.
    async fn take(&mut self, message: IncomingMessage) -> Option<LoopEnd> {
        let IncomingMessage { method, params, request, .. } = &message;
        if request.is_some() {
            self.begin_answer(message).await;
            return None;
        }
        let of_turn = params["turnId"].as_str().or_else(|| params["turn"]["id"].as_str());
        if let Some(turn) = of_turn.filter(|turn| *turn != self.turn) {
            if method == "turn/started" && self.is_running(turn) {
                // Our prompt went into that turn, if anywhere: the end of our own might never come.
                tracing::error!("codex runs a turn of its own in place of ours, and it is ended");
                return Some(LoopEnd::Displaced);
            }
            // A command of an earlier turn may end much later.
            let method = code_span(method, WORD);
            tracing::debug!(method, "a message belongs to another turn of the thread");
            return None;
        }
        let item = &params["item"];
        let now = Instant::now();
        match method.as_str() {
            "item/agentMessage/delta" => {
                let more = self.text.push(text_field(params, "itemId"), text_field(params, "delta"));
                return self.say(&more).await;
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                self.run.out.emit(TurnEvent::Thought(text_field(params, "delta")));
            }
            "item/commandExecution/outputDelta" => {
                let step = self.steps.output(text_field(params, "itemId"), text_field(params, "delta"), now);
                step.into_iter().for_each(|step| self.run.out.emit(TurnEvent::Step(step)));
            }
            "item/fileChange/patchUpdated" => self.items.patch_updated(params),
            "item/started" => {
                self.show_notice(None);
                if item["type"] == "agentMessage" {
                    self.text.begin(text_field(item, "id"));
                }
                self.items.started(item);
                self.projector.started(item);
                let step = self.steps.started(item, now);
                step.into_iter().for_each(|step| self.run.out.emit(TurnEvent::Step(step)));
            }
            "item/completed" => return self.complete(item).await,
            "thread/tokenUsage/updated" => return self.count(&params["tokenUsage"]),
            "model/rerouted" => self.run.agent.server.note_model(text_field(params, "toModel")),
            "error" => self.note_error(params),
            "serverRequest/resolved" => self.requests.withdraw(&params["requestId"]),
            "warning" | "guardianWarning" | "deprecationNotice" | "configWarning" => {
                tracing::info!(method, said = one_line(&params.to_string(), LOGGED), "codex warns");
            }
            "turn/completed" => return Some(self.end_of(&params["turn"])),
            _ => {}
        }
        None
    }

    /// Whether the turn with this id runs in the thread.
    fn is_running(&self, turn: &str) -> bool {
        let active = self.link.thread(self.thread).and_then(|state| state.active);
        active == Some(ActiveTurn::Running(turn.to_owned()))
    }

    /// Takes an item that ended.
    async fn complete(&mut self, item: &Value) -> Option<LoopEnd> {
        let mut end = None;
        if item["type"] == "agentMessage" {
            let more = self.text.complete(text_field(item, "id"), text_field(item, "text"));
            end = self.say(&more).await;
        }
        self.items.completed(item);
        if let Some(step) = self.steps.completed(item) {
            self.run.out.emit(TurnEvent::Step(step));
        }
        for message in self.projector.completed(item) {
            if let Err(error) = self.run.out.record(message).await {
                return Some(LoopEnd::Error(error));
            }
        }
        end
    }

    /// Passes text on, and waits if nobody can take more.
    async fn say(&mut self, text: &str) -> Option<LoopEnd> {
        if text.is_empty() {
            return None;
        }
        self.show_notice(None);
        self.run.out.emit(TurnEvent::Text(text));
        let waiting = self.run.out.wait_for_capacity()?;
        tokio::select! {
            waited = waiting => waited.err().map(LoopEnd::Error),
            // The loop notices it.
            () = self.run.stop.cancelled() => None,
        }
    }

    /// Counts tokens. Returns the end if the budget is used up.
    fn count(&mut self, told: &Value) -> Option<LoopEnd> {
        let usage = self.tokens.add(told);
        let used = usage.input.saturating_add(usage.output);
        self.run.out.emit(TurnEvent::Usage(usage));
        self.run.turn.tokens_left.filter(|left| used >= *left).map(|_| LoopEnd::UsedUp)
    }

    fn note_error(&mut self, params: &Value) {
        let error = &params["error"];
        let will_retry = params["willRetry"] == true;
        let said = one_line(&error.to_string(), LOGGED);
        tracing::warn!(will_retry, said, "codex reports an error");
        if will_retry {
            // The message is streamed again from its beginning.
            self.text.void();
            self.show_notice(Some(TextKey::CodexRetries));
        } else {
            self.failure = Some(TurnFailure::read(error));
        }
    }

    /// The end that codex reports.
    fn end_of(&self, turn: &Value) -> LoopEnd {
        match turn["status"].as_str().unwrap_or_default() {
            "completed" => LoopEnd::Done,
            "interrupted" => LoopEnd::Interrupted,
            status => {
                let reported = (!turn["error"].is_null()).then(|| TurnFailure::read(&turn["error"]));
                let failure = reported.or(self.failure).unwrap_or(TurnFailure::Other);
                tracing::warn!(status = code_span(status, WORD), ?failure, "a turn of codex failed");
                LoopEnd::Failed(failure)
            }
        }
    }

    /// Begins to answer a request of codex.
    async fn begin_answer(&mut self, message: IncomingMessage) {
        let Some(id) = message.request.clone() else { return };
        let of_turn = text_field(&message.params, "turnId");
        // Input for a command that an earlier turn left behind may be asked for in the name of that turn.
        let is_ours = of_turn.is_empty() || of_turn == self.turn || message.params["kind"] == "writeStdin";
        if !is_ours {
            let method = code_span(&message.method, WORD);
            tracing::warn!(method, "a request belongs to another turn of the thread and is refused");
            return self.link.refuse([id]).await;
        }
        if self.requests.is_full() {
            let refusal = RpcFault::new(TOO_MANY, "too many requests wait for an answer");
            self.run.out.emit(TurnEvent::Remark(TextKey::AskTooMany.into()));
            return send(self.link, id, Err(refusal)).await;
        }
        let run = self.run;
        if message.method == "item/tool/call" {
            // The thread of the message is ours, and so is the person whose notes these are.
            self.requests.begin(id, async move {
                let result = run.agent.tools.call(&message.params, run.turn, run.out, run.stop).await;
                ApprovalAnswer::new(result)
            });
            return;
        }
        let (items, policy) = (self.items.clone(), self.policy.clone());
        let (thread, cwd) = (self.thread, self.cwd);
        self.requests.begin(id, async move {
            let context = ApprovalContext { out: run.out, cwd, items: &items, policy: &policy, thread };
            approvals::answer(&message, &context).await
        });
    }

    /// Sends an answer. Returns the end if the turn must end after it.
    async fn reply(&mut self, id: RequestId, answer: ApprovalAnswer) -> Option<LoopEnd> {
        let ApprovalAnswer { reply, remarks, halts, kept_grant } = answer;
        if let Some(ask) = kept_grant {
            // Before codex knows: a grant that is forgotten here would never be checked again.
            self.link.change_thread(self.thread, |state| state.keep_grant(ask));
        }
        for remark in remarks {
            let remark_line = one_line(&remark.to_string(), LOGGED);
            tracing::warn!(remark = remark_line, "a request of codex was declined without asking anybody");
            self.run.out.emit(TurnEvent::Remark(remark));
        }
        send(self.link, id, reply).await;
        halts.then_some(LoopEnd::Halted)
    }

    fn show_notice(&mut self, notice: Option<TextKey>) {
        if notice.is_some() || self.has_notice {
            self.has_notice = notice.is_some();
            self.run.out.emit(TurnEvent::Notice(notice.map(Into::into)));
        }
    }
}

async fn send(link: &CodexLink, id: RequestId, reply: Result<Value, RpcFault>) {
    if let Err(error) = link.rpc().reply(id, reply).await {
        // The queue ends if the process is gone.
        tracing::warn!(%error, "an answer to codex was not sent");
    }
}
