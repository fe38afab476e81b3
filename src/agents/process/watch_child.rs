//! Watches one shim: reads standard error of its command, and learns how it ends.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::CancellationToken;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr};

use super::ProcessExit;
use super::marker::end_marked;
use super::tail_buffer::TailBuffer;

/// Longest wait for the end of standard error after the shim has ended. Something that left the process group may hold
/// it open for ever.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Bytes that are read at a time.
const CHUNK: usize = 4 * 1024;

/// A shim that runs.
pub(super) struct ChildWatch {
    /// The shim. Its standard input and output belong to others.
    pub child: Child,
    /// The marker of this child and no other.
    pub marker: String,
    /// Receives standard error.
    pub stderr: Arc<Mutex<TailBuffer>>,
    /// Fired to kill the shim.
    pub kill: CancellationToken,
}

impl ChildWatch {
    /// Runs until the shim has ended.
    pub(super) async fn run(mut self) -> ProcessExit {
        let reading = read_tail(self.child.stderr.take(), &self.stderr);
        tokio::pin!(reading);
        let (mut is_read, mut is_killed) = (false, false);
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                () = &mut reading, if !is_read => is_read = true,
                () = self.kill.cancelled(), if !is_killed => {
                    is_killed = true;
                    // It may have ended just now; then there is nothing to kill.
                    let _ = self.child.start_kill();
                }
            }
        };
        if !is_read {
            let _ = tokio::time::timeout(LAST_WORDS, reading).await;
        }
        match status {
            Ok(status) if status.signal().is_none() => ProcessExit { code: status.code() },
            Ok(_) | Err(_) => {
                // Nobody ended the command.
                let marker = self.marker;
                let ended =
                    tokio::task::spawn_blocking(move || end_marked(&marker)).await.unwrap_or_default();
                tracing::warn!(groups = ended, "a shim was killed; its process group was ended instead");
                ProcessExit { code: None }
            }
        }
    }
}

async fn read_tail(stderr: Option<ChildStderr>, tail: &Mutex<TailBuffer>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0; CHUNK];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.lock().push(buffer.get(..read).unwrap_or_default());
    }
}
