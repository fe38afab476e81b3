//! The life of a server: pauses after failures, the idle end, reloads and the end of all.

use std::fs;
use std::time::Duration;

use serde_json::json;
use talaria::agents::mcp::{McpPacing, McpServerState};
use talaria::agents::tools::ToolFailure;
use talaria::config::{McpSelection, McpServerConfig, ToolPermission};

use super::scripted;
use crate::support::mcp::{McpScene, call, http, permits, stdio};
use crate::support::person::Person;

/// The server cannot even get its folder, for a reason that the test changes: so each attempt shows, and no process or
/// network is waited for while the clock stands still.
#[tokio::test(start_paused = true)]
async fn a_failed_start_is_remembered_for_pauses_that_grow() {
    let scene = McpScene::new([("s", stdio("true", &[], &[]))]);
    let folders = scene.home().join("mcp");
    let not_a_folder = |is_file: bool| {
        let _ = fs::remove_file(&folders);
        let _ = fs::remove_dir_all(&folders);
        if is_file {
            fs::write(&folders, "").unwrap();
        } else {
            fs::create_dir(&folders).unwrap();
            fs::write(folders.join("s"), "").unwrap();
        }
    };
    let problem = async || scene.offers(&["s"]).await.problems.remove(0);
    not_a_folder(true);
    let first = problem().await;
    assert!(first.contains("its folder cannot be made"), "{first}");
    not_a_folder(false);
    assert_eq!(problem().await, first, "remembered");
    tokio::time::advance(Duration::from_millis(2_100)).await;
    let second = problem().await;
    assert_ne!(second, first, "tried again");
    not_a_folder(true);
    tokio::time::advance(Duration::from_millis(2_100)).await;
    assert_eq!(problem().await, second, "the pause has doubled");
    tokio::time::advance(Duration::from_millis(2_000)).await;
    assert_eq!(problem().await, first);
    scene.ends().await;
}

#[tokio::test]
async fn a_server_that_nobody_calls_is_ended_and_comes_back() {
    let pacing = McpPacing { idle: Duration::from_millis(500), ..McpPacing::default() };
    let scene = McpScene::with_pacing([("s", scripted("plain"))], pacing);
    assert!(!scene.offers(&["s"]).await.tools.is_empty());
    scene.comes_to(|scene| scene.state() == McpServerState::NotStarted && scene.children() == 0).await;
    assert!(scene.servers.status()[0].tools > 0, "their number is still known");
    assert!(!scene.offers(&["s"]).await.tools.is_empty());
    scene.ends().await;
}

#[tokio::test]
async fn one_process_serves_all_turns_at_once() {
    let scene = McpScene::new([("s", permits(scripted("plain"), "echo", ToolPermission::Allow))]);
    let turns = (0..20).map(|number| {
        let scene = &scene;
        async move { scene.calls("echo", json!({ "text": number.to_string() })).await }
    });
    let said = futures_util::future::join_all(turns).await;
    assert!(said.iter().enumerate().all(|(number, said)| *said == Ok(number.to_string())), "{said:?}");
    // The shim and the server.
    assert_eq!(scene.children(), 2);
    scene.ends().await;
}

#[tokio::test]
async fn a_reload_keeps_what_did_not_change_and_ends_the_rest() {
    let scene = McpScene::new([("s", scripted("plain")), ("t", scripted("plain"))]);
    let offered = scene.offers(&["s", "t"]).await;
    let before = offered.tools.iter().find(|tool| tool.spec().name == "mcp_t_echo").unwrap();
    let other = McpServerConfig { include: Some(vec!["echo".to_owned()]), ..scripted("plain") };
    let next = [("s", scripted("plain")), ("t", other)];
    let config = next.iter().map(|(name, config)| ((*name).to_owned(), config.clone())).collect();
    assert_eq!(scene.servers.changes(&config), ["t"]);
    scene.reloads(next);
    assert!(scene.servers.changes(&config).is_empty());
    let states: Vec<_> = scene.servers.status().into_iter().map(|status| status.state).collect();
    assert_eq!(states, [McpServerState::Running, McpServerState::NotStarted]);
    let person = Person::allowing();
    let said = call(&**before, json!({}), &person).await;
    let words = "The MCP server `t` was removed or changed in the configuration.";
    assert_eq!(said, Err(ToolFailure::failed(words)));
    assert_eq!(scene.offers(&["t"]).await.tools.len(), 1);
    scene.comes_to(|scene| scene.children() == 4).await;
    scene.reloads([]);
    scene.comes_to(|scene| scene.children() == 0).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_server_that_is_switched_off_is_never_started() {
    let scene = McpScene::new([("s", McpServerConfig { enabled: false, ..scripted("plain") })]);
    let offered = scene.offers(&["s"]).await;
    assert!(offered.tools.is_empty() && scene.state() == McpServerState::Disabled);
    assert!(scene.servers.selected(&talaria::config::McpSelection::All).is_empty());
    assert_eq!(scene.children(), 0);
    scene.ends().await;
}

#[tokio::test]
async fn dropping_everything_ends_the_processes() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    assert!(!scene.offers(&["s"]).await.tools.is_empty());
    scene.ends().await;
    let said = scene.offers(&["s"]).await;
    assert!(said.tools.is_empty(), "nothing starts after the end");
}

#[tokio::test]
async fn a_room_has_a_line_about_each_server_of_the_agent_without_words_of_the_server() {
    let slow = McpServerConfig { connect_timeout: Duration::from_millis(300), ..scripted("hangs") };
    let scene = McpScene::new([
        ("well", scripted("plain")),
        ("exits", scripted("exits")),
        ("slow", slow),
        ("gone", stdio("no-such-program", &[], &[])),
        ("babbles", scripted("babbles")),
        ("closed", http("http://127.0.0.1:1/mcp", &[])),
        ("later", scripted("plain")),
        ("off", McpServerConfig { enabled: false, ..scripted("plain") }),
        ("other", scripted("plain")),
    ]);
    let used = ["well", "exits", "slow", "gone", "babbles", "closed", "later", "off"];
    let selection = McpSelection::Some(used.map(str::to_owned).into());
    let lines = || {
        let lines = scene.servers.state_lines(&selection);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(lines().matches(": not started. Tools: not known yet.").count(), 7, "{}", lines());
    scene.offers(&used[..6]).await;
    insta::assert_snapshot!(lines(), @"
    MCP server babbles: does not work, because it did not keep to the protocol. Tools: 0.
    MCP server closed: does not work, because it could not be reached. Tools: 0.
    MCP server exits: does not work, because it ended. Tools: 0.
    MCP server gone: does not work, because it could not be started. Tools: 0.
    MCP server later: not started. Tools: not known yet.
    MCP server off: switched off. Tools: 0.
    MCP server slow: does not work, because it did not answer in time. Tools: 0.
    MCP server well: runs. Tools: 13.
    ");
    scene.ends().await;
}
