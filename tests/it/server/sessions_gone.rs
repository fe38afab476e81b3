//! Deleted sessions: by their owner, while turns run in them, and sessions that nobody named.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::events::events;
use super::paused::Scene;
use super::sessions::begin;
use crate::support::served::{Served, json};
use crate::support::stream::Stream;

#[tokio::test]
async fn what_runs_in_a_removed_session_is_stopped_first() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    let script = served.agent().says(["It begins"]).then_hangs();
    let stream = served.post("/api/sessions/s/chat/stream", &json!({ "message": "go" })).await;
    script.is_hanging().await;
    let waiting = served.post("/api/sessions/s/chat/stream", &json!({ "message": "then this" })).await;
    let removed = served.request(Method::DELETE, "/api/sessions/s").send().await.unwrap();
    assert_eq!(removed.status(), 200);
    assert!(script.was_told_to_stop());
    assert_eq!(served.get("/api/sessions/s").await.status(), 404);
    for stream in [stream, waiting] {
        let told = events(&stream.text().await.unwrap());
        let names: Vec<_> = told.iter().map(|event| event.name.as_str()).collect();
        assert!(names.ends_with(&["run.cancelled", "done"]), "{names:?}");
    }
    assert_eq!(served.gateway.agent_itself().heard().len(), 1, "what waited never ran");
}

#[tokio::test]
async fn whoever_waits_for_a_whole_answer_is_told_that_the_session_is_gone() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    let script = served.agent().then_hangs();
    let body = json!({ "message": "go" });
    let chat = served.post("/api/sessions/s/chat", &body);
    let remove = async {
        script.is_hanging().await;
        served.request(Method::DELETE, "/api/sessions/s").send().await.unwrap()
    };
    let (chat, removed) = tokio::join!(chat, remove);
    assert_eq!(removed.status(), 200);
    // Either the client had read the end of its turn, or there was nothing left to read.
    assert!([200, 404].contains(&chat.status().as_u16()), "{}", chat.status());
}

