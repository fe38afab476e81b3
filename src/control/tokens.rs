//! Commands that create, list and revoke the tokens of apps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use talaria_platform::spawn_task;

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{HandlerResult, RawRequest, read};
use crate::access::{AppPermissions, IpRange, NotARange};
use crate::server::app_admin::{self, Revocation};
use crate::store::{AppInfo, AppRights, OPERATOR};
use crate::token;

/// `POST /tokens/add`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddTokenRequest {
    /// Name of the app.
    pub app: String,
    /// Confirms that the app is known and gets another token.
    pub again: bool,
    /// Whether the app may send system messages and instructions. `None` keeps the current right; a new app has
    /// it.
    #[serde(default)]
    pub instructions: Option<bool>,
    /// Ranges of addresses from which the token may be used; an empty list for all. `None` keeps the current ones.
    #[serde(default)]
    pub networks: Option<Vec<String>>,
    /// The policy for permissions that agents ask for in the app's turns: `deny`, `ask`, or a list of what is allowed.
    /// `None` keeps the current one; a new app has none.
    #[serde(default)]
    pub permissions: Option<serde_json::Value>,
    /// Whether the app may replace the operator's system text in `POST /run`. `None` keeps the current right.
    #[serde(default)]
    pub may_replace: Option<bool>,
}

/// Response to `POST /tokens/add`. Without `Debug`: this is the only time that the token is shown.
#[derive(Serialize, Deserialize)]
pub struct AddedToken {
    /// Name of the app.
    pub app: String,
    /// The token itself.
    pub token: String,
    /// Whether the app had a valid token until now.
    pub replaced: bool,
    /// Whether the app may send system messages and instructions.
    pub instructions: bool,
}

/// `GET /tokens`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppList {
    /// Sorted by name.
    pub apps: Vec<AppInfo>,
}

/// `POST /tokens/revoke`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeTokenRequest {
    /// Name of the app.
    pub app: String,
}

/// Response to `POST /tokens/revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedToken {
    /// Name of the app.
    pub app: String,
    /// Turns of the app that were stopped.
    pub stopped: usize,
}

/// Routes about tokens.
pub(super) fn routes() -> Router<Arc<ControlState>> {
    Router::new()
        .route("/tokens", get(list))
        .route("/tokens/add", post(add))
        .route("/tokens/revoke", post(revoke))
}

async fn list(State(control): State<Arc<ControlState>>) -> HandlerResult<AppList> {
    Ok(Json(AppList { apps: control.store.read(|tx| tx.apps()).await? }))
}

