//! Follows a prompt: takes the agent's messages in their order, answers its requests, and notices when it must end early.
//!
//! Silence is no failure: a turn ends when the agent answers the prompt, when its process is gone, when a person stops it,
//! or at its own deadline, which does not run while an ask is open. Messages are taken as fast as the readers of the turn
//! take the text; beyond that the agent's pipe fills, and the agent waits.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use talaria_platform::BoxFuture;

use super::permissions::{self, PermissionAnswer};
use super::process::{AcpProcess, send_reply};
use super::projector::Projector;
use super::tool_calls::{CallNews, ToolCalls};
use super::turn_run::TurnRun;
use super::turn_text::{TurnText, shown_content};
use super::usage::read_usage;
use super::{files, plan};
use crate::agent::{AgentError, AgentOutput as _, TokenUsage, TurnEvent};
use crate::agents::call_messages::EndedCall;
use crate::agents::jsonrpc::{IncomingMessage, ProcessFailure, RequestId, RpcAnswer, RpcError, RpcFault};
use crate::agents::open_requests::OpenRequests;
use crate::agents::sorted_json::text_field;
use crate::i18n::TextKey;
use crate::util::one_line;

/// Shortest wait before the deadline is looked at again.
const TICK: Duration = Duration::from_millis(200);

/// Deadline of the prompt's answer on the wire. The turn has a deadline of its own, which stands still while people think.
const NEVER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Code of our answer to a request if too many wait already.
const TOO_MANY: i64 = -32_600;

/// Code of our answer to a request that comes too late.
const ENDING: i64 = -32_600;

/// Code of the error for parameters that do not fit.
const INVALID: i64 = -32_602;

/// Method of the requests that a person or a policy decides.
const PERMISSION: &str = "session/request_permission";

/// Updates that come only of a prompt.
const WORK: [&str; 5] =
    ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

/// Characters of the agent's words in the log.
const LOGGED: usize = 200;

/// The end of the loop.
pub enum LoopEnd {
    /// The agent answered the prompt with this stop reason.
    Answered(String),
    /// The agent answered the prompt with an error.
    Refused(RpcFault),
    /// The prompt is too long for a line. The agent knows nothing of it.
    TooLarge,
    /// A person stopped the turn.
    Stopped,
    /// Its time is up.
    Timeout,
    /// Nobody answered an ask in time.
    Halted,
    /// The process is gone.
    Gone(ProcessFailure),
    /// We cannot go on.
    Error(AgentError),
}

/// One prompt while the agent works on it.
pub struct TurnLoop<'a> {
    run: &'a TurnRun<'a>,
    process: &'a mut AcpProcess,
    session: String,
    cwd: &'a str,
    /// The answer to the prompt. Not asked again once it came.
    prompting: BoxFuture<'a, Result<RpcAnswer, RpcError>>,
    answer: Option<RpcAnswer>,
    text: TurnText,
    calls: ToolCalls,
    plan: plan::PlanStep,
    projector: Projector,
    /// Requests for permission. They are withdrawn when the turn ends.
    asks: OpenRequests<'a, PermissionAnswer>,
    /// Requests about files. They are never withdrawn: the work on them has begun, and the agent is told what became of it.
    files: OpenRequests<'a, Result<Value, RpcFault>>,
    /// A permission was refused in this turn.
    pub was_declined: bool,
    /// The agent has said or done something for this prompt.
    pub has_worked: bool,
}

impl<'a> TurnLoop<'a> {
    /// Sends a prompt when the loop runs.
    pub fn new(run: &'a TurnRun<'a>, process: &'a mut AcpProcess, cwd: &'a str, prompt: &[Value]) -> Self {
        let session = process.session.as_ref().map(|session| session.id.clone()).unwrap_or_default();
        let rpc = process.rpc.clone();
        let params = json!({ "sessionId": session, "prompt": prompt });
        Self {
            run,
            process,
            projector: Projector::new(&session),
            session,
            cwd,
            prompting: Box::pin(async move { rpc.call("session/prompt", params, NEVER).await }),
            answer: None,
            text: TurnText::default(),
            calls: ToolCalls::default(),
            plan: plan::PlanStep::default(),
            asks: OpenRequests::default(),
            files: OpenRequests::default(),
            was_declined: false,
            has_worked: false,
        }
    }

