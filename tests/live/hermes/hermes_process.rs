//! A hermes-agent process with a home of its own. Dropping it ends the process.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::it::binary::Process;
use crate::it::ports;
use crate::scripted_model::ScriptedModel;

/// The key of its API server. hermes-agent refuses short ones.
pub const KEY: &str = "the-key-of-the-hermes-under-test";

/// Longest wait for a start, which takes three seconds on an idle machine. Only an overloaded machine needs this
/// long.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct HermesProcess {
    home: TempDir,
    port: u16,
    vars: Vec<(&'static str, String)>,
    process: Option<Process>,
}

impl HermesProcess {
    /// An API server that uses this model. Not started yet.
    pub fn with_api_server(model: &ScriptedModel) -> Self {
        let port = ports::free_port();
        let vars = vec![
            ("API_SERVER_ENABLED", "true".to_owned()),
            ("API_SERVER_KEY", KEY.to_owned()),
            ("API_SERVER_HOST", "127.0.0.1".to_owned()),
            ("API_SERVER_PORT", port.to_string()),
        ];
        let hermes = Self { home: tempfile::tempdir().unwrap(), port, vars, process: None };
        // JSON is YAML.
        let config = serde_json::json!({
            "model": {
                "default": "scripted", "provider": "custom", "base_url": model.url(), "api_key": "none",
                "context_length": 128_000,
            },
        });
        std::fs::write(hermes.home.path().join("config.yaml"), config.to_string()).unwrap();
        hermes
    }

    /// A gateway between an IRC server and this agent server. Not started yet.
    pub fn in_proxy_mode(irc: u16, url: &str, key: &str) -> Self {
        let vars = vec![
            ("GATEWAY_PROXY_URL", url.to_owned()),
            ("GATEWAY_PROXY_KEY", key.to_owned()),
            ("GATEWAY_ALLOW_ALL_USERS", "true".to_owned()),
            ("IRC_ALLOW_ALL_USERS", "true".to_owned()),
            ("IRC_SERVER", "127.0.0.1".to_owned()),
            ("IRC_PORT", irc.to_string()),
            ("IRC_NICKNAME", "hermes".to_owned()),
            ("IRC_CHANNEL", "#room".to_owned()),
            ("IRC_USE_TLS", "false".to_owned()),
        ];
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.yaml"), "{}").unwrap();
        Self { home, port: 0, vars, process: None }
    }

    /// Address of its API server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Value for `GATEWAY_PROXY_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Starts it, without waiting for anything.
    pub fn starts(&mut self) -> &mut Self {
        let program = cache().join("hermes/bin/hermes");
        assert!(program.exists(), "{} is not there; run tests/live/parts once", program.display());
        let child = Command::new(program)
            .args(["gateway", "run"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("HERMES_HOME", self.home.path())
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.process = Some(Process::watch(child));
        self
    }

    /// Waits until its API server answers.
    pub async fn is_healthy(&self) {
        let healthy = async {
            while !self.answers().await.unwrap_or_default() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let healthy = tokio::time::timeout(PATIENCE, healthy).await;
        assert!(healthy.is_ok(), "hermes-agent should have started\n{}", self.so_far());
    }

    async fn answers(&self) -> std::io::Result<bool> {
        Ok(self.tells("/health").await?.starts_with("HTTP/1.1 200"))
    }

    /// The response to a small request, with its head.
    async fn tells(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address()).await?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Kills it, as `kill -9` does.
    pub async fn dies(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal(Signal::KILL);
        process.dies().await;
    }

    /// Waits until no run is under way there.
    pub async fn runs_nothing(&self) {
        let idle = async {
            while !self.tells("/health/detailed").await.unwrap_or_default().contains("\"active_api_runs\": 0")
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let idle = tokio::time::timeout(PATIENCE, idle).await;
        assert!(idle.is_ok(), "hermes-agent should have ended its runs\n{}", self.so_far());
    }

    /// Its output so far.
    pub fn so_far(&self) -> String {
        self.process.as_ref().map(Process::so_far).unwrap_or_default()
    }
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("a home folder").join("talaria-tests")
}
