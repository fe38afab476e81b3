//! A verification as the operator sees it.

use matrix_sdk::encryption::verification::{
    SasState, SasVerification, Verification as Flow, VerificationRequest, VerificationRequestState,
};
use serde::{Deserialize, Serialize};

use super::requests::PendingRequest;

/// A verification as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationView {
    /// What it is called in commands.
    pub id: String,
    /// Who wants to be sure of us.
    pub user: String,
    /// With which of their devices, as far as it is known.
    pub device: Option<String>,
    /// It is another device of our own account.
    pub own: bool,
    /// How far it is.
    pub stage: VerificationStage,
    /// The pictures both sides compare, each with its name; empty until they are there.
    pub emoji: Vec<(String, String)>,
    /// The numbers that say the same, for clients that show no pictures.
    pub numbers: Option<(u16, u16, u16)>,
}

impl VerificationView {
    /// Whether somebody still has to do something.
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

/// How far a verification is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerificationStage {
    /// They wait for the operator to accept.
    Asked,
    /// Accepted; the other side has not gone on yet.
    Accepted,
    /// The pictures can be compared.
    Compare,
    /// We said that they match; the other side has not yet.
    Confirmed,
    /// Both did.
    Done,
    /// It was broken off, with the reason.
    Cancelled(String),
}

/// What the operator is shown of a request.
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

/// The reason is the other side's text: one short line of it.
fn cancelled(reason: &str) -> VerificationStage {
    VerificationStage::Cancelled(reason.chars().filter(|c| !c.is_control()).take(100).collect())
}
