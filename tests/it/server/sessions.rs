//! `/api/sessions`: which sessions are stored, and who sees them.

use std::collections::BTreeSet;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use talaria::agent::MessageRole;
use talaria::ids::{SessionId, TurnId};
use talaria::store::NewSession;

use crate::support::served::{KEY, Served, json};

/// Makes a session of the owner.
pub async fn begin(served: &Served, id: &str, title: Option<&str>) {
    let new =
        NewSession { title: title.map(str::to_owned), ..NewSession::new(&SessionId(id.to_owned()), "") };
    served.gateway.store().write(move |tx| tx.create_session(&new)).await.unwrap();
}

/// Makes a session of the owner with these messages.
pub async fn begin_with(served: &Served, id: &str, title: &str, said: &[(MessageRole, &str)]) {
    begin(served, id, Some(title).filter(|title| !title.is_empty())).await;
    say(served, id, said).await;
}

/// Adds messages to a session, as if sent long ago.
pub async fn say(served: &Served, id: &str, said: &[(MessageRole, &str)]) {
    let id = SessionId(id.to_owned());
    let said: Vec<_> = said.iter().map(|(role, text)| (*role, (*text).to_owned())).collect();
    let before = TurnId(String::new());
    let job = served
        .gateway
        .store()
        .write(move |tx| said.iter().try_for_each(|(role, text)| tx.record(&id, &before, *role, text)));
    job.await.unwrap();
}

async fn patch(served: &Served, path: &str, body: &str) -> Response {
    served.request(Method::PATCH, path).body(body.to_owned()).send().await.unwrap()
}

async fn delete(served: &Served, path: &str) -> Response {
    served.request(Method::DELETE, path).send().await.unwrap()
}

async fn session(served: &Served, id: &str) -> Value {
    json(served.get(&format!("/api/sessions/{id}")).await).await["session"].clone()
}

#[tokio::test]
async fn a_session_has_all_its_fields() {
    let served = Served::start().await;
    let body = json!({ "id": "mine", "title": " My\u{202e} title ", "system_prompt": "Be brief." });
    assert_eq!(served.post("/api/sessions", &body).await.status(), 201);
    served.agent().says(["one"]).uses(10, 5);
    served.agent().says(["two"]).uses(20, 7);
    for _ in 0..2 {
        assert_eq!(served.post("/api/sessions/mine/chat", &json!({ "message": "go" })).await.status(), 200);
    }
    let mut seen = session(&served, "mine").await;
    for moment in ["started_at", "last_active"] {
        assert!(seen[moment].take().as_i64().unwrap() > 1_700_000_000);
    }
    assert_eq!(
        seen,
        json!({
            "id": "mine", "source": "api_server", "user_id": null, "model": "talaria", "title": "My title",
            "started_at": null, "last_active": null, "ended_at": null, "end_reason": null,
            "message_count": 4, "tool_call_count": 0, "input_tokens": 30, "output_tokens": 12,
            "cache_read_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0, "api_call_count": 2,
            "parent_session_id": null, "has_system_prompt": true,
        })
    );
}

