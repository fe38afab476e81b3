//! Interactive verification: a person starts it in their client, the operator compares the emoji.
//!
//! This file does not know who may talk to us, so it accepts nothing by itself: `requests` wait for the operator. No
//! task runs between the operator's calls: each call continues from the state in the SDK and returns the `view` of
//! it. `plaintext_echo` sends our part in plaintext to a person who does not have our room keys yet.

mod plaintext_echo;
mod requests;
mod view;

use std::time::Duration;

use futures_util::StreamExt as _;
use matrix_sdk::encryption::verification::{
    SasState, SasVerification, Verification as Flow, VerificationRequest, VerificationRequestState,
};
use matrix_sdk::ruma::events::key::verification::VerificationMethod;
use serde::{Deserialize, Serialize};
use talaria_platform::OperatorError;

use crate::login::OpenedAccount;
use requests::find;
use view::view;

pub(crate) use requests::{VerificationRequests, listen};
pub use view::{VerificationStage, VerificationView};

/// Longest time that one call of the operator waits for the other side. Shorter than the control socket's timeout.
const PATIENCE: Duration = Duration::from_secs(12);

/// Time that the other side has to start before we do. If both start at once, the operator has to call again, or the
/// verification fails; and a client that reads our part only in plaintext is two round trips behind.
const THEIR_TURN: Duration = Duration::from_secs(5);

/// The operator's action on a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyAnswer {
    /// Accepts the request, and continues until the emoji are there.
    Accept,
    /// The emoji are the same on both sides.
    Match,
    /// The emoji differ: there is a man in the middle.
    Differ,
    /// The operator declines.
    Cancel,
}

/// All verifications that wait or are under way.
pub(crate) async fn list(opened: &OpenedAccount) -> Vec<VerificationView> {
    let mut views = Vec::new();
    for waiting in opened.requests.all() {
        if let Some(request) = find(&opened.client, &waiting).await {
            views.push(view(&waiting, &request));
        }
    }
    views
}

/// Carries out the operator's action, and waits up to `PATIENCE` for the other side.
pub(crate) async fn answer(
    opened: &OpenedAccount,
    id: &str,
    answer: VerifyAnswer,
) -> Result<VerificationView, OperatorError> {
    let missing = || OperatorError {
        message: format!("there is no verification `{}`", id.chars().take(20).collect::<String>()),
        hint: "`talaria matrix verify list` shows those that wait; each holds for ten minutes".to_owned(),
    };
    let waiting = opened.requests.all().into_iter().find(|one| one.id == id).ok_or_else(missing)?;
    let request = find(&opened.client, &waiting).await.ok_or_else(missing)?;
    opened.requests.answer(id);
    let doing = async {
        match answer {
            VerifyAnswer::Accept => go_on(&request, is_comparable).await,
            VerifyAnswer::Match => match sas(&request) {
                Some(sas) if sas.can_be_presented() => {
                    sas.confirm().await?;
                    go_on(&request, |_| false).await
                }
                Some(_) | None => Ok(()),
            },
            VerifyAnswer::Differ => match sas(&request) {
                Some(sas) => sas.mismatch().await,
                None => request.cancel().await,
            },
            VerifyAnswer::Cancel => match sas(&request) {
                Some(sas) => sas.cancel().await,
                None => request.cancel().await,
            },
        }
    };
    match tokio::time::timeout(PATIENCE, doing).await {
        // After a timeout the view shows how far it is, and the operator asks again.
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => {
            return Err(OperatorError {
                message: format!("the homeserver did not take it: {error}"),
                hint: "try again".to_owned(),
            });
        }
    }
    let view = view(&waiting, &request);
    match answer {
        VerifyAnswer::Match
            if matches!(view.stage, VerificationStage::Asked | VerificationStage::Accepted) =>
        {
            Err(OperatorError {
                message: "there is nothing to compare yet".to_owned(),
                hint: format!("`talaria matrix verify accept {id}` shows the pictures first"),
            })
        }
        VerifyAnswer::Accept | VerifyAnswer::Match | VerifyAnswer::Differ | VerifyAnswer::Cancel => Ok(view),
    }
}

/// Does our part until `enough` returns true, or the verification is over.
async fn go_on(
    request: &VerificationRequest,
    enough: fn(&SasVerification) -> bool,
) -> Result<(), matrix_sdk::Error> {
    let mut changes = std::pin::pin!(request.changes());
    loop {
        match request.state() {
            VerificationRequestState::Requested { .. } => {
                request.accept_with_methods(vec![VerificationMethod::SasV1]).await?;
            }
            VerificationRequestState::Ready { .. } => {
                let theirs = async {
                    while let Some(state) = changes.next().await {
                        if !matches!(state, VerificationRequestState::Ready { .. }) {
                            return;
                        }
                    }
                };
                if tokio::time::timeout(THEIR_TURN, theirs).await.is_err() {
                    request.start_sas().await?;
                }
            }
            VerificationRequestState::Transitioned { verification: Flow::SasV1(sas), .. } => {
                return compare(&sas, enough).await;
            }
            // A method that we did not offer.
            VerificationRequestState::Transitioned { .. } => return request.cancel().await,
            VerificationRequestState::Created { .. }
            | VerificationRequestState::Done
            | VerificationRequestState::Cancelled(_) => return Ok(()),
        }
    }
}

async fn compare(
    sas: &SasVerification,
    enough: fn(&SasVerification) -> bool,
) -> Result<(), matrix_sdk::Error> {
    let mut changes = std::pin::pin!(sas.changes());
    loop {
        match sas.state() {
            SasState::Started { .. } if !sas.we_started() => sas.accept().await?,
            SasState::Done { .. } | SasState::Cancelled(_) => return Ok(()),
            SasState::Created { .. }
            | SasState::Started { .. }
            | SasState::Accepted { .. }
            | SasState::KeysExchanged { .. }
            | SasState::Confirmed => {}
        }
        if enough(sas) || changes.next().await.is_none() {
            return Ok(());
        }
    }
}

fn is_comparable(sas: &SasVerification) -> bool {
    sas.can_be_presented()
}

fn sas(request: &VerificationRequest) -> Option<SasVerification> {
    match request.state() {
        VerificationRequestState::Transitioned { verification: Flow::SasV1(sas), .. } => Some(sas),
        _ => None,
    }
}
