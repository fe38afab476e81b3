//! Starting a server, and failing to.

use std::time::Duration;

use serde_json::json;
use talaria::agents::mcp::McpServerState;
use talaria::config::McpServerConfig;

use super::scripted_server::TOOLS;
use super::{SEEDED, scripted};
use crate::support::mcp::{McpScene, http, names, stdio};

/// A server that has little time to start.
fn hurried(config: McpServerConfig) -> McpServerConfig {
    McpServerConfig { connect_timeout: Duration::from_millis(300), ..config }
}

#[tokio::test]
async fn nothing_is_started_for_servers_that_nobody_uses() {
    let configured: Vec<_> = (0..10).map(|number| (format!("s{number}"), scripted("plain"))).collect();
    let scene = McpScene::new(configured.iter().map(|(name, config)| (name.as_str(), config.clone())));
    assert_eq!(scene.offers(&[]).await.tools.len(), 0);
    assert!(scene.servers.status().iter().all(|status| status.state == McpServerState::NotStarted));
    assert_eq!(scene.children(), 0);
    assert!(!scene.home().join("mcp").exists());
    assert!(!scene.offers(&["s3"]).await.tools.is_empty());
    let running = |scene: &McpScene| {
        let status = scene.servers.status().into_iter();
        status
            .filter(|status| status.state == McpServerState::Running)
            .map(|status| status.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(running(&scene), ["s3"]);
    scene.ends().await;
}

/// The scripted server refuses every other version, so that no test passes with one.
#[tokio::test]
async fn the_newest_protocol_with_a_handshake_is_offered() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    assert_eq!(names(&scene.offers(&["s"]).await).len(), TOOLS.len());
    scene.ends().await;
}

#[tokio::test]
async fn noise_around_the_messages_does_not_matter() {
    let scene = McpScene::new([("s", scripted("noise"))]);
    assert_eq!(scene.calls("echo", json!({ "text": "hallo" })).await, Ok("hallo".to_owned()));
    scene.ends().await;
}

#[tokio::test]
async fn a_server_that_exits_says_why_and_costs_only_its_tools() {
    let scene = McpScene::new([("s", scripted("exits")), ("well", scripted("plain"))]);
    let offered = scene.offers(&["s", "well", "nobody"]).await;
    assert!(names(&offered).iter().all(|name| name.starts_with("mcp_well_")), "{:?}", names(&offered));
    assert_eq!(offered.problems[0], "There is no MCP server `nobody` in the configuration.");
    let problem = &offered.problems[1];
    assert!(problem.starts_with("The MCP server `s` does not run: the handshake failed: "), "{problem}");
    assert!(problem.contains("(exit status 3); it said: "), "{problem}");
    assert!(problem.contains("cannot start without the key [redacted]. Its tools are missing."), "{problem}");
    assert!(!problem.contains(SEEDED) && !problem.contains('\n'), "{problem}");
    let status = scene.servers.status();
    assert!(
        matches!(&status[0].state, McpServerState::Failed(failure) if failure.reason.contains("exit status 3")),
        "{status:?}"
    );
    // The failure is remembered: the next turn does not wait.
    assert_eq!(scene.offers(&["s"]).await.problems[0], *problem);
    scene.ends().await;
}

#[tokio::test]
async fn a_server_that_hangs_at_the_handshake_is_given_up() {
    for (script, why) in
        [("hangs", "it was not ready within 0.3 seconds"), ("mute", "it was not ready within 0.3 seconds")]
    {
        let scene = McpScene::new([("s", hurried(scripted(script)))]);
        let offered = scene.offers(&["s"]).await;
        assert!(offered.tools.is_empty());
        assert!(offered.problems[0].contains(why), "{script}: {:?}", offered.problems);
        scene.ends().await;
    }
}

#[tokio::test]
async fn the_end_of_all_also_ends_a_server_that_still_starts() {
    let scene = McpScene::new([("s", scripted("hangs"))]);
    let starting = scene.offers(&["s"]);
    let ending = async {
        scene.comes_to(|scene| scene.children() == 2).await;
        scene.ends().await;
    };
    let (offered, ()) = tokio::join!(starting, ending);
    assert_eq!(offered.problems, ["The MCP server `s` was ended. Its tools are missing."]);
}

#[tokio::test]
async fn a_server_that_babbles_without_end_is_cut_off() {
    let scene = McpScene::new([("s", scripted("babbles"))]);
    let offered = scene.offers(&["s"]).await;
    assert!(offered.problems[0].contains("it sent a message of more than 16 MiB"), "{:?}", offered.problems);
    scene.ends().await;
}

#[tokio::test]
async fn a_program_or_an_address_that_is_not_there_is_named() {
    let scene = McpScene::new([
        ("gone", stdio("no-such-program", &[], &[])),
        ("closed", http("http://127.0.0.1:1/mcp", &[("Authorization", "Bearer abcdefgh")])),
    ]);
    let offered = scene.offers(&["gone", "closed"]).await;
    assert!(offered.problems[0].contains("no-such-program cannot be started"), "{:?}", offered.problems);
    insta::assert_snapshot!(offered.problems[1], @"The MCP server `closed` does not run: the request failed: Connection refused (os error 111). Its tools are missing.");
    scene.ends().await;
}

#[tokio::test]
async fn a_list_in_pages_is_read_whole_and_one_without_end_is_not() {
    let scene = McpScene::new([("s", scripted("pages"))]);
    assert_eq!(names(&scene.offers(&["s"]).await), ["mcp_s_t0", "mcp_s_t1", "mcp_s_t2"]);
    scene.ends().await;
    let scene = McpScene::new([("s", scripted("endless"))]);
    assert_eq!(scene.offers(&["s"]).await.tools.len(), 64);
    scene.ends().await;
}

#[tokio::test]
async fn tools_that_collide_are_told_apart_and_reach_their_own() {
    let scene = McpScene::new([("s", scripted("collides"))]);
    let offered = names(&scene.offers(&["s"]).await);
    assert_eq!(offered[0], "mcp_s_a_b");
    assert!(
        offered[1] != offered[2] && offered[1..].iter().all(|name| name.starts_with("mcp_s_a_b_")),
        "{offered:?}"
    );
    let mut called = Vec::new();
    for name in &offered {
        called.push(scene.calls(name.strip_prefix("mcp_s_").unwrap(), json!({})).await.unwrap());
    }
    assert_eq!(called, ["no tool a b", "no tool a.b", "no tool a_b"]);
    scene.ends().await;
}
