//! What `/v1/responses` answered and keeps, so that it can be found again and gone on from.

use rusqlite::{OptionalExtension as _, params};

use super::{NewSession, Result, TurnRow, Tx, unix_now};
use crate::ids::{SessionId, TurnId};

/// A response that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// What it is called.
    pub id: String,
    /// The turn that answers it.
    pub turn: TurnId,
    /// Where that runs.
    pub session: SessionId,
    /// The response it goes on from.
    pub previous: Option<String>,
    /// What of the question is repeated in the answer, as JSON.
    pub request: String,
    /// When it was asked, in seconds since 1970.
    pub created: i64,
}

/// Where a turn goes on that was asked behind a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinuationPoint {
    /// In the response's own session, where nothing came after it.
    Here(SessionId),
    /// In a session that has just been made of what was said up to it.
    Forked,
    /// Something came after it, and it is not over yet: what was said up to it is not known.
    Unfinished,
    /// There is no such response, for whoever asks.
    Gone,
}

impl Tx<'_> {
    /// Keeps a response of an app.
    pub fn keep_response(&self, app: &str, kept: &StoredResponse) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO responses (id, app, turn, session, previous, request, created)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                kept.id,
                app,
                kept.turn.0,
                kept.session.0,
                kept.previous,
                kept.request,
                kept.created
            ])?;
        Ok(())
    }

    /// A response of an app. One of another app is not there.
    pub fn response(&self, app: &str, id: &str) -> Result<Option<StoredResponse>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id, turn, session, previous, request, created FROM responses WHERE app = ?1 AND id = ?2",
        )?;
        let found = query.query_row([app, id], |row| {
            Ok(StoredResponse {
                id: row.get(0)?,
                turn: TurnId(row.get(1)?),
                session: SessionId(row.get(2)?),
                previous: row.get(3)?,
                request: row.get(4)?,
                created: row.get(5)?,
            })
        });
        Ok(found.optional()?)
    }

    /// Forgets a response of an app. Whether there was one. What was said stays in its session.
    pub fn forget_response(&self, app: &str, id: &str) -> Result<bool> {
        let mut delete = self.conn.prepare_cached("DELETE FROM responses WHERE app = ?1 AND id = ?2")?;
        Ok(delete.execute([app, id])? > 0)
    }

    /// What was asked in a turn, as it is remembered; as it came in if nothing is remembered yet.
    pub fn question_of(&self, turn: &TurnId) -> Result<Option<String>> {
        let mut query = self.conn.prepare_cached(
            "SELECT coalesce((SELECT content FROM messages WHERE turn = ?1 AND role = 'user' ORDER BY id LIMIT 1),
                 prompt) FROM turns WHERE id = ?1",
        )?;
        Ok(query.query_row([&turn.0], |row| row.get(0)).optional()?)
    }

    /// When a turn was asked for, in seconds since 1970.
    pub fn asked_at(&self, turn: &TurnId) -> Result<Option<i64>> {
        let mut query = self.conn.prepare_cached("SELECT created FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&turn.0], |row| row.get(0)).optional()?)
    }

    /// Finds where a turn behind a response goes on: in its session if nothing came after it, otherwise in `fork`,
    /// which is then made with what was said up to it.
    ///
    /// `expires` is set for a turn that is not to be stored: its session goes then, so it must not be the response's own.
    pub fn go_on_from(
        &self,
        app: &str,
        id: &str,
        fork: &SessionId,
        expires: Option<i64>,
    ) -> Result<ContinuationPoint> {
        let Some(StoredResponse { turn, session, .. }) = self.response(app, id)? else {
            return Ok(ContinuationPoint::Gone);
        };
        let mut query = self.conn.prepare_cached(
            "SELECT seq, seq = (SELECT max(seq) FROM turns WHERE session = ?1),
                 state IN ('queued', 'dispatched', 'streaming')
             FROM turns WHERE id = ?2",
        )?;
        let found = query.query_row([&session.0, &turn.0], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
        });
        match found.optional()? {
            None => Ok(ContinuationPoint::Gone),
            Some((_, true, _)) if expires.is_none() => Ok(ContinuationPoint::Here(session)),
            Some((_, _, true)) => Ok(ContinuationPoint::Unfinished),
            Some((seq, _, false)) => {
                self.fork_up_to(app, &session, seq, fork, expires)?;
                Ok(ContinuationPoint::Forked)
            }
        }
    }

    /// Makes a session with what was said in another one up to and including a turn.
    fn fork_up_to(
        &self,
        app: &str,
        from: &SessionId,
        seq: i64,
        to: &SessionId,
        expires: Option<i64>,
    ) -> Result<()> {
        let mut query =
            self.conn.prepare_cached("SELECT title, model, system_prompt FROM sessions WHERE id = ?1")?;
        let new = query.query_row([&from.0], |row| {
            Ok(NewSession {
                title: row.get(0)?,
                model: row.get(1)?,
                system_prompt: row.get(2)?,
                parent: Some(from.0.clone()),
                ephemeral: true,
                expires,
                ..NewSession::new(to, app)
            })
        })?;
        self.create_session(&new)?;
        // What was said before there was any turn belongs to none, and stands before all of them.
        self.conn
            .prepare_cached(
                "INSERT INTO messages (session, turn, role, content, at, tools)
                 SELECT ?2, '', role, content, at, tools FROM messages
                 WHERE session = ?1 AND (turn = '' OR turn IN
                     (SELECT id FROM turns WHERE session = ?1 AND seq <= ?3))
                 ORDER BY id",
            )?
            .execute(params![from.0, to.0, seq])?;
        Ok(())
    }
}

impl StoredResponse {
    /// One that is asked now.
    pub fn new(id: String, turn: &TurnRow, previous: Option<String>, request: String) -> Self {
        let (turn, session) = (turn.id.clone(), turn.session.clone());
        Self { id, turn, session, previous, request, created: unix_now() }
    }
}
