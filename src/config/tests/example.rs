//! `docker/config.example.yaml` is complete and true.

use serde::de::DeserializeOwned;

use super::*;
use crate::config::explain::quoted;
use crate::config::{file, platform};

const EXAMPLE: &str = include_str!("../../../docker/config.example.yaml");

#[test]
fn the_example_states_the_defaults() {
    let scene = Scene::new();
    let plain = scene.load().unwrap();
    let mut example = scene.file(EXAMPLE).load().unwrap();
    example.file = None;
    assert_eq!(example, Config { home: example.home.clone(), ..plain });

    // The defaults of the proxy show only when there is one.
    let relay = || Scene::new().var("GATEWAY_PROXY_URL", "http://host:8642");
    assert_eq!(relay().file(EXAMPLE).proxy(), relay().proxy());
}

#[test]
fn the_keys_without_a_default_can_be_switched_on() {
    let config = Scene::new().file(switched_on()).load().unwrap();
    assert!(matches!(&config.agent, AgentChoice::Proxy(proxy, None) if proxy.key.is_some()));
    assert_eq!(config.platforms.len(), 1);
    assert!(config.warnings.is_empty());
}

#[test]
fn the_example_has_every_key() {
    let text = switched_on();
    let example: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    for (path, keys) in [
        (&[][..], keys_of::<file::File>()),
        (&["gateway"], keys_of::<file::Gateway>()),
        (&["agent"], keys_of::<file::Agent>()),
        (&["platforms", "console"], keys_of::<platform::Console>()),
        (&["display"], keys_of::<file::Display>()),
        (&["log"], keys_of::<file::Log>()),
    ] {
        let section = path.iter().fold(&example, |value, key| &value[*key]);
        assert!(!keys.is_empty());
        for key in keys {
            assert!(section.get(&key).is_some(), "{path:?} has no {key}");
        }
    }
}

/// The example with every `#key:` switched on. Prose has a space after its `#`.
fn switched_on() -> String {
    let switch = |line: &str| match line.trim_start().strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => line.replacen('#', "", 1),
        _ => line.to_owned(),
    };
    EXAMPLE.lines().map(switch).collect::<Vec<_>>().join("\n")
}

/// The keys that a struct takes, as serde lists them when it is given another.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    let Err(error) = serde_yaml::from_str::<T>("no such key: 1") else { panic!("any key is taken") };
    let error = error.to_string();
    let (_, list) = error.split_once("expected ").unwrap();
    quoted(list).into_iter().map(str::to_owned).collect()
}
