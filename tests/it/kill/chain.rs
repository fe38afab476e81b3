//! Room, gateway, agent server and model in a row, all but the model real processes, and each of them dies.
//!
//! A random death kills the gateway, the server or both, or makes the model drop all its streams. The gateway must
//! get lost text back from the server. An answer that the server loses while a model works on it is lost, because a
//! model is asked only once; but the room must say so, once.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::life::{self, Life};
use super::trial::{History, MAX_TEXT, PATIENCE, Prompt, TRIALS, answer, settled};
use crate::support::agent_server::{AgentServer, Kind};
use crate::support::network::Network;
use crate::support::ports::free_port;

/// The key that both ends of the relay share.
const KEY: &str = "a key that both of them know";

/// The process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Gateway,
    Server,
    Both,
    /// The model keeps running, but all its streams break off.
    Model,
}

/// One death: after how long, and whose.
pub type Death = (Duration, Victim);

/// One trial of the whole chain.
#[derive(Clone, Debug)]
pub struct Chain {
    deaths: Vec<Death>,
    /// Safety mechanism of the gateway to switch off, for the checker's own test.
    without: Option<&'static str>,
    /// Whether the first death waits until the model works.
    at_work: bool,
}

impl Chain {
    pub fn new(deaths: Vec<Death>) -> Self {
        Self { deaths, without: None, at_work: false }
    }

    /// Makes the first death come so long after the model has begun to work, however slow the machine is.
    pub fn at_work(self) -> Self {
        Self { at_work: true, ..self }
    }

    /// Switches a safety mechanism off.
    pub fn without(self, mechanism: &'static str) -> Self {
        Self { without: Some(mechanism), ..self }
    }

    /// Number of deaths.
    pub fn deaths(&self) -> usize {
        self.deaths.len()
    }

    /// Runs the chain through all deaths.
    pub async fn run(&self) -> History {
        let _permit = TRIALS.acquire().await.expect("never closed");
        let pause = self.deaths.first().map_or(4, |(after, _)| 4 + after.as_millis() as u64 % 7);
        let model = AgentServer::listen(Kind::Plain, Duration::from_millis(pause), answer).await;
        let homes = Homes::new();
        let network = Network::listen(homes.gateway.path());
        let ends = Ends::new(self, &homes, &network, &model);
        let says = |room, text: &str, undisturbed| Prompt {
            event: network.says(room, text),
            room,
            text: text.to_owned(),
            undisturbed,
        };
        let asked = [("garden", "first"), ("cellar", "long"), ("garden", "second")];
        let mut prompts: Vec<_> = asked.iter().map(|(room, text)| says(*room, text, false)).collect();
        let (mut gateway, mut server) = (ends.gateway(), ends.server());
        if self.at_work {
            tokio::time::timeout(PATIENCE, model.works()).await.expect("the model should have been asked");
        }
        for (after, victim) in &self.deaths {
            // The moment should be random, so nothing else is awaited.
            tokio::time::sleep(*after).await;
            match victim {
                Victim::Gateway => {
                    gateway.kill().await;
                    gateway = ends.gateway();
                }
                Victim::Server => {
                    server.kill().await;
                    server = ends.server();
                }
                Victim::Both => {
                    tokio::join!(gateway.kill(), server.kill());
                    (gateway, server) = (ends.gateway(), ends.server());
                }
                Victim::Model => model.breaks_off(),
            }
        }
        settled(&network, &prompts, PATIENCE).await;
        prompts.extend([says("garden", "is all well?", true), says("cellar", "and here?", true)]);
        settled(&network, &prompts, PATIENCE).await;

        let behind = self.deaths.iter().filter(|(_, victim)| *victim != Victim::Gateway).count();
        let log = |home: &Path| std::fs::read_to_string(life::log(home)).unwrap_or_default();
        History {
            // If only the gateway dies, nothing may be missing.
            kind: if behind == 0 { Kind::Idempotent } else { Kind::Plain },
            deaths: behind,
            prompts,
            messages: network.messages(),
            executions: model.executions(),
            log: format!("{}\nthe server:\n{}", log(homes.gateway.path()), log(homes.server.path())),
        }
    }
}

/// The state folders, which outlive every process.
struct Homes {
    gateway: TempDir,
    server: TempDir,
}

impl Homes {
    fn new() -> Self {
        // Private, otherwise the gateway would refuse the log in it as another user's file.
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = || {
            tempfile::Builder::new().permissions(private.clone()).tempdir().expect("a folder for the state")
        };
        Self { gateway: folder(), server: folder() }
    }
}

/// How both processes are started.
struct Ends<'a> {
    homes: &'a Homes,
    gateway: Vec<(&'static str, String)>,
    server: Vec<(&'static str, String)>,
}

impl<'a> Ends<'a> {
    fn new(chain: &Chain, homes: &'a Homes, network: &Network, model: &AgentServer) -> Self {
        let config = format!(
            "platforms:\n  test:\n    socket: {}\n    pause_ms: 5\n    max_text: {MAX_TEXT}\n    \
             access: {{allow_all: true}}\n    limits: {{per_minute: 10000, per_hour: 100000}}\n",
            network.socket().display(),
        );
        std::fs::write(homes.gateway.path().join("talaria.yaml"), config).expect("the test's own folder");
        let port = free_port();
        let mut gateway = vec![
            ("GATEWAY_PROXY_URL", format!("http://127.0.0.1:{port}")),
            ("GATEWAY_PROXY_KEY", KEY.to_owned()),
        ];
        gateway.extend(chain.without.map(|mechanism| ("TALARIA_BROKEN", mechanism.to_owned())));
        let server = vec![
            ("API_SERVER_PORT", port.to_string()),
            ("API_SERVER_KEY", KEY.to_owned()),
            ("OPENAI_BASE_URL", format!("{}/v1", model.url())),
            ("OPENAI_MODEL", "small".to_owned()),
        ];
        Self { homes, gateway, server }
    }

    fn gateway(&self) -> Life {
        Life::begin(self.homes.gateway.path(), &self.gateway)
    }

    fn server(&self) -> Life {
        Life::begin_as(&["serve"], self.homes.server.path(), &self.server)
    }
}
