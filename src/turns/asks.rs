//! Asks of agents: each waits for a person's answer.
//!
//! The store decides, once, how an ask ends; the task of the ask only waits for that on behalf of the agent. Each ask has
//! a task of its own, so that it ends even if the agent is dropped: it is answered, times out, is stopped, is denied by the
//! end of the process, or is withdrawn. Every failure is a denial.

mod app_answer;
mod lifecycle;
mod message;
mod opening;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::readers::TurnLogs;
use super::source;
use crate::agent::{AgentRegistry, Ask, AskChoice, AskPosition, DenyReason};
use crate::delivery::Delivery;
use crate::i18n::TextKey;
use crate::ids::{AskId, TurnId};
use crate::rules::LiveRules;
use crate::store::{self, GATEWAY, Store, TurnRow};
pub use app_answer::{AnswerResult, AskReply};
use lifecycle::AskTask;
use message::tell;
pub use opening::PER_TURN;

/// Keeps the open asks of all turns. One per engine.
pub(super) struct Asks {
    pub store: Store,
    pub delivery: Arc<Delivery>,
    pub live: Arc<LiveRules>,
    pub agents: Arc<AgentRegistry>,
    /// Time that people have to answer.
    pub answer_within: Duration,
    /// The engine's token: fired when the process is about to end.
    pub draining: CancellationToken,
    /// The engine's tracker: the engine waits for these tasks at the end.
    pub tasks: TaskTracker,
    /// Wakes the task of an ask when a person has answered; the task holds the other end.
    pub waiting: Mutex<HashMap<AskId, Arc<Notify>>>,
    /// The logs in which readers of a turn see its asks.
    pub logs: Arc<TurnLogs>,
}

impl Asks {
    /// Wakes the task of an ask that a person answered. Without such a task the ask is over, and the store says so.
    pub fn answered(&self, ask: &AskId) {
        if let Some(waiter) = self.waiting().get(ask) {
            waiter.notify_one();
        }
    }

    /// Denies every ask that an earlier process left, in its room and to all readers. That includes answers that the
    /// agent never got: another process would act on them.
    pub async fn deny_left(&self) -> store::Result<()> {
        let (rules, delivery) = (self.live.now(), self.delivery.clone());
        let denied = self.store.write(move |tx| {
            tx.prune_asks()?;
            let left = tx.left_asks()?;
            for ask in &left {
                let Some(turn) = tx.turn(&ask.turn)? else { continue };
                let max = source::max_text(&delivery, &turn.source);
                if tx.withdraw_ask(&ask.id, DenyReason::Restart)? {
                    tx.audit_ask(&turn, ask, GATEWAY, &AskChoice::Deny(DenyReason::Restart))?;
                    let words = TextKey::AskRestarted.with("title", ask.title.as_str());
                    tell(tx, &rules.words, &turn, max, ask.id.end_key(), &words)?;
                }
            }
            Ok((left.len(), tx.asks_so_far()?))
        });
        let (denied, so_far) = denied.await?;
        self.logs.add_prior_asks(so_far);
        if denied > 0 {
            tracing::info!(asks = denied, "asks of the last run are denied");
            self.delivery.accounts().for_each(|account| account.wake());
        }
        Ok(())
    }

    /// Opens an ask and waits for its end.
    pub async fn ask(self: Arc<Self>, turn: TurnRow, stop: CancellationToken, ask: Ask) -> AskChoice {
        let (reply, choice) = oneshot::channel();
        let task = AskTask { asks: self.clone(), turn, stop: stop.clone() };
        self.tasks.spawn(task.run(ask, reply));
        let choice = choice.await.unwrap_or(AskChoice::Deny(DenyReason::Failed));
        // The last look: nothing is awaited between this and the agent.
        match choice {
            AskChoice::Deny(_) => choice,
            _ if self.draining.is_cancelled() => AskChoice::Deny(DenyReason::Restart),
            _ if stop.is_cancelled() => AskChoice::Deny(DenyReason::Stopped),
            AskChoice::Allow(_) | AskChoice::Option(_) | AskChoice::Text(_) => choice,
        }
    }

    /// Whether approvals for longer than once still hold for equal asks of this turn. Every failure is a no.
    pub async fn still_granted(&self, turn: &TurnRow, asks: Vec<Ask>) -> bool {
        let digests: Vec<_> = asks.iter().map(opening::digest).collect();
        let (rules, turn) = (self.live.now(), turn.clone());
        let default = self.agents.now().default_name().clone();
        let held = self.store.read(move |tx| {
            for digest in &digests {
                if opening::granted(tx, &rules, &turn, digest, &default)?.is_none() {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        held.await.unwrap_or_else(|error| {
            tracing::error!(%error, "nobody knows whether approvals still hold");
            false
        })
    }

    /// Position in its turn of an ask or answer that is logged now.
    fn ask_position(&self, turn: &TurnId) -> AskPosition {
        self.logs.of(turn).map(|log| log.ask_position()).unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<AskId, Arc<Notify>>> {
        self.waiting.lock()
    }
}
