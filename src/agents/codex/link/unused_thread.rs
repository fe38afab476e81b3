//! Closes a thread that codex has opened for a turn that then did not come to use it. It would hold its MCP servers for
//! nothing.

use serde_json::json;

use super::CodexLink;

/// A thread that codex has opened, and that is not noted as loaded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusedThread {
    /// Codex keeps nothing of it so far. Archiving could make it keep a thread that does not know the conversation.
    New,
    /// Codex has stored it before.
    Stored,
}

impl CodexLink {
    /// Closes a thread to which the caller has the right.
    pub(super) async fn close_unused(&self, thread: &str, unused: UnusedThread) {
        let is_closed = match unused {
            UnusedThread::New => false,
            UnusedThread::Stored => self.unload(thread).await.is_ok(),
        };
        // Codex closes a thread without a client after a while.
        if !is_closed && let Err(error) = self.call("thread/unsubscribe", json!({ "threadId": thread })).await
        {
            tracing::debug!(%error, "a thread that no turn uses was not closed");
        }
    }
}
