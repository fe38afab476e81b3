//! One turn from its row in the store to its end in the store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use talaria_platform::{Body, BodyKind, Show, Trust, UserId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::asks::Voice;
use super::changeover;
use super::judge::{Again, Facts, Verdict, judge};
use super::log::{Summary, TurnLog};
use super::sink::Sink;
use super::{Running, Turns, told};
use crate::access::{Action, Actor, Where};
use crate::agent::{AgentError, Attempt, Message, Origin, Prepared, Turn, TurnEnd, TurnEvent};
use crate::delivery::REQUEST;
use crate::rarely::rarely;
use crate::reply::{self, Outcome};
use crate::rules::Rules;
use crate::session::Utc;
use crate::store::{self, Finish, Session, State, StoreError, TurnRow, Tx, unix_now};
use crate::testing::failpoint;
use crate::words::{Phrase, Text, Words};
use crate::{conversation, media};

/// The shortest and longest pause between two tries, whatever an upstream asks for.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The pause after the first failed try; each further one is twice as long, up to `LONGEST_BACKOFF`.
const BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// What there was of a turn before this process took it up.
pub(super) struct Before {
    /// Text that people could already read.
    pub floor: String,
    /// A message that shows the turn was sent, or may have been.
    pub anchored: bool,
    /// How many messages of history go along.
    pub history: usize,
    /// Whether whoever asked for it may still ask.
    pub permitted: bool,
}

/// How things are at the end of a turn.
struct Now {
    /// Whether whoever asked for it may still ask.
    permitted: bool,
    /// A message that shows the turn was sent, or may have been.
    anchored: bool,
}

/// Ends a log however its turn was left, by an error or a panic too: the conversation waits for that.
struct EndOfLog<'a>(&'a TurnLog);

