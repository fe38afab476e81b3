//! One turn from its row in the store to its end in the store: what it begins with, and who does what.

use std::sync::Arc;

use talaria_platform::PlaceLifetime;

use super::readers::TurnLogs;
use super::sink::TurnSink;
use super::source::{self, may_talk_to, permitted};
use super::{RunningTurn, Turns, input_slot, prompt_text};
use crate::agent::{
    AgentScratch, AgentTurn, AttemptKind, ModelParams, NamedAgent, SessionMessage, TurnOrigin,
};
use crate::i18n::TextKey;
use crate::ids::TurnId;
use crate::media;
use crate::reply::TurnOutcome;
use crate::store::{self, SessionRow, TurnRow, TurnState};
use crate::testing::failpoint;
use crate::turn_log::TurnLog;

/// The mark on a question that is taken up.
const TAKEN_UP: &str = "👀";

/// What there was of a turn before this process took it up.
pub(super) struct PriorProgress {
    /// Text that people could already read.
    pub already_shown: String,
    /// A message that shows the turn was sent, or may have been; or it takes one over.
    pub anchored: bool,
    /// An edit of that message may still be under way.
    pub edited: bool,
    /// How many messages of history go along.
    pub history: usize,
    /// Whether it may still be answered.
    pub permission: TurnPermission,
}

/// Whether a turn may still be answered. It was decided when the question came; since then rules may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnPermission {
    /// It may.
    Granted,
    /// Its author may not ask any more.
    NotAsking,
    /// Its author may not talk to its agent any more.
    NotThisAgent,
}

/// A turn, its session, what there was of it, and the history.
type LoadedTurn = (Arc<TurnRow>, SessionRow, PriorProgress, Vec<SessionMessage>);

/// Ends a log however its turn was left, by an error or a panic too: the conversation waits for that.
struct EndOfLog<'a> {
    logs: &'a TurnLogs,
    log: &'a TurnLog,
    id: &'a TurnId,
}

impl Drop for EndOfLog<'_> {
    fn drop(&mut self) {
        self.logs.end(self.id, self.log);
    }
}

/// How a drive of a turn came out.
pub(super) enum RunResult {
    /// It is over.
    Over(TurnOutcome),
    /// The process ends first; the next one goes on from the store.
    Suspended,
}

impl Turns {
    /// Runs one turn of a line.
    pub(super) async fn run(&self, running: &RunningTurn) -> store::Result<()> {
        // Beginning and end are boxed: a turn spends its time between them, and a stream should take little.
        let loaded = Box::pin(self.load(running)).await?;
        let Some((turn, session, before, history)) = loaded else {
            // It is over already, or it was removed before it began: whoever reads it waits for nothing.
            if let Some(log) = self.logs.of(&running.id) {
                drop(EndOfLog { logs: &self.logs, log: &log, id: &running.id });
            }
            return Ok(());
        };
        if !self.can_be_answered(&turn.source) {
            return Ok(());
        }
        if before.permission == TurnPermission::Granted && turn.state == TurnState::Queued && !turn.stop {
            self.mark(&turn.source, TAKEN_UP);
        }
        let account = self.account_of(&turn.source);
        let log = self.logs.open(&turn, self.settings.turn_bytes);
        log.told_before(before.already_shown.clone());
        let shown = self.present(&turn, &log, before.already_shown.clone());
        let result = {
            let _end = EndOfLog { logs: &self.logs, log: &log, id: &running.id };
            self.run_and_keep(turn, session, before, history, &log, running).await
        };
        running.input.put(None);
        if let Some(shown) = shown
            && let Err(error) = shown.await
        {
            tracing::error!(%error, "showing a turn broke; the room gets its end all the same");
        }
        if let Some(account) = account {
            account.wake();
        }
        result
    }

    /// Drives a turn and stores what it comes to.
    async fn run_and_keep(
        &self,
        mut turn: Arc<TurnRow>,
        session: SessionRow,
        before: PriorProgress,
        history: Vec<SessionMessage>,
        log: &TurnLog,
        running: &RunningTurn,
    ) -> store::Result<()> {
        let drive = match (before.permission, self.agent_is_gone(&turn, running)) {
            (TurnPermission::Granted, false) => {
                self.drive(&mut turn, &session, history, log, running).await?
            }
            // Another agent is not asked in its place: the question was for this one.
            (TurnPermission::Granted | TurnPermission::NotThisAgent, true) => {
                RunResult::Over(self.without_agent(&turn, TextKey::AgentGone))
            }
            (TurnPermission::NotThisAgent, false) => {
                RunResult::Over(self.without_agent(&turn, TextKey::AgentRefused))
            }
            // Nobody is left who may be answered; `finish` sees to what the room is shown of it.
            (TurnPermission::NotAsking, _) => RunResult::Over(TurnOutcome::Stopped),
        };
        match drive {
            RunResult::Over(outcome) => {
                if self.draining.is_cancelled() {
                    // It ends here, so no next process says so. If this one dies before the end is kept, the next says it
                    // again, in a log of its own.
                    log.deny_unanswered();
                }
                failpoint("turn.ended");
                Box::pin(self.finish(&turn, log, before, outcome)).await?;
                failpoint("turn.finished");
            }
            RunResult::Suspended => {
                if !(log.text().is_empty() && before.already_shown.is_empty()) {
                    source::tell_suspended(&turn.source, log);
                }
                log.suspend();
            }
        }
        Ok(())
    }

