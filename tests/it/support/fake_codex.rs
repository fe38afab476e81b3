//! A `codex` that only tells its version and whether it has a login, and the folder of its configuration. It counts how often it is started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use talaria::agents::codex::enable::EnableSources;
use talaria::agents::runtime_switch::SwitchTable;
use talaria::config::{AgentSettings, Config, ConfigSources};
use tempfile::TempDir;

/// Agents: `local` can be switched, `own` has a private server, `proxy` is a remote agent server.
const AGENTS: &str = "default_agent: local
gateway: {proxy_url: 'http://127.0.0.1:1'}
agents:
  local: {kind: model, model: gpt-5, base_url: 'http://127.0.0.1:1/v1', runtime: auto}
  own: {kind: model, model: llama, base_url: 'http://127.0.0.1:1/v1'}
  coder: {kind: codex}
mcp_servers:
  time: {command: mcp-time}
";

/// The answer of `codex app-server` to `plugin/list`.
const PLUGINS: &str = r#"{"marketplaces":[{"name":"openai-curated","plugins":[{"name":"calendar","installed":true,"enabled":true}]},{"name":"mine","plugins":[{"name":"own","installed":true,"enabled":true}]}]}"#;

/// A fake codex in a folder of its own.
pub struct FakeCodex {
    folder: TempDir,
}

impl FakeCodex {
    /// A codex of this version.
    pub fn new(version: &str) -> Self {
        let codex = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(codex.home()).unwrap();
        fs::create_dir_all(codex.path()).unwrap();
        codex.is_installed(version);
        codex
    }

    /// Installs a codex of this version in place of the one that is there.
    pub fn is_installed(&self, version: &str) {
        let runs = self.folder.path().join("runs");
        let script = format!(
            r#"#!/bin/sh
echo "$1" >> '{runs}'
case "$1" in
  --version) echo 'codex-cli {version}' ;;
  login) test ! -e '{logged_out}' ;;
  app-server)
    while read -r line; do
      id=${{line#*\"id\":}}; id=${{id%%[,\}}]*}}
      case "$line" in
        *plugin/list*) echo "{{\"id\":$id,\"result\":$(cat '{plugins}')}}" ;;
        *\"initialize\"*) echo "{{\"id\":$id,\"result\":{{}}}}" ;;
      esac
    done ;;
esac
"#,
            runs = runs.display(),
            logged_out = self.logged_out().display(),
            plugins = self.folder.path().join("plugins").display(),
        );
        fs::write(self.folder.path().join("plugins"), PLUGINS).unwrap();
        fs::write(self.program(), script).unwrap();
        fs::set_permissions(self.program(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// From now on it says that it has no login.
    pub fn is_logged_out(&self) {
        fs::write(self.logged_out(), "").unwrap();
    }

    fn logged_out(&self) -> PathBuf {
        self.folder.path().join("logged-out")
    }

    /// Removes the program.
    pub fn is_removed(&self) {
        fs::remove_file(self.program()).unwrap();
    }

    /// The folder to put on the PATH.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    pub fn program(&self) -> PathBuf {
        self.path().join("codex")
    }

    /// The folder of its configuration.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Its configuration; empty if there is none.
    pub fn config(&self) -> String {
        fs::read_to_string(self.home().join("config.toml")).unwrap_or_default()
    }

    /// First argument of each start so far.
    pub fn starts(&self) -> Vec<String> {
        let starts = fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default();
        starts.lines().map(str::to_owned).collect()
    }

    /// How often it was asked for its version.
    pub fn version_checks(&self) -> usize {
        self.starts().iter().filter(|start| *start == "--version").count()
    }

    /// The settings of agents that use this codex.
    pub fn switches(&self) -> SwitchTable {
        let folder = self.folder.path().join("state");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("talaria.yaml");
        fs::write(&file, AGENTS).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let env = |name: &str| (name == "TALARIA_HOME").then(|| folder.display().to_string());
        let sources = ConfigSources { config: None, folder: folder.clone(), serve: false };
        let config = Config::load(&sources, &env).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut table =
            SwitchTable { agents: config.agents.entries.clone(), sources: EnableSources::new(&config, None) };
        for settings in table.agents.values_mut() {
            self.serves(settings);
        }
        table
    }

    /// Makes an agent use this codex, wherever the test runs.
    fn serves(&self, settings: &mut AgentSettings) {
        let codex = match settings {
            AgentSettings::Codex(codex) => codex,
            AgentSettings::Model(model) => match &mut model.switch {
                Some(switch) => &mut switch.codex,
                None => return,
            },
            AgentSettings::Proxy(_) | AgentSettings::Acp(_) => return,
        };
        codex.command = text(&self.program());
        codex.codex_home = Some(self.home());
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
