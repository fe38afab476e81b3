//! Binds the agent server's port and loads its key before anything else starts, so that a start that cannot
//! serve fails at once and has touched nothing.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use tokio::net::TcpListener;

use super::plan::ServeMode;
use crate::config::{Config, NetworkReach, ServerConfig, UrlHost, api_key};
use crate::logging;
use crate::server::{ForgeSettings, ServerSettings};
use crate::state_dir::StartError;

/// Time limit for resolving and binding the address.
pub const BINDING: Duration = Duration::from_secs(10);

/// A server that is ready to accept connections.
pub(super) struct BoundServer {
    pub(super) settings: ServerSettings,
    pub(super) listener: TcpListener,
    /// Whether the process continues when platforms have nothing more to read.
    pub(super) stays: bool,
}

/// Binds the port and loads the key, if a server is to run. The caller holds the state folder. A chat that goes on
/// without its server is told so on `screen`, because the log shows only errors there.
pub(super) async fn bind(
    config: &Config,
    serve: Option<ServeMode>,
    screen: &mut dyn Write,
) -> Result<Option<BoundServer>, StartError> {
    let (Some(server), Some(serve)) = (&config.server, serve) else { return Ok(None) };
    match open(config, server, serve).await {
        Ok(bound) => Ok(Some(bound)),
        Err((message, hint)) if serve.needed => Err(StartError { error: anyhow!(message), hint: Some(hint) }),
        Err((message, hint)) => {
            // A screen that is gone ends the chat by itself.
            let _ = writeln!(screen, "warning: the agent server does not run: {message}; {hint}");
            Ok(None)
        }
    }
}

/// The problem and its hint.
type BindFailure = (String, &'static str);

async fn open(config: &Config, server: &ServerConfig, serve: ServeMode) -> Result<BoundServer, BindFailure> {
    let bound = tokio::time::timeout(BINDING, TcpListener::bind(server.address())).await;
    let bound = bound.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let listener = bound.map_err(|error| server.cannot_listen(&error))?;
    let key = server.owner_key(&config.home).map_err(|error| (error.message, error.hint))?;
    if let Some(key) = &key {
        logging::hide(key);
    }
    let settings = ServerSettings {
        key,
        hosts: hosts(server, listener.local_addr().ok()),
        origins: server.cors_origins.clone(),
        model: server.model_name.clone(),
        runs: (server.runs, server.runs_per_app),
        forge: ForgeSettings { config: config.forge.clone(), folder: config.home.join("forge") },
    };
    Ok(BoundServer { settings, listener, stays: serve.stays })
}

/// Host names of the server: the configured ones, and the address that it listens on. If it listens on all
/// addresses, only its operator knows its names.
fn hosts(server: &ServerConfig, bound: Option<SocketAddr>) -> Vec<UrlHost> {
    let mut hosts = server.hosts.clone();
    if server.reach() != NetworkReach::Everywhere {
        let bound = bound.map(|address| UrlHost::Address(address.ip().to_canonical()));
        for host in std::iter::once(server.host.clone().without_dot()).chain(bound) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
    }
    hosts
}

/// Logs the address of the server and where its key is, never the key.
pub(super) fn tell(config: &Config, address: SocketAddr) {
    let Some(server) = &config.server else { return };
    let key = match (&server.key, server.open) {
        (_, true) => "none is asked for".to_owned(),
        (Some(_), false) => "the one that is configured".to_owned(),
        (None, false) => api_key::path(&config.home).display().to_string(),
    };
    tracing::info!(address = %format!("http://{address}"), key, "serving");
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::path::Path;

    use super::*;
    use crate::config::ConfigSources;

    /// A configuration with only this port.
    fn config(home: &Path, port: u16) -> Config {
        let sources = ConfigSources { folder: home.to_owned(), ..ConfigSources::default() };
        let env = |name: &str| match name {
            "TALARIA_HOME" => Some(home.display().to_string()),
            "API_SERVER_PORT" => Some(port.to_string()),
            _ => None,
        };
        Config::load(&sources, &env).unwrap()
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_a_failure_only_where_the_server_is_needed() {
        let home = tempfile::tempdir().unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = other.local_addr().unwrap().port();
        let config = config(home.path(), port);
        let serve = |needed| Some(ServeMode { needed, stays: true });
        let mut screen = Vec::new();
        let Err(refused) = bind(&config, serve(true), &mut screen).await else { panic!("the port is taken") };
        assert_eq!(
            refused.error.to_string(),
            format!("port {port} of 127.0.0.1 is taken by another process")
        );
        assert!(refused.hint.is_some_and(|hint| hint.contains("API_SERVER_PORT")));
        assert!(bind(&config, serve(false), &mut screen).await.is_ok_and(|bound| bound.is_none()));
        assert_eq!(
            String::from_utf8(mem::take(&mut screen)).unwrap(),
            format!(
                "warning: the agent server does not run: port {port} of 127.0.0.1 is taken by another process; \
                 end that process, or set API_SERVER_PORT (or `server.port`) to another port\n"
            )
        );
        assert!(bind(&config, None, &mut screen).await.is_ok_and(|bound| bound.is_none()));
        assert!(!api_key::path(home.path()).exists(), "what does not serve needs no key");
        drop(other);
        let Ok(Some(bound)) = bind(&config, serve(false), &mut screen).await else {
            panic!("the port is free")
        };
        let key = api_key::load(home.path()).unwrap();
        assert!(key.is_some() && bound.settings.key == key);
        assert_eq!(bound.settings.hosts, [UrlHost::Address([127, 0, 0, 1].into())]);
        drop(bound);
        assert!(screen.is_empty(), "only a chat without its server is told so");

        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(api_key::path(home.path()), open).unwrap();
        assert!(bind(&config, serve(true), &mut screen).await.is_err_and(|refused| refused.hint.is_some()));
        assert!(
            bind(&config, serve(false), &mut screen).await.is_ok_and(|bound| bound.is_none()),
            "the chat goes on"
        );
    }
}
