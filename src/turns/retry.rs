//! Tries of one turn, one after the other, with pauses between them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use talaria_platform::{Backoff, PlaceLifetime, jitter};
use tokio::time::Instant;

use super::input_slot::{self, Reload};
use super::retry_policy::{AttemptFacts, NextAttempt, RetryVerdict, bounded_pause, judge};
use super::run::RunResult;
use super::sink::TurnSink;
use super::{RunningTurn, Turns, source};
use crate::agent::{AgentTurn, AttemptKind, PreparedTurn, TurnEvent};
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::reply::TurnOutcome;
use crate::store::{self, TurnRow};
use crate::util::UtcTime;

/// The pause after the first failed try; each further one is twice as long, up to the second.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(30));

/// Failed tries one after the other, since the last of them that brought anything new.
struct FailedTries {
    /// How far the turn had come when the first of them failed.
    progress: usize,
    /// When it is given up.
    deadline: Instant,
    /// The same as people read it: worked out once, or a clock between two minutes would say now this and now that.
    until: UtcTime,
    /// The pause before the next try.
    backoff: Backoff,
}

impl FailedTries {
    fn begin(progress: usize, retry_for: Duration) -> Self {
        let until = UtcTime::from(SystemTime::now() + crate::testing::clock_lead() + retry_for);
        Self { progress, deadline: Instant::now() + retry_for, until, backoff: BACKOFF }
    }
}

/// What is sent at the next try of a turn of which nothing ran.
#[derive(Clone, Copy)]
enum NextTry {
    /// The same request.
    Same,
    /// Another one, perhaps to another agent.
    Anew,
}

