//! One try of a turn: stores its request before it is sent, and runs the agent once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_platform::{BoxFuture, PlaceLifetime};
use tokio_util::sync::CancellationToken;

use super::input_slot::{self, Reload};
use super::output::TurnOutput;
use super::sink::TurnSink;
use super::source::{self, may_talk_to};
use super::token_budget::{self, UsedUp};
use super::{RunningTurn, Turns, fallback_notices};
use crate::agent::{
    AgentError, AgentErrorKind, AgentInfo, AgentTurn, AttemptKind, PreparedTurn, RewindSupport, SharedAgent,
    TurnEnd,
};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, TurnId};
use crate::metrics::GaugeGuard;
use crate::poll_when_woken::poll_when_woken;
use crate::rules::Rules;
use crate::store::{self, TokenPayer, TurnRow, Tx};
use crate::testing::failpoint;

/// How one try ended.
pub(super) enum AttemptEnd {
    /// The end that the agent reports, or that the engine decides on in its place.
    Ran(Result<TurnEnd, AgentError>),
    /// The asker may not talk to the agent of the turn any more, as this sentence says. Nothing ran, and the agent is
    /// not to blame.
    NotAdmitted(LocalizedText),
    /// A budget of tokens is used up. Nothing ran, and the agent is not to blame.
    UsedUp(UsedUp),
}

/// Why the transaction did not store a request.
enum DispatchRefusal {
    /// The prompt was edited meanwhile, so the request is of no use.
    Edited,
    /// The request is for the fallback, which the asker may not talk to.
    WithoutFallback,
    /// The asker may not talk to the agent of the turn any more.
    NotAdmitted(LocalizedText),
    /// A budget of tokens is used up.
    UsedUp(UsedUp),
}

