//! The real program as a server, for gates that ask it over HTTP.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, Method, RequestBuilder};
use tempfile::TempDir;

/// The owner's key.
const OWNER: &str = "a-key-of-the-owner-that-is-long-enough";

/// Longest time of a request. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running program. Dropping it ends it.
pub struct ServedProgram {
    process: Child,
    address: String,
    client: Client,
    _state: TempDir,
}

impl ServedProgram {
    /// Starts it with this configuration. `home` is the home folder of the agents that it starts.
    pub fn start(config: &str, home: &Path) -> anyhow::Result<Self> {
        let state = crate::scratch()?;
        let file = state.path().join("talaria.yaml");
        std::fs::write(&file, config)?;
        // It may hold keys.
        std::fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_talaria"))
            .arg("serve")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .env("TALARIA_HOME", state.path())
            .env("API_SERVER_PORT", "0")
            .env("API_SERVER_KEY", OWNER)
            .current_dir(state.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(process.stderr.take().context("no pipe")?).lines();
        let address = |line: &String| {
            line.split_whitespace()
                .find_map(|word| Some(word.strip_prefix("address=")?.trim_matches('"').to_owned()))
        };
        let mut said = Vec::new();
        let address = log.by_ref().map_while(Result::ok).find_map(|line| {
            let found = address(&line);
            said.push(line);
            found
        });
        // The rest of the log is read, so that the program can write it.
        std::thread::spawn(move || log.for_each(drop));
        let client = Client::builder().no_proxy().build()?;
        // Made before the address is looked at, so that the process ends in any case.
        let program = Self { process, address: address.clone().unwrap_or_default(), client, _state: state };
        address.with_context(|| format!("it does not serve: {said:?}"))?;
        Ok(program)
    }

    /// A request with the owner's key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.address));
        request.header(AUTHORIZATION, format!("Bearer {OWNER}")).timeout(PATIENCE)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for ServedProgram {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
