//! One ask from its opening to its end.

use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Asks;
use super::message::tell;
use super::opening::{AskOpening, OpenAskTx, digest};
use crate::agent::{Ask, AskChoice, AskOpened, AskPosition, AskResolved, DenyReason, TurnEvent};
use crate::delivery::DeliveryAccount;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AskId;
use crate::store::{AskRow, AskState, GATEWAY, Result, StoreError, TurnRow, Tx, unix_now};
use crate::turns::STORE_PAUSE;
use crate::turns::source::max_text;

/// The task of one ask: opens it, waits for its end in the store, and tells the agent.
pub(super) struct AskTask {
    pub asks: Arc<Asks>,
    pub turn: TurnRow,
    /// Fired when a person stops the turn.
    pub stop: CancellationToken,
}

/// End of an ask.
struct AskEnd {
    choice: AskChoice,
    /// Position stored before the answer is logged; `None` if none was stored. `keep_spot` corrects it if another event
    /// came first.
    foreseen: Option<AskPosition>,
}

/// The reason to look at the state of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// A person has answered.
    Answered,
    /// The time is over.
    Timeout,
    /// A person stopped the turn.
    Stopped,
    /// The process is about to end.
    Restart,
    /// The agent no longer waits.
    Gone,
}

impl WakeReason {
    /// The reason of the denial. An answer that does not count is one that a stop overtook.
    fn denial(self) -> DenyReason {
        match self {
            Self::Answered | Self::Stopped => DenyReason::Stopped,
            Self::Timeout => DenyReason::Timeout,
            Self::Restart => DenyReason::Restart,
            Self::Gone => DenyReason::Gone,
        }
    }

    fn text(self, asks: &Asks, title: &str) -> LocalizedText {
        match self {
            Self::Answered | Self::Stopped => TextKey::AskStopped.with("title", title),
            Self::Timeout => {
                let minutes = asks.answer_within.as_secs().div_ceil(60);
                TextKey::AskTimeout.with("minutes", minutes).with("title", title)
            }
            Self::Restart => TextKey::AskRestarted.with("title", title),
            Self::Gone => TextKey::AskGone.with("title", title),
        }
    }
}

impl AskTask {
    /// Runs to the end of the ask. A dropped `reply` receiver withdraws it.
    pub async fn run(self, ask: Ask, mut reply: oneshot::Sender<AskChoice>) {
        let id = AskId::random();
        let answered = Arc::new(Notify::new());
        // Registered before anybody can answer.
        self.asks.waiting().insert(id.clone(), answered.clone());
        let choice = match self.open(&id, ask.clone()).await {
            Ok(AskOpening::Waits(row, foreseen)) => {
                let stands = self.log_asked(&id, ask, false);
                self.keep_spot(&id, stands, Some(foreseen), |tx, id, at| tx.ask_stands(id, at)).await;
                let AskEnd { choice, foreseen } = self.wait(&row, &answered, &mut reply).await;
                if choice != AskChoice::Deny(DenyReason::Restart) {
                    let stands = self.log_answered(&id, choice.clone());
                    self.keep_spot(&id, stands, foreseen, |tx, id, at| tx.answer_stands(id, at)).await;
                }
                choice
            }
            Ok(AskOpening::Granted(choice)) => choice,
            // The ask was never open, so nobody waits to hear of its end.
            Ok(AskOpening::Denied(DenyReason::Restart)) => AskChoice::Deny(DenyReason::Restart),
            Ok(AskOpening::Denied(reason)) => {
                // The room has a notice about it; an app reads it here.
                self.log_asked(&id, ask, true);
                self.log_answered(&id, AskChoice::Deny(reason));
                AskChoice::Deny(reason)
            }
            Err(error) => {
                tracing::error!(%error, "an ask could not be stored, so it is denied");
                AskChoice::Deny(DenyReason::Failed)
            }
        };
        // An agent that is gone acts on nothing.
        let _ = reply.send(choice);
        self.asks.waiting().remove(&id);
    }

    fn log_asked(&self, id: &AskId, ask: Ask, refused: bool) -> Option<AskPosition> {
        let within = i64::try_from(self.asks.answer_within.as_secs()).unwrap_or(i64::MAX);
        let expires = unix_now().saturating_add(within);
        self.log(TurnEvent::Asked(AskOpened { id: id.clone(), ask, expires, refused }))
    }

    fn log_answered(&self, id: &AskId, choice: AskChoice) -> Option<AskPosition> {
        self.log(TurnEvent::Answered(AskResolved { id: id.clone(), choice }))
    }

    /// Logs an event for all readers of the turn and returns its position. A full log ends the turn, and with it the
    /// ask.
    fn log(&self, event: TurnEvent<'_>) -> Option<AskPosition> {
        self.asks.logs.of(&self.turn.id)?.append_at(event).ok()
    }

