//! Continuing a conversation from a response.

use std::time::Duration;

use serde_json::json;

use super::{ask, asks};
use crate::support::served::{Served, json};

/// The agent's input in its last run: the history, and the question.
fn heard(served: &Served) -> Vec<String> {
    let heard = served.gateway.agent_itself().heard();
    let last = heard.last().unwrap();
    let history = last.history.iter().map(|said| said.content.clone());
    history.chain([last.prompt.clone()]).collect()
}

#[tokio::test]
async fn a_response_goes_on_from_another_in_its_session_and_without_its_instructions() {
    let served = Served::start().await;
    served.agent().says(["one"]);
    let first = served.post("/v1/responses", &asks("1", json!({ "instructions": "Be brief" }))).await;
    let session = first.headers()["x-hermes-session-id"].clone();
    let first = json(first).await;
    served.agent().says(["two"]);
    let body = asks("2", json!({ "previous_response_id": first["id"] }));
    let second = served.post("/v1/responses", &body).await;
    assert_eq!(second.headers()["x-hermes-session-id"], session);
    let second = json(second).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(second["instructions"], json!(null));
    assert_eq!(heard(&served), ["1", "one", "2"]);
    assert!(!served.gateway.agent_itself().heard()[1].context.contains("Be brief"));
}

#[tokio::test]
async fn a_second_response_behind_the_same_one_knows_nothing_of_the_first() {
    let served = Served::start().await;
    let input = json!([
        { "role": "user", "content": "0" }, { "role": "assistant", "content": "zero" },
        { "role": "user", "content": "1" },
    ]);
    served.agent().says(["one"]);
    let first = json(served.post("/v1/responses", &json!({ "input": input })).await).await;
    let behind = json!({ "previous_response_id": first["id"] });
    let second = ask(&served, "2", behind.clone()).await;
    assert_eq!(heard(&served), ["0", "zero", "1", "one", "2"]);
    served.agent().says(["three"]);
    let body = asks("3", behind);
    let third = served.post("/v1/responses", &body).await;
    assert_eq!(heard(&served), ["0", "zero", "1", "one", "3"]);
    let fork = third.headers()["x-hermes-session-id"].clone();
    let third = json(third).await;
    // Each of them is the newest of its own branch.
    ask(&served, "4", json!({ "previous_response_id": second["id"] })).await;
    assert_eq!(heard(&served), ["0", "zero", "1", "one", "2", "ok", "4"]);
    let body = asks("5", json!({ "previous_response_id": third["id"] }));
    let fifth = served.post("/v1/responses", &body).await;
    assert_eq!(fifth.headers()["x-hermes-session-id"], fork);
    assert_eq!(heard(&served), ["0", "zero", "1", "one", "3", "three", "5"]);
}

#[tokio::test]
async fn responses_behind_one_that_runs_wait_for_it_or_are_refused() {
    let served = Served::start().await;
    let script = served.agent().when("1").says(["one"]).then_hangs();
    let first = ask(&served, "1", json!({ "background": true })).await;
    script.is_hanging().await;
    let behind = json!({ "background": true, "previous_response_id": first["id"] });
    let second = ask(&served, "2", behind.clone()).await;
    assert_eq!(second["status"], "in_progress");
    // The text of the first is not known yet, and the second has its session.
    let third = served.post("/v1/responses", &asks("3", behind)).await;
    assert_eq!(third.status(), 409);
    assert_eq!(json(third).await["error"]["code"], "response_in_progress");
    script.goes_on();
    let path = format!("/v1/responses/{}?stream=true", second["id"].as_str().unwrap());
    served.get(&path).await.text().await.unwrap();
    assert_eq!(heard(&served), ["1", "one", "2"]);
}

/// A response that is not stored must not end up in the session of a stored one, even if it could wait there.
#[tokio::test]
async fn what_is_not_stored_does_not_wait_behind_a_response_that_runs() {
    let served = Served::start().await;
    let script = served.agent().when("1").says(["one"]).then_hangs();
    let first = ask(&served, "1", json!({ "background": true })).await;
    script.is_hanging().await;
    let passing = asks("2", json!({ "previous_response_id": first["id"], "store": false }));
    let second = served.post("/v1/responses", &passing);
    let second = tokio::time::timeout(Duration::from_secs(30), second).await.expect("it is refused at once");
    assert_eq!(second.status(), 409);
    assert_eq!(json(second).await["error"]["code"], "response_in_progress");
    script.goes_on();
    let path = format!("/v1/responses/{}?stream=true", first["id"].as_str().unwrap());
    served.get(&path).await.text().await.unwrap();
    assert_eq!(served.post("/v1/responses", &passing).await.status(), 200);
    assert_eq!(heard(&served), ["1", "one", "2"]);
    ask(&served, "3", json!({ "previous_response_id": first["id"] })).await;
    assert_eq!(heard(&served), ["1", "one", "3"]);
}

#[tokio::test]
async fn a_conversation_is_a_session_of_that_name() {
    let served = Served::start().await;
    served.agent().says(["one"]);
    let first = ask(&served, "1", json!({ "conversation": "plans" })).await;
    assert_eq!(first["conversation"], json!({ "id": "plans" }));
    let body = asks("2", json!({ "conversation": { "id": "plans" } }));
    let second = served.post("/v1/responses", &body).await;
    assert_eq!(second.headers()["x-hermes-session-id"], "plans");
    assert_eq!(heard(&served), ["1", "one", "2"]);
}

#[tokio::test]
async fn what_is_asked_twice_with_a_key_is_one_response_whatever_became_of_the_one_before() {
    let served = Served::start().await;
    let first = ask(&served, "1", json!({})).await;
    let body = asks("2", json!({ "previous_response_id": first["id"] })).to_string();
    let path = "/v1/responses";
    let request =
        || served.request(reqwest::Method::POST, path).header("idempotency-key", "k").body(body.clone());
    let second = json(request().send().await.unwrap()).await;
    let gone = format!("{path}/{}", first["id"].as_str().unwrap());
    assert_eq!(served.request(reqwest::Method::DELETE, &gone).send().await.unwrap().status(), 200);
    assert_eq!(json(request().send().await.unwrap()).await, second);
    assert_eq!(served.gateway.agent_itself().heard().len(), 2);
}
