//! A gateway whose agent is an agent of kind `acp` with a scripted program behind it. On the real clock: processes see no
//! other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use talaria::agent::AgentTable;
use talaria::agents::AgentServices;
use talaria::agents::acp::{AcpAgent, AcpTimes};
use talaria::agents::process::count_children;
use talaria::config::AcpConfig;
use talaria::ids::AgentName;
use talaria_platform::ShowMode;
use tempfile::TempDir;

use super::scripted_agent::{Script, ScriptedAgent};
use crate::support::gateway::{AgentBuilder, Setup, TestGateway};
use crate::support::room::Room;
use crate::support::served::{Served, settings};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(40);

/// A room, a gateway, and an agent.
pub struct AcpScene {
    pub agent: ScriptedAgent,
    pub gateway: TestGateway,
    /// Holds the folders of the sessions.
    workspace: TempDir,
}

impl AcpScene {
    pub async fn with(script: Script) -> Self {
        Self::as_set(script, |_, _| {}).await
    }

    /// With a change of the agent's configuration and of its time limits.
    pub async fn as_set(script: Script, change: impl FnOnce(&mut AcpConfig, &mut AcpTimes)) -> Self {
        Self::of(script, Setup::default(), change).await
    }

    pub async fn of(
        script: Script,
        setup: Setup,
        change: impl FnOnce(&mut AcpConfig, &mut AcpTimes),
    ) -> Self {
        let agent = ScriptedAgent::new(&script);
        let workspace = tempfile::tempdir().unwrap();
        let command = agent.command().display().to_string();
        let mut config = AcpConfig::new(command, workspace.path().to_owned());
        let mut times = AcpTimes::default();
        change(&mut config, &mut times);
        let build: AgentBuilder = Arc::new(move |services: &AgentServices| {
            let agent = AcpAgent::with_times(config.clone(), times, services);
            AgentTable::new(AgentName::proxy(), Arc::new(agent))
        });
        // Every change is shown at once.
        let show = ShowMode::Edit { pause: Duration::from_millis(1) };
        let gateway = TestGateway::with(Setup { build: Some(build), show, ..setup }).await;
        Self { agent, gateway, workspace }
    }

    /// A server over HTTP in front of the same agent.
    pub async fn served(self) -> (Served, ScriptedAgent, TempDir) {
        (Served::of(self.gateway, settings()).await, self.agent, self.workspace)
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
        self.shows_in(&self.room(), words).await;
    }

    /// Waits until a room shows this, and its answer is complete.
    pub async fn shows_in(&self, room: &Room, words: &str) {
        self.comes_to(words, || {
            let shown = room.now();
            shown.contains(words) && !shown.contains("bot…")
        })
        .await;
    }

    /// The only folder of a session.
    pub fn session_folder(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.workspace.path()).unwrap();
        folders.next().expect("a session has a folder").unwrap().path()
    }

    /// Waits until this holds.
    pub async fn comes_to(&self, what: &str, holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("it never came to that: {what}\n{}\n{}", self.room().now(), self.agent.history());
        }
    }

    /// Waits until the agent has received so many messages with this method.
    pub async fn receives(&self, method: &str, count: usize) {
        self.comes_to(method, || self.agent.received(method).len() >= count).await;
    }

    /// Number of processes of ours that run, with their shims.
    pub fn children(&self) -> usize {
        count_children(self.gateway.home())
    }

    /// Ends the gateway; afterwards no process is left.
    pub async fn ends(mut self) {
        let home = self.gateway.home().to_owned();
        self.gateway.drain().await;
        assert_eq!(count_children(&home), 0, "no process is left");
    }
}