/// Creates a token for an app. A name that was used before needs a confirmation: its token gives access to all
/// sessions of that app.
async fn add(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<AddedToken> {
    let asked: AddTokenRequest = read(asked)?;
    whole(async move { add_whole(&control, asked).await }).await
}

async fn add_whole(control: &ControlState, asked: AddTokenRequest) -> HandlerResult<AddedToken> {
    let AddTokenRequest { app, again, .. } = &asked;
    let (app, again) = (app.clone(), *again);
    if !token::is_app_name(&app) {
        return Err(CommandError::wrong(
            "an app cannot be called like this",
            "names are 1 to 64 of `a`–`z`, `0`–`9`, `_` and `-`",
        ));
    }
    let change = RightsChange::read(&asked)?;
    let name = app.clone();
    let added = control.store.write(move |tx| {
        let known = tx.app(&name)?;
        if let Some(known) = &known
            && !again
        {
            return Ok(Err(used_before(known)));
        }
        // Replacing a token does not add rights.
        let rights = change.applied_to(known.as_ref().map(AppInfo::rights).unwrap_or_default());
        let Some(token) = app_admin::new_token(tx, token::PREFIX, &name, &rights)? else {
            return Ok(Err(no_randomness()));
        };
        let replaced = known.is_some_and(|known| known.revoked.is_none());
        app_admin::audit(tx, OPERATOR, &name, if replaced { "replace token" } else { "add token" })?;
        Ok(Ok((token, replaced, rights.instructions)))
    });
    let (token, replaced, instructions) = added.await??;
    if replaced {
        control.token_gone(&app);
    }
    tracing::info!(app, replaced, "an app was given a token");
    Ok(Json(AddedToken { app, token, replaced, instructions }))
}

/// Revokes an app's token at once, and stops the app's open turns.
async fn revoke(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<RevokedToken> {
    let RevokeTokenRequest { app } = read(asked)?;
    whole(async move { revoke_whole(&control, app).await }).await
}

/// Runs to completion even if the client disconnects: effects outside the store must follow a committed change.
async fn whole<T: Send + 'static>(
    act: impl Future<Output = HandlerResult<T>> + Send + 'static,
) -> HandlerResult<T> {
    let done = spawn_task("change-tokens", act).await;
    done.unwrap_or_else(|error| Err(CommandError::store(&error)))
}

async fn revoke_whole(control: &ControlState, app: String) -> HandlerResult<RevokedToken> {
    let name = app.clone();
    let revoked = control.store.write(move |tx| app_admin::revoke(tx, OPERATOR, &name));
    let hint = "`talaria token list` shows all of them";
    let stopped = match revoked.await? {
        Revocation::Revoked(stopped) => stopped,
        Revocation::Before => {
            return Err(CommandError::missing("the token of this app was revoked before", hint));
        }
        Revocation::Unknown => {
            let app = crate::util::one_line(&app, 80);
            return Err(CommandError::missing(format!("no app is called `{app}`"), hint));
        }
    };
    control.token_gone(&app);
    if let Some(running) = &control.running {
        for (session, turn) in &stopped {
            running.turns.stop_turn(session, turn);
        }
    }
    tracing::info!(app, stopped = stopped.len(), "the token of an app was revoked");
    Ok(Json(RevokedToken { app, stopped: stopped.len() }))
}

impl ControlState {
    /// Ends all responses to an app whose token is no longer valid.
    fn token_gone(&self, app: &str) {
        if let Some(served) = self.running.as_ref().and_then(|running| running.served.as_ref()) {
            served.server.apps.revoked(app);
        }
    }
}

/// Changes of rights, as far as the command names them.
struct RightsChange {
    instructions: Option<bool>,
    networks: Option<Option<Vec<IpRange>>>,
    permissions: Option<AppPermissions>,
    may_replace: Option<bool>,
}

impl RightsChange {
    fn read(asked: &AddTokenRequest) -> Result<Self, CommandError> {
        let range = |text: &String| {
            let wrong =
                |error: NotARange| CommandError::wrong("this is no range of addresses", error.to_string());
            text.parse::<IpRange>().map_err(wrong)
        };
        let ranges = |list: &Vec<String>| list.iter().map(range).collect::<Result<Vec<_>, _>>();
        let networks = asked.networks.as_ref().map(ranges).transpose()?;
        let permissions = asked.permissions.as_ref().map(|value| {
            AppPermissions::read(value).ok_or_else(|| {
                CommandError::wrong(
                    "this is no policy for permissions",
                    "it is deny or ask alone, or a list of actions that are allowed",
                )
            })
        });
        Ok(Self {
            instructions: asked.instructions,
            networks: networks.map(|ranges| Some(ranges).filter(|ranges| !ranges.is_empty())),
            permissions: permissions.transpose()?,
            may_replace: asked.may_replace,
        })
    }

    fn applied_to(self, rights: AppRights) -> AppRights {
        AppRights {
            instructions: self.instructions.unwrap_or(rights.instructions),
            networks: self.networks.unwrap_or(rights.networks),
            permissions: self.permissions.or(rights.permissions),
            may_replace: self.may_replace.unwrap_or(rights.may_replace),
        }
    }
}

fn used_before(known: &AppInfo) -> CommandError {
    let name = &known.name;
    let (message, hint) = match known.revoked {
        Some(_) => (
            format!("there was an app called `{name}`, whose token was revoked"),
            format!(
                "take another name; or `talaria token add {name} --again` if it is the same app, which then finds its \
                 sessions again"
            ),
        ),
        None => (
            format!("there is an app called `{name}`, and its token is shown only once"),
            format!(
                "take another name; or `talaria token add {name} --again` makes another token in place of the old one"
            ),
        ),
    };
    CommandError::new(StatusCode::CONFLICT, message, hint)
}

fn no_randomness() -> CommandError {
    CommandError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the operating system gives no random numbers",
        "nothing was changed; try again",
    )
}
