//! Checks what agents whose turns codex runs need: the program, its folder, and the variables that its own configuration
//! wants. Changes nothing, and starts nothing but `codex --version` and `codex login status`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use crate::agents::codex::binary::{CodexBinary, CodexBinaryError, find_codex};
use crate::agents::codex::codex_environment;
use crate::agents::codex::enable::{EnableSources, SharedCodexHome, codex_folder, lacks_login, read_config};
use crate::agents::codex::migration::MigratedAgent;
use crate::agents::process::environment::is_secret;
use crate::config::{
    AgentSettings, ApprovalMode, CodexConfig, CodexPermissions, Config, ConfigSources, ProfileSetting,
    SandboxMode,
};
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::codex::{CodexStatus, CodexStatusRequest};
use crate::ids::AgentName;
use crate::rules::AgentRuntime;
use crate::state_dir::StateDir;
use crate::store::look as look_into;
use crate::util::one_line;

/// Characters of a name in codex' configuration that are shown.
const NAME: usize = 80;

/// An agent whose turns codex runs.
struct CodexUser<'a> {
    name: &'a AgentName,
    codex: &'a CodexConfig,
    /// It is a model that was switched, and has no keys for codex.
    is_switched: bool,
}

/// Describes the codex of each agent whose turns codex runs: by its kind, by the configuration, or by a command.
/// `running_lines` are the lines of the running gateway about an agent: its account, its rules and its limits.
pub(super) fn look(
    config: &Config,
    sources: &ConfigSources,
    running_lines: impl Fn(&AgentName) -> Vec<String>,
    text: &mut String,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = write!(text, "\nwarning: codex could not be looked for: {error}\n");
            return;
        }
    };
    let chosen = runtime.block_on(chosen_runtimes(config, sources));
    let mut found: BTreeMap<_, Result<CodexBinary, CodexBinaryError>> = BTreeMap::new();
    for user in users(config, &chosen) {
        let command = user.codex.command.as_str();
        let environment = codex_environment(user.codex);
        let found = found
            .entry((command, environment.get(OsStr::new("PATH")).cloned()))
            .or_insert_with(|| runtime.block_on(find_codex(command, &environment)));
        describe(&user, found, &environment, text);
        if let Ok(binary) = found
            && runtime.block_on(lacks_login(user.codex, binary))
        {
            let _ = write!(
                text,
                "\nwarning: agent `{}`: codex is not logged in, so it answers nothing; run `codex login` as this user\n",
                user.name
            );
        }
        for line in running_lines(user.name) {
            let _ = write!(text, "\nagent `{}`: {line}\n", user.name);
        }
    }
    for name in runtime.block_on(unmigrated(config, &chosen)) {
        let _ = write!(
            text,
            "\nagent `{name}`: the configuration of codex is not migrated yet; run `talaria codex on --agent {name}`\n"
        );
    }
}

/// The agents whose turns codex runs.
fn users<'a>(
    config: &'a Config,
    chosen: &'a BTreeMap<AgentName, AgentRuntime>,
) -> impl Iterator<Item = CodexUser<'a>> {
    config.agents.entries.iter().filter_map(|(name, settings)| match settings {
        AgentSettings::Codex(codex) => Some(CodexUser { name, codex, is_switched: false }),
        AgentSettings::Model(model) => {
            let switch = model.switch.as_ref()?;
            let runtime = chosen.get(name).copied().unwrap_or(switch.runtime);
            let user = CodexUser { name, codex: &switch.codex, is_switched: true };
            (runtime == AgentRuntime::CodexAppServer).then_some(user)
        }
        AgentSettings::Proxy(_) | AgentSettings::Acp(_) => None,
    })
}

/// The agents on codex whose codex has nothing of ours in its configuration, although there is something for it.
async fn unmigrated(config: &Config, chosen: &BTreeMap<AgentName, AgentRuntime>) -> Vec<AgentName> {
    let on_codex: Vec<_> = users(config, chosen)
        .filter_map(|user| MigratedAgent::of(user.name, config.agents.entries.get(user.name)?))
        .collect();
    let mut found = Vec::new();
    for agent in on_codex.iter().filter(|agent| agent.is_switched || agent.codex.tools_server) {
        let sources = EnableSources::new(config, None);
        if SharedCodexHome::new(agent.clone(), on_codex.iter().cloned(), sources).is_unmigrated().await {
            found.push(agent.name.clone());
        }
    }
    found
}

