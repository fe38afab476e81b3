//! Finds out whether the tools server that codex calls by our name is our own.

use serde_json::json;

use super::enable::codex_folder;
use super::link::CodexLink;
use super::migration::ToolsServer;
use crate::config::CodexConfig;

/// Whether a thread in this folder has the tools server that our block in codex' configuration names, and no other one
/// under its name. Only then its calls need no question. Every doubt is a no.
pub async fn has_own_server(link: &CodexLink, config: &CodexConfig, ours: &ToolsServer, cwd: &str) -> bool {
    let Some(folder) = codex_folder(config).filter(|_| config.tools_server) else { return false };
    let server = ours.clone();
    let written = tokio::task::spawn_blocking(move || server.written_args(&folder)).await;
    let Ok(Some(args)) = written else { return false };
    // The file of a project may name another program.
    match link.call("config/read", json!({ "cwd": cwd, "includeLayers": false })).await {
        Ok(answer) => ours.is_effective(&answer.result, &args),
        Err(error) => {
            tracing::warn!(%error, "codex does not tell its configuration");
            false
        }
    }
}
