//! The agents, and how each is set up for a scripted provider.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use talaria::config::{AcpConfig, Secret};

/// An agent that `tests/acp/parts` installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealAgent {
    /// `@agentclientprotocol/codex-acp`, over codex' app server.
    CodexAcp,
    /// `@zed-industries/codex-acp`, with codex in it.
    ZedCodexAcp,
    /// `opencode-ai`.
    OpenCode,
}

impl RealAgent {
    /// The settings of the agent, with a home folder that is made for it. `provider` has no path.
    pub fn config(self, home: &Path, provider: &str) -> AcpConfig {
        let workspace = home.join("work");
        let mut config = match self {
            Self::CodexAcp => {
                let bin = installed("acp-codex");
                let mut config = AcpConfig::new(text(&bin.join("node")), workspace);
                // The program itself: npm's entry would look for another Node.js.
                config.args = vec![text(&bin.join("codex-acp").canonicalize().unwrap())];
                // Otherwise a model decides about approvals.
                config.env.insert("INITIAL_AGENT_MODE".into(), secret("read-only"));
                config
            }
            Self::ZedCodexAcp => {
                AcpConfig::new(text(&installed("acp-zed").join("codex-acp-linux-x64")), workspace)
            }
            Self::OpenCode => {
                let mut config = AcpConfig::new(text(&installed("acp-opencode").join("opencode")), workspace);
                config.args = vec!["acp".to_owned()];
                config
            }
        };
        let mut set = |name: &str, value: &str| drop(config.env.insert(name.to_owned(), secret(value)));
        set("HOME", &text(home));
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            set(name, &text(&home.join(name.to_lowercase())));
        }
        match self {
            Self::CodexAcp | Self::ZedCodexAcp => {
                let codex_home = home.join("codex");
                fs::create_dir(&codex_home).unwrap();
                fs::write(codex_home.join("config.toml"), codex_config(provider)).unwrap();
                set("CODEX_HOME", &text(&codex_home));
                set("SCRIPTED_PROVIDER_KEY", "the-key");
            }
            Self::OpenCode => {
                let folder = home.join("xdg_config_home/opencode");
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("opencode.json"), opencode_config(provider)).unwrap();
                for name in [
                    "OPENCODE_DISABLE_MODELS_FETCH",
                    "OPENCODE_DISABLE_AUTOUPDATE",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD",
                ] {
                    set(name, "true");
                }
            }
        }
        config
    }
}

/// The entry of an agent in a configuration file, where JSON is YAML too. Everybody may ask it.
#[allow(dead_code, reason = "for tests with the whole program")]
pub fn entry(config: &AcpConfig) -> Value {
    let env: Map<_, _> =
        config.env.iter().map(|(name, value)| (name.clone(), json!(value.expose()))).collect();
    json!({
        "kind": "acp", "command": config.command, "args": config.args, "env": env,
        "workspace": config.workspace, "access": { "allow_all": true },
    })
}

fn codex_config(provider: &str) -> String {
    format!(
        r#"model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{provider}/v1"
wire_api = "responses"
env_key = "SCRIPTED_PROVIDER_KEY"
requires_openai_auth = false
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
[features]
plugins = false
apps = false
remote_plugin = false
remote_control = false
memories = false
daemon_auto_start = false
goals = false
"#
    )
}

fn opencode_config(provider: &str) -> String {
    json!({
        "model": "scripted/model",
        "small_model": "scripted/model",
        "autoupdate": false,
        "share": "disabled",
        "permission": { "bash": "ask", "edit": "ask" },
        "provider": { "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": { "baseURL": format!("{provider}/v1"), "apiKey": "the-key" },
            "models": { "model": { "name": "model", "tool_call": true,
                "limit": { "context": 100_000, "output": 4_000 } } },
        } },
    })
    .to_string()
}

/// The folder of the programs of a part.
fn installed(part: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("a home folder")).join(".cache"),
        PathBuf::from,
    );
    let bin = cache.join("talaria-tests").join(part).join("node_modules/.bin");
    assert!(bin.exists(), "{part} is not there; run tests/acp/parts once");
    bin
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn secret(value: &str) -> Secret {
    Secret::from(value.to_owned())
}
