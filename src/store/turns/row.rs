//! A turn as it is stored.

use std::sync::Arc;

use rusqlite::Row;

use super::source_columns::{SOURCE_COLUMNS, read_source};
use crate::agent::PreparedTurn;
use crate::ids::{AgentName, SessionId, TurnId};
use crate::reply::TurnOutcome;
use crate::rules::AgentRuntime;
use crate::store::Result;
use crate::turn_source::{RoomQuestion, TurnSource};

/// Progress of a turn. There is no state before `Queued`: the transaction that accepts a prompt queues or refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// Accepted; nothing was sent for it.
    Queued,
    /// The request is stored and may have been sent.
    Dispatched,
    /// Some text is stored as a checkpoint.
    Streaming,
    /// The end is stored; the room does not show all of it yet. An app's turn skips this state.
    Finalizing,
    /// The answer is complete.
    Done,
    /// The turn ended with an error.
    Failed,
    /// The outcome of the turn is unknown.
    Interrupted,
    /// A person or an app ended the turn.
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

    /// Final state of a turn with this outcome.
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
    pub source: TurnSource,
    pub prompt: String,
    pub agent: Option<AgentName>,
    pub key: String,
    pub state: TurnState,
    pub stop: bool,
    /// Set once the turn was dispatched.
    pub prepared: Option<PreparedTurn>,
}

impl TurnRow {
    /// The turn with its question, if it was asked in a room.
    pub fn in_room(self) -> Option<RoomTurn> {
        let question = self.source.room()?.clone();
        Some(RoomTurn { row: self, question })
    }
}

/// A turn that was asked in a room.
#[derive(Clone, Debug)]
pub struct RoomTurn {
    /// The stored turn.
    pub row: TurnRow,
    /// The source of the row.
    pub question: Arc<RoomQuestion>,
}

/// The columns that [`read_turn`] expects.
pub(super) fn columns() -> String {
    format!(
        "id, session, prompt, key, state, stop, request, resumable, request_for, agent, request_runtime, {SOURCE_COLUMNS}"
    )
}

pub(super) fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let request: Option<Vec<u8>> = row.get(6)?;
    let (resumable, made_for): (_, Option<String>) = (row.get(7)?, row.get(8)?);
    let made_for = made_for.as_deref().and_then(AgentName::new);
    let runtime = AgentRuntime::named(row.get_ref(10)?.as_str().map_err(rusqlite::Error::from)?);
    Ok(TurnRow {
        id: TurnId(row.get(0)?),
        session: SessionId(row.get(1)?),
        source: read_source(row, 11)?,
        prompt: row.get(2)?,
        agent: row.get::<_, Option<String>>(9)?.as_deref().and_then(AgentName::new),
        key: row.get(3)?,
        state: TurnState::from_name(row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?),
        stop: row.get(5)?,
        prepared: request.zip(made_for).zip(runtime).map(|((request, agent), runtime)| PreparedTurn {
            agent,
            runtime,
            request: request.into(),
            resumable,
        }),
    })
}
