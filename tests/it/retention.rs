//! How long the real binary keeps unused data, as an app sees it over HTTP.

use std::fs::File;

use reqwest::{Client, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Process, Talaria};
use crate::support::upstream::Upstream;

const KEY: &str = "a-key-of-the-owner-that-is-long-enough";

/// An agent server that is restarted again and again, each time some days later.
struct Server {
    talaria: Talaria,
    client: Client,
    running: Option<(Process, String)>,
}

impl Server {
    async fn start(model: &Upstream, config: &str) -> Self {
        let talaria = Talaria::new()
            .config(config)
            .args(["serve"])
            .var("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
            .var("OPENAI_MODEL", "scripted")
            .var("API_SERVER_PORT", "0")
            .var("API_SERVER_KEY", KEY);
        let mut server =
            Self { talaria, client: Client::builder().no_proxy().build().unwrap(), running: None };
        server.starts().await;
        server
    }

    async fn starts(&mut self) {
        let mut process = self.talaria.starts_with(File::open("/dev/null").unwrap());
        let address = process.serves().await;
        self.running = Some((process, address));
    }

    /// Stops the server, and starts it again so many days later. The clock stays; the stored times are moved back.
    async fn is_away_for(&mut self, days: u32) {
        let (process, _) = self.running.take().unwrap();
        process.signal(Signal::TERM);
        process.ended().await;
        let older = "UPDATE sessions SET used = used - ?1 * 86400, expires = expires - ?1 * 86400";
        self.talaria.stored().execute(older, [days]).unwrap();
        self.starts().await;
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.as_ref().unwrap().1)
    }

    async fn post(&self, path: &str, body: &Value, session: Option<&str>) -> Value {
        let mut request = self.client.post(self.url(path)).bearer_auth(KEY).body(body.to_string());
        if let Some(session) = session {
            request = request.header("x-hermes-session-id", session);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    async fn is_there(&self, path: &str) -> bool {
        let answer = self.client.get(self.url(path)).bearer_auth(KEY).send().await.unwrap();
        match answer.status() {
            StatusCode::OK => true,
            StatusCode::NOT_FOUND => false,
            status => panic!("{path}: {status}"),
        }
    }

    /// Makes a named session and a response; returns their addresses.
    async fn asked(&self, name: &str) -> (String, String) {
        let messages = json!([{ "role": "user", "content": "hi" }]);
        self.post("/v1/chat/completions", &json!({ "messages": messages }), Some(name)).await;
        let response = self.post("/v1/responses", &json!({ "input": "hi" }), None).await;
        (format!("/api/sessions/{name}"), format!("/v1/responses/{}", response["id"].as_str().unwrap()))
    }
}

#[tokio::test]
async fn sessions_and_responses_are_kept_for_as_long_as_the_settings_say() {
    let model = Upstream::plain().await;
    let mut server = Server::start(&model, "store: {keep: 20d, keep_responses: 10d}\n").await;
    let (session, response) = server.asked("plan").await;
    for (days, session_stays, response_stays) in
        [(9, true, true), (2, true, false), (8, true, false), (2, false, false)]
    {
        server.is_away_for(days).await;
        let there = (server.is_there(&session).await, server.is_there(&response).await);
        assert_eq!(there, (session_stays, response_stays), "after another {days} days");
    }
}

/// An app that continues a conversation keeps it.
#[tokio::test]
async fn what_is_used_is_kept_anew() {
    let model = Upstream::plain().await;
    let mut server = Server::start(&model, "store: {keep: 20d, keep_responses: forever}\n").await;
    let (session, response) = server.asked("plan").await;
    for _ in 0..3 {
        server.is_away_for(15).await;
        server.asked("plan").await;
    }
    assert!(server.is_there(&session).await && server.is_there(&response).await);
}

#[tokio::test]
async fn by_default_sessions_stay_and_responses_go_after_thirty_days() {
    let model = Upstream::plain().await;
    let mut server = Server::start(&model, "").await;
    let (session, response) = server.asked("plan").await;
    server.is_away_for(29).await;
    assert!(server.is_there(&session).await && server.is_there(&response).await);
    server.is_away_for(2).await;
    assert!(server.is_there(&session).await && !server.is_there(&response).await);
    server.is_away_for(3650).await;
    assert!(server.is_there(&session).await);
}
