//! Requests of the operator's commands to a running account, as JSON on the control socket.

use serde::{Deserialize, Serialize};
use talaria_platform::operator::write_answer;
use talaria_platform::{OperatorRequest, RequestRefusal};

use super::RATE_LIMITS;
use crate::{Matrix, VerificationView, VerifyAnswer};

/// Status of the account.
pub(crate) const STATUS: &str = "status";

/// Check of the account.
pub(crate) const DOCTOR: &str = "doctor";

/// List of verifications.
pub(crate) const VERIFICATIONS: &str = "verifications";

/// One step of a verification.
pub(crate) const VERIFY: &str = "verify";

/// A step of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerifyRequest {
    /// Id of the verification.
    pub id: String,
    /// The operator's action.
    pub answer: VerifyAnswer,
}

/// Verifications that wait or are under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerificationList {
    /// The oldest first.
    pub verifications: Vec<VerificationView>,
}

/// Answers a request.
pub(crate) async fn answer(matrix: &Matrix, request: OperatorRequest<'_>) -> Result<Vec<u8>, RequestRefusal> {
    match request.action {
        STATUS => write_answer(&matrix.status().await?),
        DOCTOR => {
            let mut report = matrix.doctor().await?;
            // The settings have the rate that was configured; the core knows the rate that the homeserver has taught
            // it since then.
            if let Some(rate) = request.learned_rate
                && let Some(check) = report.checks.iter_mut().find(|check| check.name == RATE_LIMITS)
            {
                check.says = format!(
                    "learned from refusals: {:.0} at once, {:.2} a second after that",
                    rate.burst, rate.per_second
                );
            }
            write_answer(&report)
        }
        VERIFICATIONS => write_answer(&VerificationList { verifications: matrix.verifications().await? }),
        VERIFY => {
            let VerifyRequest { id, answer } = request.read()?;
            write_answer(&matrix.verify(&id, answer).await?)
        }
        _ => Err(RequestRefusal::UnknownAction),
    }
}