/// Runtimes that were chosen with a command: asks a running process, else reads its database.
async fn chosen_runtimes(config: &Config, sources: &ConfigSources) -> BTreeMap<AgentName, AgentRuntime> {
    let Ok(_lock) = StateDir::look_at(&config.home) else {
        let asked = async {
            let client = ControlClient::open(&config.home, sources, CommandNeed::Running).await?;
            client.post::<CodexStatus>("/codex/status", &CodexStatusRequest::default()).await
        };
        // Whether it answers is told elsewhere.
        let agents = asked.await.map(|status| status.agents).unwrap_or_default();
        return agents
            .into_iter()
            .filter_map(|view| Some((AgentName::new(&view.agent)?, view.runtime?)))
            .collect();
    };
    let database = StateDir::database_of(&config.home);
    if !database.exists() {
        return BTreeMap::new();
    }
    let read = look_into(&database, |tx| tx.runtime_overrides());
    read.ok().flatten().and_then(Result::ok).unwrap_or_default()
}

fn describe(
    user: &CodexUser<'_>,
    found: &Result<CodexBinary, CodexBinaryError>,
    environment: &BTreeMap<OsString, OsString>,
    text: &mut String,
) {
    let CodexUser { name, codex, .. } = user;
    match found {
        Ok(CodexBinary { program, version }) => {
            let _ = write!(
                text,
                "\nagent `{name}`: codex {version} runs its turns (runtime: codex app-server); its program is {}\n",
                program.display()
            );
        }
        Err(error) => {
            let image = match error {
                CodexBinaryError::Missing { .. } => {
                    "; the image of Talaria has no codex, so such an agent runs on the host"
                }
                CodexBinaryError::TooOld { .. }
                | CodexBinaryError::NotStarted { .. }
                | CodexBinaryError::Silent { .. }
                | CodexBinaryError::NoVersion { .. } => "",
            };
            let _ = write!(
                text,
                "\nwarning: agent `{name}`: codex runs its turns and cannot be used: {error}; {}{image}\n",
                error.hint()
            );
        }
    }
    let Some(folder) = codex_folder(codex) else {
        let _ = write!(
            text,
            "\nwarning: agent `{name}`: codex has no folder, because neither CODEX_HOME nor HOME is set\n"
        );
        return;
    };
    let there = if folder.is_dir() { "" } else { ", which is not there yet; `codex login` makes it" };
    let _ =
        write!(text, "\nagent `{name}`: the folder of codex (CODEX_HOME) is {}{there}\n", folder.display());
    if asks_nobody(codex, &folder) {
        let _ = write!(
            text,
            "\nwarning: agent `{name}`: codex' configuration switches its sandbox off, so codex would run commands without \
             asking, and Talaria lets it answer nobody; {}\n",
            match user.is_switched {
                true =>
                    "set another sandbox there, or use an agent of `kind: codex` with a sandbox of its own"
                        .to_owned(),
                false => format!(
                    "set another one in `agents.{name}.permissions.sandbox`, or `unrestricted: true` if you mean it"
                ),
            }
        );
    }
    let ours = |variable: &str| std::env::var_os(variable).is_some();
    for (provider, variable) in wanted_variables(&folder) {
        if environment.contains_key(OsStr::new(&variable)) {
            continue;
        }
        let (provider, shown) = (one_line(&provider, NAME), one_line(&variable, NAME));
        let hint = missing_variable(user, &variable, ours(&variable));
        let _ = write!(
            text,
            "\nwarning: agent `{name}`: codex' configuration wants the variable {shown} for its provider \
             `{provider}`, and codex would not get it; {hint}\n"
        );
    }
}

/// The next step for a variable that codex does not get.
fn missing_variable(user: &CodexUser<'_>, variable: &str, is_set: bool) -> String {
    let CodexUser { name, is_switched, .. } = user;
    let shown = one_line(variable, NAME);
    match (is_switched, is_secret(variable), is_set) {
        // A switched model has no keys for codex.
        (true, _, _) => {
            "use an agent of `kind: codex`, which has the keys `env` and `env_passthrough`".to_owned()
        }
        (false, true, _) => format!(
            "it is a secret of Talaria's, which never passes by itself; name another variable in `env_key`, and set it in \
             `agents.{name}.env`"
        ),
        (false, false, true) => format!("add it to `agents.{name}.env_passthrough`"),
        (false, false, false) => format!(
            "set it in `agents.{name}.env`, or set {shown} and add it to \
             `agents.{name}.env_passthrough`"
        ),
    }
}

