//! Asks codex for its plugins, in a process of its own that ends right after.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use talaria_platform::spawn_task;

use crate::agents::codex::binary::CodexBinary;
use crate::agents::codex::codex_environment;
use crate::agents::codex::migration::PluginListing;
use crate::agents::jsonrpc::{RpcClient, RpcDialect, RpcError, RpcIncoming, RpcLimits};
use crate::agents::process::{EndPatience, ProcessHost, ProcessSpec, StdinMode};
use crate::config::CodexConfig;

/// Time limit of the whole question. Codex dials out for it, and a person waits for the answer of a command.
const DEADLINE: Duration = Duration::from_secs(5);

/// The plugins that codex has installed; `None` if it did not tell them in time.
pub(super) async fn ask(
    host: &ProcessHost,
    codex: &CodexConfig,
    binary: &CodexBinary,
    folder: &Path,
) -> Option<PluginListing> {
    let process = host.spawn(ProcessSpec {
        program: binary.program.clone().into_os_string(),
        args: vec!["app-server".into()],
        env: codex_environment(codex),
        cwd: folder.to_owned(),
        stdin: StdinMode::Piped,
        patience: EndPatience::default(),
    });
    let process = process.map_err(|error| tracing::warn!(%error, "codex cannot tell its plugins")).ok()?;
    let (client, incoming) = RpcClient::start(process, RpcDialect::Bare, RpcLimits::default());
    // Its messages are about nothing of ours, and a full queue would hold up the answer.
    drop(spawn_task("codex-plugins", ignore(incoming)));
    let listed = tokio::time::timeout(DEADLINE, list(&client)).await;
    drop(spawn_task("end-codex", async move { client.end().await }));
    match listed {
        Ok(Ok(listing)) => Some(listing),
        Ok(Err(error)) => {
            tracing::warn!(%error, "codex did not tell its plugins");
            None
        }
        Err(_) => {
            tracing::warn!("codex did not tell its plugins in time");
            None
        }
    }
}

async fn list(client: &RpcClient) -> Result<PluginListing, RpcError> {
    let version = env!("CARGO_PKG_VERSION");
    let client_info = json!({ "name": "talaria", "title": "Talaria", "version": version });
    client.call("initialize", json!({ "clientInfo": client_info }), DEADLINE).await?;
    client.notify("initialized", None).await?;
    let answer = client.call("plugin/list", json!({}), DEADLINE).await?;
    Ok(PluginListing::of_answer(&answer.result))
}

async fn ignore(mut incoming: RpcIncoming) {
    while incoming.next().await.is_some() {}
}
