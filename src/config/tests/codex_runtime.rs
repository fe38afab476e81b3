//! Tests: `runtime`, by which the turns of a model are handed to codex.

use std::time::Duration;

use super::*;
use crate::access::AgentAccess;
use crate::config::{CodexConfig, McpSelection, SwitchConfig};
use crate::ids::AgentName;
use crate::rules::{AgentPolicy, AgentRuntime};

/// The settings by which an agent can be switched, and its rules.
fn switch_of(scene: &Scene, name: &str) -> (Option<SwitchConfig>, AgentPolicy) {
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let name = AgentName::new(name).unwrap();
    let switch = config.agents.entries[&name].switch().cloned();
    (switch, config.rules.agents.by_name[&name].clone())
}

fn runtime_of(scene: &Scene, name: &str) -> Option<AgentRuntime> {
    let (switch, policy) = switch_of(scene, name);
    let runtime = switch.map(|switch| switch.runtime);
    assert_eq!(policy.runtime, runtime, "the rules and the settings agree");
    runtime
}

fn openai() -> Scene {
    Scene::new().var("OPENAI_API_KEY", "sk-a-real-one-for-once").var("OPENAI_MODEL", "gpt-5")
}

#[test]
fn a_model_at_openai_can_be_switched_and_is_not() {
    assert_eq!(runtime_of(&openai(), "local"), Some(AgentRuntime::Auto));
    for (url, runtime) in [
        ("https://api.openai.com/v1", Some(AgentRuntime::Auto)),
        ("https://API.OpenAI.com:443/v1", Some(AgentRuntime::Auto)),
        ("https://api.openai.com.example.org/v1", None),
        ("https://eu.api.openai.com/v1", None),
        ("https://example.org/api.openai.com/v1", None),
        ("http://localhost:11434/v1", None),
        ("https://10.0.0.1/v1", None),
    ] {
        let text = format!("agents:\n  one: {{kind: model, model: m, base_url: '{url}'}}\n");
        assert_eq!(runtime_of(&Scene::new().file(text), "one"), runtime, "{url}");
    }
    let clear = "agents:\n  one: {kind: model, model: m, base_url: 'http://api.openai.com/v1'}\n";
    assert_eq!(runtime_of(&Scene::new().file(clear), "one"), None, "not in the clear");
}

#[test]
fn a_written_runtime_lets_any_model_be_switched() {
    for (written, runtime) in [
        ("auto", AgentRuntime::Auto),
        ("AUTO", AgentRuntime::Auto),
        ("codex_app_server", AgentRuntime::CodexAppServer),
        ("Codex_App_Server", AgentRuntime::CodexAppServer),
    ] {
        let near = format!(
            "agents:\n  near: {{kind: model, model: m, base_url: 'http://localhost:1/v1', runtime: {written}}}\n"
        );
        assert_eq!(runtime_of(&Scene::new().file(near), "near"), Some(runtime), "{written}");
        let short = format!("agent: {{base_url: 'http://localhost:1/v1', model: m, runtime: {written}}}\n");
        assert_eq!(runtime_of(&Scene::new().file(short), "local"), Some(runtime), "{written}");
        let added = format!("agents:\n  local: {{runtime: {written}}}\n");
        assert_eq!(runtime_of(&openai().file(added), "local"), Some(runtime), "{written}");
    }
}

#[test]
fn a_key_without_a_value_is_not_written() {
    let near = "agents:\n  near:\n    kind: model\n    model: m\n    base_url: 'http://localhost:1/v1'\n    runtime:\n";
    assert_eq!(runtime_of(&Scene::new().file(near), "near"), None);
}

#[test]
fn another_word_is_refused() {
    let errors = |text: &str| Scene::new().file(text).errors();
    insta::assert_snapshot!(errors("agent: {base_url: 'http://localhost:1/v1', model: m, runtime: on}\n"), @"error: `agent.runtime` must be `auto` or `codex_app_server` (talaria.yaml, line 1)");
    insta::assert_snapshot!(errors("agents:\n  near: {kind: model, model: m, runtime: codex}\n"), @"error: `agents.near.runtime` must be `auto` or `codex_app_server` (talaria.yaml, line 2)");
    insta::assert_snapshot!(errors("agents:\n  far: {kind: proxy, url: 'http://far:1', runtime: auto}\n"), @"
    error: unknown key `runtime` in `agents.far` (talaria.yaml, line 2)

    hint: the keys here are `kind`, `instructions`, `access`, `url`, `key`, `key_file`, `model`, `upstream`, `identity`, `allow_cleartext`, `timeouts`
    ");
}

#[test]
fn codex_works_in_the_folder_of_the_agent_and_within_its_time() {
    let plain = switch_of(&openai(), "local").0.unwrap().codex;
    let scene = openai().file("agents:\n  local: {workspace: /srv/agent, turn_timeout: 5m}\n");
    let codex = switch_of(&scene, "local").0.unwrap().codex;
    assert_eq!((codex.cwd, codex.turn_timeout), (Some("/srv/agent".into()), Duration::from_secs(300)));
    assert!(scene.load().unwrap().warnings.is_empty(), "{:?}", scene.load().unwrap().warnings);
    assert_eq!((&plain.cwd, plain.turn_timeout), (&None, Duration::from_secs(3600)));
    assert!(plain.workspace.ends_with("home/codex/local"), "{plain:?}");
    assert_eq!(plain, CodexConfig::new(plain.workspace.clone()));
}

#[test]
fn codex_gets_the_servers_of_its_tools_or_all_of_them() {
    let servers = |tools: &str| {
        let text =
            format!("mcp_servers: {{a: {{command: a}}, b: {{command: b}}}}\nagents:\n  local: {{{tools}}}\n");
        switch_of(&openai().file(text), "local").0.unwrap().servers
    };
    for tools in ["", "tools: [mcp]"] {
        assert_eq!(servers(tools), McpSelection::All, "{tools}");
    }
    for tools in ["tools: []", "tools: [memory]"] {
        assert_eq!(servers(tools), McpSelection::None, "{tools}");
    }
    assert_eq!(servers("tools: [memory, mcp.a]"), McpSelection::Some(["a".to_owned()].into()));
}

#[test]
fn on_codex_an_agent_is_for_admins_unless_its_entry_says_otherwise() {
    let everybody = AgentAccess::everybody();
    let (_, policy) = switch_of(&openai(), "local");
    assert_eq!((policy.access, policy.codex_access), (everybody.clone(), AgentAccess::default()));
    let written = openai().file("agents:\n  local: {access: {allow_all: true}}\n");
    let (_, policy) = switch_of(&written, "local");
    assert_eq!((policy.access, policy.codex_access), (everybody.clone(), everybody));
}

#[test]
fn the_runtime_of_the_configuration_is_described() {
    let described =
        openai().file("agents:\n  local: {runtime: codex_app_server}\n").load().unwrap().describe();
    assert!(described.contains("runtime: codex app-server"), "{described}");
    assert!(!openai().load().unwrap().describe().contains("runtime"));
}