    /// Runs until the turn ends, or must be ended.
    pub async fn run(&mut self) -> LoopEnd {
        let limit = self.run.agent.config.turn_timeout;
        // The prompt is on its way before anything else is looked at: a cancel must not overtake it.
        if let Some(answered) = (&mut self.prompting).now_or_never()
            && let Some(end) = self.answered(answered).await
        {
            return end;
        }
        loop {
            let left = limit.saturating_sub(self.run.out.elapsed());
            if left.is_zero() {
                return LoopEnd::Timeout;
            }
            let end = tokio::select! {
                biased;
                () = self.run.stop.cancelled() => Some(LoopEnd::Stopped),
                Some((id, answer)) = self.asks.next() => self.reply(id, answer).await,
                Some((id, answer)) = self.files.next() => {
                    send_reply(&self.process.rpc, id, answer).await;
                    None
                }
                answered = &mut self.prompting, if self.answer.is_none() => self.answered(answered).await,
                message = self.process.incoming.next() => match message {
                    Some((message, line)) => self.take(message, &line).await,
                    None => Some(LoopEnd::Gone(self.process.rpc.gone().await)),
                },
                () = tokio::time::sleep(left.max(TICK)) => None,
            };
            if let Some(end) = end.or_else(|| self.end_of_answer()) {
                return end;
            }
        }
    }

    /// Asks the agent to stop, and takes its last messages. Returns whether it did within the time: then its stop reason.
    /// Cannot hang.
    pub async fn wind_down(&mut self, patience: Duration) -> Option<String> {
        tokio::time::timeout(patience, self.last_messages()).await.ok().flatten()
    }

    async fn last_messages(&mut self) -> Option<String> {
        // The protocol wants every request answered.
        let open = self.asks.withdraw_all();
        let rpc = self.process.rpc.clone();
        rpc.notify("session/cancel", Some(json!({ "sessionId": self.session }))).await.ok()?;
        for id in open {
            rpc.reply(id, Ok(permissions::cancelled())).await.ok()?;
        }
        loop {
            let end = tokio::select! {
                biased;
                answered = &mut self.prompting, if self.answer.is_none() => self.answered(answered).await,
                Some((id, answer)) = self.files.next() => {
                    send_reply(&rpc, id, answer).await;
                    None
                }
                message = self.process.incoming.next() => match message {
                    Some((IncomingMessage { request: Some(id), method, .. }, _)) => {
                        send_reply(&rpc, id, late_answer(&method)).await;
                        None
                    }
                    Some((message, line)) => self.take(message, &line).await,
                    None => return None,
                },
            };
            match end.or_else(|| self.end_of_answer()) {
                Some(LoopEnd::Answered(reason)) => return Some(reason),
                // An agent that refuses a prompt because it was cancelled has stopped, too.
                Some(LoopEnd::Refused(_)) => return Some("cancelled".to_owned()),
                Some(LoopEnd::Error(_)) | None => {}
                Some(_) => return None,
            }
        }
    }

    /// Shows that steps have ended, and records everything that did not end before the turn.
    pub async fn close(&mut self, well: bool) {
        // An agent that reads nothing must not hold the turn.
        if tokio::time::timeout(self.run.agent.times.cancel, self.answer_rest()).await.is_err() {
            tracing::warn!("an agent did not take the last answers to its requests");
        }
        // Nothing changes in the folder after the turn.
        while self.files.next().await.is_some() {}
        let (steps, ended) = self.calls.broken_off(well);
        for step in steps.into_iter().chain(self.plan.end()) {
            self.run.out.emit(TurnEvent::Step(step));
        }
        let calls = ended.into_iter().flat_map(|(id, call)| self.projector.call_ended(&id, call));
        let mut messages: Vec<_> = calls.chain(self.plan.last().and_then(Projector::plan)).collect();
        messages.extend(self.projector.spoken());
        for message in messages {
            if let Err(error) = self.run.out.record(message).await {
                tracing::warn!(%error, "the end of a turn was not recorded");
                return;
            }
        }
    }