#[tokio::test(start_paused = true)]
async fn whoever_has_read_something_is_not_told_that_there_was_nothing() {
    let chat = json!({ "messages": [{ "role": "user", "content": "go" }], "stream": true });
    for (path, body, pointer) in [
        ("/api/sessions/s/chat/stream", json!({ "message": "go" }), "/content"),
        ("/v1/chat/completions", chat, ""),
        ("/v1/responses", json!({ "input": "go", "stream": true }), "/response/output/0/content/0/text"),
    ] {
        let scene = Scene::start().await;
        assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
        let script = scene.gateway.agent().says(["It begins"]).then_hangs();
        let answer = scene.post(path, &[("x-hermes-session-id", "s")], &body).await;
        let mut stream = Stream::of(answer.into_body().into_data_stream());
        stream.until_text("It begins").await;
        script.is_hanging().await;
        // The stream looks at the store again only after the session is gone.
        assert_eq!(scene.delete("/api/sessions/s").await.status(), 200);
        let rest = stream.rest().await;
        let told: Vec<_> =
            rest.iter().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok()).collect();
        if pointer.is_empty() {
            // The reader has the text, and the end does not repeat it.
            let end = &told.last().unwrap()["hermes"];
            assert_eq!((&end["status"], end.get("text")), (&json!("cancelled"), None), "{rest:?}");
            continue;
        }
        let end = told.iter().rev().find_map(|data| data.pointer(pointer)).unwrap();
        assert_eq!(end, "It begins", "{path}: {rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_agent_of_a_removed_session_is_told_what_it_reported_of_it() {
    let scene = Scene::start().await;
    assert_eq!(scene.post("/api/sessions", &[], &json!({ "id": "s" })).await.status(), 201);
    scene.gateway.agent().reports(json!("thread 1")).says(["hello"]);
    let answer = scene.post("/api/sessions/s/chat", &[], &json!({ "message": "go" })).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(scene.gateway.agent_itself().ended(), []);
    assert_eq!(scene.delete("/api/sessions/s").await.status(), 200);
    scene.gateway.chat().is_quiet(Duration::from_secs(5)).await;
    let told = scene.gateway.agent_itself().ended();
    assert_eq!((told.len(), told[0].upstream.clone()), (1, json!("thread 1")));
    assert_eq!(told[0].session.0, scene.gateway.agent_itself().heard()[0].session);
}

#[tokio::test]
async fn nothing_of_a_removed_session_is_left() {
    let served = Served::start().await;
    let secret = "the password is swordfish";
    begin(&served, "s", Some("Secret plans")).await;
    served.agent().says(["I shall remember swordfish"]);
    let request = served.request(Method::POST, "/api/sessions/s/chat").header("Idempotency-Key", "k1");
    let answer = request.body(json!({ "message": secret }).to_string()).send().await.unwrap();
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    assert_eq!(served.request(Method::DELETE, "/api/sessions/s").send().await.unwrap().status(), 200);
    assert_eq!(served.request(Method::DELETE, "/api/sessions/s").send().await.unwrap().status(), 404);
    let left = served.gateway.store().read(move |tx| Ok(tx.turn(&talaria::ids::TurnId(run))?.is_some()));
    assert!(!left.await.unwrap());
    // The key may be used again, and finds no session.
    let request = served.request(Method::POST, "/api/sessions/s/chat").header("Idempotency-Key", "k1");
    let again = request.body(json!({ "message": secret }).to_string()).send().await.unwrap();
    assert_eq!(again.status(), 404);
}

#[tokio::test]
async fn another_session_of_the_same_name_is_another_one_to_the_upstream() {
    let served = Served::start().await;
    let mut names = Vec::new();
    for _ in 0..3 {
        assert_eq!(served.post("/api/sessions", &json!({ "id": "s" })).await.status(), 201);
        served.post("/api/sessions/s/chat", &json!({ "message": "hi" })).await;
        let heard = served.gateway.agent_itself().heard().pop().unwrap();
        assert!(heard.history.is_empty());
        assert!(!names.contains(&heard.session), "{names:?} and {}", heard.session);
        names.push(heard.session);
        served.request(Method::DELETE, "/api/sessions/s").send().await.unwrap();
    }
    assert_eq!(names[0], "s");
}

#[tokio::test]
async fn removing_and_talking_at_the_same_time_never_breaks_anything() {
    let served = Served::start().await;
    for round in 0..10 {
        let id = format!("s{round}");
        begin(&served, &id, None).await;
        let path = format!("/api/sessions/{id}");
        let chat = |number: usize| {
            let (served, path) = (&served, &path);
            async move {
                let end = if number.is_multiple_of(2) { "chat" } else { "chat/stream" };
                let answer = served.post(&format!("{path}/{end}"), &json!({ "message": "hi" })).await;
                let status = answer.status().as_u16();
                (status, answer.text().await.unwrap())
            }
        };
        let remove = || async {
            let answer = served.request(Method::DELETE, &path).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let before = join_all((0..4).map(chat));
        let removals = join_all((0..4).map(|_| remove()));
        let after = join_all((0..4).map(chat));
        let (before, removals, after) = tokio::join!(before, removals, after);
        let removed = removals.iter().filter(|(status, _)| *status == 200).count();
        assert_eq!(removed, 1, "{removals:?}");
        for (status, body) in before.into_iter().chain(removals).chain(after) {
            // A turn that was stopped while it waited reports that.
            let stopped = status == 502 && body.contains(r#""code":"cancelled""#);
            assert!(stopped || [200, 404].contains(&status), "{status}: {body}");
        }
        assert_eq!(served.get(&path).await.status(), 404);
    }
    // Nothing is left that would delay the next session.
    begin(&served, "last", None).await;
    assert_eq!(served.post("/api/sessions/last/chat", &json!({ "message": "hi" })).await.status(), 200);
}

#[tokio::test]
async fn a_session_that_nobody_named_goes_at_a_start_when_it_is_long_unused() {
    let mut served = Served::start().await;
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let mut passing = Vec::new();
    for _ in 0..2 {
        let answer = served.post("/v1/chat/completions", &body).await;
        passing.push(answer.headers()["x-hermes-session-id"].to_str().unwrap().to_owned());
    }
    begin(&served, "named", None).await;
    served.gateway.drain().await;
    let month = 31 * 24 * 60 * 60;
    let database = rusqlite::Connection::open(served.gateway.database()).unwrap();
    let change = "UPDATE sessions SET used = used - ?1, expires = expires - ?1 WHERE id IN (?2, 'named')";
    assert_eq!(database.execute(change, rusqlite::params![month, passing[0]]).unwrap(), 2);
    drop(database);
    served.restart().await;
    let status = |id: String| {
        let served = &served;
        async move { served.get(&format!("/api/sessions/{id}")).await.status().as_u16() }
    };
    assert_eq!(status(passing[0].clone()).await, 404);
    assert_eq!(status(passing[1].clone()).await, 200);
    assert_eq!(status("named".to_owned()).await, 200);
    let listed = json(served.get("/api/sessions").await).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
}
