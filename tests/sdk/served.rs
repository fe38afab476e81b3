//! The binary as an agent server, and programs that use it.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::it::binary::{Ended, Process, Talaria};
use crate::it::upstream::Upstream;
use crate::parts::{Api, Client};

/// The owner's key.
pub const KEY: &str = "a-key-of-the-owner-that-is-long-enough";

/// Longest wait: some clients take long to start, especially on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// A running server.
pub struct Served {
    address: String,
    process: Process,
    _talaria: Talaria,
}

impl Served {
    /// A server in front of a model, with this configuration.
    pub async fn before(model: &Upstream, config: &str) -> Self {
        Self::start(talaria_before(&model.url()).config(config)).await
    }

    /// A server in front of a model at this address.
    pub async fn before_url(url: &str) -> Self {
        Self::start(talaria_before(url)).await
    }

    /// A server in front of a model, which sends a keepalive comment in silent streams this often.
    pub async fn with_keepalive(model: &Upstream, interval: Duration) -> Self {
        let millis = interval.as_millis().to_string();
        Self::start(talaria_before(&model.url()).var("TALARIA_KEEPALIVE_MS", &millis)).await
    }

    /// A relay to another agent server.
    pub async fn relay(upstream: &Upstream) -> Self {
        Self::start(Talaria::to(upstream)).await
    }

    async fn start(talaria: Talaria) -> Self {
        let talaria = talaria.args(["serve"]).var("API_SERVER_PORT", "0").var("API_SERVER_KEY", KEY);
        let mut process = talaria.starts_with(File::open("/dev/null").unwrap());
        Self { address: process.serves().await, process, _talaria: talaria }
    }

    /// The server's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts a program that gets the server's address.
    pub fn asked_by(&self, command: &mut Command) -> Process {
        self.asked_at(&self.address, command)
    }

    /// Starts a program that gets this address for the server.
    pub fn asked_at(&self, address: &str, command: &mut Command) -> Process {
        command
            .env("OPENAI_BASE_URL", format!("{address}/v1"))
            .env("OPENAI_API_KEY", KEY)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Process::watch(command.spawn().unwrap())
    }

    /// A client plays a scene to its end; it must succeed.
    pub async fn content(&self, client: Client, scene: &str) {
        let ended = self.asked_by(&mut client.plays(scene)).ended().await;
        self.assert_well(&ended);
    }

    /// A client plays one of the common scenes to its end; it must succeed.
    pub async fn content_with(&self, client: Client, api: Api, scene: &str) {
        let ended = self.asked_by(&mut client.plays_with(api, scene)).ended_within(PATIENCE).await;
        self.assert_well(&ended);
    }

    /// Checks that the program succeeded.
    #[track_caller]
    pub fn assert_well(&self, ended: &Ended) {
        let Ended { code, out, err } = ended;
        assert_eq!(*code, 0, "{out}\n{err}\nthe server:\n{}", self.process.so_far());
    }
}

/// A server in front of a model at this address.
fn talaria_before(url: &str) -> Talaria {
    Talaria::new().var("OPENAI_BASE_URL", &format!("{url}/v1")).var("OPENAI_MODEL", "scripted")
}
