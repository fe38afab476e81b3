//! Hostile clients of the agent server, against the real binary: idle connections, large questions, uploads that
//! stop, readers that do not read. In each case memory stays below 150 MB without the
//! code of the program, and everybody else is answered.

use std::net::SocketAddr;

use futures_util::future::join_all;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::binary::{Process, Talaria};
use crate::support::raw::Raw;
use crate::support::upstream::{Answer, DONE, Upstream, delta};

const KEY: &str = "a key of the owner, long enough";
const CHAT: &str = "/v1/chat/completions";

/// Bytes of memory that the server may take besides its code, whatever clients do.
const MOST: usize = 150_000_000;

const MB: usize = 1_000_000;

/// A running server with this upstream.
struct Neighbour {
    talaria: Talaria,
    process: Process,
    address: SocketAddr,
    client: Client,
}

impl Neighbour {
    async fn of(upstream: &Upstream) -> Self {
        Self::start(Talaria::to(upstream)).await
    }

    async fn start(talaria: Talaria) -> Self {
        let talaria = talaria.args(["serve"]).var("API_SERVER_KEY", KEY).var("API_SERVER_PORT", "0");
        let mut process = talaria.starts();
        let address = process.serves().await.strip_prefix("http://").unwrap().parse().unwrap();
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { talaria, process, address, client }
    }

    /// Makes a token for an app.
    async fn app(&self, name: &str) -> String {
        let added = self.talaria.does(["token", "add", name]).await;
        let token = added.out.split_whitespace().find(|word| word.starts_with("tlr_"));
        token.unwrap_or_else(|| panic!("no token in {}{}", added.out, added.err)).to_owned()
    }

    async fn asks(&self, key: &str, content: &str, stream: bool) -> Response {
        let body = json!({ "messages": [{ "role": "user", "content": content }], "stream": stream });
        self.posts(key, &body.to_string()).await
    }

    async fn posts(&self, key: &str, body: &str) -> Response {
        let request = self.client.post(format!("http://{}{CHAT}", self.address)).bearer_auth(key);
        request.body(body.to_owned()).send().await.unwrap()
    }

    /// Asks something harmless with this key; it must be answered.
    async fn answers(&self, key: &str) {
        let response = self.asks(key, "hi", false).await;
        assert_eq!(response.status(), StatusCode::OK, "{}", response.text().await.unwrap());
        let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], "ok");
    }

    /// Begins a question of so many bytes, and does not end it.
    async fn stalls(&self, key: &str, bytes: usize) -> Raw {
        let mut raw = Raw::to(self.address).await;
        raw.sends(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\ncontent-length: {bytes}\r\n\r\n"
        ))
        .await;
        raw.sends(vec![b' '; bytes - 1]).await;
        raw
    }

    /// Makes a request without a body. Reads only the head of the response.
    async fn requests(&self, method: Method, path: &str) -> Response {
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        request.bearer_auth(KEY).send().await.unwrap()
    }

    /// Waits until so many turns have ended well.
    async fn has_ended(&self, turns: usize) {
        let wanted = format!("talaria_turns_total{{surface=\"http\",outcome=\"done\"}} {turns}\n");
        while !self.requests(Method::GET, "/metrics").await.text().await.unwrap().contains(&wanted) {}
    }

    #[track_caller]
    fn stayed_small(&self) {
        let peak = self.process.peak_memory() - self.process.file_memory();
        assert!(peak < MOST, "it had {} MB", peak / MB);
    }
}

#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let upstream = Upstream::plain().await;
    // A limit of 400 open files allows 72 connections.
    let server = Neighbour::start(Talaria::to(&upstream).open_files(400)).await;
    let mut idle = Vec::new();
    for number in 0..150 {
        let mut raw = Raw::to(server.address).await;
        match number % 3 {
            // Some send nothing, or stop in the middle.
            0 => {}
            1 => _ = raw.sends("GET /health HTTP/1.1\r\nhost: local").await,
            _ => {
                raw.sends("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
                let answer = raw.answer().await.map(|answer| answer.status);
                assert_eq!(answer, Some(200), "connection {number}");
            }
        }
        idle.push(raw);
    }
    for _ in 0..10 {
        server.answers(KEY).await;
    }
    assert!(server.process.open_files() < 400, "{}", server.process.open_files());
}