impl Drop for EndOfLog<'_> {
    fn drop(&mut self) {
        self.0.end();
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

/// How a drive of a turn came out.
enum Drive {
    /// It is over.
    Over(Outcome),
    /// The process ends first; the next one goes on from the store.
    Suspended,
}

impl Turns {
    /// Runs one turn of a line.
    pub(super) async fn run(&self, running: &Running) -> store::Result<()> {
        // Beginning and end are boxed: a turn spends its time between them, and a stream should take little.
        let loaded = Box::pin(self.load(running)).await?;
        let Some((turn, session, before, history)) = loaded else { return Ok(()) };
        let Some(account) = self.delivery.account(&turn.account) else {
            tracing::warn!(account = %turn.account, "a turn waits for a platform that is no longer configured");
            return Ok(());
        };
        let log = Arc::new(TurnLog::new(self.settings.turn_bytes));
        // A task of its own, so that a delta does not wake it; it ends with the log.
        let shown = conversation::show(account.clone(), turn.clone(), log.clone(), before.floor.clone());
        let shown = tokio::spawn(shown.in_current_span());
        let result = {
            let _end = EndOfLog(&log);
            self.run_and_keep(turn, session, before, history, &log, running).await
        };
        if let Err(error) = shown.await {
            tracing::error!(%error, "showing a turn broke; the room gets its end all the same");
        }
        account.wake();
        result
    }

    /// Drives a turn and stores what it comes to.
    async fn run_and_keep(
        &self,
        mut turn: Arc<TurnRow>,
        session: Session,
        before: Before,
        history: Vec<Message>,
        log: &TurnLog,
        running: &Running,
    ) -> store::Result<()> {
        let drive = match before.permitted {
            true => self.drive(&mut turn, &session, history, log, running).await?,
            // Nobody is left who may be answered; `finish` sees to what the room is shown of it.
            false => Drive::Over(Outcome::Stopped),
        };
        match drive {
            Drive::Over(outcome) => {
                failpoint("turn.ended");
                Box::pin(self.finish(&turn, log, before, outcome)).await?;
                failpoint("turn.finished");
            }
            Drive::Suspended => log.suspend(),
        }
        Ok(())
    }

    async fn load(
        &self,
        running: &Running,
    ) -> store::Result<Option<(Arc<TurnRow>, Session, Before, Vec<Message>)>> {
        let (id, settings, live) = (running.id.clone(), self.settings.clone(), self.live.clone());
        self.store
            .read(move |tx| {
                let Some(turn) = tx.turn(&id)? else { return Ok(None) };
                if !matches!(turn.state, State::Queued | State::Dispatched | State::Streaming) {
                    return Ok(None);
                }
                let session = tx.session(&turn.session)?;
                let history = tx.history(&turn.session, settings.history_messages, settings.history_bytes)?;
                let before = Before {
                    floor: tx.checkpointed(&id)?,
                    anchored: tx.anchor(&id)?.is_some(),
                    history: history.len(),
                    permitted: permitted(tx, &live.now(), &turn)?,
                };
                // One row for all who look at it: the engine, the conversation and the end.
                Ok(Some((Arc::new(turn), session, before, history)))
            })
            .await
    }

    /// Runs a turn as far as it goes in this process. As long as nothing ran, `row` follows the question when the
    /// person edits it: what was asked is what is remembered.
    async fn drive(
        &self,
        row: &mut Arc<TurnRow>,
        session: &Session,
        history: Vec<Message>,
        log: &TurnLog,
        running: &Running,
    ) -> store::Result<Drive> {
        let resumed = row.state != State::Queued;
        if row.stop {
            let not_run = Outcome::Cancelled { words: Text::NotRun.into() };
            return Ok(Drive::Over(if resumed { Outcome::Stopped } else { not_run }));
        }
        let repeats = |prepared: &Prepared| {
            // What was made for a stand-in that is no longer there must not run at the agent itself.
            prepared.resumable && (!prepared.stand_in || self.agent.about().stand_in.is_some())
        };
        if resumed && !row.prepared.as_ref().is_some_and(repeats) {
            return Ok(Drive::Over(Outcome::Interrupted));
        }
        // Boxed: every function it passes through would hold its whole size.
        let mut turn = Box::new(self.agent_turn(row, session, history, resumed));
        let sink = Sink::new(log);
        // Also where a request is there: it may have to be made ready anew.
        if !resumed {
            Box::pin(self.fetch_media(row, &mut turn, running, &sink)).await;
        }
        let drive = self.keep_trying(row, turn, &sink, running).await?;
        if let Drive::Over(_) = drive {
            sink.finish();
        }
        Ok(drive)
    }

    /// Tries until the turn is over, or the budget is, or somebody asks to stop.
    async fn keep_trying(
        &self,
        row: &mut Arc<TurnRow>,
        mut turn: Box<Turn>,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<Drive> {
        let mut prepared = row.prepared.clone();
        let deadline = Instant::now() + self.settings.retry_for;
        // Read off once, or a clock between two minutes would say now this and now that.
        let until = Utc::from(SystemTime::now() + crate::testing::clock_lead() + self.settings.retry_for);
        let mut backoff = BACKOFF;
        loop {
            let end = self.attempt(row, &mut turn, &mut prepared, sink, running).await?;
            self.trouble().learn(&end, Instant::now());
            let facts = Facts {
                full: sink.full.is_cancelled(),
                stopped: running.stop.is_cancelled(),
                draining: self.draining.is_cancelled(),
                prepared: prepared.is_some(),
                resumable: prepared.as_ref().is_some_and(|prepared| prepared.resumable),
                attempt: turn.attempt,
                elsewhere: turn.elsewhere,
            };
            match judge(end, facts) {
                Verdict::Over(outcome) => return Ok(Drive::Over(outcome)),
                Verdict::Suspend => return Ok(Drive::Suspended),
                Verdict::Later => {
                    Box::pin(self.put_back(row, &mut prepared, Next::Anew)).await?;
                    return Ok(Drive::Suspended);
                }
                Verdict::Elsewhere(words) => {
                    tracing::warn!(error = %words, "a try failed; the turn goes to whoever stands in");
                    Box::pin(self.put_back(row, &mut prepared, Next::Anew)).await?;
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
                    let pause =
                        again.after.map_or_else(|| jitter(backoff), |after| after.clamp(PAUSES.0, PAUSES.1));
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                    if Instant::now() + pause > deadline {
                        return Ok(Drive::Over(again.give_up()));
                    }
                    if let Some(drive) = Box::pin(self.pause(&again, pause, &until, sink, running)).await {
                        return Ok(drive);
                    }
                }
            }
            if Box::pin(self.follow_edit(row, &mut turn, sink, running)).await? {
                prepared = None;
            }
        }
    }

    /// Takes the question as it is now, with what is attached to it. Whether it was edited: then it has no
    /// request any more.
    async fn follow_edit(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut Turn,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<bool> {
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

    /// Prepares and stores the request where that has not happened, and runs the agent once.
    async fn attempt(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut Turn,
        prepared: &mut Option<Prepared>,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<Result<TurnEnd, AgentError>> {
        failpoint("turn.taken");
        if let Err(end) = Box::pin(self.make_ready(row, turn, prepared, sink, running)).await? {
            return Ok(end);
        }
        let Some(prepared) = prepared.as_ref() else { return Ok(Ok(TurnEnd::Stopped)) };
        failpoint("turn.dispatched");

        let stop = CancellationToken::new();
        let voice = Voice::new(sink, &self.asks, row, &running.stop);
        let mut run = self.agent.run_turn(turn, prepared, &voice, stop.clone());
        // Every delta comes by here, so nothing else is looked at that did not call.
        let mut interrupted = rarely(self.interrupted(running, sink));
        tokio::select! {
            biased;
            () = &mut interrupted => {}
            end = &mut run => return Ok(end),
        }
        if running.stop.is_cancelled() {
            sink.hush();
        }
        let wanted =
            self.draining.is_cancelled() && !running.stop.is_cancelled() && !sink.full.is_cancelled();
        if wanted && prepared.resumable {
            // The next process asks for this very run, so it must not be told to end: it is only let go.
            return Ok(Ok(TurnEnd::Stopped));
        }
        stop.cancel();
        // An agent that does not end in time is dropped, which ends it too.
        Ok(tokio::time::timeout(self.settings.stop_grace, run).await.unwrap_or(Ok(TurnEnd::Stopped)))
    }

    /// Makes the request where there is none, and stores it. `Err` if it does not come to that.
    async fn make_ready(
        &self,
        row: &mut Arc<TurnRow>,
        turn: &mut Turn,
        prepared: &mut Option<Prepared>,
        sink: &Sink<'_>,
        running: &Running,
    ) -> store::Result<Result<(), Result<TurnEnd, AgentError>>> {
        loop {
            if prepared.is_none() {
                let made = tokio::select! {
                    made = self.agent.prepare(turn) => made,
                    () = self.interrupted(running, sink) => return Ok(Err(Ok(TurnEnd::Stopped))),
                };
                match made {
                    Ok(made) => *prepared = Some(made),
                    Err(error) => return Ok(Err(Err(error))),
                }
                failpoint("turn.prepared");
            }
            if let Some(prepared) = prepared.as_ref()
                && self.dispatch(row, prepared).await?
            {
                return Ok(Ok(()));
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
    async fn dispatch(&self, row: &TurnRow, prepared: &Prepared) -> store::Result<bool> {
        let (id, session, stored) = (row.id.clone(), row.session.clone(), prepared.clone());
        let prompt = row.prompt.clone();
        let notice = match prepared.stand_in {
            true => changeover::away(row, &self.agent.about(), &self.live.now().words),
            false => None,
        };
        let told = self.store.write(move |tx| {
            if !tx.dispatch(&id, &prompt, &stored)? {
                return Ok(None);
            }
            let news = stored.stand_in && tx.go_over(&session)?;
            let told = notice.filter(|_| news);
            told.iter().try_for_each(|notice| tx.add_outbox(notice))?;
            Ok(Some(told.is_some()))
        });
        let told = told.await?;
        if told == Some(true)
            && let Some(account) = self.delivery.account(&row.account)
        {
            account.wake();
        }
        Ok(told.is_some())
    }

    /// Waits for any reason to end a running agent early.
    async fn interrupted(&self, running: &Running, sink: &Sink<'_>) {
        tokio::select! {
            () = running.stop.cancelled() => {}
            () = self.draining.cancelled() => {}
            () = sink.full.cancelled() => {}
        }
    }

    fn agent_turn(&self, row: &TurnRow, session: &Session, history: Vec<Message>, resumed: bool) -> Turn {
        Turn {
            id: row.id.clone(),
            session: session.upstream_id(),
            context: told::context(&self.settings.context, self.settings.names, row),
            history,
            prompt: told::spoken(row),
            images: Vec::new(),
            key: row.key.clone(),
            origin: Origin {
                user_id: Some(row.author.clone()),
                user_name: row.author_name.clone(),
                chat_id: Some(row.place.room.as_str().to_owned()),
                chat_name: row.room_name.clone(),
                chat_type: Some(if row.direct { "direct" } else { "group" }),
                thread_id: row.place.thread.as_ref().map(|thread| thread.as_str().to_owned()),
            },
            attempt: if resumed { Attempt::Resume } else { Attempt::First },
            elsewhere: false,
        }
    }

    /// Fetches what is attached: pictures go along, everything else becomes a line of text.
    async fn fetch_media(&self, row: &TurnRow, turn: &mut Turn, running: &Running, sink: &Sink<'_>) {
        if row.media.is_empty() {
            return;
        }
        let Some(account) = self.delivery.account(&row.account) else { return };
        let fetched = tokio::select! {
            fetched = media::fetch(account.platform(), &row.media) => fetched,
            // The next try sees at once that it is not wanted.
            () = self.interrupted(running, sink) => return,
        };
        turn.prompt.push_str(&fetched.notes);
        turn.images = fetched.images;
    }

    /// Stores the end of a turn, and with it what the room must show.
    pub(super) async fn finish(
        &self,
        turn: &Arc<TurnRow>,
        log: &TurnLog,
        before: Before,
        outcome: Outcome,
    ) -> store::Result<()> {
        let Summary { text, tools, usage, shown } = log.take_summary();
        let (anchored, history) = (before.anchored, before.history);
        let now = self.now(turn).await?;
        let (text, outcome) = match now.permitted {
            true => (longer(text, before.floor, &outcome), outcome),
            false => only_seen(text, shown, before, now.anchored),
        };
        let whole = matches!(outcome, Outcome::Done | Outcome::Limit);
        let blank = text.trim().is_empty();
        let account = self.delivery.account(&turn.account);
        let max = account.as_ref().map_or(usize::MAX, |account| account.about().max_text);
        // The process before this one may have died with an edit under way, which could still arrive after
        // the final: then the final is shown once more when that time has passed.
        let edits = account.is_some_and(|account| matches!(account.about().show, Show::Edit { .. }));
        let again = anchored && edits;
        let kind = if blank && outcome != Outcome::Done { BodyKind::Notice } else { BodyKind::Answer };
        let words = &self.live.now().words;
        let shown = match blank && outcome == Outcome::Done && self.agent.about().is_model() {
            true => words.say(&Text::EmptyAnswerModel.into()),
            false => reply::finished(&text, &outcome, words),
        };
        let parts = reply::into_parts(shown, max)
            .into_iter()
            .map(|part| Body { reply_to: Some(turn.event.clone()), ..Body::new(kind, part) })
            .collect();
        let said = (!blank).then(|| told::spoken(turn));
        let (name, why) = outcome.for_the_log();
        tracing::info!(outcome = name, why, bytes = text.len(), "turn ended");
        let finish = Finish {
            api_calls: u32::from(whole || matches!(outcome, Outcome::Stopped)),
            tools,
            history_offset: history,
            usage,
            text,
            outcome,
            said,
            parts,
        };
        self.keep_end(turn.clone(), Arc::new(finish), again).await
    }

    /// How things are now that the answer is there. While the store cannot say, the answer waits here rather
    /// than being lost.
    async fn now(&self, turn: &Arc<TurnRow>) -> store::Result<Now> {
        loop {
            let (row, live) = (turn.clone(), self.live.clone());
            let now = self.store.read(move |tx| {
                let anchored = tx.anchor(&row.id)?.is_some();
                Ok(Now { permitted: permitted(tx, &live.now(), &row)?, anchored })
            });
            match now.await {
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) if !self.draining.is_cancelled() => {
                    tracing::error!(%error, "an answer waits for the store");
                    tokio::time::sleep(super::STORE_PAUSE).await;
                }
                now => return now,
            }
        }
    }

    /// Writes the end of a turn. While the store cannot take it (a full disk), the answer waits here
    /// rather than being lost.
    async fn keep_end(&self, turn: Arc<TurnRow>, finish: Arc<Finish>, again: bool) -> store::Result<()> {
        loop {
            let (row, end, now) = (turn.clone(), finish.clone(), unix_now());
            let agent = self.agent.about();
            // An agent that cannot be told another history keeps the one it has; the room is told so.
            let diverges = agent.rewind && finish.said.is_some();
            let whole = matches!(finish.outcome, Outcome::Done | Outcome::Limit);
            let back = changeover::back(&turn, &agent, &self.live.now().words).filter(|_| whole);
            let written = self.store.write(move |tx| {
                tx.finish(&row, &end)?;
                if diverges {
                    tx.fork_if_stood_in(&row.session, &row.id)?;
                }
                // Only now: an agent that was asked again may have failed again.
                if whole && tx.come_back(&row.session, &row.id)? {
                    back.iter().try_for_each(|notice| tx.add_outbox(notice))?;
                }
                match again {
                    true => tx.show_again(&row, end.parts.first(), now + REQUEST.as_secs() as i64),
                    false => Ok(()),
                }
            });
            match written.await {
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) if !self.draining.is_cancelled() => {
                    tracing::error!(%error, "an answer waits for the store");
                    tokio::time::sleep(super::STORE_PAUSE).await;
                }
                written => return written,
            }
        }
    }
}

/// Whether the author of a turn may still ask. It was decided when the question came; since then they may have
/// left, or the rules may have changed.
pub(crate) fn permitted(tx: &Tx<'_>, rules: &Rules, turn: &TurnRow) -> store::Result<bool> {
    let author = UserId::new(turn.author.clone());
    let actor = Actor {
        id: &author,
        // What was known of the message itself was judged then, and does not change.
        trust: Trust::Verified,
        bot: false,
        paired: tx.is_paired(&turn.account, &turn.author)?,
        left: tx.has_left(&turn.account, &turn.place.room, &turn.author)?,
    };
    let policy = &rules.account(&turn.account).access;
    Ok(policy.authorize(actor, Where::from(turn.direct), Action::Message).allowed)
}

/// The text that stays. Only a whole answer may be shorter than what people could already read.
fn longer(text: String, floor: String, outcome: &Outcome) -> String {
    let whole = matches!(outcome, Outcome::Done | Outcome::Limit);
    if !whole && text.len() < floor.len() { floor } else { text }
}

/// What stays of a turn whose author may no longer be answered: those who are left see that it ended, and
/// nothing that they had not seen. Where they had seen nothing at all, they are not told either.
fn only_seen(text: String, shown: usize, before: Before, anchored: bool) -> (String, Outcome) {
    if !anchored {
        return (String::new(), Outcome::Cancelled { words: "".into() });
    }
    // What an earlier process kept it showed too, if it showed anything.
    let floor = if before.anchored { before.floor.len() } else { 0 };
    let mut text = longer(text, before.floor, &Outcome::Stopped);
    text.truncate(text.floor_char_boundary(shown.max(floor)));
    (text, Outcome::Stopped)
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
