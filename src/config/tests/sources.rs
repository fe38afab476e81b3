//! Tests: which file and which agent are chosen, and which source of a setting wins.

use std::cell::RefCell;
use std::time::Duration;

use talaria_console::ConsoleSettings;

use super::*;
use crate::config::env;
use crate::config::{StepsSetting, UpstreamSetting};
use crate::ids::AgentName;

#[test]
fn without_anything_the_embedded_defaults_hold() {
    let config = Scene::new().load().unwrap();
    assert_eq!(config.file, None);
    assert_eq!(config.agents.default, AgentName::guide());
    assert!(config.agents.entries.is_empty());
    assert_eq!((config.turns.context_prompt.as_str(), config.turns.names), ("", true));
    assert_eq!(config.turns.history_messages, 100);
    assert_eq!(config.turns.history_bytes, 262_144);
    assert_eq!(config.turns.retry_for, Duration::from_secs(600));
    assert_eq!(config.turns.retry_scripts_for, Duration::from_secs(30));
    assert!(config.platforms.is_empty());
    assert_eq!((config.display.steps, config.display.edits), (StepsSetting::Line, 200));
    assert_eq!(config.log, "info");
    assert!(config.warnings.is_empty());
}

#[test]
fn the_proxy_url_comes_from_the_environment_then_from_the_file() {
    let yaml = "gateway:\n  proxy_url: http://10.0.0.1:8642\n";
    for (var, yaml, expected) in [
        (None, "", None),
        (Some("http://192.168.1.100:8642"), "", Some("http://192.168.1.100:8642")),
        (Some("http://host:8642/"), "", Some("http://host:8642")),
        (None, yaml, Some("http://10.0.0.1:8642")),
        (Some("http://env-host:8642"), yaml, Some("http://env-host:8642")),
        (Some("   "), "", None),
        (Some("   "), yaml, Some("http://10.0.0.1:8642")),
        (None, "gateway:\n  proxy_url: '  '\n", None),
        (None, "gateway:\n  proxy_url:\n", None),
        (None, "gateway:\n", None),
    ] {
        let mut scene = Scene::new().file(yaml);
        if let Some(value) = var {
            scene = scene.var("GATEWAY_PROXY_URL", value);
        }
        let url = match scene.load().unwrap().agents.default_entry() {
            Some(AgentSettings::Proxy(proxy)) => Some(proxy.url.as_str().to_owned()),
            Some(AgentSettings::Model(_) | AgentSettings::Codex(_)) | None => None,
        };
        assert_eq!(url.as_deref(), expected, "{var:?} {yaml:?}");
    }
}

#[test]
fn the_proxy_has_its_defaults() {
    let proxy = Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642").proxy();
    assert_eq!(proxy.key, None);
    assert_eq!(proxy.model, "hermes-agent");
    assert_eq!(proxy.upstream, UpstreamSetting::Auto);
    assert!(!proxy.identity && !proxy.allow_cleartext);
    let timeouts = proxy.timeouts;
    let seconds = [timeouts.connect, timeouts.first_byte, timeouts.idle, timeouts.keepalive_idle];
    assert_eq!(seconds.map(|timeout| timeout.as_secs()), [10, 300, 300, 60]);
}

#[test]
fn every_key_of_the_file_arrives() {
    let scene = Scene::new().file(
        "gateway:\n  proxy_url: https://agent.example.com/base/\n  proxy_key: sk-1\n  model: other\n  \
         upstream: plain\n  allow_cleartext: true\n  identity: true\n  history_messages: 7\n  \
         history_bytes: 800\n  connect_timeout: 250ms\n  first_byte_timeout: 1m\n  idle_timeout: 90\n  \
         keepalive_idle_timeout: 1h\n  retry_for: 0s\nagent:\n  context_prompt: Be kind.\n  names: false\n\
         display:\n  steps: hidden\n  edits: 1000\nlog:\n  level: debug\nplatforms:\n  desk:\n    kind: console\n",
    );
    let config = scene.load().unwrap();
    let proxy = scene.proxy();
    assert_eq!(proxy.url.as_str(), "https://agent.example.com/base");
    assert_eq!(proxy.key.unwrap().expose(), "sk-1");
    assert_eq!((proxy.model.as_str(), proxy.upstream), ("other", UpstreamSetting::Plain));
    assert!(proxy.identity && proxy.allow_cleartext);
    for (word, upstream) in [
        ("auto", UpstreamSetting::Auto),
        ("talaria", UpstreamSetting::Talaria),
        ("runs", UpstreamSetting::Runs),
    ] {
        let scene =
            Scene::new().file(format!("gateway:\n  proxy_url: https://a.example\n  upstream: {word}\n"));
        assert_eq!(scene.proxy().upstream, upstream);
    }
    let timeouts = proxy.timeouts;
    let millis = [timeouts.connect, timeouts.first_byte, timeouts.idle, timeouts.keepalive_idle];
    assert_eq!(millis.map(|timeout| timeout.as_millis()), [250, 60_000, 90_000, 3_600_000]);
    assert_eq!((config.turns.context_prompt.as_str(), config.turns.names), ("Be kind.", false));
    assert_eq!((config.turns.history_messages, config.turns.history_bytes), (7, 800));
    assert_eq!(config.turns.retry_for, Duration::ZERO);
    assert_eq!(config.turns.retry_scripts_for, Duration::ZERO);
    assert_eq!((config.display.steps, config.display.edits), (StepsSetting::Hidden, 1000));
    assert_eq!(config.log, "debug");
    assert_eq!(settings::<ConsoleSettings>(&config.platforms[&"desk".into()]), ConsoleSettings);
}

