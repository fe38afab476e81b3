//! Readers of a run, and what happens when nobody reads.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::paused::Scene;
use crate::support::gateway::Setup;
use crate::support::relay::proxy;
use crate::support::served::{KEY, Served, json, settings};
use crate::support::stream::{Event, Stream, text_of};
use crate::support::upstream::{Answer, DONE, Gate, Upstream, delta, finish};

const CHAT: &str = "/v1/chat/completions";

fn asks(stream: bool) -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": stream })
}

/// Asks over a bare socket.
async fn ask_bare(served: &Served, stream: bool) -> TcpStream {
    let body = asks(stream).to_string();
    let mut socket = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body.as_str()).as_bytes()).await.unwrap();
    socket
}

async fn read_until(socket: &mut TcpStream, wanted: &str) {
    let mut seen = Vec::new();
    while memchr::memmem::find(&seen, wanted.as_bytes()).is_none() {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
    }
}

#[tokio::test]
async fn several_readers_get_the_same() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let first = served.post(CHAT, &asks(true)).await;
    let run = first.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut readers = Vec::new();
    for _ in 0..5 {
        readers.push(Stream::of(served.get(&format!("/v1/runs/{run}/events")).await));
    }
    let mut heads = Vec::new();
    for reader in &mut readers {
        heads.push(reader.next().await.timeless());
    }
    script.is_hanging().await;
    script.goes_on();
    let mut all: Vec<Vec<Event>> = Vec::new();
    for (reader, head) in readers.iter_mut().zip(heads) {
        let rest = reader.rest().await;
        all.push([head].into_iter().chain(rest.iter().map(Event::timeless)).collect());
    }
    assert_eq!(text_of(&all[0]), "Hello");
    assert!(all.iter().all(|one| *one == all[0]), "{all:#?}");
    assert_eq!(text_of(&Stream::of(first).rest().await), "Hello");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_any_more_ends_its_run_at_once() {
    let served = Served::start().await;
    let turns = served.gateway.server().turns.clone();
    for half in [false, true] {
        let script = served.agent().says(["Hel"]).then_hangs();
        let mut socket = ask_bare(&served, true).await;
        read_until(&mut socket, "Hel").await;
        script.is_hanging().await;
        if half {
            // A client that closes only its sending side counts as gone too: it can send nothing more.
            socket.shutdown().await.unwrap();
            turns.idle().await;
        } else {
            drop(socket);
            turns.idle().await;
        }
        assert!(script.was_told_to_stop(), "half closed: {half}");
    }
    assert_eq!(turns.open_logs(), 0);
}

#[tokio::test]
async fn whoever_leaves_before_the_answer_begins_leaves_nothing_behind() {
    let served = Served::start().await;
    let turns = served.gateway.server().turns.clone();
    for stream in [false, true] {
        let script = served.agent().then_hangs();
        let socket = ask_bare(&served, stream).await;
        script.is_hanging().await;
        drop(socket);
        turns.idle().await;
        assert!(script.was_told_to_stop(), "stream: {stream}");
    }
}

/// A reader that has seen the end before, and comes back to learn that it was the end. It reads nothing meanwhile.
#[tokio::test]
async fn a_reader_of_the_end_alone_does_not_hold_up_the_turn() {
    let (upstream, gate) = (Upstream::plain().await, Gate::new());
    // More than any socket and any log holds for a reader that reads nothing.
    let much = delta(&"word ".repeat(13_000));
    let answer = Answer::stream().sends(delta("Hello")).waits(&gate).repeats(&much, 20);
    upstream.answers(answer.sends(finish("stop") + DONE).ends());
    let setup = Setup { agent: Some(proxy(&upstream.url(), None, "")), ..Setup::default() };
    let served = Served::with(setup, settings()).await;
    let request = || {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        request.body(asks(true).to_string())
    };
    let mut first = Stream::of(request().send().await.unwrap());
    while first.next().await.text().is_none() {}
    let mut end = Stream::of(request().header("last-event-id", "end").send().await.unwrap());
    drop(first);
    gate.open();
    let last = tokio::time::timeout(Duration::from_secs(30), end.rest()).await.expect("the end comes");
    assert_eq!(last.last().map(Event::kind).as_deref(), Some("done"));
}

#[tokio::test]
async fn one_reader_is_enough() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let first = served.post(CHAT, &asks(true)).await;
    let run = first.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut second = Stream::of(served.get(&format!("/v1/runs/{run}/events")).await);
    second.until_text("Hel").await;
    script.is_hanging().await;
    drop(first);
    // Polling the run makes nobody a reader, and ends nothing.
    for _ in 0..3 {
        assert_eq!(json(served.get(&format!("/v1/runs/{run}")).await).await["status"], "running");
    }
    script.goes_on();
    assert_eq!(text_of(&second.rest().await), "lo");
    assert!(!script.was_told_to_stop());
}

