//! Tests: agents of kind `codex`.

use std::time::Duration;

use super::*;
use crate::access::AgentAccess;
use crate::config::{ApprovalMode, CodexConfig, PermissionPolicy, ProfileSetting, SandboxMode};
use crate::ids::AgentName;

fn codex(scene: &Scene) -> CodexConfig {
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    match config.agents.entries.get(&AgentName::new("coder").unwrap()) {
        Some(AgentSettings::Codex(codex)) => codex.clone(),
        other => panic!("not codex: {other:?}"),
    }
}

fn errors(text: &str) -> String {
    Scene::new().file(text).errors()
}

#[test]
fn an_entry_without_keys_is_a_codex_for_admins_with_a_folder_in_the_state_folder() {
    let scene = Scene::new().file("agents:\n  coder: {kind: codex}\n");
    let config = codex(&scene);
    assert_eq!(config, CodexConfig::new(scene.path("home/codex/coder")));
    assert_eq!((config.turn_timeout, config.command.as_str()), (Duration::from_secs(3600), "codex"));
    let loaded = scene.load().unwrap();
    let policy = &loaded.rules.agents.by_name[&AgentName::new("coder").unwrap()];
    assert_eq!(policy.access, AgentAccess::default());
    let described = loaded.describe().replace(&scene.folder.path().display().to_string(), "");
    assert!(described.contains("codex on this machine (`codex app-server`)"), "{described}");
    assert!(described.contains("folder /home/codex/coder"), "{described}");
}

#[test]
fn every_key_arrives() {
    let scene = Scene::new().var("TOKEN", "a long token").file(
        "agents:\n  coder:\n    kind: codex\n    command: /opt/codex\n    codex_home: /srv/home\n    workspace: \
         /srv/work\n    cwd: /srv/project\n    model: m\n    effort: high\n    env: {KEY: '${TOKEN}'}\n    \
         env_passthrough: [EDITOR]\n    turn_timeout: 5m\n    idle: 10s\n    permissions: {escalation: ask, approval: \
         untrusted}\n    profile: ':read-only'\n    plugins: false\n    tools_server: false\n    unrestricted: true\n",
    );
    let config = codex(&scene);
    let path = |folder: Option<PathBuf>| folder.map(|folder| folder.display().to_string());
    assert_eq!(path(config.codex_home.clone()).as_deref(), Some("/srv/home"));
    assert_eq!(path(config.cwd.clone()).as_deref(), Some("/srv/project"));
    assert_eq!(config.workspace, Path::new("/srv/work"));
    assert_eq!((config.model.as_deref(), config.effort.as_deref()), (Some("m"), Some("high")));
    assert_eq!(config.env["KEY"].expose(), "a long token");
    assert_eq!(config.env_passthrough, ["EDITOR"]);
    assert_eq!((config.turn_timeout, config.idle), (Duration::from_secs(300), Duration::from_secs(10)));
    assert_eq!(config.permissions.escalation, PermissionPolicy::Ask);
    assert_eq!(config.permissions.approval, Some(ApprovalMode::Untrusted));
    assert_eq!(config.permissions.sandbox, None);
    assert_eq!(config.profile, ProfileSetting::Named(":read-only".into()));
    assert!(!config.plugins && !config.tools_server && config.unrestricted);
    // The log masks the values of variables.
    let masked: Vec<_> = scene.load().unwrap().secrets().iter().map(|key| key.expose().to_owned()).collect();
    assert_eq!(masked, ["a long token", "long token"]);
}