    /// Keeps the agent of a turn for as long as it runs. Whether there is none with its name any more.
    fn agent_is_gone(&self, turn: &TurnRow, running: &RunningTurn) -> bool {
        let agents = self.agents();
        let name = self.agent_name_of(turn);
        match agents.get(&name) {
            Some(agent) => {
                // Set before only if the store failed and the turn is taken up once more.
                let _ = running.agent.set(NamedAgent { name, agent: agent.clone() });
                false
            }
            // What may have run is ended as any other that cannot be taken up.
            None => turn.state == TurnState::Queued,
        }
    }

    /// The end of a turn whose agent must not be given it, or is not there.
    fn without_agent(&self, turn: &TurnRow, why: TextKey) -> TurnOutcome {
        match turn.state == TurnState::Queued {
            true if turn.stop => TurnOutcome::Cancelled { words: TextKey::NotRun.into() },
            true => TurnOutcome::Failed { words: why.with("name", self.agent_name_of(turn).as_str()) },
            false => TurnOutcome::Stopped,
        }
    }

    /// Loads a turn once there is room for it.
    async fn load(&self, running: &RunningTurn) -> store::Result<Option<LoadedTurn>> {
        let Some(loaded) = self.load_now(running).await? else { return Ok(None) };
        let (payer, bytes) = (source::payer(&loaded.0.source), input_slot::size(&loaded.0, &loaded.3));
        if let Some(permit) = self.input_budget.try_take(&payer, bytes) {
            running.input.put(Some(permit));
            return Ok(Some(loaded));
        }
        // It waits in the store, and not here.
        drop(loaded);
        let permit = tokio::select! {
            permit = self.input_budget.take(&payer, bytes) => Some(permit),
            // It will not be asked any more, so this is the end of it.
            () = running.stop.cancelled() => None,
            () = self.draining.cancelled() => None,
        };
        running.input.put(permit);
        self.load_now(running).await
    }

