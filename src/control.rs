//! The control socket: how commands of a second process act on the running one.
//!
//! `control.sock` in the state folder belongs to us alone, and whoever connects must be the same user: that is the
//! owner's right, and there is no other key. What can be asked is one [`router`], so every command has one
//! implementation: the running process serves it on the socket, and when nothing runs the command line
//! ([`client`]) calls the same router in its own process. Without a socket a gateway runs all the same.

mod actions;
pub mod api;
pub mod client;
mod command_error;
mod health;
#[cfg(feature = "matrix")]
pub mod matrix;
mod reload;
mod routes;
pub mod tokens;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::SocketAddr as SocketPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use talaria_platform::{AccountId, spawn_task};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::config::{Config, ConfigError, ConfigSources};
use crate::delivery::DeliveryAccount;
use crate::rules::LiveRules;
use crate::server::Server;
use crate::store::Store;
use crate::turns::Turns;

pub use actions::KEY;
pub use command_error::{CommandError, ErrorDetail};
pub use routes::{refused_list, router};

/// The socket's name in the state folder.
const NAME: &str = "control.sock";

/// What it is called until it is closed to others. Not longer than its name: a path may just fit.
const NEW: &str = "control.new";

/// Connections at a time. One person types commands, and a health check comes now and then.
const CONNECTIONS: usize = 16;

/// How long a caller may take to say what they want.
const HEAD: Duration = Duration::from_secs(5);

/// How long a connection may last. Longer than [`routes::WORK`], which says what is wrong.
const CONNECTION: Duration = Duration::from_secs(60);

/// The pause after a connection could not be taken, such as when no file can be opened any more.
const PAUSE: Duration = Duration::from_millis(200);

/// What the owner may look at and change.
pub struct ControlState {
    /// The state folder.
    pub home: PathBuf,
    /// Where everything durable is.
    pub store: Store,
    /// Who may do what, and the words.
    pub rules: ControlRules,
    /// `None` when no gateway runs, and the command line looks after the store by itself.
    pub running: Option<RunningGateway>,
}

/// The rules that commands go by.
pub enum ControlRules {
    /// Those that hold in the running process.
    Live(Arc<LiveRules>),
    /// Those that would hold if something ran; or what is wrong with the configuration.
    Written(Box<Result<Config, Vec<ConfigError>>>),
}

/// A gateway that runs, as the owner sees it.
pub struct RunningGateway {
    /// What answers.
    pub turns: Arc<Turns>,
    /// Where people are.
    pub accounts: Vec<Arc<DeliveryAccount>>,
    /// Since when.
    pub started: Instant,
    /// What it was started with. What a reload changes is in the rules.
    pub config: Config,
    /// Where that came from, to be read again.
    pub sources: ConfigSources,
    /// Held by a reload from reading the file until its rules hold, so that of two the newer file holds in the end.
    pub reloading: Mutex<()>,
    /// The agent server, if it serves.
    pub served: Option<ServerHandle>,
    /// Accounts that have nothing to read: consoles without an input.
    pub without_input: Vec<AccountId>,
    /// The database was empty at the start although the state folder had been used before.
    pub lost_database: bool,
    /// The Matrix accounts among them.
    #[cfg(feature = "matrix")]
    pub matrix: Vec<(AccountId, Arc<talaria_matrix::Matrix>)>,
}

/// The agent server, as the owner sees it.
pub struct ServerHandle {
    /// The server itself: it has to know when a token no longer counts.
    pub server: Arc<Server>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// An open control socket. Dropping it closes it.
pub struct ControlSocket {
    path: PathBuf,
    serving: JoinHandle<()>,
}

/// Where the socket of a state folder is.
pub fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// Whether a socket can be made there: the system gives its path little room.
pub fn fits(home: &Path) -> bool {
    SocketPath::from_pathname(path(home)).is_ok()
}

/// Opens the socket. The caller holds the lock of the state folder, so one that is there is a dead process'.
pub fn open(control: Arc<ControlState>) -> Option<ControlSocket> {
    let home = control.home.clone();
    match listen(&home) {
        Ok(listener) => {
            let serving = spawn_task("control socket", serve(listener, router(control)));
            Some(ControlSocket { path: path(&home), serving })
        }
        Err(error) => {
            let hint = match fits(&home) {
                true => "check the rights of the state folder",
                false => "its path is too long for a socket; set TALARIA_HOME to a shorter one",
            };
            tracing::warn!(%error, hint, "there is no control socket; talaria status and the like cannot reach us");
            None
        }
    }
}

/// Has the configuration read again as `talaria reload` does, for somebody who reads the log.
pub async fn read_again(control: Arc<ControlState>) {
    // What went well is logged where it is done.
    if let Err(problem) = actions::reload(State(control)).await {
        for ErrorDetail { message, hint } in problem.complaints {
            tracing::error!(hint, "nothing was changed: {message}");
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the socket under another name first: it is closed to others before anybody can find it, and takes the
/// place of a dead one in one step.
fn listen(home: &Path) -> io::Result<UnixListener> {
    let new = home.join(NEW);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path(home))?;
    Ok(listener)
}

async fn serve(listener: UnixListener, router: Router) {
    let us = rustix::process::geteuid().as_raw();
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a control connection could not be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // The file's rights say the same; this also holds where a file system knows no rights.
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == us => {}
            peer => {
                let uid = peer.ok().map(|peer| peer.uid());
                tracing::warn!(uid, "another user tried the control socket and was turned away");
                continue;
            }
        }
        let router = router.clone();
        connections.spawn(async move {
            let _ = tokio::time::timeout(CONNECTION, answer(stream, router)).await;
            drop(permit);
        });
    }
}

async fn answer(stream: UnixStream, router: Router) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a control connection broke off");
    }
}
