//! Whose devices get the keys to what we write.

use matrix_sdk_base::crypto::{CollectStrategy, DecryptionSettings, TrustRequirement};
use talaria_platform::AuthorTrust;

/// The devices that can read us, for the client's `with_room_key_recipient_strategy`.
///
/// A device that is left out is told so by the SDK and its owner's client says why; the others in the room read on.
pub(crate) fn recipients(trust: AuthorTrust) -> CollectStrategy {
    match trust {
        // "Violated" is no policy; the least that a person can ask for is everybody.
        AuthorTrust::Violated | AuthorTrust::Network => CollectStrategy::AllDevices,
        // Devices that their owner signed. Needs our own device to be signed: until it is, sends fail with `Retry`.
        // It also stops sending altogether when somebody whom the operator verified has a new identity.
        AuthorTrust::CrossSigned => CollectStrategy::IdentityBasedStrategy,
        // Devices of people whom the operator verified. Unlike the variant that fails on a verified person's
        // unsigned device, this one leaves that device out and writes to the others.
        AuthorTrust::Verified => CollectStrategy::OnlyTrustedDevices,
    }
}

/// What may be decrypted, for the client's `with_decryption_settings`: everything. Who is *heard* is for the core to
/// decide, by [`Author::trust`](talaria_platform::EventAuthor::trust); an event that the SDK refuses to decrypt would look
/// like one whose keys are late, and nobody could be told that their device is not signed.
pub(crate) fn decryption() -> DecryptionSettings {
    DecryptionSettings { sender_device_trust_requirement: TrustRequirement::Untrusted }
}
