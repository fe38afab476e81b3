//! The answer to a turn that may have run and must not run again: the agent may find it where it was given.

use super::asks::Voice;
use super::run::Drive;
use super::sink::Sink;
use super::{Running, Turns};
use crate::agent::{Lost, Prepared, RecoveredAnswer, Turn};
use crate::reply::Outcome;
use crate::store::{self, TurnRow};

impl Turns {
    /// Has the agent look for a lost answer. If there is none, the turn ends as `otherwise` says.
    pub(super) async fn recover_or(
        &self,
        row: &TurnRow,
        turn: &Turn,
        prepared: &Prepared,
        sink: &Sink<'_>,
        running: &Running,
        otherwise: Outcome,
    ) -> store::Result<Drive> {
        let earlier = row.clone();
        // Where the same was asked before and nobody knows what became of it, nobody knows whose answer there is.
        let Some(before) = self.store.read(move |tx| tx.answered_before(&earlier)).await? else {
            return Ok(Drive::Over(otherwise));
        };
        let voice = Voice::new(sink, &self.asks, row, &running.stop);
        let agent = self.agent_of(row);
        let found = tokio::select! {
            biased;
            () = running.stop.cancelled() => return Ok(Drive::Over(Outcome::Stopped)),
            // What is stored says as much to the next process as to this one.
            () = self.draining.cancelled() => return Ok(Drive::Suspended),
            found = agent.recover(Lost { turn, prepared, before }, &voice) => found,
        };
        let outcome = match found {
            Some(RecoveredAnswer::Complete(text)) => {
                sink.whole(&text);
                Outcome::Done
            }
            Some(RecoveredAnswer::Partial(text)) => {
                sink.extend_to(&text);
                return Ok(Drive::Over(otherwise));
            }
            None => return Ok(Drive::Over(otherwise)),
        };
        Ok(Drive::Over(if sink.full.is_cancelled() { otherwise } else { outcome }))
    }
}
