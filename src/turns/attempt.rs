//! One try of a turn: its request, stored before it is sent, and one run of the agent.

use std::sync::Arc;

use talaria_platform::PlaceLifetime;
use tokio_util::sync::CancellationToken;

use super::asks::TurnOutput;
use super::sink::TurnSink;
use super::{RunningTurn, Turns, fallback_notices, input_slot, source};
use crate::agent::{AgentError, AgentTurn, PreparedTurn, TurnEnd};
use crate::metrics::GaugeGuard;
use crate::poll_when_woken::poll_when_woken;
use crate::store::{self, TurnRow};
use crate::testing::failpoint;

impl Turns {
    /// Prepares and stores the request where that has not happened, and runs the agent once. A large question is only in
    /// the store after that; see [`Turns::load_input`].
    pub(super) async fn attempt(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<Result<TurnEnd, AgentError>> {
        failpoint("turn.taken");
        if let Err(end) = Box::pin(self.make_ready(row, turn, prepared, sink, running)).await? {
            return Ok(end);
        }
        let Some(prepared) = prepared.as_mut() else { return Ok(Ok(TurnEnd::Stopped)) };
        failpoint("turn.dispatched");

        let request = input_slot::hand_over(prepared, running);
        Ok(self.run_agent(row, turn, request, sink, running).await)
    }

    async fn run_agent(
        &self,
        row: &Arc<TurnRow>,
        turn: &AgentTurn,
        prepared: PreparedTurn,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> Result<TurnEnd, AgentError> {
        let (stop, resumable) = (CancellationToken::new(), prepared.resumable);
        let output = TurnOutput::new(sink, &self.asks, row, &running.stop);
        let agent = self.agent_of(row);
        let _streaming = GaugeGuard::new(&self.metrics.streams);
        let mut run = agent.run_turn(turn, prepared, &output, stop.clone());
        // Every delta comes by here, so nothing else is looked at that did not call.
        let mut interrupted = poll_when_woken(self.interrupted(running, sink));
        tokio::select! {
            biased;
            () = &mut interrupted => {}
            end = &mut run => return end,
        }
        if running.stop.is_cancelled() {
            sink.freeze();
        }
        let wanted =
            self.draining.is_cancelled() && !running.stop.is_cancelled() && !sink.full.is_cancelled();
        if wanted
            && resumable
            && !source::is_ephemeral(&row.source)
            && self.lasts(&row.source) == PlaceLifetime::Always
        {
            // The next process asks for this very run, so it must not be told to end: it is only let go.
            return Ok(TurnEnd::Stopped);
        }
        stop.cancel();
        // An agent that does not end in time is dropped, which ends it too.
        tokio::time::timeout(self.settings.stop_grace, run).await.unwrap_or(Ok(TurnEnd::Stopped))
    }

    /// Makes the request where there is none, and stores it. `Err` if it does not come to that.
    async fn make_ready(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<Result<(), Result<TurnEnd, AgentError>>> {
        loop {
            if prepared.is_none() {
                let agent = self.agent_of(row);
                let made = tokio::select! {
                    // Also looked at before anything is made: what is attached may not have been fetched then, and a
                    // request without it must not be stored.
                    biased;
                    () = self.interrupted(running, sink) => return Ok(Err(Ok(TurnEnd::Stopped))),
                    made = agent.prepare(turn) => made,
                };
                match made {
                    Ok(made) => *prepared = Some(made),
                    Err(error) => return Ok(Err(Err(error))),
                }
                failpoint("turn.prepared");
            }
            if let Some(prepared) = prepared.as_ref() {
                input_slot::set_aside(row, turn, running);
                if self.dispatch(row, prepared).await? {
                    return Ok(Ok(()));
                }
            }
            // It was edited while the request was made: what was not asked any more is not sent.
            *prepared = None;
            if !self.follow_edit(row, turn, sink, running).await? {
                return Ok(Err(Ok(TurnEnd::Stopped)));
            }
        }
    }

    /// Stores the request, and with it what the room is told if the stand-in is asked here for the first time.
    /// `false`: the question was edited meanwhile, and the request is of no use.
    async fn dispatch(&self, row: &TurnRow, prepared: &PreparedTurn) -> store::Result<bool> {
        let (id, session, stored) = (row.id.clone(), row.session.clone(), prepared.clone());
        let prompt = source::may_be_edited(&row.source).then(|| row.prompt.clone());
        let max = source::max_text(&self.delivery, &row.source);
        let notice = match prepared.stand_in {
            true => fallback_notices::away(row, max, &self.agent_of(row).about(), &self.live.now().words),
            false => Vec::new(),
        };
        let told = self.store.write(move |tx| {
            if !tx.dispatch(&id, prompt.as_deref(), &stored)? {
                return Ok(None);
            }
            let news = stored.stand_in && tx.go_over(&session)?;
            let told = if news { notice } else { Vec::new() };
            told.iter().try_for_each(|notice| tx.add_outbox(notice))?;
            Ok(Some(!told.is_empty()))
        });
        let told = told.await?;
        if told == Some(true)
            && let Some(account) = self.account_of(&row.source)
        {
            account.wake();
        }
        Ok(told.is_some())
    }

    /// Waits for any reason to end a running agent early.
    pub(super) async fn interrupted(&self, running: &RunningTurn, sink: &TurnSink<'_>) {
        tokio::select! {
            () = running.stop.cancelled() => {}
            () = self.draining.cancelled() => {}
            () = sink.full.cancelled() => {}
        }
    }
}
