//! Recovers the answer to a turn that may have run and must not run again, if the agent can find it.

use super::output::TurnOutput;
use super::run::RunResult;
use super::sink::TurnSink;
use super::{RunningTurn, Turns};
use crate::agent::{AgentTurn, LostTurn, PreparedTurn, RecoveredAnswer};
use crate::reply::TurnOutcome;
use crate::store::{self, TurnRow};

impl Turns {
    /// Lets the agent look for a lost answer. Without one the turn ends with `otherwise`.
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
        // If the same prompt was asked before with an unknown end, an answer could belong to either.
        let Some(before) = self.store.read(move |tx| tx.answered_before(&earlier)).await? else {
            return Ok(RunResult::Over(otherwise));
        };
        let output = TurnOutput::new(sink, &self.asks, row, &self.store, &running.stop);
        let agent = self.agent_of(row).agent;
        let found = tokio::select! {
            biased;
            () = running.stop.cancelled() => return Ok(RunResult::Over(TurnOutcome::Stopped)),
            // The next process can look as well as this one: everything it needs is stored.
            () = self.draining.cancelled() => return Ok(RunResult::Suspended),
            found = agent.recover(LostTurn { turn, prepared, before }, &output) => found,
        };
        self.store_report(&row.session, &prepared.agent, &output.reports).await;
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
