//! One agent, its provider, and its turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use talaria::agent::{Agent as _, AgentTurn, AskChoice};
use talaria::agents::AgentServices;
use talaria::agents::acp::AcpAgent;
use talaria::agents::acp::pool::AcpPool;
use talaria::agents::process::{ProcessHost, count_children};
use talaria::config::{AcpConfig, Config, ConfigSources};
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria::store::Store;
use talaria_platform::CancellationToken;
use tempfile::TempDir;

use crate::it::upstream::Upstream;
use crate::provider;
use crate::real_agents::RealAgent;
use crate::recorder::{EndedTurn, Recorder};

/// Longest turn. The first one of some agents takes twenty seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Scene {
    model: Upstream,
    home: TempDir,
    config: AcpConfig,
    pool: Arc<AcpPool>,
    agent: AcpAgent,
    /// The last report about the session.
    report: Option<Value>,
}

impl Scene {
    pub async fn new(agent: RealAgent) -> Self {
        let model = Upstream::plain().await;
        model.answers_by(provider::responder);
        // Not in the system's temporary folder: codex does not put its own links there.
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let config = agent.config(home.path(), &model.url());
        std::fs::create_dir_all(home.path().join("session")).unwrap();
        let host = ProcessHost::new(home.path()).with_shim(env!("CARGO_BIN_EXE_talaria"));
        let pool = AcpPool::new(Arc::new(host), 2);
        let agent = built(&config, &pool);
        Self { model, home, config, pool, agent, report: None }
    }

    /// The folder in which the agent works.
    pub fn folder(&self) -> PathBuf {
        self.home.path().join("session")
    }

    /// A turn in which every ask is allowed.
    pub async fn asks(&mut self, prompt: &str) -> EndedTurn {
        self.asks_with(prompt, None).await
    }

    /// A turn in which every ask gets this answer; `None` allows it once.
    pub async fn asks_with(&mut self, prompt: &str, choice: Option<AskChoice>) -> EndedTurn {
        self.turn(prompt, choice, false).await
    }

    /// A turn that is stopped once it has said something.
    pub async fn is_stopped_in(&mut self, prompt: &str) -> EndedTurn {
        self.turn(prompt, None, true).await
    }

    async fn turn(&mut self, prompt: &str, choice: Option<AskChoice>, is_stopped: bool) -> EndedTurn {
        let name = AgentName::new("real").unwrap();
        let turn = AgentTurn {
            prompt: prompt.to_owned(),
            wants_raw: true,
            folder: Some(self.folder()),
            upstream: self.report.clone(),
            ..AgentTurn::new(TurnId("t".into()), name, SessionId("s".into()))
        };
        let (recorder, stop) = (Recorder::new(choice), CancellationToken::new());
        let prepared = self.agent.prepare(&turn).await.unwrap();
        let running = self.agent.run_turn(&turn, prepared, &recorder, stop.clone());
        let stopping = async {
            if is_stopped {
                recorder.speaks().await;
                stop.cancel();
            }
        };
        let both = async { tokio::join!(running, stopping).0 };
        let end = tokio::time::timeout(PATIENCE, both).await.expect("the turn ends");
        self.report = recorder.report().or(self.report.take());
        EndedTurn { end, recorder }
    }

    /// Builds the agent anew, as a reload does. The process of the earlier one is still about to end.
    pub fn is_reloaded(&mut self) {
        self.agent = built(&self.config, &self.pool);
    }

    /// Whether the last prompt to the model had these words in it.
    pub fn was_told(&self, words: &str) -> bool {
        self.model.prompts().iter().rev().take(3).any(|prompt| prompt.json().to_string().contains(words))
    }

    /// Ends everything; afterwards no process is left.
    pub async fn ends(self) {
        let Self { home, pool, agent, .. } = self;
        drop(agent);
        pool.end().await;
        assert_eq!(count_children(home.path()), 0, "no process is left");
    }
}

fn built(config: &AcpConfig, pool: &Arc<AcpPool>) -> AcpAgent {
    AcpAgent::new(config.clone(), &AgentServices { acp: pool.clone(), ..services() })
}

/// The shared parts of agents without any configuration.
fn services() -> AgentServices {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = folder.path();
    let sources = ConfigSources { config: None, folder: path.to_owned(), serve: false };
    let home = path.display().to_string();
    let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
    let (store, _threads) = Store::open(&path.join("talaria.db")).unwrap();
    AgentServices::new(&config, store)
}