/// The variables with keys that the providers in use want, each after its provider. Empty for a file that cannot be read:
/// codex says that itself.
fn wanted_variables(folder: &Path) -> BTreeSet<(String, String)> {
    let text = read_config(folder);
    let Ok(document) = Document::parse(text.as_str()) else { return BTreeSet::new() };
    let root = document.as_table();
    let chosen = |table: &dyn TableLike| Some(table.get("model_provider")?.as_str()?.to_owned());
    let profiles = root.get("profiles").and_then(|profiles| profiles.as_table_like());
    let profiles = profiles.into_iter().flat_map(|profiles| profiles.iter());
    let profiles = profiles.filter_map(|(_, profile)| chosen(profile.as_table_like()?));
    let providers: BTreeSet<_> = chosen(root).into_iter().chain(profiles).collect();
    let variable = |provider: String| {
        let key = root.get("model_providers")?.get(&provider)?.get("env_key")?.as_str()?.to_owned();
        Some((provider, key))
    };
    providers.into_iter().filter_map(variable).collect()
}

/// Whether codex' configuration gives an agent no sandbox, without which codex asks for nothing, and its entry neither
/// decides otherwise nor means it.
fn asks_nobody(codex: &CodexConfig, folder: &Path) -> bool {
    let CodexPermissions { sandbox, approval, .. } = codex.permissions;
    let entry_decides = sandbox.is_some() || matches!(codex.profile, ProfileSetting::Named(_));
    if entry_decides || approval == Some(ApprovalMode::Untrusted) || codex.unrestricted {
        return false;
    }
    let text = read_config(folder);
    let Ok(document) = Document::parse(text.as_str()) else { return false };
    let is = |key: &str, value: &str| document.as_table().get(key).and_then(Item::as_str) == Some(value);
    is("sandbox_mode", SandboxMode::DangerFullAccess.wire_name())
        || is("default_permissions", ":danger-full-access")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn wanted(toml: &str) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), toml).unwrap();
        wanted_variables(folder.path()).into_iter().collect()
    }

    #[test]
    fn only_providers_in_use_want_their_variable() {
        let providers = "[model_providers.mine]\nenv_key = 'MINE_KEY'\n[model_providers.other]\nenv_key = \
                         'OTHER_KEY'\n[model_providers.open]\nbase_url = 'x'\n";
        let pair = |provider: &str, key: &str| (provider.to_owned(), key.to_owned());
        assert_eq!(wanted(providers), []);
        assert_eq!(wanted(&format!("model_provider = 'mine'\n{providers}")), [pair("mine", "MINE_KEY")]);
        assert_eq!(wanted(&format!("model_provider = 'open'\n{providers}")), []);
        let profile = format!("{providers}[profiles.work]\nmodel_provider = 'other'\n");
        assert_eq!(wanted(&profile), [pair("other", "OTHER_KEY")]);
        for odd in ["", "= x", "model_provider = 5", "model_provider = 'mine'\nmodel_providers = 3"] {
            assert_eq!(wanted(odd), [], "{odd}");
        }
        assert!(wanted_variables(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_codex_whose_own_configuration_switches_the_sandbox_off_asks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let mut codex = CodexConfig::new("/work".into());
        for (toml, warns) in [
            ("sandbox_mode = 'danger-full-access'", true),
            ("default_permissions = ':danger-full-access'\n[a]", true),
            ("sandbox_mode = 'workspace-write'", false),
            ("[profiles.x]\nsandbox_mode = 'danger-full-access'", false),
            ("", false),
            ("= x", false),
        ] {
            fs::write(folder.path().join("config.toml"), toml).unwrap();
            assert_eq!(asks_nobody(&codex, folder.path()), warns, "{toml}");
        }
        fs::write(folder.path().join("config.toml"), "sandbox_mode = 'danger-full-access'").unwrap();
        let mut answers = |change: fn(&mut CodexConfig)| {
            codex = CodexConfig::new("/work".into());
            change(&mut codex);
            assert!(!asks_nobody(&codex, folder.path()), "{codex:?}");
        };
        answers(|codex| codex.permissions.sandbox = Some(SandboxMode::ReadOnly));
        answers(|codex| codex.permissions.approval = Some(ApprovalMode::Untrusted));
        answers(|codex| codex.profile = ProfileSetting::Named(":workspace".into()));
        answers(|codex| codex.unrestricted = true);
    }

    #[test]
    fn each_variable_has_its_way_in() {
        let name = AgentName::new("coder").unwrap();
        let codex = CodexConfig::new("/work".into());
        let hint = |is_switched, variable: &str, is_set| {
            missing_variable(&CodexUser { name: &name, codex: &codex, is_switched }, variable, is_set)
        };
        assert_eq!(hint(false, "MINE", true), "add it to `agents.coder.env_passthrough`");
        assert!(hint(false, "MINE", false).starts_with("set it in `agents.coder.env`"));
        assert!(hint(false, "OPENAI_API_KEY", true).contains("a secret of Talaria's"));
        assert!(hint(true, "MINE", true).contains("`kind: codex`"));
    }
}
