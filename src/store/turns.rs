//! Turns: how they are found and how they go on, until they end.

mod finish;
mod row;

use rusqlite::{OptionalExtension as _, params};
use talaria_platform::{AccountId, EventId, RoomId, ThreadId};

pub use self::finish::FinishedTurn;
use self::row::{COLUMNS, read_turn};
pub use self::row::{PersonInfo, TurnRow, TurnState};
use super::{Result, Tx, unix_now};
use crate::agent::PreparedTurn;
use crate::ids::{AgentName, SessionId, TurnId};
use crate::turns::AppRequest;

/// A turn that has not ended.
#[derive(Clone, Debug)]
pub struct OpenTurn {
    /// Which.
    pub id: TurnId,
    /// Somebody asked to stop it.
    pub stopping: bool,
}

impl Tx<'_> {
    /// Puts a turn at the end of its session's line.
    pub fn add_turn(&self, turn: &TurnRow) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO turns (id, session, account, room, thread, event, author, author_name, room_name,
                     direct, prompt, media, attempt, key, state, created, speaker, speaker_name, question,
                     quote, agent, brought)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
                     ?20, ?21, ?22)",
            )?
            .execute(params![
                turn.id.0,
                turn.session.0,
                turn.account.as_str(),
                turn.place.room.as_str(),
                turn.place.thread.as_ref().map(ThreadId::as_str),
                turn.event.as_str(),
                turn.author,
                turn.author_name,
                turn.room_name,
                turn.direct,
                turn.prompt,
                serde_json::to_string(&turn.media)?,
                turn.attempt,
                turn.key,
                turn.state.name(),
                unix_now(),
                turn.speaker.as_ref().map(|speaker| &speaker.id),
                turn.speaker.as_ref().and_then(|speaker| speaker.name.as_ref()),
                Some(turn.question.as_str()).filter(|question| *question != turn.event.as_str()),
                turn.quote.as_ref().map(serde_json::to_string).transpose()?,
                turn.agent.as_ref().map(AgentName::as_str),
                turn.app_request.as_ref().map(serde_json::to_string).transpose()?,
            ])?;
        Ok(())
    }

    /// A turn by its id.
    pub fn turn(&self, id: &TurnId) -> Result<Option<TurnRow>> {
        self.one_turn("id = ?1", [&id.0])
    }

    /// The same without what was asked and brought and would be sent, which may be large: for whoever only looks.
    pub fn turn_head(&self, id: &TurnId) -> Result<Option<TurnRow>> {
        let columns = COLUMNS
            .replace("prompt,", "'',")
            .replace("request,", "NULL,")
            .replace(" brought", " CASE WHEN brought IS NULL THEN NULL ELSE '{}' END");
        let mut query = self.conn.prepare_cached(&format!("SELECT {columns} FROM turns WHERE id = ?1"))?;
        let mut rows = query.query([&id.0])?;
        rows.next()?.map(read_turn).transpose()
    }

    /// The turn that an event started, or whose words it is, if that still waits to run.
    pub fn waiting_turn_of(
        &self,
        account: &AccountId,
        room: &RoomId,
        event: &EventId,
    ) -> Result<Option<TurnRow>> {
        self.one_turn(
            "account = ?1 AND room = ?2 AND (event = ?3 OR question = ?3) AND state = 'queued' AND undone = 0
             ORDER BY seq DESC LIMIT 1",
            params![account.as_str(), room.as_str(), event.as_str()],
        )
    }

    /// Every turn that an event started, or whose words it is, and of which something may stay in the room.
    pub fn turns_about(&self, account: &AccountId, room: &RoomId, event: &EventId) -> Result<Vec<TurnRow>> {
        self.turns_where(
            "account = ?1 AND room = ?2 AND (event = ?3 OR question = ?3) AND undone < 2 ORDER BY seq",
            params![account.as_str(), room.as_str(), event.as_str()],
        )
    }

    /// Whether nothing of a turn is to stay in the room.
    pub fn is_withdrawn(&self, id: &TurnId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT undone = 2 FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.unwrap_or_default())
    }

    /// The last turn of a session that ran and was not taken back.
    pub fn last_turn(&self, session: &SessionId) -> Result<Option<TurnRow>> {
        self.one_turn(
            "session = ?1 AND undone = 0 AND NOT (state = 'cancelled' AND api_calls = 0)
             ORDER BY seq DESC LIMIT 1",
            [&session.0],
        )
    }

    /// The last that a person asked for. What a program asks in the session of a room is not the room's to repeat or
    /// to take back.
    pub fn last_turn_of_people(&self, session: &SessionId) -> Result<Option<TurnRow>> {
        self.one_turn(
            "session = ?1 AND undone = 0 AND brought IS NULL AND NOT (state = 'cancelled' AND api_calls = 0)
             ORDER BY seq DESC LIMIT 1",
            [&session.0],
        )
    }

    /// Whether no other question of its session came before.
    pub fn is_first(&self, turn: &TurnRow) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT event = ?2 FROM turns WHERE session = ?1 ORDER BY seq LIMIT 1")?;
        Ok(query.query_row([&turn.session.0, turn.event.as_str()], |row| row.get(0))?)
    }

    /// The agent that the request of a turn was made for, if there was one.
    pub fn request_agent(&self, id: &TurnId) -> Result<Option<AgentName>> {
        let mut query = self.conn.prepare_cached("SELECT request_for FROM turns WHERE id = ?1")?;
        let agent: Option<String> = query.query_row([&id.0], |row| row.get(0)).optional()?.flatten();
        Ok(agent.as_deref().and_then(AgentName::new))
    }

    /// A session's turns that have not ended, in order.
    pub fn open_turns(&self, session: &SessionId) -> Result<Vec<OpenTurn>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id, stop FROM turns
             WHERE session = ?1 AND state IN ('queued', 'dispatched', 'streaming') ORDER BY seq",
        )?;
        let rows = query
            .query_map([&session.0], |row| Ok(OpenTurn { id: TurnId(row.get(0)?), stopping: row.get(1)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Every turn that has not ended, in order; what a start must take up again.
    pub fn all_open_turns(&self) -> Result<Vec<(SessionId, TurnId)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT session, id FROM turns WHERE state IN ('queued', 'dispatched', 'streaming') ORDER BY seq",
        )?;
        let rows = query.query_map([], |row| Ok((SessionId(row.get(0)?), TurnId(row.get(1)?))))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Those among them that programs asked for.
    pub fn open_turns_of_programs(&self) -> Result<Vec<TurnRow>> {
        self.turns_where(
            "state IN ('queued', 'dispatched', 'streaming') AND brought IS NOT NULL ORDER BY seq",
            [],
        )
    }

    /// Changes the question of a turn that still waits. A request that was made of the old one is never sent.
    pub fn set_prompt(&self, id: &TurnId, prompt: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE turns SET prompt = ?2, request = NULL WHERE id = ?1")?
            .execute(params![id.0, prompt])?;
        Ok(())
    }

    /// The request that was made of `prompt` is stored and may be sent from now on. `false`: the question is
    /// another one by now.
    pub fn dispatch(&self, id: &TurnId, prompt: Option<&str>, prepared: &PreparedTurn) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE turns SET state = 'dispatched', request = ?3, resumable = ?4, request_for = ?5
                 WHERE id = ?1 AND (?2 IS NULL OR prompt = ?2)",
            )?
            .execute(params![
                id.0,
                prompt,
                &*prepared.request,
                prepared.resumable,
                prepared.agent.as_str()
            ])?;
        Ok(changed == 1)
    }

    /// What was asked in a turn, without the request that was made of it.
    pub fn asked(&self, id: &TurnId) -> Result<Option<(String, Option<Box<AppRequest>>)>> {
        let mut query = self.conn.prepare_cached("SELECT prompt, brought FROM turns WHERE id = ?1")?;
        let found = query.query_row([&id.0], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?)));
        let Some((prompt, app_request)) = found.optional()? else { return Ok(None) };
        Ok(Some((prompt, app_request.as_deref().map(serde_json::from_str).transpose()?)))
    }

    /// The request that was stored for a turn; `None` if there is none.
    pub fn request(&self, id: &TurnId) -> Result<Option<Vec<u8>>> {
        let mut query = self.conn.prepare_cached("SELECT request FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.flatten())
    }

    /// It is proven that nothing ran: the turn waits again, with its request.
    pub fn requeue(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET state = 'queued' WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// It is proven that nothing ran: the turn waits again, without a request.
    pub fn unprepare(&self, id: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE turns SET state = 'queued', request = NULL, request_for = NULL WHERE id = ?1",
            )?
            .execute([&id.0])?;
        Ok(())
    }

    /// A person asked to stop the turn; kept, so that a crash does not revive it.
    pub fn ask_to_stop(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET stop = 1 WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// The turn no longer counts for `/retry`, `/undo` and history. Even one that recorded nothing here may
    /// be remembered by the upstream, so the history is another one from now on.
    pub fn take_back(&self, turn: &TurnRow) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET undone = 1 WHERE id = ?1")?.execute([&turn.id.0])?;
        self.forget_messages(&turn.id)?;
        self.fork_session(&turn.session)
    }

    /// Nothing of the turn is to stay in the room, and nothing more of it will come there, whatever it still
    /// does. Whether anything of it was remembered here.
    pub fn withdraw(&self, turn: &TurnRow) -> Result<bool> {
        self.conn.prepare_cached("UPDATE turns SET undone = 2 WHERE id = ?1")?.execute([&turn.id.0])?;
        self.forget_words(&turn.id)?;
        self.forget_messages(&turn.id)
    }

    /// Forgets what was said in a turn of which nothing is to stay. One that runs has its words until its end, or
    /// another question would seem to be asked.
    fn forget_words(&self, id: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE turns SET prompt = '', quote = NULL, media = '[]', request = NULL,
                     text = CASE WHEN text IS NULL THEN NULL ELSE '' END
                 WHERE id = ?1 AND undone = 2 AND state NOT IN ('queued', 'dispatched', 'streaming')",
            )?
            .execute([&id.0])?;
        Ok(())
    }

    /// How often the words of a turn were asked in its session before, and answered. `None` if that cannot be said: the
    /// same was asked and nobody knows what became of it, or what was asked is forgotten.
    pub fn answered_before(&self, turn: &TurnRow) -> Result<Option<usize>> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state <> 'done') FROM turns
             WHERE session = ?1 AND id <> ?2 AND (prompt = ?3 OR prompt = '')
                 AND seq < (SELECT seq FROM turns WHERE id = ?2)",
        )?;
        let counted = query.query_row(params![turn.session.0, turn.id.0, turn.prompt], |row| {
            Ok((row.get::<_, usize>(0)?, row.get::<_, usize>(1)?))
        });
        let (answered, unclear) = counted?;
        Ok((unclear == 0).then_some(answered))
    }

    /// Whether a turn with this key, which is what an upstream is told, runs or waits here.
    pub fn is_under_way(&self, key: &str) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM turns
                 WHERE state IN ('queued', 'dispatched', 'streaming', 'finalizing') AND key = ?1)",
        )?;
        Ok(query.query_row([key], |row| row.get(0))?)
    }

    fn one_turn(&self, filter: &str, values: impl rusqlite::Params) -> Result<Option<TurnRow>> {
        Ok(self.turns_where(filter, values)?.into_iter().next())
    }

    fn turns_where(&self, filter: &str, values: impl rusqlite::Params) -> Result<Vec<TurnRow>> {
        let mut query = self.conn.prepare_cached(&format!("SELECT {COLUMNS} FROM turns WHERE {filter}"))?;
        let mut rows = query.query(values)?;
        let mut turns = Vec::new();
        while let Some(row) = rows.next()? {
            turns.push(read_turn(row)?);
        }
        Ok(turns)
    }
}
