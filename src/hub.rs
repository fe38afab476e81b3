//! Takes what platforms bring: one transaction per batch, then the turns it started.
//!
//! In that transaction an event is either seen before (and nothing happens), or it becomes a waiting
//! turn, the effect of a command, or a refusal that the room is told. There is no moment in which it is
//! only in memory.

use std::sync::Arc;

use talaria_platform::{
    AccountId, Batch, Body, BodyKind, BoxFuture, Event, EventId, EventKind, Inbox, InboxError, Message,
    SendKey, Trust,
};

use crate::agent::AgentInfo;
use crate::command::{self, After, Command, Parsed};
use crate::delivery::Account;
use crate::reply;
use crate::session::{SessionId, TurnId, hash, idempotency_key, random_hex, session_key};
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

    /// On a task of its own: an adapter may be dropped while it waits, and what is committed must be acted
    /// on all the same.
    async fn take(&self, batch: Batch) -> Result<()> {
        let (account, store, turns) = (self.account.clone(), self.store.clone(), self.turns.clone());
        let taking = tokio::spawn(async move {
            let taken = Taken {
                account: account.id().clone(),
                agent: turns.agent(),
                max_text: account.about().max_text,
            };
            failpoint("accept.received");
            let after = store.write(move |tx| taken.accept(tx, &batch)).await?;
            failpoint("accept.committed");
            for step in after {
                match step {
                    After::Run(session, turn) => turns.enqueue(&session, turn),
                    After::Stop(session) => turns.stop(&session),
                    After::StopTurn(session, turn) => turns.stop_turn(&session, &turn),
                }
            }
            account.wake();
            Ok(())
        });
        taking.await.unwrap_or(Err(StoreError::Panicked))
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

/// What the transaction needs to know.
struct Taken {
    account: AccountId,
    agent: AgentInfo,
    max_text: usize,
}

impl Taken {
    /// Takes a whole batch in one transaction.
    fn accept(&self, tx: &Tx<'_>, batch: &Batch) -> Result<Vec<After>> {
        let mut after = Vec::new();
        for event in &batch.events {
            // An author whom the keys contradict is nobody, and gets nothing.
            let new = tx.see(&self.account, &event.place.room, &event.id)?;
            if new && event.author.trust != Trust::Violated {
                after.extend(self.event(tx, event)?);
            }
        }
        for (key, value) in &batch.parked {
            tx.park(&self.account, key, value)?;
        }
        if let Some(cursor) = &batch.cursor {
            tx.set_cursor(&self.account, cursor)?;
        }
        Ok(after)
    }

    fn event(&self, tx: &Tx<'_>, event: &Event) -> Result<Vec<After>> {
        match &event.kind {
            EventKind::Message(message) if message.addressed => self.message(tx, event, message),
            EventKind::Missed { count } => {
                let words =
                    format!("{count} messages could not be read any more. Please send again what matters.");
                self.notice(tx, event, &words)?;
                Ok(Vec::new())
            }
            // Only a question that still waits can change, and only by its author.
            EventKind::Edited { of, text } => {
                if let Some(turn) = self.waiting(tx, event, of)? {
                    tx.set_prompt(&turn.id, text)?;
                }
                Ok(Vec::new())
            }
            EventKind::Deleted { of } => {
                let Some(turn) = self.waiting(tx, event, of)? else { return Ok(Vec::new()) };
                tx.ask_to_stop(&turn.id)?;
                Ok(vec![After::StopTurn(turn.session, turn.id)])
            }
            EventKind::Message(_) | EventKind::Reacted { .. } | EventKind::Left => Ok(Vec::new()),
        }
    }

    /// The turn that the author of `event` started with `of`, if nothing was sent for it yet.
    fn waiting(&self, tx: &Tx<'_>, event: &Event, of: &EventId) -> Result<Option<TurnRow>> {
        let turn = tx.waiting_turn_of(&self.account, &event.place.room, of)?;
        Ok(turn.filter(|turn| turn.author == event.author.id.as_str()))
    }

    fn message(&self, tx: &Tx<'_>, event: &Event, message: &Message) -> Result<Vec<After>> {
        match command::parse(&message.text) {
            Parsed::Command(command, behind) => {
                let (mut after, answer) =
                    command::apply(tx, command, &behind, &self.account, event, &self.agent)?;
                if let Some(words) = answer {
                    self.notice(tx, event, &words)?;
                }
                if command == Command::New && !behind.is_empty() {
                    after.extend(self.prompt(tx, event, &Message { text: behind, ..message.clone() })?);
                }
                Ok(after)
            }
            Parsed::Unknown(words) => {
                self.notice(tx, event, &words)?;
                Ok(Vec::new())
            }
            Parsed::Prompt => self.prompt(tx, event, message),
        }
    }

    fn prompt(&self, tx: &Tx<'_>, event: &Event, message: &Message) -> Result<Vec<After>> {
        if message.text.trim().is_empty() && message.media.is_empty() {
            return Ok(Vec::new());
        }
        let session = tx.session_for(&session_key(&self.account, &event.place))?;
        let before = tx.open_turns(&session.id)?.iter().filter(|turn| !turn.stopping).count();
        if before > WAITING {
            let words = format!(
                "{WAITING} messages wait already, so this one was not taken. Please send it again later."
            );
            self.notice(tx, event, &words)?;
            return Ok(Vec::new());
        }
        if before > 0 {
            let ahead = if before == 1 { "one is" } else { &format!("{before} are") };
            self.notice(tx, event, &format!("Noted; {ahead} before it. /stop ends all of them."))?;
        }
        let turn = self.turn(session.id, event, message);
        if crate::testing::broken("dedupe") && tx.turn(&turn.id)?.is_some() {
            return doubled(tx, turn);
        }
        tx.add_turn(&turn)?;
        Ok(vec![After::Run(turn.session, turn.id)])
    }

    fn turn(&self, session: SessionId, event: &Event, message: &Message) -> TurnRow {
        let (account, room) = (&self.account, &event.place.room);
        TurnRow {
            id: TurnId::new(account, room, &event.id, 0),
            session,
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
        }
    }

    /// Tells the room something about an event, once.
    fn notice(&self, tx: &Tx<'_>, event: &Event, words: &str) -> Result<()> {
        let digest = hash([self.account.as_str(), event.place.room.as_str(), event.id.as_str()]);
        let digest = digest.get(..32).unwrap_or(&digest);
        for (part, words) in reply::split(words, self.max_text).into_iter().enumerate() {
            let body = Body { reply_to: Some(event.id.clone()), ..Body::new(BodyKind::Notice, words) };
            tx.add_outbox(&OutboxRow {
                key: SendKey::new(format!("n.{digest}.{part}")),
                account: self.account.clone(),
                place: event.place.clone(),
                turn: None,
                kind: OutboxKind::Notice,
                part,
                body,
                not_before: 0,
            })?;
        }
        Ok(())
    }
}

/// What a gateway without dedupe would do; only for the self-test of the kill tests' checker.
fn doubled(tx: &Tx<'_>, turn: TurnRow) -> Result<Vec<After>> {
    let id = TurnId(random_hex(8));
    let turn = TurnRow { key: random_hex(16), id, ..turn };
    tx.add_turn(&turn)?;
    Ok(vec![After::Run(turn.session, turn.id)])
}

fn inbox_error(error: StoreError) -> InboxError {
    tracing::error!(%error, "the store did not take what a platform brought");
    InboxError(error.to_string())
}
