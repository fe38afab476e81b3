//! The codex process of one agent: started when a turn needs it, shared by all turns, ended when nobody has used it for
//! a while, and started again after it died.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use talaria_platform::{Backoff, CancellationToken};
use tokio::sync::watch;
use tokio::time::Instant;

use super::account::AccountState;
use super::binary::CodexVersion;
use super::link::CodexLink;
use super::servers::CodexServers;
use super::start::{self, StartError};
use super::wire::EffectivePolicy;
use crate::agents::jsonrpc::{ProcessFailure, RpcIncoming};
use crate::config::CodexConfig;

/// Shortest and longest pause before a start, if the start or the process before it failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Longest pause that a turn waits for. Before a longer one it fails at once, with the reason of the last failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Longest time that a process that nobody uses is kept for a command that a turn left behind: long enough for the work of
/// a night, while a forgotten server does not run for ever.
const KEPT_FOR_COMMANDS: Duration = Duration::from_secs(12 * 60 * 60);

/// The codex process of one agent.
pub struct AppServer {
    shared: Arc<ServerShared>,
}

struct ServerShared {
    config: CodexConfig,
    servers: Arc<CodexServers>,
    /// Held while the process is started, so that it is started once.
    starting: tokio::sync::Mutex<()>,
    state: Mutex<ServerState>,
    account: Arc<Mutex<AccountState>>,
    /// Fired when the agent is dropped, or the gateway ends.
    stop: CancellationToken,
}

struct ServerState {
    link: Option<Arc<CodexLink>>,
    /// Turns that use the link.
    users: watch::Sender<usize>,
    backoff: Backoff,
    /// No process is started before this moment.
    not_before: Option<Instant>,
    /// The last failure, and the number of failures so far.
    failed: Option<Arc<StartError>>,
    failures: u64,
    /// The rules of the thread that was opened last.
    policy: Option<EffectivePolicy>,
    /// Version of the process that ran last, if it told one.
    version: Option<CodexVersion>,
}

/// The use of a running process by one turn. The process is not ended for idleness before it is dropped.
pub struct LinkUse {
    /// The process.
    pub link: Arc<CodexLink>,
    users: watch::Sender<usize>,
}

impl Drop for LinkUse {
    fn drop(&mut self) {
        self.users.send_modify(|users| *users = users.saturating_sub(1));
    }
}

