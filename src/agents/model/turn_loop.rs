//! The loop of a turn: asks the model, runs the tools that it calls, and feeds the results back until it answers.
//!
//! The message with the calls is recorded before any of them runs, and each result as it comes, so a process that dies
//! leaves a true transcript. A turn whose tools ran is never run again by itself: every error of it says so.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use talaria_platform::CancellationToken;

use super::ModelAgent;
use super::completion::Completion;
use super::context_window::RequestMessages;
use super::foreign_calls::tell_foreign_calls;
use super::loop_output::LoopOutput;
use super::request_retry::{NextStep, RequestRetries};
use super::run_calls::{CallRunner, CallsEnd, CheckedCall};
use super::tool_calls::RequestedCall;
use super::tool_set::ToolSet;
use crate::agent::{
    AgentError, AgentErrorKind, AgentOutput, AgentTurn, MessageRole, SessionMessage, Step, StepState,
    ToolActivity, TurnEnd, TurnEvent, text_bytes,
};
use crate::i18n::TextKey;
use crate::openai::error::is_too_long;
use crate::testing::failpoint;
use crate::util::hash;

/// Time that the last answer has at least, if the time of the task is up.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// Tells the model that it must answer now.
const LAST_ROUND: &str = "You have reached the limit of this task, so no tool can be called any more. Answer now with \
                          what you have found out, and say what is still undone.";

/// Limits of one turn's loop.
#[derive(Clone, Copy, Debug)]
pub struct LoopLimits {
    /// Most rounds of tool calls.
    pub rounds: u32,
    /// Time limit, without the time that people take to answer.
    pub time: Duration,
    /// Tokens that fit into the model's window, if that is known.
    pub window: Option<u64>,
}

/// One turn of an agent with tools.
pub struct TurnLoop<'a> {
    agent: &'a ModelAgent,
    turn: &'a AgentTurn,
    tools: Arc<ToolSet>,
    limits: LoopLimits,
    out: LoopOutput<'a>,
    stop: &'a CancellationToken,
    /// The prepared request without its messages.
    request: Map<String, Value>,
    messages: RequestMessages,
    /// Bytes of the tools in each request.
    tool_bytes: usize,
    /// Ids of calls that the request contains.
    call_ids: HashSet<String>,
    /// Number of rounds so far.
    round: u32,
    /// Whether messages are on record: then the next one must be too.
    recorded: bool,
    /// Whether people were told that the beginning of the conversation is left out, now or in an earlier turn.
    told_of_window: bool,
}

