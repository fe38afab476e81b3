//! How sure we are of who wrote a message.

use matrix_sdk::deserialized_responses::{DeviceLinkProblem, VerificationLevel, VerificationState};
use talaria_platform::Trust;

/// What the SDK found out about a sender's keys, in the core's words.
pub(super) fn of(state: &VerificationState) -> Trust {
    match state {
        VerificationState::Verified => Trust::Verified,
        VerificationState::Unverified(level) => match level {
            // Nobody verified the person, but the device is signed by an identity that we have pinned.
            VerificationLevel::UnverifiedIdentity => Trust::CrossSigned,
            // Whose the device is, only the homeserver says.
            VerificationLevel::UnsignedDevice
            | VerificationLevel::None(DeviceLinkProblem::MissingDevice | DeviceLinkProblem::InsecureSource) => {
                Trust::Network
            }
            // A verified person has other keys all of a sudden, or the keys are somebody else's.
            VerificationLevel::VerificationViolation | VerificationLevel::MismatchedSender => Trust::Violated,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_count_against_the_sender_and_the_unknown_for_nothing() {
        use DeviceLinkProblem::{InsecureSource, MissingDevice};
        use VerificationLevel as Level;
        let table = [
            (VerificationState::Verified, Trust::Verified),
            (VerificationState::Unverified(Level::UnverifiedIdentity), Trust::CrossSigned),
            (VerificationState::Unverified(Level::UnsignedDevice), Trust::Network),
            (VerificationState::Unverified(Level::None(MissingDevice)), Trust::Network),
            (VerificationState::Unverified(Level::None(InsecureSource)), Trust::Network),
            (VerificationState::Unverified(Level::VerificationViolation), Trust::Violated),
            (VerificationState::Unverified(Level::MismatchedSender), Trust::Violated),
        ];
        for (state, trust) in table {
            assert_eq!(of(&state), trust, "{state:?}");
        }
    }
}