impl AppServer {
    /// A server for this configuration. Starts nothing.
    pub fn new(config: CodexConfig, servers: Arc<CodexServers>) -> Self {
        let stop = servers.stop_token();
        let state = ServerState {
            link: None,
            users: watch::Sender::new(0),
            backoff: Backoff::between(PAUSES.0, PAUSES.1),
            not_before: None,
            failed: None,
            failures: 0,
            policy: None,
            version: None,
        };
        let shared = ServerShared {
            config,
            servers,
            starting: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
            account: Arc::default(),
            stop,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The running process; it is started if there is none. A failure is that of every turn that waited for it. May be
    /// dropped at any time, which ends a process that is being started.
    pub async fn connect(&self) -> Result<LinkUse, Arc<StartError>> {
        let shared = &self.shared;
        if let Some(used) = shared.use_link() {
            return Ok(used);
        }
        let known = shared.state.lock().failures;
        let _starting = shared.starting.lock().await;
        if let Some(used) = shared.use_link() {
            return Ok(used);
        }
        if let Some(moment) = shared.next_start(known)? {
            tokio::time::sleep_until(moment).await;
        }
        if shared.stop.is_cancelled() {
            return Err(StartError::Ending.into());
        }
        let started = tokio::select! {
            started = start::start(&shared.config, &shared.servers, &shared.account) => started,
            () = shared.stop.cancelled() => Err(StartError::Ending),
        };
        match started {
            Ok((link, incoming)) => Ok(shared.clone().adopt(link, incoming)),
            Err(error) => {
                let error = Arc::new(error);
                shared.postpone(error.clone());
                Err(error)
            }
        }
    }

    /// The running process, if there is one.
    pub fn running(&self) -> Option<Arc<CodexLink>> {
        self.shared.state.lock().link.clone()
    }

    /// Notes that a turn went well: the next start need not wait.
    pub fn worked(&self) {
        let mut state = self.shared.state.lock();
        state.backoff.reset();
        state.not_before = None;
        state.failed = None;
    }

    /// Version of the process that ran last, if it told one.
    pub fn version(&self) -> Option<CodexVersion> {
        self.shared.state.lock().version
    }

    /// The account and its limits, as far as codex has told them.
    pub fn account(&self) -> AccountState {
        self.shared.account.lock().clone()
    }

    /// Notes the rules of a thread, for operators.
    pub fn note_policy(&self, policy: &EffectivePolicy) {
        self.shared.state.lock().policy = Some(policy.clone());
    }

    /// Notes that codex' provider answers with another model than the one of the thread.
    pub fn note_model(&self, model: &str) {
        if let Some(policy) = &mut self.shared.state.lock().policy {
            policy.model = Some(model.to_owned());
        }
    }

    /// The rules of the thread that was opened last, if any was.
    pub fn policy(&self) -> Option<EffectivePolicy> {
        self.shared.state.lock().policy.clone()
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl ServerShared {
    /// The use of the running process, if there is one.
    fn use_link(&self) -> Option<LinkUse> {
        let state = self.state.lock();
        let link = state.link.clone().filter(|link| !link.rpc().is_gone())?;
        state.users.send_modify(|users| *users += 1);
        Some(LinkUse { link, users: state.users.clone() })
    }

    /// Takes over a process that was started.
    fn adopt(self: Arc<Self>, link: Arc<CodexLink>, incoming: RpcIncoming) -> LinkUse {
        let users = watch::Sender::new(1);
        {
            let mut state = self.state.lock();
            state.link = Some(link.clone());
            state.version = link.version;
            state.users = users.clone();
        }
        let servers = self.servers.clone();
        servers.add_link(&link);
        servers.spawn("codex-router", link.clone().route(incoming));
        servers.spawn("codex-account", link.clone().follow_account());
        servers.spawn("codex", self.supervise(link.clone(), users.subscribe()));
        LinkUse { link, users }
    }

    /// Ends the process in order when its time has come, and notes its death.
    async fn supervise(self: Arc<Self>, link: Arc<CodexLink>, mut users: watch::Receiver<usize>) {
        let mut kept_since = None;
        loop {
            tokio::select! {
                failure = link.rpc().gone() => return self.died(&link, &failure),
                () = self.stop.cancelled() => break,
                was_used = unused_for(&mut users, self.config.idle) => {
                    let since = kept_since.filter(|_| !was_used).unwrap_or_else(Instant::now);
                    kept_since = Some(since);
                    if since.elapsed() < KEPT_FOR_COMMANDS && has_commands(&link).await {
                        // Their output is still wanted. The time begins anew.
                        continue;
                    }
                    let mut state = self.state.lock();
                    if *users.borrow() == 0 {
                        state.link = None;
                        break;
                    }
                }
            }
        }
        let exit = link.rpc().end().await;
        tracing::info!(code = exit.code, "codex has ended");
        self.forget(&link);
    }

    fn died(&self, link: &Arc<CodexLink>, failure: &ProcessFailure) {
        let failure = failure.clone();
        let error = if link.is_stuck() { StartError::Stuck(failure) } else { StartError::Died(failure) };
        tracing::error!(%error, "codex is gone");
        self.forget(link);
        self.postpone(Arc::new(error));
    }

    fn forget(&self, link: &Arc<CodexLink>) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            state.link = None;
        }
    }

    /// The moment of the next start, if it must wait; the last failure if it is newer than those that the turn knows, or
    /// if a person would wait too long.
    fn next_start(&self, known: u64) -> Result<Option<Instant>, Arc<StartError>> {
        let state = self.state.lock();
        let is_far = state.not_before.is_some_and(|moment| moment > Instant::now() + LONGEST_PAUSE);
        match &state.failed {
            Some(failed) if state.failures > known || is_far => Err(failed.clone()),
            Some(_) | None => Ok(state.not_before),
        }
    }

    /// Lets the next start wait, longer each time.
    fn postpone(&self, error: Arc<StartError>) {
        let mut state = self.state.lock();
        state.failed = Some(error);
        state.failures += 1;
        let pause = state.backoff.advance();
        state.not_before = Some(Instant::now() + pause);
    }
}

/// Resolves when nobody has used the process for this long. Returns whether somebody did meanwhile.
async fn unused_for(users: &mut watch::Receiver<usize>, idle: Duration) -> bool {
    let mut was_used = *users.borrow() > 0;
    loop {
        if users.wait_for(|users| *users == 0).await.is_err() {
            return was_used;
        }
        let used_again = users.wait_for(|users| *users > 0);
        match tokio::time::timeout(idle, used_again).await {
            Ok(Ok(_)) => was_used = true,
            Ok(Err(_)) | Err(_) => return was_used,
        }
    }
}

/// Whether a command that a turn left behind still runs in any thread.
async fn has_commands(link: &Arc<CodexLink>) -> bool {
    let threads = link.thread_ids();
    join_all(threads.iter().map(|thread| link.has_commands(thread))).await.contains(&true)
}