/// Whether the agent may be run with the request of a try.
enum RequestReadiness {
    /// The request is stored.
    Stored,
    /// The try ended before that, and the agent is not run.
    Ended(AttemptEnd),
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
    ) -> store::Result<AttemptEnd> {
        failpoint("turn.taken");
        // One agent for the whole try: a reload may replace it meanwhile.
        let own = self.agent_of(row);
        turn.agent = own.name.clone();
        let about = own.agent.about();
        if prepared.as_ref().is_some_and(|prepared| about.taking(&own.name, &prepared.agent).is_none()) {
            match turn.attempt {
                AttemptKind::First => *prepared = None,
                AttemptKind::Resume => {
                    let error = AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume);
                    return Ok(AttemptEnd::Ran(Err(error)));
                }
            }
        }
        match Box::pin(self.make_ready(&own.agent, row, turn, prepared, sink, running)).await? {
            RequestReadiness::Stored => {}
            RequestReadiness::Ended(end) => return Ok(end),
        }
        let Some(prepared) = prepared.as_mut() else { return Ok(AttemptEnd::Ran(Ok(TurnEnd::Stopped))) };
        failpoint("turn.dispatched");

        let request = input_slot::hand_over(prepared, running);
        Ok(AttemptEnd::Ran(self.run_agent(&own.agent, row, turn, request, sink, running).await))
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
        let stopped = || Ok(RequestReadiness::Ended(AttemptEnd::Ran(Ok(TurnEnd::Stopped))));
        loop {
            if prepared.is_none() {
                let made = tokio::select! {
                    // First, because after an interruption the attachments may be missing, and a request without
                    // them must not be stored.
                    biased;
                    () = self.interrupted(running, sink) => return stopped(),
                    made = agent.prepare(turn) => made,
                };
                match made {
                    Ok(made) => *prepared = Some(made),
                    Err(error) => return Ok(RequestReadiness::Ended(AttemptEnd::Ran(Err(error)))),
                }
                failpoint("turn.prepared");
            }
            let Some(made) = prepared.as_ref() else { return stopped() };
            input_slot::set_aside(row, turn, running);
            let Err(refusal) = self.dispatch(&agent.about(), row, turn, made).await? else {
                return Ok(RequestReadiness::Stored);
            };
            *prepared = None;
            match refusal {
                DispatchRefusal::Edited => {
                    if !self.follow_edit(row, turn, sink, running).await? {
                        return stopped();
                    }
                }
                DispatchRefusal::WithoutFallback => {
                    turn.without_fallback = true;
                    self.load_input(row, turn, prepared, Reload::All, (sink, running)).await?;
                }
                DispatchRefusal::NotAdmitted(words) => {
                    return Ok(RequestReadiness::Ended(AttemptEnd::NotAdmitted(words)));
                }
                DispatchRefusal::UsedUp(used_up) => {
                    return Ok(RequestReadiness::Ended(AttemptEnd::UsedUp(used_up)));
                }
            }
        }
    }

    /// Stores the request, and settles in the same transaction whether the asker may talk to the agent that it was made
    /// for, how many tokens the budget leaves, under which id that agent is asked in the session, and whether the room is
    /// told that the fallback answers.
    async fn dispatch(
        &self,
        about: &AgentInfo,
        row: &TurnRow,
        turn: &mut AgentTurn,
        prepared: &PreparedTurn,
    ) -> store::Result<Result<(), DispatchRefusal>> {
        let (own, live) = (turn.agent.clone(), self.live.clone());
        let (id, session, stored) = (row.id.clone(), row.session.clone(), prepared.clone());
        let prompt = source::prompt_may_be_edited(&row.source).then(|| row.prompt.clone());
        let max = source::max_text(&self.delivery, &row.source);
        let asked = about.taking(&turn.agent, &prepared.agent);
        let rewind = asked.map_or(RewindSupport::Unknown, |asked| asked.rewind);
        let attempt = turn.attempt;
        let payer = TokenPayer::of(&row.source);
        let notice = match prepared.agent == turn.agent {
            true => None,
            false => Some(fallback_notices::away(row, max, about, &self.live.now().words)),
        };
        let written = self.store.write(move |tx| {
            // A try that may have run is resumed; a reload stops it if its asker lost the agent.
            if attempt == AttemptKind::First
                && let Some(refusal) = not_admitted(tx, &live.now(), &id, &own, &stored.agent)?
            {
                return Ok(Err(refusal));
            }
            let tokens_left = match token_budget::tokens_left(tx, live.now().budget, &payer, &stored.agent)? {
                Ok(left) => left,
                // It is too late to refuse a try that may have run.
                Err(_) if attempt == AttemptKind::Resume => Some(0),
                Err(used_up) => return Ok(Err(DispatchRefusal::UsedUp(used_up))),
            };
            if !tx.dispatch(&id, prompt.as_deref(), &stored)? {
                return Ok(Err(DispatchRefusal::Edited));
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
            Ok(Ok((asked, !told.is_empty(), tokens_left)))
        });
        let (asked, told, tokens_left) = match written.await? {
            Ok(written) => written,
            Err(refusal) => return Ok(Err(refusal)),
        };
        (turn.session, turn.upstream, turn.tokens_left) = (asked.id, asked.upstream, tokens_left);
        if asked.replaced {
            // Told when the session has nothing more to do.
            self.ends_wait.store(true, Ordering::Release);
        }
        if told && let Some(account) = self.account_of(&row.source) {
            account.wake();
        }
        Ok(Ok(()))
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

/// Why the asker of a turn may not talk to its agent, or to the fallback that the request was made for, if so. The rules
/// and the agent that is asked may both have changed since the turn was loaded.
fn not_admitted(
    tx: &Tx<'_>,
    rules: &Rules,
    id: &TurnId,
    own: &AgentName,
    asked: &AgentName,
) -> store::Result<Option<DispatchRefusal>> {
    // Without a turn nothing is dispatched either.
    let Some(turn) = tx.turn_head(id)? else { return Ok(None) };
    if !may_talk_to(tx, rules, &turn.source, own)? {
        let why = match rules.agents.by_name.contains_key(own) {
            true => TextKey::AgentRefused,
            false => TextKey::AgentGone,
        };
        return Ok(Some(DispatchRefusal::NotAdmitted(why.with("name", own.as_str()))));
    }
    let refuses = asked != own && !may_talk_to(tx, rules, &turn.source, asked)?;
    Ok(refuses.then_some(DispatchRefusal::WithoutFallback))
}
