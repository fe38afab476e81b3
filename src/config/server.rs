//! Resolves the `server` section: whether there is an agent server, its address, and its callers.
//!
//! Nothing is opened here. A server that others can reach must have a strong key: without one, or with one that
//! everybody guesses, it is refused before a port is bound.

mod key;
mod origin;

use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::api_key::{self, KeyError};
use super::env;
use super::file::{self, AuthSetting};
use super::resolve::{ConfigResolver, GivenValue, SettingSource, filled};
use super::secret::SecretForm;
use super::secret_sources::KeySetting;
use super::url::is_near_name;
use super::{AgentsConfig, BaseUrl, ConfigError, Secret, UrlHost, is_private};

pub(super) use key::fault as key_fault;
pub use origin::WebOrigin;

/// The port at which every client of this protocol expects the server.
const DEFAULT_PORT: u16 = 8642;
const DEFAULT_MODEL: &str = "talaria";
const DEFAULT_RUNS: usize = 2000;
const DEFAULT_RUNS_PER_APP: usize = 200;

/// Most characters of the model's name. It stands in every answer.
const LONGEST_MODEL: usize = 128;

/// Most entries of a list of origins or names. Each request is compared with all of them.
const LONGEST_LIST: usize = 100;

/// The agent server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address it listens on; see [`Self::address`].
    pub host: UrlHost,
    /// The port; 0 is any that is free.
    pub port: u16,
    /// The owner's key. `None`: the generated key, see [`super::api_key`]; or no key, if the server is [`Self::open`].
    pub key: Option<Secret>,
    /// No key is required: everybody who reaches the server is the owner. Only on loopback.
    pub open: bool,
    /// Origins of web pages that may send requests.
    pub cors_origins: Vec<WebOrigin>,
    /// Name of its model in answers.
    pub model_name: String,
    /// Further names that a `Host` header may have, with any port.
    pub hosts: Vec<UrlHost>,
    /// Most turns at once over HTTP.
    pub runs: usize,
    /// Most turns at once of each app.
    pub runs_per_app: usize,
    /// The operator asked for the server; otherwise it runs because nothing else is configured.
    pub explicit: bool,
}

/// From where a listening address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkReach {
    /// From this machine.
    Loopback,
    /// From a private network.
    Private,
    /// From wherever this machine can be reached.
    Everywhere,
    /// From the internet.
    Public,
}

/// Facts outside the `server` section that decide whether there is a server.
pub(super) struct ServerWish {
    /// No platform is configured.
    pub(super) alone: bool,
    /// The command line asks for the server.
    pub(super) commanded: bool,
}

impl ServerConfig {
    /// The address to bind: `127.0.0.1:8642`, `[::1]:8642`. The code that binds it resolves a name.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// From where the server can be reached.
    pub fn reach(&self) -> NetworkReach {
        match &self.host {
            UrlHost::Address(address) if address.is_loopback() => NetworkReach::Loopback,
            UrlHost::Address(address) if address.is_unspecified() => NetworkReach::Everywhere,
            UrlHost::Address(address) if is_private(*address) => NetworkReach::Private,
            UrlHost::Address(_) => NetworkReach::Public,
            UrlHost::Name(name) if is_near_name(name) => NetworkReach::Private,
            UrlHost::Name(_) => NetworkReach::Public,
        }
    }

    /// The owner's key: the configured one, or the generated one, which is made now if needed; `None` if the server is
    /// open. The caller holds the lock of the state folder.
    pub fn owner_key(&self, home: &Path) -> Result<Option<Secret>, KeyError> {
        match (&self.key, self.open) {
            (_, true) => Ok(None),
            (Some(key), false) => Ok(Some(key.clone())),
            (None, false) => api_key::load_or_make(home).map(Some),
        }
    }

    /// Whether a running server may take over the key of a new configuration. That key was judged for the reach and the
    /// names of the new configuration, so both must be equal.
    pub fn may_take_key_of(&self, new: &Self) -> bool {
        !self.open && !new.open && (&self.host, &self.hosts) == (&new.host, &new.hosts)
    }

    /// Whether a request to this address would reach our server, as far as the addresses tell.
    fn is_at(&self, url: &BaseUrl) -> bool {
        let near = match url.host() {
            UrlHost::Address(address) => address.is_loopback() || address.is_unspecified(),
            UrlHost::Name(name) => name == "localhost",
        };
        let here = matches!(self.reach(), NetworkReach::Loopback | NetworkReach::Everywhere);
        self.port != 0 && url.port() == self.port && (*url.host() == self.host || near && here)
    }

    /// Why the server cannot listen, and what to do about it.
    pub fn cannot_listen(&self, error: &io::Error) -> (String, &'static str) {
        let Self { host, port, .. } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => (
                format!("port {port} of {host} is taken by another process"),
                "end that process, or set API_SERVER_PORT (or `server.port`) to another port",
            ),
            io::ErrorKind::AddrNotAvailable => (
                format!("this machine does not have the address {host}"),
                "set API_SERVER_HOST (or `server.host`) to one that it has; 0.0.0.0 is all of them",
            ),
            io::ErrorKind::PermissionDenied => (
                format!("this user may not listen on port {port}"),
                "set API_SERVER_PORT (or `server.port`) to a port above 1023",
            ),
            kind => (
                format!("the agent server cannot listen on {}: {kind}", self.address()),
                "check API_SERVER_HOST and API_SERVER_PORT (or `server.host` and `server.port`)",
            ),
        }
    }
}

