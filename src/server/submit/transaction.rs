//! The one transaction that accepts an app's request: afterwards the turn is on disk, or the request is refused.

use std::time::Duration;

use axum::http::StatusCode;

use super::ResponseRecord;
use crate::agent::SessionMessage;
use crate::ids::{SessionId, TurnId};
use crate::server::content::join_system;
use crate::server::{ApiError, TurnLimits, forge, responses};
use crate::store::{
    ContinuationPoint, KeyLookup, NewForgeSession, NewSession, Result, StoredResponse, TurnAdmission,
    TurnRow, Tx, ephemeral_expiry,
};
use crate::turn_source::{TurnSource, WhenUnread};

/// Turns that may wait behind the one that runs in a session.
const WAITING: usize = 8;

/// `Retry-After` for a session with too many waiting turns.
const AGAIN: Duration = Duration::from_secs(2);

/// A request to accept.
pub struct SubmitTransaction {
    /// The turn, in the requested session. The session changes if the request continues a response.
    pub turn: TurnRow,
    /// Name of the app; empty for the owner.
    pub app: String,
    /// The `Idempotency-Key`.
    pub key: Option<String>,
    /// Fingerprint of the request, to see whether a key is reused for another one.
    pub digest: String,
    /// Whether the request came through a relay.
    pub relayed: bool,
    /// Whether the limits allow one more turn.
    pub has_capacity: bool,
    /// The response that the request continues.
    pub after: Option<String>,
    /// Whether an unknown session is an error.
    pub must_exist: bool,
    /// Whether the session has no name from the client.
    pub ephemeral: bool,
    /// Messages before the prompt, for a new session.
    pub history: Vec<SessionMessage>,
    /// The response to store.
    pub keep: Option<ResponseRecord>,
    /// Why no agent takes the request, if so.
    pub no_agent: Option<ApiError>,
    /// The forge session that begins with the turn, for a single request.
    pub one_shot: Option<NewForgeSession>,
}

/// Result of the transaction.
pub enum SubmitResult {
    /// The turn waits in this session. Its number, if that is a forge session; otherwise 0.
    Anew(SessionId, u64),
    /// An equal request was accepted before, as this turn.
    Before(TurnId),
    Refused(ApiError),
}

impl SubmitTransaction {
    /// Accepts or refuses the request.
    pub fn take(mut self, tx: &Tx<'_>) -> Result<SubmitResult> {
        if let Some(known) = self.known(tx)? {
            return Ok(known);
        }
        if let Some(problem) = self.no_agent.take() {
            return Ok(SubmitResult::Refused(problem));
        }
        if !self.has_capacity {
            return Ok(SubmitResult::Refused(TurnLimits::too_many_turns()));
        }
        let found = match self.is_for_forge() {
            true => self.find_forge_session(tx)?,
            false => self.find_session(tx)?,
        };
        if let Some(problem) = found {
            return Ok(SubmitResult::Refused(problem));
        }
        let Self { mut turn, app, key, digest, keep, .. } = self;
        // The system prompt of the session, then that of the request.
        if let (Some(prompt), TurnSource::App(request)) = (tx.system_prompt(&turn.session)?, &mut turn.source)
        {
            request.system = join_system([Some(prompt), request.system.take()]);
        }
        tx.add_turn(&turn)?;
        tx.use_session(&turn.session)?;
        if let Some(key) = &key {
            tx.remember_key(&app, key, &digest, &turn.id)?;
        }
        if let Some(ResponseRecord { previous, request }) = keep {
            tx.keep_response(
                &app,
                &StoredResponse::new(responses::id_of(&turn.id), &turn, previous, request),
            )?;
        }
        let index =
            turn.source.app().and_then(|request| request.forge.as_ref()).map_or(0, |forge| forge.index);
        Ok(SubmitResult::Anew(turn.session, index))
    }

