//! Client of the control socket, used by the command line.
//!
//! If a gateway runs, commands go over its socket. If none does, the client takes the lock of the state folder,
//! opens the store and calls the same router in this process: each command has one implementation. A state
//! folder without a database stays as it is, unless the command prepares a first start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tower::ServiceExt as _;

use super::command_error::{self, CommandError};
use super::{ControlRules, ControlState, fits, path, router};
use crate::agents::process::ProcessHost;
use crate::agents::runtime_switch::{RuntimeControl, SwitchTable};
use crate::config::{Config, ConfigSources, Retention, env};
use crate::rules::LiveRules;
use crate::state_dir::{StartError, StateDir, note_lost_database};
use crate::store::{Store, StoreThreads};

/// Time that a running process has to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Time that a running process has to answer. Longer than the router gives itself.
const ANSWER: Duration = Duration::from_secs(30);

/// Most bytes of an answer. A page of the audit takes about a megabyte.
const LONGEST: usize = 64 * 1024 * 1024;

/// Condition for running a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandNeed {
    /// A running gateway.
    Running,
    /// A store that exists.
    Store,
    /// A store, which is created if there is none.
    NewStore,
}

/// Sends commands to the running gateway, or handles them in this process.
pub struct ControlClient {
    answers: ControlBackend,
}

enum ControlBackend {
    /// The process at the other end of the socket.
    There(reqwest::Client),
    /// This process.
    Here(Box<LocalBackend>),
}

struct LocalBackend {
    router: Router,
    threads: StoreThreads,
    /// Last field: the store is closed before the lock is released.
    _home: StateDir,
}

impl ControlClient {
    /// Connects to the running gateway of a state folder, or opens the store if none runs.
    pub async fn open(home: &Path, sources: &ConfigSources, need: CommandNeed) -> Result<Self, CommandError> {
        if let Some(client) = reach(home).await {
            return Ok(Self { answers: ControlBackend::There(client) });
        }
        if let Some(pid) = StateDir::holder(home) {
            return Err(silent(home, &pid));
        }
        let make = match need {
            CommandNeed::Running => return Err(CommandError::not_running(home)),
            CommandNeed::Store => false,
            CommandNeed::NewStore => true,
        };
        let here = LocalBackend::open(home, sources, make).await?;
        Ok(Self { answers: ControlBackend::Here(Box::new(here)) })
    }

    /// Whether a running gateway answers, and not this process.
    pub fn is_there(&self) -> bool {
        matches!(self.answers, ControlBackend::There(_))
    }

    /// Sends a request without a body.
    pub async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, CommandError> {
        let answer = self.ask(Method::GET, what, Vec::new(), ANSWER).await?;
        serde_json::from_slice(&answer).map_err(|error| strange(&error.to_string()))
    }

    /// Sends a request with a body.
    pub async fn post<T: DeserializeOwned>(
        &self,
        what: &str,
        question: &impl Serialize,
    ) -> Result<T, CommandError> {
        let answer = self.post_raw(what, question).await?;
        serde_json::from_slice(&answer).map_err(|error| strange(&error.to_string()))
    }

    /// Sends a request with a body that may take as long as `patience`.
    pub async fn post_within<T: DeserializeOwned>(
        &self,
        what: &str,
        question: &impl Serialize,
        patience: Duration,
    ) -> Result<T, CommandError> {
        let question = serde_json::to_vec(question).map_err(|error| strange(&error.to_string()))?;
        let answer = self.ask(Method::POST, what, question, patience).await?;
        serde_json::from_slice(&answer).map_err(|error| strange(&error.to_string()))
    }

    /// Sends a request with a body, and leaves the answer as it is.
    pub async fn post_raw(&self, what: &str, question: &impl Serialize) -> Result<Vec<u8>, CommandError> {
        let question = serde_json::to_vec(question).map_err(|error| strange(&error.to_string()))?;
        self.ask(Method::POST, what, question, ANSWER).await
    }

    /// Releases everything, and returns when the store is closed.
    pub async fn close(self) {
        if let ControlBackend::Here(here) = self.answers {
            let LocalBackend { router, threads, _home } = *here;
            drop(router);
            // Not on this thread: a handler that timed out may still need this thread to release the store.
            let _ = tokio::task::spawn_blocking(|| threads.join()).await;
        }
    }

    async fn ask(
        &self,
        method: Method,
        what: &str,
        question: Vec<u8>,
        patience: Duration,
    ) -> Result<Vec<u8>, CommandError> {
        let (status, answer) = match &self.answers {
            ControlBackend::There(client) => over_there(client, method, what, question, patience).await?,
            ControlBackend::Here(here) => right_here(&here.router, method, what, question).await?,
        };
        if status.is_success() {
            return Ok(answer);
        }
        match serde_json::from_slice::<command_error::CommandErrorBody>(&answer) {
            Ok(problem) if !problem.errors.is_empty() => {
                Err(CommandError { status, complaints: problem.errors })
            }
            Ok(_) | Err(_) => Err(strange(&format!("status {status}"))),
        }
    }
}