impl ConfigResolver<'_> {
    /// Decides whether there is an agent server, and resolves it. On errors the result is a placeholder that nobody
    /// sees.
    pub(super) fn server(&mut self, written: file::ServerSection, wish: ServerWish) -> Option<ServerConfig> {
        let variable = env::API_SERVER.iter().any(|var| self.env.get(var).is_some());
        let explicit = wish.commanded || variable || written.enabled == Some(true);
        let on = written.enabled.unwrap_or(explicit || wish.alone);
        if wish.commanded && !on {
            let place = self.place(&["server", "enabled"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`server.enabled` is `false`, but `talaria serve` is all server{place}"
                ))
                .hint("remove that line, or run `talaria run` for the platforms alone"),
            );
        }
        let off_by_itself = !on && written.enabled.is_none();
        let open = written.auth.unwrap_or_default() == AuthSetting::None;
        let host = self.server_host(written.host);
        let port = self.server_port(written.port.map(|port| port.0));
        let key = self.key(
            KeySetting {
                vars: Some((&env::API_SERVER_KEY, &env::API_SERVER_KEY_FILE)),
                path: &["server", "key"],
                form: SecretForm::Key,
            },
            written.key,
            None,
        );
        let config = ServerConfig {
            host: host.unwrap_or(UrlHost::Address(IpAddr::from([127, 0, 0, 1]))),
            port: port.unwrap_or(DEFAULT_PORT),
            key,
            open,
            cors_origins: self.origins(written.cors_origins),
            model_name: self.model_name(written.model_name),
            hosts: self.hosts(written.hosts),
            runs: written.runs.map_or(DEFAULT_RUNS, |runs| runs.0),
            runs_per_app: written.runs_per_app.map_or(DEFAULT_RUNS_PER_APP, |runs| runs.0),
            explicit,
        };
        if on {
            self.judge(&config);
            return Some(config);
        }
        // An operator who copied the example has every key in the file, so only a value that differs is a wish.
        if off_by_itself && config != ServerConfig::default() {
            self.warnings.push(
                "`server` has settings but is off, because there are platforms; write `server.enabled: true` to have \
                 it, or `false` if it is to stay off"
                    .to_owned(),
            );
        }
        None
    }

    /// Drops a server that would ask itself: if an agent is configured at the address of our server, that is another
    /// program, and nobody asked for ours. It is an error if somebody did.
    pub(super) fn beside(
        &mut self,
        server: Option<ServerConfig>,
        agents: &AgentsConfig,
    ) -> Option<ServerConfig> {
        let server = server?;
        if let Some(name) = agents.entries.keys().find(|name| server.model_name == name.as_str())
            && *name != agents.default
        {
            let place = self.place(&["server", "model_name"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`server.model_name` is `{name}`, which is another agent than the default{place}"
                ))
                .hint("requests for that name mean the default agent; choose a name that no agent has"),
            );
        }
        if !agents.urls().any(|url| server.is_at(url)) {
            return Some(server);
        }
        if server.explicit {
            let address = server.address();
            self.errors.push(
                ConfigError::new(format!("the agent is said to be at {address}, where our own agent server listens"))
                    .hint(
                        "correct `GATEWAY_PROXY_URL` or `OPENAI_BASE_URL` (`gateway.proxy_url`, `agent.base_url`), or set \
                         `API_SERVER_PORT` (`server.port`) to another port",
                    ),
            );
        }
        None
    }

    /// Refuses settings that would let strangers in, and warns about settings that might.
    fn judge(&mut self, config: &ServerConfig) {
        let (reach, host) = (config.reach(), &config.host);
        // A server with another name is reached by others, through a proxy in front of it.
        let local = reach == NetworkReach::Loopback && config.hosts.is_empty();
        if config.open && config.key.is_some() {
            let place = self.place(&["server", "auth"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`server.auth` is `none`, but there is a key for the agent server{place}"
                ))
                .hint("remove one of the two, so that it is clear whether the key is asked for"),
            );
        } else if config.open && !local {
            let place = self.place(&["server", "auth"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`server.auth: none` would let everybody in who can reach {host}{place}"
                ))
                .hint("remove that line, and a key is made; or listen on 127.0.0.1 only"),
            );
        }
        if let Some(fault) = config.key.as_ref().and_then(|key| key::fault(key.expose())) {
            let make = "make one with `openssl rand -hex 32`, or leave it out and Talaria makes one";
            let what = format!("the key of the agent server (`API_SERVER_KEY` or `server.key`) {fault}");
            if local {
                self.warnings.push(format!("{what}: every program on this machine can guess it; {make}"));
            } else {
                self.errors.push(
                    ConfigError::new(format!("{what}, and {host} can be reached from elsewhere")).hint(make),
                );
            }
        }
        let port = config.port;
        match reach {
            NetworkReach::Loopback | NetworkReach::Private => {}
            NetworkReach::Everywhere => self.warnings.push(format!(
                "the agent server would listen on every address of this machine ({host}), unencrypted; if one of \
                 them is public, close port {port} to the outside, or put a proxy with TLS in front and listen on \
                 127.0.0.1"
            )),
            NetworkReach::Public => self.warnings.push(format!(
                "the agent server would listen on {host}, which looks public, unencrypted: everybody on the way can \
                 read the key; put a proxy with TLS in front and listen on 127.0.0.1, or use a private network"
            )),
        }
    }

    fn server_host(&mut self, written: Option<String>) -> Option<UrlHost> {
        let setting = SettingSource { var: Some(&env::API_SERVER_HOST), path: &["server", "host"] };
        let GivenValue { value, name, place } = self.text(setting, written)?;
        match UrlHost::parse(&value) {
            // `localhost` is never resolved: a resolver might give another address than loopback.
            Some(UrlHost::Name(name)) if name == "localhost" || name == "localhost." => None,
            Some(host) => Some(host),
            None => {
                self.errors.push(
                    ConfigError::new(format!("{name} must be an address or a name, without a port{place}")).hint(
                        "127.0.0.1 can be reached from this machine only, 0.0.0.0 is every address of it; the port has \
                         a setting of its own",
                    ),
                );
                None
            }
        }
    }

    fn server_port(&mut self, written: Option<usize>) -> Option<u16> {
        let Some(value) = self.env.get(&env::API_SERVER_PORT) else {
            return written.and_then(|port| u16::try_from(port).ok());
        };
        let port = value.parse().ok();
        if port.is_none() {
            self.errors.push(ConfigError::new("`API_SERVER_PORT` must be a whole number from 0 to 65535"));
        }
        port
    }

    fn model_name(&mut self, written: Option<String>) -> String {
        let setting =
            SettingSource { var: Some(&env::API_SERVER_MODEL_NAME), path: &["server", "model_name"] };
        let Some(GivenValue { value, name, place }) = self.text(setting, written) else {
            return DEFAULT_MODEL.to_owned();
        };
        if value.chars().count() > LONGEST_MODEL || value.contains(char::is_control) {
            self.errors.push(ConfigError::new(format!(
                "{name} must be one line of at most {LONGEST_MODEL} characters{place}"
            )));
        }
        value
    }

    fn origins(&mut self, written: Option<Vec<String>>) -> Vec<WebOrigin> {
        let (list, name, place) = match self.env.get(&env::API_SERVER_CORS_ORIGINS) {
            Some(value) => {
                let list = value.split(',').map(str::to_owned).collect();
                (list, "`API_SERVER_CORS_ORIGINS`", String::new())
            }
            None => (
                written.unwrap_or_default(),
                "`server.cors_origins`",
                self.place(&["server", "cors_origins"]),
            ),
        };
        self.list(list, name, &place, |text| WebOrigin::parse(&text))
    }

    fn hosts(&mut self, written: Option<Vec<String>>) -> Vec<UrlHost> {
        let place = self.place(&["server", "hosts"]);
        self.list(written.unwrap_or_default(), "`server.hosts`", &place, |text| match UrlHost::parse(&text) {
            Some(host) => Ok(host.without_dot()),
            None => Err((
                "must be names, without `http://`, a port or `*`",
                "write each such as `agent.example.org`",
            )),
        })
    }

    /// Normalizes every entry of a list. An error is a phrase that follows the list's name, and a hint.
    fn list<T: PartialEq>(
        &mut self,
        list: Vec<String>,
        name: &str,
        place: &str,
        normal: impl Fn(String) -> Result<T, (&'static str, &'static str)>,
    ) -> Vec<T> {
        let mut normals = Vec::new();
        for entry in list.into_iter().filter_map(|entry| filled(Some(entry))) {
            match normal(entry) {
                Ok(entry) if normals.contains(&entry) => {}
                Ok(entry) => normals.push(entry),
                Err((phrase, hint)) => {
                    self.errors.push(ConfigError::new(format!("{name} {phrase}{place}")).hint(hint));
                    return Vec::new();
                }
            }
        }
        if normals.len() > LONGEST_LIST {
            self.errors.push(ConfigError::new(format!("{name} has more than {LONGEST_LIST} entries{place}")));
        }
        normals
    }
}

impl Default for ServerConfig {
    /// The values of an absent `server` section.
    fn default() -> Self {
        Self {
            host: UrlHost::Address(IpAddr::from([127, 0, 0, 1])),
            port: DEFAULT_PORT,
            key: None,
            open: false,
            cors_origins: Vec::new(),
            model_name: DEFAULT_MODEL.to_owned(),
            hosts: Vec::new(),
            runs: DEFAULT_RUNS,
            runs_per_app: DEFAULT_RUNS_PER_APP,
            explicit: false,
        }
    }
}
