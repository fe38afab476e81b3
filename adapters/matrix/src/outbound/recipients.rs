//! Decides whose devices get the keys of our messages.

use matrix_sdk_base::crypto::{CollectStrategy, DecryptionSettings, TrustRequirement};
use talaria_platform::AuthorTrust;

/// The devices that can read our messages, for the client's `with_room_key_recipient_strategy`.
///
/// The SDK tells a device that it was left out, and its owner's client says why; the others in the room can read.
pub(crate) fn recipients(trust: AuthorTrust) -> CollectStrategy {
    match trust {
        // "Violated" is no policy; the least that an operator can require is nothing.
        AuthorTrust::Violated | AuthorTrust::Network => CollectStrategy::AllDevices,
        // Devices that their owner signed. Needs our own device to be signed: until it is, sends fail with `Retry`.
        // It also stops sending altogether when a person whom the operator verified has a new identity.
        AuthorTrust::CrossSigned => CollectStrategy::IdentityBasedStrategy,
        // Devices of people whom the operator verified. Unlike the variant that fails on a verified person's unsigned
        // device, this one leaves that device out and sends to the others.
        AuthorTrust::Verified => CollectStrategy::OnlyTrustedDevices,
    }
}

/// Which events may be decrypted, for the client's `with_decryption_settings`: all. The core decides who is *obeyed*,
/// by [`EventAuthor::trust`](talaria_platform::EventAuthor::trust); an event that the SDK refuses to decrypt would
/// look like one whose keys are late, and we could tell nobody that their device is not signed.
pub(crate) fn decryption() -> DecryptionSettings {
    DecryptionSettings { sender_device_trust_requirement: TrustRequirement::Untrusted }
}
