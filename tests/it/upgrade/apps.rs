//! What apps and the owner see of a stored database that goes on.

use reqwest::Method;
use serde_json::{Value, json};

use super::left_behind;
use crate::support::served::{Served, json, settings};

/// The token of the app `phone`.
const TOKEN: &str = "tlr_619e5d8d_4fbdd04eb88071229b13d21bc0d6ceb7c33ac548138215d79ac275d4b0a69d73";

/// Run of the app that was streaming, and its open ask.
const STREAMING: &str = "run_0ab27a18e1e09a089385719363ab1437";
const ASK: &str = "7888139f3a7d51f265c82e3908c6f21f";

/// Run of the app that waited behind it.
const WAITING: &str = "run_5f9a5c5c699dc2d5e551fdb4dfec0ece";

/// Run of the owner that nobody can find again, because the request had no key.
const UNREAD: &str = "run_168a016696126bc0efdf8ba47fff5b29";

/// Sessions of the three rooms.
const HOME: &str = "20261118_100643_08f008ad";
const LAB: &str = "20261118_100643_21612403";
const ALL: &str = "20261118_100643_2b43d130";

/// Serves the stored database until nothing is left to do.
async fn served() -> Served {
    let mut gateway = left_behind().await;
    gateway.agent().when("tidy").says(["Tidying. ", "All is tidy."]);
    gateway.agent().when("what is left?").says(["Only the milk."]);
    gateway.restart().await;
    let served = Served::of(gateway, settings()).await;
    served.gateway.idle().await;
    served
}

async fn phone(served: &Served, method: Method, path: &str, body: Value) -> (u16, Value) {
    let request = served.bare(method, path).bearer_auth(TOKEN).body(body.to_string());
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), json(answer).await)
}

#[tokio::test]
async fn a_run_goes_on_its_ask_is_denied_and_the_next_one_is_answered() {
    let served = served().await;
    let (_, shown) = phone(&served, Method::GET, &format!("/v1/runs/{STREAMING}"), Value::Null).await;
    assert_eq!((&shown["status"], &shown["output"]), (&json!("completed"), &json!("Tidying. All is tidy.")));
    assert_eq!(shown["approvals"][0]["approval_id"], ASK);
    assert_eq!(shown["approvals"][0]["status"], "denied");
    let approve = json!({ "choice": "once", "approval_id": ASK });
    let (status, refused) =
        phone(&served, Method::POST, &format!("/v1/runs/{STREAMING}/approval"), approve).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("approval_not_pending")));
    assert_eq!(served.gateway.agent_itself().ran(), [""; 0]);

    let (_, shown) = phone(&served, Method::GET, &format!("/v1/runs/{WAITING}"), Value::Null).await;
    assert_eq!((&shown["status"], &shown["output"]), (&json!("completed"), &json!("Only the milk.")));
    let heard = served.gateway.agent_itself().heard();
    let goes_on = heard.iter().find(|turn| turn.prompt == "tidy up").unwrap();
    assert!(goes_on.resumed && goes_on.key == STREAMING);
    assert_eq!(goes_on.request, "scripted, request 5: tidy up", "the stored bytes are sent again");
    let waited: Vec<_> = heard.iter().filter(|turn| turn.prompt == "what is left?").collect();
    assert!(waited.len() == 1 && !waited[0].resumed);
    let said: Vec<_> = waited[0].history.iter().map(|one| one.content.as_str()).collect();
    assert_eq!(said, ["buy milk", "Noted.", "tidy up", "Tidying. All is tidy."]);
    assert_eq!(waited[0].session, "phone_10cbe65b76a30a2d");
}

#[tokio::test]
async fn a_request_that_nobody_can_find_again_is_not_run_again() {
    let served = served().await;
    let shown = json(served.get(&format!("/v1/runs/{UNREAD}")).await).await;
    assert_eq!(shown["status"], "cancelled");
    assert!(served.gateway.agent_itself().heard().iter().all(|turn| turn.prompt != "a secret"));
}

#[tokio::test]
async fn the_owner_has_every_session_with_its_history_and_a_key_still_replays() {
    let served = served().await;
    let listed = json(served.get("/api/sessions").await).await;
    let mut rooms: Vec<_> =
        listed["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    rooms.sort_unstable();
    assert_eq!(rooms, [HOME, LAB, ALL, "desk"], "sessions of an app are not listed for the owner");
    let texts = async |session: &str| -> Vec<String> {
        let shown = json(served.get(&format!("/api/sessions/{session}/messages")).await).await;
        let all = shown["data"].as_array().unwrap().clone();
        all.iter().map(|one| one["content"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts("desk").await, ["hello", "Hello, owner."]);
    assert_eq!(texts(HOME).await[..2], ["when is tea?", "Tea is at four."]);
    assert_eq!(texts(ALL).await, ["who is in?", "Everybody is in."]);

    let body = json!({ "messages": [{ "role": "user", "content": "hello" }], "stream": false });
    let request = served.request(Method::POST, "/v1/chat/completions").header("x-hermes-session-id", "desk");
    let request = request.header("idempotency-key", "k").body(body.to_string());
    let replayed = json(request.send().await.unwrap()).await;
    assert_eq!(replayed["choices"][0]["message"]["content"], "Hello, owner.");
    assert!(served.gateway.agent_itself().heard().iter().all(|turn| turn.prompt != "hello"));
}
