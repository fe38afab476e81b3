//! Commands that create, list and revoke the tokens of apps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use talaria_platform::{RoomId, spawn_task};

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{HandlerResult, RawRequest, read};
use crate::ids::HTTP;
use crate::store::{self, AppInfo, OPERATOR, OperatorAction, Tx};
use crate::token::{self, TokenDigest};

/// Tries to find a token with an unused id. A second one is needed once in four billion.
const TRIES: usize = 8;

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
    let AddTokenRequest { app, again, instructions } = asked;
    if !token::is_app_name(&app) {
        return Err(CommandError::wrong(
            "an app cannot be called like this",
            "names are 1 to 40 of `a`–`z`, `0`–`9` and `-`, and begin with a letter",
        ));
    }
    let name = app.clone();
    let added = control.store.write(move |tx| {
        let known = tx.app(&name)?;
        if let Some(known) = &known
            && !again
        {
            return Ok(Err(used_before(known)));
        }
        // Replacing a token does not add rights.
        let instructions = instructions.unwrap_or(known.as_ref().is_none_or(|known| known.instructions));
        let Some(token) = new_token(tx, &name, instructions)? else { return Ok(Err(no_randomness())) };
        let replaced = known.is_some_and(|known| known.revoked.is_none());
        audit(tx, &name, if replaced { "replace token" } else { "add token" })?;
        Ok(Ok((token, replaced, instructions)))
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
    let revoked = control.store.write(move |tx| {
        if !tx.revoke_token(&name)? {
            return Ok(Err(tx.app(&name)?.is_some()));
        }
        audit(tx, &name, "revoke token")?;
        let mut stopped = Vec::new();
        for (session, turn) in tx.open_turns_of_app(&name)? {
            tx.ask_to_stop(&turn)?;
            stopped.push((session, turn));
        }
        Ok(Ok(stopped))
    });
    let hint = "`talaria token list` shows all of them";
    let stopped = match revoked.await? {
        Ok(stopped) => stopped,
        Err(true) => return Err(CommandError::missing("the token of this app was revoked before", hint)),
        Err(false) => {
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

fn new_token(tx: &Tx<'_>, app: &str, instructions: bool) -> store::Result<Option<String>> {
    for _ in 0..TRIES {
        let Ok(token) = token::make() else { return Ok(None) };
        let Some(kept) = TokenDigest::of(&token) else { return Ok(None) };
        if tx.add_token(app, &kept, instructions)? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

fn audit(tx: &Tx<'_>, app: &str, what: &str) -> store::Result<()> {
    tx.audit_operator(&OperatorAction {
        account: HTTP,
        actor: OPERATOR,
        room: Some(&RoomId::from(app)),
        action: &format!("{what} of {app}"),
        allowed: true,
        rule: "operator",
    })
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
