//! Tries of one turn, one after the other, with pauses between them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use talaria_platform::Lasts;
use tokio::time::Instant;

use super::input::{self, Reload};
use super::judge::{Again, Facts, Verdict, bounded_pause, judge};
use super::run::Drive;
use super::sink::Sink;
use super::{Running, Turns, WhenAway, told};
use crate::agent::{Attempt, Prepared, Turn, TurnEvent};
use crate::reply::Outcome;
use crate::session::Utc;
use crate::store::{self, TurnRow};
use crate::words::{Phrase, Text, Words};

/// The pause after the first failed try; each further one is twice as long, up to `LONGEST_BACKOFF`.
const BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Failed tries one after the other, since the last of them that brought anything new.
struct FailedTries {
    /// How far the turn had come when the first of them failed.
    progress: usize,
    /// When it is given up.
    deadline: Instant,
    /// The same as people read it: worked out once, or a clock between two minutes would say now this and now that.
    until: Utc,
    /// The pause before the next try.
    backoff: Duration,
}

impl FailedTries {
    fn begin(progress: usize, retry_for: Duration) -> Self {
        let until = Utc::from(SystemTime::now() + crate::testing::clock_lead() + retry_for);
        Self { progress, deadline: Instant::now() + retry_for, until, backoff: BACKOFF }
    }
}

