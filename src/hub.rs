//! Takes what platforms bring: one transaction per batch, then the turns it started.
//!
//! In that transaction an event is either seen before (and nothing happens), refused, or it becomes a waiting
//! turn, the effect of a command, or a notice that the room is told. There is no moment in which it is
//! only in memory.

mod counted_notice;
mod deletions;
mod door;
mod doubts;
mod edits;
mod limits;
mod loop_guard;
pub mod pairing;
mod prompts;
mod strangers;
mod taking;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use talaria_platform::{Batch, BoxFuture, Event, EventKind, Inbox, InboxError, Invite, Signal};

use crate::agent::Rewind;
use crate::command::{self, After, Command, Parsed};
use crate::delivery::Account;
use crate::rules::Live;
use crate::store::{Result, Store, StoreError};
use crate::testing::failpoint;
use crate::turns::Turns;
use door::Door;
pub use prompts::WAITING;
use strangers::Strangers;
use taking::Taking;
pub use taking::{One, stop_turns_of};

/// The inbox of one account.
pub struct Hub {
    account: Arc<Account>,
    store: Store,
    turns: Arc<Turns>,
    live: Arc<Live>,
    /// Strangers whom the log has named.
    strangers: Arc<Mutex<Strangers>>,
}

impl Hub {
    /// The hub of one account.
    pub fn new(account: Arc<Account>, store: Store, turns: Arc<Turns>, live: Arc<Live>) -> Arc<Self> {
        Arc::new(Self { account, store, turns, live, strangers: Arc::default() })
    }

    /// The inbox that a platform is given: good for as long as the hub is there.
    pub fn inbox(self: &Arc<Self>) -> Arc<dyn Inbox> {
        Arc::new(Door(Arc::downgrade(self)))
    }

    /// What a transaction needs to know.
    fn taking(&self) -> Taking {
        Taking {
            account: self.account.id().clone(),
            live: self.live.clone(),
            agents: taking::Agents { main: self.turns.agent(), local: self.turns.local_agent() },
            about: *self.account.about(),
        }
    }

    /// Has the agent say what it can do, if that decides what becomes of an event. Everything else that the account
    /// brings waits meanwhile, so nobody may cause it who is not obeyed.
    async fn learn_abilities(&self, batch: &Arc<Batch>) -> Result<()> {
        if self.turns.agent().rewind != Rewind::Unknown || !batch.events.iter().any(may_rewind) {
            return Ok(());
        }
        let (taking, batch) = (self.taking(), batch.clone());
        if self.store.read(move |tx| taking.needs_abilities(tx, &batch)).await? {
            self.turns.learn_abilities().await;
        }
        Ok(())
    }

    /// On a task of its own: an adapter may be dropped while it waits, and what is committed must be acted
    /// on all the same.
    async fn take(&self, batch: Batch) -> Result<()> {
        let batch = Arc::new(batch);
        self.learn_abilities(&batch).await?;
        let (account, store, turns) = (self.account.clone(), self.store.clone(), self.turns.clone());
        let (strangers, taking) = (self.strangers.clone(), self.taking());
        let live = self.live.clone();
        let taken = tokio::spawn(async move {
            failpoint("accept.received");
            // The same moment, when something would be lost: an adapter's own store is ahead of ours.
            if !batch.events.is_empty() {
                failpoint("sync.before_inbox");
            }
            let taken = store.write(move |tx| taking.accept(tx, &batch)).await?;
            failpoint("accept.committed");
            // One for each place: it speaks for everything before it too.
            let mut read = HashMap::new();
            for step in taken.after {
                match step {
                    After::Read(place, event) => drop(read.insert(place, event)),
                    After::Run(session, turn) => turns.enqueue(&session, turn),
                    After::StopTurn(session, turn) => turns.stop_turn(&session, &turn),
                    After::Answered(ask) => turns.answered(&ask),
                    After::GiveCode(letter) => {
                        let delivery = pairing::deliver(account.clone(), store.clone(), live.now(), *letter);
                        tokio::spawn(delivery);
                    }
                }
            }
            for (place, event) in read {
                account.signal(&place, Signal::Read(event));
            }
            for stranger in taken.strangers {
                strangers.lock().unwrap_or_else(PoisonError::into_inner).name(&stranger);
            }
            account.wake();
            Ok(())
        });
        taken.await.unwrap_or(Err(StoreError::Panicked))
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

    fn may_join(&self, invite: Invite) -> BoxFuture<'_, Result<bool, InboxError>> {
        let taking = self.taking();
        Box::pin(async move {
            let (follow, stranger) =
                self.store.write(move |tx| taking.invite(tx, &invite)).await.map_err(inbox_error)?;
            if let Some(stranger) = stranger {
                self.strangers.lock().unwrap_or_else(PoisonError::into_inner).name(&stranger);
            }
            Ok(follow)
        })
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

/// Whether an event may take back something that an agent remembers, by its looks alone.
fn may_rewind(event: &Event) -> bool {
    match &event.kind {
        EventKind::Message(message) => {
            matches!(command::parse(&message.text), Parsed::Command(Command::Retry | Command::Undo, _))
        }
        EventKind::Edited { .. } | EventKind::Deleted { .. } => true,
        EventKind::Reacted { .. }
        | EventKind::Left
        | EventKind::Joined
        | EventKind::Unreadable
        | EventKind::Missed { .. } => false,
    }
}

fn inbox_error(error: StoreError) -> InboxError {
    tracing::error!(%error, "the store did not take what a platform brought");
    InboxError(error.to_string())
}
