//! The outbox: messages that must arrive in a room, stored until they have.

use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;
use talaria_platform::{
    AccountId, BodyKind, MessageBody, MessageId, OutgoingFile, Place, RoomId, SendKey, ThreadId,
};

use super::{Result, Tx};
use crate::ids::TurnId;
use crate::turn_source::RoomQuestion;

/// One message that must arrive. Written with a borrowed body, because an answer may be long.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow<B = MessageBody> {
    /// Idempotency key: unchanged after a crash, so that the message is posted once.
    pub key: SendKey,
    /// The account that sends it.
    pub account: AccountId,
    /// The place that gets it.
    pub place: Place,
    /// The turn that it ends; `None` for a message that ends no turn, such as the answer to a command.
    pub turn: Option<TurnId>,
    /// Purpose of the message; the rate limiter treats kinds differently.
    pub kind: OutboxKind,
    /// Part of a turn's end: part 0 replaces the message that showed the running turn.
    pub part: usize,
    /// The message to show.
    pub body: B,
    /// Earliest time to send it, in seconds since 1970; 0 for at once.
    pub not_before: i64,
}

/// Purpose of an outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxKind {
    /// A part of a turn's end.
    Final,
    /// The first part once more, because an earlier edit may have arrived after it.
    Again,
    /// A message that belongs to no turn's end: the gateway's own texts, and asks.
    Notice,
    /// A new text for a notice that was sent before. `part` counts the changes.
    Change,
    /// Delete the message that shows this part of the turn.
    Removal,
    /// A reaction on the message that `body` replies to.
    Mark,
    /// Delete earlier texts of a deleted message that the network still keeps.
    Cleanup,
}

impl OutboxKind {
    const ALL: [(Self, &str); 7] = [
        (Self::Final, "final"),
        (Self::Again, "again"),
        (Self::Notice, "notice"),
        (Self::Change, "change"),
        (Self::Removal, "removal"),
        (Self::Mark, "mark"),
        (Self::Cleanup, "cleanup"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("notice", |(_, name)| name)
    }

    fn from_name(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known)| *known == name).map_or(Self::Notice, |(kind, _)| *kind)
    }
}

