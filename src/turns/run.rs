//! Runs one turn: loads it from the store, drives its agent, and stores its end.

use std::sync::Arc;

use talaria_platform::PlaceLifetime;

use super::readers::TurnLogs;
use super::source::{self, may_keep_fallback, may_talk_to, permitted};
use super::turn_run::TurnRun;
use super::{RunningTurn, Turns, input_slot};
use crate::agent::{NamedAgent, SessionMessage};
use crate::i18n::TextKey;
use crate::ids::TurnId;
use crate::reply::TurnOutcome;
use crate::store::{self, SessionRow, TurnRow, TurnState};
use crate::testing::{broken, failpoint};
use crate::turn_log::TurnLog;

/// Mark on a question whose turn begins.
const TAKEN_UP: &str = "👀";

/// State of a turn in the store when it is loaded.
pub(super) struct PriorProgress {
    /// Text that people could already read.
    pub already_shown: String,
    /// A message that shows the turn was sent, or may have been; or the turn takes over the message of another one.
    pub anchored: bool,
    /// An edit of that message may still be under way.
    pub edited: bool,
    /// Number of messages of history in the request.
    pub history: usize,
    /// Whether the turn may still be answered.
    pub permission: TurnPermission,
}

/// Whether a turn may still be answered. It was decided when the question came; since then rules may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnPermission {
    /// The turn may be answered.
    Granted,
    /// The asker may not ask any more.
    NotAsking,
    /// The asker may not talk to the agent of the turn any more.
    NotThisAgent,
}

/// A turn as the store has it when the engine takes it up.
struct LoadedTurn {
    /// Shared with the end of the turn, because it may be large.
    row: Arc<TurnRow>,
    session: SessionRow,
    before: PriorProgress,
    history: Vec<SessionMessage>,
}

/// Ends the log when it is dropped, also by an error or a panic: the readers of the log wait for its end.
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

/// Result of running a turn in this process.
pub(super) enum RunResult {
    /// The turn is over.
    Over(TurnOutcome),
    /// The process ends first; the next one resumes the turn from the store.
    Suspended,
}

