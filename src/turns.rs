//! The one engine that runs turns: the only caller of an agent.
//!
//! Each session has a queue, in the order of the store, and runs one turn at a time. The end of a turn is committed
//! before anybody sees it. Most of the differences between rooms and apps are in `source`; the rest is in `finish`,
//! `input_slot`, `asks` and `turn_run` (`fetch_media`).
//!
//! We promise at most one execution, exactly one final message and at least a visible notice: a turn
//! that may have started is repeated only with the same stored bytes and key, and only where the
//! upstream said that this does not run it twice.
//!
//! A turn has several types on its way:
//!
//! - [`TurnRow`]: the turn as the store has it, from the commit of its prompt to its end.
//! - `RunningTurn` (in `session_queue`): the turn that a session's task works on, with its stop token and its charge for memory.
//! - `TurnRun` (in `turn_run`): that turn while its agent is asked, with its row, its request and its sink.
//! - [`AgentTurn`](crate::agent::AgentTurn): everything that the agent is told.
//! - [`PreparedTurn`]: the request that the agent made of it, stored before it is sent.
//! - `WatchedTurn` (in `readers`): the turn's log and its readers.
//! - [`FinishedTurn`]: the end that is stored, with the final messages of a room.
//!
//! The end of a turn passes through these types:
//!
//! - [`TurnEnd`] or [`AgentError`]: the agent's end of one try.
//! - `RetryVerdict` (in `retry_policy`): the engine finishes the turn, tries again, or leaves it to the next process.
//! - `RunResult` (in `run`): the turn is over or suspended, as far as this process is concerned.
//! - [`TurnOutcome`](crate::reply::TurnOutcome): the end as people see it, stored with the turn.
//! - [`TurnState`]: the state in the store.

mod abandon;
mod agent_failures;
mod agent_probe;
mod answer_files;
mod asks;
mod attempt;
mod checkpoint;
mod fallback_notices;
mod finish;
mod input_budget;
mod input_slot;
mod output;
mod prompt_text;
mod readers;
mod recover;
mod retry;
mod retry_policy;
mod review;
mod run;
mod session_ends;
mod session_queue;
mod sink;
mod source;
mod token_budget;
mod turn_run;
mod upstream_reports;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{
    AgentError, AgentInfo, AgentRegistry, AgentTable, NamedAgent, PreparedTurn, RewindSupport, SharedAgent,
    TurnEnd,
};
use crate::config::ReviewConfig;
use crate::delivery::{Delivery, DeliveryAccount};
use crate::i18n::LocalizedText;
use crate::ids::{AgentName, AskId, SessionId, TurnId};
use crate::metrics::Metrics;
use crate::rules::{LiveRules, SessionKey};
use crate::store::{self, FinishedTurn, Store, TurnRow, TurnState};
use agent_failures::AgentFailures;
use agent_probe::AgentProbes;
pub use agent_probe::{AgentCheck, AgentHealth, CheckedAgent};
use asks::Asks;
pub use asks::{AnswerResult, AskReply, PER_TURN};
pub use input_budget::{BudgetPayer, InputBudget, InputLimits, InputPermit};
use readers::TurnLogs;
pub use readers::{TooLate, TurnWatch};
use review::DueReview;
use session_queue::{RunningTurn, SessionQueue};
pub(crate) use source::{may_keep_fallback, may_talk_to, permitted};

/// Pause before a turn is tried again that failed because of the store.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// Longest wait for an agent's capabilities. The platform's next events wait meanwhile.
const ABILITIES: Duration = Duration::from_secs(3);

/// Pause before an agent that did not report its capabilities is asked again.
const ABILITIES_PAUSE: Duration = Duration::from_secs(30);

/// The engine. One per process, behind an `Arc`.
pub struct Turns {
    store: Store,
    agents: Arc<AgentRegistry>,
    delivery: Arc<Delivery>,
    settings: TurnSettings,
    live: Arc<LiveRules>,
    lines: Mutex<HashMap<SessionId, SessionQueue>>,
    /// Notified when a session has nothing more to do, for [`Turns::idle`].
    ended: Notify,
    /// Cancelled when the process is about to end.
    draining: CancellationToken,
    /// One task per session that has something to do, and one per open ask.
    tasks: TaskTracker,
    /// Open asks of agents.
    asks: Arc<Asks>,
    /// The latest failures of each agent.
    trouble: Mutex<HashMap<AgentName, AgentFailures>>,
    /// Whether each agent would answer now.
    probes: AgentProbes,
    /// Time when an agent last failed to report its capabilities.
    abilities_unanswered: Mutex<Option<Instant>>,
    /// Logs of the turns of this process, for their readers.
    logs: Arc<TurnLogs>,
    /// Counts turns, tries and readers.
    metrics: Arc<Metrics>,
    /// Memory budget for prompts, here and in the HTTP server.
    input_budget: Arc<InputBudget>,
    /// Held while agents are told that sessions are over.
    telling_ends: tokio::sync::Mutex<()>,
    /// A session is over and its agents were not told, because a turn of it still runs.
    ends_wait: AtomicBool,
    /// Lets one long answer at a time be stored or read: that takes several times its size in memory.
    long_ends: Semaphore,
    /// Reviews that start when their session has nothing to do.
    due_reviews: Mutex<Vec<DueReview>>,
    /// Lets one review run at a time: nobody waits for it.
    reviews: Semaphore,
    /// Number of reviews that run or wait for that.
    waiting_reviews: AtomicUsize,
}

