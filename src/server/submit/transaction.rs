//! The one transaction that takes what a program asks: it is on disk afterwards, or it is said why not.

use std::time::Duration;

use axum::http::StatusCode;

use super::ResponseRecord;
use crate::agent::SessionMessage;
use crate::ids::{AgentName, SessionId, TurnId};
use crate::server::content::join_system;
use crate::server::{ApiError, TurnLimits, responses};
use crate::store::{
    ContinuationPoint, KeyLookup, NewSession, Result, StoredResponse, TurnRow, Tx, ephemeral_expiry,
};
use crate::turn_source::{TurnSource, WhenUnread};

/// Turns that may wait behind the one that runs in a session.
const WAITING: usize = 8;

/// When to come back to a session that has too much to do.
const AGAIN: Duration = Duration::from_secs(2);

/// What is to be taken.
pub struct SubmitTransaction {
    /// The turn, in the session that is meant; another one if it goes on from a response.
    pub turn: TurnRow,
    /// Who asks; empty for the owner.
    pub app: String,
    /// Under what it may be asked again.
    pub key: Option<String>,
    /// Tells it from everything else that is asked.
    pub digest: String,
    /// Whether it has come through a relay.
    pub relayed: bool,
    /// Whether there is room for one turn more.
    pub has_room: bool,
    /// The response that it goes on from.
    pub after: Option<String>,
    /// Whether a session that is not there is an error.
    pub must_exist: bool,
    /// Whether nobody named the session.
    pub ephemeral: bool,
    /// What was said before, for a session that begins.
    pub history: Vec<SessionMessage>,
    /// What is kept of it as a response.
    pub keep: Option<ResponseRecord>,
    /// The agent of older turns that name none.
    pub default_agent: AgentName,
}

/// What became of it.
pub enum SubmitResult {
    /// It waits in this session.
    Anew(SessionId),
    /// This very thing was asked before.
    Before(TurnId),
    Refused(ApiError),
}

impl SubmitTransaction {
    /// Takes it, or finds that it must not be.
    pub fn take(mut self, tx: &Tx<'_>) -> Result<SubmitResult> {
        if let Some(known) = self.known(tx)? {
            return Ok(known);
        }
        if !self.has_room {
            return Ok(SubmitResult::Refused(TurnLimits::too_many_turns()));
        }
        if let Some(problem) = self.find_session(tx)? {
            return Ok(SubmitResult::Refused(problem));
        }
        let Self { mut turn, app, key, digest, keep, default_agent, .. } = self;
        // What the session always says, then what this request says.
        if let (Some(prompt), TurnSource::App(request)) = (tx.system_prompt(&turn.session)?, &mut turn.source)
        {
            request.system = join_system([Some(prompt), request.system.take()]);
        }
        tx.fork_for_agent(&turn, &default_agent)?;
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
        Ok(SubmitResult::Anew(turn.session))
    }

    /// What its key says of it, if anything.
    fn known(&self, tx: &Tx<'_>) -> Result<Option<SubmitResult>> {
        let Some(key) = &self.key else { return Ok(None) };
        // One of our own turns came back to us: it would wait here for itself, behind itself.
        if self.relayed && tx.is_under_way(key)? {
            return Ok(Some(SubmitResult::Refused(ApiError::circle())));
        }
        Ok(match tx.asked_before(&self.app, key, &self.digest)? {
            KeyLookup::New => None,
            KeyLookup::Same(run) => Some(SubmitResult::Before(run)),
            KeyLookup::Other => Some(SubmitResult::Refused(other_body())),
        })
    }

    /// Finds its session, or begins it; and says if it must not go there.
    fn find_session(&mut self, tx: &Tx<'_>) -> Result<Option<ApiError>> {
        // What is stored nowhere else goes when nobody can ask for it any more.
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
        match (tx.has_session(session)?, self.must_exist) {
            (false, true) => return Ok(Some(ApiError::no_session())),
            (false, false) => {
                let ephemeral = self.ephemeral;
                let expires = expires.filter(|_| ephemeral);
                tx.create_session(&NewSession { ephemeral, expires, ..NewSession::new(session, &self.app) })?;
                tx.replace_history(session, &self.history)?;
            }
            // The name that was made up is somebody's by the rarest chance, and what they said is not for everybody.
            (true, _) if self.ephemeral => return Ok(Some(TurnLimits::too_many_turns())),
            (true, _) => {
                // A client that goes on with a single request brings what came before it; nobody else has it.
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
