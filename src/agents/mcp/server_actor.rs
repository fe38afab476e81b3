//! One server of the configuration, and the task that owns its connection.
//!
//! The task is started by the first use of the server, and does everything one after the other: it starts the server when
//! somebody wants it, watches it, and ends it when it is idle, dead or no longer wanted. So a server never runs twice, and
//! a turn that is stopped while a server starts breaks nothing. Turns read the state, and wait for it to change.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use talaria_platform::{Backoff, CancellationToken, spawn_task};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::open_link::{self, OpenLink};
use super::server_state::{McpFailure, McpServerState, McpServerStatus};
use crate::agents::process::ProcessHost;
use crate::agents::secret_mask::SecretMask;
use crate::config::{McpServerConfig, ToolPermission};

/// After a run of this length the next pause is the first again.
const WELL: Duration = Duration::from_secs(60);

/// Time that a turn waits beyond the limit of a start, to learn how it ended.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// Longest wait for the reason of a lost connection: the exit status of a process comes after the end of its output.
const REASON: Duration = Duration::from_secs(1);

/// Times that all servers share. Tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct McpPacing {
    /// Time without a call after which a server is ended.
    pub idle: Duration,
    /// Pauses between a failure and the next start.
    pub pauses: Backoff,
}

impl Default for McpPacing {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15 * 60),
            pauses: Backoff::between(Duration::from_secs(2), Duration::from_secs(5 * 60)),
        }
    }
}

/// Parts of the process that every server needs.
#[derive(Clone)]
pub(super) struct ServerContext {
    pub host: Arc<ProcessHost>,
    /// The state folder.
    pub home: PathBuf,
    pub pacing: McpPacing,
    /// Tasks of all servers, for the end.
    pub tasks: TaskTracker,
}

/// A server of the configuration.
pub(super) struct McpServer {
    pub name: String,
    pub config: McpServerConfig,
    pub mask: SecretMask,
    context: ServerContext,
    state: watch::Sender<ServerState>,
    /// Tells the task that somebody wants the server.
    wanted: Notify,
    /// Whether the task was started.
    is_started: AtomicBool,
    /// Fired when a reload replaces the server, or the process ends.
    stop: CancellationToken,
    /// Fired when nothing of the server runs any more and nothing will.
    ended: CancellationToken,
    /// `ended` of the server that had this name before.
    after: Option<CancellationToken>,
    /// Tools when they were last known, also while the server does not run.
    tools: AtomicUsize,
}

/// State of a server, changed by its task; only a wish to start is set by others.
#[derive(Clone)]
enum ServerState {
    NotStarted,
    Starting,
    Running(Arc<Connection>),
    Failed { failure: McpFailure, until: Instant },
}

impl ServerState {
    /// Whether the connection can no longer be used, and the task is about to notice.
    fn is_ending(&self) -> bool {
        match self {
            Self::Running(connection) => !connection.is_usable(),
            Self::NotStarted | Self::Starting | Self::Failed { .. } => false,
        }
    }
}

