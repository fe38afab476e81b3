//! The message that shows a growing answer, and the pace of its edits.

use std::sync::Arc;
use std::time::Instant;

use talaria_platform::{BodyKind, MessageBody, MessageId, PlatformErrorKind, SendKey, ShowMode};

use super::{DeliveryAccount, REQUEST, now};
use crate::ids::TurnId;
use crate::pace::{EditPace, NextRequest, UnshownText};
use crate::store;
use crate::testing::failpoint;
use crate::turn_source::RoomQuestion;
use crate::util::this_process;

/// One growing answer. While it exists, the turn's rows in the outbox wait.
pub struct LiveMessage {
    account: Arc<DeliveryAccount>,
    turn: TurnId,
    question: Arc<RoomQuestion>,
    pace: EditPace,
    /// The message that shows the answer, once the platform has named it. At first it may be the message of the
    /// previous attempt, which this one takes over.
    anchor: Option<MessageId>,
    /// Key to send the message with, if there is none yet.
    key: SendKey,
    /// The store knows that this turn shows something, so deleting the prompt also removes it.
    known: bool,
    /// The end of an earlier turn has yet to arrive in this place. Until then nothing is shown: prompts are
    /// answered in order. Cleared only by `released`.
    held: bool,
    /// Counts edits, so that each has a key of its own. Restarts with each process, which is harmless: partial
    /// edits are never repeated.
    revision: u32,
    /// A request ended with unknown outcome and may still arrive, after the final.
    uncertain: bool,
    /// The platform refuses partial edits of this message; only the final is tried.
    muted: bool,
    _open: OpenTurnGuard,
}

/// Keeps the turn's rows in the outbox waiting while it exists.
struct OpenTurnGuard {
    account: Arc<DeliveryAccount>,
    turn: TurnId,
}

impl OpenTurnGuard {
    fn new(account: &Arc<DeliveryAccount>, turn: &TurnId) -> Self {
        account.open().insert(turn.clone());
        Self { account: account.clone(), turn: turn.clone() }
    }
}

impl Drop for OpenTurnGuard {
    fn drop(&mut self) {
        self.account.open().remove(&self.turn);
        self.account.wake();
    }
}

/// Text to store before people can see it.
pub struct TextCheckpoint {
    /// Length of the text that was stored before.
    pub offset: usize,
    /// Text since then.
    pub text: String,
}

impl LiveMessage {
    /// Opens the answer of a turn; `None` if the platform only shows finished answers.
    pub async fn open(
        account: &Arc<DeliveryAccount>,
        turn: &TurnId,
        question: &Arc<RoomQuestion>,
    ) -> store::Result<Option<Self>> {
        let Some(pause) = account.pause(0) else { return Ok(None) };
        // Before reading: from now on no other task removes the message.
        let open = OpenTurnGuard::new(account, turn);
        let (id, asked) = (turn.clone(), question.clone());
        let (anchor, held) =
            account.store.read(move |tx| Ok((tx.anchor(&id)?, tx.other_end_pending(&id, &asked)?))).await?;
        let anchor = anchor.filter(|anchor| account.takes_over() || anchor.key == turn.send_key(0));
        let in_doubt = anchor.as_ref().is_some_and(|anchor| anchor.message.is_none());
        let key = anchor.as_ref().map_or_else(|| turn.send_key(0), |anchor| anchor.key.clone());
        let anchor = anchor.and_then(|anchor| anchor.message);
        let own = key == turn.send_key(0);
        // A message that this turn itself has shown before is already in its place.
        let shown = anchor.is_some() && own;
        let budget = match account.about.show {
            // Printed text leaves no edit history.
            ShowMode::Append => u32::MAX,
            _ => account.display.edits,
        };
        Ok(Some(Self {
            account: account.clone(),
            turn: turn.clone(),
            question: question.clone(),
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

    /// Time before which a new text could not be shown, so that checking for one is useless.
    pub fn rests_until(&self) -> Option<Instant> {
        // On other platforms a notice is not part of the message and may be sent at any time.
        let edited = matches!(self.account.about.show, ShowMode::Edit { .. });
        self.pace.earliest().filter(|_| edited && !self.muted && !self.held)
    }

    /// Waits until the ends of all earlier turns have arrived in this place. Never returns if the answer was not held
    /// back.
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
            let (id, asked) = (self.turn.clone(), self.question.clone());
            let state = self
                .account
                .store
                .read(move |tx| Ok((!tx.other_end_pending(&id, &asked)?).then_some(tx.anchor(&id)?)));
            if let Some(anchor) = state.await? {
                self.held = false;
                // The end of the previous attempt may have arrived meanwhile: we take over its message.
                if let Some(anchor) = anchor.filter(|_| self.account.takes_over()) {
                    self.uncertain |= anchor.message.is_none();
                    (self.key, self.anchor) = (anchor.key, anchor.message);
                }
                return Ok(());
            }
            done.await;
        }
    }

    /// Stores the checkpoint, then shows the text: one request, never repeated. A failure is not an error; the
    /// next snapshot, or the final, follows. Returns `true` if the room shows the text.
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
            let (id, message) = (self.turn.clone(), self.anchor.clone());
            // A message that may have been sent under the key of the previous attempt is not ours until the
            // platform names it.
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
            // The prompt was deleted a moment ago, and the list of messages to remove is already fixed.
            if !wanted.await? {
                self.muted = true;
                return Ok(false);
            }
            self.known = !in_doubt;
            failpoint("checkpoint.committed");
        }
        let body = MessageBody {
            reply_to: Some(self.question.event.clone()),
            done: false,
            ..MessageBody::new(BodyKind::Answer, markdown)
        };
        let place = &self.question.place;
        let outcome = match &self.anchor {
            Some(message) => {
                self.revision += 1;
                let key = self.turn.send_key(format_args!("e{}.{}", self.revision, this_process()));
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
                            // An earlier attempt may have posted it, with less text: the next edit shows the
                            // rest.
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

    /// Stores a checkpoint without showing the text.
    pub async fn keep(
        account: &DeliveryAccount,
        turn: &TurnId,
        checkpoint: TextCheckpoint,
    ) -> store::Result<()> {
        let id = turn.clone();
        account.store.write(move |tx| tx.checkpoint(&id, checkpoint.offset, &checkpoint.text)).await
    }

    /// Lets the final be sent. If an edit may still be under way, the final is shown once more later.
    pub async fn close(self) -> store::Result<()> {
        if self.uncertain {
            let (turn, question) = (self.turn, self.question);
            let late = store::unix_now() + REQUEST.as_secs() as i64;
            self.account
                .store
                .write(move |tx| {
                    let first = tx.first_part(&turn)?;
                    tx.show_again(&turn, &question, first.as_ref(), late)
                })
                .await?;
        }
        Ok(())
    }

    async fn remember(&mut self, message: MessageId) -> store::Result<()> {
        let (id, stored) = (self.turn.clone(), message.clone());
        (self.anchor, self.known) = (Some(message), true);
        self.account.store.write_repeatable(move |tx| tx.set_anchor(&id, &stored)).await
    }
}
