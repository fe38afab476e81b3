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
use crate::agents::codex::enable::{EnableReport, EnableSources, SharedCodexHome};
use crate::agents::codex::migration::{MigratedAgent, MigrationMode};
use crate::agents::codex::{CodexServers, codex_environment};
use crate::agents::process::ProcessHost;
use crate::config::{AgentSettings, CodexConfig, Config};
use crate::ids::AgentName;
use crate::rules::{AgentRuntime, LiveRules};
use crate::store::{self, Store, Tx};
use crate::testing::failpoint;

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

/// The runtime of an agent whose turns codex can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeState {
    /// Name of the agent.
    pub agent: AgentName,
    /// The runtime of its next turn.
    pub runtime: AgentRuntime,
    /// The runtime that the configuration gives it.
    pub configured: AgentRuntime,
    /// Whether it has another runtime too. Not so for an agent of kind `codex`.
    pub is_switchable: bool,
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

/// Decides in the transaction that stores a change whether it may be made. Also asked in one that is undone.
pub type ChangePermit = Arc<dyn Fn(&Tx<'_>) -> store::Result<bool> + Send + Sync>;

/// A choice for the store.
#[derive(Clone)]
struct StoredChoice {
    agent: AgentName,
    /// `None` for no choice.
    runtime: Option<AgentRuntime>,
    permit: ChangePermit,
}

/// Whether a choice stays in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// It does not: only a refusal or a failure counts.
    Trial,
    /// It does.
    Commit,
}

impl SwitchTable {
    /// The settings of a configuration. `host` starts codex where it is asked something.
    pub fn new(config: &Config, host: Option<Arc<ProcessHost>>) -> Self {
        Self { agents: config.agents.entries.clone(), sources: EnableSources::new(config, host) }
    }

    /// These codex processes read their configuration again once it is written.
    pub fn reloading(mut self, running: Option<Arc<CodexServers>>) -> Self {
        self.sources.running = running;
        self
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
        let EnableSources { host, running, .. } = &table.sources;
        *table = Arc::new(SwitchTable::new(config, host.clone()).reloading(running.clone()));
    }

    /// The runtime of every agent, by name; or why codex cannot run its turns.
    pub fn states(&self) -> Vec<(AgentName, Result<RuntimeState, FixedRuntime>)> {
        self.table().agents.keys().map(|agent| (agent.clone(), self.state(agent))).collect()
    }

    /// The runtime of an agent, or why codex cannot run its turns.
    pub fn state(&self, agent: &AgentName) -> Result<RuntimeState, FixedRuntime> {
        let table = self.table();
        let agent = agent.clone();
        let configured = match table.agents.get(&agent) {
            None => return Err(FixedRuntime::NoAgent),
            Some(AgentSettings::Proxy(_)) => return Err(FixedRuntime::Proxy),
            Some(AgentSettings::Acp(_)) => return Err(FixedRuntime::Acp),
            Some(AgentSettings::Codex(_)) => {
                let runtime = AgentRuntime::CodexAppServer;
                let (configured, is_switchable, narrows_access) = (runtime, false, false);
                return Ok(RuntimeState { agent, runtime, configured, is_switchable, narrows_access });
            }
            Some(AgentSettings::Model(model)) => model.switch.as_ref().ok_or(FixedRuntime::Private)?.runtime,
        };
        let rules = &self.live.now().agents;
        let narrows_access =
            rules.by_name.get(&agent).is_some_and(|policy| policy.access != policy.codex_access);
        let runtime = rules.runtime(&agent);
        Ok(RuntimeState { agent, runtime, configured, is_switchable: true, narrows_access })
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
        self.state(agent)?;
        let file = self.codex_file(agent)?;
        let binary = found(&file.agent.codex).await?;
        let report = file.enable(&binary, MigrationMode::DryRun).await;
        Ok((binary, report))
    }

    /// Whether codex runs the turns of an agent and has nothing of ours in its configuration, although there is
    /// something for it. An agent of kind `codex` that opts out of our tools server need not have anything.
    pub async fn is_unmigrated(&self, agent: &AgentName) -> bool {
        let (Ok(state), Ok(file)) = (self.state(agent), self.codex_file(agent)) else { return false };
        let wants_ours = state.is_switchable || file.agent.codex.tools_server;
        state.runtime == AgentRuntime::CodexAppServer && wants_ours && file.is_unmigrated().await
    }

