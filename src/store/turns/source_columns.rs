//! Translates the source of a turn to its stored columns and back.
//!
//! The columns are older than [`TurnSource`]: an app's request lies in them as a direct chat on the account `@http`,
//! in a room with the app's name, started by an event with the id of the turn. Only this file knows that.

use std::borrow::Cow;

use rusqlite::Row;
use talaria_platform::{AccountId, EventId, Place, RoomId, ThreadId};

use crate::ids::{HTTP, TurnId};
use crate::store::Result;
use crate::turn_source::{AppRequest, PersonInfo, RoomQuestion, TurnSource};

/// The columns of a source, in the order that [`read_source`] expects.
pub(super) const SOURCE_COLUMNS: &str = "account, room, thread, event, coalesce(question, event), author, author_name, \
    speaker, speaker_name, room_name, direct, quote, media, attempt, brought";

/// The source as a room's question, which is how it is stored.
pub(in crate::store) fn stored_question<'a>(turn: &TurnId, source: &'a TurnSource) -> Cow<'a, RoomQuestion> {
    match source {
        TurnSource::Room(question) => Cow::Borrowed(question),
        TurnSource::App(request) => Cow::Owned(RoomQuestion {
            account: AccountId::new(HTTP),
            place: Place::room(request.app.clone()),
            event: EventId::new(turn.0.clone()),
            question: EventId::new(turn.0.clone()),
            author: actor(&request.app),
            author_name: None,
            speaker: None,
            room_name: None,
            direct: true,
            quote: None,
            media: Vec::new(),
            attempt: 0,
        }),
    }
}

/// The column with what only an app's request has.
pub(super) fn stored_request(source: &TurnSource) -> Result<Option<String>> {
    Ok(source.app().map(serde_json::to_string).transpose()?)
}

/// Name of an app, or of the owner, as the author of a turn and in the audit.
pub fn actor(app: &str) -> String {
    if app.is_empty() { "owner".to_owned() } else { format!("app {app}") }
}

/// Reads the source from [`SOURCE_COLUMNS`], the first of which has the index `first`.
pub(super) fn read_source(row: &Row<'_>, first: usize) -> Result<TurnSource> {
    let text = |index: usize| row.get::<_, String>(first + index);
    let optional = |index: usize| row.get::<_, Option<String>>(first + index);
    if let Some(request) = optional(14)? {
        return Ok(TurnSource::App(Box::new(read_request(text(1)?, &request)?)));
    }
    let speaker_name = optional(8)?;
    let media = row.get_ref(first + 12)?;
    Ok(TurnSource::Room(
        RoomQuestion {
            account: AccountId::new(text(0)?),
            place: Place { room: RoomId::new(text(1)?), thread: optional(2)?.map(ThreadId::new) },
            event: EventId::new(text(3)?),
            question: EventId::new(text(4)?),
            author: text(5)?,
            author_name: optional(6)?,
            speaker: optional(7)?.map(|id| PersonInfo { id, name: speaker_name }),
            room_name: optional(9)?,
            direct: row.get(first + 10)?,
            quote: optional(11)?.as_deref().map(serde_json::from_str).transpose()?,
            media: serde_json::from_str(media.as_str().map_err(rusqlite::Error::from)?)?,
            attempt: row.get(first + 13)?,
        }
        .into(),
    ))
}

/// An app's request, from the columns `room` and `brought`.
pub(super) fn read_request(app: String, request: &str) -> Result<AppRequest> {
    Ok(AppRequest { app, ..serde_json::from_str(request)? })
}
