//! The log shows the words of codex, and never more of them than a line holds.

use serde_json::json;

use super::scene::CodexScene;
use super::scripted_peer::{Act, Scenario};
use crate::support::logged::Logged;

/// Bytes of the longest honest line.
const LINE: usize = 500;

/// The only line with these words, which tells the beginning of a long word of codex.
fn is_short(log: &Logged, words: &str) {
    let lines = log.with(words);
    let [line] = lines.as_slice() else { panic!("{words}: {} lines", lines.len()) };
    assert!(line.contains("xxx…") && line.len() < LINE, "{words}: {} bytes", line.len());
}

#[tokio::test]
async fn no_name_or_word_of_codex_fills_the_log() {
    let long = "x".repeat(100_000);
    let request = json!({ "id": 77, "method": long, "params": { "threadId": "nobody's" } });
    let end = json!({ "method": "turn/completed", "params": { "threadId": "$thread",
        "turn": { "id": "$turn", "items": [], "status": long, "error": null } } });
    let acts = [Act::writes(format!("{request}\n{end}\n")), Act::EndsSilently];
    let log = Logged::listen();
    let scene = CodexScene::with(Scenario::default().turn("hello", acts)).await;
    scene.asks("hello", "the agent reported an error").await;
    is_short(&log, "belongs to no turn and is refused");
    is_short(&log, "a turn of codex failed");
    scene.ends().await;

    let rules = Scenario::default()
        .with_thread("sandbox", json!({ "type": long }))
        .with_thread("approvalPolicy", json!(long));
    let scene = CodexScene::with(rules).await;
    scene.asks("hello", "without a sandbox").await;
    is_short(&log, "see `unrestricted`");
    scene.ends().await;
    let scene = CodexScene::with(Scenario::default().with_thread("approvalsReviewer", json!(long))).await;
    scene.asks("hello", "a model of its own").await;
    is_short(&log, "codex would not leave its requests");
    scene.ends().await;
}
