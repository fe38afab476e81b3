//! The one engine that runs turns: the only caller of an agent.
//!
//! Each session has a line. A turn takes its place in it the moment it is committed, in the order of
//! the store; one runs at a time. What a turn comes to is committed before anybody sees it.
//!
//! We promise at most one execution, exactly one final message and at least a visible notice: a turn
//! that may have started is repeated only with the same stored bytes and key, and only where the
//! upstream said that this does not run it twice.

mod agent_failures;
mod agent_probe;
mod answer_files;
mod app_request;
mod asks;
mod attempt;
mod authorization;
mod checkpoint;
mod fallback_notices;
mod finish;
mod input_budget;
mod input_slot;
mod prompt_text;
mod readers;
mod recover;
mod retry;
mod retry_policy;
mod run;
mod session_ends;
mod sink;
mod upstream_reports;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{PlaceLifetime, spawn_task};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::agent::{
    AgentError, AgentInfo, AgentRegistry, AgentTable, NamedAgent, PreparedTurn, RewindSupport, SharedAgent,
    TurnEnd,
};
use crate::delivery::{Delivery, DeliveryAccount};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, AskId, SessionId, TurnId};
use crate::metrics::{Metrics, SurfaceMetrics};
use crate::reply::TurnOutcome;
use crate::rules::{LiveRules, SessionKey};
use crate::store::{self, FinishedTurn, Store, StoreError, TurnRow, TurnState};
use agent_failures::AgentFailures;
use agent_probe::AgentProbes;
pub use agent_probe::{AgentCheck, AgentHealth, CheckedAgent};
pub use app_request::{AppRequest, WhenAway, WhenUnread};
use asks::Asks;
pub use asks::{AnswerResult, PER_TURN, RESTART, choice};
pub(crate) use authorization::{may_talk_to, permitted};
pub use input_budget::{BudgetPayer, InputBudget, InputLimits, InputPermit};
use input_slot::InputSlot;
use readers::TurnLogs;
pub use readers::{TooLate, TurnWatch};
use run::{PriorProgress, TurnPermission};

/// How soon a turn is tried again that the store did not take.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// How long the agent may take to say what it can do. Whatever else the platform brings waits for it.
const ABILITIES: Duration = Duration::from_secs(3);

/// How long the agent is not asked that again after it did not say it.
const ABILITIES_PAUSE: Duration = Duration::from_secs(30);

/// The engine. One per process, behind an `Arc`.
pub struct Turns {
    store: Store,
    agents: Arc<AgentRegistry>,
    delivery: Arc<Delivery>,
    settings: TurnSettings,
    live: Arc<LiveRules>,
    lines: Mutex<HashMap<SessionId, SessionQueue>>,
    /// Told whenever a line ends, for [`Turns::idle`].
    ended: Notify,
    /// Fired once, when the process is about to end.
    draining: CancellationToken,
    /// One task per session that has something to do, and one per question that waits for its answer.
    tasks: TaskTracker,
    /// What agents ask people.
    asks: Arc<Asks>,
    /// What is known of the failures of each agent.
    trouble: Mutex<HashMap<AgentName, AgentFailures>>,
    /// Whether each agent would answer now.
    probes: AgentProbes,
    /// When the agent last did not say what it can do.
    abilities_unanswered: Mutex<Option<Instant>>,
    /// What happens in the turns of this process, for whoever reads.
    logs: Arc<TurnLogs>,
    /// Counts turns, tries and readers.
    metrics: Arc<Metrics>,
    /// Bounds what is held of questions, here and where programs ask them.
    input_budget: Arc<InputBudget>,
    /// Held while agents are told that sessions are over.
    telling_ends: tokio::sync::Mutex<()>,
    /// A session is over and its agents were not told, because a turn of it still runs.
    ends_wait: AtomicBool,
    /// Has one long answer at a time stored, or read from the store: that takes several times what it has.
    long_ends: Semaphore,
}

/// What an operator may set about turns.
#[derive(Clone, Debug)]
pub struct TurnSettings {
    /// What the operator says in the system message of every turn; empty for nothing.
    pub context: String,
    /// Whether the agent is told there where it is and with whom.
    pub names: bool,
    /// Whether it is given files that are neither text nor pictures.
    pub files: bool,
    /// The most messages of history that are forwarded.
    pub history_messages: usize,
    /// The most bytes of history that are forwarded.
    pub history_bytes: usize,
    /// How long a turn is tried again while it is proven that nothing ran, or that it cannot run twice.
    pub retry_for: Duration,
    /// The same for prompts that end with this process, such as those that a script pipes in.
    pub retry_scripts_for: Duration,
    /// The most that one turn's events may take.
    pub turn_bytes: usize,
    /// How long an agent may take to end after it was asked to.
    pub stop_grace: Duration,
    /// How long people have to answer what an agent asks.
    pub ask_for: Duration,
}

