//! Reasons why the runtime of an agent is not changed.

use crate::agents::codex::binary::CodexBinaryError;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::store::StoreError;

/// Why an agent has one runtime only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedRuntime {
    /// A remote agent server runs its turns. The agents there may have a choice.
    Proxy,
    /// The agent is codex itself.
    Codex,
    /// The agent is another program, which runs its turns itself.
    Acp,
    /// A model server other than OpenAI's answers, and the entry has no `runtime`: what is said to it must not go
    /// elsewhere because of a command.
    Private,
    /// No agent has this name.
    NoAgent,
}

/// Why a runtime was not changed. Everything is as before.
#[derive(Debug)]
pub enum RuntimeRefusal {
    /// The agent cannot be switched.
    Fixed(FixedRuntime),
    /// Codex cannot be used.
    Binary(CodexBinaryError),
    /// A turn of the session runs or waits.
    Busy,
    /// The choice could not be stored.
    Store(StoreError),
    /// The change broke in the middle; the log says why.
    Broken,
}

impl FixedRuntime {
    /// The sentence for a room.
    pub fn words(self, agent: &AgentName) -> LocalizedText {
        match self {
            Self::Proxy => TextKey::RuntimeProxy.into(),
            Self::Codex => TextKey::RuntimeAlwaysCodex.with("name", agent.as_str()),
            Self::Acp => TextKey::RuntimeOwnProgram.with("name", agent.as_str()),
            Self::Private => TextKey::RuntimePrivate.with("name", agent.as_str()),
            Self::NoAgent => TextKey::RuntimeNoAgent.into(),
        }
    }
}

impl RuntimeRefusal {
    /// The sentence for a room.
    pub fn words(&self, agent: &AgentName) -> LocalizedText {
        match self {
            Self::Fixed(why) => why.words(agent),
            Self::Binary(error) => error.words(),
            Self::Busy => TextKey::StillRunning.into(),
            Self::Store(_) | Self::Broken => TextKey::RuntimeNotStored.into(),
        }
    }
}

impl From<FixedRuntime> for RuntimeRefusal {
    fn from(why: FixedRuntime) -> Self {
        Self::Fixed(why)
    }
}

impl From<CodexBinaryError> for RuntimeRefusal {
    fn from(error: CodexBinaryError) -> Self {
        Self::Binary(error)
    }
}