    /// The result that follows from the idempotency key alone, if any.
    fn known(&self, tx: &Tx<'_>) -> Result<Option<SubmitResult>> {
        let Some(key) = &self.key else { return Ok(None) };
        // One of our own turns came back to us: it would wait for itself in the queue.
        if self.relayed && tx.is_under_way(key)? {
            return Ok(Some(SubmitResult::Refused(ApiError::circle())));
        }
        Ok(match tx.asked_before(&self.app, key, &self.digest)? {
            KeyLookup::New => None,
            KeyLookup::Same(run) => Some(SubmitResult::Before(run)),
            KeyLookup::Other => Some(SubmitResult::Refused(other_body())),
        })
    }

    fn is_for_forge(&self) -> bool {
        self.turn.source.app().is_some_and(|request| request.forge.is_some())
    }

    /// Finds the forge session, or begins the one of a single request, and counts the turn in it. Returns the reason if the
    /// session takes no turn now.
    fn find_forge_session(&mut self, tx: &Tx<'_>) -> Result<Option<ApiError>> {
        if let Some(one_shot) = &self.one_shot {
            tx.create_one_shot(one_shot)?;
        }
        let index = match tx.admit_forge_turn(&self.turn.session, &self.turn.id)? {
            TurnAdmission::Absent => return Ok(Some(ApiError::no_session())),
            TurnAdmission::Closed => return Ok(Some(forge::closed())),
            TurnAdmission::Busy => return Ok(Some(forge::busy())),
            TurnAdmission::Admitted(index) => index,
        };
        if let TurnSource::App(request) = &mut self.turn.source
            && let Some(forge) = &mut request.forge
        {
            forge.index = index;
        }
        Ok(None)
    }

    /// Finds or creates the session. Returns the reason if the request must not use it.
    fn find_session(&mut self, tx: &Tx<'_>) -> Result<Option<ApiError>> {
        // A session that belongs to no response expires when nobody can ask for its answer any more.
        let patience = self.turn.source.app().map_or(WhenUnread::None, |request| request.patience);
        let expires = self.keep.is_none().then(|| ephemeral_expiry(patience));
        if let Some(response) = &self.after {
            match tx.go_on_from(&self.app, response, &self.turn.session, expires)? {
                ContinuationPoint::Here(session) => self.turn.session = session,
                ContinuationPoint::Forked => {}
                ContinuationPoint::Unfinished => return Ok(Some(unfinished())),
                ContinuationPoint::Gone => return Ok(Some(no_previous())),
            }
        }
        let session = &self.turn.session;
        // Its turns are counted, one at a time, and have a folder.
        if tx.forge_session(session)?.is_some() {
            return Ok(Some(forge::elsewhere()));
        }
        match (tx.has_session(session)?, self.must_exist) {
            (false, true) => return Ok(Some(ApiError::no_session())),
            (false, false) => {
                let ephemeral = self.ephemeral;
                let expires = expires.filter(|_| ephemeral);
                tx.create_session(&NewSession { ephemeral, expires, ..NewSession::new(session, &self.app) })?;
                tx.replace_history(session, &self.history)?;
            }
            // By the rarest chance the random name is taken, and that session is somebody else's.
            (true, _) if self.ephemeral => return Ok(Some(TurnLimits::too_many_turns())),
            (true, _) => {
                // A client that continues a single request sends the messages before it; nobody else has them.
                let is_new = self.after.is_none() && tx.adopt_session(session)?;
                if is_new && !self.history.is_empty() && tx.open_turns(session)?.is_empty() {
                    tx.replace_history(session, &self.history)?;
                }
            }
        }
        if tx.open_turns(session)?.len() > WAITING {
            let message = format!("{WAITING} turns wait in this session; ask again when one has ended");
            return Ok(Some(ApiError::busy(message, AGAIN)));
        }
        Ok(None)
    }
}

fn other_body() -> ApiError {
    let message = "This Idempotency-Key was used for another request; use a new one for each request";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message)
}

fn no_previous() -> ApiError {
    let problem = ApiError::wrong("previous_response_id", "There is no such response to go on from");
    ApiError { status: StatusCode::NOT_FOUND, code: "previous_response_not_found", ..problem }
}

fn unfinished() -> ApiError {
    let message =
        "That response is not complete yet, and another one goes on from it; ask again when it has ended";
    let problem = ApiError::wrong("previous_response_id", message);
    ApiError { status: StatusCode::CONFLICT, code: "response_in_progress", ..problem }
}
