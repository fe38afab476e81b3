//! Servers of npm: `server-everything` over both transports, and `server-filesystem`. Also the package that they are made
//! with, as a client.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use talaria::agent::DenyReason;

use talaria::agents::tools::ToolFailure;
use talaria::config::{McpServerConfig, ToolPermission};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{CALLED, client, output_of};
use crate::it::mcp::{McpScene, http, names, permits, stdio};
use crate::it::person::Person;
use crate::parts;

fn server(name: &str, args: &[&str], env: &[(&str, &str)]) -> McpServerConfig {
    let program = parts::mcp_script(name).display().to_string();
    let args: Vec<&str> = std::iter::once(program.as_str()).chain(args.iter().copied()).collect();
    stdio("node", &args, env)
}

#[tokio::test]
async fn every_kind_of_result_of_server_everything_is_understood() {
    let scene =
        McpScene::new([("s", server("server-everything", &["stdio"], &[("MY_TOKEN", "seeded-secret")]))]);
    results_are_understood(&scene).await;
    let person = Person::denying(DenyReason::Person);
    let refused = scene.calls_with("echo", json!({ "message": "hi" }), &person).await;
    assert!(
        matches!(&refused, Err(ToolFailure::Failed(words)) if words.contains("a person said no")),
        "{refused:?}"
    );
    assert!(person.asked.lock()[0].detail.contains("\"message\": \"hi\""));
    let environment = scene.calls("get-env", json!({})).await.unwrap();
    assert!(environment.contains("MY_TOKEN") && !environment.contains("seeded-secret"), "{environment}");
    scene.ends().await;
}

/// Everything that the server answers alike over both transports.
async fn results_are_understood(scene: &McpScene) {
    let offered = scene.offers(&["s"]).await;
    assert!(offered.problems.is_empty(), "{:?}", offered.problems);
    assert!(names(&offered).contains(&"mcp_s_get-sum".to_owned()), "{:?}", names(&offered));
    assert_eq!(scene.calls("echo", json!({ "message": "hi" })).await, Ok("Echo: hi".to_owned()));
    let sum = scene.calls("get-sum", json!({ "a": 2, "b": 40 })).await.unwrap();
    assert!(sum.contains("42"), "{sum}");
    let picture = scene.calls("get-tiny-image", json!({})).await.unwrap();
    assert!(picture.contains("[picture, image/png, ") && picture.len() < 500, "{picture}");
    let structured = scene.calls("get-structured-content", json!({ "location": "Chicago" })).await.unwrap();
    assert!(structured.contains("temperature"), "{structured}");
    let wrong = scene.calls("get-sum", json!({ "a": "no number" })).await;
    assert!(matches!(&wrong, Err(ToolFailure::Failed(words)) if !words.is_empty()), "{wrong:?}");
    let person = Person::allowing();
    let long = json!({ "duration": 1, "steps": 4 });
    let done = scene.calls_with("trigger-long-running-operation", long, &person).await.unwrap();
    assert!(done.contains("completed"), "{done}");
    assert!(!person.progress.lock().is_empty(), "its progress is shown");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up_and_the_server_goes_on() {
    let config = McpServerConfig {
        timeout: Duration::from_millis(500),
        ..server("server-everything", &["stdio"], &[])
    };
    let scene = McpScene::new([("s", config)]);
    let long = scene.calls("trigger-long-running-operation", json!({ "duration": 60, "steps": 2 })).await;
    assert_eq!(long, Err(ToolFailure::failed("The MCP server `s` gave no answer within 0.5 seconds.")));
    assert_eq!(scene.calls("echo", json!({ "message": "hi" })).await, Ok("Echo: hi".to_owned()));
    scene.ends().await;
}

#[tokio::test]
async fn server_everything_works_over_http() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = async || {
        let mut child = Command::new("node")
            .arg(parts::mcp_script("server-everything"))
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening") {
                break;
            }
        }
        (child, lines)
    };
    let (mut child, _lines) = start().await;
    let pacing = talaria::agents::mcp::McpPacing {
        pauses: talaria_platform::Backoff::between(Duration::ZERO, Duration::ZERO),
        ..Default::default()
    };
    let config = http(&format!("http://127.0.0.1:{port}/mcp"), &[("Authorization", "Bearer seeded-secret")]);
    let scene = McpScene::with_pacing([("s", config)], pacing);
    results_are_understood(&scene).await;
    child.kill().await.unwrap();
    let away = scene.calls("echo", json!({ "message": "hi" })).await;
    assert!(matches!(&away, Err(ToolFailure::Failed(_))), "{away:?}");
    let (_child, _lines) = start().await;
    // The new process does not know the session. At most one call is lost by that.
    let mut said = scene.calls("echo", json!({ "message": "again" })).await;
    if said.is_err() {
        said = scene.calls("echo", json!({ "message": "again" })).await;
    }
    assert_eq!(said, Ok("Echo: again".to_owned()));
    scene.ends().await;
}

#[tokio::test]
async fn server_filesystem_reads_below_its_folder_and_says_no_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "in it").unwrap();
    let root = folder.path().canonicalize().unwrap().display().to_string();
    let mut config = permits(server("server-filesystem", &[&root], &[]), "write_file", ToolPermission::Deny);
    config.include =
        Some(vec!["read_text_file".to_owned(), "list_directory".to_owned(), "write_file".to_owned()]);
    let scene = McpScene::new([("s", config)]);
    assert_eq!(names(&scene.offers(&["s"]).await), ["mcp_s_list_directory", "mcp_s_read_text_file"]);
    let read = scene.calls("read_text_file", json!({ "path": format!("{root}/a.txt") })).await;
    assert_eq!(read, Ok("in it".to_owned()));
    let outside = scene.calls("read_text_file", json!({ "path": "/etc/passwd" })).await;
    assert!(matches!(&outside, Err(ToolFailure::Failed(words)) if words.contains("denied")), "{outside:?}");
    scene.ends().await;
}

#[tokio::test]
async fn the_package_sdk_calls_tools_of_a_gateway() {
    let mut node = std::process::Command::new("node");
    node.arg(client("mcp_client.mjs")).arg(parts::mcp_sdk());
    assert_eq!(output_of(&mut node).await, CALLED);
}
