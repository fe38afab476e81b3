//! Our own tools server within codex: its calls need no question, as long as it is certain that codex runs it.

use serde_json::{Value, json};
use talaria::agents::codex::binary::{CodexBinary, MINIMUM};
use talaria::agents::codex::enable::{EnableSources, SharedCodexHome};
use talaria::agents::codex::migration::{MigratedAgent, MigrationMode, ToolsServer};
use talaria::config::{CodexConfig, McpSelection};
use talaria::ids::AgentName;
use tempfile::TempDir;

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario, ScriptedAnswer};

/// A codex that calls a tool of our server at the words "use it", and whose configuration has the server as we write it.
async fn started() -> (CodexScene, Scenario, TempDir) {
    let call = json!({ "serverName": "talaria", "mode": "form", "message": "Allow it?",
        "_meta": { "codex_approval_kind": "mcp_tool_call", "tool_name": "skills_list", "tool_params": {} },
        "requestedSchema": { "type": "object", "properties": {} } });
    let scenario = Scenario::default()
        .turn("use it", [Act::asks("mcpServer/elicitation/request", call), Act::says(&["Done."])])
        .turn("die", [Act::Dies]);
    let home = tempfile::tempdir().unwrap();
    let mut config = CodexConfig::new(home.path().to_owned());
    config.codex_home = Some(home.path().to_owned());
    config.plugins = false;
    let scene = CodexScene::as_set(scenario.clone(), |set| set.codex_home = config.codex_home.clone()).await;
    let ours = scene.servers().tools_server.clone();
    let (servers, is_switched) = (McpSelection::None, false);
    let agent = MigratedAgent { name: AgentName::proxy(), codex: config, servers, is_switched };
    let sources =
        EnableSources { home: ours.home.clone(), file: ours.config.clone(), ..EnableSources::default() };
    let binary = CodexBinary { program: scene.codex.command(), version: MINIMUM };
    let block = SharedCodexHome::new(agent, [], sources).enable(&binary, MigrationMode::Write).await.block;
    let read = ScriptedAnswer::Result(read_back(&ours, &block));
    let scenario = scenario.always("config/read", read);
    scene.codex.plays(&scenario);
    (scene, scenario, home)
}

/// The answer of codex about a configuration with this block of ours.
fn read_back(ours: &ToolsServer, block: &str) -> Value {
    let (_, table) = block.split_once("[mcp_servers.talaria]").unwrap_or_else(|| panic!("{block}"));
    let args = table.lines().find_map(|line| line.strip_prefix("args = ")).unwrap();
    let mut env = json!({ "TALARIA_HOME": ours.home });
    if let Some(config) = &ours.config {
        env["TALARIA_CONFIG"] = json!(config);
    }
    let args: Value = serde_json::from_str(args).unwrap();
    json!({ "config": { "mcp_servers": { "talaria": { "command": ours.program, "args": args, "env": env } } } })
}

/// Codex' tool is called without a question.
async fn calls_by_itself(scene: &CodexScene, times: usize) {
    scene.room().says("@ann", "use it").await;
    let done =
        || scene.room().now().matches("Done.").count() == times && !scene.room().now().contains("bot…");
    scene.comes_to("the tool is called", done).await;
    assert_eq!(scene.codex.answers().pop().unwrap()["result"]["action"], "accept");
}

#[tokio::test]
async fn a_codex_that_did_not_read_its_configuration_again_has_no_tools_server_of_ours() {
    let unknown = ScriptedAnswer::error(-32_600, "unknown variant `config/mcpServer/reload`");
    for answer in [unknown, ScriptedAnswer::Silence] {
        let (scene, scenario, _home) = started().await;
        calls_by_itself(&scene, 1).await;
        scene.codex.plays(&scenario.always("config/mcpServer/reload", answer));
        scene.servers().reload_configuration().await;
        scene.receives("config/mcpServer/reload", 1).await;

        scene.room().says("@ann", "use it").await;
        let asked = scene.room().is_asked("skills_list").await;
        scene.room().says("@ann", &format!("/deny {}", asked.code)).await;
        let declined = || scene.codex.answers().iter().any(|answer| answer["result"]["action"] == "decline");
        scene.comes_to("the call is declined", declined).await;

        // A new thread of the same process is not trusted either.
        let other = scene.gateway.direct_room("!other");
        other.says("@ann", "use it").await;
        let asked = other.is_asked("skills_list").await;
        other.says("@ann", &format!("/deny {}", asked.code)).await;
        other.shows("Done.").await;

        // A fresh process reads the file at its start.
        scene.asks("die", "codex ended unexpectedly").await;
        calls_by_itself(&scene, 3).await;
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_codex_that_read_its_configuration_again_is_looked_at_again() {
    let (scene, scenario, _home) = started().await;
    calls_by_itself(&scene, 1).await;
    let read = ScriptedAnswer::Result(json!({}));
    scene.codex.plays(&scenario.always("config/mcpServer/reload", read));
    scene.servers().reload_configuration().await;
    calls_by_itself(&scene, 2).await;
    assert_eq!(scene.codex.received("config/read").len(), 2);
    scene.ends().await;
}