#[test]
fn a_key_or_a_server_and_a_model_make_the_local_agent() {
    let local = Scene::new().var("OPENAI_API_KEY", "sk-1").var("OPENAI_MODEL", "gpt").local();
    assert_eq!((local.url.as_str(), local.model.as_str()), ("https://api.openai.com/v1", "gpt"));

    let yaml = "agent:\n  base_url: http://localhost:11434/v1/\n  model: llama3\n";
    let local = Scene::new().file(yaml).local();
    assert_eq!((local.url.as_str(), local.key), ("http://localhost:11434/v1", None));

    let scene =
        Scene::new().file(yaml).var("OPENAI_BASE_URL", "http://gpu:8000/v1").var("OPENAI_MODEL", "qwen");
    assert_eq!((scene.local().url.as_str(), scene.local().model.as_str()), ("http://gpu:8000/v1", "qwen"));

    let both = Scene::new().file(yaml).var("GATEWAY_PROXY_URL", "http://host:8642");
    let agents = both.load().unwrap().agents;
    assert_eq!((agents.default, agents.fallback), (AgentName::proxy(), None));
    assert!(agents.entries.contains_key(&AgentName::local()));
}

#[test]
fn a_local_agent_without_a_model_is_refused() {
    insta::assert_snapshot!(Scene::new().var("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").errors(), @"
    error: there is a model server but no model is named

    hint: set `OPENAI_MODEL` or `agent.model`, for example to `llama3.2`
    ");
}

#[test]
fn a_key_alone_is_no_wish_for_an_agent() {
    let config = Scene::new().var("OPENAI_API_KEY", "sk-1").load().unwrap();
    assert_eq!(config.agents.default, AgentName::guide());
    assert!(config.agents.entries.is_empty());
    assert!(config.warnings.iter().any(|warning| warning.contains("OPENAI_MODEL")), "{:?}", config.warnings);
}

#[test]
fn the_first_file_that_is_found_is_used() {
    let scene = Scene::new();
    let level = |config: Result<Config, Vec<ConfigError>>| config.unwrap().log;
    assert_eq!(level(scene.load()), "info");

    let scene = scene.file("log: {level: error}");
    assert_eq!(level(scene.load()), "error");

    scene.private_file("home/talaria.yaml", "log: {level: warn}");
    assert_eq!(level(scene.load()), "warn");

    let path = scene.private_file("named.yaml", "log: {level: debug}");
    let scene = scene.var("TALARIA_CONFIG", path.display().to_string());
    assert_eq!(level(scene.load()), "debug");

    let path = scene.private_file("argument.yaml", "log: {level: trace}");
    assert_eq!(level(scene.load_from(Some(path.clone()))), "trace");
    assert_eq!(scene.load_from(Some(path.clone())).unwrap().file, Some(path));
}

#[test]
fn a_file_that_was_named_must_exist() {
    let scene = Scene::new().file("");
    let errors = scene.load_from(Some("/nowhere/talaria.yaml".into())).unwrap_err();
    assert_eq!(errors[0].message, "there is no file `/nowhere/talaria.yaml`, which `--config` names");
    let errors = scene.var("TALARIA_CONFIG", "/nowhere.yaml").load().unwrap_err();
    assert_eq!(errors[0].message, "there is no file `/nowhere.yaml`, which `TALARIA_CONFIG` names");
}

#[test]
fn only_listed_variables_are_read() {
    let asked = RefCell::new(Vec::new());
    let sources =
        ConfigSources { folder: tempfile::tempdir().unwrap().path().to_owned(), ..ConfigSources::default() };
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        (name == "HOME").then(|| "/nowhere".to_owned())
    };
    Config::load(&sources, &lookup).unwrap();
    for name in asked.borrow().iter() {
        assert!(env::table().any(|var| var.name == name), "{name}");
    }
    for var in env::table() {
        assert!(asked.borrow().iter().any(|name| name == var.name), "{} is listed but not read", var.name);
    }
}

#[test]
fn check_says_what_would_run() {
    let scene = Scene::new();
    let home = scene.path("home").display().to_string();
    let described = |scene: &Scene| scene.load().unwrap().describe().replace(&home, "HOME");
    insta::assert_snapshot!(described(&scene), @"
    configuration  no file, embedded defaults
    state folder   HOME
    agent          none configured: a built-in guide answers and says what to set
    platforms      none configured: a chat in the terminal
    agent server   http://127.0.0.1:8642, model talaria, key in HOME/api.key (not while prompts are piped in)
    log            info
    ");

    let scene = scene.var("GATEWAY_PROXY_KEY", "canary").var("TALARIA_LOG", "info,talaria=debug");
    insta::assert_snapshot!(described(&scene), @"
    configuration  no file, embedded defaults
    state folder   HOME
    agent          none configured: a built-in guide answers and says what to set
    platforms      none configured: a chat in the terminal
    agent server   http://127.0.0.1:8642, model talaria, key in HOME/api.key (not while prompts are piped in)
    log            info,talaria=debug

    warning: there is a key for a remote agent server but no server; set `GATEWAY_PROXY_URL` or `gateway.proxy_url`
    ");

    scene.private_file("home/talaria.yaml", "platforms: {console: , }");
    let scene = scene.var("GATEWAY_PROXY_URL", "http://host:8642/v1/");
    insta::assert_snapshot!(described(&scene), @"
    configuration  HOME/talaria.yaml
    state folder   HOME
    agent          remote agent server at http://host:8642, model hermes-agent, with a key
    platforms      console
    log            info,talaria=debug
    ");
}