/// The operator's settings for turns.
#[derive(Clone, Debug)]
pub struct TurnSettings {
    /// The operator's text for the system message of every turn; may be empty.
    pub context: String,
    /// Whether the system message names the room and the person.
    pub names: bool,
    /// Whether the agent gets files that are neither text nor pictures.
    pub files: bool,
    /// Most messages of history that are forwarded.
    pub history_messages: usize,
    /// Most bytes of history that are forwarded.
    pub history_bytes: usize,
    /// Time for which a turn is tried again while it is proven that nothing ran, or that it cannot run twice.
    pub retry_for: Duration,
    /// Like `retry_for`, for prompts that end with this process, such as those that a script pipes in.
    pub retry_scripts_for: Duration,
    /// Most bytes of one turn's events.
    pub turn_bytes: usize,
    /// Time that an agent has to end after it was asked to.
    pub stop_grace: Duration,
    /// Time that people have to answer an ask.
    pub ask_for: Duration,
    /// When conversations are reviewed, and by which agent.
    pub review: ReviewConfig,
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
            agents: agents.clone(),
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
            due_reviews: Mutex::default(),
            reviews: Semaphore::new(1),
            waiting_reviews: AtomicUsize::new(0),
        })
    }

    /// Resumes every turn that an earlier process left open, and denies every ask that it left. Called once, before
    /// platforms read. Returns the number of turns.
    pub async fn recover(self: &Arc<Self>) -> store::Result<usize> {
        self.asks.deny_left().await?;
        // Before anything runs: a turn that nobody can find again must not begin.
        let of_apps = self.store.write(|tx| {
            let open = tx.open_app_turns()?;
            let ephemeral = open.iter().filter(|row| source::is_ephemeral(&row.source));
            ephemeral.into_iter().try_for_each(|row| tx.ask_to_stop(&row.id))?;
            Ok(open)
        });
        for row in of_apps.await? {
            self.taken_up(&row);
        }
        let open = self.store.read(|tx| tx.all_open_turns()).await?;
        let count = open.len();
        for (session, turn) in open {
            self.enqueue(&session, turn);
        }
        self.end_sessions();
        self.end_expired_sessions();
        Ok(count)
    }

    /// Wakes the agent that waits for this ask. The caller has stored the answer.
    pub fn answered(&self, ask: &AskId) {
        self.asks.answered(ask);
    }

    /// The default agent's description.
    pub fn agent(&self) -> AgentInfo {
        self.agents().default_agent().about()
    }

    /// The description of an agent; of the default one if no agent has this name.
    pub fn about(&self, agent: &AgentName) -> AgentInfo {
        self.agents().named_or_default(Some(agent)).agent.about()
    }

    /// Lets every agent find out whether it can rewind. Returns at once if that is known, or if an agent failed to find
    /// out a short while ago; otherwise within `ABILITIES`.
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

    /// Registers these agents instead of the ones there are. Turns that run keep theirs. Everything known about
    /// the agents in `changed` is forgotten.
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

    /// Description of the agent that takes a request of this turn: the turn's own agent or its fallback.
    fn agent_taking(&self, row: &TurnRow, prepared: &PreparedTurn) -> Option<AgentInfo> {
        let own = self.agent_of(row);
        own.agent.about().taking_request(&own.name, prepared).cloned()
    }

    /// The stored request of a turn, unless the agent that it was made for is no longer there: no other may be given it.
    fn prepared_of(&self, row: &TurnRow) -> Option<PreparedTurn> {
        row.prepared.clone().filter(|prepared| self.agent_taking(row, prepared).is_some())
    }

    /// Number of an agent's latest failures in a row and the last error, if it is known to fail and was not away.
    fn failing(&self, agent: &AgentName) -> Option<(usize, LocalizedText)> {
        let trouble = self.trouble();
        trouble.get(agent).filter(|failures| !failures.was_away())?.known(Instant::now())
    }

    /// Records how one try of a turn ended.
    fn learn_from(&self, row: &TurnRow, end: &Result<TurnEnd, AgentError>) {
        let (agent, asker) = (self.agent_name_of(row), row.source.asker());
        self.trouble().entry(agent).or_default().learn(end, &asker, Instant::now());
    }

    /// The bound of the prompts in memory, over all callers.
    pub fn input_budget(&self) -> &Arc<InputBudget> {
        &self.input_budget
    }

    /// All counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The accounts that turns are shown on.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<DeliveryAccount>> {
        self.delivery.accounts()
    }

    /// The stored end of a turn, if it has ended.
    pub async fn finished(&self, id: &TurnId) -> store::Result<Option<(TurnState, FinishedTurn)>> {
        let id = id.clone();
        self.store.read(move |tx| tx.finished(&id)).await
    }

    /// Asks every running turn to end and waits until all have. Waiting turns stay stored for the next process; a turn
    /// that can be resumed is left as it is; any other ends with its text so far and says that it was interrupted.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // Turns that still wait: their readers must not wait any longer.
        self.logs.suspend_all();
    }

    fn trouble(&self) -> MutexGuard<'_, HashMap<AgentName, AgentFailures>> {
        self.trouble.lock()
    }
}
