//! `/v1/responses`.

mod onward;
mod restarted;
mod stream;

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, TurnEnd};

use crate::support::served::{Served, json};

/// A request with this input and additional fields.
fn asks(text: &str, more: Value) -> Value {
    let mut body = json!({ "model": "m", "input": text });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Asks and waits for the whole response.
async fn ask(served: &Served, text: &str, more: Value) -> Value {
    let answer = served.post("/v1/responses", &asks(text, more)).await;
    assert_eq!(answer.status(), 200);
    json(answer).await
}

async fn get(served: &Served, response: &Value) -> Value {
    json(served.get(&format!("/v1/responses/{}", response["id"].as_str().unwrap())).await).await
}

#[tokio::test]
async fn a_response_comes_whole_and_is_found_again() {
    let served = Served::start().await;
    served.agent().says(["Hel", "lo"]).uses(3, 2);
    let body = asks("hi", json!({ "instructions": "Be brief", "metadata": { "of": "a test" } }));
    let answer = served.post("/v1/responses", &body).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    assert!(answer.headers()["x-hermes-session-id"].to_str().unwrap().starts_with("api_"));
    let answer = json(answer).await;
    assert_eq!(answer["id"], format!("resp_{}", run.strip_prefix("run_").unwrap()));
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
    let message = &answer["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    let part = json!({ "type": "output_text", "text": "Hello", "annotations": [], "logprobs": [] });
    assert_eq!(message["content"], json!([part]));
    assert_eq!(answer["usage"]["total_tokens"], 5);
    assert_eq!(answer["model"], "m");
    assert_eq!(answer["instructions"], "Be brief");
    assert_eq!(answer["metadata"], json!({ "of": "a test" }));
    assert_eq!(get(&served, &answer).await, answer);
    assert!(served.gateway.agent_itself().heard()[0].context.contains("Be brief"));
}

#[tokio::test]
async fn a_deleted_response_is_as_if_it_had_never_been() {
    let served = Served::start().await;
    let id = ask(&served, "hi", json!({})).await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    let deleted = served.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(json(deleted).await, json!({ "id": id, "object": "response", "deleted": true }));
    let never = served.get("/v1/responses/resp_00000000000000000000000000000000").await;
    let gone = served.get(&path).await;
    assert_eq!((gone.status(), never.status()), (404.try_into().unwrap(), 404.try_into().unwrap()));
    assert_eq!(gone.text().await.unwrap(), never.text().await.unwrap());
    let again = served.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(again.status(), 404);
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_found_by_nobody() {
    let served = Served::start().await;
    let answer = ask(&served, "hi", json!({ "store": false })).await;
    assert_eq!((&answer["store"], &answer["status"]), (&json!(false), &json!("completed")));
    let id = answer["id"].as_str().unwrap();
    assert_eq!(served.get(&format!("/v1/responses/{id}")).await.status(), 404);
    let body = asks("more", json!({ "previous_response_id": id }));
    let onward = served.post("/v1/responses", &body).await;
    assert_eq!(onward.status(), 404);
    let error = json(onward).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("previous_response_not_found"), &json!("previous_response_id"))
    );
}

#[tokio::test]
async fn a_response_says_how_it_came_out() {
    let served = Served::start().await;
    served.agent().says(["Hel"]).then_ends(TurnEnd::Limit);
    let cut = ask(&served, "hi", json!({})).await;
    assert_eq!((&cut["status"], &cut["output"][0]["status"]), (&json!("incomplete"), &json!("incomplete")));
    assert_eq!(cut["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    served.agent().then_fails(AgentErrorKind::Refused, "The model is away.");
    let failed = served.post("/v1/responses", &asks("hi", json!({}))).await;
    assert_eq!(failed.status(), 502);
    let id = failed.headers()["x-hermes-run-id"].to_str().unwrap().replace("run_", "resp_");
    let error = json(failed).await["error"].clone();
    assert_eq!((&error["code"], error.get("partial")), (&json!("failed"), None));
    assert!(error["message"].as_str().unwrap().contains("The model is away."));
    // A failed response is stored too.
    let failed = json(served.get(&format!("/v1/responses/{id}")).await).await;
    assert_eq!((&failed["status"], &failed["output"]), (&json!("failed"), &json!([])));
    assert_eq!(failed["error"]["code"], "server_error");

    let breaks = || served.agent().says(["Half"]).then_fails(AgentErrorKind::CutShort, "the model broke");
    breaks();
    let failed = served.post("/v1/responses", &asks("hi", json!({}))).await;
    assert_eq!(failed.status(), 502);
    assert_eq!(json(failed).await["error"]["partial"], "Half");
    breaks();
    let request = served.request(Method::POST, "/v1/responses").header("x-talaria-partial", "true");
    let partial = request.body(asks("hi", json!({})).to_string()).send().await.unwrap();
    assert_eq!(partial.status(), 200);
    let partial = json(partial).await;
    assert_eq!(
        (&partial["status"], &partial["output"][0]["content"][0]["text"]),
        (&json!("failed"), &json!("Half"))
    );
}

#[tokio::test]
async fn a_response_is_cancelled_and_stays_so() {
    let served = Served::start().await;
    let script = served.agent().says(["Half"]).then_hangs();
    let answer = ask(&served, "hi", json!({ "background": true })).await;
    script.is_hanging().await;
    let path = format!("/v1/responses/{}/cancel", answer["id"].as_str().unwrap());
    for _ in 0..2 {
        let cancelled = served.post(&path, &json!({})).await;
        assert_eq!(cancelled.status(), 200);
        let cancelled = json(cancelled).await;
        assert_eq!((&cancelled["id"], &cancelled["status"]), (&answer["id"], &json!("cancelled")));
        assert_eq!(cancelled["output"][0]["content"][0]["text"], "Half");
    }
    assert!(script.was_told_to_stop());
    // A complete response stays complete.
    let whole = ask(&served, "hi", json!({})).await;
    let path = format!("/v1/responses/{}/cancel", whole["id"].as_str().unwrap());
    assert_eq!(json(served.post(&path, &json!({})).await).await, whole);
    // Nobody can cancel another caller's response.
    let app = served.app("forge").await;
    let others = served.bare(Method::POST, &path).bearer_auth(app).send().await.unwrap();
    assert_eq!(others.status(), 404);
    assert_eq!(served.post("/v1/responses/resp_0/cancel", &json!({})).await.status(), 404);
}

#[tokio::test]
async fn a_response_says_what_it_was_asked() {
    let served = Served::start().await;
    let first = ask(&served, "What is a relay?", json!({})).await;
    let second = ask(&served, "And a fuse?", json!({ "previous_response_id": first["id"] })).await;
    for (answer, text) in [(&first, "What is a relay?"), (&second, "And a fuse?")] {
        let path = format!("/v1/responses/{}/input_items", answer["id"].as_str().unwrap());
        let items = json(served.get(&path).await).await;
        let item = &items["data"][0];
        assert_eq!((items["data"].as_array().unwrap().len(), &items["has_more"]), (1, &json!(false)));
        assert_eq!((&item["role"], &item["type"]), (&json!("user"), &json!("message")));
        assert_eq!(item["content"], json!([{ "type": "input_text", "text": text }]));
        assert_eq!((&items["first_id"], &items["last_id"]), (&item["id"], &item["id"]));
        let next = format!("{path}?limit=20&order=asc&after={}", item["id"].as_str().unwrap());
        assert_eq!(json(served.get(&next).await).await["data"], json!([]));
        assert_eq!(served.get(&format!("{path}?limit=0")).await.status(), 400);
    }
    // A running response has its input items too.
    let script = served.agent().then_hangs();
    let running = ask(&served, "Still there?", json!({ "background": true })).await;
    script.is_hanging().await;
    let path = format!("/v1/responses/{}/input_items", running["id"].as_str().unwrap());
    let items = json(served.get(&path).await).await;
    assert_eq!(items["data"][0]["content"][0]["text"], "Still there?");
    assert_eq!(served.get("/v1/responses/resp_0/input_items").await.status(), 404);
}

#[tokio::test]
async fn what_runs_in_the_background_is_looked_at_later() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let answer = ask(&served, "hi", json!({ "background": true })).await;
    assert_eq!((&answer["status"], &answer["output"]), (&json!("in_progress"), &json!([])));
    script.is_hanging().await;
    assert_eq!(get(&served, &answer).await["status"], "in_progress");
    script.goes_on();
    let path = format!("/v1/responses/{}?stream=true", answer["id"].as_str().unwrap());
    let events = served.get(&path).await.text().await.unwrap();
    assert!(events.contains("response.completed"), "{events}");
    assert_eq!(get(&served, &answer).await["output"][0]["content"][0]["text"], "Hello");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let served = Served::start().await;
    let long: String = "x".repeat(513);
    for (body, param) in [
        (json!({}), "input"),
        (json!({ "input": [{ "type": "item_reference", "id": "msg_1" }] }), "input[0].type"),
        (json!({ "input": "hi", "conversation": "a/b" }), "conversation"),
        (json!({ "input": "hi", "conversation": 7 }), "conversation"),
        (json!({ "input": "hi", "conversation": "a", "previous_response_id": "b" }), "previous_response_id"),
        (json!({ "input": "hi", "metadata": { "a": long } }), "metadata"),
        (json!({ "input": "hi", "store": false, "background": true }), "background"),
    ] {
        let answer = served.post("/v1/responses", &body).await;
        assert_eq!(answer.status(), 400, "{body}");
        assert_eq!(json(answer).await["error"]["param"], param, "{body}");
    }
    assert_eq!(served.get("/v1/responses/x?stream=perhaps").await.status(), 400);
    assert_eq!(served.get("/v1/responses/%FF").await.status(), 404);
    assert!(served.gateway.agent_itself().heard().is_empty());
}
