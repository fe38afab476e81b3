//! The model calls tools, gets their results, and answers.

use insta::assert_snapshot;
use serde_json::json;

use super::support::{ScriptedTool, ToolScript, agent_with, calls, shown, told};
use crate::support::upstream::{Answer, DONE, Upstream, delta, event, finish};

#[tokio::test]
async fn a_tool_is_called_and_its_result_is_fed_back() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "42 files");
    upstream
        .answers(calls("Let me look.", &[("c1", "look", r#"{"what":"src"}"#)]))
        .answers(Answer::says(["There are ", "42."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "how many files?").await;
    assert_snapshot!(shown(&gateway, "There are 42.").await, @r"
    @ann  how many files?
    bot   Let me look.
          There are 42.
    ");

    assert_eq!(look.calls().len(), 1);
    assert_eq!(look.calls()[0]["what"], "src");
    let prompts = upstream.prompts();
    assert_eq!(prompts[0].json()["tools"][0]["function"]["name"], "look");
    assert_eq!(
        told(&prompts[1]),
        ["user: how many files?", "assistant: Let me look. look(c1)", "tool for c1: 42 files"]
    );
}

#[tokio::test]
async fn parallel_calls_run_at_the_same_time() {
    let upstream = Upstream::plain().await;
    let (one, two) =
        (ScriptedTool::new("one", ToolScript::Waits("1")), ScriptedTool::new("two", ToolScript::Waits("2")));
    upstream.answers(calls("", &[("a", "one", "{}"), ("b", "two", "{}")])).answers(Answer::says(["both"]));
    let gateway = agent_with(&upstream, &[&one, &two]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("one, two").await;
    // The second ends first.
    two.gate.add_permits(1);
    one.gate.add_permits(1);
    gateway.room().shows("both").await;

    let told = told(&upstream.prompts()[1]);
    assert_eq!(told[1..], ["assistant: - one(a) two(b)", "tool for a: 1", "tool for b: 2"]);
}

#[tokio::test]
async fn a_failed_call_is_told_to_the_model_and_the_turn_goes_on() {
    let upstream = Upstream::plain().await;
    let (fails, panics) = (
        ScriptedTool::new("fails", ToolScript::Fails("no such file")),
        ScriptedTool::new("panics", ToolScript::Panics),
    );
    upstream
        .answers(calls(
            "",
            &[
                ("a", "fails", "{}"),
                ("b", "panics", "{}"),
                ("c", "unheard_of", "{}"),
                ("d", "fails", r#"{"what":"#),
                ("e", "fails", "[1]"),
            ],
        ))
        .answers(Answer::says(["I could not."]));
    let gateway = agent_with(&upstream, &[&fails, &panics]).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "I could not.").await, @r"
    @ann  go
    bot   I could not.
    ");
    assert_eq!(fails.calls().len(), 1, "calls with broken arguments do not run");
    let told = told(&upstream.prompts()[1]);
    let results: Vec<_> = told.iter().filter(|line| line.starts_with("tool")).collect();
    assert_eq!(results[0], "tool for a: Error: no such file");
    assert!(results[1].contains("the tool broke"), "{}", results[1]);
    assert!(results[2].contains("there is no tool `unheard_of`") && results[2].contains("`fails`"));
    assert!(results[3].contains("not valid JSON"), "{}", results[3]);
    assert!(results[4].contains("not a JSON object"), "{}", results[4]);
}

#[tokio::test]
async fn ids_that_are_missing_or_repeat_are_replaced() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("", &[("same", "look", "{}")]))
        .answers(calls("", &[("same", "look", "{}")]))
        .answers(calls("", &[("", "look", "")]))
        .answers(Answer::says(["done"]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("done").await;

    let request = upstream.prompts()[3].json();
    let ids: Vec<_> = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[0], "same");
    assert!(ids[1] != ids[0] && ids[2] != ids[1] && ids[2].len() == 9, "{ids:?}");
}

#[tokio::test]
async fn an_approval_is_asked_in_the_room() {
    let upstream = Upstream::plain().await;
    let run = ScriptedTool::new("run", ToolScript::Asks);
    upstream
        .answers(calls("I will clean up.", &[("a", "run", r#"{"what":"rm -rf build"}"#)]))
        .answers(Answer::says(["Cleaned."]));
    let gateway = agent_with(&upstream, &[&run]).await;

    gateway.room().says("@ann", "clean up").await;
    let asked = gateway.room().is_asked("rm -rf build").await;
    gateway.room().says("@ann", &format!("/approve {}", asked.code)).await;
    gateway.room().shows("Cleaned.").await;
    assert_eq!(told(&upstream.prompts()[1]).last().unwrap(), "tool for a: it ran");
}

#[tokio::test]
async fn a_denial_is_told_to_the_model() {
    let upstream = Upstream::plain().await;
    let run = ScriptedTool::new("run", ToolScript::Asks);
    upstream
        .answers(calls("", &[("a", "run", r#"{"what":"rm -rf /"}"#)]))
        .answers(Answer::says(["Then not."]));
    let gateway = agent_with(&upstream, &[&run]).await;

    gateway.room().says("@ann", "clean up").await;
    let asked = gateway.room().is_asked("rm -rf /").await;
    gateway.room().says("@ann", &format!("/deny {}", asked.code)).await;
    gateway.room().shows("Then not.").await;
    let denial = told(&upstream.prompts()[1]).pop().unwrap();
    let expected = "tool for a: Error: It was not allowed, so nothing was done: a person said no";
    assert!(denial.starts_with(expected), "{denial}");
}

#[tokio::test]
async fn without_an_answer_the_task_halts() {
    let upstream = Upstream::plain().await;
    let run = ScriptedTool::new("run", ToolScript::Asks);
    upstream.answers(calls("I will clean up.", &[("a", "run", r#"{"what":"rm -rf build"}"#)]));
    let gateway = agent_with(&upstream, &[&run]).await;

    gateway.room().says("@ann", "clean up").await;
    gateway.room().is_asked("rm -rf build").await;
    // Nothing else goes over the network from here on, so the clock may run ahead.
    tokio::time::pause();
    gateway.room().shows("(cut short: nobody answered in time, so the task was halted)").await;
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn stop_ends_a_running_tool_and_keeps_the_text() {
    let upstream = Upstream::plain().await;
    let slow = ScriptedTool::new("slow", ToolScript::Waits("never"));
    upstream.answers(calls("One moment.", &[("a", "slow", "{}")]));
    let gateway = agent_with(&upstream, &[&slow]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("slow").await;
    gateway.room().says("@ann", "/stop").await;
    assert_snapshot!(shown(&gateway, "(stopped)").await, @r"
    @ann  go
    bot   One moment.
          (stopped)
    @ann  /stop
    ");
}

#[tokio::test]
async fn a_request_that_breaks_before_any_text_is_sent_again() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("", &[("a", "look", "{}")]))
        .answers(Answer::stream().closes())
        .answers(Answer::status(503, "{}"))
        .answers(Answer::says(["It works."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "It works.").await, @r"
    @ann  go
    bot   It works.
    ");
    assert_eq!((look.calls().len(), upstream.prompts().len()), (1, 4), "no tool ran twice");
}

#[tokio::test]
async fn a_request_that_breaks_after_text_is_not_repeated() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("I look.", &[("a", "look", "{}")]))
        .answers(Answer::stream().sends(delta("It w")).closes());
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    assert_snapshot!(shown(&gateway, "(cut short: the connection was lost)").await, @r"
    @ann  go
    bot   I look.
          It w
          (cut short: the connection was lost)
    ");
    assert_eq!(upstream.prompts().len(), 2);
}

/// A name that servers refuse in later requests would end the whole conversation.
#[tokio::test]
async fn an_impossible_name_stays_out_of_later_requests() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    upstream
        .answers(calls("", &[("id with spaces", "functions.look at", "{}"), ("b", "", "{}")]))
        .answers(Answer::says(["I see."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("I see.").await;
    assert!(look.calls().is_empty());
    let request = upstream.prompts()[1].json();
    let message = request["messages"].as_array().unwrap().iter().find(|one| one["tool_calls"].is_array());
    let called = message.unwrap()["tool_calls"].clone();
    assert_eq!(called[0]["function"]["name"], "functions_look_at");
    assert_eq!(called[1]["function"]["name"], "unknown");
    assert_eq!(called[0]["id"].as_str().unwrap().len(), 9);
}

#[tokio::test]
async fn a_call_that_was_cut_off_does_not_run() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    let piece = json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "look" } }] });
    let piece = event(&json!({ "choices": [{ "index": 0, "delta": piece, "finish_reason": null }] }));
    upstream
        .answers(Answer::events(piece + &*finish("length") + DONE))
        .answers(Answer::says(["Then shorter."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("Then shorter.").await;
    assert!(look.calls().is_empty());
    assert!(told(&upstream.prompts()[1]).last().unwrap().contains("cut off by its length limit"));
}

#[tokio::test]
async fn an_error_in_the_stream_before_any_text_is_tried_again() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    let error = event(&json!({ "error": { "message": "busy", "code": 429 } }));
    upstream.answers(Answer::events(error + DONE)).answers(Answer::says(["Now."]));
    let gateway = agent_with(&upstream, &[&look]).await;

    gateway.room().says("@ann", "go").await;
    gateway.room().shows("Now.").await;
    assert_eq!(upstream.prompts().len(), 2);
}
