//! A task that would go on for ever ends with an answer.

use std::time::Duration;

use insta::assert_snapshot;

use super::support::{ScriptedTool, ToolScript, agent_as, agent_with, calls, shown, told};
use crate::support::upstream::{Answer, Upstream, delta};

#[tokio::test]
async fn a_model_that_loops_is_asked_for_a_last_answer() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    for _ in 0..3 {
        upstream.answers(calls("", &[("a", "look", "{}")]));
    }
    upstream.answers(Answer::says(["I gave up looking."]));
    let gateway = agent_as(&upstream, &[&look], |config| config.max_iterations = 3).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "I gave up looking.").await, @r"
    @ann  go
    bot   I gave up looking.
    ");
    assert_eq!(look.calls().len(), 3);
    let last = upstream.prompts()[3].json();
    assert_eq!(last["tool_choice"], "none");
    assert!(last["messages"].to_string().contains("reached the limit"));
}

#[tokio::test]
async fn a_model_that_does_not_even_answer_then_is_cut_short() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    for _ in 0..3 {
        upstream.answers(calls("", &[("a", "look", "{}")]));
    }
    let gateway = agent_as(&upstream, &[&look], |config| config.max_iterations = 2).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "(cut short: the task reached its limit before there was an answer)").await, @r"
    @ann  go
    note  (cut short: the task reached its limit before there was an answer)
    ");
    assert_eq!(look.calls().len(), 2);
}

#[tokio::test]
async fn a_tool_that_hangs_ends_with_the_time_of_the_task() {
    let upstream = Upstream::plain().await;
    let slow = ScriptedTool::new("slow", ToolScript::Waits("never"));
    upstream.answers(calls("", &[("a", "slow", "{}")])).answers(Answer::says(["It took too long."]));
    let gateway =
        agent_as(&upstream, &[&slow], |config| config.turn_timeout = Duration::from_millis(200)).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "It took too long.").await, @r"
    @ann  go
    bot   It took too long.
    ");
    assert!(told(&upstream.prompts()[1]).iter().any(|line| line.contains("the time of this task is up")));
}

/// People may take their time: the task has one minute, and the answer comes after more than three.
#[tokio::test]
async fn the_time_of_a_task_stands_still_while_somebody_is_asked() {
    let upstream = Upstream::plain().await;
    let run = ScriptedTool::new("run", ToolScript::Asks);
    upstream.answers(calls("", &[("a", "run", r#"{"what":"make"}"#)])).answers(Answer::says(["Made."]));
    let gateway = agent_as(&upstream, &[&run], |config| config.turn_timeout = Duration::from_secs(60)).await;

    gateway.room().says("@ann", "go").await;
    let asked = gateway.room().is_asked("make").await;
    tokio::time::pause();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(50)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    gateway.room().says("@ann", &format!("/approve {}", asked.code)).await;
    gateway.room().shows("Made.").await;
    let prompts = upstream.prompts();
    assert_eq!(told(&prompts[1]).last().unwrap(), "tool for a: it ran");
    assert!(prompts[1].json()["tool_choice"].is_null(), "there is still time for tools");
}

#[tokio::test]
async fn a_result_of_ten_megabytes_is_cut() {
    let upstream = Upstream::plain().await;
    let flood = ScriptedTool::new("flood", ToolScript::Returns("x".repeat(10_000_000)));
    upstream.answers(calls("", &[("a", "flood", "{}")])).answers(Answer::says(["Too much."]));
    let gateway = agent_with(&upstream, &[&flood]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("Too much.").await;
    let told = told(&upstream.prompts()[1]);
    assert!(told[2].contains("bytes left out") && told[2].len() < 60_000, "{} bytes", told[2].len());
}

#[tokio::test]
async fn a_flood_of_calls_ends_the_turn() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    let many: Vec<_> = (0..40).map(|at| format!("c{at}")).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), "look", "{}")).collect();
    upstream.answers(calls("", &many));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "(cut short: the model called too many tools at once)").await, @r"
    @ann  go
    note  (cut short: the model called too many tools at once)
    ");
    assert!(look.calls().is_empty());
}

#[tokio::test]
async fn the_oldest_turns_are_left_out_and_the_room_is_told_once() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    for number in 1..=4 {
        upstream.answers(Answer::says([format!("{number} {}", "word ".repeat(150)).as_str()]));
    }
    let gateway = agent_as(&upstream, &[&look], |config| config.context_tokens = Some(1_200)).await;

    for number in 1..=4 {
        gateway.room().says("@ann", &format!("question {number}")).await;
        gateway.room().shows(&format!("{number} word")).await;
    }
    let told_last = told(&upstream.prompts()[3]);
    assert!(told_last.len() < 7, "{}", told_last.len());
    assert!(told_last[0].starts_with("user: ") && told_last.last().unwrap().contains("question 4"));
    let room = shown(&gateway, "no longer fits").await;
    assert_eq!(room.matches("no longer fits").count(), 1, "{room}");
}

#[tokio::test]
async fn a_server_that_refuses_a_long_conversation_is_asked_with_half_of_it() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream.answers(Answer::says(["one"])).answers(Answer::says(["two"]));
    let refusal = r#"{"error":{"message":"This model's maximum context length is 8 tokens","code":"context_length_exceeded"}}"#;
    upstream.answers(Answer::status(400, refusal)).answers(Answer::says(["three"]));
    let gateway = agent_with(&upstream, &[&look]).await;

    for (question, answer) in [("1?", "one"), ("2?", "two"), ("3?", "three")] {
        gateway.room().says("@ann", question).await;
        gateway.room().shows(answer).await;
    }
    let prompts = upstream.prompts();
    assert_eq!((told(&prompts[2]).len(), told(&prompts[3]).len()), (5, 3));
}

#[tokio::test]
async fn a_model_that_never_ends_its_answer_is_cut_short() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream.answers(Answer::stream().sends(delta("I think")).hangs());
    let gateway =
        agent_as(&upstream, &[&look], |config| config.turn_timeout = Duration::from_millis(300)).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "(cut short: ").await, @r"
    @ann  go
    bot   I think
          (cut short: the task reached its limit before there was an answer)
    ");
}

#[tokio::test]
async fn a_model_that_answers_nothing_is_said_to_have() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(Answer::says([""]))
        .answers(calls("", &[("a", "look", "{}")]))
        .answers(Answer::says([""]))
        .answers(Answer::says(["Here I am."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "one").await;
    gateway.room().shows("(The model said nothing").await;
    gateway.room().says("@ann", "two").await;
    gateway.room().says("@ann", "three").await;
    gateway.room().shows("Here I am.").await;
    let told = told(upstream.prompts().last().unwrap());
    assert!(told.iter().any(|line| line == "tool for a: seen"), "{told:?}");
}
