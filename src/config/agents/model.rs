//! `kind: model`, a model behind a server that speaks the chat-completions protocol.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::runtime::SwitchConfig;
use super::work::{DEFAULT_ITERATIONS, DEFAULT_TURN_TIMEOUT, WorkSection};
use super::{AgentSettings, EntryKind, RuntimeSetting, TimeoutsSection, UpstreamTimeouts, key_words};
use crate::config::document::ConfigDocument;
use crate::config::resolve::{ConfigResolver, GivenValue, SettingSource};
use crate::config::secret::{self, SecretForm};
use crate::config::secret_sources::KeySetting;
use crate::config::yaml_lines::KeyedMapping;
use crate::config::{BaseUrl, BuiltinTool, ConfigError, McpSelection, Secret};
use crate::rules::AgentRuntime;

/// The kind in the list of kinds.
pub(super) const KIND: EntryKind = EntryKind { name: "model", read };

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// A model and the server that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// The server's address, usually with `/v1` at the end; `/chat/completions` is appended.
    pub url: BaseUrl,
    /// The bearer key.
    pub key: Option<Secret>,
    /// The model.
    pub model: String,
    /// Whether the key may be sent unencrypted to a public peer.
    pub allow_cleartext: bool,
    /// Time limits of the server.
    pub timeouts: UpstreamTimeouts,
    /// Models that a session can choose; `model` is the first.
    pub models: Vec<String>,
    /// The folder that its tools work in, as an absolute path. It need not exist yet.
    pub workspace: Option<PathBuf>,
    /// Its tools of the fixed set.
    pub tools: BTreeSet<BuiltinTool>,
    /// The MCP servers whose tools it has.
    pub mcp: McpSelection,
    /// Tokens that the model can read at once, if known.
    pub context_tokens: Option<u64>,
    /// Most rounds of tool calls in one turn.
    pub max_iterations: u32,
    /// Time limit of one turn.
    pub turn_timeout: Duration,
    /// Settings for handing its turns to codex; `None` if that is not possible.
    pub switch: Option<Box<SwitchConfig>>,
}

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ModelSection {
    // Read for all kinds together.
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    /// Address of the server, with `/v1`. Default: `https://api.openai.com/v1`.
    base_url: Option<String>,
    /// Bearer key for it. Default: none.
    #[serde(deserialize_with = "secret::optional")]
    api_key: Option<Secret>,
    /// A file that holds `api_key`. Default: none.
    api_key_file: Option<String>,
    /// The model. No default: needed.
    model: Option<String>,
    /// Whether a key may be sent over `http://` to a public address. Default: `false`.
    allow_cleartext: Option<bool>,
    /// Time limits of the server.
    timeouts: Option<KeyedMapping<TimeoutsSection>>,
}

impl ModelSection {
    /// The keys, for readers that leave them out.
    pub(in crate::config) const KEYS: [&str; 9] = [
        "kind",
        "instructions",
        "access",
        "base_url",
        "api_key",
        "api_key_file",
        "model",
        "allow_cleartext",
        "timeouts",
    ];
}

/// A model as an entry or the shorthand describes it.
pub(super) struct ModelValues<'a> {
    /// The section that names it.
    pub(super) section: &'a str,
    /// Name of the agent.
    pub(super) agent: &'a str,
    pub(super) base_url: Option<GivenValue>,
    pub(super) key: Option<Secret>,
    pub(super) model: Option<GivenValue>,
    pub(super) allow_cleartext: bool,
    pub(super) timeouts: UpstreamTimeouts,
    pub(super) runtime: Option<RuntimeSetting>,
    /// The key that `allow_cleartext` is written as.
    pub(super) permit: &'a str,
}

fn read(resolver: &mut ConfigResolver<'_>, document: &ConfigDocument, name: &str) -> Option<AgentSettings> {
    let path = ["agents", name];
    let written: ModelSection = document
        .parse_without(&path, &WorkSection::KEYS)
        .map_err(|error| resolver.errors.push(error))
        .ok()?;
    let work: WorkSection = document
        .parse_without(&path, &ModelSection::KEYS)
        .map_err(|error| resolver.errors.push(error))
        .ok()?;
    let key = resolver.key(
        KeySetting { vars: None, path: &["agents", name, "api_key"], form: SecretForm::Key },
        written.api_key,
        written.api_key_file,
    );
    let base_url = SettingSource { var: None, path: &["agents", name, "base_url"] };
    let base_url = resolver.text(base_url, written.base_url);
    let model = SettingSource { var: None, path: &["agents", name, "model"] };
    let model = resolver.text(model, written.model);
    if model.is_none() {
        let place = document.place_of_key(&path);
        resolver.errors.push(
            ConfigError::new(format!("`agents.{name}` has no `model` {place}"))
                .hint("write the name that the server knows the model by, such as `llama3.2`"),
        );
        return None;
    }
    let mut config = resolver.model(ModelValues {
        section: &path.join("."),
        agent: name,
        base_url,
        key,
        model,
        allow_cleartext: written.allow_cleartext.unwrap_or(false),
        timeouts: written.timeouts.unwrap_or_default().0.resolve(),
        // Among the keys that are added below.
        runtime: None,
        permit: &format!("agents.{name}.allow_cleartext"),
    })?;
    resolver.add_work(document, name, work, &mut config);
    Some(AgentSettings::Model(config))
}

impl ConfigResolver<'_> {
    /// Checks a model and fills in its defaults; it has no tools yet. `None` only with an error.
    pub(super) fn model(&mut self, values: ModelValues<'_>) -> Option<ModelConfig> {
        let ModelValues { section, agent, base_url, key, model, allow_cleartext, timeouts, runtime, permit } =
            values;
        let given = base_url.unwrap_or_else(|| GivenValue {
            value: DEFAULT_BASE_URL.to_owned(),
            name: format!("`{section}.base_url`"),
            place: String::new(),
        });
        if model.is_none() {
            self.errors.push(
                ConfigError::new("there is a model server but no model is named")
                    .hint("set `OPENAI_MODEL` or `agent.model`, for example to `llama3.2`"),
            );
        }
        let url = self.url(&given);
        let (Some(url), Some(model)) = (url, model) else { return None };
        self.guard_key(&url, key.as_ref(), allow_cleartext, &given, permit);
        if !names_version(url.as_str()) {
            let name = &given.name;
            self.warnings.push(format!(
                "{name} has no `/v1` at its end, which most servers want; `/chat/completions` is all that Talaria appends"
            ));
        }
        Some(ModelConfig {
            switch: SwitchConfig::of(agent, &url, runtime, self.home).map(Box::new),
            url,
            key,
            models: vec![model.value.clone()],
            model: model.value,
            allow_cleartext,
            timeouts,
            workspace: None,
            tools: BTreeSet::new(),
            mcp: McpSelection::None,
            context_tokens: None,
            max_iterations: DEFAULT_ITERATIONS,
            turn_timeout: DEFAULT_TURN_TIMEOUT,
        })
    }
}

impl fmt::Display for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, model, key) = (self.url.as_str(), &self.model, key_words(self.key.as_ref()));
        write!(f, "model server at {url}, model {model}, {key}")?;
        match self.switch.as_ref().map(|switch| switch.runtime) {
            Some(AgentRuntime::CodexAppServer) => f.write_str("; runtime: codex app-server"),
            Some(AgentRuntime::Auto) | None => Ok(()),
        }
    }
}

/// Whether an address has a part such as `v1` or `v1beta`.
fn names_version(url: &str) -> bool {
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    // The first three parts are the scheme, nothing, and the host.
    url.split('/').skip(3).any(is_version)
}
