//! A gateway whose agent is a codex agent with a scripted codex behind it. On the real clock: processes see no other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use talaria::agent::AgentTable;
use talaria::agents::AgentServices;
use talaria::agents::codex::{CodexAgent, CodexServers};
use talaria::agents::process::count_children;
use talaria::config::CodexConfig;
use talaria::ids::{AgentName, SessionId};
use talaria_platform::ShowMode;
use tempfile::TempDir;

use super::scripted_peer::{Scenario, ScriptedCodex};
use crate::support::gateway::{AgentBuilder, Setup, TestGateway};
use crate::support::room::Room;
use crate::support::served::{Served, settings};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(40);

/// Makes the agents anew, as a reload does.
type Rebuild = Box<dyn Fn() -> AgentTable + Send>;

/// A room, a gateway, and codex.
pub struct CodexScene {
    pub codex: ScriptedCodex,
    pub gateway: TestGateway,
    /// The codex processes of the gateway.
    servers: Arc<Mutex<Option<Arc<CodexServers>>>>,
    /// Makes the agents anew.
    rebuild: Arc<Mutex<Option<Rebuild>>>,
    /// Holds the folders of the sessions.
    workspace: TempDir,
}

/// The same parts once more.
fn shared(services: &AgentServices) -> AgentServices {
    let AgentServices { store, host, mcp, codex, acp, skills, terminal, hidden, command_slots } = services;
    AgentServices {
        store: store.clone(),
        host: host.clone(),
        mcp: mcp.clone(),
        codex: codex.clone(),
        acp: acp.clone(),
        skills: skills.clone(),
        terminal: terminal.clone(),
        hidden: hidden.clone(),
        command_slots: command_slots.clone(),
    }
}

impl CodexScene {
    pub async fn with(scenario: Scenario) -> Self {
        Self::as_set(scenario, |_| {}).await
    }

    /// With a change of the agent's configuration.
    pub async fn as_set(scenario: Scenario, change: impl FnOnce(&mut CodexConfig)) -> Self {
        Self::of(scenario, Setup::default(), change).await
    }

    pub async fn of(scenario: Scenario, setup: Setup, change: impl FnOnce(&mut CodexConfig)) -> Self {
        Self::built(scenario, setup, change, false).await
    }

    /// One that [reloads](Self::reloads). Its gateway cannot be restarted: the parts of the first one stay.
    pub async fn reloadable(scenario: Scenario) -> Self {
        Self::built(scenario, Setup::default(), |_| {}, true).await
    }

    async fn built(
        scenario: Scenario,
        setup: Setup,
        change: impl FnOnce(&mut CodexConfig),
        reloads: bool,
    ) -> Self {
        let codex = ScriptedCodex::new(&scenario);
        let workspace = tempfile::tempdir().unwrap();
        let mut config = CodexConfig::new(workspace.path().to_owned());
        config.command = codex.command().display().to_string();
        change(&mut config);
        let servers = Arc::new(Mutex::new(None));
        let known = servers.clone();
        let rebuild = Arc::new(Mutex::new(None));
        let again = rebuild.clone();
        let build: AgentBuilder = Arc::new(move |services: &AgentServices| {
            *known.lock() = Some(services.codex.clone());
            let table = |services: &AgentServices, config: &CodexConfig| {
                let agent = CodexAgent::new(config.clone(), services);
                AgentTable::new(AgentName::proxy(), Arc::new(agent))
            };
            if reloads {
                let (shared, config) = (shared(services), config.clone());
                *again.lock() = Some(Box::new(move || table(&shared, &config)) as Rebuild);
            }
            table(services, &config)
        });
        // Every change is shown at once.
        let show = ShowMode::Edit { pause: Duration::from_millis(1) };
        let gateway = TestGateway::with(Setup { build: Some(build), show, ..setup }).await;
        Self { codex, gateway, servers, rebuild, workspace }
    }

    /// Registers a new agent in place of the one there is, as a reload with another entry does.
    pub fn reloads(&self) {
        let rebuild = self.rebuild.lock();
        self.gateway.has_agents(rebuild.as_ref().expect("a scene that reloads")());
    }

    /// A server over HTTP in front of the same agent.
    pub async fn served(self) -> (Served, ScriptedCodex, TempDir) {
        (Served::of(self.gateway, settings()).await, self.codex, self.workspace)
    }

    /// The codex processes of the gateway that runs.
    pub fn servers(&self) -> Arc<CodexServers> {
        self.servers.lock().clone().expect("the gateway runs")
    }

    pub fn room(&self) -> Room {
        self.gateway.room()
    }

    /// Ann asks, and the room comes to show this.
    pub async fn asks(&self, question: &str, answer: &str) {
        self.room().says("@ann", question).await;
        self.shows(answer).await;
    }

    /// Waits until the room shows this, and its answer is complete.
    pub async fn shows(&self, words: &str) {
        self.comes_to(words, || {
            let room = self.room().now();
            room.contains(words) && !room.contains("bot…")
        })
        .await;
    }

    /// The only folder of a session.
    pub fn session_folder(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.workspace.path()).unwrap();
        folders.next().expect("a session has a folder").unwrap().path()
    }

    /// The last report of the agent about the only session.
    pub async fn report(&self) -> Option<Value> {
        let name = self.session_folder().file_name().unwrap().to_str().unwrap().to_owned();
        let read = self
            .gateway
            .store()
            .read(move |tx| tx.agent_session(&SessionId(name.clone()), &AgentName::proxy()));
        read.await.unwrap().upstream
    }

    /// Waits until this holds.
    pub async fn comes_to(&self, what: &str, holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("it never came to that: {what}\n{}\n{}", self.room().now(), self.codex.history());
        }
    }

    /// Waits until codex has received so many messages with this method.
    pub async fn receives(&self, method: &str, count: usize) {
        self.comes_to(method, || self.codex.received(method).len() >= count).await;
    }

    /// Number of processes of ours that run, with their shims.
    pub fn children(&self) -> usize {
        count_children(self.gateway.home())
    }

    /// Ends the gateway; afterwards no process is left.
    pub async fn ends(mut self) {
        let home = self.gateway.home().to_owned();
        // The gateway waits until nobody has its store.
        *self.rebuild.lock() = None;
        self.gateway.drain().await;
        assert_eq!(count_children(&home), 0, "no process is left");
    }
}
