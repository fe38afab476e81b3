//! Makes sure that no turn of codex outlives the turn of ours that started it.

use std::sync::Arc;

use super::link::CodexLink;
use super::servers::CodexServers;

/// A turn of codex that may run. Dropping this interrupts it in the background.
pub struct TurnGuard {
    link: Arc<CodexLink>,
    servers: Arc<CodexServers>,
    thread: String,
    is_over: bool,
}

impl TurnGuard {
    /// Called right before the turn is started.
    pub fn new(link: Arc<CodexLink>, servers: Arc<CodexServers>, thread: &str) -> Self {
        link.change_thread(thread, |state| state.begin_turn(None));
        Self { link, servers, thread: thread.to_owned(), is_over: false }
    }

    /// Notes the id of the turn. It may have ended already.
    pub fn started(&self, turn: &str) {
        self.link.change_thread(&self.thread, |state| {
            if state.active.is_some() {
                state.begin_turn(Some(turn));
            }
        });
    }

    /// It is certain that codex did not start the turn.
    pub fn never_started(&mut self) {
        self.link.change_thread(&self.thread, |state| state.active = None);
        self.is_over = true;
    }

    /// Codex has reported the end of the turn.
    pub fn ended(&mut self) {
        self.is_over = true;
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (link, thread) = (self.link.clone(), std::mem::take(&mut self.thread));
        self.servers.spawn("codex-interrupt", async move { link.interrupt(&thread).await });
    }
}
