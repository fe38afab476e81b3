//! Tests: `docker/config.example.yaml` is complete and true.

use serde::de::DeserializeOwned;
use talaria_platform::config::NETWORK_KEYS;
use talaria_platform::config::yaml_error::quoted;

use super::*;
use crate::config::{agents, file, forge, mcp_servers, tool_sections};
use crate::platforms::KINDS;

const EXAMPLE: &str = include_str!("../../../docker/config.example.yaml");

#[test]
fn the_example_states_the_defaults() {
    let scene = Scene::new();
    let plain = scene.load().unwrap();
    let mut example = scene.file(EXAMPLE).load().unwrap();
    example.file = None;
    assert_eq!(example, Config { home: example.home.clone(), ..plain });

    // The defaults of the proxy show only when there is a proxy.
    let relay = || Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642");
    assert_eq!(relay().file(EXAMPLE).proxy(), relay().proxy());
}

#[test]
fn the_keys_without_a_default_can_be_switched_on() {
    let scene = Scene::new().var("DOCS_TOKEN", "a token").file(switched_on());
    let config = scene.load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let names: Vec<_> = config.agents.entries.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["claude", "coder", "helper", "local", "proxy", "small"]);
    assert_eq!(config.agents.secrets().count(), 4);
    assert_eq!(config.platforms.len(), 1);
    // The example's key is not a real key, and its list of people names somebody whom no account lets in.
    let [key, person] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(person.contains("@ann:example.org without effect"), "{person}");
    assert!(key.contains("is one from an example"), "{key}");
}

#[test]
fn the_example_has_every_key() {
    let text = switched_on();
    let example: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    // A key and the file that holds it exclude each other; the file is named in prose.
    let inline =
        |keys: Vec<String>| keys.into_iter().filter(|key| !key.ends_with("_file")).collect::<Vec<_>>();
    assert!(EXAMPLE.contains("`key_file: ") && EXAMPLE.contains("`api_key_file: "));
    for (path, keys) in [
        (&[][..], keys_of::<file::ConfigFile>()),
        (&["agents", "helper"], inline(keys_of::<agents::ProxySection>())),
        (&["agents", "helper", "access"], keys_of::<agents::AgentAccessSection>()),
        (&["agents", "helper", "timeouts"], keys_of::<agents::TimeoutsSection>()),
        (&["agents", "small"], inline(keys_of::<agents::ModelSection>())),
        (&["agents", "small"], keys_of::<agents::WorkSection>()),
        (&["agents", "coder"], keys_of::<agents::CodexSection>()),
        (&["agents", "coder", "permissions"], keys_of::<agents::CodexPermissionsSection>()),
        (&["agents", "claude"], keys_of::<agents::AcpSection>()),
        (&["review"], keys_of::<tool_sections::ReviewSection>()),
        (&["terminal"], keys_of::<tool_sections::TerminalSection>()),
        (&["budget"], keys_of::<tool_sections::BudgetSection>()),
        (&["gateway"], keys_of::<file::GatewaySection>()),
        (&["agent"], keys_of::<file::AgentSection>()),
        (&["platforms", "console"], keys_of_kind("console")),
        (&["server"], keys_of::<file::ServerSection>()),
        (&["forge"], keys_of::<forge::ForgeSection>()),
        (&["display"], keys_of::<file::DisplaySection>()),
        (&["store"], keys_of::<file::StoreSection>()),
        (&["log"], keys_of::<file::LogSection>()),
    ] {
        let section = path.iter().fold(&example, |value, key| &value[*key]);
        assert!(!keys.is_empty());
        for key in keys {
            assert!(section.get(&key).is_some(), "{path:?} has no {key}");
        }
    }
}

/// A server has a program or an address, so the example has two of them.
#[test]
fn the_example_has_every_key_of_an_mcp_server() {
    let example: serde_yaml::Value = serde_yaml::from_str(&switched_on()).unwrap();
    let servers = &example["mcp_servers"];
    for key in keys_of::<mcp_servers::McpServerSection>() {
        assert!(["time", "docs"].iter().any(|name| servers[*name].get(&key).is_some()), "there is no {key}");
    }
}

/// A model's entry is read in two parts, each of which leaves out the keys of the other.
#[test]
fn the_keys_that_are_left_out_are_those_of_the_other_part() {
    assert_eq!(keys_of::<agents::ModelSection>(), agents::ModelSection::KEYS);
    assert_eq!(keys_of::<agents::WorkSection>(), agents::WorkSection::KEYS);
}

