//! `talaria mcp` as programs use it: a real MCP client at one end, the running gateway at the other.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use insta::assert_snapshot;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest,
    ContentBlock, Implementation, ProtocolVersion,
};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use rustix::process::Signal;
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

use super::Scene;
use crate::mcp::scripted_server;
use crate::support::binary::Talaria;

const ANN: &str = "access: {people: ['@ann:test']}";

/// A gateway with an MCP server `s` and the skill `tea`.
async fn scene() -> Scene {
    let scene = Scene::new(ANN).await;
    let program = std::env::current_exe().unwrap();
    let server = json!({
        "command": program,
        "args": ["mcp::scripted_server::serves_if_told_to", "--exact", "--nocapture", "--test-threads=1"],
        "env": { scripted_server::SCRIPT: "serves", "API_KEY": "hunter2-is-my-key" },
        "permissions": {
            "echo": "allow", "fail": "allow", "hang": "allow", "cancelled": "allow", "die": "allow",
            "huge": "ask", "environment": "deny",
        },
    });
    let never = json!({ "command": "/nowhere/at/all", "permissions": { "x": "ask" } });
    let servers = json!({ "s": server, "unused": never });
    scene.talaria.rewrites_config(format!("{}mcp_servers: {servers}\n", scene.config(ANN)));
    let skills = scene.talaria.home().join("skills");
    fs::create_dir(&skills).unwrap();
    fs::write(skills.join("tea.md"), "---\nname: tea\ndescription: How to make tea\n---\nBoil water.\n")
        .unwrap();
    scene
}

/// A running `talaria mcp` and its client.
struct Client {
    service: RunningService<RoleClient, ClientConfig>,
    process: Child,
}

impl Client {
    async fn of(talaria: &Talaria) -> Self {
        Self::with(talaria, &[], ProtocolVersion::V_2025_11_25).await
    }

    async fn with(talaria: &Talaria, args: &[&str], version: ProtocolVersion) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_talaria"));
        command.arg("mcp").args(args).env_clear().env("TALARIA_HOME", talaria.home()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let me = ClientConfig::new(ClientCapabilities::default(), Implementation::new("test", "1"));
        let (me, mode) = (me.with_protocol_version(version), ClientLifecycleMode::Initialize);
        let transport = AsyncRwTransport::<RoleClient, _, _>::new(output, input);
        let service = serve_client_with_lifecycle(me, transport, mode).await.unwrap();
        Self { service, process }
    }