impl Turns {
    /// Tries until the turn is over, or the time for trying is, or somebody asks to stop.
    pub(super) async fn keep_trying(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<RunResult> {
        let mut prepared = self.prepared_of(row);
        let mut failed_tries: Option<FailedTries> = None;
        loop {
            let end = self.attempt(row, turn, &mut prepared, sink, running).await?;
            self.learn_from(row, &end);
            let facts = AttemptFacts {
                full: sink.full.is_cancelled(),
                stopped: running.stop.is_cancelled(),
                draining: self.draining.is_cancelled(),
                prepared: prepared.is_some(),
                resumable: prepared.as_ref().is_some_and(|prepared| prepared.resumable),
                attempt: turn.attempt,
                elsewhere: turn.elsewhere,
                when_away: source::when_away(&row.source),
            };
            let verdict = judge(end, facts);
            if let RetryVerdict::Over(outcome) = &verdict {
                // Only the search for a lost answer needs more than what is remembered.
                let needed = match outcome {
                    TurnOutcome::Unknown { .. } => Reload::All,
                    TurnOutcome::Done
                    | TurnOutcome::Stopped
                    | TurnOutcome::Limit
                    | TurnOutcome::CutShort { .. }
                    | TurnOutcome::Failed { .. }
                    | TurnOutcome::Unavailable { .. }
                    | TurnOutcome::Interrupted
                    | TurnOutcome::Cancelled { .. } => Reload::Question,
                };
                Box::pin(self.load_input(row, turn, &mut prepared, needed, (sink, running))).await?;
            }
            match verdict {
                // The process ends: the next one looks for the answer.
                RetryVerdict::Over(TurnOutcome::Interrupted)
                    if prepared.as_ref().is_some_and(|prepared| !prepared.stand_in)
                        && self.agent_of(row).may_recover() =>
                {
                    return Ok(RunResult::Suspended);
                }
                RetryVerdict::Over(outcome @ TurnOutcome::Unknown { .. }) => {
                    return match &prepared {
                        Some(prepared) => {
                            Box::pin(self.recover_or(row, turn, prepared, sink, running, outcome)).await
                        }
                        None => Ok(RunResult::Over(outcome)),
                    };
                }
                RetryVerdict::Over(outcome) => return Ok(RunResult::Over(outcome)),
                RetryVerdict::Suspend => return Ok(RunResult::Suspended),
                RetryVerdict::Later => {
                    Box::pin(self.put_back(row, &mut prepared, NextTry::Anew)).await?;
                    return Ok(RunResult::Suspended);
                }
                RetryVerdict::Elsewhere(words) => {
                    tracing::warn!(error = %words, "a try failed; the turn goes to whoever stands in");
                    Box::pin(self.put_back(row, &mut prepared, NextTry::Anew)).await?;
                    Box::pin(self.load_input(row, turn, &mut prepared, Reload::All, (sink, running))).await?;
                    turn.elsewhere = true;
                }
                RetryVerdict::Again(again) => {
                    tracing::warn!(error = %again.words, "a try failed");
                    turn.attempt = again.attempt;
                    let stood_in = prepared.as_ref().is_some_and(|prepared| prepared.stand_in);
                    match again.attempt {
                        AttemptKind::Resume => sink.replay(),
                        // Nobody answers now. Who is asked after the pause is decided then.
                        AttemptKind::First if turn.elsewhere || stood_in => {
                            Box::pin(self.put_back(row, &mut prepared, NextTry::Anew)).await?;
                            turn.elsewhere = false;
                        }
                        AttemptKind::First => {
                            Box::pin(self.put_back(row, &mut prepared, NextTry::Same)).await?
                        }
                    }
                    let progress = sink.progress();
                    let tries = match &mut failed_tries {
                        Some(tries) if tries.progress == progress => tries,
                        // The time counts from when the trouble began, however long all went well before.
                        tries => tries.insert(FailedTries::begin(progress, self.retry_for(row))),
                    };
                    let backoff = tries.backoff.advance();
                    let pause = again.after.map_or_else(|| jitter(backoff), bounded_pause);
                    if Instant::now() + pause > tries.deadline {
                        let question = Reload::Question;
                        Box::pin(self.load_input(row, turn, &mut prepared, question, (sink, running)))
                            .await?;
                        return Ok(RunResult::Over(again.give_up()));
                    }
                    input_slot::leave_in_store(row, turn, running);
                    let drive = Box::pin(self.pause(&again, pause, &tries.until, sink, running)).await;
                    let needed = match &drive {
                        Some(RunResult::Suspended) => return Ok(RunResult::Suspended),
                        Some(RunResult::Over(_)) => Reload::Question,
                        None => Reload::Request,
                    };
                    Box::pin(self.load_input(row, turn, &mut prepared, needed, (sink, running))).await?;
                    if let Some(over) = drive {
                        self.agent_of(row).abandon(turn);
                        return Ok(over);
                    }
                    self.metrics.agent_retries.inc();
                }
            }
            if Box::pin(self.follow_edit(row, turn, sink, running)).await? {
                prepared = None;
            }
        }
    }

    /// How long a turn is tried again.
    fn retry_for(&self, row: &TurnRow) -> Duration {
        match self.lasts(&row.source) {
            // A script waits for each answer, and nobody goes on with it later.
            PlaceLifetime::Process => self.settings.retry_scripts_for,
            PlaceLifetime::Always | PlaceLifetime::Gone => self.settings.retry_for,
        }
    }

    /// Takes the question as it is now, with what is attached to it. Whether it was edited: then it has no
    /// request any more.
    pub(super) async fn follow_edit(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut AgentTurn,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> store::Result<bool> {
        if !source::may_be_edited(&row.source) {
            return Ok(false);
        }
        let id = row.id.clone();
        let stored = self.store.read(move |tx| tx.turn(&id)).await?;
        let edited = stored.filter(|stored| stored.prepared.is_none() && stored.prompt != row.prompt);
        let Some(edited) = edited else { return Ok(false) };
        Arc::make_mut(row).prompt = edited.prompt;
        turn.prompt = source::prompt(row);
        self.fetch_media(row, turn, running, sink).await;
        Ok(true)
    }

    /// Puts a turn of which nothing ran back into its line.
    async fn put_back(
        &self,
        row: &TurnRow,
        prepared: &mut Option<PreparedTurn>,
        next: NextTry,
    ) -> store::Result<()> {
        if prepared.is_none() {
            return Ok(());
        }
        let id = row.id.clone();
        match next {
            NextTry::Same => self.store.write(move |tx| tx.requeue(&id)).await,
            NextTry::Anew => {
                *prepared = None;
                self.store.write(move |tx| tx.unprepare(&id)).await
            }
        }
    }

    /// Waits before the next try, and says so. `Some` if it does not come to that.
    async fn pause(
        &self,
        again: &NextAttempt,
        pause: Duration,
        until: &UtcTime,
        sink: &TurnSink<'_>,
        running: &RunningTurn,
    ) -> Option<RunResult> {
        let notice = trying(&self.live.now().words, &again.words, until);
        sink.emit(TurnEvent::Notice(Some(notice)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = running.stop.cancelled() => return Some(RunResult::Over(TurnOutcome::Stopped)),
            () = self.draining.cancelled() => return Some(RunResult::Suspended),
        }
        sink.emit(TurnEvent::Notice(None));
        None
    }
}

/// What people are told while a turn is tried again.
fn trying(words: &TextCatalog, why: &LocalizedText, until: &UtcTime) -> LocalizedText {
    let time = format!("{:02}:{:02}", until.hour, until.minute);
    TextKey::Retrying.with("why", sentence(&words.say(why))).with("time", time)
}

/// Words as a sentence without its full stop, so that more can follow.
fn sentence(words: &str) -> String {
    let words = words.trim_end().trim_end_matches('.');
    let mut chars = words.chars();
    match chars.next() {
        Some('⚠') | None => words.to_owned(),
        Some(first) => format!("⚠️ {}{}", first.to_uppercase(), chars.as_str()),
    }
}
