//! Changes the runtime of an agent, for the chat command and for the operator.
//!
//! A change is stored first and holds from the next turn on, also after a restart. The version of codex is asked once per
//! call, and only where it matters: switching off never looks for the program.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use talaria_platform::spawn_task;
use tokio::sync::Mutex;

use super::report::{FixedRuntime, RuntimeRefusal};
use crate::agents::codex::binary::{CodexBinary, CodexBinaryError, find_codex};
use crate::agents::codex::codex_environment;
use crate::agents::codex::enable::{EnableReport, EnableRequest, EnableSources, enable};
use crate::agents::codex::migration::MigrationMode;
use crate::agents::process::ProcessHost;
use crate::config::{AgentSettings, CodexConfig, Config, SwitchConfig};
use crate::ids::AgentName;
use crate::rules::{AgentRuntime, LiveRules};
use crate::store::{self, Store, Tx};

/// Shows and changes the runtimes of agents. One per process, behind an `Arc`.
pub struct RuntimeControl {
    store: Store,
    /// Holds the runtimes in force.
    live: Arc<LiveRules>,
    /// Replaced by a reload.
    table: RwLock<Arc<SwitchTable>>,
    /// Held during a change, so that of two changes the later one wins, in the store and in the rules.
    changing: Mutex<()>,
}

/// The settings that a change needs.
#[derive(Clone, Debug, Default)]
pub struct SwitchTable {
    /// The configured agents.
    pub agents: BTreeMap<AgentName, AgentSettings>,
    /// Settings of ours that codex is given.
    pub sources: EnableSources,
}

/// The runtime of an agent that can be switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeState {
    /// Name of the agent.
    pub agent: AgentName,
    /// The runtime of its next turn.
    pub runtime: AgentRuntime,
    /// The runtime that the configuration gives it.
    pub configured: AgentRuntime,
    /// Fewer people and programs may talk to it on codex than on its own runtime.
    pub narrows_access: bool,
}

/// A change that was made, or that there was no need for.
#[derive(Clone, Debug)]
pub struct RuntimeChange {
    /// The runtime before.
    pub before: AgentRuntime,
    /// The state after it.
    pub state: RuntimeState,
    /// Codex and the report about its configuration, if it was switched on.
    pub enabled: Option<(CodexBinary, EnableReport)>,
}

