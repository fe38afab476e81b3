//! One try of a turn: stores its request before it is sent, and runs the agent once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_platform::{BoxFuture, PlaceLifetime};
use tokio_util::sync::CancellationToken;

use super::output::TurnOutput;
use super::sink::TurnSink;
use super::{RunningTurn, Turns, fallback_notices, input_slot, source};
use crate::agent::{
    AgentError, AgentErrorKind, AgentInfo, AgentTurn, AttemptKind, PreparedTurn, RewindSupport, SharedAgent,
    TurnEnd,
};
use crate::i18n::TextKey;
use crate::metrics::GaugeGuard;
use crate::poll_when_woken::poll_when_woken;
use crate::store::{self, TurnRow};
use crate::testing::failpoint;

/// Whether the agent may be run with the request of a try.
enum RequestReadiness {
    /// The request is stored.
    Stored,
    /// The try ended before that, and the agent is not run.
    Ended(Result<TurnEnd, AgentError>),
}

impl Turns {
    /// Prepares and stores the request if there is none, and runs the agent once. After that a large prompt is only in
    /// the store; see [`Turns::load_input`].
    pub(super) async fn attempt(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<Result<TurnEnd, AgentError>> {
        failpoint("turn.taken");
        // One agent for the whole try: a reload may replace it meanwhile.
        let own = self.agent_of(row);
        turn.agent = own.name.clone();
        let about = own.agent.about();
        if prepared.as_ref().is_some_and(|prepared| about.taking(&own.name, &prepared.agent).is_none()) {
            match turn.attempt {
                AttemptKind::First => *prepared = None,
                AttemptKind::Resume => {
                    return Ok(Err(AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume)));
                }
            }
        }
        match Box::pin(self.make_ready(&own.agent, row, turn, prepared, sink, running)).await? {
            RequestReadiness::Stored => {}
            RequestReadiness::Ended(end) => return Ok(end),
        }
        let Some(prepared) = prepared.as_mut() else { return Ok(Ok(TurnEnd::Stopped)) };
        failpoint("turn.dispatched");

        let request = input_slot::hand_over(prepared, running);
        Ok(self.run_agent(&own.agent, row, turn, request, sink, running).await)
    }

