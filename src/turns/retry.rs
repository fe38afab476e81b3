//! Tries of one turn, one after the other, with pauses between them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use talaria_platform::{Backoff, PlaceLifetime, jitter};
use tokio::time::Instant;

use super::attempt::AttemptEnd;
use super::input_slot::Reload;
use super::retry_policy::{AttemptFacts, NextAttempt, RetryPause, RetryVerdict, judge};
use super::run::RunResult;
use super::source;
use super::turn_run::TurnRun;
use crate::agent::{AttemptKind, TurnEvent};
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::reply::TurnOutcome;
use crate::store;
use crate::util::UtcTime;

/// The pause after the first failed try; each further one is twice as long, up to the second.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(30));

/// Failed tries in a row, since the last try that brought anything new.
struct FailedTries {
    /// Progress of the turn when the first of them failed.
    progress: usize,
    /// Time when the turn is given up.
    deadline: Instant,
    /// The deadline for people. Worked out once, or between two minutes the notice would change back and forth.
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

impl TurnRun<'_> {
    /// Tries until the turn is over, or the time for trying is, or somebody asks to stop.
    pub async fn keep_trying(&mut self) -> store::Result<RunResult> {
        let mut failed_tries: Option<FailedTries> = None;
        let mut prepared_again = false;
        loop {
            let end = match self.attempt().await? {
                AttemptEnd::Ran(end) => end,
                AttemptEnd::NotAdmitted(words) => {
                    Box::pin(self.load_input(Reload::Question)).await?;
                    return Ok(RunResult::Over(TurnOutcome::Failed { words }));
                }
                AttemptEnd::UsedUp(used_up) => {
                    Box::pin(self.load_input(Reload::Question)).await?;
                    return Ok(RunResult::Over(source::used_up(&self.row.source, used_up)));
                }
            };
            self.turns.learn_from(self.row, &end);
            let facts = AttemptFacts {
                full: self.sink.full.is_cancelled(),
                stopped: self.running.stop.is_cancelled(),
                draining: self.turns.draining.is_cancelled(),
                prepared: self.prepared.is_some(),
                resumable: self.prepared.as_ref().is_some_and(|prepared| prepared.resumable),
                attempt: self.turn.attempt,
                prepared_again,
                when_away: source::when_away(&self.row.source),
            };
            let verdict = judge(end, facts);
            if let RetryVerdict::Over(outcome) = &verdict {
                // The transcript needs the prompt; only the search for a lost answer needs the rest too.
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
                Box::pin(self.load_input(needed)).await?;
            }
            match verdict {
                // The process ends: the next one looks for the answer.
                RetryVerdict::Over(TurnOutcome::Interrupted)
                    if self.prepared.as_ref().is_some_and(|prepared| self.agent().may_recover(prepared)) =>
                {
                    return Ok(RunResult::Suspended);
                }
                RetryVerdict::Over(outcome @ TurnOutcome::Unknown { .. }) => {
                    return Box::pin(self.recover_or(outcome)).await;
                }
                RetryVerdict::Over(outcome) => return Ok(RunResult::Over(outcome)),
                RetryVerdict::Suspend => return Ok(RunResult::Suspended),
                RetryVerdict::Later => {
                    Box::pin(self.put_back(RetryPause::AtOnce)).await?;
                    return Ok(RunResult::Suspended);
                }
                RetryVerdict::Again(again) => {
                    tracing::warn!(error = %again.words, "a try failed");
                    self.turn.attempt = again.attempt;
                    let needed = match again.attempt {
                        AttemptKind::Resume => {
                            self.sink.replay();
                            Reload::Request
                        }
                        AttemptKind::First => {
                            Box::pin(self.put_back(again.pause)).await?;
                            if self.prepared.is_some() { Reload::Request } else { Reload::All }
                        }
                    };
                    prepared_again = again.pause == RetryPause::AtOnce;
                    let mut over = None;
                    if !prepared_again {
                        let progress = self.sink.progress();
                        let tries = match &mut failed_tries {
                            Some(tries) if tries.progress == progress => tries,
                            // The time counts from the first failure, however long all went well before.
                            tries => tries.insert(FailedTries::begin(progress, self.retry_for())),
                        };
                        let pause = again.pause.length(jitter(tries.backoff.advance()));
                        if Instant::now() + pause > tries.deadline {
                            return Box::pin(self.give_up(again)).await;
                        }
                        self.leave_in_store();
                        over = Box::pin(self.pause(&again, pause, &tries.until)).await;
                        self.turns.metrics.agent_retries.inc_by(u64::from(over.is_none()));
                    }
                    let needed = match &over {
                        Some(RunResult::Suspended) => return Ok(RunResult::Suspended),
                        Some(RunResult::Over(_)) => Reload::Question,
                        None => needed,
                    };
                    Box::pin(self.load_input(needed)).await?;
                    if let Some(over) = over {
                        Box::pin(self.turns.abandon(&self.agent(), &self.turn)).await;
                        return Ok(over);
                    }
                }
            }
            if Box::pin(self.follow_edit()).await? {
                self.prepared = None;
            }
        }
    }

