//! The MCP servers of an agent as a room, `talaria status` and `talaria check` show them: state, tools, reason.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{PATIENCE, texts};
use crate::mcp::scripted_server::SCRIPT;
use crate::support::binary::Talaria;
use crate::support::network::{Network, Shown};
use crate::support::upstream::Upstream;

/// A secret that the failing server prints.
const KEY: &str = "hunter2-is-my-key";

fn scripted(script: &str) -> Value {
    let program = std::env::current_exe().unwrap().display().to_string();
    let args = ["mcp::scripted_server::serves_if_told_to", "--exact", "--nocapture", "--test-threads=1"];
    json!({ "command": program, "args": args, "env": { SCRIPT: script, "API_KEY": KEY } })
}

/// The lines that begin like this.
fn lines<'a>(text: &'a str, beginning: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(beginning)).collect()
}

#[tokio::test]
async fn every_surface_shows_state_tools_and_reason_of_each_server() {
    let (talaria, upstream) = (Talaria::new(), Upstream::plain().await);
    let network = Network::listen(talaria.home());
    let config = json!({
        "agents": { "helper": {
            "kind": "model", "base_url": format!("{}/v1", upstream.url()), "model": "small", "tools": ["mcp"],
        } },
        "default_agent": "helper",
        "mcp_servers": { "bad": scripted("exits"), "good": scripted("plain") },
        "platforms": { "test": { "socket": network.socket(), "pause_ms": 5, "access": { "allow_all": true } } },
    });
    talaria.rewrites_config(config.to_string());
    let program = std::env::current_exe().unwrap().display().to_string();

    let prints = async |command: &str| {
        let ended = talaria.does([command]).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
        ended.out.replace(&program, "PROGRAM")
    };
    let checked = prints("check").await;
    let not_running =
        ["bad", "good"].map(|name| format!("MCP server `{name}`: not running now; its program is PROGRAM"));
    assert_eq!(lines(&checked, "MCP server "), not_running);

    let mut process = talaria.starts();
    process.logs("running").await;
    let said = async |question: &str, answer: &str| {
        network.says_as("@ann:test", "!ann", true, question);
        let shows = |shown: &[Shown]| texts(shown, "!ann").iter().any(|text| text.contains(answer));
        assert!(network.shows(PATIENCE, shows).await, "{:?}", network.messages());
        texts(&network.messages(), "!ann").pop().unwrap()
    };
    said("hi", "ok").await;
    let room = said("/status", "MCP server good").await;
    assert_eq!(
        lines(&room, "MCP server "),
        ["MCP server bad: does not work, because it ended. Tools: 0.", "MCP server good: runs. Tools: 13."],
        "{room}"
    );
    assert!(!room.contains("cannot start") && !room.contains("exit status"), "{room}");

    let status = prints("status").await;
    let good = lines(&status, "good ");
    assert_eq!(good[0].split_whitespace().collect::<Vec<_>>(), ["good", "13", "runs"], "{status}");
    let bad = lines(&status, "bad ");
    assert_eq!(bad[0].split_whitespace().collect::<Vec<_>>(), ["bad", "0", "failed"], "{status}");
    let bad = bad[1];
    assert!(bad.starts_with("bad failed: ") && bad.contains("(exit status 3)"), "{status}");
    assert!(bad.contains("cannot start without the key [redacted]") && !status.contains(KEY), "{status}");

    let checked = prints("check").await;
    assert_eq!(
        lines(&checked, "MCP server "),
        ["MCP server `good`: runs, 13 tools; its program is PROGRAM"],
        "{checked}"
    );
    let bad = lines(&checked, "warning: MCP server `bad`: failed (");
    assert!(bad[0].contains("(exit status 3)") && bad[0].contains("), 0 tools; its program is"), "{checked}");
    assert!(!checked.contains(KEY), "{checked}");

    process.signal(Signal::TERM);
    process.ended().await;
    let checked = prints("check").await;
    assert_eq!(lines(&checked, "MCP server "), not_running);
}
