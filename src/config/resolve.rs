//! From the file as written and the environment to the complete configuration.
//!
//! Everything that is wrong is collected, so that a person can put it right in one go.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::AccountId;
use tracing_subscriber::EnvFilter;

use super::document::Document;
use super::effect;
use super::env::{self, Env, Var};
use super::file::{self, File};
use super::hint::closest;
use super::keys::KeySetting;
use super::platform::is_name;
use super::secret::Form;
use super::server;
use super::value::Span;
use super::walk::Keys;
use super::wording;
use super::{
    AgentChoice, BaseUrl, ConfigError, DisplayConfig, LocalConfig, PlatformConfig, ProxyConfig, Secret,
    ServerConfig, Timeouts, TurnConfig,
};
use crate::rules::{AgentName, Rules};

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
const DEFAULT_PROXY_MODEL: &str = "hermes-agent";
const DEFAULT_LOG: &str = "info";

/// Everything but the places of things, which `load` knows.
pub(super) struct Resolved {
    pub(super) agent: AgentChoice,
    pub(super) room_agent: Option<LocalConfig>,
    pub(super) turns: TurnConfig,
    pub(super) platforms: BTreeMap<AccountId, PlatformConfig>,
    pub(super) server: Option<ServerConfig>,
    pub(super) display: DisplayConfig,
    pub(super) rules: Rules,
    pub(super) log: String,
    pub(super) warnings: Vec<String>,
}

/// Resolves what was written in `document`.
pub(super) fn resolve(
    file: File,
    document: Option<&Document>,
    env: Env<'_>,
    home: &Path,
    serve: bool,
) -> Result<Resolved, Vec<ConfigError>> {
    let mut resolver =
        Resolver { document, env, home, spare: None, errors: Vec::new(), warnings: Vec::new() };
    let turns = TurnConfig {
        context_prompt: file
            .agent
            .context_prompt
            .clone()
            .filter(|text| !text.trim().is_empty())
            .unwrap_or_default(),
        names: file.agent.names.unwrap_or(true),
        files: file.agent.files.unwrap_or(false),
        history_messages: file.gateway.history_messages.map_or(100, |count| count.0),
        history_bytes: file.gateway.history_bytes.map_or(262_144, |bytes| bytes.0),
        retry_for: file.gateway.retry_for.map_or(Duration::from_secs(10 * 60), |span| span.0),
    };
    let display = DisplayConfig {
        steps: file.display.steps.unwrap_or_default(),
        edits: file.display.edits.map_or(200, |edits| edits.0),
        reactions: file.display.reactions.unwrap_or(false),
    };
    let agent = resolver.agent(file.gateway, file.agent);
    let mut rules = Rules::default();
    let platforms = resolver.platforms(file.platforms, &mut rules);
    let server = resolver.server(file.server, server::Wish { alone: platforms.is_empty(), commanded: serve });
    let room_agent = resolver.room_agent(&agent, &rules);
    let server = resolver.beside(server, &agent, room_agent.as_ref());
    rules.words = wording::read(file.language.as_deref(), &file.words, document, &mut resolver.errors);
    let log = resolver.log(file.log.level);
    if resolver.errors.is_empty() {
        let warnings = resolver.warnings;
        Ok(Resolved { agent, room_agent, turns, platforms, server, display, rules, log, warnings })
    } else {
        Err(resolver.errors)
    }
}

pub(super) struct Resolver<'a> {
    pub(super) document: Option<&'a Document>,
    pub(super) env: Env<'a>,
    /// The state folder.
    #[cfg_attr(not(feature = "matrix"), allow(dead_code, reason = "Matrix keeps a device's keys there"))]
    pub(super) home: &'a Path,
    /// What is said of a model server that nobody has asked yet.
    spare: Option<ModelServer>,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<String>,
}

/// Where a value can come from: the environment first, then the file.
pub(super) struct Setting<'a> {
    /// None for an entry that only the file can configure.
    pub(super) var: Option<&'a Var>,
    pub(super) path: &'a [&'a str],
}

/// A value and, for messages, what people call the place it came from.
pub(super) struct Given {
    pub(super) value: String,
    pub(super) name: String,
    /// ` (talaria.yaml, line 7)`, or empty for the environment.
    pub(super) place: String,
}

/// What is said of a model server.
struct ModelServer {
    base_url: Option<Given>,
    key: Option<Secret>,
    model: Option<Given>,
    allow_cleartext: bool,
    timeouts: Timeouts,
}

