//! The message in the room that shows a turn.
//!
//! While a turn runs, the table `anchors` names that message; once the turn's end has arrived, the outbox does. An
//! edited prompt is asked again as the next attempt of the same event, and that attempt takes over the message of the
//! one before.

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{AccountId, EventId, MessageId, RoomId, SendKey};

use super::{Result, Tx};
use crate::ids::TurnId;

/// The message that shows a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveMessageRow {
    /// Send key of the message.
    pub key: SendKey,
    /// `None`: it may have been sent.
    pub message: Option<MessageId>,
}

impl Tx<'_> {
    /// Records that a message for the turn is about to be sent, or that `message` of the attempt before is about to be
    /// edited. `false` if the room is not to show the turn any more.
    pub fn add_anchor(&self, id: &TurnId, message: Option<&MessageId>) -> Result<bool> {
        if self.is_withdrawn(id)? {
            return Ok(false);
        }
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO anchors (turn, message) VALUES (?1, ?2)")?
            .execute(params![id.0, message.map(MessageId::as_str)])?;
        Ok(true)
    }

    /// Records that the message that shows the turn was sent.
    pub fn set_anchor(&self, id: &TurnId, message: &MessageId) -> Result<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO anchors (turn, message) VALUES (?1, ?2)")?
            .execute(params![id.0, message.as_str()])?;
        Ok(())
    }

    /// Deletes the record of the message that showed the running turn.
    pub(super) fn forget_anchor(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM anchors WHERE turn = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// The message that shows a turn, or that the turn takes over; `None` if nothing was sent.
    pub fn anchor(&self, id: &TurnId) -> Result<Option<LiveMessageRow>> {
        let (mut doubtful, mut turn) = (None, Some(id.clone()));
        // Each step goes to an earlier attempt, so the loop ends.
        while let Some(id) = turn {
            for anchor in [self.shown_part(&id, 0)?, self.own_anchor(&id)?].into_iter().flatten() {
                if anchor.message.is_some() {
                    return Ok(Some(anchor));
                }
                // If an earlier attempt has a message, this attempt edited that one.
                doubtful = doubtful.or(Some(anchor));
            }
            turn = self.replaced(&id)?;
        }
        Ok(doubtful)
    }

    /// Whether an edit of the message that shows a turn may still be under way, from an earlier process or from the
    /// attempt before.
    pub fn may_be_edited(&self, id: &TurnId) -> Result<bool> {
        let before = self.replaced(id)?;
        let before = before.map(|before| self.own_anchor(&before)).transpose()?.flatten();
        Ok(before.is_some() || self.own_anchor(id)?.is_some())
    }

    /// The message that shows a part of a turn's end, if it has arrived, or may have, and is still there.
    pub fn shown_part(&self, id: &TurnId, part: usize) -> Result<Option<LiveMessageRow>> {
        let mut query = self.conn.prepare_cached(
            "SELECT message FROM outbox WHERE turn = ?1 AND part = ?2 AND kind = 'final'
                 AND (state = 'sent' AND message <> '' OR state = 'doubtful')",
        )?;
        let found: Option<Option<String>> =
            query.query_row(params![id.0, part], |row| row.get(0)).optional()?;
        Ok(found
            .map(|message| LiveMessageRow { key: id.send_key(part), message: message.map(MessageId::new) }))
    }

    /// Records that a message of ours is gone, so that nobody edits it any more. Returns the turn that it showed while
    /// running, if there is one.
    pub fn lose_message(
        &self,
        account: &AccountId,
        room: &RoomId,
        message: &EventId,
    ) -> Result<Option<TurnId>> {
        self.conn
            .prepare_cached(
                "UPDATE outbox SET message = NULL WHERE account = ?1 AND room = ?2 AND message = ?3
                     AND kind <> 'cleanup'",
            )?
            .execute(params![account.as_str(), room.as_str(), message.as_str()])?;
        let values = params![account.as_str(), room.as_str(), message.as_str()];
        let mut query = self.conn.prepare_cached(
            "SELECT turns.id FROM anchors JOIN turns ON turns.id = anchors.turn
             WHERE anchors.message = ?3 AND account = ?1 AND room = ?2 AND undone < 2",
        )?;
        let turn = query.query_row(values, |row| row.get(0)).optional()?;
        self.conn
            .prepare_cached(
                "UPDATE anchors SET message = '' WHERE message = ?3
                     AND EXISTS (SELECT 1 FROM turns WHERE id = anchors.turn AND account = ?1 AND room = ?2)",
            )?
            .execute(values)?;
        Ok(turn.map(TurnId))
    }

    /// Whether the message that showed the turn is gone. Its key is used up: a network that knows it would post
    /// nothing.
    pub fn is_anchor_lost(&self, id: &TurnId) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM anchors WHERE turn = ?1 AND message = '')")?;
        Ok(query.query_row([&id.0], |row| row.get(0))?)
    }

    fn own_anchor(&self, id: &TurnId) -> Result<Option<LiveMessageRow>> {
        let mut query = self.conn.prepare_cached(
            "SELECT message FROM anchors WHERE turn = ?1 AND (message IS NULL OR message <> '')",
        )?;
        let message = query
            .query_row([&id.0], |row| Ok(row.get::<_, Option<String>>(0)?.map(MessageId::new)))
            .optional()?;
        Ok(message.map(|message| LiveMessageRow { key: id.send_key(0), message }))
    }

    /// The attempt before, if this one takes its place in the room.
    fn replaced(&self, id: &TurnId) -> Result<Option<TurnId>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, room, event, attempt FROM turns WHERE id = ?1 AND attempt > 0",
        )?;
        let found = query
            .query_row([&id.0], |row| {
                let (account, room): (String, String) = (row.get(0)?, row.get(1)?);
                let (event, attempt): (String, u32) = (row.get(2)?, row.get(3)?);
                Ok(TurnId::new(
                    &AccountId::new(account),
                    &RoomId::new(room),
                    &EventId::new(event),
                    attempt.saturating_sub(1),
                ))
            })
            .optional()?;
        let Some(before) = found else { return Ok(None) };
        Ok(self.is_withdrawn(&before)?.then_some(before))
    }
}
