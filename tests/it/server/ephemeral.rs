//! Requests that bring their whole history: the client keeps it, the server does not.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::served::{Served, json as read};

const CANARY: &str = "a canary of the client's history";

/// A request with about 54 kB of history, then a question.
fn with_history(question: &str) -> Value {
    with_messages_of(1345, question)
}

/// A request with four messages of so many repeated words, then a question.
fn with_messages_of(words: usize, question: &str) -> Value {
    let said = format!("{CANARY} {}", "and so on ".repeat(words));
    let mut messages: Vec<Value> = ["user", "assistant", "user", "assistant"]
        .map(|role| json!({ "role": role, "content": said }))
        .to_vec();
    messages.push(json!({ "role": "user", "content": question }));
    json!({ "messages": messages })
}

fn is_in(file: &Path, text: &str) -> bool {
    std::fs::read(file).is_ok_and(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some())
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

async fn asks(served: &Served, question: &str) -> String {
    served.agent().says([format!("The answer to {question}.").as_str()]);
    let answer = served.post("/v1/chat/completions", &with_history(question)).await;
    assert_eq!(answer.status(), 200);
    answer.headers()["x-hermes-session-id"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_costs_its_question_and_answer_on_disk_and_not_its_history() {
    const REQUESTS: u64 = 40;
    let mut served = Served::start().await;
    asks(&served, "the first").await;
    served.gateway.drain().await;
    let before = size(&served.gateway.database());
    served.restart().await;
    let mut last = String::new();
    for n in 0..REQUESTS {
        last = asks(&served, &format!("question {n}")).await;
    }
    let messages = read(served.get(&format!("/api/sessions/{last}/messages")).await).await;
    let texts: Vec<_> =
        messages["data"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["question 39", "The answer to question 39."]);
    served.gateway.drain().await;
    let grown = size(&served.gateway.database()).saturating_sub(before);
    assert!(grown / REQUESTS < 5_000, "{} bytes per request", grown / REQUESTS);
    assert!(!is_in(&served.gateway.database(), CANARY), "what is deleted is overwritten");
}

#[tokio::test]
async fn without_a_key_an_answer_is_kept_for_an_hour_and_with_one_for_as_long_as_the_key() {
    let served = Served::start().await;
    let plain = asks(&served, "one").await;
    let request = served.request(Method::POST, "/v1/chat/completions").header("idempotency-key", "k");
    let keyed = request.body(with_history("two").to_string()).send().await.unwrap();
    let keyed = keyed.headers()["x-hermes-session-id"].to_str().unwrap().to_owned();
    let run = read(served.post("/v1/runs", &json!({ "input": "three" })).await).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    served.gateway.idle().await;
    let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
    let lasts = |sql: &str, id: &str| -> i64 {
        database
            .query_row(&format!("SELECT expires - unixepoch() FROM sessions WHERE {sql}"), [id], |row| {
                row.get(0)
            })
            .unwrap()
    };
    let (hour, week) = (3600, 7 * 24 * 3600);
    assert!((hour - 60..=hour).contains(&lasts("id = ?1", &plain)));
    assert!((week - 60..=week).contains(&lasts("id = ?1", &keyed)));
    assert!((week - 60..=week).contains(&lasts("id = (SELECT session FROM turns WHERE id = ?1)", &run)));
}

/// For example, a client that read the id of its session in a header, and continues with it.
#[tokio::test]
async fn whoever_goes_on_by_name_brings_the_history_along_and_is_kept() {
    let served = Served::start().await;
    let session = asks(&served, "one").await;
    let goes_on = async |body: Value| {
        let request =
            served.request(Method::POST, "/v1/chat/completions").header("x-hermes-session-id", &session);
        assert_eq!(request.body(body.to_string()).send().await.unwrap().status(), 200);
        served.gateway.agent_itself().heard().last().unwrap().history.len()
    };
    // A short history: the agent gets a long one as bytes only.
    assert_eq!(goes_on(with_messages_of(10, "two")).await, 4, "as it was brought");
    assert_eq!(
        goes_on(json!({ "messages": [{ "role": "user", "content": "three" }] })).await,
        6,
        "as it is known"
    );
    let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
    let kept = "SELECT expires IS NULL AND passing = 0 FROM sessions WHERE id = ?1";
    assert!(database.query_row(kept, [&session], |row| row.get::<_, bool>(0)).unwrap());
}

#[tokio::test]
async fn a_response_that_is_not_stored_leaves_the_one_before_it_as_it_was() {
    let served = Served::start().await;
    let responds = async |body: Value| {
        let answer = served.post("/v1/responses", &body).await;
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["x-hermes-session-id"].to_str().unwrap().to_owned();
        (session, read(answer).await["id"].as_str().unwrap().to_owned())
    };
    let history = || served.gateway.agent_itself().heard().last().unwrap().history.len();
    let (stored, first) = responds(json!({ "input": "one" })).await;
    let (passing, _) =
        responds(json!({ "input": "two", "previous_response_id": first, "store": false })).await;
    assert_eq!(history(), 2, "it goes on from what was said");
    assert_ne!(stored, passing);
    let (_, _) = responds(json!({ "input": "three", "previous_response_id": first })).await;
    assert_eq!(history(), 2, "what is not stored is not known afterwards");
    let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
    let expires = |id: &str| -> bool {
        database
            .query_row("SELECT expires IS NOT NULL FROM sessions WHERE id = ?1", [id], |row| row.get(0))
            .unwrap()
    };
    assert_eq!((expires(&stored), expires(&passing)), (false, true));
}
