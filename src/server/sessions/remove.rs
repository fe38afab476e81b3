//! `DELETE /api/sessions/{session_id}`: what runs is stopped first, then everything of the session goes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use tokio::time::Instant;

use super::Deleted;
use crate::server::path::SessionName;
use crate::server::{Caller, Problem, Server};
use crate::session::{SessionId, TurnId};

/// How long what runs may take to end. An agent that does not end when it is asked to is let go before that.
const WITHIN: Duration = Duration::from_secs(10);

/// What a look at the session found.
enum Found {
    Nothing,
    /// These had not ended, and have been asked to.
    Open(Vec<TurnId>),
    Removed,
}

/// Removes a session.
pub async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<Deleted>, Problem> {
    let id = caller.session(&name);
    // On a task of its own: whoever asks may leave, and what is stopped is to be removed too.
    let removing = tokio::spawn(async move { removed(&server, &id).await });
    removing.await.unwrap_or_else(|error| Err(Problem::mistake(error)))?;
    Ok(Json(Deleted { object: "hermes.session.deleted", id: name, deleted: true }))
}

async fn removed(server: &Server, id: &SessionId) -> Result<(), Problem> {
    let deadline = Instant::now() + WITHIN;
    let mut stopped = Vec::new();
    loop {
        if server.draining.is_cancelled() {
            return Err(Problem::draining());
        }
        match look(server, id, stopped).await? {
            Found::Nothing => return Err(Problem::no_session()),
            Found::Removed => return Ok(()),
            Found::Open(open) => {
                open.iter().for_each(|turn| server.turns.stop_turn(id, turn));
                let idle = tokio::time::timeout_at(deadline, server.turns.idle_in(id));
                if idle.await.is_err() {
                    let message = "What runs in this session does not end; stop it, or ask again in a moment";
                    return Err(Problem::new(StatusCode::CONFLICT, "session_busy", message));
                }
                stopped = open;
            }
        }
    }
}

/// Removes the session if nothing runs in it; otherwise asks that to stop. What was stopped before and is still there
/// although nobody works in the session is nobody's, as the turns of an account that is no longer configured: it goes
/// along.
async fn look(server: &Server, id: &SessionId, stopped: Vec<TurnId>) -> Result<Found, Problem> {
    let id = id.clone();
    let found = server.store.write(move |tx| {
        if !tx.has_session(&id)? {
            return Ok(Found::Nothing);
        }
        let open: Vec<_> = tx.open_turns(&id)?.into_iter().map(|turn| turn.id).collect();
        if open.iter().all(|turn| stopped.contains(turn)) {
            tx.remove_session(&id)?;
            return Ok(Found::Removed);
        }
        open.iter().try_for_each(|turn| tx.ask_to_stop(turn))?;
        Ok(Found::Open(open))
    });
    Ok(found.await?)
}
