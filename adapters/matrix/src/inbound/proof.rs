//! How sure we are of who wrote a message.

use std::time::Duration;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{
    DeviceLinkProblem, EncryptionInfo, TimelineEvent, TimelineEventKind, VerificationLevel, VerificationState,
};
use matrix_sdk::ruma::UserId;
use talaria_platform::{Error, Trust};
use tokio::time::timeout;

use super::wire::{Happening, What};
use super::{Reader, store_failed};

/// How long the homeserver may take to tell somebody's keys.
const KEYS: Duration = Duration::from_secs(10);

/// What is known about the sender of an event.
pub(super) struct Proof {
    /// Whether it came encrypted.
    pub secure: bool,
    pub trust: Trust,
    /// The device it was written on.
    pub device: Option<String>,
}

impl Reader<'_> {
    /// What is known about the sender. If that is less than the operator wants, the sender's keys may just not have
    /// come yet: a message and the news of who wrote it travel apart, so we ask, and look again.
    pub async fn proof(
        &self,
        room: &Room,
        event: &TimelineEvent,
        happening: &Happening,
    ) -> Result<Proof, Error> {
        let TimelineEventKind::Decrypted(decrypted) = &event.kind else {
            return Ok(Proof { secure: false, trust: Trust::Network, device: None });
        };
        let (info, sender) = (&*decrypted.encryption_info, &*happening.sender);
        let proof = look(info, sender);
        let counts = matches!(happening.what, What::Said(_) | What::Edited { .. });
        let Some(session) = info.session_id().filter(|_| counts) else { return Ok(proof) };
        if proof.trust == Trust::Violated || self.has_new_identity(sender).await? {
            return Ok(Proof { trust: Trust::Violated, ..proof });
        }
        if proof.trust >= self.account.settings.trust {
            return Ok(proof);
        }
        if self.lookup.may_ask_for_keys_of(sender) {
            let encryption = self.account.client.encryption();
            match timeout(KEYS, encryption.request_user_identity(sender)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%sender, %error, "the keys of a person are not told"),
                Err(_) => tracing::debug!(%sender, "the keys of a person are not told in time"),
            }
        }
        Ok(room.get_encryption_info(session, sender).await.map_or(proof, |info| look(&info, sender)))
    }

    /// Whether somebody whom the operator verified has another identity now. Of a session that is older than that the
    /// SDK says what it knew then; but nothing can be sent to them until they are verified again, so nothing may be
    /// done for them either. If it cannot be looked up nobody is blamed: all of it is read again.
    async fn has_new_identity(&self, sender: &UserId) -> Result<bool, Error> {
        let identity = self.account.client.encryption().get_user_identity(sender).await;
        Ok(identity.map_err(store_failed)?.is_some_and(|identity| identity.has_verification_violation()))
    }
}

/// The SDK says so itself where it knows; whoever is named twice must be named the same.
fn look(info: &EncryptionInfo, sender: &UserId) -> Proof {
    let trust = if info.sender == sender { trust_in(&info.verification_state) } else { Trust::Violated };
    Proof { secure: true, trust, device: info.sender_device.as_ref().map(ToString::to_string) }
}

/// What the SDK found out about a sender's keys, in the core's words.
fn trust_in(state: &VerificationState) -> Trust {
    match state {
        VerificationState::Verified => Trust::Verified,
        VerificationState::Unverified(level) => match level {
            // Nobody verified the person, but the device is signed by the identity that the homeserver says is theirs.
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
            assert_eq!(trust_in(&state), trust, "{state:?}");
        }
    }
}
