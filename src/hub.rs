//! Takes the events of platforms: one transaction per batch, then the steps that follow its commit.
//!
//! In that transaction an event is dropped because it was seen before, is refused, or becomes a waiting turn, the
//! effect of a command, or a notice to the room. It is never only in memory.

mod accept;
mod counted_notice;
mod deletions;
mod edits;
mod enqueue;
mod limits;
mod loop_guard;
pub mod pairing;
mod reactions;
mod refusal_log;
mod untrusted_notices;
mod weak_inbox;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use talaria_platform::{
    BoxFuture, EventBatch, Inbox, InboxError, RoomEvent, RoomEventKind, RoomInvite, Signal, spawn_task,
};

use crate::agent::RewindSupport;
use crate::chat_command::ChatCommand;
use crate::command::{self, CommandRunner, ParsedMessage};
use crate::delivery::DeliveryAccount;
use crate::post_commit::PostCommit;
use crate::rules::LiveRules;
use crate::store::{Result, Store, StoreError};
use crate::testing::failpoint;
use crate::turns::Turns;
use accept::AcceptBatch;
pub use accept::{EventContext, stop_turns_of};
pub use enqueue::WAITING;
use refusal_log::RefusalLog;
use weak_inbox::WeakInbox;

/// The inbox of one account.
pub struct Hub {
    account: Arc<DeliveryAccount>,
    store: Store,
    turns: Arc<Turns>,
    commands: Arc<CommandRunner>,
    live: Arc<LiveRules>,
    /// Strangers whom the log has named.
    strangers: Arc<Mutex<RefusalLog>>,
}

impl Hub {
    /// Creates the hub of one account.
    pub fn new(
        account: Arc<DeliveryAccount>,
        store: Store,
        turns: Arc<Turns>,
        commands: Arc<CommandRunner>,
        live: Arc<LiveRules>,
    ) -> Arc<Self> {
        Arc::new(Self { account, store, turns, commands, live, strangers: Arc::default() })
    }

    /// Returns the inbox for the platform. It works for as long as the hub exists.
    pub fn inbox(self: &Arc<Self>) -> Arc<dyn Inbox> {
        Arc::new(WeakInbox(Arc::downgrade(self)))
    }

    /// Collects the data that the transaction of a batch needs.
    fn acceptor(&self) -> AcceptBatch {
        AcceptBatch {
            account: self.account.id().clone(),
            live: self.live.clone(),
            agents: self.turns.agents().infos(),
            about: *self.account.about(),
        }
    }

    /// Asks agents for unknown capabilities if an event in the batch depends on them. The account's other events wait
    /// meanwhile, so only events of authorized people may trigger this.
    async fn learn_abilities(&self, batch: &Arc<EventBatch>) -> Result<()> {
        let agents = self.turns.agents().infos();
        let is_known = agents.iter().all(|(_, agent)| agent.rewind != RewindSupport::Unknown);
        if is_known || !batch.events.iter().any(may_rewind) {
            return Ok(());
        }
        let (acceptor, batch) = (self.acceptor(), batch.clone());
        if self.store.read(move |tx| acceptor.needs_abilities(tx, &batch)).await? {
            self.turns.learn_abilities().await;
        }
        Ok(())
    }

    /// Commits a batch, then carries out its post-commit steps. The commit and the steps run on their own task, because
    /// the core may drop the adapter's future while it waits.
    async fn take(&self, batch: EventBatch) -> Result<()> {
        let batch = Arc::new(batch);
        self.learn_abilities(&batch).await?;
        let (account, store, turns) = (self.account.clone(), self.store.clone(), self.turns.clone());
        let (strangers, acceptor) = (self.strangers.clone(), self.acceptor());
        let (commands, live) = (self.commands.clone(), self.live.clone());
        let accepted = spawn_task("accept-a-batch", async move {
            failpoint("accept.received");
            // A crash here loses the most: the adapter's own store is ahead of ours.
            if !batch.events.is_empty() {
                failpoint("sync.before_inbox");
            }
            let accepted = store.write(move |tx| acceptor.accept(tx, &batch)).await?;
            failpoint("accept.committed");
            // The last receipt of a place covers all messages before it.
            let mut read = HashMap::new();
            for step in accepted.after {
                match step {
                    PostCommit::Read(place, event) => drop(read.insert(place, event)),
                    PostCommit::Run(session, turn) => turns.enqueue(&session, turn),
                    PostCommit::EndSessions => turns.end_sessions(),
                    PostCommit::StopTurn(session, turn) => turns.stop_turn(&session, &turn),
                    PostCommit::RunCommand(place, key) => {
                        commands.enqueue(account.id().clone(), place, key);
                    }
                    PostCommit::Answered(ask) => turns.answered(&ask),
                    PostCommit::GiveCode(code_message) => {
                        let delivery =
                            pairing::deliver(account.clone(), store.clone(), live.now(), *code_message);
                        spawn_task("send-a-pairing-code", delivery);
                    }
                }
            }
            for (place, event) in read {
                account.signal(&place, Signal::Read(event));
            }
            for stranger in accepted.strangers {
                strangers.lock().name(&stranger);
            }
            account.wake();
            Ok(())
        });
        accepted.await.unwrap_or(Err(StoreError::Panicked))
    }
}

impl Inbox for Hub {
    fn cursor(&self) -> BoxFuture<'_, Result<Option<String>, InboxError>> {
        let account = self.account.id().clone();
        Box::pin(async move { self.store.read(move |tx| tx.cursor(&account)).await.map_err(inbox_error) })
    }

    fn accept(&self, batch: EventBatch) -> BoxFuture<'_, Result<(), InboxError>> {
        Box::pin(async move { self.take(batch).await.map_err(inbox_error) })
    }

    fn may_join(&self, invite: RoomInvite) -> BoxFuture<'_, Result<bool, InboxError>> {
        let acceptor = self.acceptor();
        Box::pin(async move {
            let (follow, stranger) =
                self.store.write(move |tx| acceptor.invite(tx, &invite)).await.map_err(inbox_error)?;
            if let Some(stranger) = stranger {
                self.strangers.lock().name(&stranger);
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

/// Whether an event may take back something that an agent remembers, judged without the store.
fn may_rewind(event: &RoomEvent) -> bool {
    match &event.kind {
        RoomEventKind::Message(message) => {
            matches!(
                command::parse(&message.text),
                ParsedMessage::Command(ChatCommand::Retry | ChatCommand::Undo, _)
            )
        }
        RoomEventKind::Edited { .. } | RoomEventKind::Deleted { .. } => true,
        RoomEventKind::Reacted { .. }
        | RoomEventKind::Left
        | RoomEventKind::Joined
        | RoomEventKind::Unreadable
        | RoomEventKind::Missed { .. } => false,
    }
}

fn inbox_error(error: StoreError) -> InboxError {
    tracing::error!(%error, "the store did not take what a platform brought");
    InboxError(error.to_string())
}