impl LocalBackend {
    async fn open(home: &Path, sources: &ConfigSources, make: bool) -> Result<Self, CommandError> {
        if !make && !StateDir::database_of(home).exists() {
            return Err(CommandError::missing(
                format!("there is nothing yet in the state folder {}", home.display()),
                "start talaria once; or set TALARIA_HOME to the state folder of the one you mean",
            ));
        }
        let taken = StateDir::take(home).map_err(start_problem)?;
        let (store, threads) =
            Store::open_keeping(&taken.database(), Retention::FOREVER).map_err(|error| {
                CommandError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), error.hint())
            })?;
        taken.mark_used();
        if taken.lost_database() {
            note_lost_database(&store).await?;
        }
        let config = Config::load(sources, &env::process);
        let runtimes = match &config {
            Ok(config) => {
                let live = LiveRules::new(config.rules.clone());
                live.load_overrides(store.read(|tx| tx.runtime_overrides()).await?);
                let host = Arc::new(ProcessHost::new(home));
                Some(RuntimeControl::new(store.clone(), live, SwitchTable::new(config, Some(host))))
            }
            Err(_) => None,
        };
        let rules = ControlRules::Written(Box::new(config));
        let control = ControlState { home: home.to_owned(), store, rules, runtimes, running: None };
        Ok(Self { router: router(Arc::new(control)), threads, _home: taken })
    }
}

/// An HTTP client for the socket, if a process listens there.
async fn reach(home: &Path) -> Option<reqwest::Client> {
    let socket: PathBuf = path(home);
    tokio::time::timeout(CONNECT, UnixStream::connect(&socket)).await.ok()?.ok()?;
    // Without certificates: there is no TLS on a socket, and a small container may have none to load.
    let client = reqwest::Client::builder().unix_socket(socket).no_proxy().tls_certs_only([]);
    client.build().ok()
}

async fn over_there(
    client: &reqwest::Client,
    method: Method,
    what: &str,
    question: Vec<u8>,
    patience: Duration,
) -> Result<(StatusCode, Vec<u8>), CommandError> {
    let broken = |error: reqwest::Error| match error.is_timeout() {
        true => slow(patience),
        false => CommandError::new(
            StatusCode::BAD_GATEWAY,
            "talaria runs but broke off before it answered",
            "it may be ending; look at its log, and run this as the same user as talaria",
        ),
    };
    // The host name means nothing on a Unix socket.
    let request = client.request(method, format!("http://talaria{what}"));
    let request = request.header(CONTENT_TYPE, "application/json").body(question).timeout(patience);
    let mut response = request.send().await.map_err(broken)?;
    let mut answer = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        answer.extend_from_slice(&piece);
        if answer.len() > LONGEST {
            return Err(strange("it is far too long"));
        }
    }
    Ok((response.status(), answer))
}

async fn right_here(
    router: &Router,
    method: Method,
    what: &str,
    question: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), CommandError> {
    let request = Request::builder().method(method).uri(what).body(Body::from(question));
    let request = request.map_err(|error| strange(&error.to_string()))?;
    let response = match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    let answer =
        to_bytes(response.into_body(), LONGEST).await.map_err(|error| strange(&error.to_string()))?;
    Ok((status, answer.to_vec()))
}

/// Error when no answer came in time.
pub fn slow(patience: Duration) -> CommandError {
    CommandError::new(
        StatusCode::GATEWAY_TIMEOUT,
        format!("talaria runs but has not answered for {} seconds", patience.as_secs()),
        "it may be stuck or ending; look at its log, and restart it if it does not come back",
    )
}

/// Error when a process holds the state folder but does not answer.
fn silent(home: &Path, pid: &str) -> CommandError {
    if !fits(home) {
        return CommandError::new(
            StatusCode::BAD_GATEWAY,
            format!(
                "talaria runs (process {pid}), but the path of its state folder is too long for a control socket ({})",
                home.display()
            ),
            "set TALARIA_HOME to a folder with a shorter path, and start talaria again",
        );
    }
    CommandError::new(
        StatusCode::BAD_GATEWAY,
        format!("talaria runs (process {pid}) but does not answer (state folder {})", home.display()),
        "it may be starting or ending, so try again in a moment; run this as the same user as talaria",
    )
}

fn strange(detail: &str) -> CommandError {
    CommandError::new(
        StatusCode::BAD_GATEWAY,
        format!("the answer is not understood: {detail}"),
        "the talaria that runs is probably another version; restart it",
    )
}

fn start_problem(error: StartError) -> CommandError {
    let hint = error.hint.unwrap_or("check the rights of the state folder");
    CommandError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{:#}", error.error), hint)
}