#[test]
fn a_codex_without_a_sandbox_that_asks_nobody_must_be_meant() {
    let entry = |keys: &str| format!("agents:\n  coder: {{kind: codex, {keys}}}\n");
    let full = "permissions: {sandbox: danger-full-access, approval: on-request}";
    insta::assert_snapshot!(errors(&entry(full)), @"
    error: `agents.coder` would run commands without a sandbox and without asking (talaria.yaml, line 2)

    hint: write `approval: untrusted` below `permissions`, another sandbox, or `unrestricted: true` if you mean it
    ");
    // Without an approval of its own it has one of those that ask for nothing then.
    for open in [
        "permissions: {sandbox: danger-full-access, approval: never}",
        "permissions: {sandbox: danger-full-access}",
        "profile: ':danger-full-access'",
        "profile: ':danger-full-access', permissions: {approval: on-request}",
    ] {
        assert!(errors(&entry(open)).contains("without a sandbox and without asking"), "{open}");
        assert!(codex(&Scene::new().file(entry(&format!("{open}, unrestricted: true")))).unrestricted);
    }
    let asks = Scene::new().file(entry("permissions: {sandbox: danger-full-access, approval: untrusted}"));
    assert_eq!(codex(&asks).permissions.sandbox, Some(SandboxMode::DangerFullAccess));
}

#[test]
fn wrong_values_are_named() {
    insta::assert_snapshot!(errors(
        "agents:\n  coder: {kind: codex, command: codex app-server, profile: ':x', permissions: {sandbox: read-only}, \
         model: 'a b', env_passthrough: ['A=b'], env: {A: '${UNSET_ONE}'}}\n"
    ), @"
    error: `agents.coder.command` must be a program alone (talaria.yaml, line 2)

    hint: write its path or its name; no shell runs it

    error: `agents.coder.model` must be a name of at most 128 characters without spaces (talaria.yaml, line 2)

    hint: write the name that codex knows, or leave the key out

    error: `agents.coder.env.A` takes the variable `UNSET_ONE`, which is not set (talaria.yaml, line 2)

    hint: set it where Talaria is started

    error: `agents.coder.env_passthrough` holds what cannot be the name of a variable (talaria.yaml, line 2)

    hint: write names alone, such as `[LANG, HTTPS_PROXY]`; there are no patterns and no values

    error: `agents.coder` has both `profile` and `permissions.sandbox`, of which codex takes one (talaria.yaml, line 2)

    hint: keep `profile`, which says more, or `permissions.sandbox`
    ");
    let unknown = errors("agents:\n  coder: {kind: codex, permissions: {sandbox: none}}\n");
    assert!(unknown.contains("workspace-write") && unknown.contains("line 2"), "{unknown}");
}

#[cfg(feature = "testing")]
#[test]
fn a_room_has_a_folder_of_its_own_which_must_not_reach_files_of_ours() {
    let file = |folder: &str, agent: &str| {
        Scene::new().file(format!(
            "agents:\n  {agent}\nplatforms:\n  test:\n    socket: /s\n    access: {{admins: ['@root:t']}}\n    \
             places: {{'!lab': {{folder: {folder}}}}}\n"
        ))
    };
    let coder = "coder: {kind: codex}";
    let config = file("/srv/garden", coder).load().unwrap();
    let account = config.rules.accounts.values().next().unwrap();
    let folder = |room: &str| {
        account.folder_in(&talaria_platform::RoomId::new(room)).map(|folder| folder.display().to_string())
    };
    assert_eq!((folder("!lab").as_deref(), folder("!other")), (Some("/srv/garden"), None));
    let errors = file("/", coder).errors();
    assert!(
        errors.contains("`platforms.test.places.!lab.folder` is the root of the file system"),
        "{errors}"
    );
    let errors = file("'~/garden'", coder).errors();
    assert!(errors.contains("`platforms.test.places.!lab.folder` begins with `~`"), "{errors}");
    let warnings =
        file("/srv/garden", "far: {kind: proxy, url: 'http://127.0.0.1:1'}").load().unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("folder` has no effect")), "{warnings:?}");
}

#[test]
fn its_folders_must_not_reach_files_of_ours() {
    let scene = Scene::new();
    let home = scene.path("home").display().to_string();
    let scene = scene.file(format!("agents:\n  coder: {{kind: codex, cwd: '{home}'}}\n"));
    let errors = scene.errors();
    assert!(errors.contains("`agents.coder.cwd` lies in "), "{errors}");
}