impl Tx<'_> {
    /// Adds a message; a key that exists already changes nothing.
    pub fn add_outbox(&self, row: &OutboxRow<impl Serialize>) -> Result<()> {
        if crate::testing::broken("outbox") {
            return Ok(());
        }
        self.conn
            .prepare_cached(
                "INSERT OR IGNORE INTO outbox (key, account, room, thread, turn, kind, part, body, not_before)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                row.key.as_str(),
                row.account.as_str(),
                row.place.room.as_str(),
                row.place.thread.as_ref().map(ThreadId::as_str),
                row.turn.as_ref().map(|turn| &turn.0),
                row.kind.name(),
                row.part,
                serde_json::to_string(&row.body)?,
                row.not_before,
            ])?;
        Ok(())
    }

    /// Changes the text of a notice that was sent before. Replaces a change that still waits, and keeps the time at
    /// which that one would have been sent.
    pub fn change_notice(&self, row: OutboxRow, revision: usize) -> Result<()> {
        let prefix = change_prefix(&row.key);
        let waiting: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT min(not_before) FROM outbox WHERE account = ?1 AND kind = 'change' AND state = 'pending'
                     AND substr(key, 1, length(?2)) = ?2",
            )?
            .query_row(params![row.account.as_str(), prefix], |row| row.get(0))?;
        self.conn
            .prepare_cached(
                "UPDATE outbox SET state = 'dropped', body = '' WHERE account = ?1 AND kind = 'change'
                     AND state = 'pending' AND substr(key, 1, length(?2)) = ?2",
            )?
            .execute(params![row.account.as_str(), prefix])?;
        self.add_outbox(&OutboxRow {
            key: SendKey::new(format!("{prefix}{revision}")),
            kind: OutboxKind::Change,
            part: revision,
            not_before: waiting.unwrap_or(row.not_before),
            ..row
        })
    }

    /// The message that a change is for, if the change is still wanted and the message was sent.
    pub fn notice_to_change(&self, row: &OutboxRow) -> Result<Option<MessageId>> {
        let Some((notice, _)) = row.key.as_str().rsplit_once(CHANGE) else { return Ok(None) };
        let mut query = self.conn.prepare_cached(
            "SELECT notice.message FROM outbox AS change, outbox AS notice
             WHERE change.key = ?1 AND change.state = 'pending' AND notice.key = ?2 AND notice.state = 'sent'
                 AND notice.message <> ''",
        )?;
        let found = query.query_row([row.key.as_str(), notice], |row| row.get::<_, String>(0)).optional()?;
        Ok(found.map(MessageId::new))
    }

    /// Adds a file of a turn's end as a message of its own. Its content is in a separate column, so that a long queue
    /// of files is not in memory while it waits.
    pub fn add_file(
        &self,
        turn: &TurnId,
        question: &RoomQuestion,
        part: usize,
        file: &OutgoingFile,
    ) -> Result<()> {
        let key = turn.send_key(part);
        let described =
            OutgoingFile { name: file.name.clone(), mime: file.mime.clone(), content: Vec::new() };
        self.add_outbox(&OutboxRow {
            key: key.clone(),
            account: question.account.clone(),
            place: question.place.clone(),
            turn: Some(turn.clone()),
            kind: OutboxKind::Final,
            part,
            body: MessageBody {
                reply_to: Some(question.event.clone()),
                files: vec![described],
                silent: part > 0,
                ..MessageBody::new(BodyKind::Answer, "")
            },
            not_before: 0,
        })?;
        self.conn
            .prepare_cached("UPDATE outbox SET file = ?2 WHERE key = ?1 AND state = 'pending'")?
            .execute(params![key.as_str(), file.content])?;
        Ok(())
    }

    /// Content of the file that a row sends.
    pub fn file(&self, key: &SendKey) -> Result<Vec<u8>> {
        let mut query = self.conn.prepare_cached("SELECT file FROM outbox WHERE key = ?1")?;
        let content: Option<Option<Vec<u8>>> =
            query.query_row([key.as_str()], |row| row.get(0)).optional()?;
        Ok(content.flatten().unwrap_or_default())
    }

    /// Messages of an account that have not arrived, after `seq`, oldest first, each with its `seq`.
    pub fn pending(&self, account: &AccountId, after: i64, limit: usize) -> Result<Vec<(i64, OutboxRow)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT seq, key, room, thread, turn, kind, part, body, not_before FROM outbox
             WHERE account = ?1 AND state = 'pending' AND seq > ?2 ORDER BY seq LIMIT ?3",
        )?;
        let mut rows =
            query.query(params![account.as_str(), after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut pending = Vec::new();
        while let Some(row) = rows.next()? {
            let kind: String = row.get(5)?;
            let row = (
                row.get(0)?,
                OutboxRow {
                    key: SendKey::new(row.get::<_, String>(1)?),
                    account: account.clone(),
                    place: Place {
                        room: RoomId::new(row.get::<_, String>(2)?),
                        thread: row.get::<_, Option<String>>(3)?.map(ThreadId::new),
                    },
                    turn: row.get::<_, Option<String>>(4)?.map(TurnId),
                    kind: OutboxKind::from_name(&kind),
                    part: row.get(6)?,
                    body: serde_json::from_str(row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?)?,
                    not_before: row.get(8)?,
                },
            );
            pending.push(row);
        }
        Ok(pending)
    }

    /// The first part of a turn's end, while it has yet to arrive.
    pub fn first_part(&self, turn: &TurnId) -> Result<Option<MessageBody>> {
        let mut query = self.conn.prepare_cached(
            "SELECT body FROM outbox WHERE turn = ?1 AND part = 0 AND state = 'pending'
                 AND kind = 'final'",
        )?;
        let body: Option<String> = query.query_row([&turn.0], |row| row.get(0)).optional()?;
        Ok(body.map(|body| serde_json::from_str(&body)).transpose()?)
    }

    /// Removes a turn from the room, from this part of its end on: rows delete the messages that the room shows, and
    /// messages that have yet to arrive will not.
    pub fn remove_shown(&self, turn: &TurnId, question: &RoomQuestion, from: usize) -> Result<()> {
        let mut query = self.conn.prepare_cached(
            "SELECT coalesce(max(part) + 1, 0) FROM outbox WHERE turn = ?1 AND kind = 'final'",
        )?;
        let parts: usize = query.query_row([&turn.0], |row| row.get(0))?;
        // A running turn has at most its live message, which the outbox does not know.
        for part in from..parts.max(1) {
            self.add_outbox(&OutboxRow {
                key: turn.send_key(format_args!("x{part}")),
                account: question.account.clone(),
                place: question.place.clone(),
                turn: Some(turn.clone()),
                kind: OutboxKind::Removal,
                part,
                body: MessageBody::new(BodyKind::Notice, ""),
                not_before: 0,
            })?;
        }
        Ok(())
    }

    /// Records that a message of a turn is gone from the room, or never was there.
    pub fn removed(&self, row: &OutboxRow) -> Result<()> {
        if let (Some(turn), 0) = (&row.turn, row.part) {
            self.forget_anchor(turn)?;
        }
        self.sent(row, &MessageId::new(""))
    }

    /// Records that a message of a turn is gone from the room while the network still keeps earlier texts of it. The
    /// row stays for those; the turn no longer waits for it.
    pub fn clean_up_later(&self, row: &OutboxRow, message: &MessageId, not_before: i64) -> Result<()> {
        if let (Some(turn), 0) = (&row.turn, row.part) {
            self.forget_anchor(turn)?;
        }
        self.conn
            .prepare_cached(
                "UPDATE outbox SET kind = 'cleanup', message = ?2, not_before = ?3 WHERE key = ?1",
            )?
            .execute(params![row.key.as_str(), message.as_str(), not_before])?;
        self.settle_if_last(row)
    }

    /// The message whose earlier texts a row deletes.
    pub fn message_to_clean_up(&self, row: &OutboxRow) -> Result<Option<MessageId>> {
        let mut query =
            self.conn.prepare_cached("SELECT message FROM outbox WHERE key = ?1 AND kind = 'cleanup'")?;
        let message: Option<Option<String>> =
            query.query_row([row.key.as_str()], |row| row.get(0)).optional()?;
        Ok(message.flatten().map(MessageId::new))
    }

    /// Queues the first part of a turn's end once more, at `not_before`: by then every earlier edit has timed out.
    pub fn show_again(
        &self,
        turn: &TurnId,
        question: &RoomQuestion,
        first: Option<&MessageBody>,
        not_before: i64,
    ) -> Result<()> {
        let Some(body) = first else { return Ok(()) };
        if self.is_withdrawn(turn)? {
            return Ok(());
        }
        self.add_outbox(&OutboxRow {
            key: turn.send_key("again"),
            account: question.account.clone(),
            place: question.place.clone(),
            turn: Some(turn.clone()),
            kind: OutboxKind::Again,
            part: 0,
            body,
            not_before,
        })
    }

    /// Whether the end of another turn has yet to arrive in the place of this turn.
    pub fn other_end_pending(&self, turn: &TurnId, question: &RoomQuestion) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM outbox WHERE account = ?1 AND state = 'pending' AND kind = 'final'
                 AND room = ?2 AND thread IS ?3 AND turn <> ?4)",
        )?;
        let Place { room, thread } = &question.place;
        let thread = thread.as_ref().map(ThreadId::as_str);
        Ok(query
            .query_row(params![question.account.as_str(), room.as_str(), thread, turn.0], |row| row.get(0))?)
    }

    /// Records that the room shows the message. Settles the turn with its last part.
    pub fn sent(&self, row: &OutboxRow, message: &MessageId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE outbox SET state = 'sent', message = ?2, body = '', file = NULL WHERE key = ?1",
            )?
            .execute(params![row.key.as_str(), message.as_str()])?;
        self.settle_if_last(row)
    }

    /// Deletes the row of a reaction that arrived. Nobody asks for it again.
    pub fn marked(&self, row: &OutboxRow) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM outbox WHERE key = ?1")?.execute([row.key.as_str()])?;
        Ok(())
    }

    /// Records that the room can never show the message.
    pub fn dropped(&self, row: &OutboxRow) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE outbox SET state = 'dropped', body = '', file = NULL WHERE key = ?1")?
            .execute([row.key.as_str()])?;
        self.settle_if_last(row)
    }

    /// Records that the message is no longer wanted, but may have been posted by a try with an unknown result.
    pub fn doubted(&self, row: &OutboxRow) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE outbox SET state = 'doubtful', body = '', file = NULL WHERE key = ?1")?
            .execute([row.key.as_str()])?;
        self.settle_if_last(row)
    }

    /// Number of messages of an account that could be sent at `now` and have not arrived. Cleanups do not count: nobody
    /// sees them, and they may take hours.
    pub fn pending_count(&self, account: &AccountId, now: i64) -> Result<usize> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM outbox WHERE account = ?1 AND state = 'pending' AND not_before <= ?2
                 AND kind <> 'cleanup'",
        )?;
        Ok(query.query_row(params![account.as_str(), now], |row| row.get(0))?)
    }

    /// Number of deleted messages of an account whose earlier texts the network may still show to somebody.
    pub fn cleanup_count(&self, account: &AccountId) -> Result<usize> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM outbox WHERE account = ?1 AND state = 'pending' AND kind = 'cleanup'",
        )?;
        Ok(query.query_row([account.as_str()], |row| row.get(0))?)
    }

    fn settle_if_last(&self, row: &OutboxRow) -> Result<()> {
        let Some(turn) = &row.turn else { return Ok(()) };
        let left: usize = self
            .conn
            .prepare_cached(
                "SELECT count(*) FROM outbox WHERE turn = ?1 AND state = 'pending' AND kind <> 'cleanup'",
            )?
            .query_row([&turn.0], |row| row.get(0))?;
        if left == 0 { self.settle(turn) } else { Ok(()) }
    }
}

/// Separates the key of a notice from the number of its change.
const CHANGE: &str = ".v";

fn change_prefix(notice: &SendKey) -> String {
    format!("{notice}{CHANGE}")
}
