//! A server of PyPI, `mcp-server-time`, and the package `mcp` as a client.

use std::process::Command;

use serde_json::json;
use talaria::agents::tools::ToolFailure;

use super::{CALLED, client, output_of};
use crate::it::mcp::{McpScene, names, stdio};
use crate::parts;

#[tokio::test]
async fn mcp_server_time_tells_the_time() {
    let python = parts::venv_of("mcp-time").join("bin/python").display().to_string();
    let config = stdio(python, &["-m", "mcp_server_time", "--local-timezone", "UTC"], &[]);
    let scene = McpScene::new([("s", config)]);
    assert_eq!(names(&scene.offers(&["s"]).await), ["mcp_s_convert_time", "mcp_s_get_current_time"]);
    let now = scene.calls("get_current_time", json!({ "timezone": "Europe/Berlin" })).await.unwrap();
    assert!(now.contains("Europe/Berlin"), "{now}");
    let wrong = scene.calls("get_current_time", json!({ "timezone": "Nowhere/Atlantis" })).await;
    assert!(matches!(wrong, Err(ToolFailure::Failed(_))), "{wrong:?}");
    scene.ends().await;
}

#[tokio::test]
async fn the_package_mcp_calls_tools_of_a_gateway() {
    let python = parts::venv_of("mcp-time").join("bin/python");
    assert_eq!(output_of(Command::new(python).arg(client("mcp_client.py"))).await, CALLED);
}