/// Decides in the transaction that stores a change whether it may be made.
pub type ChangePermit = Box<dyn FnOnce(&Tx<'_>) -> store::Result<bool> + Send>;

impl SwitchTable {
    /// The settings of a configuration. `host` starts codex where it is asked something.
    pub fn new(config: &Config, host: Option<Arc<ProcessHost>>) -> Self {
        Self { agents: config.agents.entries.clone(), sources: EnableSources::new(config, host) }
    }
}

impl RuntimeControl {
    /// A control for these agents. Runtimes that were chosen are read from the store by the caller; see
    /// [`LiveRules::load_overrides`].
    pub fn new(store: Store, live: Arc<LiveRules>, table: SwitchTable) -> Arc<Self> {
        Arc::new(Self { store, live, table: RwLock::new(Arc::new(table)), changing: Mutex::default() })
    }

    /// Uses the settings of another configuration from now on.
    pub fn replace(&self, config: &Config) {
        let mut table = self.table.write();
        *table = Arc::new(SwitchTable::new(config, table.sources.host.clone()));
    }

    /// The runtime of every agent, by name; or why it cannot be switched.
    pub fn states(&self) -> Vec<(AgentName, Result<RuntimeState, FixedRuntime>)> {
        self.table().agents.keys().map(|agent| (agent.clone(), self.state(agent))).collect()
    }

    /// The runtime of an agent, or why it cannot be switched.
    pub fn state(&self, agent: &AgentName) -> Result<RuntimeState, FixedRuntime> {
        let configured = self.switch_of(agent)?.runtime;
        let rules = &self.live.now().agents;
        let narrows_access =
            rules.by_name.get(agent).is_some_and(|policy| policy.access != policy.codex_access);
        Ok(RuntimeState { agent: agent.clone(), runtime: rules.runtime(agent), configured, narrows_access })
    }

    /// Finds the codex that an agent uses, or would use.
    pub async fn find_codex(&self, agent: &AgentName) -> Result<CodexBinary, CodexBinaryError> {
        let table = self.table();
        match table.agents.get(agent).and_then(AgentSettings::codex) {
            Some(codex) => found(codex).await,
            None => Err(CodexBinaryError::Missing { command: "codex".to_owned() }),
        }
    }

    /// Says what switching an agent to codex would write, and writes nothing.
    pub async fn dry_run(&self, agent: &AgentName) -> Result<(CodexBinary, EnableReport), RuntimeRefusal> {
        let codex = self.switch_of(agent)?.codex;
        let binary = found(&codex).await?;
        let sources = self.table().sources.clone();
        let mode = MigrationMode::DryRun;
        let report = enable(EnableRequest { codex, binary: binary.clone(), sources, mode }).await;
        Ok((binary, report))
    }

    /// Switches an agent to a runtime. `permit` is asked in the transaction that stores it. The change is carried out to
    /// its end even if the caller gives up.
    pub async fn change(
        self: &Arc<Self>,
        agent: &AgentName,
        to: AgentRuntime,
        permit: ChangePermit,
    ) -> Result<RuntimeChange, RuntimeRefusal> {
        let (control, agent) = (self.clone(), agent.clone());
        let changed =
            spawn_task("switch-runtime", async move { control.change_whole(agent, to, permit).await });
        changed.await.unwrap_or(Err(RuntimeRefusal::Broken))
    }

    async fn change_whole(
        &self,
        agent: AgentName,
        to: AgentRuntime,
        permit: ChangePermit,
    ) -> Result<RuntimeChange, RuntimeRefusal> {
        let _one = self.changing.lock().await;
        let SwitchConfig { runtime: configured, codex } = self.switch_of(&agent)?;
        let before = self.state(&agent)?;
        let binary = match to {
            AgentRuntime::Auto => None,
            AgentRuntime::CodexAppServer => Some(found(&codex).await?),
        };
        // A choice that is the configuration's own needs no override, and follows the configuration later.
        let stored = (to != configured).then_some(to);
        let name = agent.clone();
        let written = self.store.write(move |tx| {
            let permitted = permit(tx)?;
            if permitted {
                tx.set_runtime_override(&name, stored)?;
            }
            Ok(permitted)
        });
        match written.await {
            Ok(true) => {}
            Ok(false) => return Err(RuntimeRefusal::Busy),
            Err(error) => {
                tracing::error!(%error, %agent, "the runtime of an agent could not be stored");
                return Err(RuntimeRefusal::Store(error));
            }
        }
        let enabled = match binary {
            // Before the next turn: codex reads its configuration when it starts.
            Some(binary) => {
                let sources = self.table().sources.clone();
                let mode = MigrationMode::Write;
                let report = enable(EnableRequest { codex, binary: binary.clone(), sources, mode }).await;
                Some((binary, report))
            }
            None => None,
        };
        self.live.override_runtime(&agent, stored);
        tracing::info!(%agent, before = %before.runtime, runtime = %to, "the runtime of an agent was chosen");
        Ok(RuntimeChange { before: before.runtime, state: RuntimeState { runtime: to, ..before }, enabled })
    }

    /// The settings of an agent that can be switched.
    fn switch_of(&self, agent: &AgentName) -> Result<SwitchConfig, FixedRuntime> {
        let table = self.table();
        match table.agents.get(agent) {
            None => Err(FixedRuntime::NoAgent),
            Some(AgentSettings::Proxy(_)) => Err(FixedRuntime::Proxy),
            Some(AgentSettings::Codex(_)) => Err(FixedRuntime::Codex),
            Some(AgentSettings::Acp(_)) => Err(FixedRuntime::Acp),
            Some(AgentSettings::Model(model)) => model.switch.clone().ok_or(FixedRuntime::Private),
        }
    }

    fn table(&self) -> Arc<SwitchTable> {
        self.table.read().clone()
    }
}

/// The codex of these settings, in the environment that it gets.
async fn found(codex: &CodexConfig) -> Result<CodexBinary, CodexBinaryError> {
    find_codex(&codex.command, &codex_environment(codex)).await
}