    async fn run_agent(
        &self,
        agent: &SharedAgent,
        row: &Arc<TurnRow>,
        turn: &AgentTurn,
        prepared: PreparedTurn,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> Result<TurnEnd, AgentError> {
        let (stop, resumable, asked) = (CancellationToken::new(), prepared.resumable, prepared.agent.clone());
        let output = TurnOutput::new(sink, &self.asks, row, &running.stop);
        let _streaming = GaugeGuard::new(&self.metrics.streams);
        let mut run = agent.run_turn(turn, prepared, &output, stop.clone());
        // Every delta comes by here, so the other futures are polled only when they were woken.
        let mut interrupted = poll_when_woken(self.interrupted(running, sink));
        let mut reports = poll_when_woken(self.keep_reports(&row.session, &asked, &output.reports));
        let ended = tokio::select! {
            biased;
            () = &mut interrupted => None,
            end = &mut run => Some(end),
            never = &mut reports => match never {},
        };
        drop(reports);
        let end = match ended {
            Some(end) => end,
            None => {
                let resume = resumable
                    && !source::is_ephemeral(&row.source)
                    && self.lasts(&row.source) == PlaceLifetime::Always;
                Box::pin(self.interrupt(run, stop, resume, sink, running)).await
            }
        };
        // The next turn of the session must find the last report.
        Box::pin(self.store_report(&row.session, &asked, &output.reports)).await;
        end
    }

    /// Ends a running agent early. `resume`: the next process may resume the run.
    async fn interrupt(
        &self,
        run: BoxFuture<'_, Result<TurnEnd, AgentError>>,
        stop: CancellationToken,
        resume: bool,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> Result<TurnEnd, AgentError> {
        if running.stop.is_cancelled() {
            sink.freeze();
        }
        let wanted =
            self.draining.is_cancelled() && !running.stop.is_cancelled() && !sink.full.is_cancelled();
        if wanted && resume {
            // The upstream must not be told to end the run: it is only dropped.
            return Ok(TurnEnd::Stopped);
        }
        stop.cancel();
        // An agent that does not end in time is dropped, which ends it too.
        tokio::time::timeout(self.settings.stop_grace, run).await.unwrap_or(Ok(TurnEnd::Stopped))
    }

    /// Makes the request if there is none, and stores it.
    async fn make_ready(
        &self,
        agent: &SharedAgent,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        prepared: &mut Option<PreparedTurn>,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<RequestReadiness> {
        loop {
            if prepared.is_none() {
                let made = tokio::select! {
                    // First, because after an interruption the attachments may be missing, and a request without
                    // them must not be stored.
                    biased;
                    () = self.interrupted(running, sink) => return Ok(RequestReadiness::Ended(Ok(TurnEnd::Stopped))),
                    made = agent.prepare(turn) => made,
                };
                match made {
                    Ok(made) => *prepared = Some(made),
                    Err(error) => return Ok(RequestReadiness::Ended(Err(error))),
                }
                failpoint("turn.prepared");
            }
            if let Some(prepared) = prepared.as_ref() {
                input_slot::set_aside(row, turn, running);
                if self.dispatch(&agent.about(), row, turn, prepared).await? {
                    return Ok(RequestReadiness::Stored);
                }
            }
            // The prompt was edited while the request was made, so the request is not sent.
            *prepared = None;
            if !self.follow_edit(row, turn, sink, running).await? {
                return Ok(RequestReadiness::Ended(Ok(TurnEnd::Stopped)));
            }
        }
    }

    /// Stores the request, and settles in the same transaction under which id the agent is asked in the session and
    /// whether the room is told that the fallback answers. `false`: the prompt was edited meanwhile, and the request is
    /// of no use.
    async fn dispatch(
        &self,
        about: &AgentInfo,
        row: &TurnRow,
        turn: &mut AgentTurn,
        prepared: &PreparedTurn,
    ) -> store::Result<bool> {
        let (id, session, stored) = (row.id.clone(), row.session.clone(), prepared.clone());
        let prompt = source::prompt_may_be_edited(&row.source).then(|| row.prompt.clone());
        let max = source::max_text(&self.delivery, &row.source);
        let asked = about.taking(&turn.agent, &prepared.agent);
        let rewind = asked.map_or(RewindSupport::Unknown, |asked| asked.rewind);
        let attempt = turn.attempt;
        let notice = match prepared.agent == turn.agent {
            true => None,
            false => Some(fallback_notices::away(row, max, about, &self.live.now().words)),
        };
        let written = self.store.write(move |tx| {
            if !tx.dispatch(&id, prompt.as_deref(), &stored)? {
                return Ok(None);
            }
            let asked = match attempt {
                AttemptKind::First => tx.ask_agent(&session, &stored.agent, rewind)?,
                // The session is the one of the try that may have run.
                AttemptKind::Resume => tx.agent_session(&session, &stored.agent)?,
            };
            let told = match notice {
                Some(notice) if tx.fallback_begins(&session)? => notice,
                Some(_) | None => Vec::new(),
            };
            told.iter().try_for_each(|notice| tx.add_outbox(notice))?;
            Ok(Some((asked, !told.is_empty())))
        });
        let Some((asked, told)) = written.await? else { return Ok(false) };
        (turn.session, turn.upstream) = (asked.id, asked.upstream);
        if asked.replaced {
            // Told when the session has nothing more to do.
            self.ends_wait.store(true, Ordering::Release);
        }
        if told && let Some(account) = self.account_of(&row.source) {
            account.wake();
        }
        Ok(true)
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