/// What is sent at the next try of a turn of which nothing ran.
#[derive(Clone, Copy)]
enum Next {
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
        turn: &mut Turn,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<Drive> {
        let mut prepared = self.prepared_of(row);
        let mut failed_tries: Option<FailedTries> = None;
        loop {
            let end = self.attempt(row, turn, &mut prepared, sink, running).await?;
            let asker = (row.account.clone(), row.place.room.clone());
            self.trouble().learn(&end, &asker, Instant::now());
            let facts = Facts {
                full: sink.full.is_cancelled(),
                stopped: running.stop.is_cancelled(),
                draining: self.draining.is_cancelled(),
                prepared: prepared.is_some(),
                resumable: prepared.as_ref().is_some_and(|prepared| prepared.resumable),
                attempt: turn.attempt,
                elsewhere: turn.elsewhere,
                when_away: row.brought.as_ref().map_or_else(WhenAway::default, |brought| brought.when_away),
            };
            let verdict = judge(end, facts);
            if let Verdict::Over(outcome) = &verdict {
                // Only the search for a lost answer needs more than what is remembered.
                let needed = match outcome {
                    Outcome::Unknown { .. } => Reload::All,
                    Outcome::Done
                    | Outcome::Stopped
                    | Outcome::Limit
                    | Outcome::CutShort { .. }
                    | Outcome::Failed { .. }
                    | Outcome::Unavailable { .. }
                    | Outcome::Interrupted
                    | Outcome::Cancelled { .. } => Reload::Question,
                };
                Box::pin(self.load_input(row, turn, &mut prepared, needed, (sink, running))).await?;
            }
            match verdict {
                // The process ends: the next one looks for the answer.
                Verdict::Over(Outcome::Interrupted)
                    if prepared.as_ref().is_some_and(|prepared| !prepared.stand_in)
                        && self.agent_of(row).may_recover() =>
                {
                    return Ok(Drive::Suspended);
                }
                Verdict::Over(outcome @ Outcome::Unknown { .. }) => {
                    return match &prepared {
                        Some(prepared) => {
                            Box::pin(self.recover_or(row, turn, prepared, sink, running, outcome)).await
                        }
                        None => Ok(Drive::Over(outcome)),
                    };
                }
                Verdict::Over(outcome) => return Ok(Drive::Over(outcome)),
                Verdict::Suspend => return Ok(Drive::Suspended),
                Verdict::Later => {
                    Box::pin(self.put_back(row, &mut prepared, Next::Anew)).await?;
                    return Ok(Drive::Suspended);
                }
                Verdict::Elsewhere(words) => {
                    tracing::warn!(error = %words, "a try failed; the turn goes to whoever stands in");
                    Box::pin(self.put_back(row, &mut prepared, Next::Anew)).await?;
                    Box::pin(self.load_input(row, turn, &mut prepared, Reload::All, (sink, running))).await?;
                    turn.elsewhere = true;
                }
                Verdict::Again(again) => {
                    tracing::warn!(error = %again.words, "a try failed");
                    turn.attempt = again.attempt;
                    let stood_in = prepared.as_ref().is_some_and(|prepared| prepared.stand_in);
                    match again.attempt {
                        Attempt::Resume => sink.replay(),
                        // Nobody answers now. Who is asked after the pause is decided then.
                        Attempt::First if turn.elsewhere || stood_in => {
                            Box::pin(self.put_back(row, &mut prepared, Next::Anew)).await?;
                            turn.elsewhere = false;
                        }
                        Attempt::First => Box::pin(self.put_back(row, &mut prepared, Next::Same)).await?,
                    }
                    let progress = sink.progress();
                    let tries = match &mut failed_tries {
                        Some(tries) if tries.progress == progress => tries,
                        // The time counts from when the trouble began, however long all went well before.
                        tries => tries.insert(FailedTries::begin(progress, self.retry_for(row))),
                    };
                    let pause = again.after.map_or_else(|| jitter(tries.backoff), bounded_pause);
                    tries.backoff = (tries.backoff * 2).min(LONGEST_BACKOFF);
                    if Instant::now() + pause > tries.deadline {
                        let question = Reload::Question;
                        Box::pin(self.load_input(row, turn, &mut prepared, question, (sink, running)))
                            .await?;
                        return Ok(Drive::Over(again.give_up()));
                    }
                    input::leave_in_store(row, turn, running);
                    let drive = Box::pin(self.pause(&again, pause, &tries.until, sink, running)).await;
                    let needed = match &drive {
                        Some(Drive::Suspended) => return Ok(Drive::Suspended),
                        Some(Drive::Over(_)) => Reload::Question,
                        None => Reload::Request,
                    };
                    Box::pin(self.load_input(row, turn, &mut prepared, needed, (sink, running))).await?;
                    if let Some(over) = drive {
                        self.agent_of(row).let_go(turn);
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
        match self.lasts(row) {
            // A script waits for each answer, and nobody goes on with it later.
            Lasts::Process => self.settings.retry_scripts_for,
            Lasts::Always | Lasts::Gone => self.settings.retry_for,
        }
    }

    /// Takes the question as it is now, with what is attached to it. Whether it was edited: then it has no
    /// request any more.
    pub(super) async fn follow_edit(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut Turn,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<bool> {
        // Only people edit what they asked; what a program asked may be large.
        if row.brought.is_some() {
            return Ok(false);
        }
        let id = row.id.clone();
        let stored = self.store.read(move |tx| tx.turn(&id)).await?;
        let edited = stored.filter(|stored| stored.prepared.is_none() && stored.prompt != row.prompt);
        let Some(edited) = edited else { return Ok(false) };
        Arc::make_mut(row).prompt = edited.prompt;
        turn.prompt = told::spoken(row);
        self.fetch_media(row, turn, running, sink).await;
        Ok(true)
    }

    /// Puts a turn of which nothing ran back into its line.
    async fn put_back(
        &self,
        row: &TurnRow,
        prepared: &mut Option<Prepared>,
        next: Next,
    ) -> store::Result<()> {
        if prepared.is_none() {
            return Ok(());
        }
        let id = row.id.clone();
        match next {
            Next::Same => self.store.write(move |tx| tx.requeue(&id)).await,
            Next::Anew => {
                *prepared = None;
                self.store.write(move |tx| tx.unprepare(&id)).await
            }
        }
    }

    /// Waits before the next try, and says so. `Some` if it does not come to that.
    async fn pause(
        &self,
        again: &Again,
        pause: Duration,
        until: &Utc,
        sink: &Sink<'_>,
        running: &Running,
    ) -> Option<Drive> {
        let notice = trying(&self.live.now().words, &again.words, until);
        sink.emit(TurnEvent::Notice(Some(notice)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = running.stop.cancelled() => return Some(Drive::Over(Outcome::Stopped)),
            () = self.draining.cancelled() => return Some(Drive::Suspended),
        }
        sink.emit(TurnEvent::Notice(None));
        None
    }
}

/// Between half of a pause and the whole of it, so that many turns do not come back at one moment.
fn jitter(pause: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    pause / 2 + (pause / 2).mul_f64(f64::from(nanos % 1000) / 1000.0)
}

/// What people are told while a turn is tried again.
fn trying(words: &Words, why: &Phrase, until: &Utc) -> Phrase {
    let time = format!("{:02}:{:02}", until.hour, until.minute);
    Text::Retrying.with("why", sentence(&words.say(why))).with("time", time)
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
