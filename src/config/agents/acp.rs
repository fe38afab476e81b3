//! `kind: acp`, turns by a program of this machine that speaks the Agent Client Protocol.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{AgentSettings, EntryKind};
use crate::access::AppPermissions;
use crate::config::document::ConfigDocument;
use crate::config::mcp_servers::{EntrySwitch, ValueSection, WrittenValue};
use crate::config::resolve::{ConfigResolver, filled};
use crate::config::value::TimeSpan;
use crate::config::{ConfigError, Secret};
use crate::util::one_line;

/// The kind in the list of kinds.
pub(super) const KIND: EntryKind = EntryKind { name: "acp", read };

/// Time limit of one turn, unless the entry says otherwise. Work on a machine takes longer than an answer.
const DEFAULT_TURN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Time that a process without a turn is kept, unless the entry says otherwise. A start takes seconds, and a process holds
/// up to 600 MB.
const DEFAULT_IDLE: Duration = Duration::from_secs(15 * 60);

/// Most entries of a list of allowed actions. It is read by people.
const ALLOWED: usize = 100;

/// A program that speaks the Agent Client Protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpConfig {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The folder in which each session has a folder of its own. It need not exist yet.
    pub workspace: PathBuf,
    /// One folder for all sessions, in place of their own.
    pub cwd: Option<PathBuf>,
    /// Variables that it gets beside the short list.
    pub env: BTreeMap<String, Secret>,
    /// Variables of our environment that it gets beside the short list. Never a secret of ours.
    pub env_passthrough: Vec<String>,
    /// Answer to its requests for permission. An app's own policy holds in addition.
    pub permissions: AppPermissions,
    /// Time limit of one turn, without the time that people take to answer.
    pub turn_timeout: Duration,
    /// Time that the process of a session is kept without a turn.
    pub idle: Duration,
    /// The folder that it takes for the user's.
    pub home: HomeSetting,
    /// Whether it opens a conversation again in another process, if it says that it can. Some only say so.
    pub load: bool,
}

/// The folder that an agent takes for the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HomeSetting {
    /// That of the user who runs us: agents keep their logins there.
    #[default]
    Real,
    /// The folder of the session.
    Session,
}

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct AcpSection {
    // Read for all kinds together.
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    /// The program. Required.
    command: Option<String>,
    /// Its arguments. Default: none.
    args: Option<Vec<String>>,
    /// The folder in which each session has a folder of its own. Default: `acp/<name>` in the state folder.
    workspace: Option<String>,
    /// One folder for all sessions. Default: none.
    cwd: Option<String>,
    /// Variables that it gets beside the short list. Default: none.
    env: Option<BTreeMap<String, WrittenValue>>,
    /// Variables of our environment that it gets beside the short list. Default: none.
    env_passthrough: Option<Vec<String>>,
    /// Answer to its requests for permission. Default: `ask`.
    permissions: Option<WrittenPermissions>,
    /// Time limit of one turn. Default: `60m`.
    turn_timeout: Option<TimeSpan<1>>,
    /// Time that the process of a session is kept without a turn. Default: `15m`.
    idle: Option<TimeSpan<1>>,
    /// The folder that it takes for the user's. Default: `real`.
    home: Option<HomeSetting>,
    /// Whether it opens a conversation again in another process. Default: what it says itself.
    load: Option<bool>,
}

/// `permissions: deny`, `permissions: ask`, or `permissions: {allow: [..]}`.
struct WrittenPermissions(AppPermissions);

impl AcpConfig {
    /// A program with all defaults, whose sessions have their folders in `workspace`.
    pub fn new(command: impl Into<String>, workspace: PathBuf) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            workspace,
            cwd: None,
            env: BTreeMap::new(),
            env_passthrough: Vec::new(),
            permissions: AppPermissions::Ask,
            turn_timeout: DEFAULT_TURN_TIMEOUT,
            idle: DEFAULT_IDLE,
            home: HomeSetting::default(),
            load: true,
        }
    }
}