    /// Ends the turn because the time for trying is over. An answer that the agent keeps is found even now.
    async fn give_up(&mut self, again: NextAttempt) -> store::Result<RunResult> {
        let outcome = again.give_up();
        let may_have_run = matches!(outcome, TurnOutcome::Unknown { .. });
        Box::pin(self.load_input(if may_have_run { Reload::All } else { Reload::Question })).await?;
        let may_recover = self.prepared.as_ref().is_some_and(|prepared| self.agent().may_recover(prepared));
        if !(may_have_run && may_recover) {
            return Ok(RunResult::Over(outcome));
        }
        let result = Box::pin(self.recover_or(outcome)).await?;
        if let RunResult::Over(TurnOutcome::Unknown { .. }) = &result {
            // People are told that they can run it again: it must not go on beside that.
            Box::pin(self.turns.abandon(&self.agent(), &self.turn)).await;
        }
        Ok(result)
    }

    /// Time for which a turn is tried again.
    fn retry_for(&self) -> Duration {
        let settings = &self.turns.settings;
        match self.turns.lasts(&self.row.source) {
            // A script waits for each answer, and nobody goes on with it later.
            PlaceLifetime::Process => settings.retry_scripts_for,
            PlaceLifetime::Always | PlaceLifetime::Gone => settings.retry_for,
        }
    }

    /// Loads the prompt with its attachments if a person edited it. Returns whether it was edited: then the stored
    /// request is gone.
    pub async fn follow_edit(&mut self) -> store::Result<bool> {
        if !source::prompt_may_be_edited(&self.row.source) {
            return Ok(false);
        }
        let id = self.row.id.clone();
        let stored = self.turns.store.read(move |tx| tx.turn(&id)).await?;
        let edited = stored.filter(|stored| stored.prepared.is_none() && stored.prompt != self.row.prompt);
        let Some(edited) = edited else { return Ok(false) };
        Arc::make_mut(self.row).prompt = edited.prompt;
        self.turn.prompt = source::prompt(self.row);
        self.fetch_media().await;
        Ok(true)
    }

    /// Puts a turn of which nothing ran back into the queue. After a pause a request for the turn's own agent is sent
    /// again as it is; any other is dropped, so that the agent decides anew who is asked.
    async fn put_back(&mut self, pause: RetryPause) -> store::Result<()> {
        let Some(request) = self.prepared.take() else { return Ok(()) };
        let id = self.row.id.clone();
        if pause != RetryPause::AtOnce && request.agent == self.turn.agent {
            self.prepared = Some(request);
            return self.turns.store.write(move |tx| tx.requeue(&id)).await;
        }
        self.turns.store.write(move |tx| tx.unprepare(&id)).await
    }

    /// Waits before the next try, and shows a notice meanwhile. `Some` if there will be no next try.
    async fn pause(&self, again: &NextAttempt, pause: Duration, until: &UtcTime) -> Option<RunResult> {
        let notice = trying(&self.turns.live.now().words, &again.words, until);
        self.sink.emit(TurnEvent::Notice(Some(notice)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.running.stop.cancelled() => return Some(RunResult::Over(TurnOutcome::Stopped)),
            () = self.turns.draining.cancelled() => return Some(RunResult::Suspended),
        }
        self.sink.emit(TurnEvent::Notice(None));
        None
    }
}

/// Notice for people while a turn is tried again.
fn trying(words: &TextCatalog, why: &LocalizedText, until: &UtcTime) -> LocalizedText {
    let time = format!("{:02}:{:02}", until.hour, until.minute);
    TextKey::Retrying.with("why", sentence(&words.say(why))).with("time", time)
}

/// Makes a sentence without its full stop, so that more can follow.
fn sentence(words: &str) -> String {
    let words = words.trim_end().trim_end_matches('.');
    let mut chars = words.chars();
    match chars.next() {
        Some('⚠') | None => words.to_owned(),
        Some(first) => format!("⚠️ {}{}", first.to_uppercase(), chars.as_str()),
    }
}
