//! The runtime of an agent: what runs its turns.
//!
//! The configuration gives an agent that can be switched its usual runtime. An override of that is stored by agent and
//! wins; see [`AgentRules::runtime`](super::AgentRules::runtime).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The runtime of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRuntime {
    /// The agent runs its turns itself, as its kind does.
    #[default]
    Auto,
    /// A `codex app-server` runs its turns.
    CodexAppServer,
}

impl AgentRuntime {
    /// All runtimes.
    pub const ALL: [Self; 2] = [Self::Auto, Self::CodexAppServer];

    /// The name in the configuration, in the store and in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::CodexAppServer => "codex_app_server",
        }
    }

    /// The runtime with this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|runtime| runtime.name().eq_ignore_ascii_case(name))
    }

    /// The runtime that a word of a command means: a name, or `on` and `off`, in any case.
    pub fn commanded(word: &str) -> Option<Self> {
        match word {
            word if word.eq_ignore_ascii_case("on") => Some(Self::CodexAppServer),
            word if word.eq_ignore_ascii_case("off") => Some(Self::Auto),
            word => Self::named(word),
        }
    }
}

impl fmt::Display for AgentRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_any_case_names_a_runtime() {
        for (word, runtime) in [
            ("auto", Some(AgentRuntime::Auto)),
            ("AUTO", Some(AgentRuntime::Auto)),
            ("off", Some(AgentRuntime::Auto)),
            ("Off", Some(AgentRuntime::Auto)),
            ("codex_app_server", Some(AgentRuntime::CodexAppServer)),
            ("Codex_App_Server", Some(AgentRuntime::CodexAppServer)),
            ("on", Some(AgentRuntime::CodexAppServer)),
            ("ON", Some(AgentRuntime::CodexAppServer)),
            ("", None),
            ("codex", None),
            ("codex-app-server", None),
            ("on please", None),
        ] {
            assert_eq!(AgentRuntime::commanded(word), runtime, "{word:?}");
        }
    }

    #[test]
    fn a_configuration_has_names_and_no_synonyms() {
        assert_eq!(AgentRuntime::named("CODEX_APP_SERVER"), Some(AgentRuntime::CodexAppServer));
        assert_eq!(AgentRuntime::named("Auto"), Some(AgentRuntime::Auto));
        for word in ["on", "off", "", "yes"] {
            assert_eq!(AgentRuntime::named(word), None, "{word:?}");
        }
    }
}
