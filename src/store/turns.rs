//! Turns: their states, their text while they run, and their end.

use rusqlite::{OptionalExtension as _, Row, params};
use talaria_platform::{AccountId, Body, EventId, File, Media, Place, Quote, RoomId, ThreadId};

use super::{OutboxKind, OutboxRow, Result, Tx, unix_now};
use crate::agent::{Prepared, Record, Role, Usage};
use crate::reply::Outcome;
use crate::rules::AgentName;
use crate::session::{SessionId, TurnId};
use crate::turns::{Brought, Patience};

/// How far a turn is. `received` is never stored: an event is refused or queued in the transaction
/// that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Taken; nothing was sent for it.
    Queued,
    /// The request is stored and may have been sent.
    Dispatched,
    /// Something came back.
    Streaming,
    /// The end is stored; the room has yet to show it.
    Finalizing,
    /// The room shows the whole answer.
    Done,
    /// The room shows what went wrong.
    Failed,
    /// The room shows that the outcome is unknown.
    Interrupted,
    /// The room shows that a person ended it.
    Cancelled,
}

impl State {
    const ALL: [(Self, &str); 8] = [
        (Self::Queued, "queued"),
        (Self::Dispatched, "dispatched"),
        (Self::Streaming, "streaming"),
        (Self::Finalizing, "finalizing"),
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::Interrupted, "interrupted"),
        (Self::Cancelled, "cancelled"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("failed", |(_, name)| name)
    }

    fn from_name(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known)| *known == name).map_or(Self::Failed, |(state, _)| *state)
    }

    /// Where a turn with this outcome ends up.
    pub fn after(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done | Outcome::Limit => Self::Done,
            Outcome::Failed { .. } | Outcome::CutShort { .. } => Self::Failed,
            Outcome::Interrupted | Outcome::Unknown { .. } => Self::Interrupted,
            Outcome::Stopped | Outcome::Cancelled { .. } => Self::Cancelled,
        }
    }
}

/// A turn as stored.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct TurnRow {
    pub id: TurnId,
    pub session: SessionId,
    pub account: AccountId,
    pub place: Place,
    pub event: EventId,
    /// The message whose words they are; not `event`, if that is a `/retry`.
    pub question: EventId,
    pub author: String,
    pub author_name: Option<String>,
    /// Set if the author asks again what somebody else wrote.
    pub speaker: Option<Person>,
    pub room_name: Option<String>,
    pub direct: bool,
    pub prompt: String,
    pub quote: Option<Quote>,
    pub media: Vec<Media>,
    pub agent: Option<AgentName>,
    pub attempt: u32,
    pub key: String,
    pub state: State,
    pub stop: bool,
    /// Set once the turn was dispatched.
    pub prepared: Option<Prepared>,
    /// Set if a program asks, and no room.
    pub brought: Option<Box<Brought>>,
}

/// Somebody, as an agent is told of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The immutable id.
    pub id: String,
    /// The display name.
    pub name: Option<String>,
}

impl TurnRow {
    /// Whether nobody can come back to it once its reader is gone.
    pub fn is_fleeting(&self) -> bool {
        self.brought.as_ref().is_some_and(|brought| brought.patience == Patience::None)
    }

    /// Who asks for this run and is answerable for it.
    pub fn asked_by(&self) -> Person {
        Person { id: self.author.clone(), name: self.author_name.clone() }
    }

    /// Whose words the prompt is.
    pub fn spoken_by(&self) -> Person {
        self.speaker.clone().unwrap_or_else(|| self.asked_by())
    }
}

/// A turn that has not ended.
#[derive(Clone, Debug)]
pub struct OpenTurn {
    /// Which.
    pub id: TurnId,
    /// Somebody asked to stop it.
    pub stopping: bool,
}

/// The end of a turn: what is stored in one transaction with the parts the room must show.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct Finish {
    pub text: String,
    pub outcome: Outcome,
    pub api_calls: u32,
    pub tools: Vec<String>,
    pub history_offset: usize,
    pub usage: Usage,
    /// What the person said, if the turn is to be remembered.
    pub said: Option<String>,
    /// What was answered, if the agent told its messages; otherwise that is `text`.
    pub records: Vec<Record>,
    pub parts: Vec<Body>,
    /// What comes after the parts, each as a message of its own.
    pub files: Vec<File>,
}

