//! Approvals and questions of the agent.

use serde_json::{Value, json};

use super::scene::AskScene;
use crate::support::upstream::Answer;

/// Scripts an agent that wants to run a command, and then says this.
fn wants(scene: &AskScene, command: &str, says: &str) {
    let call = json!({ "command": command }).to_string();
    scene
        .upstream
        .answers(Answer::calls("I clean up.", &[("c1", "terminal", &call)]))
        .answers(Answer::says([says]));
}

#[tokio::test]
async fn an_approval_is_asked_at_the_terminal_although_the_question_came_from_a_pipe() {
    let scene = AskScene::start().await;
    let cleaned = scene.workspace.path().join("cleaned");
    wants(&scene, "echo x > cleaned", "It is clean.");
    let mut terminal = scene.at_a_terminal("echo 'clean up' | talaria ask");
    terminal.shows("or no.\r\n> ").await;
    let screen = terminal.screen();
    assert!(
        screen.contains("? The agent asks for permission: ") && screen.contains("    echo x > cleaned"),
        "{screen}"
    );
    assert!(screen.contains(&format!("  in {}", scene.workspace.path().display())), "{screen}");
    assert!(!cleaned.exists());
    terminal.types("perhaps");
    terminal.shows("perhaps\r\nWrite yes to allow it this once").await;
    assert!(!cleaned.exists());
    terminal.types("yes");
    let (code, screen) = terminal.ended().await;
    assert!(code == 0 && screen.ends_with("It is clean.\r\n"), "{code} {screen}");
    assert_eq!(std::fs::read_to_string(cleaned).unwrap(), "x\n");
}

#[tokio::test]
async fn a_denial_runs_nothing_and_is_seen_by_a_script() {
    for keys in ["no\n", "\u{4}"] {
        let scene = AskScene::start().await;
        wants(&scene, "echo x > broken", "Then not.");
        let mut terminal = scene.at_a_terminal("talaria ask break it; echo \"code $?\"");
        terminal.shows("or no.\r\n> ").await;
        terminal.presses(keys);
        terminal.shows("Then not.").await;
        let (_, screen) = terminal.ended().await;
        assert!(screen.ends_with("code 1\r\n"), "{screen}");
        assert!(screen.contains("error: something that the agent asked for was denied"), "{screen}");
        assert!(!scene.workspace.path().join("broken").exists());
    }
}

#[tokio::test]
async fn without_a_terminal_and_with_deny_nothing_is_allowed_and_it_says_so() {
    let scene = AskScene::start().await;
    for (args, why) in
        [(&["break it"][..], "there is no terminal to ask at"), (&["--deny", "break it"], "--deny says so")]
    {
        wants(&scene, "echo x > broken", "Then not.");
        let ended = scene.asks(args.iter().copied()).await;
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.out.ends_with("Then not.\n"), "{}", ended.out);
        ended.said("? The agent asks: ").said("echo x > broken").said(&format!("? denied: {why}\n"));
        ended.said("error: something that the agent asked for was denied");
        assert!(!scene.workspace.path().join("broken").exists());
    }
    wants(&scene, "echo x > broken", "Then not.");
    let (code, document) = scene.asks_for_json(&["break it"]).await;
    assert_eq!(
        (code, &document["denied"], &document["complete"]),
        (1, &json!(1), &json!(true)),
        "{document}"
    );
}

#[tokio::test]
async fn an_answer_from_elsewhere_withdraws_the_question() {
    let scene = AskScene::start().await;
    wants(&scene, "echo x > cleaned", "It is clean.");
    let mut terminal = scene.at_a_terminal("talaria ask clean up; echo \"code $?\"");
    terminal.shows("or no.\r\n> ").await;
    let key = std::fs::read_to_string(scene.talaria.home().join("api.key")).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let status = scene.talaria.does(["status", "--json"]).await;
    let status: Value = serde_json::from_str(&status.out).unwrap();
    let run = status["turns"][0]["id"].as_str().unwrap().to_owned();
    let answer = client.post(format!("{}/v1/runs/{run}/approval", scene.address)).bearer_auth(key.trim());
    let answer = answer.header("content-type", "application/json").body(r#"{"choice":"once"}"#);
    assert_eq!(answer.send().await.unwrap().status(), 200);
    terminal.shows("(no answer is needed any more)").await;
    terminal.shows("It is clean.").await;
    let (_, screen) = terminal.ended().await;
    assert!(screen.ends_with("code 0\r\n"), "{screen}");
    assert!(scene.workspace.path().join("cleaned").exists());
}

#[tokio::test]
async fn an_approval_for_the_session_is_not_asked_again() {
    let scene = AskScene::start().await;
    wants(&scene, "echo x >> log", "Once.");
    let mut terminal = scene.at_a_terminal("talaria ask --session s log it");
    terminal.shows("or no.\r\n> ").await;
    terminal.types("session");
    assert_eq!(terminal.ended().await.0, 0);
    wants(&scene, "echo x >> log", "Twice.");
    let ended = scene.asks(["--session", "s", "again"]).await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(std::fs::read_to_string(scene.workspace.path().join("log")).unwrap(), "x\nx\n");
}
