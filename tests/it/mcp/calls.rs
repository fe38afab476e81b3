//! Calls of tools: permission, results, and everything that can go wrong.

use std::time::Duration;

use serde_json::json;
use talaria::agent::DenyReason;
use talaria::agents::mcp::{McpFailure, McpFailureKind, McpServerState};
use talaria::agents::tools::ToolFailure;
use talaria::config::{McpServerConfig, McpTransport, ToolPermission};

use super::{SEEDED, scripted};
use crate::support::mcp::{McpScene, PATIENCE, call, names, permits};
use crate::support::person::Person;

fn failed(words: &str) -> Result<String, ToolFailure> {
    Err(ToolFailure::failed(words))
}

#[tokio::test]
async fn a_person_sees_exactly_what_would_be_called() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    let person = Person::allowing();
    let arguments = json!({ "text": "rm -rf /\nnow", "deep": { "a": [1, true] } });
    assert_eq!(scene.calls_with("echo", arguments, &person).await, Ok("rm -rf /\nnow".to_owned()));
    let asked = person.asked.lock().clone();
    assert!(asked.len() == 1 && asked[0].form.is_approval() && asked[0].title == "s: echo".into());
    insta::assert_snapshot!(asked[0].detail, @r#"
    MCP "s" "echo"
    {
      "deep": {
        "a": [
          1,
          true
        ]
      },
      "text": "rm -rf /\nnow"
    }
    "#);
    scene.ends().await;
}

#[tokio::test]
async fn without_an_approval_nothing_is_called() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    let refused =
        |why: &str| ToolFailure::failed(format!("The call was not allowed, so nothing was done: {why}."));
    for (reason, failure) in [
        (
            DenyReason::Person,
            refused(
                "a person said no. Do not try it again in another way; say what you wanted to do and ask how to go on",
            ),
        ),
        (DenyReason::Timeout, ToolFailure::Halt(talaria::i18n::TextKey::AskHalted.into())),
        (DenyReason::Stopped, ToolFailure::Stopped),
        (DenyReason::Gone, refused("there is nobody here who could be asked")),
    ] {
        let said = scene.calls_with("die", json!({}), &Person::denying(reason)).await;
        assert_eq!(said, Err(failure));
    }
    assert_eq!(scene.state(), McpServerState::Running, "the tool that kills it was never called");
    scene.ends().await;
}

#[tokio::test]
async fn allow_does_not_ask_and_deny_does_not_offer() {
    let config = permits(scripted("plain"), "echo", ToolPermission::Allow);
    let scene = McpScene::new([("s", permits(config, "die", ToolPermission::Deny))]);
    let nobody = Person::denying(DenyReason::Person);
    assert_eq!(scene.calls_with("echo", json!({ "text": "x" }), &nobody).await, Ok("x".to_owned()));
    assert!(nobody.asked.lock().is_empty());
    let offered = names(&scene.offers(&["s"]).await);
    assert!(
        offered.contains(&"mcp_s_echo".to_owned()) && !offered.contains(&"mcp_s_die".to_owned()),
        "{offered:?}"
    );
    scene.ends().await;
}

#[tokio::test]
async fn an_error_of_the_tool_is_a_failure_in_its_words() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    assert_eq!(scene.calls("fail", json!({})).await, failed("it broke"));
    scene.ends().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again_for_the_next() {
    let pacing = talaria::agents::mcp::McpPacing {
        pauses: talaria_platform::Backoff::between(Duration::ZERO, Duration::ZERO),
        ..Default::default()
    };
    let scene = McpScene::with_pacing([("s", scripted("plain"))], pacing);
    assert_eq!(
        scene.calls("die", json!({})).await,
        failed(
            "The MCP server `s` was lost during the call (it ended (exit status 7); it said: the disk is on fire). It is \
             not known whether the call had an effect."
        )
    );
    scene.comes_to(|scene| matches!(scene.state(), McpServerState::Failed(_))).await;
    let McpServerState::Failed(McpFailure { kind, reason: why }) = scene.state() else { panic!("it failed") };
    assert_eq!(kind, McpFailureKind::Ended);
    assert!(why.contains("exit status 7") && why.contains("the disk is on fire"), "{why}");
    assert_eq!(scene.calls("echo", json!({ "text": "back" })).await, Ok("back".to_owned()));
    scene.ends().await;
}

