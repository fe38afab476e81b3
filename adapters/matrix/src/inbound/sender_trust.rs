//! Decides how far we trust that a message is from its sender.

use std::time::Duration;

use matrix_sdk::Room;
use matrix_sdk::deserialized_responses::{
    AlgorithmInfo, DeviceLinkProblem, EncryptionInfo, TimelineEvent, TimelineEventKind, VerificationLevel,
    VerificationState,
};
use matrix_sdk::ruma::{DeviceKeyAlgorithm, UserId};
use talaria_platform::{AuthorTrust, PlatformError};
use tokio::time::{Instant, timeout};

use super::wire::{MatrixEvent, MatrixEventKind};
use super::{SyncReader, store_failed};

/// Time limit for the request for a person's keys.
const KEYS: Duration = Duration::from_secs(10);

/// Facts about the sender of an event.
pub(super) struct SenderTrust {
    /// Whether the event came encrypted.
    pub secure: bool,
    pub trust: AuthorTrust,
    /// The device it was written on.
    pub device: Option<String>,
}

impl SyncReader<'_> {
    /// Facts about the sender. If the trust is less than the operator requires, the sender's keys may not have come
    /// yet: a message and the news about its device travel apart. Then we request the keys and check again.
    pub async fn proof(
        &self,
        room: &Room,
        event: &TimelineEvent,
        happening: &MatrixEvent,
    ) -> Result<SenderTrust, PlatformError> {
        let TimelineEventKind::Decrypted(decrypted) = &event.kind else {
            return Ok(SenderTrust { secure: false, trust: AuthorTrust::Network, device: None });
        };
        let (info, sender) = (&*decrypted.encryption_info, &*happening.sender);
        let proof = look(info, sender);
        let counts = matches!(happening.what, MatrixEventKind::Said(_) | MatrixEventKind::Edited { .. });
        let Some(session) = info.session_id().filter(|_| counts) else { return Ok(proof) };
        if proof.trust == AuthorTrust::Violated || self.has_new_identity(sender).await? {
            return Ok(SenderTrust { trust: AuthorTrust::Violated, ..proof });
        }
        if proof.trust >= self.account.settings.trust {
            return Ok(proof);
        }
        // Our own store comes first: that costs the homeserver nothing, and people use a session for long.
        let proof = self.look_closely(info, sender).await?;
        if proof.trust >= self.account.settings.trust {
            return Ok(proof);
        }
        if self.lookup.may_ask_for_keys_of(sender) {
            let (encryption, began) = (self.account.client.encryption(), Instant::now());
            match timeout(KEYS, encryption.request_user_identity(sender)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%sender, %error, "a person's keys could not be requested"),
                Err(_) => tracing::debug!(%sender, "the request for a person's keys timed out"),
            }
            self.lookup.took(began.elapsed());
        }
        let Some(info) = room.get_encryption_info(session, sender).await else { return Ok(proof) };
        self.look_closely(&info, sender).await
    }

    /// Facts about the sender, also those that are newer than the session.
    async fn look_closely(
        &self,
        info: &EncryptionInfo,
        sender: &UserId,
    ) -> Result<SenderTrust, PlatformError> {
        let proof = look(info, sender);
        if proof.trust == AuthorTrust::CrossSigned && self.is_verified_by_now(info).await? {
            return Ok(SenderTrust { trust: AuthorTrust::Verified, ..proof });
        }
        Ok(proof)
    }

    /// Whether the operator has verified the sender after this session began. For a session on a signed device the
    /// SDK keeps the state of that time, and people go on with the session that they have; so the device itself is
    /// checked. It must be the one that made the session, by its keys, and nobody may have forwarded the session.
    async fn is_verified_by_now(&self, info: &EncryptionInfo) -> Result<bool, PlatformError> {
        let (Some(id), None) = (&info.sender_device, &info.forwarder) else { return Ok(false) };
        let device = self.account.client.encryption().get_device(&info.sender, id).await;
        let Some(device) = device.map_err(store_failed)? else { return Ok(false) };
        let exchange = device.curve25519_key().map(|key| key.to_base64());
        let signing = device.ed25519_key().map(|key| key.to_base64());
        Ok(device.is_verified_with_cross_signing()
            && is_made_with(info, exchange.as_deref(), signing.as_deref()))
    }

    /// Whether a person whom the operator verified has another identity now. For an older session the SDK keeps the
    /// state of that time; but we can send nothing to this person until they are verified again, so we may do nothing
    /// for them either. If the lookup fails, nobody is blamed: the whole batch is read again.
    async fn has_new_identity(&self, sender: &UserId) -> Result<bool, PlatformError> {
        let identity = self.account.client.encryption().get_user_identity(sender).await;
        Ok(identity.map_err(store_failed)?.is_some_and(|identity| identity.has_verification_violation()))
    }
}

