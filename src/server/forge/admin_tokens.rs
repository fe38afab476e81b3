//! `/admin/tokens`: makes, lists and revokes the tokens of apps, for a program of the operator with the admin token.
//!
//! The admin token opens nothing else, and no other key opens this. Without a configured one the addresses do not exist.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use talaria_platform::spawn_task;
use tokio::time::Instant;

use crate::access::{AppPermissions, IpRange};
use crate::server::app_admin::{self, Revocation};
use crate::server::body::JsonBody;
use crate::server::caller::bearer;
use crate::server::listen::ClientPeer;
use crate::server::rejection_log::RejectedRequest;
use crate::server::{ApiError, Server, routes};
use crate::store::{AppInfo, AppRights};
use crate::token;

/// Actor of these actions in the audit.
const ADMIN: &str = "(admin token)";

/// Most ranges of addresses of one token.
const RANGES: usize = 100;

/// Body of a request that makes a token. Unknown fields are refused: one that is misspelt would leave a limit out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAppToken {
    /// Name of the app: 1 to 64 of `a`–`z`, `0`–`9`, `_` and `-`.
    #[serde(default)]
    pub name: String,
    /// Addresses from which the token may be used, such as `192.168.1.0/24`. Default: all; for an app that is known, what
    /// held before.
    #[serde(default)]
    pub ip_cidrs: Option<Vec<String>>,
    /// What agents may do in the app's turns without a person, on every surface: `"deny"` (the default), `"ask"`, or a list
    /// of actions. For an app that is known, the default is what held before.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    pub permissions: Option<Value>,
    /// Whether the app may replace the operator's system text in `POST /run`. Default: `false`; for an app that is known,
    /// what held before.
    #[serde(default)]
    pub system_replace: Option<bool>,
    /// Confirms that the name was used before for the same app, which gets another token for its sessions. It keeps all
    /// rights that the request does not name.
    #[serde(default)]
    pub again: bool,
}

/// A token that was made. Without `Debug`: this is the only time that the token is shown.
#[derive(Serialize, JsonSchema)]
pub struct MadeToken {
    ok: bool,
    name: String,
    /// Not shown again.
    token: String,
}

/// The apps.
#[derive(Serialize, JsonSchema)]
pub struct AdminTokenList {
    ok: bool,
    tokens: Vec<AppTokenView>,
}

/// An app, without its token.
#[derive(Serialize, JsonSchema)]
pub struct AppTokenView {
    name: String,
    /// Seconds since 1970.
    created_at: i64,
    /// Seconds since 1970, accurate to about a minute.
    last_used_at: Option<i64>,
    /// Seconds since 1970.
    revoked_at: Option<i64>,
    /// Null: all addresses.
    ip_cidrs: Option<Vec<String>>,
    /// `"deny"`, `"ask"`, or a list of actions. Null: none was set at the command line; then `/sessions` and `/run` deny, and
    /// elsewhere the app answers itself.
    permissions: Option<Value>,
    system_replace: bool,
}

/// A token that was revoked.
#[derive(Serialize, JsonSchema)]
pub struct RevokedAppToken {
    ok: bool,
    /// Turns of the app that were stopped.
    stopped: usize,
}