/// What one session has to do.
#[derive(Default)]
struct SessionQueue {
    waiting: VecDeque<TurnId>,
    /// Set for as long as the session's task works on a turn.
    running: Option<RunningTurn>,
}

#[derive(Clone)]
struct RunningTurn {
    id: TurnId,
    /// Fired when a person asks to stop the turn.
    stop: CancellationToken,
    /// What is counted of its question, until the agent has it.
    input: InputSlot,
    /// The agent that answers it, once it runs: a reload does not change it under way.
    agent: Arc<OnceLock<NamedAgent>>,
}

impl Turns {
    /// An engine with nothing to do.
    pub fn new(
        store: Store,
        agents: Arc<AgentRegistry>,
        delivery: Arc<Delivery>,
        settings: TurnSettings,
        live: Arc<LiveRules>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let (draining, tasks) = (CancellationToken::new(), TaskTracker::new());
        let logs = Arc::<TurnLogs>::default();
        let asks = Asks {
            store: store.clone(),
            delivery: delivery.clone(),
            live: live.clone(),
            answer_within: settings.ask_for,
            draining: draining.clone(),
            tasks: tasks.clone(),
            waiting: Mutex::default(),
            logs: logs.clone(),
        };
        Arc::new(Self {
            store,
            agents,
            delivery,
            settings,
            live,
            lines: Mutex::default(),
            ended: Notify::new(),
            draining,
            tasks,
            asks: Arc::new(asks),
            trouble: Mutex::default(),
            probes: AgentProbes::default(),
            abilities_unanswered: Mutex::default(),
            logs,
            metrics,
            input_budget: Arc::default(),
            telling_ends: tokio::sync::Mutex::default(),
            ends_wait: AtomicBool::new(false),
            long_ends: Semaphore::new(1),
        })
    }

    /// Takes up every turn that an earlier process left open, and denies every question it left. Called once,
    /// before platforms read.
    pub async fn recover(self: &Arc<Self>) -> store::Result<usize> {
        self.asks.deny_left().await?;
        // Before anything runs: what nobody can ask for again must not begin.
        let programs = self.store.write(|tx| {
            let programs = tx.open_turns_of_programs()?;
            programs.iter().filter(|row| row.is_ephemeral()).try_for_each(|row| tx.ask_to_stop(&row.id))?;
            Ok(programs)
        });
        for row in programs.await? {
            self.taken_up(&row);
        }
        let open = self.store.read(|tx| tx.all_open_turns()).await?;
        let count = open.len();
        for (session, turn) in open {
            self.enqueue(&session, turn);
        }
        self.end_sessions();
        Ok(count)
    }

    /// Runs a committed turn when its session has come to it.
    pub fn enqueue(self: &Arc<Self>, session: &SessionId, turn: TurnId) {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(session) {
            line.waiting.push_back(turn);
            return;
        }
        lines.insert(session.clone(), SessionQueue { waiting: VecDeque::from([turn]), running: None });
        drop(lines);
        let (turns, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move { turns.work(session).await });
    }

    /// Asks one turn to end, if it is the one that runs. The store knows already, so one that waits ends by
    /// itself when its time comes.
    pub fn stop_turn(&self, session: &SessionId, turn: &TurnId) {
        let lines = self.lines();
        let running = lines.get(session).and_then(|line| line.running.as_ref());
        if let Some(running) = running.filter(|running| running.id == *turn) {
            running.stop.cancel();
        }
    }

    /// Somebody answered what an agent asked. The store knows already how.
    pub fn answered(&self, ask: &AskId) {
        self.asks.answered(ask);
    }

    /// What the default agent says of itself.
    pub fn agent(&self) -> AgentInfo {
        self.agents().default_agent().about()
    }

    /// What an agent says of itself; the default one if nobody has this name.
    pub fn about(&self, agent: &AgentName) -> AgentInfo {
        self.agents().named_or_default(Some(agent)).agent.about()
    }

