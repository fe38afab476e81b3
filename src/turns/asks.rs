//! An agent asks people, and waits for their answer.
//!
//! What is decided is decided in the store, once; here somebody waits for it on the agent's behalf. A question
//! has a task of its own, so that it comes to an end however the agent is left: answered, too late, stopped,
//! at the end of the process, or no longer wanted. Whatever goes wrong, the answer is no.

mod answer;
mod lifecycle;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::readers::TurnLogs;
use super::sink::TurnSink;
use super::source;
use super::upstream_reports::UpstreamReports;
pub use crate::agent::RESTART;
use crate::agent::{AgentError, AgentOutput, Ask, AskChoice, AskPosition, TurnEvent};
use crate::delivery::Delivery;
use crate::i18n::TextKey;
use crate::ids::{AskId, TurnId};
use crate::rules::LiveRules;
use crate::store::{self, GATEWAY, Store, TurnRow};
use crate::testing::broken;
pub use answer::{AnswerResult, choice};
pub use lifecycle::PER_TURN;
use lifecycle::{AskContext, tell};

/// What agents ask people. One per engine.
pub(super) struct Asks {
    pub store: Store,
    pub delivery: Arc<Delivery>,
    pub live: Arc<LiveRules>,
    /// How long people have.
    pub answer_within: Duration,
    /// The engine's own: fired when the process is about to end.
    pub draining: CancellationToken,
    /// The engine's own: it waits for these at the end.
    pub tasks: TaskTracker,
    /// Whom to wake when a person has answered; the other end is the task of the question.
    pub waiting: Mutex<HashMap<AskId, Arc<Notify>>>,
    /// Where readers of a turn see what is asked.
    pub logs: Arc<TurnLogs>,
}

impl Asks {
    /// Somebody answered. A question nobody waits for is over, and the store says so.
    pub fn answered(&self, ask: &AskId) {
        if let Some(waiter) = self.waiting().get(ask) {
            waiter.notify_one();
        }
    }

    /// Denies whatever an earlier process left, and says so where it was asked and to whoever reads. Also what a
    /// person had allowed and the agent was not told: it is another process that would act.
    pub async fn deny_left(&self) -> store::Result<()> {
        if broken("ask-restart") {
            return Ok(());
        }
        let (rules, delivery) = (self.live.now(), self.delivery.clone());
        let denied = self.store.write(move |tx| {
            tx.prune_asks()?;
            let left = tx.left_asks()?;
            for ask in &left {
                let Some(turn) = tx.turn(&ask.turn)? else { continue };
                let max = source::max_text(&delivery, &turn.source);
                if tx.withdraw_ask(&ask.id, RESTART)? {
                    tx.audit_ask(&turn, &ask.digest, GATEWAY, None, RESTART)?;
                    let words = TextKey::AskRestarted.with("title", ask.title.as_str());
                    tell(tx, &rules.words, &turn, max, ask.id.end_key(), &words)?;
                }
            }
            Ok((left.len(), tx.asks_so_far()?))
        });
        let (denied, so_far) = denied.await?;
        self.logs.add_prior_asks(so_far);
        if denied > 0 {
            tracing::info!(asks = denied, "questions of the last run are denied");
            self.delivery.accounts().for_each(|account| account.wake());
        }
        Ok(())
    }

    /// Asks, and waits.
    async fn ask(self: Arc<Self>, turn: TurnRow, stop: CancellationToken, ask: Ask) -> AskChoice {
        let (reply, choice) = oneshot::channel();
        let asking = AskContext { asks: self.clone(), turn, stop: stop.clone() };
        self.tasks.spawn(asking.run(ask, reply));
        let choice = choice.await.unwrap_or(AskChoice::Deny);
        // The last look: nothing is waited for between this and the agent.
        match self.draining.is_cancelled() || (stop.is_cancelled() && !broken("ask-stop")) {
            true => AskChoice::Deny,
            false => choice,
        }
    }

    /// Where in its turn a question would stand that is asked or answered now.
    fn ask_position(&self, turn: &TurnId) -> AskPosition {
        self.logs.of(turn).map(|log| log.ask_position()).unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<AskId, Arc<Notify>>> {
        self.waiting.lock()
    }
}

/// The [`AgentOutput`] of one try of a turn: what happens goes to the sink, what is asked to people.
pub(super) struct TurnOutput<'a> {
    sink: &'a TurnSink<'a>,
    asks: &'a Arc<Asks>,
    turn: &'a TurnRow,
    /// Fired when a person asks to stop the turn.
    stop: &'a CancellationToken,
    /// The agent's reports about the session.
    pub reports: UpstreamReports,
}

impl<'a> TurnOutput<'a> {
    pub fn new(
        sink: &'a TurnSink<'a>,
        asks: &'a Arc<Asks>,
        turn: &'a TurnRow,
        stop: &'a CancellationToken,
    ) -> Self {
        Self { sink, asks, turn, stop, reports: UpstreamReports::default() }
    }
}

impl AgentOutput for TurnOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        match event {
            TurnEvent::Upstream(report) => self.reports.put(report),
            event => self.sink.emit(event),
        }
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(self.asks.clone().ask(self.turn.clone(), self.stop.clone(), ask))
    }

    fn replace_text(&self, text: &str) {
        self.sink.replace_text(text);
    }

    fn wait_for_room(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.sink.wait_for_room()
    }
}
