//! Tokens and models of a turn with several requests: the budget, the sum, and the model that a person chose.

use insta::assert_snapshot;
use serde_json::json;
use talaria::rules::BudgetConfig;

use super::support::{ScriptedTool, agent_as, agent_with, calls, model_agent, says_using, told};
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
