//! `kind: codex`, turns by a `codex app-server` that runs on this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{AgentSettings, EntryKind};
use crate::config::document::ConfigDocument;
use crate::config::mcp_servers::{EntrySwitch, ValueSection, WrittenValue};
use crate::config::resolve::{ConfigResolver, SettingSource, filled};
use crate::config::value::TimeSpan;
use crate::config::yaml_lines::KeyedMapping;
use crate::config::{ConfigError, Secret};
use crate::util::one_line;

/// The kind in the list of kinds.
pub(super) const KIND: EntryKind = EntryKind { name: "codex", read };

/// The program, unless the entry names another.
const DEFAULT_COMMAND: &str = "codex";

/// Time limit of one turn, unless the entry says otherwise. Work on a machine takes longer than an answer.
const DEFAULT_TURN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Time that a process without turns is kept, unless the entry says otherwise. A start takes half a second, and a process
/// holds about 150 MB.
const DEFAULT_IDLE: Duration = Duration::from_secs(15 * 60);

/// Most characters of a name that is passed on to codex.
const LONGEST_NAME: usize = 128;

/// A `codex app-server` of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodexConfig {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub command: String,
    /// The folder of its configuration and its threads; `None` for the one that codex chooses.
    pub codex_home: Option<PathBuf>,
    /// The folder in which each session has a folder of its own. It need not exist yet.
    pub workspace: PathBuf,
    /// One folder for all sessions, in place of their own.
    pub cwd: Option<PathBuf>,
    /// The model; `None` for the one of codex' own configuration.
    pub model: Option<String>,
    /// The effort of its reasoning; `None` for the one of codex' own configuration.
    pub effort: Option<String>,
    /// Variables that it gets beside the short list.
    pub env: BTreeMap<String, Secret>,
    /// Variables of our environment that it gets beside the short list. Never a secret of ours.
    pub env_passthrough: Vec<String>,
    /// Time limit of one turn, without the time that people take to answer.
    pub turn_timeout: Duration,
    /// Time that the process is kept without turns.
    pub idle: Duration,
    /// Rules for the commands that it runs.
    pub permissions: CodexPermissions,
    /// The permission profile.
    pub profile: ProfileSetting,
    /// Whether the migration writes plugins.
    pub plugins: bool,
    /// Whether the migration writes our tools server.
    pub tools_server: bool,
    /// Whether it may serve rooms and apps without a sandbox and without approvals.
    pub unrestricted: bool,
}

/// `agents.<name>.permissions`. Everything that is `None` is left to codex' own configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodexPermissions {
    /// Whether a person is asked if codex wants more than its sandbox allows.
    pub escalation: PermissionPolicy,
    /// The sandbox of its commands.
    pub sandbox: Option<SandboxMode>,
    /// The actions that it asks for.
    pub approval: Option<ApprovalMode>,
}

/// The answer to a wish for more permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PermissionPolicy {
    /// It is declined, and a line says so.
    #[default]
    Decline,
    /// A person is asked.
    Ask,
}

/// A sandbox, by codex' own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands write nothing.
    ReadOnly,
    /// Commands write into the folder of the session.
    WorkspaceWrite,
    /// There is no sandbox.
    DangerFullAccess,
}

/// Actions that codex asks for, by its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// Everything but a few commands that only read.
    Untrusted,
    /// Everything that the sandbox does not allow.
    OnRequest,
    /// Nothing: what the sandbox does not allow fails.
    Never,
}

/// `agents.<name>.profile`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProfileSetting {
    /// Threads follow codex' own configuration, into which the migration writes `:workspace`.
    #[default]
    Default,
    /// Threads follow codex' own configuration, and the migration writes none.
    None,
    /// Threads have the profile with this name, and the migration writes it.
    Named(String),
}

/// As written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct CodexSection {
    // Read for all kinds together.
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(rename = "access")]
    _access: Option<IgnoredAny>,
    /// The program. Default: `codex`, looked up in `PATH`.
    command: Option<String>,
    /// The folder of codex' configuration and threads. Default: `CODEX_HOME`, or codex' own choice.
    codex_home: Option<String>,
    /// The folder in which each session has a folder of its own. Default: `codex/<name>` in the state folder.
    workspace: Option<String>,
    /// One folder for all sessions. Default: none.
    cwd: Option<String>,
    /// The model. Default: codex' own configuration decides.
    model: Option<String>,
    /// The effort of its reasoning. Default: codex' own configuration decides.
    effort: Option<String>,
    /// Variables that it gets beside the short list. Default: none.
    env: Option<BTreeMap<String, WrittenValue>>,
    /// Variables of our environment that it gets beside the short list. Default: none.
    env_passthrough: Option<Vec<String>>,
    /// Time limit of one turn. Default: `60m`.
    turn_timeout: Option<TimeSpan<1>>,
    /// Time that the process is kept without turns. Default: `15m`.
    idle: Option<TimeSpan<1>>,
    /// Rules for the commands that it runs.
    permissions: Option<KeyedMapping<CodexPermissionsSection>>,
    /// The permission profile. Default: `:workspace`, unless codex' own configuration has one.
    profile: Option<String>,
    /// Whether the migration writes plugins. Default: `true`.
    plugins: Option<bool>,
    /// Whether the migration writes our tools server. Default: `true`.
    tools_server: Option<bool>,
    /// Whether it may run commands without a sandbox and without asking. Default: `false`.
    unrestricted: Option<bool>,
}

/// `agents.<name>.permissions:`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct CodexPermissionsSection {
    /// The answer to a wish for more permissions. Default: `decline`.
    escalation: Option<PermissionPolicy>,
    /// The sandbox. Default: codex' own configuration decides.
    sandbox: Option<SandboxMode>,
    /// The actions that it asks for. Default: codex' own configuration decides.
    approval: Option<ApprovalMode>,
}

