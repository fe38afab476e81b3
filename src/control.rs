//! The control socket: lets commands of a second process act on the running one.
//!
//! `control.sock` in the state folder is private (0600), and a client must be the same user: that is the
//! owner's right, and there is no other key. All commands are one [`router`], so each has one implementation:
//! the running process serves it on the socket, and when nothing runs the command line ([`client`]) calls the
//! same router in its own process. A gateway whose socket cannot be opened runs all the same.

pub mod accounts;
mod actions;
pub mod api;
pub mod client;
pub mod codex;
mod command_error;
mod health;
mod reload;
mod routes;
pub mod tokens;
pub mod tools;

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

use crate::agents::AgentServices;
use crate::agents::runtime_switch::RuntimeControl;
use crate::config::{AgentsConfig, Config, ConfigError, ConfigSources};
use crate::delivery::DeliveryAccount;
use crate::rules::LiveRules;
use crate::server::Server;
use crate::store::Store;
use crate::turns::Turns;

pub use actions::KEY;
pub use command_error::{CommandError, ErrorDetail};
pub use routes::{refused_list, router};

/// Name of the socket in the state folder.
const NAME: &str = "control.sock";

/// Temporary name until its permissions are set. Not longer than [`NAME`]: a path may just fit.
const NEW: &str = "control.new";

/// Connections at a time. One person types commands, a health check comes now and then, and each codex may call tools.
const CONNECTIONS: usize = 32;

/// Time that a client has to send its request.
const HEAD: Duration = Duration::from_secs(5);

/// Longest connection. Longer than [`tools::CALL`] and [`routes::WORK`], whose timeouts explain what is wrong.
const CONNECTION: Duration = tools::CALL.saturating_add(Duration::from_secs(60));

/// Pause after a failed accept, as when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// State that the owner's commands read and change.
pub struct ControlState {
    /// The state folder.
    pub home: PathBuf,
    /// The database.
    pub store: Store,
    /// Access rules and texts.
    pub rules: ControlRules,
    /// Shows and changes the runtimes of agents; `None` if the configuration is wrong.
    pub runtimes: Option<Arc<RuntimeControl>>,
    /// The running gateway; `None` when none runs and the command line opens the store by itself.
    pub running: Option<RunningGateway>,
}

/// Source of the rules that commands apply.
pub enum ControlRules {
    /// The current rules of the running process.
    Live(Arc<LiveRules>),
    /// The rules of the configuration file, while nothing runs; or the errors in it.
    Written(Box<Result<Config, Vec<ConfigError>>>),
}

/// The running gateway, as commands see it.
pub struct RunningGateway {
    /// The engine that runs turns.
    pub turns: Arc<Turns>,
    /// Accounts on chat networks.
    pub accounts: Vec<Arc<DeliveryAccount>>,
    /// Start time.
    pub started: Instant,
    /// Configuration at the start. Values that a reload can change are in the rules and in `reloading`.
    pub config: Config,
    /// Sources of the configuration, for a reload.
    pub sources: ConfigSources,
    /// Configuration of the agents that are in use. Held by a reload from reading the file until its rules are in use,
    /// so that of two reloads the newer file wins.
    pub reloading: Mutex<AgentsConfig>,
    /// The agent server, if it runs.
    pub served: Option<ServerHandle>,
    /// Accounts without an input: consoles whose standard input is closed.
    pub without_input: Vec<AccountId>,
    /// The database was empty at the start although the state folder had been used before.
    pub lost_database: bool,
    /// MCP servers of agents; `None` only in tests.
    pub services: Option<Arc<AgentServices>>,
}

/// The running agent server, as commands see it.
pub struct ServerHandle {
    /// The server; it must be told when a token is revoked.
    pub server: Arc<Server>,
    /// Address that it listens on.
    pub address: SocketAddr,
}

/// An open control socket. Dropping it closes it.
pub struct ControlSocket {
    path: PathBuf,
    serving: JoinHandle<()>,
}

/// Path of the socket of a state folder.
pub fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// Whether a socket can be created there: the system limits the length of its path.
pub fn fits(home: &Path) -> bool {
    SocketPath::from_pathname(path(home)).is_ok()
}

/// Opens the socket. The caller holds the lock of the state folder, so an existing socket belongs to a dead
/// process.
pub fn open(control: Arc<ControlState>) -> Option<ControlSocket> {
    let home = control.home.clone();
    match listen(&home) {
        Ok(listener) => {
            let serving = spawn_task("control-socket", serve(listener, router(control)));
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

/// Reloads the configuration like `talaria reload`, with errors in the log. Called on SIGHUP.
pub async fn read_again(control: Arc<ControlState>) {
    // Success is logged by the reload itself.
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

/// Creates the socket under a temporary name first: its permissions are set before another process can find it,
/// and it replaces a dead one in one step.
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
                tracing::warn!(%error, "a control connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // The file's permissions say the same; this check also holds on file systems without permissions.
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