    async fn tools(&self) -> Vec<String> {
        let tools = tokio::time::timeout(super::PATIENCE, self.service.list_all_tools()).await.unwrap();
        tools.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    /// The text of a call; a failure begins with `!`.
    async fn calls(&self, name: &str, arguments: Value) -> String {
        let called = self.service.call_tool(call(name, arguments));
        text(&tokio::time::timeout(super::PATIENCE, called).await.unwrap().unwrap())
    }

    /// Ends the input, and returns the exit code.
    async fn leaves(mut self) -> Option<i32> {
        self.service.close().await.unwrap();
        tokio::time::timeout(super::PATIENCE, self.process.wait()).await.unwrap().unwrap().code()
    }
}

fn call(name: &str, arguments: Value) -> CallToolRequestParams {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).unwrap();
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

fn text(result: &CallToolResult) -> String {
    let parts = result.content.iter().map(|part| match part {
        ContentBlock::Text(text) => text.text.clone(),
        other => panic!("not a text: {other:?}"),
    });
    let failed = if result.is_error == Some(true) { "! " } else { "" };
    format!("{failed}{}", parts.collect::<String>())
}

/// Waits until this holds.
async fn comes_to(wanted: impl Fn() -> bool) {
    let waiting = async {
        while !wanted() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::PATIENCE, waiting).await.expect("it comes to that");
}

#[tokio::test]
async fn it_offers_skills_and_tools_that_need_no_question_and_nothing_else() {
    let scene = scene().await;
    let _process = scene.starts().await;
    let client = Client::of(&scene.talaria).await;
    let offered = [
        "skills_list",
        "skill_view",
        "mcp_s_cancelled",
        "mcp_s_die",
        "mcp_s_echo",
        "mcp_s_fail",
        "mcp_s_hang",
    ];
    assert_eq!(client.tools().await, offered);

    assert_eq!(client.calls("skills_list", json!({})).await, "- tea: How to make tea\n");
    assert_eq!(
        client.calls("skill_view", json!({ "name": "Tea" })).await,
        "Skill `tea`: How to make tea\n\nBoil water.\n"
    );
    assert_eq!(client.calls("mcp_s_echo", json!({ "text": "hello" })).await, "hello");
    let mut refused = Vec::new();
    for (name, arguments) in [
        ("mcp_s_fail", json!({})),
        ("skill_view", json!({ "name": "coffee" })),
        ("skill_view", json!({ "name": 5 })),
        ("mcp_s_huge", json!({})),
        ("mcp_s_environment", json!({})),
        ("mcp_unused_x", json!({})),
        ("terminal", json!({ "command": "id" })),
        ("memory", json!({ "action": "list" })),
    ] {
        refused.push(format!("{name}: {}", client.calls(name, arguments).await));
    }
    assert_snapshot!(refused.join("\n"), @r"
    mcp_s_fail: ! it broke
    skill_view: ! there is no skill `coffee`; `skills_list` shows all of them
    skill_view: ! `name` must be a string
    mcp_s_huge: ! There is no tool `mcp_s_huge`. Tools that need an approval are not offered here.
    mcp_s_environment: ! There is no tool `mcp_s_environment`. Tools that need an approval are not offered here.
    mcp_unused_x: ! There is no tool `mcp_unused_x`. Tools that need an approval are not offered here.
    terminal: ! There is no tool `terminal`. Tools that need an approval are not offered here.
    memory: ! There is no tool `memory`. Tools that need an approval are not offered here.
    ");
    let tools = client.service.list_all_tools().await.unwrap();
    let hints = tools.iter().map(|tool| tool.annotations.as_ref().and_then(|hints| hints.read_only_hint));
    assert_eq!(hints.collect::<Vec<_>>()[..3], [Some(true), Some(true), None]);
    assert_eq!(client.leaves().await, Some(0));
}

#[tokio::test]
async fn servers_can_be_left_out_and_every_version_of_the_protocol_works() {
    let scene = scene().await;
    let _process = scene.starts().await;
    for version in
        [ProtocolVersion::V_2024_11_05, ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25]
    {
        let client = Client::with(&scene.talaria, &["--without-server", "s"], version.clone()).await;
        assert_eq!(client.service.peer_info().unwrap().protocol_version, version);
        assert_eq!(client.tools().await, ["skills_list", "skill_view"]);
        let refused = client.calls("mcp_s_echo", json!({})).await;
        assert!(refused.starts_with("! There is no tool `mcp_s_echo`."), "{refused}");
        assert_eq!(client.leaves().await, Some(0));
    }
}

#[tokio::test]
async fn only_the_named_servers_are_offered() {
    let scene = scene().await;
    let _process = scene.starts().await;
    for (argument, count) in [("--servers=s", 7), ("--servers=t,s", 7), ("--servers=t", 2), ("--servers=", 2)]
    {
        let client = Client::with(&scene.talaria, &[argument], ProtocolVersion::V_2025_11_25).await;
        assert_eq!(client.tools().await.len(), count, "{argument}");
        let called = client.calls("mcp_s_echo", json!({ "text": "hello" })).await;
        assert_eq!(called == "hello", count == 7, "{argument}: {called}");
        assert_eq!(client.leaves().await, Some(0));
    }
}

#[tokio::test]
async fn without_a_gateway_it_offers_nothing_and_does_not_fail() {
    let scene = scene().await;
    let files = || fs::read_dir(scene.talaria.home()).unwrap().count();
    let before = files();
    let client = Client::of(&scene.talaria).await;
    assert!(client.tools().await.is_empty());
    let refused = client.calls("skills_list", json!({})).await;
    assert!(refused.starts_with("! Nothing was called: talaria is not running"), "{refused}");
    assert_eq!(files(), before, "and makes nothing");

    // A gateway that starts later is found.
    let _process = scene.starts().await;
    assert_eq!(client.tools().await.len(), 7);
    assert_eq!(client.calls("mcp_s_echo", json!({ "text": "hello" })).await, "hello");
    assert_eq!(client.leaves().await, Some(0));
}

#[tokio::test]
async fn a_gateway_that_goes_away_fails_the_call() {
    let scene = scene().await;
    let process = scene.starts().await;
    let client = Client::of(&scene.talaria).await;
    let hanging = scene.talaria.home().join("mcp/s/hanging");
    let (called, ()) = tokio::join!(client.calls("mcp_s_hang", json!({})), async {
        comes_to(|| hanging.exists()).await;
        process.signal(Signal::KILL);
    });
    assert!(
        called.starts_with("! It is not known whether the call had an effect: talaria runs but broke off"),
        "{called}"
    );
    process.ended().await;
    assert!(client.tools().await.is_empty());
    assert_eq!(client.leaves().await, Some(0));
}

#[tokio::test]
async fn a_call_that_the_client_takes_back_ends_at_the_server_too() {
    let scene = scene().await;
    let _process = scene.starts().await;
    let client = Client::of(&scene.talaria).await;
    assert_eq!(client.calls("mcp_s_cancelled", json!({})).await, "0");
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(call("mcp_s_hang", json!({}))));
    let handle = client.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
    let hanging = scene.talaria.home().join("mcp/s/hanging");
    comes_to(|| hanging.exists()).await;
    handle.unwrap().cancel(None).await.unwrap();
    let cancelled = async { while client.calls("mcp_s_cancelled", json!({})).await != "1" {} };
    tokio::time::timeout(Duration::from_secs(60), cancelled).await.expect("the server is told");
}

#[tokio::test]
async fn calls_that_are_too_large_or_lose_their_server_say_so() {
    let scene = scene().await;
    let _process = scene.starts().await;
    let client = Client::of(&scene.talaria).await;
    let large = client.calls("mcp_s_echo", json!({ "text": "x".repeat(1024 * 1024) })).await;
    assert_eq!(large, "! The arguments are longer than 1048576 bytes; nothing was called.");
    let whole = "\u{1}".repeat(150_000);
    let long = client.calls("mcp_s_echo", json!({ "text": whole })).await;
    assert!(long.contains("bytes left out"), "{}", long.len());
    let died = client.calls("mcp_s_die", json!({})).await;
    assert!(
        died.starts_with("! The MCP server `s` was lost during the call (it ended (exit status 7)"),
        "{died}"
    );
    assert!(!died.contains("hunter2"), "{died}");
}

#[tokio::test]
async fn input_that_is_no_protocol_ends_it_with_a_reason() {
    let talaria = Talaria::new().args(["mcp"]);
    let silent = talaria.reads("").await;
    assert_eq!((silent.code, silent.out.as_str(), silent.err.as_str()), (0, "", ""));
    let noise = talaria.reads("hello\n\n{\"half\n[1]\n").await;
    assert_eq!(noise.code, 0, "{}", noise.err);
    let mut process = talaria.starts();
    process.types(&"x".repeat(5 * 1024 * 1024));
    let endless = process.ended().await;
    assert_eq!((endless.code, endless.out.as_str()), (1, ""));
    endless.said("error: a line of standard input is longer than 4194304 bytes");
    let named = Talaria::new().args(["mcp", "--config", "x.yaml"]).reads("").await;
    assert_eq!(named.code, 1);
    named.said("this command reads no configuration file");
}