#[tokio::test]
async fn whoever_waits_in_line_and_leaves_gives_up_the_place() {
    let served = Served::start().await;
    let turns = served.gateway.server().turns.clone();
    let script = served.agent().then_hangs();
    let ask = || {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "s");
        request.body(asks(true).to_string()).send()
    };
    let first = ask().await.unwrap();
    script.is_hanging().await;
    for _ in 0..20 {
        // More than may wait: each has left before the next comes.
        let answer = ask().await.unwrap();
        assert_eq!(answer.status(), 200);
        drop(answer);
        served.has_turns("", 1).await;
    }
    script.goes_on();
    Stream::of(first).rest().await;
    turns.idle().await;
    assert_eq!(served.gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_a_key_a_run_waits_two_minutes_for_its_reader() {
    let scene = Scene::start().await;
    let script = scene.gateway.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let ask = || async {
        let answer = scene.post(CHAT, &[("idempotency-key", "k")], &asks(true)).await;
        Stream::of(answer.into_body().into_data_stream())
    };
    let mut stream = ask().await;
    stream.until_text("Hel").await;
    for _ in 0..3 {
        drop(stream);
        sleep(Duration::from_secs(119)).await;
        // The reader is back in time.
        stream = ask().await;
        stream.until_text("Hel").await;
        sleep(Duration::from_secs(300)).await;
    }
    assert!(!script.was_told_to_stop());
    drop(stream);
    sleep(Duration::from_secs(119)).await;
    assert!(!script.was_told_to_stop());
    sleep(Duration::from_secs(2)).await;
    scene.gateway.server().turns.idle().await;
    assert!(script.was_told_to_stop());
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_back_at_the_last_moment_keeps_the_run() {
    let scene = Scene::start().await;
    let script = scene.gateway.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let answer = scene.post(CHAT, &[("idempotency-key", "k")], &asks(true)).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    stream.until_text("Hel").await;
    drop(stream);
    sleep(Duration::from_secs(119)).await;
    // The two minutes are over, and nothing is decided yet: the decision waits for the store.
    let busy = scene.gateway.store_is_busy().await;
    tokio::time::advance(Duration::from_secs(2)).await;
    busy.holds_everybody_up().await;
    let answer = scene.get(&format!("/v1/runs/{run}/events")).await;
    assert_eq!(answer.status(), 200);
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    stream.until_text("Hel").await;
    busy.goes_on().await;
    sleep(Duration::from_secs(300)).await;
    assert!(!script.was_told_to_stop());
    script.goes_on();
    assert_eq!(text_of(&stream.rest().await), "lo");
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_a_moment_too_late_is_not_given_what_is_being_stopped() {
    let scene = Scene::start().await;
    // A stop takes this agent four seconds.
    let script = scene.gateway.agent().says(["Hel"]).then_ignores_everything();
    let body = asks(true);
    let ask = || scene.post(CHAT, &[("idempotency-key", "k")], &body);
    let answer = ask().await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let events = format!("/v1/runs/{run}/events");
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    stream.until_text("Hel").await;
    drop(stream);
    sleep(Duration::from_secs(122)).await;
    for refused in [ask().await, scene.get(&events).await] {
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (409, &"1".parse().unwrap())
        );
        assert_eq!(refused.headers()["x-hermes-run-id"], run);
        let body = axum::body::to_bytes(refused.into_body(), 10_000).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["error"]["code"], "run_stopping");
    }
    // The run can still be polled, and finally has its real state.
    assert_eq!(scene.get(&format!("/v1/runs/{run}")).await.status(), 200);
    scene.gateway.server().turns.idle().await;
    let mut stream = Stream::of(ask().await.into_body().into_data_stream());
    let rest = stream.rest().await;
    assert_eq!(
        (text_of(&rest).as_str(), &rest[rest.len() - 2].json()["hermes"]["status"]),
        ("Hel", &json!("cancelled"))
    );
    drop(script);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_started_to_be_looked_after_later_goes_on_unread() {
    let scene = Scene::start().await;
    let script = scene.gateway.agent().then_hangs().says(["done"]);
    let answer = scene.post("/v1/runs", &[], &json!({ "input": "hi" })).await;
    assert_eq!(answer.status(), 202);
    script.is_hanging().await;
    sleep(Duration::from_secs(24 * 60 * 60)).await;
    assert!(!script.was_told_to_stop());
    script.goes_on();
    scene.gateway.server().turns.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_turn_that_its_room_has_not_come_to_says_that_it_lives() {
    let scene = Scene::start().await;
    let script = scene.gateway.agent().then_hangs();
    scene.gateway.room().says("@ann", "one").await;
    script.is_hanging().await;
    scene.gateway.room().says("@ann", "two").await;
    let open = scene.gateway.store().read(|tx| tx.all_open_turns()).await.unwrap();
    let answer = scene.get(&format!("/v1/runs/{}/events", open[1].1)).await;
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    let going_on = async {
        sleep(Duration::from_secs(50)).await;
        script.goes_on();
    };
    let (_, rest) = tokio::join!(going_on, stream.rest());
    assert_eq!(text_of(&rest), "ok");
    assert_eq!(stream.comments.iter().filter(|comment| *comment == "keepalive").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_lives() {
    let scene = Scene::start().await;
    let script = scene.gateway.agent().then_hangs().says(["x"]);
    let answer = scene.post(CHAT, &[], &asks(true)).await;
    let mut stream = Stream::of(answer.into_body().into_data_stream());
    stream.next().await;
    let going_on = async {
        script.is_hanging().await;
        sleep(Duration::from_secs(50)).await;
        script.goes_on();
    };
    let (_, text) = tokio::join!(going_on, stream.until_text("x"));
    assert_eq!(text, "x");
    // Every fifteen seconds, and not before.
    assert_eq!(stream.comments, ["keepalive"; 3]);
}