#[tokio::test]
async fn a_reply_beyond_every_measure_breaks_the_connection_with_a_reason() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    for (tool, why) in [
        ("huge", "it sent a message of more than 16 MiB"),
        ("flood", "it sent more than 64 MiB without an answer"),
    ] {
        let scene = if tool == "huge" { &scene } else { &McpScene::new([("s", scripted("plain"))]) };
        let said = scene.calls(tool, json!({})).await;
        let words = format!(
            "The MCP server `s` was lost during the call ({why}). It is not known whether the call had an effect."
        );
        assert_eq!(said, failed(&words));
        scene.ends().await;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    // nextest gives each test a process of its own; plain cargo does not, and counts all tests.
    if std::env::var_os("NEXTEST").is_some() {
        assert!(peak.unwrap_or(0_u64) < 250_000, "{peak:?} kB");
    }
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_limit_and_the_server_is_told() {
    let config = McpServerConfig { timeout: Duration::from_millis(300), ..scripted("plain") };
    let scene = McpScene::new([("s", config)]);
    let said = scene.calls("hang", json!({})).await;
    assert_eq!(said, failed("The MCP server `s` gave no answer within 0.3 seconds."));
    has_cancelled(&scene, 1).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_stop_and_a_dropped_call_are_told_to_the_server() {
    let scene = McpScene::new([("s", permits(scripted("plain"), "hang", ToolPermission::Allow))]);
    let offered = scene.offers(&["s"]).await;
    let hang = offered.tools.iter().find(|tool| tool.spec().name == "mcp_s_hang").unwrap();
    let person = Person::denying(DenyReason::Person);
    let stopping = async {
        // The call has begun when another one on the same line was answered.
        let _ = scene.calls("echo", json!({})).await;
        person.stop.cancel();
    };
    let (said, ()) = tokio::join!(call(&**hang, json!({}), &person), stopping);
    assert_eq!(said, Err(ToolFailure::Stopped));
    has_cancelled(&scene, 1).await;

    let person = Person::denying(DenyReason::Person);
    tokio::select! {
        biased;
        said = call(&**hang, json!({}), &person) => panic!("{said:?}"),
        _ = scene.calls("echo", json!({})) => {}
    }
    has_cancelled(&scene, 2).await;
    scene.ends().await;
}

/// Waits until the server was told that nobody waits for so many of its calls.
async fn has_cancelled(scene: &McpScene, times: usize) {
    let waiting = async { while scene.calls("cancelled", json!({})).await != Ok(times.to_string()) {} };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it is told");
}

#[tokio::test]
async fn progress_is_shown_and_requests_of_the_server_are_refused() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    let person = Person::allowing();
    assert_eq!(scene.calls_with("progress", json!({}), &person).await, Ok("done".to_owned()));
    let shown = person.progress.lock().clone();
    assert!(shown.iter().all(|line| line.starts_with("step ")), "{shown:?}");
    let refused = scene.calls("ask_us", json!({})).await.unwrap();
    insta::assert_snapshot!(refused, @r"
    sampling/createMessage -32601
    elicitation/create -32601
    roots/list -32601
    ping null
    made/up -32601
    ");
    scene.ends().await;
}

#[tokio::test]
async fn a_changed_list_is_read_again() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    let before = scene.offers(&["s"]).await.tools.len();
    assert_eq!(scene.calls("change", json!({})).await, Ok("changed".to_owned()));
    let offered = scene.offers(&["s"]).await;
    assert_eq!(offered.tools.len(), before + 1);
    assert!(names(&offered).contains(&"mcp_s_new".to_owned()));
    assert_eq!(scene.servers.status()[0].tools, before + 1);
    scene.ends().await;
}

#[tokio::test]
async fn the_server_gets_a_short_environment_and_its_key_never_comes_back() {
    let scene = McpScene::new([("s", scripted("plain"))]);
    let environment = scene.calls("environment", json!({})).await.unwrap();
    assert!(environment.contains("API_KEY=[redacted]\n") && !environment.contains(SEEDED), "{environment}");
    assert!(environment.contains("PATH=") && !environment.contains("CARGO"), "{environment}");
    scene.ends().await;
}

/// A server may repeat its keys wherever it writes: in descriptions, schemas, progress and results.
#[tokio::test]
async fn no_key_of_the_server_comes_back_whichever_way_it_got_it() {
    let argument = "sk-0123456789abcdefghij";
    let mut config = scripted("leaks");
    if let McpTransport::Stdio { args, .. } = &mut config.transport {
        // One more filter of the test program, which is none of its options.
        args.push(argument.to_owned());
    }
    let scene = McpScene::new([("s", config)]);
    let offered = scene.offers(&["s"]).await;
    assert!(!offered.tools.is_empty());
    for tool in &offered.tools {
        let spec = tool.spec();
        let told = format!("{} {}", spec.description, spec.parameters);
        assert!(told.contains("does it with  [redacted] [redacted]"), "{told}");
        assert!(!told.contains(SEEDED) && !told.contains(argument), "{told}");
    }
    let person = Person::allowing();
    assert_eq!(scene.calls_with("progress", json!({}), &person).await, Ok("done".to_owned()));
    let shown = person.progress.lock().clone();
    assert!(shown.iter().all(|line| line.ends_with(" [redacted] [redacted]")), "{shown:?}");
    let told = scene.calls("environment", json!({})).await.unwrap();
    assert!(told.contains("argument [redacted]\n") && !told.contains(argument), "{told}");
    scene.ends().await;
}
