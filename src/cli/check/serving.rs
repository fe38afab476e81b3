//! Checks that the agent server could be served: its port, and its key.

use std::io;
use std::path::Path;

use tokio::net::TcpListener;

use super::CheckFailure;
use crate::config::{ServerConfig, api_key};
use crate::gateway::BINDING;

/// Problems that would keep the server from starting, each with a hint. Nothing stays open.
pub(super) async fn troubles(server: &ServerConfig, home: &Path) -> Vec<CheckFailure> {
    let bound = tokio::time::timeout(BINDING, TcpListener::bind(server.address())).await;
    let port = match bound.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(_) => None,
        Err(error) => Some(server.cannot_listen(&error)),
    };
    let key = match server.key.is_none() && !server.open {
        true => api_key::load(home).err().map(|error| (error.message, error.hint)),
        false => None,
    };
    port.into_iter().chain(key).collect()
}
