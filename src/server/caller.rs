//! Who asks. What somebody may see and do follows from their key alone, never from what they say of themselves.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use talaria_platform::RoomId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::app_tokens::FoundApp;
use super::listen::ClientPeer;
use super::rejection_log::RejectedRequest;
use super::revocable_body::held;
use super::{ApiError, Server};
use crate::ids::{HTTP, SessionId};
use crate::store::TurnRow;
use crate::token;
use crate::turns::BudgetPayer;
use crate::util::hash;

/// Whoever asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name of the app; empty for the owner.
    app: String,
    /// There is no key that could be wrong.
    pub keyless: bool,
    /// Whether it may send system messages and instructions.
    instructions: bool,
    /// Fired when its token is revoked, or the owner's key is replaced.
    pub revoked: CancellationToken,
}

impl Caller {
    /// The app as it is stored: the room of its turns and sessions.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// The same as a room.
    pub fn room(&self) -> RoomId {
        RoomId::new(self.app.clone())
    }

    /// Whether it is whoever runs the server.
    pub fn is_owner(&self) -> bool {
        self.app.is_empty()
    }

    /// What concerns everybody's turns is for the owner alone.
    pub fn must_be_owner(&self) -> Result<(), ApiError> {
        if self.is_owner() { Ok(()) } else { Err(ApiError::owner_only()) }
    }

    /// Refuses instructions of an app whose token was made with `--no-instructions`.
    pub fn may_instruct(&self) -> Result<(), ApiError> {
        if self.instructions { Ok(()) } else { Err(ApiError::no_instructions()) }
    }

    /// The session that this caller means by a name.
    pub fn session(&self, name: &str) -> SessionId {
        match self.is_owner() {
            true => SessionId(name.to_owned()),
            false => SessionId(format!("{}/{name}", self.app)),
        }
    }

    /// The scope of an agent's memory that this caller means by a name: one app's is never another's.
    pub fn memory(&self, name: &str) -> String {
        match self.is_owner() {
            true => name.to_owned(),
            false => format!("{}_{}", self.app, &hash([self.app.as_str(), name])[..32]),
        }
    }

    /// What this caller calls a session.
    pub fn name_of(&self, session: &SessionId) -> String {
        let own = session.0.strip_prefix(&self.app).and_then(|rest| rest.strip_prefix('/'));
        own.filter(|_| !self.is_owner()).unwrap_or(&session.0).to_owned()
    }

    /// Whether a turn is this caller's to see: its own, and for the owner those of rooms too.
    pub fn owns(&self, turn: &TurnRow) -> bool {
        match turn.account.as_str() == HTTP {
            true => turn.place.room.as_str() == self.app,
            false => self.is_owner(),
        }
    }

    /// Whose share of what all hold in memory is used.
    pub fn payer(&self) -> BudgetPayer {
        BudgetPayer::app(&self.app)
    }

    /// What the audit calls it.
    pub fn actor(&self) -> String {
        if self.is_owner() { "owner".to_owned() } else { format!("app {}", self.app) }
    }
}

/// Finds out who asks, or turns them away.
pub async fn identify(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let key = bearer(request.headers()).map(<[u8]>::to_vec);
    let from =
        request.extensions().get::<ClientPeer>().map_or(Ipv4Addr::LOCALHOST.into(), |peer| peer.address);
    let caller = match server.recognise(key.as_deref(), from).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    if caller.keyless {
        return next.run(request).await;
    }
    let place = match (!caller.is_owner()).then(|| server.limits.request(&caller)).transpose() {
        Ok(place) => place,
        Err(problem) => return problem.into_response(),
    };
    // Whatever the handler waits for, it is over when the key is.
    let response = tokio::select! {
        biased;
        () = caller.revoked.cancelled() => return ApiError::invalid_key().into_response(),
        response = next.run(request) => response,
    };
    if caller.revoked.is_cancelled() {
        return ApiError::invalid_key().into_response();
    }
    held(response, caller.revoked, place)
}

/// The key that is sent, byte for byte. It has one place; what stands in an address or a cookie is none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.as_bytes().trim_ascii();
    // Two of them are read differently by everybody on the way.
    if values.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

impl Server {
    async fn recognise(&self, key: Option<&[u8]>, from: IpAddr) -> Result<Caller, ApiError> {
        let owner = self.keys.owner();
        let is_owner = |keyless| Caller {
            app: String::new(),
            keyless,
            instructions: true,
            revoked: owner.replaced.clone(),
        };
        let id = key.and_then(|key| token::id(std::str::from_utf8(key).ok()?));
        let key = match key {
            None if owner.has_key() => {
                self.turned_away(from, RejectedRequest::Nothing);
                return Err(ApiError::no_key());
            }
            // Clients send some key even where none is asked for. An app stays an app.
            Some(key) if owner.has_key() || id.is_some() => key,
            None | Some(_) => return Ok(is_owner(true)),
        };
        let now = Instant::now();
        let paused = self.wrong_keys.permit(from, key, now).err();
        let busy = |after| ApiError::busy("Too many wrong keys were sent; wait before the next one", after);
        // Whoever has a key that nobody guesses is not held up by those who try. One that may be guessed is not even
        // looked at meanwhile.
        let unseen = if owner.guessable { paused } else { self.wrong_keys.repeats(from, key, now) };
        if let Some(after) = unseen {
            return Err(busy(after));
        }
        let given = token::digest(key);
        if owner.is(&given) {
            self.wrong_keys.right(from, key);
            return Ok(is_owner(false));
        }
        let app = match id {
            Some(id) => self.apps.find(&self.store, id, &given).await?,
            None => None,
        };
        let Some(FoundApp { app, instructions, revoked }) = app else {
            if let Some(after) = paused {
                return Err(busy(after));
            }
            self.wrong_keys.wrong(from, key, now);
            self.turned_away(
                from,
                id.map_or(RejectedRequest::Key, |id| RejectedRequest::Token(id.to_owned())),
            );
            return Err(ApiError::invalid_key());
        };
        self.wrong_keys.right(from, key);
        Ok(Caller { app, keyless: false, instructions, revoked })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // A route that nobody had to be recognised for knows nobody.
        parts.extensions.get::<Self>().cloned().ok_or_else(ApiError::invalid_key)
    }
}