impl<'a> TurnLoop<'a> {
    /// A loop over a prepared request. Fails only if the request is not one of ours.
    pub fn new(
        agent: &'a ModelAgent,
        turn: &'a AgentTurn,
        request: &[u8],
        tools: Arc<ToolSet>,
        limits: LoopLimits,
        out: &'a dyn AgentOutput,
        stop: &'a CancellationToken,
    ) -> Result<Self, AgentError> {
        let unfit = || AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume);
        let mut request: Map<String, Value> = serde_json::from_slice(request).map_err(|_| unfit())?;
        let Some(Value::Array(messages)) = request.remove("messages") else { return Err(unfit()) };
        let messages = tell_foreign_calls(messages, |name| tools.get(name).is_some());
        let call_ids = messages.iter().flat_map(call_ids).collect();
        let told_of_window = turn.upstream.as_ref().is_some_and(|report| report["window"] == "told");
        Ok(Self {
            agent,
            turn,
            tool_bytes: tools.listed().iter().map(|tool| tool.to_string().len()).sum(),
            tools,
            limits,
            out: LoopOutput::new(out),
            stop,
            request,
            messages: RequestMessages::new(messages),
            call_ids,
            round: 0,
            recorded: false,
            told_of_window,
        })
    }

    /// Tells the model, and everybody who sees steps, why some tools are missing.
    pub fn tell_problems(&mut self, problems: &[String]) {
        for (number, problem) in problems.iter().enumerate() {
            // The reason may have words of the server, which instruct nobody; the log and `talaria status` have it.
            let problem = format!("{}.", problem.split([':', '.']).next().unwrap_or_default());
            self.messages.add_to_system(&problem);
            for state in [StepState::Running, StepState::Failed] {
                let (id, title) = (format!("0.{number}"), "mcp".to_owned());
                self.out.emit(TurnEvent::Step(Step { id, title, detail: Some(problem.clone()), state }));
            }
        }
    }

    /// Runs the turn to its end.
    pub async fn run(mut self) -> Result<TurnEnd, AgentError> {
        loop {
            let is_last = self.is_last_round();
            if is_last {
                self.messages.push(json!({ "role": "user", "content": LAST_ROUND }));
            }
            let completion = self.ask_model(is_last).await;
            let Completion { end, calls } = completion.map_err(|error| self.after_tools(error))?;
            failpoint("model.answered");
            if calls.is_empty() || is_last || end == TurnEnd::Stopped {
                return self.finish(end, is_last).await;
            }
            let calls = self.check(calls, end);
            self.record_calls(&calls).await?;
            self.round += 1;
            let runner = CallRunner {
                turn: self.turn,
                tools: &self.tools,
                out: &self.out,
                stop: self.stop,
                time_limit: self.limits.time,
            };
            match runner.run(&calls).await? {
                CallsEnd::Results(results) => {
                    results.into_iter().for_each(|result| self.messages.push(result))
                }
                CallsEnd::Halted(words) => return Err(AgentError::new(AgentErrorKind::CutShort, words)),
                CallsEnd::Stopped => return Ok(TurnEnd::Stopped),
            }
        }
    }

    /// Whether a limit is reached, so that the model gets one last chance to answer.
    fn is_last_round(&self) -> bool {
        let spent = self.turn.tokens_left.is_some_and(|left| self.round > 0 && self.out.tokens() >= left);
        spent || self.round >= self.limits.rounds || self.out.elapsed() >= self.limits.time
    }

    /// Asks the model once. A request that broke before anything of it was shown is sent again; one that is too long for
    /// the model is sent again without the oldest turns.
    async fn ask_model(&mut self, is_last: bool) -> Result<Completion, AgentError> {
        let mut retries = RequestRetries::default();
        loop {
            if let Some(window) = self.limits.window
                && self.messages.fit(window, self.tool_bytes)
            {
                self.tell_of_window();
            }
            let body = self.body(is_last);
            self.out.begin_request(text_bytes(&body));
            // The last answer needs time of its own.
            let grace = LAST_ANSWER.min(self.limits.time);
            let patience = self.limits.time.saturating_sub(self.out.elapsed()).max(grace);
            let request = self.agent.complete(body, &self.out, self.stop);
            let error = match tokio::time::timeout(patience, request).await {
                Ok(Ok(completion)) => return Ok(completion),
                Ok(Err(error)) => error,
                Err(_) => AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeTaskLimit),
            };
            if self.out.has_shown() {
                return Err(error);
            }
            if is_too_long(&error) && (self.messages.halve_history() || self.messages.shorten_results()) {
                self.tell_of_window();
                continue;
            }
            match retries.wait(error, self.round > 0, self.stop).await? {
                NextStep::SendAgain => {}
                NextStep::Stop => return Ok(Completion { end: TurnEnd::Stopped, calls: Vec::new() }),
            }
        }
    }

    /// The next request.
    fn body(&self, is_last: bool) -> Bytes {
        let mut request = self.request.clone();
        request.insert("messages".to_owned(), self.messages.iter().cloned().collect());
        if !self.tools.is_empty() {
            request.insert("tools".to_owned(), self.tools.listed().into());
            if is_last {
                request.insert("tool_choice".to_owned(), json!("none"));
            }
        }
        Value::Object(request).to_string().into()
    }

    /// Ends the turn with the answer that the model has given.
    async fn finish(self, end: TurnEnd, is_last: bool) -> Result<TurnEnd, AgentError> {
        let text = self.out.text();
        // Without tool calls the engine records the text by itself. A stopped answer is recorded as far as it was shown.
        if self.recorded && end != TurnEnd::Stopped && !text.trim().is_empty() {
            self.out.record(SessionMessage::new(MessageRole::Assistant, text.trim())).await?;
        }
        if is_last && end != TurnEnd::Stopped && text.trim().is_empty() {
            return Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeTaskLimit));
        }
        Ok(end)
    }

    /// Reads the calls of a message, and gives each an id that is its own in the whole request.
    fn check(&mut self, calls: Vec<RequestedCall>, end: TurnEnd) -> Vec<CheckedCall> {
        let mut checked = Vec::with_capacity(calls.len());
        for (at, RequestedCall { id, name, arguments }) in calls.into_iter().enumerate() {
            let step = format!("{}.{at}", self.round + 1);
            let usable = is_legal(&id) && !self.call_ids.contains(&id);
            // Nine letters and digits: some servers take nothing else.
            let id =
                if usable { id } else { hash([self.turn.id.0.as_str(), &step]).chars().take(9).collect() };
            self.call_ids.insert(id.clone());
            let arguments = match end {
                // Nobody knows what was to follow.
                TurnEnd::Limit => {
                    Err("the answer was cut off by its length limit; the tool was not called".to_owned())
                }
                TurnEnd::Done | TurnEnd::Stopped => read_arguments(&arguments),
            };
            checked.push(CheckedCall { id, step, name: legal_name(name), arguments });
        }
        checked
    }

    /// Records the message with the calls, and adds it to the next request.
    async fn record_calls(&mut self, calls: &[CheckedCall]) -> Result<(), AgentError> {
        let tool_calls: Vec<_> = calls
            .iter()
            .map(|call| {
                // Servers that read earlier calls refuse arguments that are not JSON.
                let arguments = call.arguments.clone().unwrap_or_default();
                let function =
                    json!({ "name": call.name, "arguments": Value::Object(arguments).to_string() });
                json!({ "id": call.id, "type": "function", "function": function })
            })
            .collect();
        let text = self.out.text();
        let content = if text.trim().is_empty() { Value::Null } else { json!(text.trim()) };
        self.messages.push(json!({ "role": "assistant", "content": content, "tool_calls": tool_calls }));
        self.recorded = true;
        let tools = Some(ToolActivity::Calls { tool_calls });
        self.out
            .record(SessionMessage { tools, ..SessionMessage::new(MessageRole::Assistant, text.trim()) })
            .await
    }

    /// The error of a turn. Once tools ran, it must not make the engine run the turn again.
    fn after_tools(&self, error: AgentError) -> AgentError {
        match self.round {
            0 => error,
            _ => AgentError { kind: AgentErrorKind::CutShort, ..error },
        }
    }

    /// Says once in a session that its beginning no longer fits into the model's window.
    fn tell_of_window(&mut self) {
        if !self.told_of_window {
            self.told_of_window = true;
            self.out.emit(TurnEvent::Remark(TextKey::WindowFull.into()));
            self.out.emit(TurnEvent::Upstream(json!({ "window": "told" })));
        }
    }
}

/// Whether servers take a text as the id of a call or the name of a tool, also in later requests.
fn is_legal(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(is_legal)
}

/// The name of a tool in a form that every later request can contain. A name that was changed belongs to no tool.
fn legal_name(name: String) -> String {
    if is_legal(&name) {
        return name;
    }
    let legal = name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' });
    Some(legal.collect()).filter(|name: &String| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// Reads the arguments of a call.
fn read_arguments(arguments: &str) -> Result<Map<String, Value>, String> {
    // A call without arguments is often sent with none at all.
    if arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are not a JSON object; the tool was not called".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON ({error}); the tool was not called")),
    }
}

/// Ids of the calls in a message of a request.
fn call_ids(message: &Value) -> Vec<String> {
    let calls = message["tool_calls"].as_array();
    calls.into_iter().flatten().filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
}
