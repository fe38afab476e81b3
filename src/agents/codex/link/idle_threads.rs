//! Closes threads that were not used for long: each that is loaded holds MCP servers of its own, and most sessions of
//! programs have one turn only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::{CodexLink, ThreadRoute};

/// Threads without a turn that stay loaded. Few, because of their MCP servers; to open one again takes a fraction of a
/// second.
pub(super) const KEPT: usize = 8;

/// Time limit of the question whether commands still run in a thread.
const LOOK: Duration = Duration::from_secs(5);

impl CodexLink {
    /// Another process takes the place of this one: from now on no thread without a turn stays loaded, because no other
    /// process can open one that is.
    pub async fn retire(self: Arc<Self>) {
        self.kept.store(0, Ordering::SeqCst);
        self.close_idle_threads().await;
    }

    /// Closes the threads that were not used for longest, until few without a turn are left. No turn begins in one of them
    /// meanwhile. One in which a command still runs stays.
    pub async fn close_idle_threads(self: Arc<Self>) {
        for route in self.claim_surplus() {
            let thread = route.thread.as_str();
            // The end of a process is the end of its commands too, and one that is replaced ends soon.
            if !self.is_retired() && self.has_commands(thread).await {
                continue;
            }
            let Err(error) = self.unload(thread).await else { continue };
            tracing::debug!(%error, "a thread that nobody uses was not closed");
            // An old codex does not archive a thread without a turn. It closes one that has no client after a while.
            if self.thread(thread).is_some_and(|state| state.grants() == Some(&[])) {
                let _ = self.call("thread/unsubscribe", json!({ "threadId": thread })).await;
                self.remove_thread(thread);
            }
        }
    }

    fn is_retired(&self) -> bool {
        self.kept.load(Ordering::SeqCst) == 0
    }

    /// Whether a command that a turn left behind still runs in a thread. An older codex cannot tell.
    pub async fn has_commands(&self, thread: &str) -> bool {
        let params = json!({ "threadId": thread });
        let answer = self.rpc.call("thread/backgroundTerminals/list", params, LOOK).await;
        answer.is_ok_and(|answer| answer.result["data"].as_array().is_some_and(|list| !list.is_empty()))
    }

    /// The threads beyond those that stay loaded, oldest use first.
    fn claim_surplus(self: &Arc<Self>) -> Vec<ThreadRoute> {
        let mut routes = self.routes.lock();
        let threads = self.threads.lock();
        let is_idle = |thread: &String| !routes.contains_key(thread);
        let idle = threads.iter().filter(|(thread, state)| state.active.is_none() && is_idle(thread));
        let mut idle: Vec<_> = idle.map(|(thread, state)| (state.used, thread.clone())).collect();
        idle.sort();
        idle.truncate(idle.len().saturating_sub(self.kept.load(Ordering::SeqCst)));
        idle.iter().map(|(_, thread)| self.new_route(&mut routes, thread)).collect()
    }
}
