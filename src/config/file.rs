//! The configuration as written: every key that `talaria.yaml` may have.
//!
//! Every key is optional, and a blank section counts as left out. Nothing is decided here: `resolve` applies the
//! defaults and the environment. `docker/config.example.yaml` documents the keys for people; a test compares the two.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::agents::{AgentAccessSection, RuntimeSetting};
use super::forge::ForgeSection;
use super::mcp_servers::McpServerSection;
use super::secret::{self, Secret};
use super::tool_sections::{BudgetSection, ReviewSection, TerminalSection};
use super::value::{KeepFor, TimeSpan, WholeNumber};
use super::yaml_lines::KeyedMapping;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// The remote agent server and how we talk to it. Default: no server.
    #[serde(deserialize_with = "section")]
    pub gateway: GatewaySection,
    /// The model that answers when there is no remote agent server. Default: none.
    #[serde(deserialize_with = "section")]
    pub agent: AgentSection,
    /// Further agents by name. Default: none.
    #[serde(deserialize_with = "section")]
    pub agents: BTreeMap<String, Option<KeyedMapping<AgentEntrySection>>>,
    /// The agent that answers unless another is named. Default: `proxy` if there is one, else `local`, else the only one.
    pub default_agent: Option<String>,
    /// MCP servers by name, whose tools agents may call. Default: none.
    #[serde(deserialize_with = "section")]
    pub mcp_servers: BTreeMap<String, Option<KeyedMapping<McpServerSection>>>,
    /// The folder of the skills. Default: `skills` in the state folder.
    pub skills_dir: Option<String>,
    /// The background reviews of conversations.
    #[serde(deserialize_with = "section")]
    pub review: ReviewSection,
    /// The terminal of every agent that has it.
    #[serde(deserialize_with = "section")]
    pub terminal: TerminalSection,
    /// Tokens that people and agents may use in a day.
    #[serde(deserialize_with = "section")]
    pub budget: BudgetSection,
    /// The chat accounts by name. Default: none, which is a chat in the terminal.
    #[serde(deserialize_with = "section")]
    pub platforms: BTreeMap<String, Option<KeyedMapping<PlatformSection>>>,
    /// The agent server, which programs talk to over HTTP.
    #[serde(deserialize_with = "section")]
    pub server: ServerSection,
    /// Sessions with agents that other programs run over HTTP.
    #[serde(deserialize_with = "section")]
    pub forge: ForgeSection,
    /// Look of answers in rooms.
    #[serde(deserialize_with = "section")]
    pub display: DisplaySection,
    /// Language of our texts in rooms. Default: `en`.
    pub language: Option<String>,
    /// The operator's own wordings of these texts, by the keys of the catalogue. Default: none.
    #[serde(deserialize_with = "section")]
    pub words: BTreeMap<String, Option<String>>,
    /// Retention of stored conversations.
    #[serde(deserialize_with = "section")]
    pub store: StoreSection,
    /// The log.
    #[serde(deserialize_with = "section")]
    pub log: LogSection,
}

/// `gateway:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySection {
    /// Address of the remote agent server, without `/v1`. Default: none.
    pub proxy_url: Option<String>,
    /// Bearer key for it. Default: none, and then no `Authorization` header is sent.
    #[serde(deserialize_with = "secret::optional")]
    pub proxy_key: Option<Secret>,
    /// The model asked for in each request. Default: `hermes-agent`.
    pub model: Option<String>,
    /// Abilities of the server. Default: `auto`.
    pub upstream: Option<UpstreamSetting>,
    /// Whether a key may be sent over `http://` to a public address. Default: `false`.
    pub allow_cleartext: Option<bool>,
    /// Whether the server is told who asks, in `X-Hermes-User-…` headers. Default: `false`.
    pub identity: Option<bool>,
    /// Most earlier messages that are sent with a prompt. Default: 100.
    pub history_messages: Option<WholeNumber<0, 10_000>>,
    /// Most bytes of earlier messages that are sent with a prompt. Default: 262144.
    pub history_bytes: Option<WholeNumber<0, 16_777_216>>,
    /// Time limit for connecting. Default: `10s`.
    pub connect_timeout: Option<TimeSpan<1>>,
    /// Time limit for the first byte of an answer. Default: `300s`.
    pub first_byte_timeout: Option<TimeSpan<1>>,
    /// Longest pause within an answer. Default: `300s`.
    pub idle_timeout: Option<TimeSpan<1>>,
    /// Longest pause within an answer on a stream that has shown keep-alive comments. Default: `60s`.
    pub keepalive_idle_timeout: Option<TimeSpan<1>>,
    /// Time for which a turn that provably did not run is tried again; `0s` for never. Default: `10m`.
    pub retry_for: Option<TimeSpan<0>>,
    /// The agent that answers while the server is away, by its name; `none` for nobody. Default: `none`.
    pub fallback: Option<String>,
}