#[tokio::test]
async fn a_large_question_takes_little_and_gives_it_back() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    server.answers(KEY).await;
    let before = server.process.memory();
    let question = "x".repeat(9_900_000);
    assert_eq!(server.asks(KEY, &question, false).await.status(), StatusCode::OK);
    server.answers(KEY).await;
    let (grown, stayed) = (server.process.peak_memory() - before, server.process.memory() - before);
    assert!(grown < 100 * MB && stayed < 30 * MB, "{} MB, of which {} MB stayed", grown / MB, stayed / MB);
}

/// While the questions wait for their answers, none of them is held in memory.
#[tokio::test]
async fn many_large_questions_at_once_are_answered_or_told_to_come_back() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let app = server.app("greedy").await;
    for _ in 0..40 {
        upstream.answers(Answer::stream().sends(delta("ok")).hangs());
    }
    let question = "x".repeat(9_900_000);
    let asked = (0..40).map(|_| server.asks(&app, &question, true));
    let answers = join_all(asked).await;
    let refused = answers.iter().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.clone().all(|answer| answer.headers().contains_key("retry-after")));
    let refused = refused.count();
    let taken = answers.iter().filter(|answer| answer.status() == StatusCode::OK).count();
    assert!(taken >= 2 && taken + refused == 40, "{taken} were taken and {refused} refused");
    server.stayed_small();
}

/// A client chooses the size of a system message and an output format, too.
#[tokio::test]
async fn a_large_system_message_counts_like_a_large_question() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let app = server.app("greedy").await;
    for _ in 0..40 {
        upstream.answers(Answer::stream().sends(delta("ok")).hangs());
    }
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let messages = [said("system", &"x".repeat(9_900_000)), said("user", "hi")];
    let body = json!({ "messages": messages, "stream": true }).to_string();
    let answers = join_all((0..40).map(|_| server.posts(&app, &body))).await;
    let taken = answers.iter().filter(|answer| answer.status() == StatusCode::OK).count();
    assert!(taken >= 2, "{taken} were taken");
    server.stayed_small();
}

/// A question that waits for the agent is on disk, and is loaded for each attempt.
#[tokio::test]
async fn large_questions_that_wait_for_the_agent_keep_nobody_from_asking() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let (one, other) = (server.app("one").await, server.app("other").await);
    let address = upstream.dies().await;
    let question = "x".repeat(9_900_000);
    let mut waiting = Vec::new();
    // Each app has room for one of them at a time, and both together use up the room of all apps.
    for key in [&one, &other, &one, &other, &one] {
        let mut asked = server.asks(key, &question, true).await;
        assert_eq!(asked.status(), StatusCode::OK);
        let mut told = String::new();
        while !told.contains(": waiting") {
            told += str::from_utf8(&asked.chunk().await.unwrap().unwrap()).unwrap();
        }
        waiting.push(asked);
    }
    let _upstream = Upstream::at(address, Answer::unknown()).await;
    for asked in waiting {
        let told = asked.text().await.unwrap();
        assert!(told.contains(r#""content":"ok""#) && told.contains("[DONE]"), "{told}");
    }
    server.stayed_small();
}

#[tokio::test]
async fn an_app_that_stops_in_the_middle_of_its_uploads_holds_up_only_itself() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let (greedy, other) = (server.app("greedy").await, server.app("other").await);
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(server.stalls(&greedy, 1_900_000).await);
    }
    server.answers(&other).await;
    server.answers(KEY).await;
    // Large questions of others are answered too.
    let question = "x".repeat(9_900_000);
    assert_eq!(server.asks(&other, &question, false).await.status(), StatusCode::OK);
    assert_eq!(server.asks(KEY, &question, false).await.status(), StatusCode::OK);
    server.stayed_small();
    // The server refuses uploads that it has no room for.
    let told = stalled.last_mut().unwrap().answer().await.unwrap();
    assert_eq!((told.status, told.header("retry-after")), (429, Some("2")));
}

