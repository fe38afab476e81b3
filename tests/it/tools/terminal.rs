//! A command of an agent, as people see it in the room.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use talaria::config::BuiltinTool;

use super::support::{agent_in, calls, told};
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn the_output_of_a_command_is_the_line_of_its_step_while_it_runs() {
    let upstream = Upstream::plain().await;
    let folder = tempfile::tempdir().unwrap();
    for gate in ["one", "two", "three"] {
        assert!(Command::new("mkfifo").arg(folder.path().join(gate)).status().unwrap().success());
    }
    let gateway = agent_in(&upstream, folder.path(), &[BuiltinTool::Terminal]).await;
    // Each `read` waits until the test writes a line.
    let command =
        json!({ "command": "read x < one; echo half way; read x < two; echo nearly done; read x < three" })
            .to_string();
    upstream.answers(calls("", &[("a", "terminal", &command)])).answers(Answer::says(["It is done."]));
    let opens = async |gate: &str| {
        let path = folder.path().join(gate);
        let writes = move || File::options().write(true).open(path).unwrap().write_all(b"x\n").unwrap();
        tokio::task::spawn_blocking(writes).await.unwrap();
    };

    gateway.room().says("@ann", "go").await;
    let asked = gateway.room().is_asked("echo half way").await;
    gateway.room().says("@ann", &format!("/approve {}", asked.code)).await;
    gateway.room().shows("⚙️ terminal: `read x < one").await;
    opens("one").await;
    gateway.room().shows("⚙️ terminal: `half way`").await;
    // Further lines are shown once a second.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(1_500)).await;
    tokio::time::resume();
    opens("two").await;
    gateway.room().shows("⚙️ terminal: `nearly done`").await;
    opens("three").await;
    gateway.room().shows("It is done.").await;
    let result = told(&upstream.prompts()[1]).pop().unwrap();
    assert_eq!(result, "tool for a: half way\nnearly done\n[exit status 0]");
}