impl CodexConfig {
    /// A codex with all defaults, whose sessions have their folders in `workspace`.
    pub fn new(workspace: PathBuf) -> Self {
        Self {
            command: DEFAULT_COMMAND.to_owned(),
            codex_home: None,
            workspace,
            cwd: None,
            model: None,
            effort: None,
            env: BTreeMap::new(),
            env_passthrough: Vec::new(),
            turn_timeout: DEFAULT_TURN_TIMEOUT,
            idle: DEFAULT_IDLE,
            permissions: CodexPermissions::default(),
            profile: ProfileSetting::Default,
            plugins: true,
            tools_server: true,
            unrestricted: false,
        }
    }
}

impl SandboxMode {
    /// The name on codex' wire, where threads are started.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

impl ApprovalMode {
    /// The name on codex' wire.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::OnRequest => "on-request",
            Self::Never => "never",
        }
    }
}

fn read(resolver: &mut ConfigResolver<'_>, document: &ConfigDocument, name: &str) -> Option<AgentSettings> {
    let path = ["agents", name];
    let written: CodexSection = document.parse_at(&path).map_err(|error| resolver.errors.push(error)).ok()?;
    let errors_before = resolver.errors.len();
    let default = CodexConfig::new(resolver.home.join("codex").join(name));
    let command = filled(written.command).unwrap_or(default.command);
    resolver.check_command(&["agents", name, "command"], &command);
    let section = ValueSection { path: ["agents", name, "env"], switch: EntrySwitch::Absent };
    let permissions = written.permissions.unwrap_or_default().0;
    let config = CodexConfig {
        command,
        codex_home: resolver.folder(&["agents", name, "codex_home"], written.codex_home),
        workspace: resolver
            .folder(&["agents", name, "workspace"], written.workspace)
            .unwrap_or(default.workspace),
        cwd: resolver.folder(&["agents", name, "cwd"], written.cwd),
        model: resolver.plain_name(name, "model", written.model),
        effort: resolver.plain_name(name, "effort", written.effort),
        env: resolver.values(document, section, written.env),
        env_passthrough: resolver
            .variable_names(&["agents", name, "env_passthrough"], written.env_passthrough),
        turn_timeout: written.turn_timeout.map_or(default.turn_timeout, |span| span.0),
        idle: written.idle.map_or(default.idle, |span| span.0),
        permissions: CodexPermissions {
            escalation: permissions.escalation.unwrap_or_default(),
            sandbox: permissions.sandbox,
            approval: permissions.approval,
        },
        profile: match resolver.plain_name(name, "profile", written.profile) {
            None => ProfileSetting::Default,
            Some(profile) if profile == "none" => ProfileSetting::None,
            Some(profile) => ProfileSetting::Named(profile),
        },
        plugins: written.plugins.unwrap_or(default.plugins),
        tools_server: written.tools_server.unwrap_or(default.tools_server),
        unrestricted: written.unrestricted.unwrap_or(default.unrestricted),
    };
    resolver.check_restrictions(name, &config);
    (resolver.errors.len() == errors_before).then_some(AgentSettings::Codex(config))
}

impl ConfigResolver<'_> {
    /// A name that is passed on to codex as it is.
    fn plain_name(&mut self, agent: &str, key: &str, written: Option<String>) -> Option<String> {
        let path = ["agents", agent, key];
        let given = self.text(SettingSource { var: None, path: &path }, written)?;
        let name = given.value;
        if name.chars().count() <= LONGEST_NAME
            && !name.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            return Some(name);
        }
        self.errors.push(
            ConfigError::new(format!(
                "{} must be a name of at most {LONGEST_NAME} characters without spaces{}",
                given.name, given.place
            ))
            .hint("write the name that codex knows, or leave the key out"),
        );
        None
    }

    /// Refuses settings that exclude each other, or that let everybody do everything by a slip.
    fn check_restrictions(&mut self, name: &str, config: &CodexConfig) {
        let CodexPermissions { sandbox, approval, .. } = config.permissions;
        if sandbox.is_some() && matches!(config.profile, ProfileSetting::Named(_)) {
            let place = self.place(&["agents", name, "profile"]);
            self.errors.push(
                ConfigError::new(format!(
                    "`agents.{name}` has both `profile` and `permissions.sandbox`, of which codex takes one{place}"
                ))
                .hint("keep `profile`, which says more, or `permissions.sandbox`"),
            );
        }
        let (is_open, key) = match &config.profile {
            ProfileSetting::Named(profile) => (profile == ":danger-full-access", "profile"),
            ProfileSetting::Default | ProfileSetting::None => {
                (sandbox == Some(SandboxMode::DangerFullAccess), "permissions")
            }
        };
        // Every other rule asks for what the sandbox does not allow, which is nothing without one. That goes for those
        // that codex' own configuration can have, too.
        if is_open && approval != Some(ApprovalMode::Untrusted) && !config.unrestricted {
            let place = self.place(&["agents", name, key]);
            self.errors.push(
                ConfigError::new(format!(
                    "`agents.{name}` would run commands without a sandbox and without asking{place}"
                ))
                .hint(
                    "write `approval: untrusted` below `permissions`, another sandbox, or `unrestricted: true` if you mean \
                     it",
                ),
            );
        }
    }
}

impl fmt::Display for CodexConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "codex on this machine (`{} app-server`)", one_line(&self.command, 200))?;
        match &self.model {
            Some(model) => write!(f, ", model {model}"),
            None => Ok(()),
        }
    }
}
