//! Takes what platforms bring: one transaction per batch, then the turns it started.
//!
//! In that transaction an event is either seen before (and nothing happens), or it becomes a waiting
//! turn, the effect of a command, or a refusal that the room is told. There is no moment in which it is
//! only in memory.

use std::sync::Arc;

use talaria_platform::{
    AccountId, Batch, Body, BodyKind, BoxFuture, Event, EventKind, Inbox, InboxError, Message, SendKey,
};

use crate::agent::AgentInfo;
use crate::command::{self, After, Parsed};
use crate::delivery::Account;
use crate::session::{TurnId, hash, idempotency_key, session_key};
use crate::store::{OutboxKind, OutboxRow, Result, State, Store, StoreError, TurnRow, Tx};
use crate::testing::failpoint;
use crate::turns::Turns;

/// Prompts that may wait behind a running turn. More would only be answered when nobody remembers them.
pub const WAITING: usize = 16;

/// The inbox of one account.
pub struct Hub {
    account: Arc<Account>,
    store: Store,
    turns: Arc<Turns>,
}

impl Hub {
    /// The inbox that a platform is given.
    pub fn inbox(account: Arc<Account>, store: Store, turns: Arc<Turns>) -> Arc<dyn Inbox> {
        Arc::new(Self { account, store, turns })
    }

    async fn take(&self, batch: Batch) -> Result<()> {
        let (account, agent) = (self.account.id().clone(), self.turns.agent());
        failpoint("accept.received");
        let after = self.store.write(move |tx| accept(tx, &account, &agent, batch)).await?;
        failpoint("accept.committed");
        for step in after {
            match step {
                After::Run(session, turn) => self.turns.enqueue(&session, turn),
                After::Stop(session) => self.turns.stop(&session),
            }
        }
        self.account.wake();
        Ok(())
    }
}

impl Inbox for Hub {
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>> {
        let account = self.account.id().clone();
        Box::pin(async move { self.store.read(move |tx| tx.cursor(&account)).await.map_err(inbox_error) })
    }

    fn accept(&self, batch: Batch) -> BoxFuture<'_, Result<(), InboxError>> {
        Box::pin(async move { self.take(batch).await.map_err(inbox_error) })
    }

    fn parked(&self) -> BoxFuture<'_, Result<Vec<(String, String)>, InboxError>> {
        let account = self.account.id().clone();
        Box::pin(async move { self.store.read(move |tx| tx.parked(&account)).await.map_err(inbox_error) })
    }

    fn note<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<String>, InboxError>> {
        let (account, key) = (self.account.id().clone(), key.to_owned());
        Box::pin(async move { self.store.read(move |tx| tx.note(&account, &key)).await.map_err(inbox_error) })
    }

    fn set_note<'a>(&'a self, key: &'a str, value: &'a str) -> BoxFuture<'a, Result<(), InboxError>> {
        let (account, key, value) = (self.account.id().clone(), key.to_owned(), value.to_owned());
        Box::pin(async move {
            self.store.write(move |tx| tx.set_note(&account, &key, &value)).await.map_err(inbox_error)
        })
    }
}

/// Takes a whole batch in one transaction.
fn accept(tx: &Tx<'_>, account: &AccountId, agent: &AgentInfo, batch: Batch) -> Result<Vec<After>> {
    let mut after = Vec::new();
    for event in &batch.events {
        if tx.see(account, &event.place.room, &event.id)? {
            after.extend(take_event(tx, account, agent, event)?);
        }
    }
    for (key, value) in &batch.parked {
        tx.park(account, key, value)?;
    }
    if let Some(cursor) = &batch.cursor {
        tx.set_cursor(account, cursor)?;
    }
    Ok(after)
}

