//! Calls of tools in tests: a turn, a scripted person who answers asks, and a stop token.

use parking_lot::Mutex;
use serde_json::Value;
use talaria_platform::{BoxFuture, CancellationToken};

use super::{AgentTool, ToolCall, ToolFailure};
use crate::agent::{
    AgentOutput, AgentScratch, AgentTurn, Ask, AskChoice, AttemptKind, DenyReason, ModelParams, TurnEvent,
    TurnOrigin,
};
use crate::ids::{AgentName, SessionId, TurnId};

/// Gives every ask the same answer, and keeps the asks.
pub(crate) struct ScriptedPerson {
    choice: AskChoice,
    pub(crate) asked: Mutex<Vec<Ask>>,
}

impl ScriptedPerson {
    pub(crate) fn who_says(choice: AskChoice) -> Self {
        Self { choice, asked: Mutex::default() }
    }

    pub(crate) fn absent() -> Self {
        Self::who_says(AskChoice::Deny(DenyReason::Gone))
    }
}

impl AgentOutput for ScriptedPerson {
    fn emit(&self, _event: TurnEvent<'_>) {}

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.asked.lock().push(ask);
        let choice = self.choice.clone();
        Box::pin(async move { choice })
    }
}

/// A turn of this session.
pub(crate) fn turn_in(session: &str) -> AgentTurn {
    AgentTurn {
        id: TurnId("0".into()),
        agent: AgentName::local(),
        session: SessionId(session.into()),
        upstream: None,
        context: String::new(),
        fallback_context: String::new(),
        history: Vec::new(),
        prompt: "hi".into(),
        parts: Vec::new(),
        images: Vec::new(),
        files: Vec::new(),
        key: "k".into(),
        origin: TurnOrigin::default(),
        attempt: AttemptKind::First,
        params: ModelParams::default(),
        memory: None,
        notes: None,
        model: None,
        tokens_left: None,
        hops: 0,
        without_fallback: false,
        scratch: AgentScratch::default(),
    }
}

/// Calls a tool in a session, with this person there.
pub(crate) async fn call_with(
    tool: &dyn AgentTool,
    arguments: &Value,
    session: &str,
    person: &ScriptedPerson,
) -> Result<String, ToolFailure> {
    let (turn, stop) = (turn_in(session), CancellationToken::new());
    let arguments = arguments.as_object().unwrap();
    let call = ToolCall { arguments, turn: &turn, out: person, progress: &|_| {}, stop: &stop };
    tool.call(call).await
}

/// Calls a tool that asks nobody.
pub(crate) async fn call(tool: &dyn AgentTool, arguments: &Value) -> Result<String, ToolFailure> {
    call_with(tool, arguments, "s", &ScriptedPerson::absent()).await
}
