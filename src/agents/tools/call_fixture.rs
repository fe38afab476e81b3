//! Calls of tools in tests: a turn, a scripted person who answers asks, and a stop token.

use parking_lot::Mutex;
use serde_json::Value;
use talaria_platform::{BoxFuture, CancellationToken};

use super::{AgentTool, ToolCall, ToolFailure};
use crate::agent::{
    AgentError, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, NoteScope, SessionMessage, TurnEvent,
};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::store::Store;

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
    fn emit(&self, event: TurnEvent<'_>) {
        panic!("a tool emits nothing: {event:?}");
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.asked.lock().push(ask);
        let choice = self.choice.clone();
        Box::pin(async move { choice })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A store in a folder that lasts as long as the returned one.
pub(crate) fn temporary_store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let (store, _threads) = Store::open(&folder.path().join("talaria.db")).unwrap();
    (folder, store)
}

/// A turn that may use the notes of this person.
pub(crate) fn turn_of(person: &str) -> AgentTurn {
    let notes = NoteScope::Person { account: "test".into(), person: person.to_owned() };
    AgentTurn { notes: Some(notes), ..turn_in("s") }
}

/// A turn of this session.
pub(crate) fn turn_in(session: &str) -> AgentTurn {
    AgentTurn::new(TurnId("0".into()), AgentName::local(), SessionId(session.into()))
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