    /// Stores the position of a logged event if it is not the expected one, because another event came first.
    async fn keep_spot(
        &self,
        id: &AskId,
        stands: Option<AskPosition>,
        foreseen: Option<AskPosition>,
        keep: fn(&Tx<'_>, &AskId, AskPosition) -> Result<()>,
    ) {
        let Some(ask_position) = stands.filter(|_| stands != foreseen) else { return };
        let id = id.clone();
        if let Err(error) = self.asks.store.write(move |tx| keep(tx, &id, ask_position)).await {
            tracing::warn!(%error, "after a restart, an ask may be repeated at another position");
        }
    }

    /// Stores the ask and puts its message into the outbox, unless it is decided already.
    async fn open(&self, id: &AskId, ask: Ask) -> Result<AskOpening> {
        let account = self.account();
        if account.is_none() && self.turn.source.room().is_some() {
            return Ok(AskOpening::Denied(DenyReason::Gone));
        }
        let (id, turn, live) = (id.clone(), self.turn.clone(), self.asks.live.clone());
        let (draining, max) = (self.asks.draining.clone(), max_text(&self.asks.delivery, &self.turn.source));
        let within = i64::try_from(self.asks.answer_within.as_secs()).unwrap_or(i64::MAX);
        let ask_position = self.asks.ask_position(&turn.id);
        let agents = self.asks.agents.now();
        let opened = self.asks.store.write(move |tx| {
            let rules = live.now();
            let opening = OpenAskTx {
                tx,
                rules: &rules,
                turn: &turn,
                ask: &ask,
                digest: digest(&ask),
                default_agent: agents.default_name(),
                max,
                ask_position,
            };
            opening.open(id, within, &draining)
        });
        let opened = opened.await?;
        if let Some(account) = account {
            account.wake();
        }
        Ok(opened)
    }

    /// The account that shows the ask; `None` for an app, and if the platform is no longer configured.
    fn account(&self) -> Option<Arc<DeliveryAccount>> {
        self.asks.delivery.account(&self.turn.source.room()?.account)
    }

    /// Waits until the ask has ended.
    async fn wait(&self, ask: &AskRow, answered: &Notify, reply: &mut oneshot::Sender<AskChoice>) -> AskEnd {
        let deadline = Instant::now() + self.asks.answer_within;
        loop {
            let why = tokio::select! {
                // Reasons against the ask come first.
                biased;
                () = self.stop.cancelled() => WakeReason::Stopped,
                () = self.asks.draining.cancelled() => WakeReason::Restart,
                () = reply.closed() => WakeReason::Gone,
                () = answered.notified() => WakeReason::Answered,
                () = tokio::time::sleep_until(deadline) => WakeReason::Timeout,
            };
            match self.conclude(ask, why).await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "the end of an ask could not be stored, so it is denied");
                    self.deny_later(ask.clone());
                    let reason = match why {
                        WakeReason::Answered => DenyReason::Failed,
                        WakeReason::Timeout
                        | WakeReason::Stopped
                        | WakeReason::Restart
                        | WakeReason::Gone => why.denial(),
                    };
                    return AskEnd { choice: AskChoice::Deny(reason), foreseen: None };
                }
            }
        }
    }

    /// Ends the ask in the store: the agent gets an answer only if this returns one. `None` if the ask is still open.
    async fn conclude(&self, ask: &AskRow, why: WakeReason) -> Result<Option<AskEnd>> {
        let (ask, turn, asks, rules) =
            (ask.clone(), self.turn.clone(), self.asks.clone(), self.asks.live.now());
        let concluded = self.asks.store.write(move |tx| {
            let why = if asks.draining.is_cancelled() { WakeReason::Restart } else { why };
            let foreseen = asks.ask_position(&turn.id);
            let ended = |choice| {
                // After a restart the next process logs the denial, and finds the position for it.
                if choice != AskChoice::Deny(DenyReason::Restart) {
                    tx.answer_stands(&ask.id, foreseen)?;
                }
                Ok(Some(AskEnd { choice, foreseen: Some(foreseen) }))
            };
            match (tx.ask_state(&ask.id)?, why) {
                (AskState::Open, WakeReason::Answered) => return Ok(None),
                // Only a person's denial ends an ask in the store while its own task still waits.
                (AskState::Over, _) => return ended(AskChoice::Deny(DenyReason::Person)),
                (AskState::Answered { choice, by }, WakeReason::Answered | WakeReason::Timeout) => {
                    if tx.take_ask(&ask.id, &choice)? {
                        tx.audit_ask(&turn, &ask, &by, &choice)?;
                        if let AskChoice::Allow(scope) = choice {
                            tx.add_grant(&ask, &turn, scope, &by)?;
                        }
                        return ended(choice);
                    }
                }
                (AskState::Open, _) | (AskState::Answered { .. }, _) => {}
            }
            let denial = AskChoice::Deny(why.denial());
            if tx.withdraw_ask(&ask.id, why.denial())? {
                tx.audit_ask(&turn, &ask, GATEWAY, &denial)?;
                let max = max_text(&asks.delivery, &turn.source);
                tell(tx, &rules.words, &turn, max, ask.id.end_key(), &why.text(&asks, &ask.title))?;
            }
            ended(denial)
        });
        let choice = concluded.await?;
        if let Some(account) = self.account() {
            account.wake();
        }
        Ok(choice)
    }

    /// Denies the ask in the store once that works again. The agent has its denial already, but until the store has it
    /// a person could still answer an ask that nobody waits for. The next start denies asks that are left.
    fn deny_later(&self, ask: AskRow) {
        let later = Self { asks: self.asks.clone(), turn: self.turn.clone(), stop: self.stop.clone() };
        self.asks.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(STORE_PAUSE) => {}
                    () = later.asks.draining.cancelled() => return,
                }
                if let Ok(_) | Err(StoreError::Closed) = later.conclude(&ask, WakeReason::Gone).await {
                    return;
                }
            }
        });
    }
}
