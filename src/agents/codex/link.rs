//! A codex process that runs: its connection, the threads that are loaded in it, and the way from its messages to the
//! turns.
//!
//! One task, the router, takes all messages in their order. It notes what they say about threads, and passes each to the
//! turn that owns the thread. A request that no turn owns is refused at once, so that codex never waits for nobody and
//! nothing is ever allowed by accident.

mod idle_threads;
mod opening_thread;
mod thread_news;
mod unused_thread;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use talaria_platform::spawn_task;
use tokio::sync::{Notify, watch};

use super::account::AccountState;
use super::binary::CodexVersion;
use super::loaded_thread::{ActiveTurn, LoadedThread};
use super::turn_queue::{QueueEnd, TurnQueue};
use super::waiting_message::WaitingMessage;
use super::wire;
use crate::agents::jsonrpc::{
    IncomingMessage, RequestId, RpcAnswer, RpcClient, RpcError, RpcFault, RpcIncoming,
};
use crate::util::code_span;

use idle_threads::KEPT;
use opening_thread::OpeningThread;
pub use unused_thread::UnusedThread;

/// Time limit of a call that codex answers from memory or from a small file. Calls usually take a few milliseconds; a
/// machine under load may take seconds.
pub const CALL: Duration = Duration::from_secs(30);

/// Time limit of `turn/interrupt`. Codex answers in some milliseconds, or never.
const INTERRUPT_CALL: Duration = Duration::from_secs(3);

/// Time limit of ending the commands of a turn. Codex answers in some milliseconds.
const CLEAN_CALL: Duration = Duration::from_secs(3);

/// Longest wait for the end of an interrupted turn.
const INTERRUPT_WAIT: Duration = Duration::from_secs(5);

/// Time limit of a question that codex answers from memory, to learn whether it answers anything at all.
const ALIVE: Duration = Duration::from_secs(5);

/// Characters of the name of a method in the log.
const LOGGED: usize = 60;

/// Code of our answer to a request that no turn owns.
const NO_TURN: i64 = -32_600;

/// A codex process that runs.
#[derive(Debug)]
pub struct CodexLink {
    rpc: RpcClient,
    /// Version of codex, if it told one.
    pub version: Option<CodexVersion>,
    routes: Mutex<HashMap<String, Arc<TurnQueue>>>,
    /// Locked after the routes, where both are.
    threads: Mutex<HashMap<String, LoadedThread>>,
    /// News of threads that are being opened. Locked after the threads, where both are.
    opening: Mutex<HashMap<String, OpeningThread>>,
    /// Threads without a turn that stay loaded.
    kept: AtomicUsize,
    /// Set when we end the process because it does not answer or obey.
    is_stuck: AtomicBool,
    /// Uses of threads so far.
    uses: AtomicU64,
    /// Set once the process may run other tools servers than its configuration tells. Stays until the process is gone.
    distrusts_own_server: AtomicBool,
    /// Changes with each news about a thread.
    news: watch::Sender<u64>,
    /// The account and its limits, as codex reports them. Shared with the server, which outlives the process.
    account: Arc<Mutex<AccountState>>,
    /// Told when codex says that its account has changed.
    account_news: Notify,
}

/// The right of a turn to a thread and its messages. Nobody else uses the thread, or closes it, until this is dropped.
pub struct ThreadRoute {
    link: Arc<CodexLink>,
    thread: String,
    /// Messages of the thread.
    pub queue: Arc<TurnQueue>,
    /// Set while codex has the thread open and it is not noted as loaded.
    unused: Option<UnusedThread>,
}

impl ThreadRoute {
    /// Codex has opened the thread. It is closed with this route, unless a turn comes to use it.
    pub fn opened(&mut self, unused: UnusedThread) {
        self.unused = Some(unused);
    }

    /// Codex is about to open the thread.
    pub fn opening(&self) {
        self.link.opening.lock().insert(self.thread.clone(), OpeningThread::default());
    }