/// Takes the SDK's trust, unless the event names another sender than the session does.
fn look(info: &EncryptionInfo, sender: &UserId) -> SenderTrust {
    let trust =
        if info.sender == sender { trust_in(&info.verification_state) } else { AuthorTrust::Violated };
    SenderTrust { secure: true, trust, device: info.sender_device.as_ref().map(ToString::to_string) }
}

/// Whether a session was made with these keys of a device.
fn is_made_with(info: &EncryptionInfo, exchange: Option<&str>, signing: Option<&str>) -> bool {
    let AlgorithmInfo::MegolmV1AesSha2 { curve25519_key, sender_claimed_keys, .. } = &info.algorithm_info
    else {
        return false;
    };
    let claimed = sender_claimed_keys.get(&DeviceKeyAlgorithm::Ed25519);
    exchange == Some(curve25519_key) && signing.is_some() && signing == claimed.map(String::as_str)
}

/// Maps the SDK's verification state to the core's trust.
fn trust_in(state: &VerificationState) -> AuthorTrust {
    match state {
        VerificationState::Verified => AuthorTrust::Verified,
        VerificationState::Unverified(level) => match level {
            // Nobody verified the person, but the device is signed by the identity that the homeserver says is
            // theirs.
            VerificationLevel::UnverifiedIdentity => AuthorTrust::CrossSigned,
            // Only the homeserver says whose device it is.
            VerificationLevel::UnsignedDevice
            | VerificationLevel::None(DeviceLinkProblem::MissingDevice | DeviceLinkProblem::InsecureSource) => {
                AuthorTrust::Network
            }
            // A verified person suddenly has other keys, or the keys belong to another person.
            VerificationLevel::VerificationViolation | VerificationLevel::MismatchedSender => {
                AuthorTrust::Violated
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::owned_user_id;

    use super::*;

    #[test]
    fn contradictions_count_against_the_sender_and_the_unknown_for_nothing() {
        use DeviceLinkProblem::{InsecureSource, MissingDevice};
        use VerificationLevel as Level;
        let table = [
            (VerificationState::Verified, AuthorTrust::Verified),
            (VerificationState::Unverified(Level::UnverifiedIdentity), AuthorTrust::CrossSigned),
            (VerificationState::Unverified(Level::UnsignedDevice), AuthorTrust::Network),
            (VerificationState::Unverified(Level::None(MissingDevice)), AuthorTrust::Network),
            (VerificationState::Unverified(Level::None(InsecureSource)), AuthorTrust::Network),
            (VerificationState::Unverified(Level::VerificationViolation), AuthorTrust::Violated),
            (VerificationState::Unverified(Level::MismatchedSender), AuthorTrust::Violated),
        ];
        for (state, trust) in table {
            assert_eq!(trust_in(&state), trust, "{state:?}");
        }
    }

    #[test]
    fn a_session_belongs_to_the_device_with_both_of_its_keys() {
        let info = |claimed: &[(DeviceKeyAlgorithm, &str)]| EncryptionInfo {
            sender: owned_user_id!("@ann:example.org"),
            sender_device: Some("PHONE".into()),
            forwarder: None,
            algorithm_info: AlgorithmInfo::MegolmV1AesSha2 {
                curve25519_key: "exchange".to_owned(),
                sender_claimed_keys: claimed
                    .iter()
                    .map(|(kind, key)| (kind.clone(), (*key).to_owned()))
                    .collect(),
                session_id: Some("session".to_owned()),
            },
            verification_state: VerificationState::Unverified(VerificationLevel::UnverifiedIdentity),
        };
        let signed = info(&[(DeviceKeyAlgorithm::Ed25519, "signing")]);
        assert!(is_made_with(&signed, Some("exchange"), Some("signing")));
        assert!(!is_made_with(&signed, Some("another"), Some("signing")));
        assert!(!is_made_with(&signed, Some("exchange"), Some("another")));
        assert!(
            !is_made_with(&signed, None, Some("signing")) && !is_made_with(&signed, Some("exchange"), None)
        );
        assert!(!is_made_with(&info(&[]), Some("exchange"), None));
    }
}
