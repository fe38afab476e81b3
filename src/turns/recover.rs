//! The answer to a turn that may have run and must not run again: the agent may find it where it was given.

use super::asks::TurnOutput;
use super::run::RunResult;
use super::sink::TurnSink;
use super::{RunningTurn, Turns};
use crate::agent::{AgentTurn, LostTurn, PreparedTurn, RecoveredAnswer};
use crate::reply::TurnOutcome;
use crate::store::{self, TurnRow};

impl Turns {
    /// Has the agent look for a lost answer. If there is none, the turn ends as `otherwise` says.
    pub(super) async fn recover_or(
        &self,
        row: &TurnRow,
        turn: &AgentTurn,
        prepared: &PreparedTurn,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
        otherwise: TurnOutcome,
    ) -> store::Result<RunResult> {
        let earlier = row.clone();
        // Where the same was asked before and nobody knows what became of it, nobody knows whose answer there is.
        let Some(before) = self.store.read(move |tx| tx.answered_before(&earlier)).await? else {
            return Ok(RunResult::Over(otherwise));
        };
        let output = TurnOutput::new(sink, &self.asks, row, &running.stop);
        let agent = self.agent_of(row);
        let found = tokio::select! {
            biased;
            () = running.stop.cancelled() => return Ok(RunResult::Over(TurnOutcome::Stopped)),
            // What is stored says as much to the next process as to this one.
            () = self.draining.cancelled() => return Ok(RunResult::Suspended),
            found = agent.recover(LostTurn { turn, prepared, before }, &output) => found,
        };
        let outcome = match found {
            Some(RecoveredAnswer::Complete(text)) => {
                sink.replace_text(&text);
                TurnOutcome::Done
            }
            Some(RecoveredAnswer::Partial(text)) => {
                sink.extend_to(&text);
                return Ok(RunResult::Over(otherwise));
            }
            None => return Ok(RunResult::Over(otherwise)),
        };
        Ok(RunResult::Over(if sink.full.is_cancelled() { otherwise } else { outcome }))
    }
}