/// The list is the same as in `/sessions` and `talaria sessions`.
#[tokio::test]
async fn a_session_without_a_title_is_known_by_its_first_question() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    assert_eq!(session(&served, "s").await["title"], Value::Null, "nothing was asked yet");
    for question in ["Which\n way\u{202e}?", "Sure?"] {
        served.post("/api/sessions/s/chat", &json!({ "message": question })).await;
    }
    assert_eq!(session(&served, "s").await["title"], "Which way?");
    let listed = json(served.get("/api/sessions").await).await;
    assert_eq!(listed["data"][0]["title"], "Which way?");
    let overview = served.gateway.operator().does("/sessions", json!({ "limit": 1 })).await.unwrap();
    assert_eq!(overview["sessions"][0]["title"], "Which way?");
    let fork = json(served.post("/api/sessions/s/fork", &json!({})).await).await;
    assert_eq!(fork["session"]["title"], "Which way? (fork)");

    patch(&served, "/api/sessions/s", r#"{"title":"Directions"}"#).await;
    assert_eq!(session(&served, "s").await["title"], "Directions");
    patch(&served, "/api/sessions/s", r#"{"title":null}"#).await;
    assert_eq!(session(&served, "s").await["title"], "Which way?");
}

#[tokio::test]
async fn what_a_session_always_says_comes_before_what_a_turn_says() {
    let served = Served::start().await;
    served.post("/api/sessions", &json!({ "id": "s", "system_prompt": "Always." })).await;
    served.post("/api/sessions/s/chat", &json!({ "message": "one", "system_message": "Once." })).await;
    served.post("/api/sessions/s/chat", &json!({ "message": "two" })).await;
    let request = served.request(Method::POST, "/v1/chat/completions").header("X-Hermes-Session-Id", "s");
    let body = json!({ "messages": [{ "role": "user", "content": "three" }] });
    assert_eq!(request.body(body.to_string()).send().await.unwrap().status(), 200);
    let heard = served.gateway.agent_itself().heard();
    let contexts: Vec<_> = heard.iter().map(|heard| heard.context.as_str()).collect();
    assert_eq!(contexts, ["Always.\n\nOnce.", "Always.", "Always."]);
    let messages = json(served.get("/api/sessions/s/messages").await).await;
    assert!(!messages.to_string().contains("Once."), "it is not recorded");
}

#[tokio::test]
async fn whoever_says_that_a_session_is_over_may_talk_in_it_again() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    let ended = json(patch(&served, "/api/sessions/s", r#"{"end_reason":"user_exit"}"#).await).await;
    assert_eq!(ended["session"]["end_reason"], "user_exit");
    assert!(ended["session"]["ended_at"].is_i64());
    assert_eq!(served.post("/api/sessions/s/chat", &json!({ "message": "hi" })).await.status(), 200);
    let seen = session(&served, "s").await;
    assert_eq!((&seen["ended_at"], &seen["end_reason"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn agents_are_told_of_the_sessions_that_a_program_ends() {
    let served = Served::start().await;
    let agent = served.gateway.agent_itself();
    for name in ["s", "t"] {
        begin(&served, name, None).await;
        served.agent().reports(json!(name)).says(["ok"]);
        let chat = format!("/api/sessions/{name}/chat");
        assert_eq!(served.post(&chat, &json!({ "message": "hi" })).await.status(), 200);
    }
    let told = agent.is_told();
    patch(&served, "/api/sessions/s", r#"{"end_reason":"user_exit"}"#).await;
    told.opened().await;
    let told = agent.is_told();
    assert_eq!(served.post("/api/sessions/t/fork", &json!({})).await.status(), 201);
    told.opened().await;
    let ended: Vec<_> = agent.ended().into_iter().map(|ended| ended.upstream).collect();
    assert_eq!(ended, ["s", "t"]);
}

#[tokio::test]
async fn a_taken_id_is_refused_and_what_is_there_stays() {
    let served = Served::start().await;
    begin_with(&served, "s", "First", &[(MessageRole::User, "hi")]).await;
    begin(&served, "other", None).await;
    for (path, body) in [
        ("/api/sessions", json!({ "id": "s", "title": "Second" })),
        ("/api/sessions/other/fork", json!({ "id": "s" })),
        ("/api/sessions/s/fork", json!({ "session_id": "s" })),
    ] {
        let refused = served.post(path, &body).await;
        assert_eq!(refused.status(), 409, "{path}");
        assert_eq!(json(refused).await["error"]["code"], "session_exists");
    }
    let seen = session(&served, "s").await;
    assert_eq!((&seen["title"], &seen["message_count"]), (&json!("First"), &json!(1)));
    assert_eq!(seen["end_reason"], Value::Null);
    assert_eq!(session(&served, "other").await["end_reason"], Value::Null);
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let served = Served::start().await;
    served.post("/api/sessions", &json!({ "id": "a", "title": "Plan", "system_prompt": "Be brief." })).await;
    served.agent().says(["left"]);
    served.post("/api/sessions/a/chat", &json!({ "message": "which way?" })).await;
    let fork = json(served.post("/api/sessions/a/fork", &json!({ "id": "b" })).await).await;
    assert_eq!((&fork["session"]["id"], &fork["session"]["title"]), (&json!("b"), &json!("Plan (fork)")));
    assert_eq!(fork["session"]["has_system_prompt"], true);
    served.agent().says(["right"]);
    served.post("/api/sessions/b/chat", &json!({ "message": "sure?" })).await;
    let heard = served.gateway.agent_itself().heard().pop().unwrap();
    let history: Vec<_> = heard.history.iter().map(|said| said.content.as_str()).collect();
    assert_eq!((history, heard.context.as_str()), (vec!["which way?", "left"], "Be brief."));
    assert_eq!(session(&served, "a").await["message_count"], 2);
    assert_eq!(delete(&served, "/api/sessions/a").await.status(), 200);
    let seen = session(&served, "b").await;
    assert_eq!((&seen["message_count"], &seen["parent_session_id"]), (&json!(4), &Value::Null));
}

#[tokio::test]
async fn messages_come_in_pages_oldest_first() {
    let served = Served::start().await;
    let texts: Vec<String> = (0..25).map(|number| format!("message {number}")).collect();
    let said: Vec<_> = texts.iter().map(|text| (MessageRole::User, text.as_str())).collect();
    begin_with(&served, "s", "", &said).await;
    let mut seen = Vec::new();
    loop {
        let path = format!("/api/sessions/s/messages?limit=10&offset={}", seen.len());
        let page = json(served.get(&path).await).await;
        assert_eq!(page["total"], 25);
        for message in page["data"].as_array().unwrap() {
            assert_eq!(message["id"], seen.len() + 1);
            assert_eq!(message["session_id"], "s");
            seen.push(message["content"].as_str().unwrap().to_owned());
        }
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(seen, texts);
}

#[tokio::test]
async fn ten_thousand_sessions_are_listed_by_pages() {
    let served = Served::start().await;
    let many = served.gateway.store().write(|tx| {
        (0..10_000).try_for_each(|number| {
            tx.create_session(&NewSession::new(&SessionId(format!("s{number:05}")), ""))
        })
    });
    many.await.unwrap();
    let (mut seen, mut pages) = (BTreeSet::new(), 0);
    loop {
        let path = format!("/api/sessions?limit=5000&offset={}", seen.len());
        let page = json(served.get(&path).await).await;
        assert_eq!(page["limit"], 200, "more is not given at once");
        let data = page["data"].as_array().unwrap();
        seen.extend(data.iter().map(|session| session["id"].as_str().unwrap().to_owned()));
        pages += 1;
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (10_000, 50));
    let default = json(served.get("/api/sessions").await).await;
    assert_eq!(default["data"].as_array().unwrap().len(), 50);
    let beyond = json(served.get("/api/sessions?offset=10000").await).await;
    assert_eq!((&beyond["data"], &beyond["has_more"]), (&json!([]), &json!(false)));
    // The offset is bounded, because skipped sessions are read too; a list continues after its last session without
    // an offset.
    for offset in ["10001", "4000000000"] {
        let refused = served.get(&format!("/api/sessions?offset={offset}")).await;
        assert_eq!(refused.status(), 400);
        assert_eq!(json(refused).await["error"]["param"], "offset");
    }
    let (mut behind, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = json(served.get(&format!("/api/sessions?limit=200&after={after}")).await).await;
        let data = page["data"].as_array().unwrap();
        behind.extend(data.iter().map(|session| session["id"].as_str().unwrap().to_owned()));
        if page["has_more"] == false {
            break;
        }
        after = data.last().unwrap()["id"].as_str().unwrap().to_owned();
    }
    assert_eq!(behind, seen);
    assert_eq!(served.get("/api/sessions?after=absent").await.status(), 400);
}

#[tokio::test]
async fn names_that_cannot_be_are_not_there() {
    let served = Served::start().await;
    let absent = served.get("/api/sessions/absent").await;
    assert_eq!(absent.status(), 404);
    let absent = absent.text().await.unwrap();
    assert!(absent.contains("session_not_found"));
    let long = "x".repeat(257);
    for name in ["app%2Fname", "..%2f..", "a%5Cb", "%00", "%0A", "%ff%fe", "a..b", "%E2%80%AEevil", &long] {
        for (method, rest) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/messages"),
            (Method::POST, "/fork"),
            (Method::POST, "/chat"),
            (Method::POST, "/chat/stream"),
        ] {
            let path = format!("/api/sessions/{name}{rest}");
            let body = if rest.starts_with("/chat") { r#"{"message":"hi"}"# } else { "{}" };
            let answer = served.request(method.clone(), &path).body(body).send().await.unwrap();
            assert_eq!(answer.status(), 404, "{method} {path}");
            assert_eq!(answer.text().await.unwrap(), absent, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_name_may_be_in_any_language() {
    let served = Served::start().await;
    for id in ["комната", "部屋 1", "🦉", "it's \"quoted\" & 100%"] {
        let made = served.post("/api/sessions", &json!({ "id": id })).await;
        assert_eq!(made.status(), 201, "{id}");
        let path: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/sessions/{path}");
        assert_eq!(json(served.get(&path).await).await["session"]["id"], id);
        let answer = served.post(&format!("{path}/chat"), &json!({ "message": "hi" })).await;
        assert_eq!(answer.status(), 200, "{id}");
        assert_eq!(answer.headers()["x-hermes-session-id"].as_bytes(), id.as_bytes());
        assert_eq!(json(answer).await["session_id"], id);
        assert_eq!(delete(&served, &path).await.status(), 200);
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_changes_nothing() {
    let served = Served::start().await;
    begin(&served, "s", Some("Kept")).await;
    let long = "x".repeat(201);
    for body in [
        json!({ "title": 5 }),
        json!({ "title": ["a"] }),
        json!({ "title": long }),
        json!({ "end_reason": { "a": 1 } }),
        json!({ "end_reason": "two\nlines" }),
        json!({ "title": "New", "system_prompt": "mine now" }),
        json!({ "app": "other" }),
        json!([]),
        json!("title"),
        json!(null),
    ] {
        let refused = patch(&served, "/api/sessions/s", &body.to_string()).await;
        assert_eq!(refused.status(), 400, "{body}");
        assert_eq!(json(refused).await["error"]["type"], "invalid_request_error", "{body}");
    }
    assert_eq!(session(&served, "s").await["title"], "Kept");
    for body in [
        json!({ "id": "a/b" }),
        json!({ "id": "a\nb" }),
        json!({ "id": "x".repeat(300) }),
        json!({ "id": 5 }),
        json!({ "title": "x".repeat(201) }),
        json!({ "model": "x".repeat(201) }),
        json!({ "system_prompt": "x".repeat(65 * 1024) }),
        json!({ "system_prompt": false }),
    ] {
        assert_eq!(served.post("/api/sessions", &body).await.status(), 400, "{body}");
    }
    for body in [
        json!({}),
        json!({ "message": "" }),
        json!({ "message": 5 }),
        json!({ "message": [{ "type": "input_audio" }] }),
        json!({ "message": "hi", "system_message": 5 }),
    ] {
        assert_eq!(served.post("/api/sessions/s/chat", &body).await.status(), 400, "{body}");
        assert_eq!(served.post("/api/sessions/s/chat/stream", &body).await.status(), 400, "{body}");
    }
    for query in ["limit=-1", "limit=ten", "offset=1.5"] {
        let refused = served.get(&format!("/api/sessions?{query}")).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(json(refused).await["error"]["param"], query.split('=').next().unwrap());
    }
    assert_eq!(json(served.get("/api/sessions").await).await["data"].as_array().unwrap().len(), 1);
    assert!(served.gateway.agent_itself().heard().is_empty());
}

#[tokio::test]
async fn an_app_has_its_own_sessions_and_knows_of_no_others() {
    let served = Served::start().await;
    let room = served.gateway.room();
    served.agent().says(["to the room"]);
    room.says("@ann", "in the room").await;
    room.shows("to the room").await;
    let (forge, phone) = (served.app("forge").await, served.app("phone").await);
    for key in [&forge, &phone, KEY] {
        let request = served.bare(Method::POST, "/api/sessions").bearer_auth(key);
        let made = request.body(json!({ "id": "same", "title": key }).to_string()).send().await.unwrap();
        assert_eq!(made.status(), 201, "the same name is everybody's own");
        let request = served.bare(Method::POST, "/api/sessions/same/chat").bearer_auth(key);
        let answer = request.body(json!({ "message": "whose?" }).to_string()).send().await.unwrap();
        assert_eq!(answer.headers()["x-hermes-session-id"], "same");
    }
    let upstream: BTreeSet<_> =
        served.gateway.agent_itself().heard().into_iter().map(|heard| heard.session).collect();
    assert_eq!(upstream.len(), 4, "{upstream:?}");
    for (key, sources) in [(forge.as_str(), 1), (phone.as_str(), 1), (KEY, 2)] {
        let listed = served.bare(Method::GET, "/api/sessions").bearer_auth(key).send().await.unwrap();
        let listed = json(listed).await;
        let data = listed["data"].as_array().unwrap();
        assert_eq!(data.len(), sources, "{listed}");
        assert!(data.iter().any(|session| session["id"] == "same" && session["title"] == key), "{listed}");
        let fork = served.bare(Method::POST, "/api/sessions/same/fork").bearer_auth(key);
        let fork = json(fork.send().await.unwrap()).await;
        assert_eq!(fork["session"]["parent_session_id"], "same", "{fork}");
    }
    let rooms = json(served.get("/api/sessions").await).await["data"].as_array().unwrap().clone();
    let id =
        rooms.iter().find(|session| session["source"] == "test").unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{id}");
    assert_eq!(served.get(&path).await.status(), 200);
    assert_eq!(served.bare(Method::GET, &path).bearer_auth(&forge).send().await.unwrap().status(), 404);
    for path in ["/api/sessions/forge%2Fsame", "/api/sessions/forge%2fsame/messages"] {
        assert_eq!(served.get(path).await.status(), 404, "not even the owner's: {path}");
    }
}
