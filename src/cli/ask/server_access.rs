//! Finds the server and the key for it.
//!
//! Without an address the talaria of this machine is asked, which says over its control socket where it listens. Its key
//! goes nowhere else: not to a port at which another user's program may listen while no talaria runs, and not to an
//! address that was named.

use super::AskArguments;
use super::failure::{AskFailure, FailureExit};
use crate::config::{BaseUrl, ClientConfig, Config, ConfigSources, Secret, api_key, env};
use crate::control::CommandError;
use crate::control::api::AliveReport;
use crate::control::client::{CommandNeed, ControlClient};

/// The server, and the key for it.
#[derive(Clone, Debug)]
pub(super) struct ServerAccess {
    pub url: BaseUrl,
    pub key: Option<Secret>,
    /// The key is the one in the state folder of the talaria on this machine.
    pub has_home_key: bool,
}

pub(super) async fn find(
    arguments: &AskArguments,
    sources: &ConfigSources,
) -> Result<ServerAccess, AskFailure> {
    let named = ClientConfig::read(arguments.url.as_deref(), arguments.key_file.as_deref(), &env::process);
    let ClientConfig { url, key } =
        named.map_err(|errors| AskFailure::of_settings(FailureExit::WrongArguments, errors))?;
    match url {
        Some(url) => Ok(ServerAccess { url, key, has_home_key: false }),
        None => local(key, sources).await,
    }
}

/// The talaria that runs on this machine.
async fn local(key: Option<Secret>, sources: &ConfigSources) -> Result<ServerAccess, AskFailure> {
    let wrong = |error| AskFailure::of_settings(FailureExit::Configuration, vec![error]);
    let home = crate::config::home(&env::process).map_err(wrong)?;
    let client = ControlClient::open(&home, sources, CommandNeed::Running).await.map_err(elsewhere)?;
    let alive: AliveReport = client.get("/live").await.map_err(elsewhere)?;
    let Some(server) = alive.server else {
        return Err(AskFailure::unreachable(
            "talaria runs on this machine, but without an agent server",
            "set `server.enabled: true` and restart it; or name another server with --url or TALARIA_URL",
        ));
    };
    let url = BaseUrl::parse(&server)
        .map_err(|phrase| AskFailure::unanswered(format!("the address of the agent server {phrase}")))?;
    let has_home_key = key.is_none();
    let key = match key {
        Some(key) => Some(key),
        None => own_key(&home, sources)?,
    };
    Ok(ServerAccess { url, key, has_home_key })
}

/// The owner's key of this machine's server, as a start of the server would find it; `None` if it asks for none.
fn own_key(home: &std::path::Path, sources: &ConfigSources) -> Result<Option<Secret>, AskFailure> {
    let unusable =
        |error: api_key::KeyError| AskFailure::of_settings(FailureExit::Configuration, vec![error.into()]);
    let sources = ConfigSources { serve: true, ..sources.clone() };
    let server = match Config::load(&sources, &env::process) {
        Ok(config) => config.server,
        // The file may be under work while the server runs; the generated key may do.
        Err(errors) => match api_key::load(home).map_err(unusable)? {
            Some(key) => return Ok(Some(key)),
            None => return Err(AskFailure::of_settings(FailureExit::Configuration, errors)),
        },
    };
    match server {
        Some(server) if server.open => Ok(None),
        Some(server) if server.key.is_some() => Ok(server.key),
        Some(_) | None => api_key::load(home).map_err(unusable),
    }
}

/// Adds to the failure of a local command that there may be another server.
fn elsewhere(error: CommandError) -> AskFailure {
    let mut failure = AskFailure::from(error);
    if let Some(first) = failure.complaints.first_mut() {
        let more = "name another server with --url or TALARIA_URL";
        first.hint = Some(first.hint.take().map_or(more.to_owned(), |hint| format!("{hint}; or {more}")));
    }
    failure
}
