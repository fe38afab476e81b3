//! Tokens and models of a turn with several requests: the budget, the sum, and the model that a person chose.

use insta::assert_snapshot;
use serde_json::json;
use talaria::rules::BudgetConfig;

use super::support::{ScriptedTool, ToolScript, agent_as, agent_with, calls, model_agent, says_using, told};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::served::{self, Served, settings};
use crate::support::upstream::{Answer, Upstream};

#[tokio::test]
async fn a_turn_that_uses_up_the_budget_answers_with_what_it_has() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    // Each of these takes 15 tokens.
    for _ in 0..3 {
        upstream.answers(calls("", &[("a", "look", "{}")]));
    }
    upstream.answers(says_using("This is what I saw.", 10, 5));
    let budget = BudgetConfig { person: Some(40), agent: None };
    let agent = Some(model_agent(&upstream, &[&look], |_| {}));
    let gateway = TestGateway::with(Setup { agent, budget, ..Setup::default() }).await;
    gateway.room().says("@ann", "look").await;
    gateway.room().shows("are used up. They").await;
    assert_snapshot!(gateway.room().now(), @r"
    @ann  look
    bot   This is what I saw.
    note  Your 40 tokens for 24 hours are used up. They become free again as the hours pass; /usage shows how many are left.
    ");
    let prompts = upstream.prompts();
    assert_eq!((prompts.len(), look.calls().len()), (4, 3));
    let choices: Vec<_> = prompts.iter().map(|prompt| prompt.json()["tool_choice"].clone()).collect();
    assert_eq!(choices, [json!(null), json!(null), json!(null), json!("none")]);
    assert!(told(&prompts[3]).last().unwrap().contains("reached the limit"));
}

#[tokio::test]
async fn the_tokens_of_all_requests_of_a_turn_are_one_sum() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    let twice = || {
        upstream
            .answers(calls("", &[("a", "look", "{}")]))
            .answers(calls("", &[("b", "look", "{}")]))
            .answers(says_using("Seen.", 20, 7));
    };
    let gateway = agent_with(&upstream, &[&look]).await;
    twice();
    gateway.room().says("@ann", "look").await;
    gateway.room().shows("Seen.").await;
    gateway.room().says("@ann", "/usage").await;
    gateway.room().shows("This conversation: questions: 1, tokens in: 40, tokens out: 17.").await;

    let served = Served::of(gateway, settings()).await;
    twice();
    let body = json!({ "messages": [{ "role": "user", "content": "look" }] });
    let answer = served::json(served.post("/v1/chat/completions", &body).await).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Seen.");
    let usage = &answer["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]),
        (&json!(40), &json!(17), &json!(57))
    );
}

#[tokio::test]
async fn a_chosen_model_is_asked_and_the_list_over_http_stays() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", "seen");
    let gateway = agent_as(&upstream, &[&look], |config| {
        config.models = vec!["small".to_owned(), "big".to_owned()];
    })
    .await;
    let served = Served::of(gateway, settings()).await;
    let names = async || {
        let listed = served::json(served.get("/v1/models").await).await;
        let data = listed["data"].as_array().unwrap().clone();
        data.into_iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = names().await;
    assert_eq!(listed, ["talaria", "proxy", "local"]);
    let room = served.gateway.room();
    let asked = async |words: &str, answer: &str| {
        upstream.answers(calls("", &[("a", "look", "{}")])).answers(Answer::says([answer]));
        room.says("@ann", words).await;
        room.shows(answer).await;
    };
    asked("one", "first").await;
    room.says("@ann", "/model big").await;
    room.shows("From the next answer on, big").await;
    asked("two", "second").await;
    room.says("@ann", "/model default").await;
    room.shows("From the next answer on, small").await;
    asked("three", "third").await;
    let models: Vec<_> =
        upstream.prompts().iter().map(|prompt| prompt.json()["model"].as_str().unwrap().to_owned()).collect();
    assert_eq!(models, ["small", "small", "big", "big", "small", "small"]);
    assert_eq!(names().await, listed);
}

/// A gateway whose agent has this tool, and a budget for each person.
async fn limited(upstream: &Upstream, tool: Option<&ScriptedTool>, person: u64) -> TestGateway {
    let budget = BudgetConfig { person: Some(person), agent: None };
    let tools: Vec<_> = tool.into_iter().collect();
    let agent = Some(model_agent(upstream, &tools, |_| {}));
    TestGateway::with(Setup { agent, budget, ..Setup::default() }).await
}

/// Waits until `/usage` says that so many tokens of a budget were used.
async fn has_used(gateway: &TestGateway, tokens: usize, limit: u64) {
    gateway.room().says("@ann", "/usage").await;
    gateway.room().shows(&format!("Your budget: {tokens} of {limit} tokens used")).await;
}

#[tokio::test]
async fn a_server_that_reports_no_tokens_is_counted_by_an_estimate() {
    let upstream = Upstream::plain().await;
    let gateway = limited(&upstream, None, 100_000).await;
    let answer = "word ".repeat(40);
    upstream.answers(Answer::says([answer.as_str()]));
    gateway.room().says("@ann", "how many?").await;
    gateway.room().shows("word word").await;
    let sent = upstream.prompts()[0].body.len().div_ceil(4);
    has_used(&gateway, sent + answer.len() / 4, 100_000).await;
    // Only the budget: what the server reported is shown as it is.
    gateway.room().shows("This conversation: questions: 1, tokens in: 0, tokens out: 0.").await;
}

#[tokio::test]
async fn a_task_ends_at_its_budget_also_if_the_server_reports_no_tokens() {
    let upstream = Upstream::plain().await;
    let look = ScriptedTool::returns("look", &"seen ".repeat(400));
    let gateway = limited(&upstream, Some(&look), 1_500).await;
    upstream.answers_by(|request| match request.json()["tool_choice"] == "none" {
        true => Answer::says(["This is what I saw."]),
        false => Answer::calls_uncounted("", &[("a", "look", "{}")]),
    });
    gateway.room().says("@ann", "look").await;
    gateway.room().shows("are used up. They").await;
    // Each request contains all results so far, of 500 tokens each.
    assert!((2..=3).contains(&look.calls().len()), "{} calls", look.calls().len());
    let room = gateway.room().now();
    assert!(room.contains("This is what I saw."), "{room}");
}

#[tokio::test]
async fn the_tokens_of_a_turn_that_was_killed_count_after_the_restart() {
    let upstream = Upstream::plain().await;
    let slow = ScriptedTool::new("slow", ToolScript::Waits("never"));
    // Reported, but only in the memory of the process that dies.
    upstream.answers(calls("I look.", &[("a", "slow", "{}")]));
    let mut gateway = limited(&upstream, Some(&slow), 100_000).await;
    gateway.room().says("@ann", "look").await;
    gateway.room().shows("slow").await;
    gateway.kill().await;
    gateway.restart().await;
    gateway.room().shows("(interrupted").await;
    gateway.room().says("@ann", "/usage").await;
    gateway.room().shows("Your budget: ").await;
    let room = gateway.room().now();
    let (_, rest) = room.split_once("Your budget: ").unwrap();
    let used: usize = rest.split(' ').next().unwrap().parse().unwrap();
    // The tools of a request are added when it is sent; they are not on record.
    let sent = upstream.prompts()[0].body.len().div_ceil(4);
    assert!((sent / 3..=sent + 100).contains(&used), "{used} of about {sent}");
}
