//! Authenticates the caller. Its rights follow from its key alone, never from other parts of the request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::app_tokens::FoundApp;
use super::listen::ClientPeer;
use super::rejection_log::RejectedRequest;
use super::revocable_body::held;
use super::{ApiError, Server};
use crate::ids::SessionId;
use crate::store::{self, AppRights, TurnRow};
use crate::token;
use crate::turn_source::TurnSource;
use crate::turns::BudgetPayer;
use crate::util::hash;

/// The owner or an app, authenticated.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Name of the app; empty for the owner.
    app: String,
    /// The server has no key, so none can be wrong.
    pub keyless: bool,
    /// What the caller may do. The owner has every right; permissions that agents ask for are not among them.
    rights: AppRights,
    /// Fired when the app's token is revoked, or the owner's key is replaced.
    pub revoked: CancellationToken,
}

impl Caller {
    /// Name of the app as stored: the room of its turns and sessions.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// Whether the caller is the owner of the server.
    pub fn is_owner(&self) -> bool {
        self.app.is_empty()
    }

    /// Refuses an app. For endpoints that concern everybody's turns.
    pub fn must_be_owner(&self) -> Result<(), ApiError> {
        if self.is_owner() { Ok(()) } else { Err(ApiError::owner_only()) }
    }

    /// Refuses instructions of an app whose token was made with `--no-instructions`.
    pub fn may_instruct(&self) -> Result<(), ApiError> {
        if self.rights.instructions { Ok(()) } else { Err(ApiError::no_instructions()) }
    }

    /// What the caller may do with its token.
    pub fn rights(&self) -> &AppRights {
        &self.rights
    }

    /// Id of the session that has this name for the caller.
    pub fn session(&self, name: &str) -> SessionId {
        match self.is_owner() {
            true => SessionId(name.to_owned()),
            false => SessionId(format!("{}/{name}", self.app)),
        }
    }

    /// Memory scope of the agent that has this name for the caller. Scopes of two apps never coincide.
    pub fn memory(&self, name: &str) -> String {
        match self.is_owner() {
            true => name.to_owned(),
            false => format!("{}_{}", self.app, &hash([self.app.as_str(), name])[..32]),
        }
    }

    /// The caller's name for a session.
    pub fn name_of(&self, session: &SessionId) -> String {
        let own = session.0.strip_prefix(&self.app).and_then(|rest| rest.strip_prefix('/'));
        own.filter(|_| !self.is_owner()).unwrap_or(&session.0).to_owned()
    }

    /// Whether the caller may see a turn: its own, and as the owner those of rooms too.
    pub fn owns(&self, turn: &TurnRow) -> bool {
        match &turn.source {
            TurnSource::Room(_) => self.is_owner(),
            TurnSource::App(request) => request.app == self.app,
        }
    }

    /// Whose share of the memory budgets the caller uses.
    pub fn payer(&self) -> BudgetPayer {
        BudgetPayer::app(&self.app)
    }

    /// Name of the caller in the audit.
    pub fn actor(&self) -> String {
        store::actor(&self.app)
    }
}

/// Middleware: authenticates the caller, or rejects the request.
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
    // A handler that waits is cancelled when the key is revoked.
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

/// The key in the `Authorization` header, byte for byte. Keys in an address or a cookie are ignored.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.as_bytes().trim_ascii();
    // Proxies and servers disagree on which of two headers counts.
    if values.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

impl Server {
    pub(super) async fn recognise(&self, key: Option<&[u8]>, from: IpAddr) -> Result<Caller, ApiError> {
        let owner = self.keys.owner();
        let is_owner = |keyless| Caller {
            app: String::new(),
            keyless,
            rights: AppRights { may_replace: true, ..AppRights::default() },
            revoked: owner.replaced.clone(),
        };
        let id = key.and_then(|key| token::id(std::str::from_utf8(key).ok()?));
        let key = match key {
            None if owner.has_key() => {
                self.turned_away(from, RejectedRequest::Nothing);
                return Err(ApiError::no_key());
            }
            // Clients send some key even to a server without one. The token of an app still identifies the app.
            Some(key) if owner.has_key() || id.is_some() => key,
            None | Some(_) => return Ok(is_owner(true)),
        };
        let now = Instant::now();
        let paused = self.wrong_keys.permit(from, key, now).err();
        let busy = |after| ApiError::busy("Too many wrong keys were sent; wait before the next one", after);
        // An owner's key that is too long to guess is checked even while others guess from that address; a
        // guessable one is not.
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
            Some(id) => self.apps.find(&self.store, id, &given, from).await?,
            None => None,
        };
        let Some(FoundApp { app, rights, revoked }) = app else {
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
        Ok(Caller { app, keyless: false, rights, revoked })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // A route without authentication has no caller.
        parts.extensions.get::<Self>().cloned().ok_or_else(ApiError::invalid_key)
    }
}