    /// Answers the requests that still wait. The agent has given the prompt up or done it, and the protocol wants every
    /// request answered.
    async fn answer_rest(&mut self) {
        for id in self.asks.withdraw_all() {
            send_reply(&self.process.rpc, id, Ok(permissions::cancelled())).await;
        }
        while let Some((id, answer)) = self.files.next().await {
            send_reply(&self.process.rpc, id, answer).await;
        }
    }

    /// Takes the answer to the prompt. Messages that came before it may still wait.
    async fn answered(&mut self, answered: Result<RpcAnswer, RpcError>) -> Option<LoopEnd> {
        let error = match answered {
            Ok(answer) => {
                self.answer = Some(answer);
                return None;
            }
            Err(error) => error,
        };
        // Whatever came before the error is still shown.
        while let Some(Some((message, line))) = self.process.incoming.next().now_or_never() {
            self.take(message, &line).await;
        }
        Some(match error {
            RpcError::Fault(fault) => LoopEnd::Refused(fault),
            RpcError::TooLarge { .. } => LoopEnd::TooLarge,
            RpcError::Deadline => LoopEnd::Timeout,
            RpcError::Gone(failure) => LoopEnd::Gone(failure),
        })
    }

    /// The end, if the answer is there and everything before it was taken.
    fn end_of_answer(&mut self) -> Option<LoopEnd> {
        let answer = self.answer.as_ref()?;
        if self.process.incoming.taken < answer.position && !self.process.rpc.is_gone() {
            return None;
        }
        let usage = read_usage(&answer.result);
        if usage != TokenUsage::default() {
            self.run.out.emit(TurnEvent::Usage(usage));
        }
        self.pass_on(&answer.line);
        let reason = text_field(&answer.result, "stopReason");
        Some(LoopEnd::Answered(one_line(reason, LOGGED)))
    }

    /// Passes a line on where somebody wants it as it is.
    fn pass_on(&self, line: &[u8]) {
        if self.run.turn.wants_raw {
            let line = String::from_utf8_lossy(line);
            self.run.out.emit(TurnEvent::Raw(line.trim_end_matches(['\r', '\n'])));
        }
    }

    /// Takes one message. Returns the end if the turn must end.
    async fn take(&mut self, message: IncomingMessage, line: &[u8]) -> Option<LoopEnd> {
        let session = text_field(&message.params, "sessionId");
        let is_other = !session.is_empty() && session != self.session;
        if message.request.is_some() {
            self.begin_answer(message, is_other).await;
            return None;
        }
        if is_other {
            tracing::debug!(
                method = message.method,
                "a message belongs to another conversation of the agent"
            );
            return None;
        }
        self.pass_on(line);
        match message.method.as_str() {
            "session/update" => self.update(&message.params).await,
            method => {
                tracing::debug!(
                    method = one_line(method, LOGGED),
                    "an agent told something that is not known here"
                );
                None
            }
        }
    }

    async fn update(&mut self, params: &Value) -> Option<LoopEnd> {
        // Some agents leave out the level between.
        let update = if params["update"].is_object() { &params["update"] } else { params };
        let kind = text_field(update, "sessionUpdate");
        self.has_worked |= WORK.contains(&kind);
        match kind {
            "agent_message_chunk" => {
                let text = self.text.push(update);
                self.projector.said(&text);
                return self.say(&text).await;
            }
            "agent_thought_chunk" => {
                let thought = shown_content(&update["content"]);
                self.projector.thought(&thought);
                self.run.out.emit(TurnEvent::Thought(&thought));
            }
            "tool_call" | "tool_call_update" => {
                self.text.interrupt();
                let CallNews { step, ended } = self.calls.update(update);
                step.into_iter().for_each(|step| self.run.out.emit(TurnEvent::Step(step)));
                if let Some((id, call)) = ended {
                    return self.record(&id, call).await;
                }
            }
            "plan" => {
                let step = self.plan.update(update);
                step.into_iter().for_each(|step| self.run.out.emit(TurnEvent::Step(step)));
            }
            // Nobody is shown these.
            "user_message_chunk"
            | "available_commands_update"
            | "current_mode_update"
            | "config_option_update"
            | "session_info_update"
            | "usage_update" => {}
            kind => {
                tracing::debug!(
                    kind = one_line(kind, LOGGED),
                    "an agent sent an update that is not known here"
                );
            }
        }
        None
    }

