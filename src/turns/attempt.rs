//! One try of a turn: stores its request before it is sent, and runs the agent once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use talaria_platform::{BoxFuture, PlaceLifetime};
use tokio_util::sync::CancellationToken;

use super::fallback_notices;
use super::input_slot::Reload;
use super::output::TurnOutput;
use super::source::{self, may_talk_to};
use super::token_budget::{self, UsedUp};
use super::turn_run::TurnRun;
use crate::agent::{
    AgentError, AgentErrorKind, AgentInfo, AttemptKind, PreparedTurn, RewindSupport, SharedAgent, TurnEnd,
};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, TurnId};
use crate::metrics::GaugeGuard;
use crate::poll_when_woken::poll_when_woken;
use crate::rules::Rules;
use crate::store::{self, TokenPayer, Tx};
use crate::testing::failpoint;

/// Time for a try to become resumable when the process is about to end. A server tells the id of a run at once; the end of
/// the process must not wait for one that does not.
const BEGINNING: Duration = Duration::from_secs(2);

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
    /// The agent was switched to another runtime meanwhile, which must make a request of its own.
    OtherRuntime,
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

impl TurnRun<'_> {
    /// Prepares and stores the request if there is none, and runs the agent once. After that a large prompt is only in
    /// the store; see [`TurnRun::load_input`].
    pub async fn attempt(&mut self) -> store::Result<AttemptEnd> {
        failpoint("turn.taken");
        // One agent for the whole try: a reload may replace it meanwhile.
        let own = self.turns.agent_of(self.row);
        self.turn.agent = own.name.clone();
        let about = own.agent.about();
        if self.prepared.as_ref().is_some_and(|prepared| about.taking_request(&own.name, prepared).is_none())
        {
            match self.turn.attempt {
                AttemptKind::First => self.prepared = None,
                AttemptKind::Resume => {
                    let error = AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume);
                    return Ok(AttemptEnd::Ran(Err(error)));
                }
            }
        }
        match Box::pin(self.make_ready(&own.agent)).await? {
            RequestReadiness::Stored => {}
            RequestReadiness::Ended(end) => return Ok(end),
        }
        let Some(request) = self.hand_over() else { return Ok(AttemptEnd::Ran(Ok(TurnEnd::Stopped))) };
        failpoint("turn.dispatched");

        Ok(AttemptEnd::Ran(self.run_agent(&own.agent, request).await))
    }

    async fn run_agent(&self, agent: &SharedAgent, prepared: PreparedTurn) -> Result<TurnEnd, AgentError> {
        let (turns, row) = (self.turns, &*self.row);
        let (stop, resumable, asked) = (CancellationToken::new(), prepared.resumable, prepared.agent.clone());
        let output = TurnOutput::new(&self.sink, &turns.asks, row, &turns.store, &asked, &self.running.stop);
        let _streaming = GaugeGuard::new(&turns.metrics.streams);
        let mut run = agent.run_turn(&self.turn, prepared, &output, stop.clone());
        // Every delta comes by here, so the other futures are polled only when they were woken.
        let mut interrupted = poll_when_woken(self.interrupted());
        let mut reports = poll_when_woken(turns.keep_reports(&row.session, &asked, &output.reports));
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
                    && turns.lasts(&row.source) == PlaceLifetime::Always;
                Box::pin(self.interrupt(agent, run, stop, resume)).await
            }
        };
        // The next turn of the session must find the last report.
        Box::pin(turns.store_report(&row.session, &asked, &output.reports)).await;
        end
    }

    /// Ends a running agent early. `resume`: the next process may resume the run.
    async fn interrupt(
        &self,
        agent: &SharedAgent,
        mut run: BoxFuture<'_, Result<TurnEnd, AgentError>>,
        stop: CancellationToken,
        resume: bool,
    ) -> Result<TurnEnd, AgentError> {
        let stopped = self.running.stop.is_cancelled();
        if stopped {
            self.sink.freeze();
        }
        let wanted = self.turns.draining.is_cancelled() && !stopped && !self.sink.full.is_cancelled();
        if wanted && resume {
            if let Some(resumable) = agent.until_resumable(&self.turn) {
                tokio::select! {
                    biased;
                    // First, because most tries are resumable already, and must not go on.
                    () = resumable => {}
                    end = &mut run => return end,
                    () = tokio::time::sleep(BEGINNING) => {}
                }
            }
            // The upstream must not be told to end the run: it is only dropped.
            return Ok(TurnEnd::Stopped);
        }
        stop.cancel();
        // An agent that does not end in time is dropped, which ends it too.
        let end = tokio::time::timeout(self.turns.settings.stop_grace, run).await;
        // Only what its upstream has yet to be told is left.
        if matches!(end, Ok(Ok(TurnEnd::Stopped)) | Err(_)) {
            agent.abandon(&self.turn).into_iter().for_each(|work| self.turns.end_later(work));
        }
        end.unwrap_or(Ok(TurnEnd::Stopped))
    }

    /// Makes the request if there is none, and stores it.
    async fn make_ready(&mut self, agent: &SharedAgent) -> store::Result<RequestReadiness> {
        let stopped = || Ok(RequestReadiness::Ended(AttemptEnd::Ran(Ok(TurnEnd::Stopped))));
        loop {
            if self.prepared.is_none() {
                let made = tokio::select! {
                    // First, because after an interruption the attachments may be missing, and a request without
                    // them must not be stored.
                    biased;
                    () = self.interrupted() => return stopped(),
                    made = agent.prepare(&self.turn) => made,
                };
                match made {
                    Ok(made) => self.prepared = Some(made),
                    Err(error) => return Ok(RequestReadiness::Ended(AttemptEnd::Ran(Err(error)))),
                }
                failpoint("turn.prepared");
            }
            let Some(made) = self.prepared.clone() else { return stopped() };
            self.set_aside();
            let Err(refusal) = self.dispatch(&agent.about(), made).await? else {
                return Ok(RequestReadiness::Stored);
            };
            self.prepared = None;
            match refusal {
                DispatchRefusal::Edited => {
                    if !self.follow_edit().await? {
                        return stopped();
                    }
                }
                DispatchRefusal::OtherRuntime => self.load_input(Reload::All).await?,
                DispatchRefusal::WithoutFallback => {
                    self.turn.without_fallback = true;
                    self.load_input(Reload::All).await?;
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
        &mut self,
        about: &AgentInfo,
        prepared: PreparedTurn,
    ) -> store::Result<Result<(), DispatchRefusal>> {
        let (turns, row, turn) = (self.turns, &*self.row, &mut self.turn);
        let (own, live) = (turn.agent.clone(), turns.live.clone());
        let (id, session) = (row.id.clone(), row.session.clone());
        let prompt = source::prompt_may_be_edited(&row.source).then(|| row.prompt.clone());
        let max = source::max_text(&turns.delivery, &row.source);
        let asked = about.taking(&turn.agent, &prepared.agent);
        let rewind = asked.map_or(RewindSupport::Unknown, |asked| asked.rewind);
        // An agent that a reload made switchable has a runtime only from its next turn on.
        let has_runtimes = asked.is_some_and(|asked| asked.runtime.is_some());
        let partner = match prepared.agent == turn.agent {
            true => about.fallback.as_ref().map(|fallback| fallback.agent.clone()),
            false => Some(turn.agent.clone()),
        };
        let attempt = turn.attempt;
        let payer = TokenPayer::of(&row.source);
        let notice = match prepared.agent == turn.agent {
            true => None,
            false => Some(fallback_notices::away(row, max, about, &turns.live.now().words)),
        };
        let written = turns.store.write(move |tx| {
            // Nothing ran yet, so the turn follows a switch. The list of the agent depends on its runtime, too.
            if attempt == AttemptKind::First
                && has_runtimes
                && live.now().agents.runtime(&prepared.agent) != prepared.runtime
            {
                return Ok(Err(DispatchRefusal::OtherRuntime));
            }
            // A try that may have run is resumed; a reload stops it if its asker lost the agent.
            if attempt == AttemptKind::First
                && let Some(refusal) = not_admitted(tx, &live.now(), &id, &own, &prepared.agent)?
            {
                return Ok(Err(refusal));
            }
            let tokens_left = match token_budget::tokens_left(tx, live.now().budget, &payer, &prepared.agent)?
            {
                Ok(left) => left,
                // It is too late to refuse a try that may have run.
                Err(_) if attempt == AttemptKind::Resume => Some(0),
                Err(used_up) => return Ok(Err(DispatchRefusal::UsedUp(used_up))),
            };
            if !tx.dispatch(&id, prompt.as_deref(), &prepared)? {
                return Ok(Err(DispatchRefusal::Edited));
            }
            let asked = match attempt {
                AttemptKind::First => {
                    let asked =
                        tx.ask_agent(&session, &prepared.agent, prepared.runtime, partner.as_ref(), rewind)?;
                    tx.asked_under_current_id(&id)?;
                    asked
                }
                // The session is the one of the try that may have run.
                AttemptKind::Resume => tx.agent_session(&session, &prepared.agent)?,
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
            turns.ends_wait.store(true, Ordering::Release);
        }
        if told && let Some(account) = turns.account_of(&row.source) {
            account.wake();
        }
        Ok(Ok(()))
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
