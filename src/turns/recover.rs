//! Recovers the answer to a turn that may have run and must not run again, if the agent can find it.

use super::output::TurnOutput;
use super::run::RunResult;
use super::turn_run::TurnRun;
use crate::agent::{LostTurn, RecoveredAnswer};
use crate::reply::TurnOutcome;
use crate::store::{self, TurnRow};

impl TurnRun<'_> {
    /// Lets the agent look for a lost answer. Without one the turn ends with `otherwise`.
    pub async fn recover_or(&self, otherwise: TurnOutcome) -> store::Result<RunResult> {
        let Some(prepared) = &self.prepared else { return Ok(RunResult::Over(otherwise)) };
        let (turns, sink, stop) = (self.turns, &self.sink, &self.running.stop);
        let earlier = TurnRow::clone(self.row);
        let before = turns.store.read(move |tx| tx.equal_before(&earlier)).await?;
        let output = TurnOutput::new(sink, &turns.asks, self.row, &turns.store, &prepared.agent, stop);
        let agent = turns.agent_of(self.row).agent;
        let found = tokio::select! {
            biased;
            () = stop.cancelled() => {
                // The turn may still run there: its id was lost, or only its end.
                turns.abandon(&agent, &self.turn).await;
                return Ok(RunResult::Over(TurnOutcome::Stopped));
            }
            // The next process can look as well as this one: everything it needs is stored.
            () = turns.draining.cancelled() => return Ok(RunResult::Suspended),
            found = agent.recover(LostTurn { turn: &self.turn, prepared, before }, &output) => found,
        };
        turns.store_report(&self.row.session, &prepared.agent, &output.reports).await;
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
