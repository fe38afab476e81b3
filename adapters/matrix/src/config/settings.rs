//! Settings of an account: read from the configuration and checked.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use talaria_platform::config::Secret;
use talaria_platform::{AddressedWhen, AuthorTrust, RateLimit, RoomId};

/// Settings of one account.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSettings {
    /// The homeserver's address, `https://…`, to which requests go; not the name in user ids.
    pub homeserver: String,
    /// The account's full id, `@bot:example.org`. Required to log in by password; otherwise checked.
    pub user: Option<String>,
    /// Login method for when there is no session yet.
    pub login: LoginMethod,
    /// Name of our device that people see.
    pub device_name: String,
    /// Folder with all files of this account: the session, the device's store and its key. Made with mode 0700.
    pub folder: PathBuf,
    /// The key of the device's store, 32 bytes; `None` keeps one in the folder, made on the first start.
    pub store_key: Option<StoreKey>,
    /// Opens the account's secret storage, so that the account's identity can sign our device.
    pub recovery_key: Option<Secret>,
    /// Trust that a device needs to get our keys. The core uses the same setting to decide who is obeyed.
    pub trust: AuthorTrust,
    /// Whether rooms without encryption are served.
    pub e2ee: EncryptionPolicy,
    /// When a message in a room is meant for us. In a direct chat every message is.
    pub hearing: AddressedWhen,
    /// Rooms with a rule of their own.
    pub rooms: HashMap<RoomId, AddressedWhen>,
    /// Wait for the key of a message that we cannot decrypt, before its author is asked to send it again: ten minutes,
    /// except in tests.
    pub unreadable_after: Duration,
    /// The shortest pause between two edits of one message.
    pub pause: Duration,
    /// The longest message in bytes of Markdown.
    pub max_text: usize,
    /// Rate that the homeserver is believed to allow.
    pub rate: RateLimit,
}

/// A way to log in when there is no session yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginMethod {
    /// With a password, which makes a device of our own.
    Password(Secret),
    /// With an access token made for us, and its device.
    Token(Secret),
    /// Not at all: an earlier login is stored.
    Stored,
}

/// Whether rooms without encryption are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncryptionPolicy {
    /// Only encrypted rooms. In other rooms people are told why, and nothing else is ever sent there.
    #[default]
    Required,
    /// Also rooms that were never encrypted. A room that once was encrypted never gets plaintext in either case.
    Optional,
}

/// The 32 bytes that a device's store is encrypted with. `Debug` shows that there are some, nothing more.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreKey(pub [u8; 32]);

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(…)")
    }
}