impl McpServer {
    /// A server that does not run. `after` has the server that this one replaces.
    pub(super) fn new(
        name: String,
        config: McpServerConfig,
        context: ServerContext,
        after: Option<&Self>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mask: SecretMask::of(&config),
            name,
            config,
            context,
            state: watch::Sender::new(ServerState::NotStarted),
            wanted: Notify::new(),
            is_started: AtomicBool::new(false),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            after: after.map(|before| before.ended.clone()),
            tools: AtomicUsize::new(0),
        })
    }

    /// Whether the server may be started, and some of its tools may be called without a question.
    pub(super) fn allows_some(&self) -> bool {
        let allowed = |permission: &ToolPermission| *permission == ToolPermission::Allow;
        self.config.enabled && self.config.permissions.values().any(allowed)
    }

    /// The open connection. Starts the server if need be; waits for that at most as long as a start may take. The error
    /// says in words that follow the server's name why there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        if !self.config.enabled {
            return Err("is switched off in the configuration".to_owned());
        }
        if self.stop.is_cancelled() {
            return Err("was removed or changed in the configuration".to_owned());
        }
        let connecting = async {
            let mut state = self.state.subscribe();
            // A connection that ends is replaced by its task; then a new one may be asked for.
            let _ = state.wait_for(|state| !state.is_ending()).await;
            self.want();
            match state.wait_for(|state| !matches!(state, ServerState::Starting)).await.as_deref() {
                Ok(ServerState::Running(connection)) => Ok(connection.clone()),
                Ok(ServerState::Failed { failure, .. }) => Err(format!("does not run: {}", failure.reason)),
                Ok(ServerState::NotStarted | ServerState::Starting) | Err(_) => Err("was ended".to_owned()),
            }
        };
        tokio::select! {
            connection = connecting => connection,
            () = self.stop.cancelled() => Err("was ended".to_owned()),
            // A little more than the task itself has, so that its reason is told. It may still have to end a process.
            () = tokio::time::sleep(self.config.connect_timeout + LAST_MOMENT) => Err("is still starting".to_owned()),
        }
    }

    /// The reason for which a connection was lost just now.
    pub(super) async fn lost_reason(&self) -> Option<String> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !state.is_ending());
        match tokio::time::timeout(REASON, settled).await.ok()?.as_deref() {
            Ok(ServerState::Failed { failure, .. }) => Some(failure.reason.clone()),
            Ok(ServerState::NotStarted | ServerState::Starting | ServerState::Running(_)) | Err(_) => None,
        }
    }

    /// Asks for the server to run, unless it does, or failed a moment ago.
    fn want(self: &Arc<Self>) {
        let is_new = self.state.send_if_modified(|state| {
            let starts = match state {
                ServerState::NotStarted => true,
                ServerState::Starting | ServerState::Running(_) => false,
                ServerState::Failed { until, .. } => *until <= Instant::now(),
            };
            if starts {
                *state = ServerState::Starting;
            }
            starts
        });
        if !is_new {
            return;
        }
        self.wanted.notify_one();
        if !self.is_started.swap(true, Ordering::AcqRel) {
            let server = self.clone();
            drop(spawn_task("mcp-server", self.context.tasks.track_future(server.run())));
        }
    }

    /// Ends the server in order, without waiting. It can never be started again.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        // From now on nobody starts the task.
        if !self.is_started.swap(true, Ordering::AcqRel) {
            self.ended.cancel();
        }
    }

    /// The state, for people.
    pub(super) fn status(&self) -> McpServerStatus {
        let state = match &*self.state.borrow() {
            _ if !self.config.enabled => McpServerState::Disabled,
            ServerState::NotStarted => McpServerState::NotStarted,
            ServerState::Starting => McpServerState::Starting,
            ServerState::Running(_) => McpServerState::Running,
            ServerState::Failed { failure, .. } => McpServerState::Failed(failure.clone()),
        };
        let tools = match &*self.state.borrow() {
            ServerState::Running(connection) => connection.known_tools().tools.len(),
            ServerState::NotStarted | ServerState::Starting | ServerState::Failed { .. } => {
                self.tools.load(Ordering::Relaxed)
            }
        };
        McpServerStatus { name: self.name.clone(), state, tools }
    }

    async fn run(self: Arc<Self>) {
        let mut pauses = self.context.pacing.pauses;
        // However this task ends, nobody may wait for it afterwards.
        let _ended = self.ended.clone().drop_guard();
        if let Some(before) = &self.after {
            tokio::select! {
                () = before.cancelled() => {}
                () = self.stop.cancelled() => {}
            }
        }
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.wanted.notified() => {}
            }
            let context = &self.context;
            let opening = open_link::open(
                &self.name,
                &self.config,
                &context.host,
                &context.home,
                &self.mask,
                &self.stop,
            );
            match opening.await {
                Ok(link) => self.keep(link, &mut pauses).await,
                Err(failed) if self.stop.is_cancelled() => failed.end().await,
                Err(failed) => {
                    let reason = &failed.failure.reason;
                    tracing::warn!(server = self.name, reason, "an MCP server did not start");
                    self.fail(failed.failure.clone(), &mut pauses);
                    failed.end().await;
                }
            }
        }
        self.state.send_replace(ServerState::NotStarted);
    }

    /// Watches a connection until it must end, and ends it.
    async fn keep(&self, link: OpenLink, pauses: &mut Backoff) {
        let (connection, began) = (link.connection.clone(), Instant::now());
        self.tools.store(connection.known_tools().tools.len(), Ordering::Relaxed);
        tracing::info!(
            server = self.name,
            tools = connection.known_tools().tools.len(),
            "an MCP server runs"
        );
        for words in &connection.known_tools().left_out {
            tracing::warn!(server = self.name, "an MCP server's tools: {words}");
        }
        self.state.send_replace(ServerState::Running(connection.clone()));
        let died = tokio::select! {
            failure = link.died(&self.mask) => Some(failure),
            () = self.idles(&connection) => None,
            () = self.stop.cancelled() => None,
        };
        self.tools.store(connection.known_tools().tools.len(), Ordering::Relaxed);
        match died {
            Some(failure) => {
                tracing::warn!(server = self.name, reason = failure.reason, "an MCP server is gone");
                if began.elapsed() >= WELL {
                    pauses.reset();
                }
                self.fail(failure, pauses);
            }
            None => {
                tracing::info!(server = self.name, "an MCP server is ended");
                self.state.send_replace(ServerState::NotStarted);
            }
        }
        link.end().await;
    }

    /// Returns when nobody has used the connection for the idle time. Then nobody can any more.
    async fn idles(&self, connection: &Connection) {
        while let Err(due) = connection.close_if_idle(self.context.pacing.idle) {
            tokio::time::sleep_until(due).await;
        }
    }

    fn fail(&self, failure: McpFailure, pauses: &mut Backoff) {
        let until = Instant::now() + pauses.advance();
        self.state.send_replace(ServerState::Failed { failure, until });
    }
}
