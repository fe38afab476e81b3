//! Resolves the `forge` section: sessions with agents that other programs run over HTTP, and the operator's token for
//! `/admin/tokens`.

use std::time::Duration;

use serde::Deserialize;

use super::resolve::{ConfigResolver, SettingSource};
use super::secret::SecretForm;
use super::secret_sources::KeySetting;
use super::server::key_fault;
use super::suggest::closest;
use super::value::WholeNumber;
use super::{AgentsConfig, ConfigError, Secret, env};
use crate::ids::AgentName;

/// The agent that clients of this surface expect where they name none.
const DEFAULT_AGENT: &str = "claude";

const DEFAULT_LIVE_SESSIONS: usize = 100;
const DEFAULT_PROCESSES: usize = 8;
const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
const DEFAULT_HARD_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// `forge:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForgeSection {
    /// The agent that answers `POST /run`, and sessions that name none. Default: `claude`.
    pub run_agent: Option<String>,
    /// Most open sessions, of all apps together. Default: 100.
    pub max_live_sessions: Option<WholeNumber<1, 10_000>>,
    /// Most processes of agents at once. Default: 8.
    pub max_processes: Option<WholeNumber<1, 1_000>>,
    /// Seconds without a turn after which a session is closed. Default: 3600.
    pub session_ttl_secs: Option<WholeNumber<1, 31_536_000>>,
    /// Seconds after which a closed session is deleted with its folder. Default: 86400.
    pub session_hard_ttl_secs: Option<WholeNumber<1, 31_536_000>>,
}

/// Settings of the sessions that other programs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeConfig {
    /// The agent that answers where a request names none. It need not be configured: such a request is refused then.
    pub run_agent: String,
    /// Most open sessions, of all apps together.
    pub max_live_sessions: usize,
    /// Most processes of agents at once.
    pub max_processes: usize,
    /// Time without a turn after which a session is closed.
    pub session_ttl: Duration,
    /// Time after which a closed session is deleted.
    pub session_hard_ttl: Duration,
    /// The token for `/admin/tokens`. `None`: that address does not exist.
    pub admin_token: Option<Secret>,
}

impl Default for ForgeConfig {
    fn default() -> Self {
        Self {
            run_agent: DEFAULT_AGENT.to_owned(),
            max_live_sessions: DEFAULT_LIVE_SESSIONS,
            max_processes: DEFAULT_PROCESSES,
            session_ttl: DEFAULT_TTL,
            session_hard_ttl: DEFAULT_HARD_TTL,
            admin_token: None,
        }
    }
}

impl ConfigResolver<'_> {
    /// Resolves the section. `agents` are checked only if all of them could be read.
    pub(super) fn forge(&mut self, written: ForgeSection, agents: Option<&AgentsConfig>) -> ForgeConfig {
        let defaults = ForgeConfig::default();
        let seconds = |written: Option<u64>, default: Duration| written.map_or(default, Duration::from_secs);
        ForgeConfig {
            run_agent: self.run_agent(written.run_agent, agents).unwrap_or(defaults.run_agent),
            max_live_sessions: written.max_live_sessions.map_or(defaults.max_live_sessions, |most| most.0),
            max_processes: written.max_processes.map_or(defaults.max_processes, |most| most.0),
            session_ttl: seconds(written.session_ttl_secs.map(|span| span.0 as u64), defaults.session_ttl),
            session_hard_ttl: seconds(
                written.session_hard_ttl_secs.map(|span| span.0 as u64),
                defaults.session_hard_ttl,
            ),
            admin_token: self.admin_token(),
        }
    }

    fn run_agent(&mut self, written: Option<String>, agents: Option<&AgentsConfig>) -> Option<String> {
        let source = SettingSource { var: None, path: &["forge", "run_agent"] };
        let given = self.text(source, written)?;
        let name = AgentName::new(&given.value);
        let entry = agents.and_then(|agents| agents.entries.get(name.as_ref()?));
        // The default may be written down before there is such an agent.
        if given.value != DEFAULT_AGENT && agents.is_some() && entry.is_none() {
            let names: Vec<_> =
                agents.into_iter().flat_map(|agents| agents.entries.keys()).map(AgentName::as_str).collect();
            let hint = match closest(&given.value, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => "name one of `agents`".to_owned(),
            };
            self.errors
                .push(ConfigError::new(format!("{} names no agent{}", given.name, given.place)).hint(hint));
        }
        if entry.is_some_and(|entry| !entry.can_take_folder()) {
            let words = format!(
                "{} names an agent that cannot work in a folder of its own{}",
                given.name, given.place
            );
            self.errors.push(ConfigError::new(words).hint("name one of the kinds `acp` and `codex`"));
        }
        Some(given.value)
    }

    fn admin_token(&mut self) -> Option<Secret> {
        let setting = KeySetting {
            vars: Some((&env::TALARIA_ADMIN_TOKEN, &env::TALARIA_ADMIN_TOKEN_FILE)),
            path: &["forge"],
            form: SecretForm::Key,
        };
        let token = self.key(setting, None, None)?;
        if let Some(fault) = key_fault(token.expose()) {
            self.errors.push(
                ConfigError::new(format!("the admin token (`TALARIA_ADMIN_TOKEN`) {fault}"))
                    .hint("whoever guesses it can make tokens; make one with `openssl rand -hex 32`"),
            );
        }
        Some(token)
    }
}