/// The keys that every chat network has are documented once, as a block to be put below any of them.
#[cfg(feature = "testing")]
#[test]
fn the_keys_of_every_chat_network_are_there_and_load() {
    use crate::access::AccessPolicy;
    use crate::config::access_rules;
    use crate::rules::{AccountRules, BusyPolicy};

    let block = shared_block();
    let text = format!("platforms:\n  test:\n    socket: /network\n{block}");
    let example: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let shared = NETWORK_KEYS.iter().filter(|key| **key != "kind").map(|key| (*key).to_owned());
    let room = "!abc:example.org";
    for (path, keys) in [
        (&[][..], shared.collect()),
        (&["access"], keys_of::<access_rules::AccessSection>()),
        (&["session"], keys_of::<access_rules::SessionSection>()),
        (&["places", room], keys_of::<access_rules::PlaceSection>()),
        (&["limits"], keys_of::<access_rules::WrittenLimits>()),
    ] {
        let section = path.iter().fold(&example["platforms"]["test"], |value, key| &value[*key]);
        assert!(!keys.is_empty());
        for key in keys {
            assert!(section.get(&key).is_some(), "{path:?} has no {key}");
        }
    }

    // A room can only name an agent that is configured.
    let scene =
        Scene::new().var("OPENAI_BASE_URL", "http://localhost:11434/v1").var("OPENAI_MODEL", "llama3.2");
    let config = scene.file(text).load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    let warning = "`platforms.test.places.!abc:example.org.folder` has no effect, because no agent is a codex or speaks ACP";
    assert_eq!(config.warnings, [warning], "it has no such agent");
    let rules = config.rules.account(&"test".into());
    let AccessPolicy::Listed(lists) = &rules.access else { panic!("{:?}", rules.access) };
    assert_eq!(
        (lists.admins.len(), lists.people.len(), lists.allow_all, lists.pairing),
        (1, 1, false, false)
    );
    assert_eq!(rules.busy_in(&room.into()), BusyPolicy::Interrupt);
    // Everything else has its default.
    let AccountRules { session, busy, limits, .. } = AccountRules::listed(lists.clone());
    assert_eq!((rules.session, rules.busy, rules.limits), (session, busy, limits));
}

/// The block of keys that every chat network has.
#[cfg(feature = "testing")]
fn shared_block() -> String {
    block("  # Every other chat network").join("\n")
}

/// The lines of a block whose prose begins with `prose`: comments that are indented by more than prose is.
fn block(prose: &str) -> Vec<&'static str> {
    let behind = EXAMPLE.lines().skip_while(|line| !line.starts_with(prose));
    let lines = behind.take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.strip_prefix("  #").filter(|rest| rest.starts_with("  "))).collect()
}

/// Every chat network has a block that begins with `An account on a <title> …`. Its keys without a default are written
/// as `#key:`.
#[test]
fn the_keys_of_every_kind_are_there() {
    for kind in KINDS.iter().filter(|kind| kind.people().is_some() && kind.name() != "test") {
        let block = block(&format!("  # An account on a {} ", kind.title())).join("\n");
        let all: serde_yaml::Value = serde_yaml::from_str(&switched_on_in(&block)).unwrap();
        let keys = keys_of_kind(kind.name());
        assert!(keys.len() > NETWORK_KEYS.len(), "{keys:?}");
        for key in keys.iter().filter(|key| !NETWORK_KEYS.contains(&key.as_str())) {
            assert!(all[kind.name()].get(key).is_some(), "there is no {key} of {}", kind.name());
        }
    }
}

/// The keys of an entry, as the error about an unknown key lists them.
fn keys_of_kind(kind: &str) -> Vec<String> {
    let errors = Scene::new().file(format!("platforms: {{{kind}: {{quux: 1}}}}")).load().unwrap_err();
    let hint = errors[0].hint.clone().unwrap_or_default();
    quoted(hint.strip_prefix("the keys here are ").unwrap()).into_iter().map(str::to_owned).collect()
}

/// The example with every `#key:` switched on. Prose has a space after its `#`.
fn switched_on() -> String {
    switched_on_in(EXAMPLE)
}

/// A part of the example with every `#key:` switched on.
fn switched_on_in(text: &str) -> String {
    let switch = |line: &str| match line.trim_start().strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => line.replacen('#', "", 1),
        _ => line.to_owned(),
    };
    text.lines().map(switch).collect::<Vec<_>>().join("\n")
}

/// The keys of a struct, as serde lists them in its error about an unknown key.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    let Err(error) = serde_yaml::from_str::<T>("no such key: 1") else { panic!("any key is taken") };
    let error = error.to_string();
    let (_, list) = error.split_once("expected ").unwrap();
    quoted(list).into_iter().map(str::to_owned).collect()
}