/// Middleware: lets in the admin token alone.
pub async fn authenticate(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    match server.check_admin(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// `GET /admin/tokens`
pub async fn list(State(server): State<Arc<Server>>) -> Result<Json<AdminTokenList>, ApiError> {
    let apps = server.store.read(|tx| tx.apps()).await?;
    Ok(Json(AdminTokenList { ok: true, tokens: apps.into_iter().map(AppTokenView::new).collect() }))
}

/// `GET /admin/tokens/{name}`
pub async fn one(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
) -> Result<Json<AppTokenView>, ApiError> {
    let app = server.store.read(move |tx| tx.app(&name)).await?;
    Ok(Json(AppTokenView::new(app.ok_or_else(no_token)?)))
}

/// `POST /admin/tokens`
pub async fn make(
    State(server): State<Arc<Server>>,
    JsonBody { value, .. }: JsonBody<NewAppToken>,
) -> Result<Json<MadeToken>, ApiError> {
    let change = RightsChange::read(&value)?;
    let NewAppToken { name, again, .. } = value;
    if !token::is_app_name(&name) {
        let message = "A name has 1 to 64 of a–z, 0–9, _ and -";
        return Err(ApiError::wrong("name", message));
    }
    let making = async move {
        let app = name.clone();
        let made = server.store.write(move |tx| {
            let known = tx.app(&app)?;
            if let Some(known) = &known
                && !again
            {
                return Ok(Err(taken(known)));
            }
            let rights = change.applied_to(known.as_ref());
            let Some(token) = app_admin::new_token(tx, token::FORGE_PREFIX, &app, &rights)? else {
                return Ok(Err(ApiError::mistake("the operating system gives no random numbers")));
            };
            let replaced = known.is_some_and(|known| known.revoked.is_none());
            app_admin::audit(tx, ADMIN, &app, if replaced { "replace token" } else { "add token" })?;
            Ok(Ok((token, replaced)))
        });
        let (token, replaced) = made.await??;
        if replaced {
            server.apps.revoked(&name);
        }
        tracing::info!(app = name, replaced, "an app was given a token over HTTP");
        Ok(Json(MadeToken { ok: true, name, token }))
    };
    // On a task of its own: the effects of a committed change must follow it, also if the client is gone.
    spawn_task("make-a-token", making).await.unwrap_or_else(|error| Err(ApiError::mistake(error)))
}

/// `DELETE /admin/tokens/{name}`: the token ends at once, with everything that the app has running.
pub async fn revoke(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
) -> Result<Json<RevokedAppToken>, ApiError> {
    let revoking = async move {
        let app = name.clone();
        let revoked = server.store.write(move |tx| app_admin::revoke(tx, ADMIN, &app)).await?;
        let open = match revoked {
            Revocation::Revoked(open) => open,
            Revocation::Before | Revocation::Unknown => return Err(no_token()),
        };
        server.apps.revoked(&name);
        open.iter().for_each(|(session, turn)| server.turns.stop_turn(session, turn));
        tracing::info!(app = name, stopped = open.len(), "the token of an app was revoked over HTTP");
        Ok(Json(RevokedAppToken { ok: true, stopped: open.len() }))
    };
    spawn_task("revoke-a-token", revoking).await.unwrap_or_else(|error| Err(ApiError::mistake(error)))
}

impl Server {
    /// Checks that a request has the admin token. Wrong ones are slowed down and recorded as wrong keys are.
    fn check_admin(&self, request: &Request) -> Result<(), ApiError> {
        let Some(admin) = &self.settings.forge.config.admin_token else {
            return Err(routes::unknown_address());
        };
        let peer = request.extensions().get::<ClientPeer>();
        let from = peer.map_or(Ipv4Addr::LOCALHOST.into(), |peer| peer.address);
        let Some(key) = bearer(request.headers()) else {
            self.turned_away(from, RejectedRequest::Nothing);
            return Err(ApiError::no_key());
        };
        let now = Instant::now();
        if let Err(after) = self.wrong_keys.permit(from, key, now) {
            return Err(ApiError::busy("Too many wrong keys were sent; wait before the next one", after));
        }
        let expected = token::digest(admin.expose().as_bytes());
        if bool::from(expected.ct_eq(&token::digest(key))) {
            self.wrong_keys.right(from, key);
            return Ok(());
        }
        self.wrong_keys.wrong(from, key, now);
        self.turned_away(from, RejectedRequest::Key);
        Err(ApiError::invalid_key())
    }
}

impl AppTokenView {
    fn new(app: AppInfo) -> Self {
        let AppRights { networks, permissions, may_replace, .. } = app.rights();
        Self {
            name: app.name,
            created_at: app.created,
            last_used_at: app.used,
            revoked_at: app.revoked,
            ip_cidrs: networks.map(|ranges| ranges.iter().map(ToString::to_string).collect()),
            permissions: permissions.map(|permissions| permissions.shown()),
            system_replace: may_replace,
        }
    }
}

/// What the app may do, as far as the request says it.
struct RightsChange {
    networks: Option<Vec<IpRange>>,
    permissions: Option<AppPermissions>,
    may_replace: Option<bool>,
}

impl RightsChange {
    /// Reads the request. Anything unclear is refused.
    fn read(asked: &NewAppToken) -> Result<Self, ApiError> {
        let networks = match asked.ip_cidrs.as_deref() {
            None => None,
            Some([]) => {
                let message = "Name at least one range; all addresses are 0.0.0.0/0 and ::/0";
                return Err(ApiError::wrong("ip_cidrs", message));
            }
            Some(ranges) if ranges.len() > RANGES => {
                return Err(ApiError::wrong("ip_cidrs", format!("A token has at most {RANGES} ranges")));
            }
            Some(ranges) => {
                let parsed = ranges.iter().map(|range| range.parse::<IpRange>()).collect::<Result<_, _>>();
                Some(parsed.map_err(|error| ApiError::wrong("ip_cidrs", error.to_string()))?)
            }
        };
        let permissions = match &asked.permissions {
            None | Some(Value::Null) => None,
            Some(value) => Some(AppPermissions::read(value).ok_or_else(|| {
                ApiError::wrong(
                    "permissions",
                    "It is \"deny\", \"ask\", or a list of actions that are allowed",
                )
            })?),
        };
        Ok(Self { networks, permissions, may_replace: asked.system_replace })
    }

    /// The rights of the new token. An app that is known keeps what the request does not name: a token in place of another
    /// one never allows more by itself.
    fn applied_to(&self, known: Option<&AppInfo>) -> AppRights {
        let before = known.map_or_else(
            || AppRights { permissions: Some(AppPermissions::Deny), ..AppRights::default() },
            AppInfo::rights,
        );
        AppRights {
            instructions: before.instructions,
            networks: self.networks.clone().or(before.networks),
            permissions: self.permissions.clone().or(before.permissions),
            may_replace: self.may_replace.unwrap_or(before.may_replace),
        }
    }
}

fn taken(known: &AppInfo) -> ApiError {
    let message = match known.revoked {
        Some(_) => {
            "There was an app of this name, whose token was revoked; send again: true if it is the same one, which then \
             finds its sessions again"
        }
        None => "There is an app of this name; send again: true for another token in place of its old one",
    };
    ApiError::new(StatusCode::CONFLICT, "name_taken", message)
}

fn no_token() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "token_not_found", "There is no valid token of this name")
}