const COLUMNS: &str = "id, session, account, room, thread, event, author, author_name, room_name, direct, \
                       prompt, media, attempt, key, state, stop, request, resumable, stand_in, speaker, \
                       speaker_name, coalesce(question, event), quote, agent, brought";

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
                turn.agent.map(AgentName::name),
                turn.brought.as_ref().map(serde_json::to_string).transpose()?,
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

    /// Whether the request of a turn was made for whoever stands in.
    pub fn stood_in(&self, id: &TurnId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT stand_in FROM turns WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.unwrap_or_default())
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
    pub fn dispatch(&self, id: &TurnId, prompt: &str, prepared: &Prepared) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE turns SET state = 'dispatched', request = ?3, resumable = ?4, stand_in = ?5
                 WHERE id = ?1 AND prompt = ?2",
            )?
            .execute(params![id.0, prompt, prepared.request, prepared.resumable, prepared.stand_in])?;
        Ok(changed == 1)
    }

    /// It is proven that nothing ran: the turn waits again, with the same bytes.
    pub fn requeue(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET state = 'queued' WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// It is proven that nothing ran, and another agent may be asked next: the turn waits again, without a
    /// request.
    pub fn unprepare(&self, id: &TurnId) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE turns SET state = 'queued', request = NULL, stand_in = 0 WHERE id = ?1")?
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

    /// Keeps text that people are about to see; `offset` is the length of what was kept before.
    pub fn checkpoint(&self, id: &TurnId, offset: usize, text: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE turns SET state = 'streaming' WHERE id = ?1 AND state = 'dispatched'")?
            .execute([&id.0])?;
        self.conn
            .prepare_cached(
                // Behind the end there is nothing to keep, and nobody would take it away again.
                "INSERT OR REPLACE INTO checkpoints (turn, offset, text)
                 SELECT ?1, ?2, ?3 FROM turns WHERE id = ?1 AND state = 'streaming'",
            )?
            .execute(params![id.0, i64::try_from(offset).unwrap_or(i64::MAX), text])?;
        Ok(())
    }

    /// All text that was kept of a turn.
    pub fn checkpointed(&self, id: &TurnId) -> Result<String> {
        let mut query =
            self.conn.prepare_cached("SELECT text FROM checkpoints WHERE turn = ?1 ORDER BY offset")?;
        let mut text = String::new();
        let mut rows = query.query([&id.0])?;
        while let Some(row) = rows.next()? {
            text.push_str(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        }
        Ok(text)
    }

    /// Stores the end of a turn together with everything the room must show of it.
    pub fn finish(&self, turn: &TurnRow, finish: &Finish) -> Result<()> {
        // The question is gone, or another attempt takes the place of this one.
        let withdrawn = self.is_withdrawn(&turn.id)?;
        // Without parts (a caller that is no room) nothing is left to wait for.
        let nothing_to_show = withdrawn || finish.parts.is_empty();
        let state = if nothing_to_show { State::after(&finish.outcome) } else { State::Finalizing };
        self.conn
            .prepare_cached(
                "UPDATE turns SET state = ?2, text = ?3, outcome = ?4, api_calls = ?5, tools = ?6,
                     history_offset = ?7, input_tokens = ?8, output_tokens = ?9, ended = ?10, brought = ?11
                 WHERE id = ?1",
            )?
            .execute(params![
                turn.id.0,
                state.name(),
                finish.text,
                serde_json::to_string(&finish.outcome)?,
                finish.api_calls,
                serde_json::to_string(&finish.tools)?,
                i64::try_from(finish.history_offset).unwrap_or(i64::MAX),
                i64::try_from(finish.usage.input).unwrap_or(i64::MAX),
                i64::try_from(finish.usage.output).unwrap_or(i64::MAX),
                unix_now(),
                // Pictures and what was said to the system are for the run, and nobody asks for them any more.
                turn.brought.as_ref().map(|brought| serde_json::to_string(&brought.remains())).transpose()?,
            ])?;
        self.conn.prepare_cached("DELETE FROM checkpoints WHERE turn = ?1")?.execute([&turn.id.0])?;
        if withdrawn {
            return self.forget_words(&turn.id);
        }
        if nothing_to_show {
            self.forget_request(&turn.id)?;
        }
        if let Some(said) = &finish.said {
            self.record(&turn.session, &turn.id, Role::User, said)?;
            match finish.records.as_slice() {
                [] => self.record(&turn.session, &turn.id, Role::Assistant, finish.text.trim())?,
                records => {
                    records.iter().try_for_each(|one| self.add_record(&turn.session, &turn.id, one))?
                }
            }
        }
        for (part, body) in finish.parts.iter().enumerate() {
            self.add_outbox(&OutboxRow {
                key: turn.id.send_key(part),
                account: turn.account.clone(),
                place: turn.place.clone(),
                turn: Some(turn.id.clone()),
                kind: OutboxKind::Final,
                part,
                body,
                not_before: 0,
            })?;
        }
        for (index, file) in finish.files.iter().enumerate() {
            self.add_file(turn, finish.parts.len() + index, file)?;
        }
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

    /// The stored end of a turn, without what was said and parts.
    pub fn finished(&self, id: &TurnId) -> Result<Option<(State, Finish)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT state, text, outcome, api_calls, tools, history_offset, input_tokens, output_tokens
             FROM turns WHERE id = ?1 AND outcome IS NOT NULL",
        )?;
        let found = query
            .query_row([&id.0], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, u32>(3)?,
                    row.get::<_, String>(4)?,
                    row.get::<_, i64>(5)?,
                    Usage { input: row.get(6)?, output: row.get(7)? },
                ))
            })
            .optional()?;
        let Some((state, text, outcome, api_calls, tools, history_offset, usage)) = found else {
            return Ok(None);
        };
        let finish = Finish {
            text,
            outcome: serde_json::from_str(&outcome)?,
            api_calls,
            tools: serde_json::from_str(&tools)?,
            history_offset: usize::try_from(history_offset).unwrap_or_default(),
            usage,
            said: None,
            records: Vec::new(),
            parts: Vec::new(),
            files: Vec::new(),
        };
        Ok(Some((State::from_name(&state), finish)))
    }

    /// Nothing is ever sent again for a turn that is over.
    fn forget_request(&self, id: &TurnId) -> Result<()> {
        self.conn.prepare_cached("UPDATE turns SET request = NULL WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// The room shows everything: the turn is where its outcome says.
    pub(super) fn settle(&self, id: &TurnId) -> Result<()> {
        if let Some((State::Finalizing, finish)) = self.finished(id)? {
            self.conn
                .prepare_cached("UPDATE turns SET state = ?2, request = NULL WHERE id = ?1")?
                .execute(params![id.0, State::after(&finish.outcome).name()])?;
            // Of what was withdrawn the anchor is still needed, to be taken over or taken back.
            if !self.is_withdrawn(id)? {
                self.forget_anchor(id)?;
            }
        }
        Ok(())
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

fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let request: Option<Vec<u8>> = row.get(16)?;
    let (resumable, stand_in) = (row.get(17)?, row.get(18)?);
    let (speaker, name): (Option<String>, Option<String>) = (row.get(19)?, row.get(20)?);
    let (quote, agent): (Option<String>, Option<String>) = (row.get(22)?, row.get(23)?);
    Ok(TurnRow {
        id: TurnId(row.get(0)?),
        session: SessionId(row.get(1)?),
        account: AccountId::new(row.get::<_, String>(2)?),
        place: Place {
            room: RoomId::new(row.get::<_, String>(3)?),
            thread: row.get::<_, Option<String>>(4)?.map(ThreadId::new),
        },
        event: EventId::new(row.get::<_, String>(5)?),
        question: EventId::new(row.get::<_, String>(21)?),
        author: row.get(6)?,
        author_name: row.get(7)?,
        speaker: speaker.map(|id| Person { id, name }),
        room_name: row.get(8)?,
        direct: row.get(9)?,
        prompt: row.get(10)?,
        quote: quote.as_deref().map(serde_json::from_str).transpose()?,
        media: serde_json::from_str(row.get_ref(11)?.as_str().map_err(rusqlite::Error::from)?)?,
        agent: agent.as_deref().and_then(AgentName::from_name),
        attempt: row.get(12)?,
        key: row.get(13)?,
        state: State::from_name(row.get_ref(14)?.as_str().map_err(rusqlite::Error::from)?),
        stop: row.get(15)?,
        prepared: request.map(|request| Prepared { request, resumable, stand_in }),
        brought: row.get::<_, Option<String>>(24)?.as_deref().map(serde_json::from_str).transpose()?,
    })
}
