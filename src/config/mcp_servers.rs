//! Reads `mcp_servers`: the servers whose tools agents may call.
//!
//! Values of `env` and `headers` may be secrets, so they are kept as such: they appear in no message, and the log masks
//! them.

mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::document::{ConfigDocument, FileAccess};
use super::resolve::{ConfigResolver, SettingSource, filled};
use super::secret::SecretForm;
use super::tool_settings::{McpServerConfig, McpTransport, ToolPermission, ValueOrigin};
use super::value::TimeSpan;
use super::yaml_lines::KeyedMapping;
use super::{BaseUrl, ConfigError, Secret};
use crate::util::one_line;
use variables::{VariableFault, fill_variables, has_variable, origin_of};
pub(super) use variables::{is_variable, shown as shown_variable};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Values of at least this length are masked in the log under every name. Shorter ones are words such as `debug`,
/// and the log would be unreadable without them.
const LEAST_MASKED: usize = 8;

/// Headers that the protocol itself sets.
const PROTOCOL_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// `mcp_servers:` as written.
pub(super) type WrittenServers = BTreeMap<String, Option<KeyedMapping<McpServerSection>>>;

/// `mcp_servers.<name>:` as written.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServerSection {
    /// The program. No default: it or `url` is needed.
    command: Option<String>,
    /// Its arguments. Default: none.
    args: Option<Vec<String>>,
    /// Variables that it gets beside the short list. Default: none.
    env: Option<BTreeMap<String, WrittenValue>>,
    /// Its folder. Default: `mcp/<name>` in the state folder.
    cwd: Option<String>,
    /// Address of a server that speaks streamable HTTP. No default: it or `command` is needed.
    url: Option<String>,
    /// Headers of every request. Default: none.
    headers: Option<BTreeMap<String, WrittenValue>>,
    /// Time limit of one tool call. Default: `60s`.
    timeout: Option<TimeSpan<1>>,
    /// Time limit for starting the server and learning its tools. Default: `30s`.
    connect_timeout: Option<TimeSpan<1>>,
    /// Whether the server may be started at all. Default: `true`.
    enabled: Option<bool>,
    /// Tools that are offered. Default: all.
    include: Option<Vec<String>>,
    /// Tools that are never offered. Default: none.
    exclude: Option<Vec<String>>,
    /// Whether each tool may be called. Default: `ask`.
    permissions: Option<BTreeMap<String, ToolPermission>>,
}

/// A value of `env` or `headers` as written, with its variables.
#[derive(Debug)]
pub(super) struct WrittenValue(Secret);

/// A list of values that may be secrets: variables of a program, or headers.
#[derive(Clone, Copy)]
pub(super) struct ValueSection<'a> {
    /// The keys that lead to it, such as `mcp_servers`, `time`, `env`.
    pub(super) path: [&'a str; 3],
    /// Whether the entry that has it can be switched off, and is.
    pub(super) switch: EntrySwitch,
}

/// The key `enabled` of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySwitch {
    /// Such an entry has no such key.
    Absent,
    /// The entry is used.
    On,
    /// The entry is not used, so it needs none of its variables.
    Off,
}

impl<'de> Deserialize<'de> for WrittenValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl Visitor<'_> for ValueVisitor {
            type Value = WrittenValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, in quotes if it has special characters")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WrittenValue, E> {
                Ok(WrittenValue(Secret::from(text.trim().to_owned())))
            }
        }

        // As text even if it looks like a number.
        deserializer.deserialize_str(ValueVisitor)
    }
}

impl McpServerConfig {
    /// Values that the log masks.
    pub(super) fn secrets(&self) -> impl Iterator<Item = Secret> {
        let values = match &self.transport {
            McpTransport::Stdio { env, .. } => env,
            McpTransport::Http { headers, .. } => headers,
        };
        masked_values(values)
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", env)
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => {
                f.debug_struct("Http").field("url", url).field("headers", headers).finish()
            }
        }
    }
}

impl fmt::Display for McpTransport {
    /// The program or the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, .. } => {
                f.write_str(&one_line(command, 200))?;
                match args.len() {
                    0 => Ok(()),
                    1 => f.write_str(" with an argument"),
                    count => write!(f, " with {count} arguments"),
                }
            }
            Self::Http { url, .. } => f.write_str(url.as_str()),
        }
    }
}

