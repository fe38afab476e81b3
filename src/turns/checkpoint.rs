//! Keeps the text of a turn that no room shows: after a crash whoever asks gets what there was.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::log::{LogPosition, TurnLog};
use crate::agent::TurnEvent;
use crate::ids::TurnId;
use crate::store::Store;

/// How often text is kept, at most.
const EACH: Duration = Duration::from_secs(1);

/// Bytes of text that are kept at once, about. Small, because each of them is in memory several times meanwhile.
const PIECE: usize = 256 * 1024;

/// Keeps what comes until the log ends. `kept` is how much an earlier process kept.
pub(super) async fn keep(store: Store, turn: TurnId, log: Arc<TurnLog>, kept: usize) {
    let (mut position, mut reached, mut kept) = (LogPosition::default(), 0, kept);
    // What the store did not take the last time stays for the next: a hole would be worse than an end.
    let mut text = String::new();
    loop {
        log.changed(&position).await;
        if log.is_ended() {
            return;
        }
        let next = Instant::now() + EACH;
        let mut has_more = true;
        while has_more && !log.is_ended() {
            has_more = text.len() >= PIECE
                || !log.read_all(&mut position, |event, _| {
                    if let TurnEvent::Text(piece) = event {
                        // What is replayed is kept already.
                        let known = (kept + text.len()).saturating_sub(reached).min(piece.len());
                        reached += piece.len();
                        text.push_str(piece.get(known..).unwrap_or(piece));
                    }
                    if text.len() < PIECE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            if text.is_empty() {
                continue;
            }
            let (id, offset, piece) = (turn.clone(), kept, text.clone());
            match store.write(move |tx| tx.checkpoint(&id, offset, &piece)).await {
                Ok(()) => {
                    kept += text.len();
                    text.clear();
                }
                Err(error) => {
                    // The end is stored whatever becomes of this; it only makes a crash cheaper.
                    tracing::warn!(%error, "a growing answer could not be kept");
                    break;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = log.ended() => return,
        }
    }
}