impl<'de> Deserialize<'de> for WrittenPermissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PermissionsVisitor).map(Self)
    }
}

struct PermissionsVisitor;

impl<'de> Visitor<'de> for PermissionsVisitor {
    type Value = AppPermissions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`deny`, `ask` or `allow: [..]`")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<AppPermissions, E> {
        match word {
            "deny" => Ok(AppPermissions::Deny),
            "ask" => Ok(AppPermissions::Ask),
            _ => Err(E::custom("`permissions` must be `deny`, `ask` or `allow: [..]`")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AppPermissions, A::Error> {
        let mut allowed: Option<Vec<String>> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "allow" if allowed.is_none() => allowed = Some(map.next_value()?),
                _ => return Err(A::Error::unknown_field(&key, &["allow"])),
            }
        }
        allowed.map(AppPermissions::Allow).ok_or_else(|| A::Error::missing_field("allow"))
    }
}

fn read(resolver: &mut ConfigResolver<'_>, document: &ConfigDocument, name: &str) -> Option<AgentSettings> {
    let path = ["agents", name];
    let written: AcpSection = document.parse_at(&path).map_err(|error| resolver.errors.push(error)).ok()?;
    let errors_before = resolver.errors.len();
    let Some(command) = filled(written.command) else {
        let place = document.place_of_key(&path);
        resolver
            .errors
            .push(ConfigError::new(format!("`agents.{name}` has no `command` {place}")).hint(
                "write the program that speaks the Agent Client Protocol, and its arguments as `args`",
            ));
        return None;
    };
    resolver.check_command(&["agents", name, "command"], &command);
    let default = AcpConfig::new(command, resolver.home.join("acp").join(name));
    let section = ValueSection { path: ["agents", name, "env"], switch: EntrySwitch::Absent };
    let permissions = written.permissions.map_or(default.permissions, |permissions| permissions.0);
    let config = AcpConfig {
        command: default.command,
        args: written.args.unwrap_or_default(),
        workspace: resolver
            .folder(&["agents", name, "workspace"], written.workspace)
            .unwrap_or(default.workspace),
        cwd: resolver.folder(&["agents", name, "cwd"], written.cwd),
        env: resolver.values(document, section, written.env),
        env_passthrough: resolver
            .variable_names(&["agents", name, "env_passthrough"], written.env_passthrough),
        permissions: resolver.allowed_actions(name, permissions),
        turn_timeout: written.turn_timeout.map_or(default.turn_timeout, |span| span.0),
        idle: written.idle.map_or(default.idle, |span| span.0),
        home: written.home.unwrap_or_default(),
        load: written.load.unwrap_or(default.load),
    };
    (resolver.errors.len() == errors_before).then_some(AgentSettings::Acp(config))
}

impl ConfigResolver<'_> {
    /// Refuses entries that would allow everything, or nothing.
    fn allowed_actions(&mut self, name: &str, permissions: AppPermissions) -> AppPermissions {
        let AppPermissions::Allow(entries) = &permissions else { return permissions };
        let fault = if entries.len() > ALLOWED {
            Some(format!("has more than {ALLOWED} entries"))
        } else if entries.iter().any(|entry| entry.trim_end_matches('*').trim().is_empty()) {
            Some("has an entry that names nothing".to_owned())
        } else {
            None
        };
        if let Some(fault) = fault {
            let place = self.place(&["agents", name, "permissions"]);
            self.errors.push(
                ConfigError::new(format!("`agents.{name}.permissions.allow` {fault}{place}")).hint(
                    "write whole commands, such as `git status`, or their beginnings with a `*` at the end; or `ask`",
                ),
            );
        }
        permissions
    }
}

impl fmt::Display for AcpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program on this machine, over ACP (`{}`)", one_line(&self.command, 200))
    }
}
