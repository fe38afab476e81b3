//! A person who answers the asks of tools, and the turn in which they are called.

use parking_lot::Mutex;
use talaria::access::GrantScope;
use talaria::agent::{
    AgentError, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, SessionMessage, TurnEvent,
};
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria_platform::{BoxFuture, CancellationToken};

/// Gives every ask the same answer, and keeps everything that a person is shown.
pub struct Person {
    says: AskChoice,
    pub asked: Mutex<Vec<Ask>>,
    pub progress: Mutex<Vec<String>>,
    pub stop: CancellationToken,
}

impl Person {
    pub fn saying(says: AskChoice) -> Self {
        Self { says, asked: Mutex::default(), progress: Mutex::default(), stop: CancellationToken::new() }
    }

    pub fn allowing() -> Self {
        Self::saying(AskChoice::Allow(GrantScope::Once))
    }

    pub fn denying(reason: DenyReason) -> Self {
        Self::saying(AskChoice::Deny(reason))
    }
}

impl AgentOutput for Person {
    fn emit(&self, _event: TurnEvent<'_>) {}

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.asked.lock().push(ask);
        let says = self.says.clone();
        Box::pin(async { says })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A turn of the agent that has the tools.
pub fn turn() -> AgentTurn {
    AgentTurn::new(TurnId("0".into()), AgentName::local(), SessionId("s".into()))
}