    /// Has every agent find out what it cannot tell of itself yet. Takes a moment at most, and no time at all if that is
    /// known or if an agent did not say it a short while ago.
    pub async fn learn_abilities(&self) {
        let agents = self.agents();
        let silent = || {
            let is_silent = |agent: &SharedAgent| agent.about().rewind == RewindSupport::Unknown;
            agents.iter().map(|(_, agent)| agent).filter(|agent| is_silent(agent)).collect::<Vec<_>>()
        };
        let unanswered = || self.abilities_unanswered.lock();
        let was_asked = unanswered().is_some_and(|at| at.elapsed() < ABILITIES_PAUSE);
        if silent().is_empty() || was_asked {
            return;
        }
        let asked = join_all(silent().into_iter().map(|agent| agent.learn_abilities()));
        if tokio::time::timeout(ABILITIES, asked).await.is_err() {
            tracing::debug!("an agent did not say in time what it can do");
        }
        if !silent().is_empty() {
            *unanswered() = Some(Instant::now());
        }
    }

    /// The agents as they are registered now.
    pub fn agents(&self) -> Arc<AgentTable> {
        self.agents.now()
    }

    /// The agent that was chosen for the current session of a place.
    pub async fn chosen_agent(&self, key: SessionKey) -> store::Result<Option<AgentName>> {
        self.store.read(move |tx| tx.chosen_agent(&key)).await
    }

    /// Registers these agents instead of the ones there are. Turns that run keep theirs. What was known of the agents
    /// in `changed` is forgotten.
    pub fn replace_agents(&self, table: AgentTable, changed: &[AgentName]) {
        self.agents.replace(table);
        let mut trouble = self.trouble();
        for name in changed {
            trouble.remove(name);
            self.probes.forget(name);
        }
        *self.abilities_unanswered.lock() = None;
    }

    /// The agent that a turn is for.
    fn agent_of(&self, row: &TurnRow) -> NamedAgent {
        let lines = self.lines();
        let running = lines.get(&row.session).and_then(|line| line.running.as_ref());
        let pinned = running.filter(|running| running.id == row.id).and_then(|running| running.agent.get());
        match pinned {
            Some(agent) => agent.clone(),
            None => self.agents().named_or_default(row.agent.as_ref()),
        }
    }

    /// The name of the agent that answers a turn.
    fn agent_name_of(&self, row: &TurnRow) -> AgentName {
        row.agent.clone().unwrap_or_else(|| self.agents().default_name().clone())
    }

    /// Description of the agent that takes requests made for `name` in this turn: the turn's own agent or its fallback.
    fn agent_taking(&self, row: &TurnRow, name: &AgentName) -> Option<AgentInfo> {
        let own = self.agent_of(row);
        own.agent.about().taking(&own.name, name).cloned()
    }

    /// The stored request of a turn, unless the agent that it was made for is no longer there: no other may be given it.
    fn prepared_of(&self, row: &TurnRow) -> Option<PreparedTurn> {
        row.prepared.clone().filter(|prepared| self.agent_taking(row, &prepared.agent).is_some())
    }

    /// How long the place of a turn lasts. A program comes back to its own over any connection.
    fn lasts(&self, row: &TurnRow) -> PlaceLifetime {
        let account = self.delivery.account(&row.account).filter(|_| row.app_request.is_none());
        account.map_or(PlaceLifetime::Always, |account| account.platform().lasts(&row.place))
    }

    /// How often in a row an agent failed of late and why the last time, if it is known to fail and was not away.
    fn failing(&self, agent: &AgentName) -> Option<(usize, LocalizedText)> {
        let trouble = self.trouble();
        trouble.get(agent).filter(|failures| !failures.was_away())?.known(Instant::now())
    }

    /// Records how one try of a turn ended.
    fn learn_from(&self, row: &TurnRow, end: &Result<TurnEnd, AgentError>) {
        let asker = (row.account.clone(), row.place.room.clone());
        self.trouble().entry(self.agent_name_of(row)).or_default().learn(end, &asker, Instant::now());
    }

    /// What bounds the questions in memory, over all callers.
    pub fn input_budget(&self) -> &Arc<InputBudget> {
        &self.input_budget
    }

    /// Where everything is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where the turns of such a place are counted.
    fn surface(&self, row: &TurnRow) -> &SurfaceMetrics {
        if row.app_request.is_some() { &self.metrics.http } else { &self.metrics.rooms }
    }