/// An answer of thirteen megabytes.
fn long_answer() -> Answer {
    Answer::stream().repeats(delta(&"word ".repeat(13_000)), 200).sends(DONE).ends()
}

#[tokio::test]
async fn whole_answers_that_nobody_reads_wait_in_the_store() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let body = json!({ "messages": [{ "role": "user", "content": "much" }] }).to_string();
    let mut unread = Vec::new();
    for _ in 0..8 {
        upstream.answers(long_answer());
        let mut raw = Raw::to(server.address).await;
        raw.sends(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        unread.push(raw);
    }
    server.has_ended(8).await;
    server.answers(KEY).await;
    server.stayed_small();
}

#[tokio::test]
async fn a_long_stored_answer_is_held_for_few_readers_at_once() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    upstream.answers(long_answer());
    let asked = server.client.post(format!("http://{}/v1/responses", server.address)).bearer_auth(KEY);
    let asked = asked.body(json!({ "input": "much" }).to_string()).send().await.unwrap();
    let named = |name: &str| asked.headers()[name].to_str().unwrap().to_owned();
    let (run, session) = (named("x-hermes-run-id"), named("x-hermes-session-id"));
    let answer: Value = serde_json::from_str(&asked.text().await.unwrap()).unwrap();
    let response = answer["id"].as_str().unwrap();
    let mut unread = Vec::new();
    for (method, path) in [
        (Method::GET, format!("/v1/runs/{run}")),
        (Method::GET, format!("/v1/responses/{response}")),
        (Method::POST, format!("/v1/responses/{response}/cancel")),
        (Method::GET, format!("/api/sessions/{session}/messages")),
    ] {
        // A client that reads gets all of it.
        let read = server.requests(method.clone(), &path).await.text().await.unwrap();
        assert!(read.len() > 13_000_000, "{path}: {read}");
        unread.push((method, path));
    }
    let requests = (0..20).flat_map(|_| &unread).map(|(method, path)| server.requests(method.clone(), path));
    let unread = join_all(requests).await;
    let refused = unread.iter().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.clone().all(|answer| answer.headers().contains_key("retry-after")));
    let refused = refused.count();
    let held = unread.iter().filter(|answer| answer.status() == StatusCode::OK).count();
    assert!(held >= 2 && held + refused == 80, "{held} are held and {refused} refused");
    server.answers(KEY).await;
    // A stream needs no room for its end: its reader has the text.
    upstream.answers(Answer::stream().sends(delta(&"word ".repeat(13_000))).sends(DONE).ends());
    let read = server.asks(KEY, "some", true).await.text().await.unwrap();
    assert!(read.len() > 65_000 && read.contains("[DONE]"), "{}", read.len());
    server.stayed_small();
}

#[tokio::test]
async fn readers_that_do_not_read_hold_up_their_own_upstream() {
    let upstream = Upstream::plain().await;
    let server = Neighbour::of(&upstream).await;
    let app = server.app("greedy").await;
    let piece = delta(&"word ".repeat(13_000));
    for _ in 0..30 {
        upstream.answers(Answer::stream().repeats(&piece, 240).sends(DONE).ends());
    }
    let mut unread = Vec::new();
    for _ in 0..30 {
        unread.push(server.asks(&app, "much", true).await);
    }
    upstream.has_prompts(30).await;
    // Meanwhile a client that reads gets all of a long answer, which is more than any socket holds.
    upstream.answers(Answer::stream().repeats(&piece, 100).sends(DONE).ends());
    let read = server.asks(KEY, "much", true).await.text().await.unwrap();
    assert!(read.len() > 6_500_000 && read.contains("[DONE]"), "{}", read.len());
    server.answers(KEY).await;
    server.stayed_small();
    drop(unread);
}
