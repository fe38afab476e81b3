//! An agent's description of itself.

use super::{LearningTools, PreparedTurn};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::rules::AgentRuntime;

/// An agent's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// Decides what requests may contain and how an empty answer is called.
    pub kind: AgentKind,
    /// Name for people: "remote agent server", "model llama3".
    pub name: LocalizedText,
    /// Whether history can be changed after the fact.
    pub rewind: RewindSupport,
    /// Whether the agent may be given a request again that an earlier process made for it and that may have run.
    /// `false` for an agent that never makes such requests: a request made for the agent that was configured before it
    /// must not run here.
    pub resume: bool,
    /// The tools with which the agent learns: their use is counted, and a review becomes due.
    pub learns: LearningTools,
    /// The tools with which the agent can review a conversation; see [`Agent::review`](super::Agent::review). None for
    /// an agent without a model loop of ours, which may learn all the same: another agent then does its reviews.
    pub reviews: LearningTools,
    /// The agent that answers while this one is away, if there is one.
    pub fallback: Option<Box<FallbackInfo>>,
    /// The runtime that runs its turns now; `None` for an agent that has only its own.
    pub runtime: Option<AgentRuntime>,
    /// Models that a person may choose among for a session, the usual one first; empty for an agent without a choice.
    pub models: Vec<String>,
    /// Whether a turn works in the folder that it names; see [`AgentTurn::folder`](super::AgentTurn::folder). A surface that
    /// has a folder for each session refuses other agents.
    pub takes_folder: bool,
}

impl AgentInfo {
    /// Describes an agent of this kind that can do what every agent can: it learns nothing, offers no choice, and
    /// takes part of a conversation back. Agents that are programs of this machine take a folder.
    pub fn new(kind: AgentKind, name: impl Into<LocalizedText>) -> Self {
        Self {
            kind,
            name: name.into(),
            rewind: RewindSupport::Possible,
            resume: false,
            learns: LearningTools::default(),
            reviews: LearningTools::default(),
            fallback: None,
            runtime: None,
            models: Vec::new(),
            takes_folder: match kind {
                AgentKind::Codex | AgentKind::Acp => true,
                AgentKind::Proxy | AgentKind::Model | AgentKind::Guide => false,
            },
        }
    }

    /// Whether a model is talked to directly, without an agent server in between.
    pub fn is_model(&self) -> bool {
        self.kind == AgentKind::Model
    }

    /// Whether its words are kept for the turns that follow. Those of the guide would be history of another agent.
    pub fn is_remembered(&self) -> bool {
        match self.kind {
            AgentKind::Proxy | AgentKind::Model | AgentKind::Codex | AgentKind::Acp => true,
            AgentKind::Guide => false,
        }
    }

    /// Name of the agent that answers as things stand, for people.
    pub fn answering(&self) -> LocalizedText {
        match &self.fallback {
            Some(other) if other.answers => {
                TextKey::StatusStandIn.with("agent", other.about.name.clone()).with("away", self.name.clone())
            }
            Some(_) | None => self.name.clone(),
        }
    }

    /// Description of the agent that takes requests made for `wanted`, where this one is registered as `own`: this one
    /// itself or its fallback. `None`: neither of them may be given such a request.
    pub fn taking(&self, own: &AgentName, wanted: &AgentName) -> Option<&Self> {
        if own == wanted {
            return Some(self);
        }
        self.fallback.as_deref().filter(|other| other.agent == *wanted).map(|other| &other.about)
    }

    /// Like [`AgentInfo::taking`], for a request: the agent that it was made for must also have its runtime.
    pub fn taking_request(&self, own: &AgentName, prepared: &PreparedTurn) -> Option<&Self> {
        self.taking(own, &prepared.agent).filter(|about| match prepared.runtime {
            AgentRuntime::Auto => true,
            AgentRuntime::CodexAppServer => about.runtime.is_some(),
        })
    }
}

/// The kind of an agent, as the configuration calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// A remote agent server.
    Proxy,
    /// A model server, talked to directly.
    Model,
    /// A `codex app-server` of this machine.
    Codex,
    /// A program of this machine that speaks the Agent Client Protocol.
    Acp,
    /// The built-in guide, while nothing is configured.
    Guide,
}

/// Whether an agent's history can be changed after the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindSupport {
    /// The agent forgets messages that are taken back.
    Possible,
    /// The agent keeps every message: `/undo` is refused, and `/retry` asks the question again as a new turn.
    Impossible,
    /// The agent has not reported it since the gateway started. `/undo` and edits are refused for now, `/retry` asks
    /// once more behind the earlier messages, and the agent is not told what another agent answered in its place. Only
    /// messages that people delete are taken back all the same: an agent that cannot rewind then forgets the rest of
    /// the conversation too.
    Unknown,
}

/// The agent that answers while another one is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackInfo {
    /// Its name in the configuration; the requests that are made for it carry this name.
    pub agent: AgentName,
    /// Its description.
    pub about: AgentInfo,
    /// Whether the other agent is away now, so that this one answers.
    pub answers: bool,
}
