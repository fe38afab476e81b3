//! One question from the moment it is asked to its end.

use std::sync::Arc;

use talaria_platform::{BodyKind, MessageBody, SendKey};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Asks, RESTART};
use crate::access::GrantScope;
use crate::agent::{Ask, AskChoice, AskOpened, AskPosition, AskResolved, TurnEvent};
use crate::delivery::DeliveryAccount;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::ids::AskId;
use crate::rules::Rules;
use crate::store::{
    AskRow, AskState, GATEWAY, OutboxKind, OutboxRow, Result, StoreError, TurnRow, Tx, unix_now,
};
use crate::testing::broken;
use crate::turn_source::{RoomQuestion, TurnSource};
use crate::turns::STORE_PAUSE;
use crate::turns::source::{self, grant_holds, max_text};
use crate::util::{code_block, code_span, one_line};
use crate::util::{hash, random_code};

/// Questions of one turn that may be open at once. More could not be told apart in a room.
const OPEN: usize = 8;

/// Questions that one turn may ask. An agent that asks in circles must not fill the room for ever.
pub const PER_TURN: usize = 100;

/// Characters of a code. Short enough to type, and it is no secret: the room is shown it.
const CODE: usize = 4;

/// Codes that are tried before we give up; one is enough unless the account has very many open.
const CODES: usize = 16;

/// Characters of a title. It is only a name for the action, which is shown in full below it.
const TITLE: usize = 120;

/// What a question needs to wait for its answer.
pub(super) struct AskContext {
    pub asks: Arc<Asks>,
    pub turn: TurnRow,
    /// Fired when a person asks to stop the turn.
    pub stop: CancellationToken,
}

/// How a question began.
enum AskOpening {
    /// It is in the store, and the room will be shown it; readers are likely told here.
    Waits(Box<AskRow>, AskPosition),
    /// It was allowed before, for longer than once.
    Granted(AskChoice),
    /// It is not even asked, for this reason.
    Denied(&'static str),
}

/// How a question came out.
struct AskEnd {
    choice: AskChoice,
    rule: &'static str,
    /// Where the log will say so, as the store has it; `None` if the store has nothing.
    foreseen: Option<AskPosition>,
}

/// Why it is time to look what became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// Somebody has answered.
    Answered,
    /// The time is over.
    Timeout,
    /// A person asked to stop the turn.
    Stopped,
    /// The process is about to end.
    Restart,
    /// The agent no longer waits.
    Gone,
}

impl WakeReason {
    /// Its name in the audit. An answer that does not count any more is one that a stop was faster than.
    fn rule(self) -> &'static str {
        match self {
            Self::Answered | Self::Stopped => "stopped",
            Self::Timeout => "timeout",
            Self::Restart => RESTART,
            Self::Gone => "gone",
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

impl AskContext {
    /// Asks, waits and tells the agent.
    pub async fn run(self, ask: Ask, mut reply: oneshot::Sender<AskChoice>) {
        let id = AskId::random();
        let answered = Arc::new(Notify::new());
        // Before anybody can answer.
        self.asks.waiting().insert(id.clone(), answered.clone());
        let choice = match self.open(&id, ask.clone()).await {
            Ok(AskOpening::Waits(row, foreseen)) => {
                let stands = self.log_asked(&id, ask, false);
                self.keep_spot(&id, stands, Some(foreseen), |tx, id, at| tx.ask_stands(id, at)).await;
                let AskEnd { choice, rule, foreseen } = self.wait(&row, &answered, &mut reply).await;
                if rule != RESTART {
                    let stands = self.log(TurnEvent::Answered(AskResolved { id: id.clone(), choice, rule }));
                    self.keep_spot(&id, stands, foreseen, |tx, id, at| tx.answer_stands(id, at)).await;
                }
                choice
            }
            Ok(AskOpening::Granted(choice)) => choice,
            // It was never asked, so nobody waits to hear of it.
            Ok(AskOpening::Denied(RESTART)) => AskChoice::Deny,
            Ok(AskOpening::Denied(rule)) => {
                // A room was told in its own words; a program reads it here.
                self.log_asked(&id, ask, true);
                let choice = AskChoice::Deny;
                self.log(TurnEvent::Answered(AskResolved { id: id.clone(), choice, rule }));
                choice
            }
            Err(error) => {
                tracing::error!(%error, "a question could not be kept, so the answer is no");
                AskChoice::Deny
            }
        };
        // An agent that is gone does nothing anyway.
        let _ = reply.send(choice);
        self.asks.waiting().remove(&id);
    }

    fn log_asked(&self, id: &AskId, ask: Ask, refused: bool) -> Option<AskPosition> {
        let within = i64::try_from(self.asks.answer_within.as_secs()).unwrap_or(i64::MAX);
        let expires = unix_now().saturating_add(within);
        self.log(TurnEvent::Asked(AskOpened { id: id.clone(), ask, expires, refused }))
    }

    /// Tells whoever reads the turn, and says where. A log that is full ends the turn, and with it the question.
    fn log(&self, event: TurnEvent<'_>) -> Option<AskPosition> {
        self.asks.logs.of(&self.turn.id)?.append_at(event).ok()
    }

    /// Keeps where something stands in the log, if that is not where it was foreseen: something else came before.
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
            tracing::warn!(%error, "after a restart, a question may be told in another place");
        }
    }

