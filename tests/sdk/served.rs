//! The binary as an agent server, and programs that ask it.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::it::binary::{Ended, Process, Talaria};
use crate::it::upstream::Upstream;
use crate::parts::Client;

/// The owner's key.
pub const KEY: &str = "a-key-of-the-owner-that-is-long-enough";

/// A server that runs.
pub struct Served {
    address: String,
    process: Process,
    _talaria: Talaria,
}

impl Served {
    /// In front of a model, with more configuration.
    pub async fn before(model: &Upstream, config: &str) -> Self {
        let url = format!("{}/v1", model.url());
        Self::start(
            Talaria::new().var("OPENAI_BASE_URL", &url).var("OPENAI_MODEL", "scripted").config(config),
        )
        .await
    }

    /// As a relay to another agent server.
    pub async fn relay(upstream: &Upstream) -> Self {
        Self::start(Talaria::to(upstream)).await
    }

    async fn start(talaria: Talaria) -> Self {
        let talaria = talaria.args(["serve"]).var("API_SERVER_PORT", "0").var("API_SERVER_KEY", KEY);
        let mut process = talaria.starts_with(File::open("/dev/null").unwrap());
        Self { address: process.serves().await, process, _talaria: talaria }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts a program that is told where the server is.
    pub fn asked_by(&self, command: &mut Command) -> Process {
        command
            .env("OPENAI_BASE_URL", format!("{}/v1", self.address))
            .env("OPENAI_API_KEY", KEY)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Process::watch(command.spawn().unwrap())
    }

    /// A client plays a scene to its end, and is content.
    pub async fn content(&self, client: Client, scene: &str) {
        let ended = self.asked_by(&mut client.plays(scene)).ended().await;
        self.assert_well(&ended);
    }

    /// The program ended well.
    #[track_caller]
    pub fn assert_well(&self, ended: &Ended) {
        let Ended { code, out, err } = ended;
        assert_eq!(*code, 0, "{out}\n{err}\nthe server:\n{}", self.process.so_far());
    }
}
