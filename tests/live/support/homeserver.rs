//! A Synapse, and requests to it that need no encryption.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::lines::Lines;
use super::{PATIENCE, fresh};
use crate::parts;

/// Variable in which `tests/run` names the Synapse that all tests share.
const SHARED: &str = "TALARIA_LIVE_SYNAPSE";

/// A homeserver.
pub struct Homeserver {
    pub url: String,
    /// The token of an application service that may set the time of an event.
    pub service: String,
    /// Folder of its database.
    folder: String,
    http: reqwest::Client,
    /// The process and its folder, if this test started it.
    own: Option<(Lines, tempfile::TempDir)>,
}

/// An account on the homeserver.
#[derive(Clone)]
pub struct Account {
    /// The full user id.
    pub id: String,
    pub password: String,
}

/// Limits of a homeserver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// None that a test could reach.
    Wide,
    /// Synapse's default limit of messages.
    Default,
    /// None, but tokens expire after three seconds: a client that can has to refresh them.
    ShortTokens,
}

impl Homeserver {
    /// The homeserver that tests share. Without `tests/run` it is one for this process.
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

    /// A homeserver that only this test uses.
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

    /// Kills it, as a crash does.
    pub async fn dies(&self) {
        self.does("kill").await;
    }

    /// Starts it again.
    pub async fn starts(&self) {
        self.does("start").await;
    }

    async fn does(&self, command: &str) {
        let (process, _) = self.own.as_ref().expect("a homeserver of our own");
        let before = process.said().lines.len();
        process.say(command);
        process.until(command, |lines| lines.get(before).cloned()).await;
    }

    /// Its database. It may be running.
    pub fn stored(&self) -> rusqlite::Connection {
        let path = format!("{}/homeserver.db", self.folder);
        rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// Makes a stored event older by this. It must not be running.
    pub fn ages(&self, event: &str, by: Duration) {
        let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - by;
        let older =
            "UPDATE event_json SET json = json_set(json, '$.unsigned.age_ts', ?2) WHERE event_id = ?1";
        let stored = rusqlite::Connection::open(format!("{}/homeserver.db", self.folder)).unwrap();
        let taken = i64::try_from(taken.as_millis()).unwrap();
        assert_eq!(stored.execute(older, rusqlite::params![event, taken]).unwrap(), 1, "{event}");
    }

    /// Every request of this user that was refused by a rate limit, from the log of a homeserver with limits.
    pub fn refused(&self, who: &str) -> Vec<String> {
        let log = std::fs::read_to_string(format!("{}/synapse.log", self.folder)).unwrap();
        let is_one = |line: &&str| line.contains(who) && line.contains(" 429 ");
        log.lines().filter(is_one).map(str::to_owned).collect()
    }

    /// Registers a new account.
    pub async fn registers(&self, name: &str) -> Account {
        let (name, password) = (fresh(name), fresh("secret"));
        let body = json!({
            "username": name, "password": password, "inhibit_login": true, "auth": { "type": "m.login.dummy" },
        });
        let answer = self.asks("", Method::POST, "/v3/register", body).await;
        Account { id: answer["user_id"].as_str().unwrap().to_owned(), password }
    }

    /// Opens a new session of an account, beside all others; returns its access token.
    pub async fn logs_in(&self, account: &Account) -> String {
        let body = json!({
            "type": "m.login.password",
            "identifier": { "type": "m.id.user", "user": account.id },
            "password": account.password,
        });
        let answer = self.asks("", Method::POST, "/v3/login", body).await;
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// Makes a request that must succeed.
    pub async fn asks(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.tries(token, method, path, body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Makes a request that may be refused; returns the status and the body.
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

    /// Uploads a file; returns its address.
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

    /// Downloads a file.
    pub async fn gives_file(&self, token: &str, address: &str) -> Vec<u8> {
        let path = address.strip_prefix("mxc://").expect("an address of the homeserver");
        let request = self
            .http
            .get(format!("{}/_matrix/client/v1/media/download/{path}", self.url))
            .header("authorization", format!("Bearer {token}"));
        request.send().await.unwrap().bytes().await.unwrap().to_vec()
    }
}
