//! Tests: agents of kind `acp`.

use std::time::Duration;

use super::*;
use crate::access::{AgentAccess, AppPermissions};
use crate::config::{AcpConfig, HomeSetting};
use crate::ids::AgentName;

fn acp(scene: &Scene, name: &str) -> AcpConfig {
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    match config.agents.entries.get(&AgentName::new(name).unwrap()) {
        Some(AgentSettings::Acp(acp)) => acp.clone(),
        other => panic!("not acp: {other:?}"),
    }
}

fn errors(text: &str) -> String {
    Scene::new().file(text).errors()
}

#[test]
fn a_command_alone_is_an_acp_agent_for_admins_that_asks() {
    let scene = Scene::new().file("agents:\n  claude: {command: claude-agent-acp}\n");
    let config = acp(&scene, "claude");
    assert_eq!(config, AcpConfig::new("claude-agent-acp", scene.path("home/acp/claude")));
    assert_eq!(config.permissions, AppPermissions::Ask);
    assert_eq!((config.turn_timeout, config.idle), (Duration::from_secs(3600), Duration::from_secs(900)));
    let loaded = scene.load().unwrap();
    let policy = &loaded.rules.agents.by_name[&AgentName::new("claude").unwrap()];
    assert_eq!(policy.access, AgentAccess::default());
    let described = loaded.describe().replace(&scene.folder.path().display().to_string(), "");
    assert!(described.contains("a program on this machine, over ACP (`claude-agent-acp`)"), "{described}");
    assert!(described.contains("folder /home/acp/claude"), "{described}");
}

#[test]
fn every_key_arrives() {
    let scene = Scene::new().var("TOKEN", "a long token").file(
        "agents:\n  coder:\n    kind: acp\n    command: /opt/opencode\n    args: [acp, --print-logs]\n    workspace: \
         /srv/work\n    cwd: /srv/project\n    env: {KEY: '${TOKEN}'}\n    env_passthrough: [EDITOR]\n    turn_timeout: \
         5m\n    idle: 10s\n    permissions: {allow: ['git status', 'cargo test*']}\n    home: session\n    load: false\n",
    );
    let config = acp(&scene, "coder");
    assert_eq!((config.command.as_str(), config.args.len()), ("/opt/opencode", 2));
    assert_eq!(
        (config.workspace.as_path(), config.cwd.as_deref()),
        (Path::new("/srv/work"), Some(Path::new("/srv/project")))
    );
    assert_eq!(config.env["KEY"].expose(), "a long token");
    assert_eq!(config.env_passthrough, ["EDITOR"]);
    assert_eq!((config.turn_timeout, config.idle), (Duration::from_secs(300), Duration::from_secs(10)));
    let allowed = vec!["git status".to_owned(), "cargo test*".to_owned()];
    assert_eq!(config.permissions, AppPermissions::Allow(allowed));
    assert_eq!((config.home, config.load), (HomeSetting::Session, false));
    // The log masks the values of variables.
    let masked: Vec<_> = scene.load().unwrap().secrets().iter().map(|key| key.expose().to_owned()).collect();
    assert_eq!(masked, ["a long token", "long token"]);
    for (written, meant) in [("deny", AppPermissions::Deny), ("ask", AppPermissions::Ask)] {
        let text = format!("agents:\n  coder: {{command: x, permissions: {written}}}\n");
        assert_eq!(acp(&Scene::new().file(text), "coder").permissions, meant);
    }
}

#[test]
fn the_agent_of_programs_must_be_able_to_work_in_a_folder() {
    let with = |entry: &str| format!("agents:\n  near: {entry}\nforge: {{run_agent: near}}\n");
    let model = "{kind: model, model: llama, base_url: 'https://llama.example.org/v1'}";
    insta::assert_snapshot!(errors(&with(model)), @"
    error: `forge.run_agent` names an agent that cannot work in a folder of its own (talaria.yaml, line 3)

    hint: name one of the kinds `acp` and `codex`
    ");
    assert!(Scene::new().file(with("{command: x}")).load().is_ok());
}

#[test]
fn wrong_values_are_named() {
    insta::assert_snapshot!(errors("agents:\n  coder: {kind: acp}\n"), @"
    error: `agents.coder` has no `command` (talaria.yaml, line 2)

    hint: write the program that speaks the Agent Client Protocol, and its arguments as `args`
    ");
    insta::assert_snapshot!(errors("agents:\n  coder: {command: x, permissions: {allow: ['*']}}\n"), @"
    error: `agents.coder.permissions.allow` has an entry that names nothing (talaria.yaml, line 2)

    hint: write whole commands, such as `git status`, or their beginnings with a `*` at the end; or `ask`
    ");
    for written in ["always", "{permit: [x]}", "{}", "[x]", "7"] {
        let text = errors(&format!("agents:\n  coder: {{command: x, permissions: {written}}}\n"));
        assert!(text.contains("line 2"), "{written}: {text}");
    }
    assert!(errors("agents:\n  coder: {command: x, arguments: [y]}\n").contains("arguments"));
    assert!(errors("agents:\n  coder: {command: npx -y agent}\n").contains("must be a program alone"));
    let home = Scene::new();
    let folder = home.path("home").display().to_string();
    let errors = home.file(format!("agents:\n  coder: {{command: x, cwd: '{folder}'}}\n")).errors();
    assert!(errors.contains("`agents.coder.cwd` lies in "), "{errors}");
}
