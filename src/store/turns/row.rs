//! A turn as it is stored.

use rusqlite::Row;
use talaria_platform::{AccountId, EventId, MediaInfo, Place, QuotedMessage, RoomId, ThreadId};

use crate::agent::PreparedTurn;
use crate::ids::{AgentName, SessionId, TurnId};
use crate::reply::TurnOutcome;
use crate::store::Result;
use crate::turns::{AppRequest, WhenUnread};

/// How far a turn is. `received` is never stored: an event is refused or queued in the transaction
/// that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
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

impl TurnState {
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

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("failed", |(_, name)| name)
    }

    pub(super) fn from_name(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known)| *known == name).map_or(Self::Failed, |(state, _)| *state)
    }

    /// Where a turn with this outcome ends up.
    pub fn after(outcome: &TurnOutcome) -> Self {
        match outcome {
            TurnOutcome::Done | TurnOutcome::Limit => Self::Done,
            TurnOutcome::Failed { .. } | TurnOutcome::Unavailable { .. } | TurnOutcome::CutShort { .. } => {
                Self::Failed
            }
            TurnOutcome::Interrupted | TurnOutcome::Unknown { .. } => Self::Interrupted,
            TurnOutcome::Stopped | TurnOutcome::Cancelled { .. } => Self::Cancelled,
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
    pub speaker: Option<PersonInfo>,
    pub room_name: Option<String>,
    pub direct: bool,
    pub prompt: String,
    pub quote: Option<QuotedMessage>,
    pub media: Vec<MediaInfo>,
    pub agent: Option<AgentName>,
    pub attempt: u32,
    pub key: String,
    pub state: TurnState,
    pub stop: bool,
    /// Set once the turn was dispatched.
    pub prepared: Option<PreparedTurn>,
    /// Set if a program asks, and no room.
    pub app_request: Option<Box<AppRequest>>,
}

/// Somebody, as an agent is told of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonInfo {
    /// The immutable id.
    pub id: String,
    /// The display name.
    pub name: Option<String>,
}

impl TurnRow {
    /// Whether nobody can come back to it once its reader is gone.
    pub fn is_ephemeral(&self) -> bool {
        self.app_request.as_ref().is_some_and(|app_request| app_request.patience == WhenUnread::None)
    }

    /// Who asks for this run and is answerable for it.
    pub fn asked_by(&self) -> PersonInfo {
        PersonInfo { id: self.author.clone(), name: self.author_name.clone() }
    }

    /// Whose words the prompt is.
    pub fn spoken_by(&self) -> PersonInfo {
        self.speaker.clone().unwrap_or_else(|| self.asked_by())
    }
}

pub(super) const COLUMNS: &str = "id, session, account, room, thread, event, author, author_name, room_name, direct, \
                       prompt, media, attempt, key, state, stop, request, resumable, request_for, speaker, \
                       speaker_name, coalesce(question, event), quote, agent, brought";

pub(super) fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let request: Option<Vec<u8>> = row.get(16)?;
    let (resumable, made_for): (_, Option<String>) = (row.get(17)?, row.get(18)?);
    let made_for = made_for.as_deref().and_then(AgentName::new);
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
        speaker: speaker.map(|id| PersonInfo { id, name }),
        room_name: row.get(8)?,
        direct: row.get(9)?,
        prompt: row.get(10)?,
        quote: quote.as_deref().map(serde_json::from_str).transpose()?,
        media: serde_json::from_str(row.get_ref(11)?.as_str().map_err(rusqlite::Error::from)?)?,
        agent: agent.as_deref().and_then(AgentName::new),
        attempt: row.get(12)?,
        key: row.get(13)?,
        state: TurnState::from_name(row.get_ref(14)?.as_str().map_err(rusqlite::Error::from)?),
        stop: row.get(15)?,
        prepared: request.zip(made_for).map(|(request, agent)| PreparedTurn {
            agent,
            request: request.into(),
            resumable,
        }),
        app_request: row.get::<_, Option<String>>(24)?.as_deref().map(serde_json::from_str).transpose()?,
    })
}
