//! Who asks. What somebody may see and do follows from their key alone, never from what they say of themselves.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use talaria_platform::RoomId;
use tokio_util::sync::CancellationToken;

use super::{Problem, Server};
use crate::config::Secret;
use crate::session::{HTTP, SessionId};
use crate::store::TurnRow;

/// Whoever asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name of the app; empty for the owner.
    app: String,
    /// There is no key that could be wrong.
    pub keyless: bool,
    /// Fired when its token is revoked.
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
    pub fn must_be_owner(&self) -> Result<(), Problem> {
        if self.is_owner() { Ok(()) } else { Err(Problem::owner_only()) }
    }

    /// The session that this caller means by a name.
    pub fn session(&self, name: &str) -> SessionId {
        match self.is_owner() {
            true => SessionId(name.to_owned()),
            false => SessionId(format!("{}/{name}", self.app)),
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

    /// What the audit calls it.
    pub fn actor(&self) -> String {
        if self.is_owner() { "owner".to_owned() } else { format!("app {}", self.app) }
    }
}

/// The owner's key, as a digest: all digests are as long, so that comparing them takes as long whatever is sent.
pub struct Keys {
    owner: Option<[u8; 32]>,
}

impl Keys {
    /// The key of the owner; `None` if everybody who gets here is.
    pub fn new(key: Option<&Secret>) -> Self {
        Self { owner: key.map(|key| digest(key.expose())) }
    }
}

/// What is kept and compared of a key.
pub fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Finds out who asks, or turns them away.
pub async fn identify(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let key = bearer.map(|(_, key)| key.trim().to_owned());
    match server.recognise(key.as_deref()).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

impl Server {
    async fn recognise(&self, key: Option<&str>) -> Result<Caller, Problem> {
        let owner = |keyless| Caller { app: String::new(), keyless, revoked: CancellationToken::new() };
        let Some(expected) = self.keys.owner else { return Ok(owner(true)) };
        let Some(key) = key else { return Err(Problem::invalid_key()) };
        let given = digest(key);
        if bool::from(given.ct_eq(&expected)) {
            return Ok(owner(false));
        }
        let Some(app) = self.apps.find(&self.store, key, &given).await? else {
            return Err(Problem::invalid_key());
        };
        let revoked = self.apps.revocation(&app);
        Ok(Caller { app, keyless: false, revoked })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // A route that nobody had to be recognised for knows nobody.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::invalid_key)
    }
}