    /// Puts the question into the store and into the room, unless it is decided already.
    async fn open(&self, id: &AskId, ask: Ask) -> Result<AskOpening> {
        let account = self.account();
        if account.is_none() && self.turn.source.room().is_some() {
            return Ok(AskOpening::Denied("gone"));
        }
        let (id, turn, live) = (id.clone(), self.turn.clone(), self.asks.live.clone());
        let (draining, max) = (self.asks.draining.clone(), max_text(&self.asks.delivery, &self.turn.source));
        let within = i64::try_from(self.asks.answer_within.as_secs()).unwrap_or(i64::MAX);
        let ask_position = self.asks.ask_position(&turn.id);
        let opened = self.asks.store.write(move |tx| {
            let rules = live.now();
            let opening = OpenAskTx {
                tx,
                rules: &rules,
                turn: &turn,
                ask: &ask,
                digest: digest(&ask),
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

    /// Waits until there is an end of it; with what led to it.
    async fn wait(&self, ask: &AskRow, answered: &Notify, reply: &mut oneshot::Sender<AskChoice>) -> AskEnd {
        let deadline = Instant::now() + self.asks.answer_within;
        loop {
            let why = tokio::select! {
                // What speaks against it comes first.
                biased;
                () = self.stop.cancelled(), if !broken("ask-stop") => WakeReason::Stopped,
                () = self.asks.draining.cancelled() => WakeReason::Restart,
                () = reply.closed() => WakeReason::Gone,
                () = answered.notified() => WakeReason::Answered,
                () = tokio::time::sleep_until(deadline), if !broken("ask-expiry") => WakeReason::Timeout,
            };
            match self.conclude(ask, why).await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "an answer could not be kept, so it is no");
                    self.deny_later(ask.clone());
                    return AskEnd { choice: AskChoice::Deny, rule: why.rule(), foreseen: None };
                }
            }
        }
    }

    /// Makes an end of it in the store: the agent may act only if this says so. `None`: nothing has changed.
    async fn conclude(&self, ask: &AskRow, why: WakeReason) -> Result<Option<AskEnd>> {
        let (ask, turn, asks, rules) =
            (ask.clone(), self.turn.clone(), self.asks.clone(), self.asks.live.now());
        let concluded = self.asks.store.write(move |tx| {
            let why = if asks.draining.is_cancelled() { WakeReason::Restart } else { why };
            let foreseen = asks.ask_position(&turn.id);
            let ended = |choice, rule| {
                // Where a restart ends it the next process says so, and knows where.
                if rule != RESTART {
                    tx.answer_stands(&ask.id, foreseen)?;
                }
                Ok(Some(AskEnd { choice, rule, foreseen: Some(foreseen) }))
            };
            match (tx.ask_state(&ask.id)?, why) {
                (AskState::Open, WakeReason::Answered) => return Ok(None),
                (AskState::Over, _) => return ended(AskChoice::Deny, "denied"),
                (AskState::Approved { grant, by }, WakeReason::Answered | WakeReason::Timeout) => {
                    if tx.take_ask(&ask.id)? {
                        tx.audit_ask(&turn, &ask.digest, &by, Some(grant), "approved")?;
                        tx.add_grant(&ask, &turn, grant, &by)?;
                        return ended(AskChoice::Allow(grant), "approved");
                    }
                }
                (AskState::Open, _) | (AskState::Approved { .. }, _) => {}
            }
            if tx.withdraw_ask(&ask.id, why.rule())? {
                tx.audit_ask(&turn, &ask.digest, GATEWAY, None, why.rule())?;
                let max = max_text(&asks.delivery, &turn.source);
                tell(tx, &rules.words, &turn, max, ask.id.end_key(), &why.text(&asks, &ask.title))?;
            }
            ended(AskChoice::Deny, why.rule())
        });
        let choice = concluded.await?;
        if let Some(account) = self.account() {
            account.wake();
        }
        Ok(choice)
    }

    /// The agent was told no, and the store does not know it. Until it does, somebody could still say yes to
    /// nobody; the next start denies what is left.
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

/// The transaction in which a question begins.
struct OpenAskTx<'a> {
    tx: &'a Tx<'a>,
    rules: &'a Rules,
    turn: &'a TurnRow,
    ask: &'a Ask,
    digest: String,
    /// The longest message that the platform takes, in bytes.
    max: usize,
    /// Where in its turn it is asked.
    ask_position: AskPosition,
}

impl OpenAskTx<'_> {
    fn open(&self, id: AskId, within: i64, draining: &CancellationToken) -> Result<AskOpening> {
        let (tx, turn) = (self.tx, self.turn);
        if draining.is_cancelled() {
            return self.deny(RESTART);
        }
        if tx.turn(&turn.id)?.is_none_or(|turn| turn.stop) {
            return self.deny("stopped");
        }
        let title = match &turn.source {
            TurnSource::Room(_) => code_span(&self.ask.title, TITLE),
            TurnSource::App(_) => one_line(&self.ask.title, TITLE),
        };
        let (shows, unshown) = match &turn.source {
            // Every code has the same length.
            TurnSource::Room(_) => {
                let text = self.text(&title, &"X".repeat(CODE));
                (text.is_some_and(|text| text.len() <= self.max), "too long")
            }
            // An app gets all of it, as data.
            TurnSource::App(_) => (!self.ask.detail.trim().is_empty(), "nothing to judge"),
        };
        if !shows {
            let words = TextKey::AskUnshowable.with("title", title);
            self.tell(id.end_key(), &words)?;
            return self.deny(unshown);
        }
        if let Some((grant, by)) = self.granted()? {
            tx.audit_ask(turn, &self.digest, &by, Some(grant), "granted")?;
            return Ok(AskOpening::Granted(AskChoice::Allow(grant)));
        }
        let (asked, open) = tx.asked_by(&turn.id)?;
        if asked >= PER_TURN || open >= OPEN {
            // One key for all of them: the room is told once.
            self.tell(turn.id.send_key("asks"), &TextKey::AskTooMany.into())?;
            return self.deny("too many");
        }
        let mut row = AskRow::of(turn, id, title, self.digest.clone());
        for _ in 0..CODES {
            row.code = random_code(CODE);
            if tx.add_ask(&row, self.ask_position, unix_now().saturating_add(within))? {
                if let TurnSource::Room(question) = &turn.source {
                    let Some(text) = self.text(&row.title, &row.code) else { break };
                    tx.add_outbox(&ask_message(question, row.id.send_key(), text))?;
                }
                return Ok(AskOpening::Waits(Box::new(row), self.ask_position));
            }
        }
        self.deny("too many")
    }

