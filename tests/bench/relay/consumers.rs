//! The whole gateway, reading from the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use talaria::agents::proxy::ProxyAgent;
use talaria::config::{AgentSettings, Config, ConfigSources, UpstreamSetting, UpstreamTimeouts};
use talaria_platform::ShowMode;
use tokio::runtime::Runtime;

use crate::child;
use crate::room::{self, Rooms};
use crate::rounds::process_cpu;

/// Relays every stream into a room of its own.
pub fn relay(words: &[String]) -> anyhow::Result<()> {
    allow_many_files();
    let (port, streams) = port_and_streams(words)?;
    let (folder, runtime) = (crate::scratch()?, Runtime::new()?);
    let rooms = Rooms::new(streams, ShowMode::Edit { pause: Duration::from_secs(1) });
    let agent = proxy(port)?;
    let running =
        runtime.block_on(room::gateway(folder.path(), Some(rooms.clone()), |_| Ok(Arc::new(agent))))?;
    child::serve("ready", |question| match question {
        "begin" => {
            rooms.ask.cancel();
            String::from("yes")
        }
        "edits" => rooms.edits.load(Ordering::Relaxed).to_string(),
        "memory" => child::resident("self").map_or_else(|error| error.to_string(), |bytes| bytes.to_string()),
        _ => process_cpu().to_string(),
    })?;
    drop(running);
    Ok(())
}

/// The real proxy agent, with long timeouts for the rounds in which it gets nothing.
fn proxy(port: u16) -> anyhow::Result<ProxyAgent> {
    let env = |name: &str| match name {
        "GATEWAY_PROXY_URL" => Some(format!("http://127.0.0.1:{port}")),
        "TALARIA_HOME" => Some("/nonexistent".to_owned()),
        _ => None,
    };
    let sources = ConfigSources { folder: "/nonexistent".into(), ..ConfigSources::default() };
    let config = Config::load(&sources, &env).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let Some(AgentSettings::Proxy(proxy)) = config.agents.default_entry() else {
        anyhow::bail!("no proxy is configured")
    };
    let mut proxy = proxy.clone();
    let hour = Duration::from_secs(3600);
    proxy.upstream = UpstreamSetting::Plain;
    proxy.timeouts = UpstreamTimeouts { connect: hour, first_byte: hour, idle: hour, keepalive_idle: hour };
    Ok(ProxyAgent::new(proxy)?)
}

/// The port and the number of streams that a role is given.
pub fn port_and_streams(words: &[String]) -> anyhow::Result<(u16, usize)> {
    let [_, port, streams] = words else { anyhow::bail!("a port and a number of streams are needed") };
    Ok((port.parse().context("the port")?, streams.parse().context("the streams")?))
}

/// Raises the limit of open files: each stream is one, and the usual limit is a thousand.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
