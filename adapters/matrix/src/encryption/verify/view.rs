//! The operator's view of a verification.

use matrix_sdk::encryption::verification::{
    SasState, SasVerification, Verification as Flow, VerificationRequest, VerificationRequestState,
};
use serde::{Deserialize, Serialize};

use super::requests::PendingRequest;

/// A verification as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationView {
    /// Id for commands.
    pub id: String,
    /// User id of the other side.
    pub user: String,
    /// Device of the other side, as far as it is known.
    pub device: Option<String>,
    /// Whether it is another device of our own account.
    pub own: bool,
    /// Progress of the verification.
    pub stage: VerificationStage,
    /// The emoji that both sides compare, each with its name; empty until they are there.
    pub emoji: Vec<(String, String)>,
    /// The comparison code as numbers, for clients that show no emoji.
    pub numbers: Option<(u16, u16, u16)>,
}

impl VerificationView {
    /// Whether one side still has to act.
    pub fn is_open(&self) -> bool {
        match self.stage {
            VerificationStage::Asked
            | VerificationStage::Accepted
            | VerificationStage::Compare
            | VerificationStage::Confirmed => true,
            VerificationStage::Done | VerificationStage::Cancelled(_) => false,
        }
    }
}

/// Progress of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerificationStage {
    /// The other side waits for the operator to accept.
    Asked,
    /// Accepted; the other side has not continued yet.
    Accepted,
    /// Both sides can compare the emoji.
    Compare,
    /// We confirmed that they match; the other side has not yet.
    Confirmed,
    /// Both sides confirmed.
    Done,
    /// Cancelled, with the reason.
    Cancelled(String),
}

/// Makes the operator's view of a request.
pub(super) fn view(waiting: &PendingRequest, request: &VerificationRequest) -> VerificationView {
    let mut view = VerificationView {
        id: waiting.id.clone(),
        user: waiting.user.to_string(),
        device: None,
        own: request.is_self_verification(),
        stage: VerificationStage::Asked,
        emoji: Vec::new(),
        numbers: None,
    };
    match request.state() {
        VerificationRequestState::Requested { other_device_data, .. } => {
            view.device = Some(other_device_data.device_id().to_string());
        }
        VerificationRequestState::Ready { other_device_data, .. } => {
            view.device = Some(other_device_data.device_id().to_string());
            view.stage = VerificationStage::Accepted;
        }
        VerificationRequestState::Transitioned { verification } => {
            view.stage = VerificationStage::Accepted;
            if let Flow::SasV1(sas) = verification {
                view.device = Some(sas.other_device().device_id().to_string());
                show(&mut view, &sas);
            }
        }
        VerificationRequestState::Created { .. } => {}
        VerificationRequestState::Done => view.stage = VerificationStage::Done,
        VerificationRequestState::Cancelled(info) => view.stage = cancelled(info.reason()),
    }
    view
}

fn show(view: &mut VerificationView, sas: &SasVerification) {
    match sas.state() {
        SasState::Created { .. } | SasState::Started { .. } | SasState::Accepted { .. } => {}
        SasState::KeysExchanged { emojis, decimals } => {
            view.stage = VerificationStage::Compare;
            view.numbers = Some(decimals);
            if let Some(short) = emojis {
                let words = short.emojis.iter();
                view.emoji = words.map(|one| (one.symbol.to_owned(), one.description.to_owned())).collect();
            }
        }
        SasState::Confirmed => view.stage = VerificationStage::Confirmed,
        SasState::Done { .. } => view.stage = VerificationStage::Done,
        SasState::Cancelled(info) => view.stage = cancelled(info.reason()),
    }
}

/// Cuts the reason, which is the other side's text, to one short line.
fn cancelled(reason: &str) -> VerificationStage {
    VerificationStage::Cancelled(reason.chars().filter(|c| !c.is_control()).take(100).collect())
}