/// `gateway.upstream`: abilities of the remote agent server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamSetting {
    /// The server is asked.
    #[default]
    Auto,
    /// The server knows idempotency keys, as Talaria's own does.
    Talaria,
    /// The server runs turns in the background (`POST /v1/runs`), as hermes-agent does.
    Runs,
    /// The server has only chat completions; a request is never repeated once it may have run.
    Plain,
}

/// `agent:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSection {
    /// Address of an OpenAI-compatible server, with `/v1`.
    /// Default: `https://api.openai.com/v1` once there is a key.
    pub base_url: Option<String>,
    /// The model. No default: needed when there is a server or a key.
    pub model: Option<String>,
    /// Bearer key for the server. Default: none.
    #[serde(deserialize_with = "secret::optional")]
    pub api_key: Option<Secret>,
    /// The system message of every turn, here and through the proxy. Default: empty, and then there is none.
    pub context_prompt: Option<String>,
    /// Whether the system message also says where the agent is and with whom. Default: `true`.
    pub names: Option<bool>,
    /// Whether attached files that are neither text nor pictures go to the agent, here and through the proxy.
    /// Default: `false`.
    pub files: Option<bool>,
    /// What runs the turns of the model: itself (`auto`) or `codex_app_server`. Default: `auto`.
    pub runtime: Option<RuntimeSetting>,
}

/// `agents.<name>:` as far as all kinds share it. The rest is read when the kind is known; see `agents`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AgentEntrySection {
    /// Kind of the agent. Default: the entry's name.
    pub kind: Option<String>,
    /// Text for the system message of every turn of this agent, after `agent.context_prompt`. Default: none.
    pub instructions: Option<String>,
    /// People and programs that may talk to the agent. Default: as its kind says.
    pub access: Option<KeyedMapping<AgentAccessSection>>,
}

/// `platforms.<name>:` as far as all kinds share it. The rest is read when the kind is known, which
/// may be written after other keys; see `platform`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PlatformSection {
    /// Kind of the chat network. Default: the entry's name.
    pub kind: Option<String>,
}

/// `server:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    /// Whether the agent server runs. Default: `true` when no platform is configured or an `API_SERVER_…` variable is set.
    pub enabled: Option<bool>,
    /// The address it listens on. Default: `127.0.0.1`.
    pub host: Option<String>,
    /// The port; 0 is any that is free. Default: 8642.
    pub port: Option<WholeNumber<0, 65_535>>,
    /// The owner's key. Default: one that is made on the first start.
    #[serde(deserialize_with = "secret::optional")]
    pub key: Option<Secret>,
    /// Whether callers need a key. Default: `key`.
    pub auth: Option<AuthSetting>,
    /// Web pages that may call the server, by their origin. Default: none.
    pub cors_origins: Option<Vec<String>>,
    /// Name under which it lists the default agent. Default: `talaria`.
    pub model_name: Option<String>,
    /// Further host names that the server may be addressed by. Default: none.
    pub hosts: Option<Vec<String>>,
    /// Turns at once over HTTP, at most. Default: 2000.
    pub runs: Option<WholeNumber<1, 100_000>>,
    /// Turns at once of one app, at most. Default: 200.
    pub runs_per_app: Option<WholeNumber<1, 100_000>>,
}

/// `server.auth`: whether the agent server asks for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthSetting {
    /// The server asks for a key.
    #[default]
    Key,
    /// Everybody on this machine may do everything.
    None,
}

/// `display:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DisplaySection {
    /// Whether running tools are shown below a growing answer. Default: `line`.
    pub steps: Option<StepsSetting>,
    /// Most edits of one answer while it grows. Default: 200.
    pub edits: Option<WholeNumber<1, 1000>>,
    /// Whether a reaction on each question shows its progress. Default: `false`.
    pub reactions: Option<bool>,
}

/// `display.steps`: display of running tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepsSetting {
    /// One line with the tool's name and its subject, such as the command; gone when the answer is complete.
    #[default]
    Line,
    /// One line with the tool's name only, for rooms where not everybody should read commands and paths.
    Name,
    /// Running tools are not shown.
    Hidden,
}

/// `store:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// Retention of conversations that nobody continues. Default: `forever`.
    pub keep: Option<KeepFor>,
    /// Retention of stored responses of `/v1/responses` that nobody continues. Default: `30d`.
    pub keep_responses: Option<KeepFor>,
}

/// `log:`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// A level, or a filter such as `info,talaria=debug`. Default: `info`.
    pub level: Option<String>,
}

/// Reads a section; one without content is the default.
fn section<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<KeyedMapping<T>>::deserialize(deserializer)?.unwrap_or_default().0)
}