    /// Passes text on, and waits if nobody can take more.
    async fn say(&mut self, text: &str) -> Option<LoopEnd> {
        if text.is_empty() {
            return None;
        }
        self.run.out.emit(TurnEvent::Text(text));
        let waiting = self.run.out.wait_for_capacity()?;
        tokio::select! {
            waited = waiting => waited.err().map(LoopEnd::Error),
            // The loop notices it.
            () = self.run.stop.cancelled() => None,
        }
    }

    async fn record(&mut self, id: &str, call: EndedCall) -> Option<LoopEnd> {
        for message in self.projector.call_ended(id, call) {
            if let Err(error) = self.run.out.record(message).await {
                return Some(LoopEnd::Error(error));
            }
        }
        None
    }

    /// Begins to answer a request of the agent.
    async fn begin_answer(&mut self, message: IncomingMessage, is_other: bool) {
        let IncomingMessage { method, params, request, .. } = message;
        let Some(id) = request else { return };
        let is_ask = method == PERMISSION;
        let is_full = if is_ask { self.asks.is_full() } else { self.files.is_full() };
        let refusal = if is_other {
            Some(RpcFault::new(INVALID, "the session has no turn here"))
        } else if is_full {
            self.run.out.emit(TurnEvent::Remark(TextKey::AskTooMany.into()));
            Some(RpcFault::new(TOO_MANY, "too many requests wait for an answer"))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return send_reply(&self.process.rpc, id, Err(refusal)).await;
        }
        let (run, cwd) = (self.run, self.cwd);
        if is_ask {
            let call = self.calls.requested(&params["toolCall"]);
            let policy = &run.agent.config.permissions;
            self.asks.begin(id, async move {
                permissions::answer(call, &params["options"], run.turn, cwd, policy, run.out).await
            });
            return;
        }
        match files::answer(&method, &params, Path::new(cwd)) {
            Some(answer) => self.files.begin(id, answer),
            None => {
                tracing::warn!(
                    method = one_line(&method, LOGGED),
                    "an agent sent a request that is not known here"
                );
                let fault = RpcFault::new(RpcFault::UNKNOWN_METHOD, "unknown method");
                send_reply(&self.process.rpc, id, Err(fault)).await;
            }
        }
    }

    /// Answers a request for permission. Returns the end if the turn must end after it.
    async fn reply(&mut self, id: RequestId, answer: PermissionAnswer) -> Option<LoopEnd> {
        let PermissionAnswer { reply, remark, declined, halts } = answer;
        self.was_declined |= declined.is_some();
        declined.iter().for_each(|call| self.calls.declined(call));
        if let Some(remark) = remark {
            tracing::warn!(%remark, "a request of an agent was declined without asking anybody");
            self.run.out.emit(TurnEvent::Remark(remark));
        }
        send_reply(&self.process.rpc, id, Ok(reply)).await;
        halts.then_some(LoopEnd::Halted)
    }
}

/// The answer to a request that comes while its turn is being ended. Only a permission can be cancelled: for everything
/// else the same words would be a success.
fn late_answer(method: &str) -> Result<Value, RpcFault> {
    match method {
        PERMISSION => Ok(permissions::cancelled()),
        _ => Err(RpcFault::new(ENDING, "the turn is being ended")),
    }
}
