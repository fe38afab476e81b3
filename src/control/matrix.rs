//! What the owner asks of the Matrix accounts that are being read.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use talaria_matrix::{AccountStatus, DoctorReport, Matrix, OperatorError, VerificationView};
use talaria_platform::AccountId;

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{HandlerResult, RawRequest, read};

/// Which account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRequest {
    /// Its entry's name; `None` is the only one.
    pub account: Option<String>,
}

/// What to do with a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyRequest {
    /// Its entry's name; `None` is the only one.
    pub account: Option<String>,
    /// Which verification.
    pub id: String,
    /// What to do.
    pub answer: talaria_matrix::VerifyAnswer,
}

/// Verifications that wait or are under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationList {
    /// The oldest first.
    pub verifications: Vec<VerificationView>,
}

/// What can be asked.
pub(super) fn routes() -> Router<Arc<ControlState>> {
    Router::new()
        .route("/matrix/status", post(status))
        .route("/matrix/doctor", post(doctor))
        .route("/matrix/verifications", post(verifications))
        .route("/matrix/verify", post(verify))
}

async fn status(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<AccountStatus> {
    let AccountRequest { account } = read(asked)?;
    let (_, matrix) = control.matrix(account.as_deref())?;
    Ok(Json(matrix.status().await?))
}

async fn doctor(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<DoctorReport> {
    let AccountRequest { account } = read(asked)?;
    let (id, matrix) = control.matrix(account.as_deref())?;
    let mut health = matrix.doctor().await?;
    // The adapter knows what it was told; what the homeserver taught since then is known to delivery.
    let accounts = &control.running()?.accounts;
    let learned = accounts.iter().find(|account| account.id() == id).and_then(|account| account.learned());
    if let Some(rate) = learned
        && let Some(check) = health.checks.iter_mut().find(|check| check.name == talaria_matrix::RATE_LIMITS)
    {
        check.says = format!(
            "learned from refusals: {:.0} at once, {:.2} a second after that",
            rate.burst, rate.per_second
        );
    }
    Ok(Json(health))
}

async fn verifications(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<VerificationList> {
    let AccountRequest { account } = read(asked)?;
    let (_, matrix) = control.matrix(account.as_deref())?;
    Ok(Json(VerificationList { verifications: matrix.verifications().await? }))
}

async fn verify(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<VerificationView> {
    let VerifyRequest { account, id, answer } = read(asked)?;
    let (_, matrix) = control.matrix(account.as_deref())?;
    Ok(Json(matrix.verify(&id, answer).await?))
}

impl ControlState {
    fn matrix(&self, name: Option<&str>) -> Result<(&AccountId, &Arc<Matrix>), CommandError> {
        let accounts = &self.running()?.matrix;
        let (id, matrix) = choose(accounts.iter().map(|(id, matrix)| (id, matrix)), name)?;
        Ok((id, matrix))
    }
}

/// The account that is meant.
pub fn choose<'a, T>(
    accounts: impl Iterator<Item = (&'a AccountId, T)>,
    name: Option<&str>,
) -> Result<(&'a AccountId, T), CommandError> {
    let mut accounts: Vec<_> = accounts.collect();
    let names: Vec<String> = accounts.iter().map(|(id, _)| id.to_string()).collect();
    match name {
        Some(name) => accounts.retain(|(id, _)| id.as_str() == name),
        None if accounts.len() > 1 => {
            return Err(CommandError::wrong(
                format!("there are several Matrix accounts: {}", names.join(", ")),
                "say which one with `--account NAME`",
            ));
        }
        None => {}
    }
    accounts.pop().ok_or_else(|| match names.as_slice() {
        [] => CommandError::missing(
            "no Matrix account is configured",
            "set MATRIX_HOMESERVER and the other MATRIX_ variables, or an entry with `kind: matrix`; `talaria env` \
             lists them",
        ),
        names => CommandError::missing(
            "no Matrix account is called like this",
            format!("there are: {}", names.join(", ")),
        ),
    })
}

impl From<OperatorError> for CommandError {
    fn from(trouble: OperatorError) -> Self {
        // A homeserver's own words may be among them, and a terminal would obey them.
        Self::new(StatusCode::CONFLICT, crate::util::one_line(&trouble.message, 500), trouble.hint)
    }
}