impl Turns {
    /// Runs one turn of a session.
    pub(super) async fn run(&self, running: &RunningTurn) -> store::Result<()> {
        // Beginning and end are boxed: a turn spends its time between them, and a stream should take little memory.
        let loaded = Box::pin(self.load(running)).await?;
        let Some(loaded) = loaded else {
            // The turn is over already, or was removed before it began: its readers must not wait for anything.
            if let Some(log) = self.logs.of(&running.id) {
                drop(EndOfLog { logs: &self.logs, log: &log, id: &running.id });
            }
            return Ok(());
        };
        let (turn, before) = (&loaded.row, &loaded.before);
        if !self.can_be_answered(&turn.source) {
            return Ok(());
        }
        if before.permission == TurnPermission::Granted && turn.state == TurnState::Queued && !turn.stop {
            self.mark(&turn.source, TAKEN_UP);
        }
        let account = self.account_of(&turn.source);
        let log = self.logs.open(turn, self.settings.turn_bytes);
        log.told_before(before.already_shown.clone());
        let shown = self.present(turn, &log, before.already_shown.clone());
        let result = {
            let _end = EndOfLog { logs: &self.logs, log: &log, id: &running.id };
            self.run_and_keep(loaded, &log, running).await
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

    /// Drives a turn and stores its end.
    async fn run_and_keep(
        &self,
        loaded: LoadedTurn,
        log: &TurnLog,
        running: &RunningTurn,
    ) -> store::Result<()> {
        let LoadedTurn { row: mut turn, session, before, history } = loaded;
        let drive = match (before.permission, self.agent_is_gone(&turn, running)) {
            (TurnPermission::Granted, false) => {
                self.drive(&mut turn, &session, history, log, running).await?
            }
            // Another agent is not asked in its place: the prompt was for this one.
            (TurnPermission::Granted | TurnPermission::NotThisAgent, true) => {
                RunResult::Over(self.without_agent(&turn, TextKey::AgentGone))
            }
            (TurnPermission::NotThisAgent, false) => {
                RunResult::Over(self.without_agent(&turn, TextKey::AgentRefused))
            }
            // Nobody may be answered any more; `finish` decides what stays in the room.
            (TurnPermission::NotAsking, _) => RunResult::Over(TurnOutcome::Stopped),
        };
        match drive {
            RunResult::Over(outcome) => {
                if self.draining.is_cancelled() {
                    // The turn ends in this process, so the next one does not log the denials. If this one dies before
                    // the end is stored, the next one logs them again, in a log of its own.
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

    /// Holds the agent of a turn for as long as the turn runs. Returns whether no agent has its name any more.
    fn agent_is_gone(&self, turn: &TurnRow, running: &RunningTurn) -> bool {
        let agents = self.agents();
        let name = self.agent_name_of(turn);
        match agents.get(&name) {
            Some(agent) => {
                // Set before only if the store failed and the turn is taken up once more.
                let _ = running.agent.set(NamedAgent { name, agent: agent.clone() });
                false
            }
            // A turn that may have run ends like any other that cannot be resumed.
            None => turn.state == TurnState::Queued,
        }
    }

    /// The end of a turn whose agent is not there, or must not get it.
    fn without_agent(&self, turn: &TurnRow, why: TextKey) -> TurnOutcome {
        match turn.state == TurnState::Queued {
            true if turn.stop => TurnOutcome::Cancelled { words: TextKey::NotRun.into() },
            true => TurnOutcome::Failed { words: why.with("name", self.agent_name_of(turn).as_str()) },
            false => TurnOutcome::Stopped,
        }
    }

    /// Loads a turn once the memory budget allows it.
    async fn load(&self, running: &RunningTurn) -> store::Result<Option<LoadedTurn>> {
        let Some(loaded) = self.load_now(running).await? else { return Ok(None) };
        let (payer, bytes) =
            (source::payer(&loaded.row.source), input_slot::size(&loaded.row, &loaded.history));
        if let Some(permit) = self.input_budget.try_take(&payer, bytes) {
            running.input.put(Some(permit));
            return Ok(Some(loaded));
        }
        // While it waits for the budget, it is only in the store.
        drop(loaded);
        let permit = tokio::select! {
            permit = self.input_budget.take(&payer, bytes) => Some(permit),
            // The turn ends without asking the agent, so it needs no memory.
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
                    // A turn of which nothing ran is judged again when its next request is stored.
                    true if turn.state != TurnState::Queued && !may_keep_fallback(tx, &rules, &turn)? => {
                        TurnPermission::NotThisAgent
                    }
                    true => TurnPermission::Granted,
                };
                let before = PriorProgress {
                    already_shown: tx.checkpointed(&id)?,
                    anchored: tx.anchor(&id)?.is_some(),
                    edited: tx.may_be_edited(&id)?,
                    history: history.len(),
                    permission,
                };
                Ok(Some(LoadedTurn { row: Arc::new(turn), session, before, history }))
            })
            .await
    }

    /// Runs a turn as far as it goes in this process. As long as nothing ran, `row` follows the edits of the prompt, so
    /// that the transcript has the prompt that was sent.
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
            if !resumed {
                return Ok(RunResult::Over(TurnOutcome::Cancelled { words: TextKey::NotRun.into() }));
            }
            let mut run = TurnRun::new(self, row, session, history, log, running);
            Box::pin(run.end_left_run()).await?;
            return Ok(RunResult::Over(TurnOutcome::Stopped));
        }
        // Nobody is left there who could read the answer, and it must not appear where somebody else asks now.
        if self.lasts(&row.source) == PlaceLifetime::Gone {
            return Ok(RunResult::Over(TurnOutcome::Interrupted));
        }
        let mut run = TurnRun::new(self, row, session, history, log, running);
        let stored = run.prepared.as_ref();
        let resumes =
            stored.and_then(|stored| self.agent_taking(run.row, stored)).is_some_and(|agent| agent.resume);
        let lost = resumed && !(resumes && stored.is_some_and(|stored| stored.resumable));
        if lost && !broken("interruption") {
            return match stored {
                Some(stored) if !stored.resumable && resumes => {
                    let (id, asked) = (run.row.session.clone(), stored.agent.clone());
                    let known = self.store.read(move |tx| tx.agent_session(&id, &asked)).await?;
                    run.turn.upstream = known.upstream;
                    Box::pin(run.recover_or(TurnOutcome::Interrupted)).await
                }
                // The agent that it was made for is no longer there, or keeps nothing.
                Some(_) | None => Ok(RunResult::Over(TurnOutcome::Interrupted)),
            };
        }
        // Attachments are fetched even if there is a request: it may have to be prepared again.
        if !resumed {
            Box::pin(run.fetch_media()).await;
        }
        let mut drive = run.keep_trying().await?;
        if matches!(drive, RunResult::Suspended | RunResult::Over(TurnOutcome::Interrupted))
            && self.lasts(&run.row.source) == PlaceLifetime::Process
        {
            // The place ends with this process, so no later process resumes the turn. The upstream is told to stop, and
            // the turn counts as stopped.
            Box::pin(self.abandon(&run.agent(), &run.turn)).await;
            drive = RunResult::Over(TurnOutcome::Stopped);
        }
        if let RunResult::Over(_) = drive {
            run.sink.finish();
        }
        Ok(drive)
    }
}