fn take_event(tx: &Tx<'_>, account: &AccountId, agent: &AgentInfo, event: &Event) -> Result<Vec<After>> {
    match &event.kind {
        EventKind::Message(message) if message.addressed => take_message(tx, account, agent, event, message),
        EventKind::Missed { count } => {
            let words =
                format!("{count} messages could not be read any more. Please send again what matters.");
            notice(tx, account, event, words)?;
            Ok(Vec::new())
        }
        EventKind::Edited { of, text } => {
            // Only a question that still waits can change, and only by its author.
            if let Some(turn) = tx.waiting_turn_of(account, &event.place.room, of)?
                && turn.author == event.author.id.as_str()
            {
                tx.set_prompt(&turn.id, text)?;
            }
            Ok(Vec::new())
        }
        EventKind::Deleted { of } => {
            if let Some(turn) = tx.waiting_turn_of(account, &event.place.room, of)?
                && turn.author == event.author.id.as_str()
            {
                tx.ask_to_stop(&turn.id)?;
            }
            Ok(Vec::new())
        }
        EventKind::Message(_) | EventKind::Reacted { .. } | EventKind::Left => Ok(Vec::new()),
    }
}

fn take_message(
    tx: &Tx<'_>,
    account: &AccountId,
    agent: &AgentInfo,
    event: &Event,
    message: &Message,
) -> Result<Vec<After>> {
    match command::parse(&message.text) {
        Parsed::Command(command) => {
            let (after, answer) = command::apply(tx, command, account, event, agent)?;
            if let Some(words) = answer {
                notice(tx, account, event, words)?;
            }
            Ok(after)
        }
        Parsed::Unknown(words) => {
            notice(tx, account, event, words)?;
            Ok(Vec::new())
        }
        Parsed::Prompt => take_prompt(tx, account, event, message),
    }
}

fn take_prompt(tx: &Tx<'_>, account: &AccountId, event: &Event, message: &Message) -> Result<Vec<After>> {
    if message.text.trim().is_empty() && message.media.is_empty() {
        return Ok(Vec::new());
    }
    let session = tx.session_for(&session_key(account, &event.place))?;
    let before = tx.open_turns(&session.id)?.len();
    if before > WAITING {
        let words = format!(
            "{WAITING} messages wait already, so this one was not taken. Please send it again later."
        );
        notice(tx, account, event, words)?;
        return Ok(Vec::new());
    }
    if before > 0 {
        let ahead = if before == 1 { "one is" } else { &format!("{before} are") };
        notice(tx, account, event, format!("Noted; {ahead} before it. /stop ends what runs."))?;
    }
    let room = &event.place.room;
    let turn = TurnRow {
        id: TurnId::new(account, room, &event.id, 0),
        session: session.id,
        account: account.clone(),
        place: event.place.clone(),
        event: event.id.clone(),
        author: event.author.id.as_str().to_owned(),
        author_name: event.author.name.clone(),
        room_name: event.room.name.clone(),
        direct: event.room.direct,
        prompt: message.text.clone(),
        media: message.media.clone(),
        attempt: 0,
        key: idempotency_key(account, room, &event.id, 0),
        state: State::Queued,
        stop: false,
        prepared: None,
    };
    if crate::testing::broken("dedupe") && tx.turn(&turn.id)?.is_some() {
        return doubled(tx, turn);
    }
    tx.add_turn(&turn)?;
    Ok(vec![After::Run(turn.session, turn.id)])
}

/// What a gateway without dedupe would do; only for the self-test of the kill tests' checker.
fn doubled(tx: &Tx<'_>, turn: TurnRow) -> Result<Vec<After>> {
    let id = TurnId(crate::session::random_hex(8));
    let turn = TurnRow { key: crate::session::random_hex(16), id, ..turn };
    tx.add_turn(&turn)?;
    Ok(vec![After::Run(turn.session, turn.id)])
}

/// Tells the room something about an event, once.
fn notice(tx: &Tx<'_>, account: &AccountId, event: &Event, words: String) -> Result<()> {
    let digest = hash([account.as_str(), event.place.room.as_str(), event.id.as_str()]);
    let body = Body { reply_to: Some(event.id.clone()), ..Body::new(BodyKind::Notice, words) };
    tx.add_outbox(&OutboxRow {
        key: SendKey::new(format!("n.{}", digest.get(..32).unwrap_or(&digest))),
        account: account.clone(),
        place: event.place.clone(),
        turn: None,
        kind: OutboxKind::Notice,
        part: 0,
        body,
        not_before: 0,
    })
}

fn inbox_error(error: StoreError) -> InboxError {
    tracing::error!(%error, "the store did not take what a platform brought");
    InboxError(error.to_string())
}