impl ModelServer {
    /// Whether enough is said to mean one.
    fn is_asked_for(&self) -> bool {
        self.base_url.is_some() || (self.model.is_some() && self.key.is_some())
    }
}

impl Resolver<'_> {
    /// Decides who answers. On errors the result is a stand-in that nobody sees.
    fn agent(&mut self, gateway: file::Gateway, agent: file::Agent) -> AgentChoice {
        let timeouts = Timeouts {
            connect: seconds(gateway.connect_timeout, 10),
            first_byte: seconds(gateway.first_byte_timeout, 300),
            idle: seconds(gateway.idle_timeout, 300),
            keepalive_idle: seconds(gateway.keepalive_idle_timeout, 60),
        };
        let allow_cleartext = gateway.allow_cleartext.unwrap_or(false);
        let proxy_url = self
            .text(Setting { var: Some(&env::PROXY_URL), path: &["gateway", "proxy_url"] }, gateway.proxy_url);
        let proxy_key = self.key(
            KeySetting {
                vars: Some((&env::PROXY_KEY, &env::PROXY_KEY_FILE)),
                path: &["gateway", "proxy_key"],
                form: Form::Key,
            },
            gateway.proxy_key,
            None,
        );
        let base_url =
            self.text(Setting { var: Some(&env::BASE_URL), path: &["agent", "base_url"] }, agent.base_url);
        let api_key = self.key(
            KeySetting {
                vars: Some((&env::API_KEY, &env::API_KEY_FILE)),
                path: &["agent", "api_key"],
                form: Form::Key,
            },
            agent.api_key,
            None,
        );
        let model = self.text(Setting { var: Some(&env::MODEL), path: &["agent", "model"] }, agent.model);

        let model_server = ModelServer { base_url, key: api_key, model, allow_cleartext, timeouts };
        let fallback = gateway.fallback.unwrap_or_default();
        if let Some(given) = proxy_url {
            let stand_in = match fallback {
                file::Fallback::None => {
                    self.spare = Some(model_server).filter(ModelServer::is_asked_for);
                    None
                }
                file::Fallback::Local => self.stand_in(model_server).map(Box::new),
            };
            // People copy the address of a model server, and there is only one thing it can mean.
            let Some(url) = self.url(&given).map(BaseUrl::without_version) else { return AgentChoice::Guide };
            self.guard_key(&url, proxy_key.as_ref(), allow_cleartext, &given);
            let proxy = ProxyConfig {
                url,
                key: proxy_key,
                model: filled(gateway.model).unwrap_or_else(|| DEFAULT_PROXY_MODEL.to_owned()),
                upstream: gateway.upstream.unwrap_or_default(),
                identity: gateway.identity.unwrap_or(false),
                allow_cleartext,
                timeouts,
            };
            return AgentChoice::Proxy(proxy, stand_in);
        }
        if fallback == file::Fallback::Local {
            self.warnings.push(
                "`gateway.fallback` has no effect without a remote agent server; set `GATEWAY_PROXY_URL` or \
                 `gateway.proxy_url`"
                    .to_owned(),
            );
        }
        if proxy_key.is_some() {
            self.warnings.push(
                "there is a key for a remote agent server but no server; set `GATEWAY_PROXY_URL` or `gateway.proxy_url`"
                    .to_owned(),
            );
        }
        if !model_server.is_asked_for() {
            // Many people have a key in their environment for other programs: alone it asks for nothing.
            if model_server.key.is_some() {
                self.warnings.push(
                    "there is a key for a model server but no model; set `OPENAI_MODEL` or `agent.model` to use it"
                        .to_owned(),
                );
            }
            if model_server.model.is_some() {
                self.warnings.push(
                    "a model is named but no server for it; set `OPENAI_BASE_URL` or `agent.base_url`, or for OpenAI \
                     `OPENAI_API_KEY`"
                        .to_owned(),
                );
            }
            return AgentChoice::Guide;
        }
        self.local(model_server).map_or(AgentChoice::Guide, AgentChoice::Local)
    }

    /// The model, if a room wants it and somebody else answers everywhere.
    fn room_agent(&mut self, main: &AgentChoice, rules: &Rules) -> Option<LocalConfig> {
        let mut wanted = None;
        for (account, rules) in &rules.accounts {
            for (room, place) in &rules.places {
                match (place.agent, main) {
                    (None, _)
                    | (Some(AgentName::Proxy), AgentChoice::Proxy(..))
                    | (Some(AgentName::Local), AgentChoice::Local(_)) => {}
                    (Some(AgentName::Local), AgentChoice::Proxy(_, Some(stand_in))) => {
                        wanted = Some((**stand_in).clone());
                    }
                    (Some(AgentName::Local), AgentChoice::Proxy(_, None)) if wanted.is_some() => {}
                    (Some(AgentName::Local), AgentChoice::Proxy(_, None)) if self.spare.is_some() => {
                        wanted = self.spare.take().and_then(|server| self.local(server));
                    }
                    (Some(agent), _) => {
                        let path = ["platforms", account.as_str(), "places", room.as_str(), "agent"];
                        let (key, name, place) = (path.join("."), agent.name(), self.place(&path));
                        let hint = match agent {
                            AgentName::Proxy => "set `GATEWAY_PROXY_URL` or `gateway.proxy_url`",
                            AgentName::Local => {
                                "set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`)"
                            }
                        };
                        self.errors.push(
                            ConfigError::new(format!("`{key}` is `{name}`, which is not configured{place}"))
                                .hint(hint),
                        );
                    }
                }
            }
        }
        if self.spare.take().is_some() {
            self.warnings.push(
                "the model server is not used, because there is a remote agent server; with `gateway.fallback: \
                 local` it stands in while that one is away"
                    .to_owned(),
            );
        }
        wanted
    }

    /// The model server that stands in for the remote agent server. `None` only with an error.
    fn stand_in(&mut self, server: ModelServer) -> Option<LocalConfig> {
        if server.is_asked_for() {
            return self.local(server);
        }
        let place = self.place(&["gateway", "fallback"]);
        self.errors.push(
            ConfigError::new(format!("`gateway.fallback` is `local`, but there is no model to fall back to{place}"))
                .hint(
                    "set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`), for example \
                     to `http://localhost:11434/v1` and `llama3.2`",
                ),
        );
        None
    }

    /// The model server as it is asked for. `None` only with an error.
    fn local(&mut self, server: ModelServer) -> Option<LocalConfig> {
        let ModelServer { base_url, key, model, allow_cleartext, timeouts } = server;
        let given = base_url.unwrap_or_else(|| Given {
            value: DEFAULT_BASE_URL.to_owned(),
            name: "`agent.base_url`".to_owned(),
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
        self.guard_key(&url, key.as_ref(), allow_cleartext, &given);
        if !names_version(url.as_str()) {
            let name = &given.name;
            self.warnings.push(format!(
                "{name} has no `/v1` at its end, which most servers want; `/chat/completions` is all that Talaria appends"
            ));
        }
        Some(LocalConfig { url, key, model: model.value, allow_cleartext, timeouts })
    }

    fn platforms(
        &mut self,
        mut written: BTreeMap<String, Option<Keys<file::Platform>>>,
        rules: &mut Rules,
    ) -> BTreeMap<AccountId, PlatformConfig> {
        let mut platforms = BTreeMap::new();
        self.add_matrix(&mut written);
        let absent = Document::absent();
        let document = self.document.unwrap_or(&absent);
        for (name, entry) in written {
            if !is_name(&name) {
                let place = document.place_of_key(&["platforms", &name]);
                // A key that got there by a slip is not shown; those are seldom a few plain words.
                let plain = |c: char| c.is_alphabetic() || matches!(c, ' ' | '.');
                let word = name.len() <= 32 && name.chars().all(plain) && name.contains(char::is_lowercase);
                let name = if word { format!("the name `{name}`, which") } else { "a name that".to_owned() };
                self.errors.push(
                    ConfigError::new(format!("`platforms` has {name} cannot be used {place}"))
                        .hint("names are 1 to 32 of `a`–`z`, `0`–`9`, `_` and `-`"),
                );
                continue;
            }
            let kind = entry.and_then(|Keys(entry)| filled(entry.kind));
            let Some(platform) = PlatformConfig::read(self, document, &name, kind.as_deref()) else {
                continue;
            };
            match platform.people(self.env, document, &name) {
                Ok(people) => {
                    let account = AccountId::from(name.as_str());
                    if let Some(people) = people {
                        self.warnings.extend(effect::warnings(&name, &people.access));
                        rules.accounts.insert(account.clone(), Arc::new(people));
                    }
                    platforms.insert(account, platform);
                }
                Err(error) => self.errors.push(error),
            }
        }
        if platforms.values().filter(|platform| **platform == PlatformConfig::Console).count() > 1 {
            let place = document.place(&["platforms"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`platforms` has more than one entry of the kind `console` {place}"
                ))
                .hint("there is one terminal; keep one of them"),
            );
        }
        platforms
    }

    /// Adds the entry that variables configure, where the file has none.
    fn add_matrix(&mut self, written: &mut BTreeMap<String, Option<Keys<file::Platform>>>) {
        let Some(var) = env::MATRIX.iter().find(|var| self.env.get(var).is_some()) else { return };
        let variable = var.name;
        if !cfg!(feature = "matrix") {
            self.errors.push(
                ConfigError::new(format!("`{variable}` is set, but this Talaria was built without Matrix"))
                    .hint("unset it, or build Talaria with the feature `matrix`, which is on by default"),
            );
            return;
        }
        let entry = written.entry("matrix".to_owned()).or_default();
        let kind = entry.as_ref().and_then(|Keys(entry)| filled(entry.kind.clone()));
        if kind.is_some_and(|kind| kind != "matrix") {
            let place = self.place(&["platforms", "matrix", "kind"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`{variable}` configures `platforms.matrix`, which is of another kind{place}"
                ))
                .hint("give that entry another name, or unset the variables that begin with `MATRIX_`"),
            );
        }
    }

    fn log(&mut self, written: Option<String>) -> String {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let setting = Setting { var: Some(&env::TALARIA_LOG), path: &["log", "level"] };
        let Some(Given { value, name, place }) = self.text(setting, written) else {
            return DEFAULT_LOG.to_owned();
        };
        // A filter takes any word for the name of a module, so a slip would silence everything.
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(&value));
        if !is_level && !value.contains(['=', ',', '[']) {
            let levels = LEVELS.map(|level| format!("`{level}`")).join(", ");
            let hint = match closest(&value, LEVELS) {
                Some(level) => format!("did you mean `{level}`?"),
                None => format!("the levels are {levels}; a filter is written such as `info,talaria=debug`"),
            };
            self.errors.push(ConfigError::new(format!("{name} is not a level{place}")).hint(hint));
        } else if EnvFilter::builder().parse(&value).is_err() {
            self.errors.push(
                ConfigError::new(format!("{name} is neither a level nor a filter{place}"))
                    .hint("write a level such as `info`, or a filter such as `info,talaria=debug`"),
            );
        }
        value
    }

    /// A text from the environment, else from the file; blank counts as unset.
    pub(super) fn text(&self, setting: Setting<'_>, written: Option<String>) -> Option<Given> {
        if let Some(var) = setting.var
            && let Some(value) = self.env.get(var)
        {
            return Some(Given { value, name: format!("`{}`", var.name), place: String::new() });
        }
        let value = filled(written)?;
        let place = self.place(setting.path);
        Some(Given { value, name: format!("`{}`", setting.path.join(".")), place })
    }

    pub(super) fn url(&mut self, given: &Given) -> Option<BaseUrl> {
        match BaseUrl::parse(&given.value) {
            Ok(url) => Some(url),
            Err(phrase) => {
                self.errors.push(ConfigError::new(format!("{} {phrase}{}", given.name, given.place)));
                None
            }
        }
    }

    /// Refuses to send a key in the clear over a public network.
    fn guard_key(&mut self, url: &BaseUrl, key: Option<&Secret>, allowed: bool, given: &Given) {
        if url.is_encrypted() || url.is_near() {
            return;
        }
        let Given { name, place, .. } = given;
        if key.is_none() {
            self.warnings.push(format!(
                "{name} is a public `http://` address, so everybody on the way can read what is said; use `https://`"
            ));
            return;
        }
        if allowed {
            self.warnings.push(format!(
                "{name} is a public `http://` address, so everybody on the way can read the key \
                 (`gateway.allow_cleartext` permits it)"
            ));
        } else {
            self.errors.push(
                ConfigError::new(format!(
                    "{name} would carry the key unencrypted over a public network{place}"
                ))
                .hint(
                    "use `https://`, a private address or a tunnel; or set `gateway.allow_cleartext: true`",
                ),
            );
        }
    }

    /// ` (talaria.yaml, line 7)`
    pub(super) fn place(&self, path: &[&str]) -> String {
        self.document.map(|document| format!(" {}", document.place(path))).unwrap_or_default()
    }
}

fn seconds(written: Option<Span<1>>, default: u64) -> Duration {
    written.map_or(Duration::from_secs(default), |span| span.0)
}

/// Whether an address has a part such as `v1` or `v1beta`.
fn names_version(url: &str) -> bool {
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    // The first three parts are the scheme, nothing, and the host.
    url.split('/').skip(3).any(is_version)
}

/// A text that says something, without white space around it.
pub(super) fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
