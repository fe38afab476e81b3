//! An answer that grows in the room: the message that shows it, and its pace.

use std::sync::Arc;
use std::time::Instant;

use talaria_platform::{BodyKind, MessageBody, MessageId, PlatformErrorKind, SendKey, ShowMode};

use super::{DeliveryAccount, REQUEST, now};
use crate::ids::TurnId;
use crate::pace::{EditPace, NextRequest, UnshownText};
use crate::store::{self, TurnRow};
use crate::testing::failpoint;
use crate::util::this_process;

/// One growing answer. For as long as it lives, the turn's rows in the outbox wait.
pub struct LiveMessage {
    account: Arc<DeliveryAccount>,
    turn: Arc<TurnRow>,
    pace: EditPace,
    /// The message that shows the answer, once the platform has named it. At first it may be that of the attempt
    /// before, which this one takes over.
    anchor: Option<MessageId>,
    /// What the message is sent with, if it has to be.
    key: SendKey,
    /// The store knows that this turn itself shows something. From then on what it shows is taken back with it.
    known: bool,
    /// The end of an earlier turn has yet to arrive in this place. Until it has, nothing is shown: what
    /// is asked first is answered first. Cleared only by `released`.
    held: bool,
    /// Counts edits, so that each has a key of its own. Begins anew with each process, which is
    /// harmless: partial edits are never repeated.
    revision: u32,
    /// Some request ended without an answer and may still arrive, after the final.
    uncertain: bool,
    /// The platform refuses partial edits of this message; only the final is tried.
    muted: bool,
    _open: OpenTurnGuard,
}

/// Keeps the turn's rows in the outbox waiting for as long as it lives.
struct OpenTurnGuard {
    account: Arc<DeliveryAccount>,
    turn: TurnId,
}

impl OpenTurnGuard {
    fn new(account: &Arc<DeliveryAccount>, turn: &TurnRow) -> Self {
        account.open().insert(turn.id.clone());
        Self { account: account.clone(), turn: turn.id.clone() }
    }
}

impl Drop for OpenTurnGuard {
    fn drop(&mut self) {
        self.account.open().remove(&self.turn);
        self.account.wake();
    }
}

/// Text that is kept in the store before people can see it.
pub struct TextCheckpoint {
    /// The length of what was kept before.
    pub offset: usize,
    /// What came since.
    pub text: String,
}

impl LiveMessage {
    /// Opens the answer of a turn; `None` where the platform shows only finished answers.
    pub async fn open(account: &Arc<DeliveryAccount>, turn: &Arc<TurnRow>) -> store::Result<Option<Self>> {
        let Some(pause) = account.pause(0) else { return Ok(None) };
        // Before anything is read: from now on nobody takes the message back under our hands.
        let open = OpenTurnGuard::new(account, turn);
        let row = turn.clone();
        let (anchor, held) =
            account.store.read(move |tx| Ok((tx.anchor(&row.id)?, tx.other_end_pending(&row)?))).await?;
        let anchor = anchor.filter(|anchor| account.takes_over() || anchor.key == turn.id.send_key(0));
        let in_doubt = anchor.as_ref().is_some_and(|anchor| anchor.message.is_none());
        let key = anchor.as_ref().map_or_else(|| turn.id.send_key(0), |anchor| anchor.key.clone());
        let anchor = anchor.and_then(|anchor| anchor.message);
        let own = key == turn.id.send_key(0);
        // A message that this very turn has shown before is not in anybody's way.
        let shown = anchor.is_some() && own;
        let budget = match account.about.show {
            // What is printed leaves no history behind.
            ShowMode::Append => u32::MAX,
            _ => account.display.edits,
        };
        Ok(Some(Self {
            account: account.clone(),
            turn: turn.clone(),
            pace: EditPace::new(pause, budget),
            held: held && !shown,
            known: own && (anchor.is_some() || in_doubt),
            anchor,
            key,
            _open: open,
            revision: 0,
            uncertain: in_doubt,
            muted: false,
        }))
    }

    /// When the next snapshot may be shown.
    pub fn next(&self, unshown: UnshownText) -> NextRequest {
        if self.muted || self.held {
            return NextRequest::Never;
        }
        let open = self.account.open().len();
        self.pace.next(now(), unshown, &self.account.rate_limiter(), open)
    }

    /// Until then nobody needs to look for something new: it could not be shown.
    pub fn rests_until(&self) -> Option<Instant> {
        // Elsewhere a notice is no part of the message and may be sent at any time.
        let edited = matches!(self.account.about.show, ShowMode::Edit { .. });
        self.pace.earliest().filter(|_| edited && !self.muted && !self.held)
    }

    /// Waits until the place shows everything that was asked for earlier; for ever if it does already.
    pub async fn released(&mut self) -> store::Result<()> {
        match self.held {
            // Boxed: every stream waits here, and few are held.
            true => Box::pin(self.wait_for_release()).await,
            false => std::future::pending().await,
        }
    }