    fn tell(&self, key: SendKey, phrase: &LocalizedText) -> Result<()> {
        tell(self.tx, &self.rules.words, self.turn, self.max, key, phrase)
    }

    /// Says no at once.
    fn deny(&self, rule: &'static str) -> Result<AskOpening> {
        self.tx.audit_ask(self.turn, &self.digest, GATEWAY, None, rule)?;
        Ok(AskOpening::Denied(rule))
    }

    /// The whole message that asks; `None` if it would not show what a person must judge: there is nothing, or
    /// an operator's wording leaves it out.
    fn text(&self, title: &str, code: &str) -> Option<String> {
        let Ask { detail, cwd, .. } = self.ask;
        let block = code_block(detail);
        let folder = cwd.as_ref().map(|cwd| code_span(cwd, usize::MAX));
        let action = match folder.clone() {
            Some(folder) => TextKey::AskActionIn.with("action", block.as_str()).with("folder", folder),
            None => LocalizedText::Said(block.clone()),
        };
        let text = self
            .rules
            .words
            .say(&TextKey::Ask.with("title", title).with("action", action).with("code", code));
        let shows = |part: &str| text.contains(part);
        let all =
            !detail.trim().is_empty() && shows(&block) && shows(code) && folder.is_none_or(|f| shows(&f));
        all.then_some(text)
    }

    /// Who has allowed this before, for longer than once, and may still do so.
    fn granted(&self) -> Result<Option<(GrantScope, String)>> {
        let (tx, turn) = (self.tx, self.turn);
        for (grant, by) in tx.granted(turn, &self.digest)? {
            if grant_holds(tx, self.rules, &turn.source, grant, &by)? {
                return Ok(Some((grant, by)));
            }
        }
        Ok(None)
    }
}

/// What makes two questions the same: every word that was shown, and those that were not.
fn digest(ask: &Ask) -> String {
    let folder = ask.cwd.as_deref().map_or(["none", ""], |cwd| ["in", cwd]);
    hash(["ask", &ask.title, &ask.detail].into_iter().chain(folder))
}

/// Tells the room how it came out; nothing if the operator silenced it. A program reads it in the turn.
pub(super) fn tell(
    tx: &Tx<'_>,
    words: &TextCatalog,
    turn: &TurnRow,
    max_text: usize,
    key: SendKey,
    phrase: &LocalizedText,
) -> Result<()> {
    source::notice(&turn.source, key, max_text).map_or(Ok(()), |notice| notice.tell(tx, words, phrase))
}

/// The question itself: one message, because nobody may approve half of it. It must not wait for the end of the
/// growing answer, so it belongs to no turn.
fn ask_message(question: &RoomQuestion, key: SendKey, text: String) -> OutboxRow {
    OutboxRow {
        key,
        account: question.account.clone(),
        place: question.place.clone(),
        turn: None,
        kind: OutboxKind::Notice,
        part: 0,
        body: MessageBody { reply_to: Some(question.event.clone()), ..MessageBody::new(BodyKind::Ask, text) },
        not_before: 0,
    }
}
