//! A chat at a real terminal.

use std::process::Command;

use serde_json::json;

use crate::support::terminal::{PATIENCE, Terminal};
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn an_approval_is_typed_at_the_terminal_and_the_command_runs() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::plain().await);
    let workspace = tempfile::tempdir().unwrap();
    let config = json!({
        "agents": { "helper": {
            "kind": "model", "base_url": format!("{}/v1", upstream.url()), "model": "small",
            "workspace": workspace.path(), "tools": ["terminal"],
        } },
        "default_agent": "helper",
    });
    std::fs::write(home.path().join("talaria.yaml"), config.to_string()).unwrap();
    let command = |text: &str| json!({ "command": text }).to_string();
    upstream
        .answers(Answer::calls("I clean up.", &[("c1", "terminal", &command("echo x > cleaned"))]))
        .answers(Answer::says(["It is clean."]))
        .answers(Answer::calls("I break it.", &[("c2", "terminal", &command("echo x > broken"))]))
        .answers(Answer::says(["Then not."]));
    let mut talaria = Command::new(env!("CARGO_BIN_EXE_talaria"));
    talaria
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TALARIA_HOME", home.path())
        .env("NO_COLOR", "1")
        .current_dir(home.path());
    let mut terminal = Terminal::starts(talaria);

    terminal.types("clean up");
    terminal.shows("`/deny ").await;
    assert!(terminal.screen().contains("echo x > cleaned"), "{}", terminal.screen());
    let code = last_code(&terminal.screen());
    assert!(!workspace.path().join("cleaned").exists());
    terminal.types(&format!("/approve {code}"));
    terminal.shows("It is clean.").await;
    assert_eq!(std::fs::read_to_string(workspace.path().join("cleaned")).unwrap(), "x\n");

    terminal.types("break it");
    terminal.shows("echo x > broken").await;
    let other = async {
        while last_code(&terminal.screen()) == code {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(PATIENCE, other).await.expect("a second ask has a code of its own");
    let code = last_code(&terminal.screen());
    terminal.types(&format!("/deny {code}"));
    terminal.shows("Then not.").await;
    assert!(!workspace.path().join("broken").exists());
}

/// The code of the last ask on a screen.
fn last_code(screen: &str) -> String {
    let (_, rest) = screen.rsplit_once("`/deny ").unwrap();
    rest.chars().take(4).collect()
}