    async fn load_now(&self, running: &RunningTurn) -> store::Result<Option<LoadedTurn>> {
        let (id, settings, live) = (running.id.clone(), self.settings.clone(), self.live.clone());
        let default = self.agents().default_name().clone();
        self.store
            .read(move |tx| {
                let Some(turn) = tx.turn(&id)? else { return Ok(None) };
                if !matches!(turn.state, TurnState::Queued | TurnState::Dispatched | TurnState::Streaming) {
                    return Ok(None);
                }
                let session = tx.session(&turn.session)?;
                let history = tx.history(&turn.session, settings.history_messages, settings.history_bytes)?;
                let rules = live.now();
                let agent = turn.agent.as_ref().unwrap_or(&default);
                let permission = match permitted(tx, &rules, &turn.source)? {
                    false => TurnPermission::NotAsking,
                    true if !may_talk_to(tx, &rules, &turn.source, agent)? => TurnPermission::NotThisAgent,
                    true => TurnPermission::Granted,
                };
                let before = PriorProgress {
                    already_shown: tx.checkpointed(&id)?,
                    anchored: tx.anchor(&id)?.is_some(),
                    edited: tx.may_be_edited(&id)?,
                    history: history.len(),
                    permission,
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
        session: &SessionRow,
        history: Vec<SessionMessage>,
        log: &TurnLog,
        running: &RunningTurn,
    ) -> store::Result<RunResult> {
        let resumed = row.state != TurnState::Queued;
        if row.stop {
            let not_run = TurnOutcome::Cancelled { words: TextKey::NotRun.into() };
            return Ok(RunResult::Over(if resumed { TurnOutcome::Stopped } else { not_run }));
        }
        // Nobody is left there who could read it, and what is shown where somebody else asks would be no answer.
        if self.lasts(&row.source) == PlaceLifetime::Gone {
            return Ok(RunResult::Over(TurnOutcome::Interrupted));
        }
        let stored = self.prepared_of(row);
        let resumes = stored
            .as_ref()
            .and_then(|stored| self.agent_taking(row, &stored.agent))
            .is_some_and(|agent| agent.resume);
        let lost = resumed && !(resumes && stored.as_ref().is_some_and(|stored| stored.resumable));
        // Boxed: every function it passes through would hold its whole size.
        let mut turn = Box::new(self.agent_turn(row, session, history, resumed));
        // What is resumed had its first text from an earlier process.
        let first = (!resumed).then(|| self.surface(&row.source).first_delta.clone());
        let sink = TurnSink::new(log, first);
        if lost {
            return match stored {
                Some(stored) if !stored.resumable && resumes => {
                    let (id, asked) = (row.session.clone(), stored.agent.clone());
                    turn.upstream = self.store.read(move |tx| tx.agent_session(&id, &asked)).await?.upstream;
                    let looking =
                        self.recover_or(row, &turn, &stored, &sink, running, TurnOutcome::Interrupted);
                    Box::pin(looking).await
                }
                // The agent that it was made for is no longer there, or keeps nothing.
                Some(_) | None => Ok(RunResult::Over(TurnOutcome::Interrupted)),
            };
        }
        // Also where a request is there: it may have to be made ready anew.
        if !resumed {
            Box::pin(self.fetch_media(row, &mut turn, running, &sink)).await;
        }
        let mut drive = self.keep_trying(row, &mut turn, &sink, running).await?;
        if matches!(drive, RunResult::Suspended | RunResult::Over(TurnOutcome::Interrupted))
            && self.lasts(&row.source) == PlaceLifetime::Process
        {
            // Nobody will come for it, here or at the upstream. Whoever ended the process stopped it.
            self.agent_of(row).agent.abandon(&turn);
            drive = RunResult::Over(TurnOutcome::Stopped);
        }
        if let RunResult::Over(_) = drive {
            sink.finish();
        }
        Ok(drive)
    }

    fn agent_turn(
        &self,
        row: &TurnRow,
        session: &SessionRow,
        history: Vec<SessionMessage>,
        resumed: bool,
    ) -> AgentTurn {
        let mut turn = AgentTurn {
            id: row.id.clone(),
            agent: self.agent_of(row).name,
            session: session.upstream_id(),
            // Settled when the request is stored.
            upstream: None,
            context: self.context(row),
            history,
            prompt: source::prompt(row),
            parts: Vec::new(),
            images: Vec::new(),
            files: Vec::new(),
            key: row.key.clone(),
            origin: TurnOrigin::default(),
            attempt: if resumed { AttemptKind::Resume } else { AttemptKind::First },
            params: ModelParams::default(),
            memory: None,
            hops: 0,
            scratch: AgentScratch::default(),
        };
        source::describe(&row.source, &mut turn);
        turn
    }

    /// The system message of a turn: the operator's text for all agents, then that for its own agent, then the text of
    /// the source.
    pub(super) fn context(&self, row: &TurnRow) -> String {
        let rules = self.live.now();
        let texts = [self.settings.context.as_str(), rules.agents.instructions(&self.agent_name_of(row))];
        let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        let own = source::system_text(&row.source, self.settings.names);
        prompt_text::context(&texts.join("\n\n"), own)
    }

    /// Fetches what is attached: pictures and files go along, text becomes a part of the prompt, and of what stays
    /// behind a line says why.
    pub(super) async fn fetch_media(
        &self,
        row: &TurnRow,
        turn: &mut AgentTurn,
        running: &RunningTurn,
        sink: &TurnSink<'_>,
    ) {
        let Some(media) = row.source.room().map(|question| &question.media) else { return };
        if media.is_empty() {
            return;
        }
        let Some(account) = self.account_of(&row.source) else { return };
        // Counted as the senders say, so that a slow file holds up nobody else's; and as it is once it is here.
        let asked = input_slot::size(row, &turn.history);
        running.input.put(None);
        let room = self.room_for_input(row, asked + media::announced(media), (sink, running));
        let Some(mut permit) = room.await else { return };
        let fetched = tokio::select! {
            fetched = media::fetch(account.platform(), media, self.settings.files) => fetched,
            // `make_ready` looks at the same before it makes a request, so there is none without what is attached.
            () = self.interrupted(running, sink) => return,
        };
        sink.attached(fetched.kept);
        turn.prompt.push_str(&fetched.notes);
        turn.images = fetched.images;
        turn.files = fetched.files;
        let bytes = asked + input_slot::attached(turn);
        permit.shrink_to(bytes);
        let permit = match permit.grow_to(bytes) {
            true => Some(permit),
            false => {
                drop(permit);
                self.room_for_input(row, bytes, (sink, running)).await
            }
        };
        running.input.put(permit);
    }
}
