//! Requests of the operator to single accounts: `/<kind>/<action>`. The account's adapter answers them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde::Deserialize;
use talaria_platform::{AccountId, OperatorRequest, PlatformKind, RequestRefusal};

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{RawRequest, bytes, malformed, parse, unknown_path};
use crate::delivery::DeliveryAccount;
use crate::platforms::KINDS;

/// The part of a request that the core reads; the rest belongs to the adapter.
#[derive(Deserialize)]
struct AccountRequest {
    /// The name of its entry; `None` is the only one.
    account: Option<String>,
}

/// One route for each kind that has commands.
pub(super) fn routes() -> Router<Arc<ControlState>> {
    let kinds = KINDS.iter().copied().filter(|kind| kind.command().is_some());
    kinds.fold(Router::new(), |router, kind| {
        let answer = move |state, action, asked| answer(kind, state, action, asked);
        router.route(&format!("/{}/{{action}}", kind.name()), post(answer))
    })
}

async fn answer(
    kind: &'static dyn PlatformKind,
    State(control): State<Arc<ControlState>>,
    Path(action): Path<String>,
    asked: RawRequest,
) -> Result<Response, CommandError> {
    let question = bytes(asked)?;
    let AccountRequest { account } = parse(&question)?;
    let account = control.account(kind, account.as_deref())?;
    let request = OperatorRequest { action: &action, question: &question, learned_rate: account.learned() };
    match account.platform().answer_operator(request).await {
        Ok(answer) => Ok(([(CONTENT_TYPE, "application/json")], answer).into_response()),
        Err(RequestRefusal::UnknownAction) => Err(unknown_path(&format!("/{}/{action}", kind.name()))),
        Err(RequestRefusal::Malformed(error)) => Err(malformed(&error)),
        Err(RequestRefusal::Failed(error)) => Err(error.into()),
    }
}

impl ControlState {
    /// The running account of this kind that is meant.
    fn account(
        &self,
        kind: &dyn PlatformKind,
        name: Option<&str>,
    ) -> Result<&Arc<DeliveryAccount>, CommandError> {
        let running = self.running()?;
        let is_of_kind = |account: &&Arc<DeliveryAccount>| {
            running.config.platforms.get(account.id()).is_some_and(|entry| entry.kind().name() == kind.name())
        };
        let accounts = running.accounts.iter().filter(is_of_kind).map(|account| (account.id(), account));
        Ok(choose(kind, accounts, name)?.1)
    }
}

/// The account that is meant: by its name, or the only one.
pub fn choose<'a, T>(
    kind: &dyn PlatformKind,
    accounts: impl Iterator<Item = (&'a AccountId, T)>,
    name: Option<&str>,
) -> Result<(&'a AccountId, T), CommandError> {
    let mut accounts: Vec<_> = accounts.collect();
    let names: Vec<String> = accounts.iter().map(|(id, _)| id.to_string()).collect();
    let title = kind.title();
    match name {
        Some(name) => accounts.retain(|(id, _)| id.as_str() == name),
        None if accounts.len() > 1 => {
            return Err(CommandError::wrong(
                format!("there are several {title} accounts: {}", names.join(", ")),
                "say which one with `--account NAME`",
            ));
        }
        None => {}
    }
    accounts.pop().ok_or_else(|| match names.as_slice() {
        [] => {
            let entry = format!("an entry with `kind: {}`", kind.name());
            let hint = match kind.variables() {
                [] => format!("add {entry} to the configuration"),
                [first, ..] => format!(
                    "set {} and the other {}_ variables, or {entry}; `talaria env` lists them",
                    first.name,
                    kind.name().to_uppercase()
                ),
            };
            CommandError::missing(format!("no {title} account is configured"), hint)
        }
        names => CommandError::missing(
            format!("no {title} account is called like this"),
            format!("there are: {}", names.join(", ")),
        ),
    })
}