    /// Remembers the thread as one that is loaded.
    pub fn loaded(&mut self, loaded: LoadedThread) {
        self.link.add_thread(&self.thread, loaded);
        self.unused = None;
    }
}

impl Drop for ThreadRoute {
    fn drop(&mut self) {
        if let Some(unused) = self.unused.take() {
            let (link, thread) = (self.link.clone(), std::mem::take(&mut self.thread));
            // Nobody else gets the thread before it is closed.
            let route = Self { link, thread, queue: self.queue.clone(), unused: None };
            drop(spawn_task("codex-unused-thread", async move {
                route.link.close_unused(&route.thread, unused).await;
            }));
            return;
        }
        self.link.opening.lock().remove(&self.thread);
        self.link.routes.lock().remove(&self.thread);
        self.link.news.send_modify(|count| *count += 1);
        let unanswered = self.queue.leave();
        if !unanswered.is_empty() {
            let link = self.link.clone();
            drop(spawn_task("codex-refusals", async move { link.refuse(unanswered).await }));
        }
    }
}

impl CodexLink {
    /// A link over a connection that has been initialized.
    pub fn new(
        rpc: RpcClient,
        version: Option<CodexVersion>,
        account: Arc<Mutex<AccountState>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            rpc,
            version,
            routes: Mutex::default(),
            threads: Mutex::default(),
            opening: Mutex::default(),
            kept: AtomicUsize::new(KEPT),
            is_stuck: AtomicBool::new(false),
            uses: AtomicU64::new(0),
            distrusts_own_server: AtomicBool::new(false),
            news: watch::Sender::new(0),
            account,
            account_news: Notify::new(),
        })
    }

    /// The connection.
    pub fn rpc(&self) -> &RpcClient {
        &self.rpc
    }

    /// Calls a method within the usual time.
    pub async fn call(&self, method: &str, params: Value) -> Result<RpcAnswer, RpcError> {
        self.rpc.call(method, params, CALL).await
    }

    /// Called after a call that codex did not answer in time: ends it if it answers nothing at all. A slow one goes on.
    pub async fn end_if_stuck(&self) {
        let asked = self.rpc.call("thread/loaded/list", json!({}), ALIVE).await;
        if matches!(asked, Err(RpcError::Deadline)) {
            tracing::error!("codex does not answer any more, and is ended");
            self.end_stuck().await;
        }
    }

    /// Ends a process that does not answer or obey.
    async fn end_stuck(&self) {
        self.is_stuck.store(true, Ordering::SeqCst);
        self.rpc.end().await;
    }

    /// Whether the process was ended because it did not answer or obey.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::SeqCst)
    }

    /// Learns the account and its limits now, and whenever codex says that it has changed. Ends with the process.
    pub async fn follow_account(self: Arc<Self>) {
        loop {
            match self.call("account/read", json!({})).await {
                Ok(answer) => self.account.lock().read_account(&answer.result),
                Err(RpcError::Gone(_)) => return,
                Err(error) => tracing::debug!(%error, "codex does not tell its account"),
            }
            // Codex tells the limits by itself only after an answer of the model.
            match self.call("account/rateLimits/read", Value::Null).await {
                Ok(answer) => self.account.lock().update_limits(&answer.result),
                Err(RpcError::Gone(_)) => return,
                // There are none without a ChatGPT login.
                Err(error) => tracing::debug!(%error, "codex does not tell the limits of its account"),
            }
            tokio::select! {
                () = self.account_news.notified() => {}
                _ = self.rpc.gone() => return,
            }
        }
    }

    /// Takes all messages until the process is gone, and then tells every turn.
    pub async fn route(self: Arc<Self>, mut incoming: RpcIncoming) {
        while let Some((message, line)) = incoming.next_line().await {
            self.observe(&message);
            self.deliver(message, line).await;
        }
        let failure = self.rpc.gone().await;
        let queues: Vec<_> = self.routes.lock().values().cloned().collect();
        queues.iter().for_each(|queue| queue.end(QueueEnd::Gone(failure.clone())));
        self.threads.lock().clear();
        self.news.send_modify(|count| *count += 1);
    }

    async fn deliver(&self, message: IncomingMessage, line: Vec<u8>) {
        let queue =
            wire::thread_of(&message.params).and_then(|thread| self.routes.lock().get(thread).cloned());
        let request = message.request.clone();
        // A name that codex may have from anybody, such as an MCP server.
        let method = code_span(&message.method, LOGGED);
        let taken = match queue {
            Some(queue) => queue.push(WaitingMessage::new(message, line)).await,
            None => {
                tracing::debug!(method, "a message of codex belongs to no turn");
                false
            }
        };
        if let Some(request) = request.filter(|_| !taken) {
            tracing::warn!(method, "a request of codex belongs to no turn and is refused");
            self.refuse([request]).await;
        }
    }

    /// Refuses requests of codex that no turn answers.
    pub async fn refuse(&self, requests: impl IntoIterator<Item = RequestId>) {
        for request in requests {
            let refusal = RpcFault::new(NO_TURN, "no turn of the client waits for this");
            if let Err(error) = self.rpc.reply(request, Err(refusal)).await {
                tracing::debug!(%error, "the refusal was not sent");
            }
        }
    }

    /// Takes a thread for a turn. `None` if another has it.
    pub fn attach(self: &Arc<Self>, thread: &str) -> Option<ThreadRoute> {
        let mut routes = self.routes.lock();
        if routes.contains_key(thread) {
            return None;
        }
        self.change_thread(thread, |state| state.used = self.next_use());
        Some(self.new_route(&mut routes, thread))
    }

    /// Takes a thread as soon as nobody has it and no turn runs in it.
    pub async fn claim(self: &Arc<Self>, thread: &str) -> ThreadRoute {
        let mut news = self.news.subscribe();
        loop {
            self.idle(thread).await;
            if let Some(route) = self.attach(thread) {
                return route;
            }
            // The sender lives as long as we do.
            let _ = news.changed().await;
        }
    }

    fn new_route(
        self: &Arc<Self>,
        routes: &mut HashMap<String, Arc<TurnQueue>>,
        thread: &str,
    ) -> ThreadRoute {
        let queue = Arc::new(TurnQueue::default());
        routes.insert(thread.to_owned(), queue.clone());
        ThreadRoute { link: self.clone(), thread: thread.to_owned(), queue, unused: None }
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Forgets of every thread whether its tools server is our own.
    pub fn forget_own_server(&self) {
        self.threads.lock().values_mut().for_each(|thread| thread.has_own_server = None);
    }

    /// From now on no tools server of this process counts as our own.
    pub fn distrust_own_server(&self) {
        self.distrusts_own_server.store(true, Ordering::SeqCst);
    }

    /// Whether no tools server of this process counts as our own.
    pub fn distrusts_own_server(&self) -> bool {
        self.distrusts_own_server.load(Ordering::SeqCst)
    }

    /// Closes a thread for good. It is remembered until codex has closed it: the approvals that codex knows for it go with
    /// it, and no earlier.
    pub async fn archive(&self, thread: &str) -> Result<(), RpcError> {
        self.call("thread/archive", json!({ "threadId": thread })).await?;
        self.remove_thread(thread);
        Ok(())
    }

    /// Closes a thread, which makes codex forget the approvals that it knows for it. Its history stays.
    pub async fn unload(&self, thread: &str) -> Result<(), RpcError> {
        self.archive(thread).await?;
        self.call("thread/unarchive", json!({ "threadId": thread })).await?;
        Ok(())
    }

    /// Forgets that a thread is loaded.
    pub fn remove_thread(&self, thread: &str) {
        self.threads.lock().remove(thread);
    }

    /// The state of a thread, if it is loaded.
    pub fn thread(&self, thread: &str) -> Option<LoadedThread> {
        self.threads.lock().get(thread).cloned()
    }

    /// Changes the state of a thread, if it is loaded.
    pub fn change_thread(&self, thread: &str, change: impl FnOnce(&mut LoadedThread)) {
        if let Some(state) = self.threads.lock().get_mut(thread) {
            change(state);
        }
    }

    /// Changes what is known of the turn of a thread, if that is loaded, and tells everybody who waits for its end.
    pub fn change_turn(&self, thread: &str, change: impl FnOnce(&mut LoadedThread)) {
        self.change_thread(thread, change);
        self.news.send_modify(|count| *count += 1);
    }

    /// Ids of the loaded threads.
    pub fn thread_ids(&self) -> Vec<String> {
        self.threads.lock().keys().cloned().collect()
    }

    /// Waits until no turn runs in a thread. Returns at once if the thread is not loaded, or the process is gone.
    pub async fn idle(&self, thread: &str) {
        self.turn_over(thread, |_| true).await;
    }

    /// Waits while such a turn is active in a thread that is loaded in a living process.
    async fn turn_over(&self, thread: &str, is_it: impl Fn(&ActiveTurn) -> bool) {
        let mut news = self.news.subscribe();
        let runs = || self.thread(thread).is_some_and(|state| state.active.as_ref().is_some_and(&is_it));
        while runs() && !self.rpc.is_gone() {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends the turn that runs in a thread, and every command that it has left running.
    pub async fn end_turn(&self, thread: &str) {
        if let Some(active) = self.thread(thread).and_then(|state| state.active) {
            self.interrupt(thread, &active).await;
        }
        self.end_commands(thread).await;
    }

    /// Ends the turn with this id, and the commands of its thread. Does nothing if that turn has ended: another one may run,
    /// and earlier ones may have left commands running on purpose.
    async fn end_running_turn(&self, thread: &str, turn: &str) {
        let active = |link: &Self| link.thread(thread).and_then(|state| state.active);
        let running = ActiveTurn::Running(turn.to_owned());
        if active(self).as_ref() != Some(&running) {
            return;
        }
        self.interrupt(thread, &running).await;
        // The commands may be those of a turn that has been started since.
        if active(self).is_none() {
            self.end_commands(thread).await;
        }
    }

    /// Ends every command that runs in a thread. An interrupt ends only the one that the model waits for.
    async fn end_commands(&self, thread: &str) {
        let params = json!({ "threadId": thread });
        match self.rpc.call("thread/backgroundTerminals/clean", params, CLEAN_CALL).await {
            Ok(_) | Err(RpcError::Gone(_)) => {}
            // An old codex has no such method.
            Err(error) => tracing::warn!(%error, "codex did not end the commands of a turn"),
        }
    }

    /// Ends a turn that is active in a thread, and waits for that. A codex that does not obey is ended itself, with all its
    /// turns: nobody knows what it is doing.
    async fn interrupt(&self, thread: &str, active: &ActiveTurn) {
        let turn = match active {
            // Codex interrupts any turn of the thread for an empty id, also one that is about to begin.
            ActiveTurn::Starting(_) => "",
            ActiveTurn::Running(id) => id,
        };
        let params = json!({ "threadId": thread, "turnId": turn });
        match self.rpc.call("turn/interrupt", params, INTERRUPT_CALL).await {
            Ok(_) => {}
            Err(RpcError::Fault(fault)) if wire::has_no_turn(&fault) => {
                // Another one may have begun since.
                self.change_turn(thread, |state| _ = state.active.take_if(|current| current == active));
            }
            // The end of the turn may be on the way.
            Err(error @ (RpcError::Fault(_) | RpcError::Deadline)) => {
                tracing::debug!(%error, "codex did not take an interrupt");
            }
            Err(RpcError::Gone(_) | RpcError::TooLarge { .. }) => return,
        }
        // One that was starting may run by now. Behind one that ran, the next of ours may have been started.
        let is_it = |current: &ActiveTurn| matches!(active, ActiveTurn::Starting(_)) || current == active;
        if tokio::time::timeout(INTERRUPT_WAIT, self.turn_over(thread, is_it)).await.is_err() {
            tracing::error!("codex does not end a turn that was interrupted, and is ended itself");
            self.end_stuck().await;
        }
    }
}

#[cfg(test)]
mod tests;
