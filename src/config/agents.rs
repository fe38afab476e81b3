//! Who answers: an agent server, a model server, or the guide.

use std::time::Duration;

use super::env;
use super::file;
use super::resolve::{ConfigResolver, GivenValue, SettingSource, filled};
use super::secret::SecretForm;
use super::secret_sources::KeySetting;
use super::value::TimeSpan;
use super::{AgentChoice, BaseUrl, ConfigError, LocalConfig, ProxyConfig, Secret, UpstreamTimeouts};
use crate::rules::Rules;

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

const DEFAULT_PROXY_MODEL: &str = "hermes-agent";

/// What is said of a model server.
pub(super) struct ModelServer {
    base_url: Option<GivenValue>,
    key: Option<Secret>,
    model: Option<GivenValue>,
    allow_cleartext: bool,
    timeouts: UpstreamTimeouts,
}

impl ModelServer {
    /// Whether enough is said to mean one.
    fn is_asked_for(&self) -> bool {
        self.base_url.is_some() || (self.model.is_some() && self.key.is_some())
    }
}

impl ConfigResolver<'_> {
    /// Decides who answers. On errors the result is a stand-in that nobody sees.
    pub(super) fn agent(&mut self, gateway: file::GatewaySection, agent: file::AgentSection) -> AgentChoice {
        let timeouts = UpstreamTimeouts {
            connect: seconds(gateway.connect_timeout, 10),
            first_byte: seconds(gateway.first_byte_timeout, 300),
            idle: seconds(gateway.idle_timeout, 300),
            keepalive_idle: seconds(gateway.keepalive_idle_timeout, 60),
        };
        let allow_cleartext = gateway.allow_cleartext.unwrap_or(false);
        let proxy_url = self.text(
            SettingSource { var: Some(&env::PROXY_URL), path: &["gateway", "proxy_url"] },
            gateway.proxy_url,
        );
        let proxy_key = self.key(
            KeySetting {
                vars: Some((&env::PROXY_KEY, &env::PROXY_KEY_FILE)),
                path: &["gateway", "proxy_key"],
                form: SecretForm::Key,
            },
            gateway.proxy_key,
            None,
        );
        let base_url = self
            .text(SettingSource { var: Some(&env::BASE_URL), path: &["agent", "base_url"] }, agent.base_url);
        let api_key = self.key(
            KeySetting {
                vars: Some((&env::API_KEY, &env::API_KEY_FILE)),
                path: &["agent", "api_key"],
                form: SecretForm::Key,
            },
            agent.api_key,
            None,
        );
        let model =
            self.text(SettingSource { var: Some(&env::MODEL), path: &["agent", "model"] }, agent.model);

        let model_server = ModelServer { base_url, key: api_key, model, allow_cleartext, timeouts };
        let fallback = gateway.fallback.unwrap_or_default();
        if let Some(given) = proxy_url {
            let stand_in = match fallback {
                file::FallbackSetting::None => {
                    self.spare = Some(model_server).filter(ModelServer::is_asked_for);
                    None
                }
                file::FallbackSetting::Local => self.stand_in(model_server).map(Box::new),
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
        if fallback == file::FallbackSetting::Local {
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
    pub(super) fn room_agent(&mut self, main: &AgentChoice, rules: &Rules) -> Option<LocalConfig> {
        let mut wanted = None;
        for (account, rules) in &rules.accounts {
            for (room, place) in &rules.places {
                let Some(agent) = &place.agent else { continue };
                match (agent.as_str(), main) {
                    ("proxy", AgentChoice::Proxy(..)) | ("local", AgentChoice::Local(_)) => {}
                    ("local", AgentChoice::Proxy(_, Some(stand_in))) => wanted = Some((**stand_in).clone()),
                    ("local", AgentChoice::Proxy(_, None)) if wanted.is_some() => {}
                    ("local", AgentChoice::Proxy(_, None)) if self.spare.is_some() => {
                        wanted = self.spare.take().and_then(|server| self.local(server));
                    }
                    (name, _) => {
                        let path = ["platforms", account.as_str(), "places", room.as_str(), "agent"];
                        let (key, place) = (path.join("."), self.place(&path));
                        let hint = match name {
                            "proxy" => "set `GATEWAY_PROXY_URL` or `gateway.proxy_url`",
                            _ => {
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
        let given = base_url.unwrap_or_else(|| GivenValue {
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

    /// Refuses to send a key in the clear over a public network.
    fn guard_key(&mut self, url: &BaseUrl, key: Option<&Secret>, allowed: bool, given: &GivenValue) {
        if url.is_encrypted() || url.is_near() {
            return;
        }
        let GivenValue { name, place, .. } = given;
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
}

fn seconds(written: Option<TimeSpan<1>>, default: u64) -> Duration {
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