    async fn wait_for_release(&mut self) -> store::Result<()> {
        loop {
            let done = self.account.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            let row = self.turn.clone();
            let state = self
                .account
                .store
                .read(move |tx| Ok((!tx.other_end_pending(&row)?).then_some(tx.anchor(&row.id)?)));
            if let Some(anchor) = state.await? {
                self.held = false;
                // The end of the attempt before may have arrived meanwhile: its message is ours now.
                if let Some(anchor) = anchor.filter(|_| self.account.takes_over()) {
                    self.uncertain |= anchor.message.is_none();
                    (self.key, self.anchor) = (anchor.key, anchor.message);
                }
                return Ok(());
            }
            done.await;
        }
    }

    /// Keeps the checkpoint and then shows the text: one request, never repeated. A failure is not an
    /// error; the next snapshot, or the final, will do. `true` if the room shows the text.
    pub async fn show(
        &mut self,
        markdown: &str,
        unshown: UnshownText,
        checkpoint: Option<TextCheckpoint>,
    ) -> store::Result<bool> {
        if self.held {
            return Ok(false);
        }
        let started: Instant = now();
        let ticket = self.account.rate_limiter().started(started);
        self.pace.started(started, unshown);
        if let Some(pause) = self.account.pause(markdown.len()) {
            self.pace.set_pause(pause);
        }
        let known = self.known;
        if !known || checkpoint.is_some() {
            let (id, message) = (self.turn.id.clone(), self.anchor.clone());
            // What may have been sent under the key of the attempt before is not ours until it is named.
            let in_doubt = message.is_none() && self.key != id.send_key(0);
            let wanted = self.account.store.write(move |tx| {
                let wanted = match (known, in_doubt) {
                    (true, _) => true,
                    (false, true) => !tx.is_withdrawn(&id)?,
                    (false, false) => tx.add_anchor(&id, message.as_ref())?,
                };
                checkpoint.map_or(Ok(()), |kept| tx.checkpoint(&id, kept.offset, &kept.text))?;
                Ok(wanted)
            });
            // The question was deleted a moment ago, and what is to be taken back is settled.
            if !wanted.await? {
                self.muted = true;
                return Ok(false);
            }
            self.known = !in_doubt;
            failpoint("checkpoint.committed");
        }
        let body = MessageBody {
            reply_to: Some(self.turn.event.clone()),
            done: false,
            ..MessageBody::new(BodyKind::Answer, markdown)
        };
        let place = &self.turn.place;
        let outcome = match &self.anchor {
            Some(message) => {
                self.revision += 1;
                let key = self.turn.id.send_key(format_args!("e{}.{}", self.revision, this_process()));
                self.account.metrics.edits.inc();
                let edit = self.account.platform.edit(place, message, &key, &body);
                let outcome = self.account.request(ticket, edit).await;
                failpoint("edit.sent");
                outcome
            }
            None => {
                let send = self.account.platform.send(place, &self.key, &body);
                match self.account.request(ticket, send).await {
                    Ok(message) => {
                        failpoint("anchor.sent");
                        self.remember(message).await?;
                        failpoint("anchor.committed");
                        if self.uncertain {
                            // An earlier try may have posted it, with less text: the next edit shows the rest.
                            return Ok(false);
                        }
                        Ok(())
                    }
                    Err(kind) => Err(kind),
                }
            }
        };
        match outcome {
            Ok(()) => return Ok(true),
            Err(PlatformErrorKind::Retry { after: Some(_) }) => {}
            Err(PlatformErrorKind::Retry { after: None }) => self.uncertain = true,
            Err(
                PlatformErrorKind::Gone
                | PlatformErrorKind::Rejected
                | PlatformErrorKind::Unsupported
                | PlatformErrorKind::Fatal,
            ) => {
                self.muted = true;
            }
        }
        Ok(false)
    }

    /// Keeps text without showing it.
    pub async fn keep(
        account: &DeliveryAccount,
        turn: &TurnRow,
        checkpoint: TextCheckpoint,
    ) -> store::Result<()> {
        let id = turn.id.clone();
        account.store.write(move |tx| tx.checkpoint(&id, checkpoint.offset, &checkpoint.text)).await
    }

    /// Lets the final go. If an edit may still be under way, the final is shown once more later.
    pub async fn close(self) -> store::Result<()> {
        if self.uncertain {
            let turn = self.turn.clone();
            let late = store::unix_now() + REQUEST.as_secs() as i64;
            self.account
                .store
                .write(move |tx| {
                    let first = tx.first_part(&turn.id)?;
                    tx.show_again(&turn, first.as_ref(), late)
                })
                .await?;
        }
        Ok(())
    }

    async fn remember(&mut self, message: MessageId) -> store::Result<()> {
        let (id, stored) = (self.turn.id.clone(), message.clone());
        (self.anchor, self.known) = (Some(message), true);
        self.account.store.write(move |tx| tx.set_anchor(&id, &stored)).await
    }
}
