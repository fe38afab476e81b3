//! The task that writes lines to the peer, one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use super::RpcLink;
use super::failure::BreakCause;

/// Longest time until the peer has taken one line. A healthy peer reads at once; one that does not read for this long has
/// half of a line from us, so the connection is of no use any more.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(30);

/// A line for the peer.
#[derive(Debug)]
pub(super) struct OutgoingLine {
    /// With the line break.
    pub bytes: Vec<u8>,
    /// The call, if it is one.
    pub call: Option<i64>,
    /// Told when it is written.
    pub written: oneshot::Sender<()>,
}

/// Writes until the last client is dropped, the process is gone, or it does not read.
pub(super) async fn run<W: AsyncWrite + Send + Unpin>(
    mut to_peer: W,
    mut lines: mpsc::Receiver<OutgoingLine>,
    link: Arc<RpcLink>,
) {
    let mut gone = link.gone.subscribe();
    loop {
        let next = tokio::select! {
            next = lines.recv() => next,
            _ = gone.wait_for(Option::is_some) => None,
        };
        let Some(line) = next else { return };
        // A call that its caller gave up must not be done later.
        let is_wanted = match line.call {
            Some(id) => link.calls.is_waiting(id),
            None => !line.written.is_closed(),
        };
        if !is_wanted {
            continue;
        }
        let writing = async {
            to_peer.write_all(&line.bytes).await?;
            to_peer.flush().await
        };
        match tokio::time::timeout(WRITE_TIME, writing).await {
            // Nobody waits for the news of a call.
            Ok(Ok(())) => drop(line.written.send(())),
            // Mostly it has just ended. The reader takes its last words and its exit status, and tells everybody.
            Ok(Err(_)) => return link.peer.close(None),
            Err(_) => return link.peer.close(Some(BreakCause::NotReading)),
        }
    }
}
