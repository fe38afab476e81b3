//! The end of the process, as apps see it.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use talaria::ids::{SessionId, TurnId};
use talaria::store::NewSession;

use crate::support::binary::Talaria;
use crate::support::gateway::Setup;
use crate::support::raw::Raw;
use crate::support::served::{KEY, Served, json, settings};
use crate::support::stream::{Stream, text_of};
use crate::support::upstream::{Answer, Upstream, delta};

const CHAT: &str = "/v1/chat/completions";

fn asks(text: &str, stream: bool) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "stream": stream })
}

#[tokio::test]
async fn nothing_new_is_taken_at_the_end() {
    let served = Served::start().await;
    served.gateway.server().draining.cancel();
    for (path, body) in
        [(CHAT, asks("hi", true)), (CHAT, asks("hi", false)), ("/v1/runs", json!({ "input": "x" }))]
    {
        let answer = served.post(path, &body).await;
        assert_eq!(answer.status(), 503);
        assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(json(answer).await["error"]["code"], "gateway_draining");
    }
    assert!(served.gateway.agent_itself().heard().is_empty());
}

/// A run that has begun can be found again only by its id.
#[tokio::test]
async fn whoever_waits_at_the_end_is_told_what_has_begun() {
    let mut served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
    let session = NewSession::new(&SessionId("s".to_owned()), "");
    served.gateway.store().write(move |tx| tx.create_session(&session)).await.unwrap();
    let mut waiting = Vec::new();
    for (path, body) in [
        (CHAT, asks("one", false)),
        ("/v1/responses", json!({ "input": "two" })),
        ("/api/sessions/s/chat", json!({ "message": "three" })),
    ] {
        let script = served.agent().then_hangs();
        let request = served.request(Method::POST, path).body(body.to_string());
        waiting.push((path, tokio::spawn(request.send())));
        script.is_hanging().await;
    }
    served.restart().await;
    for (path, answer) in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-should-retry"]),
            (503, &"false".parse().unwrap())
        );
        let named = |name| answer.headers().get(name).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let run = named("x-hermes-run-id").unwrap_or_else(|| panic!("{path} names no run"));
        let seen = json(served.get(&format!("/v1/runs/{run}")).await).await;
        assert_eq!(seen["session_id"].as_str(), named("x-hermes-session-id").as_deref(), "{path}");
    }
}

#[tokio::test]
async fn whoever_waits_at_the_end_is_told_to_come_back() {
    let mut served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
    let script = served.agent().says(["Half"]).then_hangs();
    let ask = |key: &'static str, text: &'static str, stream: bool| {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "s");
        let request = request.header("idempotency-key", key).body(asks(text, stream).to_string());
        async move { request.send().await.unwrap() }
    };
    let mut running = Stream::of(ask("a", "one", true).await);
    script.is_hanging().await;
    let mut waiting = Stream::of(ask("b", "two", true).await);
    waiting.next().await;
    let whole = tokio::spawn(ask("c", "three", false));
    served.has_turns("", 3).await;
    served.agent().when("one").says(["Half a minute"]);
    served.agent().when("two").says(["second"]);
    served.agent().when("three").says(["third"]);
    let fourth = served.agent().when("four").then_hangs();
    let unkeyed = served.request(Method::POST, CHAT).body(asks("four", false).to_string());
    let unkeyed = tokio::spawn(unkeyed.send());
    fourth.is_hanging().await;
    served.restart().await;
    // The client must not repeat it by itself: it may have run, and there is no key to find it by.
    let unkeyed = unkeyed.await.unwrap().unwrap();
    assert_eq!(
        (unkeyed.status().as_u16(), &unkeyed.headers()["x-should-retry"]),
        (503, &"false".parse().unwrap())
    );
    assert!(unkeyed.headers().contains_key("x-hermes-run-id"));
    // Neither stream is ended, and neither looks as if it were.
    assert_eq!(text_of(&running.until_cut().await), "Half");
    assert_eq!(waiting.until_cut().await, []);
    let whole = whole.await.unwrap();
    assert_eq!(whole.status(), 503);
    assert_eq!(whole.headers().get("x-should-retry"), None);
    assert_eq!(json(whole).await["error"]["code"], "gateway_draining");
    // A client that comes back finds it.
    let again = |key: &str, text: &str| {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "s");
        request.header("idempotency-key", key).body(asks(text, true).to_string()).send()
    };
    assert_eq!(text_of(&Stream::of(again("a", "one").await.unwrap()).rest().await), "Half a minute");
    assert_eq!(text_of(&Stream::of(again("b", "two").await.unwrap()).rest().await), "second");
}

