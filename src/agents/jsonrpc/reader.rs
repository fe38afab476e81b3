//! The task that reads lines of the peer, until it is gone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;

use super::failure::BreakCause;
use super::incoming_queue::QueuedMessage;
use super::line_reader::{LineReader, ReadLine};
use super::wire::{LineKind, kind_of};
use super::{RpcLimits, RpcLink};

/// Time to read what a process wrote before it ended. Something that it started may hold its output open, and a consumer
/// may never take what fills the queue.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Reads until the end, then tells all callers and the consumer that the process is gone.
pub(super) async fn run<R: AsyncRead + Send + Unpin>(from_peer: R, link: Arc<RpcLink>, limits: RpcLimits) {
    let reading = read_lines(from_peer, &link, limits);
    let ended = async {
        link.peer.exited().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let read = tokio::select! {
        read = reading => read,
        () = ended => Ok(()),
    };
    if let Err(error) = read
        && error.kind() == io::ErrorKind::InvalidData
    {
        link.peer.close(Some(BreakCause::Noise));
    }
    let failure = link.peer.failure().await;
    link.calls.fail(&failure);
    link.incoming.close();
    link.gone.send_replace(Some(failure));
}

/// An error of the kind `InvalidData` means that the peer sends nothing but noise.
async fn read_lines<R: AsyncRead + Unpin>(from_peer: R, link: &RpcLink, limits: RpcLimits) -> io::Result<()> {
    let mut lines = LineReader::new(from_peer, limits.line_bytes, limits.noise_bytes);
    // Bytes since the last message.
    let mut noise = 0;
    while let Some(line) = lines.next().await? {
        let bytes = match line {
            ReadLine::Kept(line) => match take_line(line, link).await {
                Ok(()) => {
                    noise = 0;
                    continue;
                }
                Err(bytes) => bytes,
            },
            ReadLine::Skipped(bytes) => bytes,
        };
        // The line break counts: a flood of empty lines is one too.
        noise += bytes + 1;
        let skipped = link.incoming.count_noise();
        if skipped.is_power_of_two() {
            tracing::warn!(skipped, bytes, "skipped a line of a process that is no message");
        }
        if noise > limits.noise_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "nothing but noise"));
        }
    }
    Ok(())
}

/// Passes a message on. An error is the length of a line that is none.
async fn take_line(line: Vec<u8>, link: &RpcLink) -> Result<(), usize> {
    match kind_of(&line) {
        LineKind::Message { method, request } => {
            link.incoming.push(QueuedMessage { method, request, line }).await;
            Ok(())
        }
        LineKind::Answer(id) => {
            let position = link.incoming.position();
            if !id.is_some_and(|id| link.calls.answer(id, line, position)) {
                tracing::debug!(id, "an answer came that nobody waits for");
            }
            Ok(())
        }
        LineKind::Noise => Err(line.len()),
    }
}
