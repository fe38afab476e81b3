//! `DELETE /api/sessions/{session_id}`: stops the turns of a session, then deletes everything in it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use talaria_platform::spawn_task;
use tokio::time::Instant;

use super::DeletedSession;
use crate::ids::{SessionId, TurnId};
use crate::server::path_params::SessionName;
use crate::server::{ApiError, Caller, Server, forge};

/// Longest wait for the end of the turns. The engine drops an agent that ignores the stop before that.
const WITHIN: Duration = Duration::from_secs(10);

/// Result of one look at the session.
enum RemovalStep {
    Nothing,
    /// The session belongs to the forge surface, where its app is told of its end.
    OfForge,
    /// These turns had not ended, and were asked to stop.
    Open(Vec<TurnId>),
    Removed,
}

/// Deletes a session.
pub async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    SessionName(name): SessionName,
) -> Result<Json<DeletedSession>, ApiError> {
    let id = caller.session(&name);
    // On a task of its own: the client may disconnect, and a session whose turns were stopped must be deleted
    // too.
    let removing = spawn_task("remove-a-session", async move { removed(&server, &id).await });
    removing.await.unwrap_or_else(|error| Err(ApiError::mistake(error)))?;
    Ok(Json(DeletedSession { object: "hermes.session.deleted", id: name, deleted: true }))
}

async fn removed(server: &Server, id: &SessionId) -> Result<(), ApiError> {
    let deadline = Instant::now() + WITHIN;
    let mut stopped = Vec::new();
    loop {
        if server.draining.is_cancelled() {
            return Err(ApiError::draining());
        }
        match look(server, id, stopped).await? {
            RemovalStep::Nothing => return Err(ApiError::no_session()),
            RemovalStep::OfForge => return Err(forge::ended_elsewhere()),
            RemovalStep::Removed => {
                server.turns.end_sessions();
                return Ok(());
            }
            RemovalStep::Open(open) => {
                open.iter().for_each(|turn| server.turns.stop_turn(id, turn));
                let idle = tokio::time::timeout_at(deadline, server.turns.idle_in(id));
                if idle.await.is_err() {
                    let message = "What runs in this session does not end; stop it, or ask again in a moment";
                    return Err(ApiError::new(StatusCode::CONFLICT, "session_busy", message));
                }
                stopped = open;
            }
        }
    }
}

/// Deletes the session if no turn in it is open; otherwise asks its turns to stop. Turns that were stopped
/// before and are still open although the session is idle belong to no one, like those of an account that is no
/// longer configured; they are deleted too.
async fn look(server: &Server, id: &SessionId, stopped: Vec<TurnId>) -> Result<RemovalStep, ApiError> {
    let id = id.clone();
    let found = server.store.write(move |tx| {
        if !tx.has_session(&id)? {
            return Ok(RemovalStep::Nothing);
        }
        if tx.forge_session(&id)?.is_some() {
            return Ok(RemovalStep::OfForge);
        }
        let open: Vec<_> = tx.open_turns(&id)?.into_iter().map(|turn| turn.id).collect();
        if open.iter().all(|turn| stopped.contains(turn)) {
            tx.remove_session(&id)?;
            return Ok(RemovalStep::Removed);
        }
        open.iter().try_for_each(|turn| tx.ask_to_stop(turn))?;
        Ok(RemovalStep::Open(open))
    });
    Ok(found.await?)
}
