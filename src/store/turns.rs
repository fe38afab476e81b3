//! Finds turns, and changes their state until they end.

mod finish;
mod records;
mod row;
mod source_columns;

use rusqlite::{OptionalExtension as _, Row, params};
use talaria_platform::{AccountId, EventId, RoomId, ThreadId};

pub use self::finish::FinishedTurn;
pub use self::row::{RoomTurn, TurnRow, TurnState};
use self::row::{columns, read_turn};
pub use self::source_columns::actor;
pub(in crate::store) use self::source_columns::stored_question;
use self::source_columns::{SOURCE_COLUMNS, read_source, stored_request};
use super::{Result, Tx, unix_now};
use crate::agent::{EqualTurns, PreparedTurn};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::turn_source::TurnSource;

/// A turn that has not ended.
#[derive(Clone, Debug)]
pub struct OpenTurn {
    /// Id of the turn.
    pub id: TurnId,
    /// Somebody asked to stop it.
    pub stopping: bool,
}

/// The last turn of a session, without its prompt and its request, which may be long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTurn {
    /// Its id.
    pub id: TurnId,
    /// The agent that it was for; `None` in turns of before agents had names, which were for the default one.
    pub agent: Option<AgentName>,
}

impl Tx<'_> {
    /// Adds a turn at the end of its session's queue.
    pub fn add_turn(&self, turn: &TurnRow) -> Result<()> {
        let question = stored_question(&turn.id, &turn.source);
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
                question.account.as_str(),
                question.place.room.as_str(),
                question.place.thread.as_ref().map(ThreadId::as_str),
                question.event.as_str(),
                question.author,
                question.author_name,
                question.room_name,
                question.direct,
                turn.prompt,
                serde_json::to_string(&question.media)?,
                question.attempt,
                turn.key,
                turn.state.name(),
                unix_now(),
                question.speaker.as_ref().map(|speaker| &speaker.id),
                question.speaker.as_ref().and_then(|speaker| speaker.name.as_ref()),
                Some(question.question.as_str()).filter(|id| *id != question.event.as_str()),
                question.quote.as_ref().map(serde_json::to_string).transpose()?,
                turn.agent.as_ref().map(AgentName::as_str),
                stored_request(&turn.source)?,
            ])?;
        Ok(())
    }

    /// A turn by its id.
    pub fn turn(&self, id: &TurnId) -> Result<Option<TurnRow>> {
        self.one_turn("id = ?1", [&id.0])
    }

    /// Like [`Tx::turn`], but without the large columns: prompt, prepared request and the input of an app.
    pub fn turn_head(&self, id: &TurnId) -> Result<Option<TurnRow>> {
        let columns = columns()
            .replace("prompt,", "'',")
            .replace("request,", "NULL,")
            .replace(" brought", " CASE WHEN brought IS NULL THEN NULL ELSE '{}' END");
        let mut query = self.conn.prepare_cached(&format!("SELECT {columns} FROM turns WHERE id = ?1"))?;
        let mut rows = query.query([&id.0])?;
        rows.next()?.map(read_turn).transpose()
    }

    /// The turn in a room that an event started, or whose words it is, if that still waits to run.
    pub fn waiting_turn_of(
        &self,
        account: &AccountId,
        room: &RoomId,
        event: &EventId,
    ) -> Result<Option<RoomTurn>> {
        let turn = self.one_turn(
            "account = ?1 AND room = ?2 AND (event = ?3 OR question = ?3) AND state = 'queued' AND undone = 0
             ORDER BY seq DESC LIMIT 1",
            params![account.as_str(), room.as_str(), event.as_str()],
        )?;
        Ok(turn.and_then(TurnRow::in_room))
    }

    /// Every turn in a room that an event started, or whose words it is, and that may still have messages there.
    pub fn turns_about(&self, account: &AccountId, room: &RoomId, event: &EventId) -> Result<Vec<RoomTurn>> {
        let turns = self.turns_where(
            "account = ?1 AND room = ?2 AND (event = ?3 OR question = ?3) AND undone < 2 ORDER BY seq",
            params![account.as_str(), room.as_str(), event.as_str()],
        )?;
        Ok(turns.into_iter().filter_map(TurnRow::in_room).collect())
    }

    /// Whether everything of a turn is taken back from its room, or will be.
    pub fn is_withdrawn(&self, id: &TurnId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT undone = 2 FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.unwrap_or_default())
    }

    /// The last turn of a session that ran and was not taken back.
    pub fn last_turn(&self, session: &SessionId) -> Result<Option<LastTurn>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id, agent FROM turns
             WHERE session = ?1 AND undone = 0 AND NOT (state = 'cancelled' AND api_calls = 0)
             ORDER BY seq DESC LIMIT 1",
        )?;
        let read = |row: &Row<'_>| {
            let agent: Option<String> = row.get(1)?;
            Ok(LastTurn { id: TurnId(row.get(0)?), agent: agent.as_deref().and_then(AgentName::new) })
        };
        Ok(query.query_row([&session.0], read).optional()?)
    }

    /// Like [`Tx::last_turn`], but only turns that a person asked for: a room can neither repeat nor take back what an
    /// app asked in its session.
    pub fn last_turn_of_people(&self, session: &SessionId) -> Result<Option<RoomTurn>> {
        let turn = self.one_turn(
            "session = ?1 AND undone = 0 AND brought IS NULL AND NOT (state = 'cancelled' AND api_calls = 0)
             ORDER BY seq DESC LIMIT 1",
            [&session.0],
        )?;
        Ok(turn.and_then(TurnRow::in_room))
    }

    /// Whether the session began with the event of this turn.
    pub fn is_first(&self, turn: &RoomTurn) -> Result<bool> {
        let mut query = self
            .conn
            .prepare_cached("SELECT event = ?2 FROM turns WHERE session = ?1 ORDER BY seq LIMIT 1")?;
        Ok(query.query_row([&turn.row.session.0, turn.question.event.as_str()], |row| row.get(0))?)
    }

    /// The agent that the request of a turn was made for, if there was one.
    pub fn request_agent(&self, id: &TurnId) -> Result<Option<AgentName>> {
        let mut query = self.conn.prepare_cached("SELECT request_for FROM turns WHERE id = ?1")?;
        let agent: Option<String> = query.query_row([&id.0], |row| row.get(0)).optional()?.flatten();
        Ok(agent.as_deref().and_then(AgentName::new))
    }

    /// The agent that acts in a turn: the one that its request was made for, which may be the fallback, else its own.
    pub fn acting_agent(&self, turn: &TurnRow, default: &AgentName) -> Result<AgentName> {
        let asked = self.request_agent(&turn.id)?;
        Ok(asked.or_else(|| turn.agent.clone()).unwrap_or_else(|| default.clone()))
    }

    /// Turns of a session that have not ended, in order.
    pub fn open_turns(&self, session: &SessionId) -> Result<Vec<OpenTurn>> {
        let mut query = self.conn.prepare_cached(
            "SELECT id, stop FROM turns
             WHERE session = ?1 AND state IN ('queued', 'dispatched', 'streaming') ORDER BY seq",
        )?;
        let rows = query
            .query_map([&session.0], |row| Ok(OpenTurn { id: TurnId(row.get(0)?), stopping: row.get(1)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Every turn that has not ended, in order. A start resumes them.
    pub fn all_open_turns(&self) -> Result<Vec<(SessionId, TurnId)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT session, id FROM turns WHERE state IN ('queued', 'dispatched', 'streaming') ORDER BY seq",
        )?;
        let rows = query.query_map([], |row| Ok((SessionId(row.get(0)?), TurnId(row.get(1)?))))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Turns of one app that have not ended, in order.
    pub fn open_turns_of_app(&self, app: &str) -> Result<Vec<(SessionId, TurnId)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT session, id FROM turns
             WHERE state IN ('queued', 'dispatched', 'streaming') AND brought IS NOT NULL AND room = ?1 ORDER BY seq",
        )?;
        let rows = query.query_map([app], |row| Ok((SessionId(row.get(0)?), TurnId(row.get(1)?))))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Turns of apps that have not ended, in order.
    pub fn open_app_turns(&self) -> Result<Vec<TurnRow>> {
        self.turns_where(
            "state IN ('queued', 'dispatched', 'streaming') AND brought IS NOT NULL ORDER BY seq",
            [],
        )
    }

    /// Changes the prompt of a turn that still waits. A request prepared from the old prompt is never sent.
    pub fn set_prompt(&self, id: &TurnId, prompt: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE turns SET prompt = ?2, request = NULL WHERE id = ?1")?
            .execute(params![id.0, prompt])?;
        Ok(())
    }

    /// Stores the request prepared from `prompt`; it may be sent from now on. Returns `false` and stores nothing if the
    /// prompt was edited meanwhile; without a `prompt` that is not checked.
    pub fn dispatch(&self, id: &TurnId, prompt: Option<&str>, prepared: &PreparedTurn) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE turns SET state = 'dispatched', request = ?3, resumable = ?4, request_for = ?5,
                     request_runtime = ?6
                 WHERE id = ?1 AND (?2 IS NULL OR prompt = ?2)",
            )?
            .execute(params![
                id.0,
                prompt,
                &*prepared.request,
                prepared.resumable,
                prepared.agent.as_str(),
                prepared.runtime.name()
            ])?;
        Ok(changed == 1)
    }

    /// The prompt and the source of a turn, without the prepared request.
    pub fn asked(&self, id: &TurnId) -> Result<Option<(String, TurnSource)>> {
        let asked = format!("SELECT prompt, {SOURCE_COLUMNS} FROM turns WHERE id = ?1");
        let mut query = self.conn.prepare_cached(&asked)?;
        let mut rows = query.query([&id.0])?;
        rows.next()?.map(|row| Ok((row.get(0)?, read_source(row, 1)?))).transpose()
    }

    /// The stored request of a turn, if there is one.
    pub fn request(&self, id: &TurnId) -> Result<Option<Vec<u8>>> {
        let mut query = self.conn.prepare_cached("SELECT request FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.flatten())
    }

    /// Queues a turn again with its request: it is proven that nothing ran.
    pub fn requeue(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET state = 'queued' WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// Queues a turn again without a request: it is proven that nothing ran.
    pub fn unprepare(&self, id: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE turns SET state = 'queued', request = NULL, request_for = NULL WHERE id = ?1",
            )?
            .execute([&id.0])?;
        Ok(())
    }

    /// Stores that a turn is to stop, so that a crash does not revive it.
    pub fn ask_to_stop(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET stop = 1 WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// Removes a turn from history, `/retry` and `/undo`. Forks the session even if nothing was recorded here, because
    /// the upstream may remember the turn.
    pub fn take_back(&self, turn: &TurnRow) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET undone = 1 WHERE id = ?1")?.execute([&turn.id.0])?;
        self.forget_messages(&turn.id)?;
        self.fork_session(&turn.session)
    }

    /// Takes everything of a turn back from its room: nothing of it will be shown there any more. Returns whether the
    /// transcript had anything of it.
    pub fn withdraw(&self, turn: &TurnRow) -> Result<bool> {
        self.conn.prepare_cached("UPDATE turns SET undone = 2 WHERE id = ?1")?.execute([&turn.id.0])?;
        self.forget_words(&turn.id)?;
        self.forget_messages(&turn.id)
    }

    /// Deletes the texts of a withdrawn turn. A running turn keeps its prompt until its end: a changed prompt would look
    /// like an edit.
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

    /// Stores that the agent is asked under the current id of the session.
    pub fn asked_under_current_id(&self, id: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE turns SET asked_forks = (SELECT forks FROM sessions WHERE id = turns.session) WHERE id = ?1",
            )?
            .execute([&id.0])?;
        Ok(())
    }

    /// Earlier turns under the same id of the session whose prompts were the same for the agent: it is told in a shared room
    /// who asks, and everywhere what a prompt replies to.
    pub fn equal_before(&self, turn: &TurnRow) -> Result<EqualTurns> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FILTER (WHERE earlier.state = 'done' AND earlier.prompt <> ''),
                 count(*) FILTER (WHERE earlier.state <> 'done' OR earlier.prompt = '')
             FROM turns AS earlier JOIN turns AS own ON own.id = ?2
             WHERE earlier.session = ?1 AND earlier.seq < own.seq AND earlier.asked_forks = own.asked_forks
                 AND (earlier.prompt = '' OR earlier.prompt = ?3 AND earlier.quote IS own.quote AND (own.direct
                     OR coalesce(earlier.speaker, earlier.author) = coalesce(own.speaker, own.author)
                         AND CASE WHEN earlier.speaker IS NULL THEN earlier.author_name ELSE earlier.speaker_name END
                             IS CASE WHEN own.speaker IS NULL THEN own.author_name ELSE own.speaker_name END))",
        )?;
        let counted = query.query_row(params![turn.session.0, turn.id.0, turn.prompt], |row| {
            Ok(EqualTurns { answered: row.get(0)?, unclear: row.get(1)? })
        });
        Ok(counted?)
    }

    /// Whether a turn with this idempotency key runs or waits here.
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
        let mut query =
            self.conn.prepare_cached(&format!("SELECT {} FROM turns WHERE {filter}", columns()))?;
        let mut rows = query.query(values)?;
        let mut turns = Vec::new();
        while let Some(row) = rows.next()? {
            turns.push(read_turn(row)?);
        }
        Ok(turns)
    }
}