    /// Switches an agent to a runtime. `permit` is asked in the transaction that stores it, and before anything is
    /// written. The change is carried out to its end even if the caller gives up. An agent of kind `codex` has no other
    /// runtime: switching it on brings codex' configuration up to date and stores nothing.
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
        let before = match (self.state(&agent), to) {
            (Ok(state), AgentRuntime::CodexAppServer) => state,
            (Ok(state), AgentRuntime::Auto) if state.is_switchable => state,
            (state, AgentRuntime::Auto) => {
                self.forget_choice(&agent, permit).await?;
                return Err(state.err().unwrap_or(FixedRuntime::Codex).into());
            }
            (Err(why), AgentRuntime::CodexAppServer) => return Err(why.into()),
        };
        // A choice that is the configuration's own needs no override, and follows the configuration later.
        let choice = StoredChoice {
            agent: agent.clone(),
            runtime: (to != before.configured).then_some(to),
            permit: permit.clone(),
        };
        let enabled = match to {
            AgentRuntime::Auto => None,
            AgentRuntime::CodexAppServer => {
                let file = self.codex_file(&agent)?;
                let binary = found(&file.agent.codex).await?;
                if before.is_switchable {
                    self.write(&choice, WriteMode::Trial).await?;
                }
                // Before the choice is stored, so that no death in between leaves an agent on codex without this. To
                // write it again is harmless.
                let report = file.enable(&binary, MigrationMode::Write).await;
                failpoint("runtime.migrated");
                Some((binary, report))
            }
        };
        if before.is_switchable {
            self.write(&choice, WriteMode::Commit).await?;
            failpoint("runtime.stored");
            self.live.override_runtime(&agent, choice.runtime);
            tracing::info!(%agent, before = %before.runtime, runtime = %to, "the runtime of an agent was chosen");
        }
        Ok(RuntimeChange { before: before.runtime, state: RuntimeState { runtime: to, ..before }, enabled })
    }

    /// Forgets a choice from a time when the agent could be switched, if there is one.
    async fn forget_choice(&self, agent: &AgentName, permit: ChangePermit) -> Result<(), RuntimeRefusal> {
        if self.live.now().agents.overrides.contains_key(agent) {
            let choice = StoredChoice { agent: agent.clone(), runtime: None, permit };
            self.write(&choice, WriteMode::Commit).await?;
            self.live.override_runtime(agent, None);
        }
        Ok(())
    }

    /// Stores a choice, or tries whether that would be possible.
    async fn write(&self, choice: &StoredChoice, mode: WriteMode) -> Result<(), RuntimeRefusal> {
        let StoredChoice { agent, runtime, permit } = choice.clone();
        let store = move |tx: &Tx<'_>| {
            let is_permitted = permit(tx)?;
            if is_permitted {
                tx.set_runtime_override(&agent, runtime)?;
            }
            Ok(is_permitted)
        };
        let written = self.store.write(move |tx| match mode {
            WriteMode::Trial => tx.undone(store),
            WriteMode::Commit => store(tx),
        });
        match written.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(RuntimeRefusal::Busy),
            Err(error) => {
                tracing::error!(%error, agent = %choice.agent, "the runtime of an agent could not be stored");
                Err(RuntimeRefusal::Store(error))
            }
        }
    }

    /// The configuration file of the codex of an agent, with the agents on codex that share it.
    fn codex_file(&self, agent: &AgentName) -> Result<SharedCodexHome, FixedRuntime> {
        let table = self.table();
        let settings = table.agents.get(agent).ok_or(FixedRuntime::NoAgent)?;
        let migrated = MigratedAgent::of(agent, settings).ok_or(FixedRuntime::Proxy)?;
        let rules = &self.live.now().agents;
        let others = table.agents.iter().filter_map(|(name, settings)| MigratedAgent::of(name, settings));
        let on_codex = others
            .filter(|other| !other.is_switched || rules.runtime(&other.name) == AgentRuntime::CodexAppServer);
        Ok(SharedCodexHome::new(migrated, on_codex, table.sources.clone()))
    }

    fn table(&self) -> Arc<SwitchTable> {
        self.table.read().clone()
    }
}

/// The codex of these settings, in the environment that it gets.
async fn found(codex: &CodexConfig) -> Result<CodexBinary, CodexBinaryError> {
    find_codex(&codex.command, &codex_environment(codex)).await
}
