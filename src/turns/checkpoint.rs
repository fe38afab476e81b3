//! Stores the text of a turn that no room shows, so that after a crash its callers get the text so far.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::TurnEvent;
use crate::ids::TurnId;
use crate::store::Store;
use crate::turn_log::{LogPosition, TurnLog};

/// How long new text waits for its checkpoint. A turn that ends sooner needs none.
const EACH: Duration = Duration::from_secs(1);

/// Bytes of text stored at once, approximately. Small, because each byte is in memory several times meanwhile.
const PIECE: usize = 256 * 1024;

/// Stores new text until the log ends. `kept` is the length that an earlier process stored.
pub(super) async fn keep(store: Store, turn: TurnId, log: Arc<TurnLog>, kept: usize) {
    let (mut position, mut reached, mut kept) = (LogPosition::default(), 0, kept);
    // Text that the store rejected last time, to be stored next time: a hole would be worse than an early end.
    let mut text = String::new();
    loop {
        log.changed(&position).await;
        tokio::select! {
            () = tokio::time::sleep(EACH) => {}
            () = log.ended() => return,
        }
        let mut has_more = true;
        while has_more && !log.is_ended() {
            has_more = text.len() >= PIECE
                || !log.read_all(&mut position, |event, _| {
                    if let TurnEvent::Text(piece) = event {
                        // Replayed text is stored already.
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
                    // The end is stored in any case; checkpoints only make a crash cheaper.
                    tracing::warn!(%error, "a growing answer could not be kept");
                    break;
                }
            }
        }
    }
}