impl ConfigResolver<'_> {
    /// Resolves all servers. Faulty ones are left out with an error.
    pub(super) fn mcp_servers(&mut self, written: WrittenServers) -> BTreeMap<String, McpServerConfig> {
        let absent = ConfigDocument::absent();
        let document = self.document.unwrap_or(&absent);
        let mut servers = BTreeMap::new();
        for (name, written) in written {
            if !is_server_name(&name) {
                let place = document.place_of_key(&["mcp_servers", &name]);
                self.errors.push(
                    ConfigError::new(format!("`mcp_servers` has a name that cannot be used {place}"))
                        .hint("names are 1 to 32 letters, digits, `_` and `-`"),
                );
                continue;
            }
            let written = written.unwrap_or_default().0;
            let before = self.errors.len();
            let server = self.mcp_server(document, &name, written);
            if let Some(server) = server.filter(|_| self.errors.len() == before) {
                servers.insert(name, server);
            }
        }
        servers
    }

    /// Resolves one server. `None` only with an error.
    fn mcp_server(
        &mut self,
        document: &ConfigDocument,
        name: &str,
        written: McpServerSection,
    ) -> Option<McpServerConfig> {
        let enabled = written.enabled.unwrap_or(true);
        let switch = if enabled { EntrySwitch::On } else { EntrySwitch::Off };
        let exclude = self.tool_names(name, "exclude", written.exclude).unwrap_or_default();
        let include = self.tool_names(name, "include", written.include);
        if include.iter().flatten().any(|tool| exclude.contains(tool)) {
            self.warnings.push(format!(
                "`mcp_servers.{name}.include` names a tool that `exclude` names, too; it is not offered"
            ));
        }
        let origins = origins_of(written.env.iter().chain(&written.headers).flatten());
        let command = filled(written.command);
        let url = self.text(SettingSource { var: None, path: &["mcp_servers", name, "url"] }, written.url);
        let transport = match (command, url) {
            (Some(_), Some(_)) => {
                let place = document.place_of_key(&["mcp_servers", name]);
                self.errors.push(
                    ConfigError::new(format!("`mcp_servers.{name}` has both `command` and `url` {place}"))
                        .hint("keep `command` for a program that Talaria starts, or `url` for a server that runs already"),
                );
                return None;
            }
            (None, None) => {
                let place = document.place_of_key(&["mcp_servers", name]);
                self.errors.push(
                    ConfigError::new(format!("`mcp_servers.{name}` has neither `command` nor `url` {place}"))
                        .hint("write the program that Talaria starts, such as `command: npx`, or the address of the server"),
                );
                return None;
            }
            (Some(command), None) => {
                self.refuse_key(name, "headers", written.headers.is_some(), "url");
                self.check_command(&["mcp_servers", name, "command"], &command);
                let args = written.args.unwrap_or_default();
                if args.iter().any(|arg| has_variable(arg)) {
                    self.warnings.push(format!(
                        "`mcp_servers.{name}.args` has a `${{…}}`, which is replaced only in `env` and `headers`; the \
                         program gets it as written"
                    ));
                }
                let section = ValueSection { path: ["mcp_servers", name, "env"], switch };
                let env = self.values(document, section, written.env);
                let cwd = self.folder(&["mcp_servers", name, "cwd"], written.cwd);
                McpTransport::Stdio { command, args, env, cwd }
            }
            (None, Some(given)) => {
                for (key, is_written) in [
                    ("args", written.args.is_some()),
                    ("env", written.env.is_some()),
                    ("cwd", written.cwd.is_some()),
                ] {
                    self.refuse_key(name, key, is_written, "command");
                }
                let section = ValueSection { path: ["mcp_servers", name, "headers"], switch };
                let headers = self.values(document, section, written.headers);
                let url = self.url(&given)?;
                self.guard_headers(name, &url, !headers.is_empty(), &given.place);
                McpTransport::Http { url, headers }
            }
        };
        Some(McpServerConfig {
            transport,
            enabled,
            connect_timeout: written.connect_timeout.map_or(DEFAULT_CONNECT_TIMEOUT, |span| span.0),
            timeout: written.timeout.map_or(DEFAULT_TIMEOUT, |span| span.0),
            include,
            exclude,
            permissions: written.permissions.unwrap_or_default(),
            origins,
        })
    }

    /// Refuses a key that belongs to the other kind of server.
    fn refuse_key(&mut self, name: &str, key: &str, is_written: bool, needs: &str) {
        if is_written {
            let place = self.place(&["mcp_servers", name, key]);
            self.errors.push(
                ConfigError::new(format!(
                    "`mcp_servers.{name}.{key}` has no meaning without `{needs}`{place}"
                ))
                .hint(
                    "`args`, `env` and `cwd` are for a program (`command`), `headers` for an address (`url`)",
                ),
            );
        }
    }

    /// Refuses a whole command line in place of a program. A path may have spaces if there is such a file.
    pub(super) fn check_command(&mut self, path: &[&str], command: &str) {
        let key = path.join(".");
        if command.contains(char::is_whitespace) && !Path::new(command).exists() {
            let place = self.place(path);
            let hint = match path.first() {
                Some(&"mcp_servers") => {
                    "write its arguments as a list, such as `args: [\"-y\", \"some-server\"]`; no shell runs it"
                }
                Some(_) | None => "write its path or its name; no shell runs it",
            };
            let error = ConfigError::new(format!("`{key}` must be a program alone{place}"));
            self.errors.push(error.hint(hint));
        } else if command.starts_with("~/") {
            let place = self.place(path);
            self.errors.push(
                ConfigError::new(format!("`{key}` begins with `~`, which only a shell replaces{place}"))
                    .hint("write the whole path"),
            );
        }
    }

    /// The names of tools in a list.
    fn tool_names(&mut self, name: &str, key: &str, written: Option<Vec<String>>) -> Option<Vec<String>> {
        let written = written?;
        let wrong = |tool: &String| tool.is_empty() || tool.contains(|c: char| c.is_whitespace() || c == '*');
        if written.iter().any(wrong) {
            let place = self.place(&["mcp_servers", name, key]);
            self.errors.push(
                ConfigError::new(format!(
                    "`mcp_servers.{name}.{key}` holds what cannot be the name of a tool{place}"
                ))
                .hint("write the names that the server gives its tools; there are no patterns"),
            );
        }
        let unique: BTreeSet<String> = written.into_iter().collect();
        Some(unique.into_iter().collect())
    }

    /// Fills in the values of `env` or `headers`.
    pub(super) fn values(
        &mut self,
        document: &ConfigDocument,
        section: ValueSection<'_>,
        written: Option<BTreeMap<String, WrittenValue>>,
    ) -> BTreeMap<String, Secret> {
        let mut values = BTreeMap::new();
        let [group, entry, list] = section.path;
        for (name, WrittenValue(written)) in written.unwrap_or_default() {
            let path = [group, entry, list, &name];
            let is_header = list == "headers";
            if let Some(fault) = if is_header { header_fault(&name) } else { variable_fault(&name) } {
                let place = document.place_of_key(&path);
                self.errors.push(
                    ConfigError::new(format!("`{group}.{entry}.{list}` has {} {place}", fault.0))
                        .hint(fault.1),
                );
                continue;
            }
            // A key that got there by a slip is not shown; it has more than letters.
            let plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
            let is_shown = if is_header { name.bytes().all(plain) } else { shown_variable(&name).is_some() };
            let key = match is_shown {
                true => format!("{group}.{entry}.{list}.{name}"),
                false => format!("{group}.{entry}.{list}"),
            };
            let place = document.place(&path);
            if sounds_secret(&name) && !has_variable(written.expose()) {
                self.guard_literal(document, &key, &place);
            }
            let value = match fill_variables(written.expose(), self.env) {
                Ok(value) => value,
                Err(VariableFault::Unset(_)) if section.switch == EntrySwitch::Off => continue,
                Err(VariableFault::Unset(variable)) => {
                    let variable = match variable {
                        Some(variable) => format!("the variable `{variable}`"),
                        None => "a variable".to_owned(),
                    };
                    let hint = "set it where Talaria is started";
                    let hint = match section.switch {
                        EntrySwitch::Absent => hint.to_owned(),
                        EntrySwitch::On | EntrySwitch::Off => {
                            format!("{hint}; or write `{group}.{entry}.enabled: false`")
                        }
                    };
                    self.errors.push(
                        ConfigError::new(format!("`{key}` takes {variable}, which is not set {place}"))
                            .hint(hint),
                    );
                    continue;
                }
                Err(VariableFault::Unclosed) => {
                    self.errors.push(
                        ConfigError::new(format!(
                            "`{key}` has a `${{` without the name of a variable {place}"
                        ))
                        .hint("write `${NAME}`; or `$${` if the value has `${` in it"),
                    );
                    continue;
                }
            };
            let form = if is_header { SecretForm::Key } else { SecretForm::Phrase };
            match Secret::parse(&value, form) {
                Ok(value) => _ = values.insert(name, value.unwrap_or_else(|| Secret::from(String::new()))),
                Err(expected) => {
                    self.errors.push(
                        ConfigError::new(format!("`{key}` must be {expected} {place}"))
                            .hint("copy the value again, without line breaks"),
                    );
                }
            }
        }
        values
    }

    /// Refuses a secret in a configuration file that others can read or have written.
    fn guard_literal(&mut self, document: &ConfigDocument, key: &str, place: &str) {
        let (whose, hint) = match document.access() {
            FileAccess::Private => return,
            FileAccess::Shared => {
                ("is open to other users", format!("run `chmod 600 {}`, or write", document.name()))
            }
            FileAccess::Foreign => ("belongs to another user", "write".to_owned()),
        };
        self.errors.push(
            ConfigError::new(format!("`{key}` holds a key, but the file {whose} {place}"))
                .hint(format!("{hint} `${{NAME}}` and set that variable where Talaria is started")),
        );
    }

    /// Refuses to send headers in the clear over a public network: one of them is usually a key.
    fn guard_headers(&mut self, name: &str, url: &BaseUrl, has_headers: bool, place: &str) {
        if url.is_encrypted() || url.is_near() {
            return;
        }
        if has_headers {
            self.errors.push(
                ConfigError::new(format!(
                    "`mcp_servers.{name}.url` would carry the headers unencrypted over a public network{place}"
                ))
                .hint("use `https://`, a private address or a tunnel"),
            );
        } else {
            self.warnings.push(format!(
                "`mcp_servers.{name}.url` is a public `http://` address, so everybody on the way can read and change \
                 what tools do; use `https://`"
            ));
        }
    }
}

