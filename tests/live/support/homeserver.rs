//! A Synapse, and what can be asked of it without any encryption.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::lines::Lines;
use super::{PATIENCE, fresh};
use crate::parts;

/// Where `tests/run` says which Synapse all tests share.
const SHARED: &str = "TALARIA_LIVE_SYNAPSE";

/// A homeserver.
pub struct Homeserver {
    pub url: String,
    /// The token of an application service that may say when an event was made.
    pub service: String,
    /// Where its database is.
    folder: String,
    http: reqwest::Client,
    /// The process, if it is ours, and the folder it goes with.
    own: Option<(Lines, tempfile::TempDir)>,
}

/// Somebody's account.
#[derive(Clone)]
pub struct Account {
    /// The full id.
    pub id: String,
    pub password: String,
}

/// How much a homeserver allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// Everything.
    Wide,
    /// As many messages as Synapse does where nobody has changed it.
    Default,
    /// Everything, for three seconds: then a token has to be renewed, if its owner can do that.
    ShortTokens,
}

impl Homeserver {
    /// The one that tests share. Without `tests/run` it is one for this process.
    pub async fn shared() -> Arc<Self> {
        static OURS: Mutex<Weak<Homeserver>> = Mutex::const_new(Weak::new());
        if let Ok(address) = std::env::var(SHARED) {
            return Arc::new(Self::at(&serde_json::from_str(&address).expect(SHARED), None));
        }
        let mut ours = OURS.lock().await;
        if let Some(running) = ours.upgrade() {
            return running;
        }
        let started = Arc::new(Self::own(Limits::Wide).await);
        *ours = Arc::downgrade(&started);
        started
    }

    /// One that only this test uses.
    pub async fn own(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = parts::synapse();
        command.arg(folder.path());
        match limits {
            Limits::Wide => {}
            Limits::Default => drop(command.arg("--default-limits")),
            Limits::ShortTokens => drop(command.arg("--short-tokens")),
        }
        let process = Lines::start("synapse", &mut command);
        let address = process.until("its address", |lines| lines.first().cloned()).await;
        Self::at(&address, Some((process, folder)))
    }

    fn at(address: &Value, own: Option<(Lines, tempfile::TempDir)>) -> Self {
        let text = |name: &str| address[name].as_str().expect(name).to_owned();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { url: text("url"), service: text("service"), folder: text("folder"), http, own }
    }

    /// Crashes.
    pub async fn dies(&self) {
        self.does("kill").await;
    }

    /// Comes back.
    pub async fn starts(&self) {
        self.does("start").await;
    }

    async fn does(&self, command: &str) {
        let (process, _) = self.own.as_ref().expect("a homeserver of our own");
        let before = process.said().lines.len();
        process.say(command);
        process.until(command, |lines| lines.get(before).cloned()).await;
    }

    /// What it has stored. It may be running.
    pub fn stored(&self) -> rusqlite::Connection {
        let path = format!("{}/homeserver.db", self.folder);
        rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// Makes an event as old as this, where it is stored. It must not be running.
    pub fn ages(&self, event: &str, by: Duration) {
        let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - by;
        let older =
            "UPDATE event_json SET json = json_set(json, '$.unsigned.age_ts', ?2) WHERE event_id = ?1";
        let stored = rusqlite::Connection::open(format!("{}/homeserver.db", self.folder)).unwrap();
        let taken = i64::try_from(taken.as_millis()).unwrap();
        assert_eq!(stored.execute(older, rusqlite::params![event, taken]).unwrap(), 1, "{event}");
    }

    /// Every request of somebody's that was one too many, as it is in the log of a homeserver with limits.
    pub fn refused(&self, who: &str) -> Vec<String> {
        let log = std::fs::read_to_string(format!("{}/synapse.log", self.folder)).unwrap();
        let is_one = |line: &&str| line.contains(who) && line.contains(" 429 ");
        log.lines().filter(is_one).map(str::to_owned).collect()
    }

    /// Somebody new.
    pub async fn registers(&self, name: &str) -> Account {
        let (name, password) = (fresh(name), fresh("secret"));
        let body = json!({
            "username": name, "password": password, "inhibit_login": true, "auth": { "type": "m.login.dummy" },
        });
        let answer = self.asks("", Method::POST, "/v3/register", body).await;
        Account { id: answer["user_id"].as_str().unwrap().to_owned(), password }
    }

    /// A new session for somebody, beside all others: its access token.
    pub async fn logs_in(&self, account: &Account) -> String {
        let body = json!({
            "type": "m.login.password",
            "identifier": { "type": "m.id.user", "user": account.id },
            "password": account.password,
        });
        let answer = self.asks("", Method::POST, "/v3/login", body).await;
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// Asks something that must be answered.
    pub async fn asks(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.tries(token, method, path, body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Asks something that may be refused: the status and the answer.
    pub async fn tries(&self, token: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mut request = self.http.request(method.clone(), format!("{}/_matrix/client{path}", self.url));
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if method != Method::GET {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    /// Puts a file there: its address.
    pub async fn takes_file(&self, token: &str, bytes: Vec<u8>, mime: &str) -> String {
        let request = self
            .http
            .post(format!("{}/_matrix/media/v3/upload", self.url))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", mime.to_owned())
            .body(bytes);
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["content_uri"].as_str().unwrap().to_owned()
    }

    /// Gets a file from there.
    pub async fn gives_file(&self, token: &str, address: &str) -> Vec<u8> {
        let path = address.strip_prefix("mxc://").expect("an address of the homeserver");
        let request = self
            .http
            .get(format!("{}/_matrix/client/v1/media/download/{path}", self.url))
            .header("authorization", format!("Bearer {token}"));
        request.send().await.unwrap().bytes().await.unwrap().to_vec()
    }
}
