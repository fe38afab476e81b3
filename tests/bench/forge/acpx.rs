//! The command line `acpx` from npm, which runs one turn of an agent for each of its invocations, and keeps the agent for the
//! next one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use talaria::config::AcpConfig;
use tempfile::TempDir;

use super::{ANSWER, PROMPT};

/// Name of the conversation.
const NAME: &str = "bench";

/// Seconds that it keeps the agent without a turn: more than the time between two measurements.
const KEPT: &str = "120";

/// A conversation with an agent. Dropping it ends the agent.
pub struct Acpx {
    programs: PathBuf,
    /// The agent with its arguments, in one string.
    agent: String,
    variables: Vec<(String, String)>,
    folder: TempDir,
}

impl Acpx {
    /// Begins a conversation with the agent.
    pub fn begin(config: &AcpConfig) -> anyhow::Result<Self> {
        let programs = programs()?;
        let words = std::iter::once(&config.command).chain(&config.args);
        let agent: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
        let variables = config.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let (agent, variables) = (agent.join(" "), variables.collect());
        let acpx = Self { programs, agent, variables, folder: crate::scratch()? };
        acpx.run(&["sessions", "new", "--name", NAME])?;
        Ok(acpx)
    }

    /// One turn of the conversation: one invocation, as scripts have it.
    pub fn turn(&self) -> anyhow::Result<()> {
        let said = self.run(&["prompt", "-s", NAME, PROMPT])?;
        anyhow::ensure!(said.contains(ANSWER), "acpx said: {said}");
        Ok(())
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(self.programs.join("node"))
            .arg(self.programs.join("acpx"))
            .args(["--agent", &self.agent, "--format", "quiet", "--ttl", KEPT, "--cwd"])
            .arg(self.folder.path())
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "acpx {}: {said}{errors}", words.join(" "));
        Ok(said)
    }
}

impl Drop for Acpx {
    fn drop(&mut self) {
        let _ = self.run(&["sessions", "close", NAME]);
    }
}

/// The folder of the programs that `tests/bench/parts` installs.
fn programs() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).context("no home folder")?;
    let programs = cache.join("talaria-tests/bench-acpx/node_modules/.bin");
    anyhow::ensure!(programs.exists(), "acpx is not there; run tests/bench/parts once");
    Ok(programs)
}