#[tokio::test]
async fn without_a_key_nobody_could_come_back_so_it_is_not_gone_on_with() {
    let mut served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
    let script = served.agent().says(["Half"]).then_hangs();
    let answer = served.post(CHAT, &asks("hi", true)).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut stream = Stream::of(answer);
    stream.until_text("Half").await;
    script.is_hanging().await;
    served.agent().then_hangs();
    served.restart().await;
    stream.until_cut().await;
    // Its session may be idle before the turn has ended: a turn that is stopped while it waits ends outside the
    // queue.
    if let Some(log) = served.gateway.server().turns.log_of(&TurnId(run.clone())) {
        log.ended().await;
    }
    let shown = json(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(shown["status"], "cancelled");
}

#[tokio::test]
async fn a_signal_leaves_a_run_with_a_key_to_the_next_process() {
    let upstream = Upstream::idempotent().await;
    upstream.answers(Answer::stream().sends(delta("Hel")).hangs());
    let mut talaria = Talaria::to(&upstream).args(["serve"]);
    talaria.sets("API_SERVER_KEY", Some("a key of the owner, long enough"));
    talaria.sets("API_SERVER_PORT", Some("0"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = |address: String| {
        let request = client.post(format!("{address}{CHAT}")).header("idempotency-key", "k");
        let request = request.bearer_auth("a key of the owner, long enough");
        request.body(asks("hi", true).to_string()).send()
    };
    let mut process = talaria.starts();
    let mut stream = Stream::of(ask(process.serves().await).await.unwrap());
    stream.until_text("Hel").await;
    process.signal(Signal::TERM);
    stream.until_cut().await;
    let ended = process.ended().await;
    assert_eq!(ended.code, 0, "{}", ended.err);
    upstream.answers(Answer::says(["Hel", "lo"]));
    let mut process = talaria.starts();
    let answer = ask(process.serves().await).await.unwrap();
    assert_eq!(text_of(&Stream::of(answer).rest().await), "Hello");
    let prompts = upstream.prompts();
    assert_eq!(prompts.len(), 2);
    assert_eq!(prompts[0].body, prompts[1].body);
    assert_eq!(prompts[0].header("idempotency-key"), prompts[1].header("idempotency-key"));
    process.signal(Signal::TERM);
    assert_eq!(process.ended().await.code, 0);
}

/// A connection is no request: at the end nobody waits for a client that has sent half of one.
#[tokio::test]
async fn a_stop_does_not_wait_for_half_a_request() {
    const OWNER: &str = "a key of the owner, long enough";
    let mut talaria = Talaria::new().args(["serve"]);
    talaria.sets("API_SERVER_KEY", Some(OWNER));
    talaria.sets("API_SERVER_PORT", Some("0"));
    let mut process = talaria.starts();
    let address = process.serves().await.strip_prefix("http://").unwrap().parse().unwrap();
    let mut head = Raw::to(address).await;
    head.sends("GET /health HTTP/1.1\r\nhost: local").await;
    let mut body = Raw::to(address).await;
    body.sends(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OWNER}\r\ncontent-length: 100\r\n\
         expect: 100-continue\r\n\r\n"
    ))
    .await;
    assert_eq!(body.answer().await.unwrap().status, 100, "it is read");
    body.sends("{\"messages\"").await;
    process.signal(Signal::TERM);
    let told = body.answer().await.unwrap();
    assert_eq!(told.status, 503);
    assert!(told.body.contains("gateway_draining"), "{}", told.body);
    let ended = process.ended().await;
    assert!(!ended.err.contains("not everything ended in time"), "{}", ended.err);
    assert!(head.is_closed().await);
}

/// A response is not over when the socket's buffer is full.
#[tokio::test]
async fn a_stop_waits_for_whoever_takes_a_long_answer_slowly() {
    let mut served = Served::start().await;
    served.agent().says(["x".repeat(1 << 20).as_str(); 12]);
    let mut slow = Raw::to(served.address).await;
    let body = asks("hi", false).to_string();
    slow.sends(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    slow.is_answered().await;
    let mut head = Raw::to(served.address).await;
    head.sends("GET /health HTTP/1.1\r\nhost: local").await;
    let reading = async {
        assert!(head.is_closed().await, "whoever is answered nothing has had his time");
        slow.answer().await.expect("the rest of the answer")
    };
    let ((), answer) = tokio::join!(served.restart(), reading);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["choices"][0]["message"]["content"].as_str().unwrap().len(), 12 << 20);
}
