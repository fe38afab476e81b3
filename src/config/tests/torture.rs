//! Tests with random damage: never a panic, always an error that names a line or a key, never a secret.

use proptest::prelude::*;

use super::*;

const CANARY: &str = "sk-CANARY7";

const TEXT: &str = "gateway:
  proxy_url: http://host:8642
  proxy_key: \"sk-CANARY7\"
  upstream: auto
  identity: false
  history_messages: 100
  retry_for: 10m
agent:
  base_url: http://localhost:11434/v1
  model: llama3
  api_key: sk-CANARY7
agents:
  worker:
    kind: model
    model: llama3
    api_key: sk-CANARY7
    models: [qwen3]
    tools: [read_file, mcp.time]
    workspace: /srv/work
    turn_timeout: 5m
    context_tokens: 32000
mcp_servers:
  time:
    command: mcp-time
    args: [sk-CANARY7]
    env: {TOKEN: sk-CANARY7}
    cwd: /srv/time
    permissions: {now: allow}
  web:
    url: https://mcp.example.org/mcp
    headers: {Authorization: sk-CANARY7}
skills_dir: /srv/skills
review:
  memory: 5
  agent: worker
terminal:
  env_passthrough: [LANG]
  network: true
budget:
  person: 1000
platforms:
  desk:
    kind: console
server:
  enabled: true
  host: 127.0.0.1
  port: 8642
  key: sk-CANARY7
  cors_origins: [\"https://chat.example.org\"]
  hosts: [agent.example.org]
  runs: 10
display:
  steps: line
  edits: 100
log:
  level: info
";

fn check(text: &[u8]) -> Result<(), TestCaseError> {
    match Scene::new().file(text).load() {
        Ok(config) => {
            let shown = format!("{config:?}{}", config.describe());
            prop_assert!(!shown.contains(CANARY), "{}", shown);
        }
        Err(errors) => {
            let text = printed(&errors);
            prop_assert!(!text.contains(CANARY), "{}", text);
            for error in &errors {
                prop_assert!(error.message.contains("line ") || error.message.contains('`'), "{}", error);
            }
        }
    }
    Ok(())
}

/// Some text to put in the place of a value.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "[ -~]{0,20}",
        Just("[a, b]".to_owned()),
        Just("{a: b}".to_owned()),
        Just("!tag x".to_owned()),
        Just("*alias".to_owned()),
        Just("&anchor x".to_owned()),
        Just("|".to_owned()),
        Just("~".to_owned()),
    ]
}

proptest! {
    #[test]
    fn a_slip_in_a_key(line in 0..TEXT.lines().count(), at in 0..12_usize, letter in "[a-zA-Z0-9_: -]") {
        let damaged = TEXT.lines().enumerate().map(|(number, text)| {
            let indent = text.len() - text.trim_start().len();
            let colon = text.find(':').unwrap();
            let at = indent + at % (colon - indent);
            if number == line { format!("{}{letter}{}", &text[..at], &text[at + 1..]) } else { text.to_owned() }
        });
        check(damaged.collect::<Vec<_>>().join("\n").as_bytes())?;
    }

    #[test]
    fn another_value(line in 0..TEXT.lines().count(), value in value()) {
        let damaged = TEXT.lines().enumerate().map(|(number, text)| {
            let key = text.split_once(':').unwrap().0;
            if number == line { format!("{key}: {value}") } else { text.to_owned() }
        });
        check(damaged.collect::<Vec<_>>().join("\n").as_bytes())?;
    }

    #[test]
    fn changed_bytes(changes in prop::collection::vec((0..TEXT.len(), any::<u8>()), 1..8)) {
        let mut text = TEXT.as_bytes().to_vec();
        for (at, byte) in changes {
            text[at] = byte;
        }
        check(&text)?;
    }

    #[test]
    fn missing_parts(from in 0..TEXT.len(), length in 1..40_usize) {
        let mut text = TEXT.as_bytes().to_vec();
        text.drain(from..(from + length).min(TEXT.len()));
        check(&text)?;
    }

    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&text)?;
    }

    #[test]
    fn anything_that_looks_like_yaml(text in "[a-c:#&*!|>'\"%@\\[\\]{},?\n \t-]{0,80}") {
        check(text.as_bytes())?;
    }
}
