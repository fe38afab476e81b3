//! The agent server on a real socket, with a scripted agent behind it and a room beside it.
//!
//! For `#[tokio::test]` on the real clock: sockets do not see the paused one. Wait for events, never for time.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use talaria::server::{ForgeSettings, ServerSettings};
use talaria::store::{AuditFilter, AuditRow};

use super::gateway::{Setup, TestGateway};
use super::scripted::Script;

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The owner's key.
pub const KEY: &str = "a key of the owner, long enough";

/// A running server.
pub struct Served {
    pub gateway: TestGateway,
    pub address: SocketAddr,
    settings: ServerSettings,
    client: Client,
}

/// Default settings of a server.
pub fn settings() -> ServerSettings {
    ServerSettings {
        key: Some(KEY.to_owned().into()),
        hosts: Vec::new(),
        origins: Vec::new(),
        model: "talaria".to_owned(),
        runs: (2000, 200),
        forge: ForgeSettings::default(),
    }
}

impl Served {
    pub async fn start() -> Self {
        Self::with(Setup::default(), settings()).await
    }

    pub async fn with(setup: Setup, settings: ServerSettings) -> Self {
        Self::of(TestGateway::with(setup).await, settings).await
    }

    /// Serves HTTP for a gateway that runs already.
    pub async fn of(mut gateway: TestGateway, settings: ServerSettings) -> Self {
        let address = gateway.serve(settings.clone()).await;
        Self { gateway, address, settings, client: Client::builder().no_proxy().build().unwrap() }
    }

    /// Ends and starts again on the same store.
    pub async fn restart(&mut self) {
        self.gateway.restart().await;
        self.address = self.gateway.serve(self.settings.clone()).await;
    }

    /// Makes a token for an app, in place of its earlier one.
    pub async fn app(&self, name: &str) -> String {
        let asked = json!({ "app": name, "again": true });
        let added = self.gateway.operator().does("/tokens/add", asked).await.unwrap();
        added["token"].as_str().unwrap().to_owned()
    }

    /// Makes a token with which an app may not instruct the agent.
    pub async fn app_without_instructions(&self, name: &str) -> String {
        let asked = json!({ "app": name, "again": true, "instructions": false });
        let added = self.gateway.operator().does("/tokens/add", asked).await.unwrap();
        added["token"].as_str().unwrap().to_owned()
    }

    /// Revokes an app's token.
    pub async fn revoke(&self, app: &str) {
        self.gateway.operator().does("/tokens/revoke", json!({ "app": app })).await.unwrap();
    }

    /// Waits until an app has so many running or waiting turns.
    pub async fn has_turns(&self, app: &str, count: usize) {
        self.until(async || {
            let open = self.gateway.store().read(|tx| tx.open_app_turns()).await.unwrap();
            open.iter().filter(|turn| turn.source.app().is_some_and(|request| request.app == app)).count()
                == count
        })
        .await;
    }

    /// Waits until the audit has so many refused requests; returns them.
    pub async fn turned_away(&self, count: usize) -> Vec<AuditRow> {
        let rows = async || {
            let filter = AuditFilter { allowed: Some(false), ..AuditFilter::default() };
            self.gateway.store().read(move |tx| tx.audited(&filter)).await.unwrap()
        };
        self.until(async || rows().await.len() >= count).await;
        rows().await
    }

    /// Waits for a condition that only the store knows; each check waits for the store's thread.
    pub async fn until(&self, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "it never came to that");
    }

    /// A script for the agent's next run.
    pub fn agent(&self) -> Script {
        self.gateway.agent()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request with the owner's key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(KEY)
    }

    /// A request without any key.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).body(body.to_string()).send().await.unwrap()
    }
}

/// The JSON of a response.
pub async fn json(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}
