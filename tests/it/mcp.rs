//! MCP servers that do what a real one does not: they hang, die, flood, lie and change. Each ends in a clear state within
//! its limit, and leaves no process.

mod calls;
mod hostile_http;
mod lifecycle;
pub mod scripted_server;
mod starts;

use talaria::config::McpServerConfig;

use crate::support::mcp::stdio;

/// A server of our own that follows this script; see [`scripted_server`].
pub fn scripted(script: &str) -> McpServerConfig {
    let program = std::env::current_exe().unwrap().display().to_string();
    let args = ["mcp::scripted_server::serves_if_told_to", "--exact", "--nocapture", "--test-threads=1"];
    stdio(program, &args, &[(scripted_server::SCRIPT, script), ("API_KEY", SEEDED)])
}

/// A secret in the environment of the scripted server.
const SEEDED: &str = "hunter2-is-my-key";
