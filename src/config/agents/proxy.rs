//! `kind: proxy`, a remote agent server.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{AgentSettings, EntryKind, TimeoutsSection, UpstreamTimeouts, key_words};
use crate::config::document::ConfigDocument;
use crate::config::file::UpstreamSetting;
use crate::config::resolve::{ConfigResolver, GivenValue, SettingSource, filled};
use crate::config::secret::{self, SecretForm};
use crate::config::secret_sources::KeySetting;
use crate::config::yaml_lines::KeyedMapping;
use crate::config::{BaseUrl, ConfigError, Secret};

/// The kind in the list of kinds.
pub(super) const KIND: EntryKind = EntryKind { name: "proxy", read };

const DEFAULT_MODEL: &str = "hermes-agent";

/// A remote agent server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Its address; `/v1/…` is appended.
    pub url: BaseUrl,
    /// The bearer key; without one no `Authorization` header is sent.
    pub key: Option<Secret>,
    /// The model named in each request.
    pub model: String,
    /// Abilities of the server, or that it is to be asked.
    pub upstream: UpstreamSetting,
    /// Whether it is told who asks.
    pub identity: bool,
    /// Whether the key may be sent unencrypted to a public peer.
    pub allow_cleartext: bool,
    /// Time limits of the server.
    pub timeouts: UpstreamTimeouts,
}

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ProxySection {
    // Read for all kinds together.
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    /// Address of the server, without `/v1`. No default: needed.
    url: Option<String>,
    /// Bearer key for it. Default: none, and then no `Authorization` header is sent.
    #[serde(deserialize_with = "secret::optional")]
    key: Option<Secret>,
    /// A file that holds `key`. Default: none.
    key_file: Option<String>,
    /// The model asked for in each request. Default: `hermes-agent`.
    model: Option<String>,
    /// Abilities of the server: `auto`, `talaria`, `runs` or `plain`. Default: `auto`.
    upstream: Option<UpstreamSetting>,
    /// Whether the server is told who asks, in `X-Hermes-User-…` headers. Default: `false`.
    identity: Option<bool>,
    /// Whether a key may be sent over `http://` to a public address. Default: `false`.
    allow_cleartext: Option<bool>,
    /// Time limits of the server.
    timeouts: Option<KeyedMapping<TimeoutsSection>>,
}

/// A remote agent server as an entry or the shorthand describes it.
pub(super) struct ProxyValues<'a> {
    pub(super) url: GivenValue,
    pub(super) key: Option<Secret>,
    pub(super) model: Option<String>,
    pub(super) upstream: Option<UpstreamSetting>,
    pub(super) identity: Option<bool>,
    pub(super) allow_cleartext: Option<bool>,
    pub(super) timeouts: UpstreamTimeouts,
    /// The key that `allow_cleartext` is written as.
    pub(super) permit: &'a str,
}

fn read(resolver: &mut ConfigResolver<'_>, document: &ConfigDocument, name: &str) -> Option<AgentSettings> {
    let path = ["agents", name];
    let written: ProxySection = document.parse_at(&path).map_err(|error| resolver.errors.push(error)).ok()?;
    let key = resolver.key(
        KeySetting { vars: None, path: &["agents", name, "key"], form: SecretForm::Key },
        written.key,
        written.key_file,
    );
    let setting = SettingSource { var: None, path: &["agents", name, "url"] };
    let Some(url) = resolver.text(setting, written.url) else {
        let place = document.place_of_key(&path);
        resolver.errors.push(
            ConfigError::new(format!("`agents.{name}` has no `url` {place}"))
                .hint("write the address of the agent server, such as `http://localhost:8642`"),
        );
        return None;
    };
    resolver.proxy(ProxyValues {
        url,
        key,
        model: written.model,
        upstream: written.upstream,
        identity: written.identity,
        allow_cleartext: written.allow_cleartext,
        timeouts: written.timeouts.unwrap_or_default().0.resolve(),
        permit: &format!("agents.{name}.allow_cleartext"),
    })
}

impl ConfigResolver<'_> {
    /// Checks a remote agent server and fills in its defaults. `None` only with an error.
    pub(super) fn proxy(&mut self, values: ProxyValues<'_>) -> Option<AgentSettings> {
        let allow_cleartext = values.allow_cleartext.unwrap_or(false);
        // People copy the address of a model server, and there is only one thing it can mean.
        let url = self.url(&values.url).map(BaseUrl::without_version)?;
        self.guard_key(&url, values.key.as_ref(), allow_cleartext, &values.url, values.permit);
        Some(AgentSettings::Proxy(ProxyConfig {
            url,
            key: values.key,
            model: filled(values.model).unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            upstream: values.upstream.unwrap_or_default(),
            identity: values.identity.unwrap_or(false),
            allow_cleartext,
            timeouts: values.timeouts,
        }))
    }
}

impl fmt::Display for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, model, key) = (self.url.as_str(), &self.model, key_words(self.key.as_ref()));
        write!(f, "remote agent server at {url}, model {model}, {key}")
    }
}
