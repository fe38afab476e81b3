//! Tests: when `gateway.fallback` holds, and which settings it needs.

use super::*;
use crate::ids::AgentName;

fn relay(yaml: &str) -> Scene {
    Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642").file(yaml)
}

fn stand_in(scene: &Scene) -> Option<ModelConfig> {
    let agents = scene.load().unwrap().agents;
    assert_eq!(agents.default, AgentName::proxy());
    match agents.entries.get(&agents.fallback?) {
        Some(AgentSettings::Model(model)) => Some(model.clone()),
        other => panic!("not a model: {other:?}"),
    }
}

#[test]
fn a_model_alone_stands_in_for_nobody() {
    let model = "agent: {base_url: 'http://localhost:11434/v1', model: llama3.2}";
    assert_eq!(stand_in(&relay(model)), None);
    assert_eq!(stand_in(&relay(&format!("gateway: {{fallback: none}}\n{model}"))), None);
    let local = stand_in(&relay(&format!("gateway: {{fallback: local}}\n{model}"))).unwrap();
    assert_eq!((local.url.as_str(), local.model.as_str()), ("http://localhost:11434/v1", "llama3.2"));
}

#[test]
fn a_key_and_a_model_are_enough() {
    let scene =
        relay("gateway: {fallback: local}").var("OPENAI_API_KEY", "sk-CANARY").var("OPENAI_MODEL", "gpt");
    let local = stand_in(&scene).unwrap();
    assert_eq!((local.url.as_str(), local.key.is_some()), ("https://api.openai.com/v1", true));
    insta::assert_snapshot!(
        scene.load().unwrap().agents.describe_default(),
        @"remote agent server at http://host:8642, model hermes-agent, without a key; while it is away, model server at https://api.openai.com/v1, model gpt, with a key"
    );
}

#[test]
fn without_a_model_it_is_refused() {
    insta::assert_snapshot!(relay("gateway:\n  fallback: local\n").errors(), @"
    error: `gateway.fallback` is `local`, but there is no model to fall back to (talaria.yaml, line 2)

    hint: set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`), for example to `http://localhost:11434/v1` and `llama3.2`
    ");
    let unnamed = relay("gateway: {fallback: local}\nagent: {base_url: 'http://localhost:11434/v1'}");
    assert!(unnamed.errors().starts_with("error: there is a model server but no model is named"));
    let public = "agent: {base_url: 'http://model.example.com/v1', model: m, api_key: sk-CANARY}";
    let errors = relay(&format!("gateway: {{fallback: local}}\n{public}")).errors();
    assert!(errors.contains("would carry the key unencrypted"), "{errors}");
    let errors = relay("gateway:\n  fallback: lokal\n").errors();
    assert!(errors.contains("`gateway.fallback` names no agent"), "{errors}");
    assert!(errors.contains("did you mean `local`?"), "{errors}");
    let errors = relay("gateway:\n  fallback: proxy\n").errors();
    assert!(errors.contains("`gateway.fallback` is the agent itself (talaria.yaml, line 2)"), "{errors}");
}

#[test]
fn without_an_agent_server_it_is_pointed_out() {
    let config = Scene::new()
        .file("gateway: {fallback: local}\nagent: {base_url: 'http://localhost:11434/v1', model: m}")
        .load()
        .unwrap();
    assert_eq!((config.agents.default, config.agents.fallback), (AgentName::local(), None));
    assert!(config.warnings[0].starts_with("`gateway.fallback` has no effect"), "{:?}", config.warnings);
}

#[test]
fn any_other_agent_can_stand_in() {
    let config =
        relay("gateway: {fallback: backup}\nagents: {backup: {kind: proxy, url: 'http://backup:8642'}}\n")
            .load()
            .unwrap();
    insta::assert_snapshot!(
        config.agents.describe_default(),
        @"remote agent server at http://host:8642, model hermes-agent, without a key; while it is away, remote agent server at http://backup:8642, model hermes-agent, without a key"
    );
}

#[cfg(feature = "testing")]
#[test]
fn a_room_may_want_the_model_while_the_server_answers_elsewhere() {
    let room = "platforms:\n  test:\n    socket: /s\n    access: {people: ['@a:b']}\n    places: {'!x': {agent: local}}\n";
    let model = "agent: {base_url: \"http://localhost:1/v1\", model: llama}\n";
    for fallback in ["none", "local"] {
        let config = relay(&format!("gateway: {{fallback: {fallback}}}\n{model}{room}")).load().unwrap();
        assert_eq!(config.agents.default, AgentName::proxy());
        assert!(config.agents.entries.contains_key(&AgentName::local()));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
    insta::assert_snapshot!(relay(room).errors(), @"
    error: `platforms.test.places.!x.agent` is `local`, which is not configured (talaria.yaml, line 5)

    hint: set `agent.base_url` and `agent.model` (or `OPENAI_BASE_URL` and `OPENAI_MODEL`)
    ");
    let proxy = room.replace("local", "proxy");
    assert!(relay(&proxy).load().is_ok());
    let errors = Scene::new().file(format!("{model}{proxy}")).errors();
    assert!(errors.contains("is `proxy`, which is not configured"), "{errors}");
    assert!(Scene::new().file(format!("{model}{room}")).load().is_ok());
}
