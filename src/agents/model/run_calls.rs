//! Runs the tool calls of one message, all at the same time, and records each result as it comes.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use talaria_platform::CancellationToken;
use tokio::time::Instant;

use super::loop_output::LoopOutput;
use super::tool_set::ToolSet;
use crate::agent::{
    AgentError, AgentOutput as _, AgentTurn, MessageRole, SessionMessage, Step, StepState, ToolActivity,
    TurnEvent,
};
use crate::agents::tools::{ToolCall, ToolFailure, cap_result};
use crate::i18n::LocalizedText;
use crate::testing::failpoint;
use crate::util::one_line;

/// Shortest time between two lines of a running tool's output. Each is an event of the turn.
const PROGRESS: Duration = Duration::from_secs(1);

/// Longest line about a call, in characters.
const DETAIL: usize = 200;

/// A call whose arguments were read, with ids of its own.
pub struct CheckedCall {
    /// Id in the transcript.
    pub id: String,
    /// Id of its step, unique in the turn.
    pub step: String,
    /// Name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments, or the reason why they cannot be read.
    pub arguments: Result<Map<String, Value>, String>,
}

/// End of a round of calls.
pub enum CallsEnd {
    /// Every call has a result; these are the messages for the model, in the order of the calls.
    Results(Vec<Value>),
    /// The task halts for this reason.
    Halted(LocalizedText),
    /// The turn was stopped.
    Stopped,
}

/// Everything that the calls of a turn share.
pub struct CallRunner<'a> {
    /// The turn.
    pub turn: &'a AgentTurn,
    /// The tools that it may call.
    pub tools: &'a ToolSet,
    /// Takes steps and records.
    pub out: &'a LoopOutput<'a>,
    /// Fired when the turn is stopped.
    pub stop: &'a CancellationToken,
    /// Time limit of the turn, without the time that people take to answer.
    pub time_limit: Duration,
}

impl CallRunner<'_> {
    /// Runs all calls to their ends. The message with the calls is on record already.
    pub async fn run(&self, calls: &[CheckedCall]) -> Result<CallsEnd, AgentError> {
        failpoint("tools.called");
        // Ends the other calls of the round when one of them halts the task, or when the time is up.
        let round = self.stop.child_token();
        let mut running: FuturesUnordered<_> = calls
            .iter()
            .enumerate()
            .map(|(at, call)| {
                let round = &round;
                async move { (at, self.run_one(call, round).await) }
            })
            .collect();
        let mut timer = std::pin::pin!(tokio::time::sleep(self.time_left()));
        let mut results = vec![None; calls.len()];
        let (mut halted, mut timed_out) = (None, false);
        loop {
            let (at, end) = tokio::select! {
                biased;
                next = running.next() => match next {
                    Some(ended) => ended,
                    None => break,
                },
                () = &mut timer, if !timed_out => {
                    // People may take their time: the clock stands still while somebody is asked.
                    match self.time_left() {
                        Duration::ZERO => {
                            timed_out = true;
                            round.cancel();
                        }
                        left => timer.as_mut().reset(Instant::now() + left),
                    }
                    continue;
                }
            };
            let content = match end {
                Ok(content) => content,
                Err(ToolFailure::Failed(words)) => format!("Error: {words}"),
                Err(ToolFailure::Halt(words)) => {
                    halted.get_or_insert(words);
                    round.cancel();
                    "Error: nobody answered the question about this call in time, so the task was halted. It did not run."
                        .to_owned()
                }
                Err(ToolFailure::Stopped) if timed_out => {
                    "Error: the time of this task is up, so the call was ended.".to_owned()
                }
                Err(ToolFailure::Stopped) => "Error: the task was stopped, so the call was ended.".to_owned(),
            };
            let call = &calls[at];
            let tools = ToolActivity::Result { tool_call_id: call.id.clone(), tool_name: call.name.clone() };
            let record =
                SessionMessage { tools: Some(tools), ..SessionMessage::new(MessageRole::Tool, content) };
            results[at] = Some(json!({ "role": "tool", "tool_call_id": call.id, "content": record.content }));
            self.out.record(record).await?;
        }
        Ok(match halted {
            _ if self.stop.is_cancelled() => CallsEnd::Stopped,
            Some(words) => CallsEnd::Halted(words),
            None => CallsEnd::Results(results.into_iter().flatten().collect()),
        })
    }

    fn time_left(&self) -> Duration {
        self.time_limit.saturating_sub(self.out.elapsed())
    }

    /// Runs one call, and shows it as a step.
    async fn run_one(&self, call: &CheckedCall, stop: &CancellationToken) -> Result<String, ToolFailure> {
        let none = Map::new();
        let arguments = call.arguments.as_ref().unwrap_or(&none);
        let tool = self.tools.get(&call.name);
        let subject = tool.map(|tool| one_line(&tool.subject(arguments), DETAIL)).unwrap_or_default();
        let show = |state, detail: &str| {
            self.out.emit(TurnEvent::Step(Step {
                id: call.step.clone(),
                title: call.name.clone(),
                detail: Some(detail.to_owned()).filter(|detail| !detail.is_empty()),
                state,
            }));
        };
        show(StepState::Running, &subject);
        let last_line = Mutex::new(None::<Instant>);
        let progress = |line: &str| {
            let mut last = last_line.lock();
            if last.is_none_or(|last| last.elapsed() >= PROGRESS) {
                *last = Some(Instant::now());
                show(StepState::Running, &one_line(line, DETAIL));
            }
        };
        let end = match (tool, &call.arguments) {
            (None, _) => Err(ToolFailure::failed(format!(
                "there is no tool `{}`; the tools are {}",
                one_line(&call.name, 80),
                self.tools.names()
            ))),
            (Some(_), Err(why)) => Err(ToolFailure::failed(why.clone())),
            (Some(tool), Ok(arguments)) => {
                let call = ToolCall { arguments, turn: self.turn, out: self.out, progress: &progress, stop };
                match AssertUnwindSafe(tool.call(call)).catch_unwind().await {
                    Ok(end) => end,
                    Err(_) => {
                        tracing::error!(tool = tool.spec().name, "a tool broke");
                        Err(ToolFailure::failed("the tool broke; this is a fault of the program"))
                    }
                }
            }
        };
        failpoint("tool.ended");
        let end = end.map(cap_result);
        show(if end.is_ok() { StepState::Done } else { StepState::Failed }, &subject);
        end
    }
}
