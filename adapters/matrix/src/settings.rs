//! What an operator says about an account, resolved: the core has read and checked it.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use talaria_platform::{AuthorTrust, RateLimit, RoomId};

/// One account.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSettings {
    /// The homeserver's address, `https://…`; the one that is asked, not the name in user ids.
    pub homeserver: String,
    /// The account's full id, `@bot:example.org`. Needed to log in by password; checked otherwise.
    pub user: Option<String>,
    /// How to log in when there is no session yet.
    pub login: LoginMethod,
    /// What people see as the name of our device.
    pub device_name: String,
    /// Everything of this account on disk: the session, the device's store and its key. Made with mode 0700.
    pub folder: PathBuf,
    /// The key of the device's store, 32 bytes; `None` keeps one in the folder, made on the first start.
    pub store_key: Option<StoreKey>,
    /// Opens the account's secret storage, so that our device is signed by its owner's identity.
    pub recovery_key: Option<MatrixSecret>,
    /// How sure we must be of a device that gets our keys. Who is heard is decided by the core, by the same word.
    pub trust: AuthorTrust,
    /// Whether rooms without encryption are served.
    pub e2ee: EncryptionPolicy,
    /// In which rooms we feel addressed without being named; direct chats always.
    pub hearing: AddressedWhen,
    /// Rooms where that is different.
    pub rooms: HashMap<RoomId, AddressedWhen>,
    /// How long we wait for the key of a message that we cannot decrypt, before its author is asked to send it
    /// again: ten minutes, except in tests.
    pub unreadable_after: Duration,
    /// The shortest pause between two edits of one message.
    pub pause: Duration,
    /// The longest message in bytes of Markdown.
    pub max_text: usize,
    /// What the homeserver is believed to allow.
    pub rate: RateLimit,
}

/// How to log in when there is no session yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginMethod {
    /// With a password, which makes a device of our own.
    Password(MatrixSecret),
    /// With an access token that somebody made for us, and the device that belongs to it.
    Token(MatrixSecret),
    /// Not at all: an earlier login is still there.
    Stored,
}

/// Whether rooms without encryption are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncryptionPolicy {
    /// Only encrypted rooms; in others people are told why, and nothing else is ever said there.
    #[default]
    Required,
    /// Those that were never encrypted, too. A room that once was never gets plain text either way.
    Optional,
}

/// When we feel addressed in a room that is not a direct chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressedWhen {
    /// When we are named, replied to, or when it is said in a thread that we take part in.
    #[default]
    Mentioned,
    /// Always.
    Everything,
}

/// The 32 bytes that a device's store is encrypted with. `Debug` shows that there are some, nothing more.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreKey(pub [u8; 32]);

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(…)")
    }
}

/// A value that must not be seen. `Debug` shows that there is one, nothing more.
#[derive(Clone, PartialEq, Eq)]
pub struct MatrixSecret(String);

impl MatrixSecret {
    /// Takes a secret as it is.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the place that uses it, and for the log, which takes it out wherever it appears.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MatrixSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