/// Whether a server can have this name. Tools are called by it, so it has only what model servers take.
pub(super) fn is_server_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

/// Why no header of ours can have this name, and what to do.
fn header_fault(name: &str) -> Option<(&'static str, &'static str)> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Some((
            "a name that no header can have",
            "names of headers have letters, digits, `_` and `-`, such as `Authorization`",
        ));
    }
    PROTOCOL_HEADERS
        .iter()
        .any(|header| header.eq_ignore_ascii_case(name))
        .then_some(("a header that the protocol itself sets", "remove it"))
}

/// Why no variable can have this name, and what to do.
fn variable_fault(name: &str) -> Option<(&'static str, &'static str)> {
    (!is_variable(name)).then_some((
        "a name that no variable can have",
        "names of variables have letters, digits and `_`, such as `API_TOKEN`",
    ))
}

/// The values that the log masks: those that are long, or whose names say that they are secret.
pub(super) fn masked_values(values: &BTreeMap<String, Secret>) -> impl Iterator<Item = Secret> {
    let masked = |(name, value): &(&String, &Secret)| {
        let length = value.expose().chars().count();
        length >= LEAST_MASKED || length > 0 && sounds_secret(name)
    };
    // `Bearer abc` is also masked where `abc` stands alone.
    let parts = |(_, value): (&String, &Secret)| {
        let word = value.expose().split_once(' ').map(|(_, word)| Secret::from(word.to_owned()));
        let word = word.filter(|word| word.expose().chars().count() >= LEAST_MASKED);
        std::iter::once(value.clone()).chain(word)
    };
    values.iter().filter(masked).flat_map(parts)
}

/// Sources of the values, by their names.
fn origins_of<'a>(
    written: impl Iterator<Item = (&'a String, &'a WrittenValue)>,
) -> BTreeMap<String, ValueOrigin> {
    let origin = |(name, WrittenValue(value)): (&String, &WrittenValue)| match origin_of(value.expose()) {
        ValueOrigin::Literal if sounds_secret(name) => (name.clone(), ValueOrigin::SecretLiteral),
        origin => (name.clone(), origin),
    };
    written.map(origin).collect()
}

/// Whether the name of a variable or a header says that its value is secret.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["auth", "cookie", "credential", "key", "pass", "secret", "token"].iter().any(|word| name.contains(word))
}
