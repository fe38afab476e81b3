//! A gateway in the test's process that relays to an agent server: the real proxy agent between a room and a socket.
//!
//! For `#[tokio::test]` on the real clock: sockets do not see the paused one.

use std::sync::Arc;

use talaria::agent::SharedAgent;
use talaria::agents::AgentServices;
use talaria::agents::model::{AgentTools, ModelAgent};
use talaria::agents::proxy::ProxyAgent;
use talaria::config::{AgentSettings, Config, ConfigSources, ModelConfig};
use talaria::store::Store;

use super::gateway::{Setup, TestGateway};

/// The proxy agent as these variables and this file configure it.
pub fn proxy(url: &str, key: Option<&str>, yaml: &str) -> SharedAgent {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("talaria.yaml"), yaml).unwrap();
    let sources = ConfigSources { config: None, folder: folder.path().to_owned(), serve: false };
    let vars = |name: &str| match name {
        "GATEWAY_PROXY_URL" => Some(url.to_owned()),
        "GATEWAY_PROXY_KEY" => key.map(str::to_owned),
        "TALARIA_HOME" => Some(folder.path().display().to_string()),
        _ => None,
    };
    match Config::load(&sources, &vars).unwrap().agents.default_entry() {
        Some(AgentSettings::Proxy(config)) => Arc::new(ProxyAgent::new(config.clone()).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The agent that talks to a model server itself.
pub fn model(url: &str) -> SharedAgent {
    model_with(url, AgentTools::default(), |_| {})
}

/// The agent that talks to a model server itself, with these tools and a change of its configuration.
pub fn model_with(url: &str, tools: AgentTools, change: impl FnOnce(&mut ModelConfig)) -> SharedAgent {
    Arc::new(ModelAgent::new(model_config(url, change), tools).unwrap())
}

/// The configuration of an agent that talks to a model server itself, with a change.
pub fn model_config(url: &str, change: impl FnOnce(&mut ModelConfig)) -> ModelConfig {
    let folder = tempfile::tempdir().unwrap();
    let sources = ConfigSources { config: None, folder: folder.path().to_owned(), serve: false };
    let vars = |name: &str| match name {
        "OPENAI_BASE_URL" => Some(format!("{url}/v1")),
        "OPENAI_MODEL" => Some("small".to_owned()),
        "TALARIA_HOME" => Some(folder.path().display().to_string()),
        _ => None,
    };
    match Config::load(&sources, &vars).unwrap().agents.default_entry() {
        Some(AgentSettings::Model(config)) => {
            let mut config = config.clone();
            change(&mut config);
            config
        }
        other => panic!("{other:?}"),
    }
}

/// A gateway that relays to `url`.
pub async fn relay(url: &str, key: Option<&str>) -> TestGateway {
    relay_as(url, key, "").await
}

/// A gateway that relays to `url`, with this configuration file.
pub async fn relay_as(url: &str, key: Option<&str>, yaml: &str) -> TestGateway {
    TestGateway::with(Setup { agent: Some(proxy(url, key, yaml)), ..Setup::default() }).await
}

/// The shared parts of agents without any configuration. Their database is gone at once: these agents keep nothing.
pub fn services() -> AgentServices {
    let folder = tempfile::tempdir().unwrap();
    let sources = ConfigSources { config: None, folder: folder.path().to_owned(), serve: false };
    let home = folder.path().display().to_string();
    let config = Config::load(&sources, &|name| (name == "TALARIA_HOME").then(|| home.clone())).unwrap();
    let (store, _threads) = Store::open(&folder.path().join("talaria.db")).unwrap();
    AgentServices::new(&config, store)
}
