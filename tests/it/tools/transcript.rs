//! What stays of a turn with tools: the next turn goes on from it, also after a crash.

use super::support::{ScriptedTool, ToolScript, agent_with, calls, told};
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn the_next_turn_knows_the_calls_and_their_results() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "42 files");
    upstream
        .answers(calls("I look.", &[("c1", "look", "{}")]))
        .answers(Answer::says(["There are 42."]))
        .answers(Answer::says(["Forty-two."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "how many?").await;
    gateway.room().shows("There are 42.").await;
    gateway.room().says("@ann", "in words?").await;
    gateway.room().shows("Forty-two.").await;

    assert_eq!(
        told(&upstream.prompts()[2]),
        [
            "user: how many?",
            "assistant: I look. look(c1)",
            "tool for c1: 42 files",
            "assistant: There are 42.",
            "user: in words?",
        ]
    );
}

#[tokio::test]
async fn a_call_that_ran_when_the_process_died_is_not_repeated() {
    let upstream = Upstream::plain().await;
    let (quick, slow) =
        (ScriptedTool::returns("quick", "done"), ScriptedTool::new("slow", ToolScript::Waits("never")));
    upstream.answers(calls("Both.", &[("q", "quick", "{}"), ("s", "slow", "{}")]));
    let mut gateway = agent_with(&upstream, &[&quick, &slow]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("slow").await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().shows("(interrupted").await;
    assert_eq!((quick.calls().len(), slow.calls().len()), (1, 1), "nothing ran again");

    upstream.answers(Answer::says(["I see."]));
    gateway.room().says("@ann", "and?").await;
    gateway.room().shows("I see.").await;
    let told = told(upstream.prompts().last().unwrap());
    assert_eq!(told[..2], ["user: go", "assistant: Both. quick(q) slow(s)"]);
    assert_eq!(told[2], "tool for q: done");
    assert!(told[3].starts_with("tool for s: (No result"), "{}", told[3]);
    // Strict servers take no question directly after a result.
    assert_eq!(told[4..], ["assistant: (The turn ended here, without an answer.)", "user: and?"]);
}

#[tokio::test]
async fn a_turn_that_was_taken_back_leaves_nothing() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("", &[("a", "look", "{}")]))
        .answers(Answer::says(["first"]))
        .answers(Answer::says(["second"]));
    let mut gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "one").await;
    gateway.room().shows("first").await;
    gateway.restart().await;
    gateway.room().says("@ann", "/undo").await;
    gateway.room().shows("taken back").await;
    gateway.room().says("@ann", "two").await;
    gateway.room().shows("second").await;
    assert_eq!(told(&upstream.prompts()[2]), ["user: two"]);
}
