//! Makes sure that no turn of codex outlives the turn of ours that started it.

use std::sync::Arc;

use super::link::CodexLink;
use super::loaded_thread::LoadedThread;
use super::servers::CodexServers;
use crate::agents::jsonrpc::RpcError;

/// A turn of codex that may run. Dropping this ends it in the background, with its commands.
pub struct TurnGuard {
    link: Arc<CodexLink>,
    servers: Arc<CodexServers>,
    thread: String,
    is_over: bool,
}

impl TurnGuard {
    /// Called right before the turn is started.
    pub fn new(link: Arc<CodexLink>, servers: Arc<CodexServers>, thread: &str) -> Self {
        link.change_thread(thread, LoadedThread::start_turn);
        Self { link, servers, thread: thread.to_owned(), is_over: false }
    }

    /// The call that should have started the turn failed. Codex may have started it all the same if it did not answer.
    pub fn refused(&mut self, error: &RpcError) {
        match error {
            RpcError::Fault(_) | RpcError::TooLarge { .. } => {
                self.link.change_turn(&self.thread, |state| state.active = None);
                self.is_over = true;
            }
            RpcError::Deadline | RpcError::Gone(_) => {}
        }
    }

    /// Ends the turn, and every command that it has left running.
    pub async fn end(mut self) {
        self.link.end_turn(&self.thread).await;
        self.is_over = true;
    }

    /// Codex has said by which id it knows the turn.
    pub fn named(&self, turn: &str) {
        self.link.change_thread(&self.thread, |state| state.name_turn(turn));
    }

    /// Codex has reported the end of the turn with this id, perhaps before we had noted it.
    pub fn ended(mut self, turn: &str) {
        self.link.change_turn(&self.thread, |state| state.end_turn(turn));
        self.is_over = true;
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (link, thread) = (self.link.clone(), std::mem::take(&mut self.thread));
        self.servers.spawn("codex-interrupt", async move { link.end_turn(&thread).await });
    }
}
