//! Stored responses of `/v1/responses`, which clients can fetch and continue.

use rusqlite::{OptionalExtension as _, params};

use super::{NewSession, Result, TurnRow, Tx, unix_now};
use crate::ids::{SessionId, TurnId};

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Id that the client knows.
    pub id: String,
    /// The turn that answers it.
    pub turn: TurnId,
    /// The session of that turn.
    pub session: SessionId,
    /// The response that it continues.
    pub previous: Option<String>,
    /// Fields of the request that the response repeats, as JSON.
    pub request: String,
    /// Time of the request, in seconds since 1970.
    pub created: i64,
}

/// Where a turn runs that continues a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinuationPoint {
    /// In the response's own session: it has no later turn.
    Here(SessionId),
    /// In a new session, a copy up to the response.
    Forked,
    /// Nowhere: a copy is needed, but the response is not finished, so its messages are not known yet.
    Unfinished,
    /// Nowhere: this app has no such response.
    Gone,
}

impl Tx<'_> {
    /// Stores a response of an app.
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

    /// A response of an app. Responses of other apps are not found.
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

    /// Deletes a response of an app. Returns whether there was one. Its messages stay in the session.
    pub fn forget_response(&self, app: &str, id: &str) -> Result<bool> {
        let mut delete = self.conn.prepare_cached("DELETE FROM responses WHERE app = ?1 AND id = ?2")?;
        Ok(delete.execute([app, id])? > 0)
    }

    /// The prompt of a turn as the transcript has it; as it was received if the transcript has none yet.
    pub fn question_of(&self, turn: &TurnId) -> Result<Option<String>> {
        let mut query = self.conn.prepare_cached(
            "SELECT coalesce((SELECT content FROM messages WHERE turn = ?1 AND role = 'user' ORDER BY id LIMIT 1),
                 prompt) FROM turns WHERE id = ?1",
        )?;
        Ok(query.query_row([&turn.0], |row| row.get(0)).optional()?)
    }

    /// Time at which a turn was asked for, in seconds since 1970.
    pub fn asked_at(&self, turn: &TurnId) -> Result<Option<i64>> {
        let mut query = self.conn.prepare_cached("SELECT created FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&turn.0], |row| row.get(0)).optional()?)
    }

    /// Finds the session for a turn that continues a response: the response's own if it has no later turn, otherwise
    /// `fork`, which is created with the messages up to the response.
    ///
    /// `expires` is set for a turn that is not to be stored: its session will be deleted, so it must not be the
    /// response's own.
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

    /// Creates a session with the messages of another one, up to and including a turn.
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
        // Messages from before the first turn belong to no turn, and come first.
        self.conn
            .prepare_cached(
                "INSERT INTO messages (session, turn, role, content, at, tools, reasoning)
                 SELECT ?2, '', role, content, at, tools, reasoning FROM messages
                 WHERE session = ?1 AND (turn = '' OR turn IN
                     (SELECT id FROM turns WHERE session = ?1 AND seq <= ?3))
                 ORDER BY id",
            )?
            .execute(params![from.0, to.0, seq])?;
        Ok(())
    }
}

impl StoredResponse {
    /// A response that is asked for now.
    pub fn new(id: String, turn: &TurnRow, previous: Option<String>, request: String) -> Self {
        let (turn, session) = (turn.id.clone(), turn.session.clone());
        Self { id, turn, session, previous, request, created: unix_now() }
    }
}