    /// The accounts that turns are shown on.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<DeliveryAccount>> {
        self.delivery.accounts()
    }

    /// How many turns run, and how many wait for another of their session.
    pub fn count(&self) -> (usize, usize) {
        let lines = self.lines();
        let running = lines.values().filter(|line| line.running.is_some()).count();
        (running, lines.values().map(|line| line.waiting.len()).sum())
    }

    /// How a turn ended, if it has.
    pub async fn finished(&self, id: &TurnId) -> store::Result<Option<(TurnState, FinishedTurn)>> {
        let id = id.clone();
        self.store.read(move |tx| tx.finished(&id)).await
    }

    /// Waits until no session has anything to do.
    pub async fn idle(&self) {
        self.lines_are(HashMap::is_empty).await;
    }

    /// Waits until one session has nothing to do.
    pub async fn idle_in(&self, session: &SessionId) {
        self.lines_are(|lines| !lines.contains_key(session)).await;
    }

    /// Waits until this is so. Lines that begin tell nobody.
    async fn lines_are(&self, so: impl Fn(&HashMap<SessionId, SessionQueue>) -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if so(&self.lines()) {
                return;
            }
            ended.await;
        }
    }

    /// Asks every running turn to end and waits until all have. What waits stays stored for the next
    /// start; a turn that can be resumed is left as it is; any other keeps its text and says so.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // Those that still wait in their lines: whoever reads them must not wait with them.
        self.logs.suspend_all();
    }

    /// The body of a session's task: one turn after the other until none waits. What happens rarely is
    /// boxed, or its room would be part of every session that streams.
    async fn work(self: Arc<Self>, session: SessionId) {
        while let Some(running) = self.next_turn(&session) {
            let span = tracing::info_span!("turn", id = running.id.short(), session = %session);
            let id = running.id.clone();
            // A panic in an agent must not take the session's other turns with it.
            let turns = self.clone();
            let ended = spawn_task("turn", async move { turns.run(&running).await }.instrument(span)).await;
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(StoreError::Closed)) => {
                    self.lines().remove(&session);
                    break;
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, turn = id.short(), "a turn waits for the store");
                    Box::pin(self.again(&session, id.clone())).await;
                    self.reopen(&id);
                }
                Err(error) => {
                    tracing::error!(%error, turn = id.short(), "a turn broke");
                    Box::pin(self.fail_broken(&id)).await;
                }
            }
        }
        self.ended.notify_waiters();
        self.end_waiting_sessions();
    }

    /// Puts a turn that the store failed back to the head of its line. It goes on from what is stored,
    /// as after a crash.
    async fn again(&self, session: &SessionId, id: TurnId) {
        tokio::select! {
            () = tokio::time::sleep(STORE_PAUSE) => {}
            () = self.draining.cancelled() => {}
        }
        if let Some(line) = self.lines().get_mut(session) {
            line.waiting.push_front(id);
        }
    }

    /// The next turn of a line, now running; `None` takes the line away.
    fn next_turn(&self, session: &SessionId) -> Option<RunningTurn> {
        let mut lines = self.lines();
        let line = lines.get_mut(session)?;
        line.running = None;
        let next = if self.draining.is_cancelled() { None } else { line.waiting.pop_front() };
        let Some(id) = next else {
            lines.remove(session);
            return None;
        };
        let (stop, input, agent) = (CancellationToken::new(), InputSlot::default(), Arc::default());
        let running = RunningTurn { id, stop, input, agent };
        line.running = Some(running.clone());
        Some(running)
    }

    /// Ends a turn whose task panicked, with the text that was kept of it.
    async fn fail_broken(&self, id: &TurnId) {
        let wanted = id.clone();
        let kept = self.store.read(move |tx| {
            Ok((tx.turn(&wanted)?, tx.checkpointed(&wanted)?, tx.anchor(&wanted)?.is_some()))
        });
        let Ok((Some(turn), already_shown, anchored)) = kept.await else { return };
        let edited = anchored;
        let turn = Arc::new(turn);
        if !matches!(turn.state, TurnState::Queued | TurnState::Dispatched | TurnState::Streaming) {
            return;
        }
        let words = TextKey::TurnBroken.with("turn", id.short());
        let log = self.logs.open(&turn, self.settings.turn_bytes);
        let before = PriorProgress {
            already_shown,
            anchored,
            edited,
            history: 0,
            permission: TurnPermission::Granted,
        };
        if let Err(error) = self.finish(&turn, &log, before, TurnOutcome::Failed { words }).await {
            tracing::error!(%error, "a broken turn could not be ended");
        }
        self.logs.end(id, &log);
        if let Some(account) = self.delivery.account(&turn.account) {
            account.wake();
        }
    }

    fn trouble(&self) -> MutexGuard<'_, HashMap<AgentName, AgentFailures>> {
        self.trouble.lock()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<SessionId, SessionQueue>> {
        self.lines.lock()
    }
}
