//! The stored login: user, device, tokens, and the folder of the store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use matrix_sdk::authentication::matrix::MatrixSession;
use matrix_sdk::ruma::{OwnedDeviceId, OwnedUserId};
use matrix_sdk::{SessionMeta, SessionTokens};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use talaria_platform::PlatformError;

use super::folder::{self, AccountFolder};
use crate::operator_error::fatal;

/// Name of the session's file in the folder.
pub(super) const NAME: &str = "session.json";

/// File of a login in progress, so that a crash leaves neither a second device nor a folder behind.
pub(super) const PENDING: &str = "login.pending.json";

/// A session as it is stored. Contains tokens, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    /// The account's user id.
    pub user: OwnedUserId,
    /// Our device.
    pub device: OwnedDeviceId,
    /// Authorizes requests.
    pub access_token: String,
    /// Fetches the next access token, if the homeserver's tokens expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Name of the store's folder. Each device has one of its own, so that two never mix.
    pub store: String,
    /// The device's public signing key: if the store has another one, it is not this device's store.
    pub fingerprint: String,
    /// Number of times that the store was opened; the store has it too. A smaller number there means an old copy.
    #[serde(default)]
    pub opened: u64,
}

/// A login in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingLogin {
    /// The device id that we ask for. Repeated after a crash, the login gives the same device instead of one more.
    pub device: OwnedDeviceId,
    /// Folder of the store that is made for it.
    pub store: String,
}

impl StoredSession {
    /// The session in the SDK's type.
    pub fn for_sdk(&self) -> MatrixSession {
        MatrixSession {
            meta: SessionMeta { user_id: self.user.clone(), device_id: self.device.clone() },
            tokens: SessionTokens {
                access_token: self.access_token.clone(),
                refresh_token: self.refresh_token.clone(),
            },
        }
    }

    /// Reads the session in a folder. Needs no lock.
    pub fn load(path: &Path) -> Result<Option<Self>, PlatformError> {
        let bad = |why: String| {
            fatal(
                format!("the session {} cannot be read: {why}", path.join(NAME).display()),
                "put the file back from a backup; if it is lost, remove the device on the homeserver, move the \
                 folder away and log in again with the recovery key",
            )
        };
        let content = folder::read(path, NAME).map_err(|error| bad(error.to_string()))?;
        // The parser's message may quote its input, and that contains a token.
        let parse = |content: Vec<u8>| {
            serde_json::from_slice(&content)
                .map_err(|error| bad(format!("it is damaged in line {}", error.line())))
        };
        content.map(parse).transpose()
    }

    /// Writes the session to its file.
    pub fn save(&self, folder: &AccountFolder) -> io::Result<()> {
        folder.write(NAME, &serde_json::to_vec_pretty(self)?)
    }
}

/// The session of an open account: written again whenever its tokens change.
pub(crate) struct SessionFile {
    folder: Arc<AccountFolder>,
    session: Mutex<(StoredSession, SaveState)>,
}

/// Whether the file has the current tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SaveState {
    Yes,
    /// Writing failed. It is tried again from time to time: with older tokens the next start may fail.
    No,
}

impl SessionFile {
    /// Starts with a session that the file already has.
    pub fn new(folder: Arc<AccountFolder>, session: StoredSession) -> Self {
        Self { folder, session: Mutex::new((session, SaveState::Yes)) }
    }

    /// The current session.
    pub fn now(&self) -> StoredSession {
        self.session.lock().0.clone()
    }

    /// Writes the session of a new device to its file: from now on it counts.
    pub fn confirm(&self, fingerprint: String) -> io::Result<()> {
        let mut session = self.session.lock();
        session.0.fingerprint = fingerprint;
        session.0.save(&self.folder)
    }

    /// Stores new tokens from the homeserver.
    pub fn renew(&self, tokens: SessionTokens) {
        let mut session = self.session.lock();
        session.0.access_token = tokens.access_token;
        session.0.refresh_token = tokens.refresh_token;
        session.1 = SaveState::No;
        self.write(&mut session);
    }

    /// Writes tokens that could not be written before.
    pub fn settle(&self) {
        let mut session = self.session.lock();
        if session.1 == SaveState::No {
            self.write(&mut session);
        }
    }

    fn write(&self, session: &mut (StoredSession, SaveState)) {
        match session.0.save(&self.folder) {
            Ok(()) => session.1 = SaveState::Yes,
            Err(error) => tracing::error!(
                %error,
                hint = "make room on the disk; if talaria ends before, the account may have to be logged in again",
                "the new Matrix session cannot be kept"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::{device_id, user_id};
    use talaria_platform::PlatformErrorKind;

    use super::*;

    fn session() -> StoredSession {
        StoredSession {
            user: user_id!("@bot:example.org").to_owned(),
            device: device_id!("ABCDEFGHIJ").to_owned(),
            access_token: "secret-token".to_owned(),
            refresh_token: Some("secret-refresh".to_owned()),
            store: "device-A".to_owned(),
            fingerprint: "f".to_owned(),
            opened: 3,
        }
    }

    #[tokio::test]
    async fn a_session_is_kept_and_its_new_tokens_too() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(AccountFolder::take(dir.path()).await.unwrap());
        assert!(StoredSession::load(dir.path()).unwrap().is_none());

        session().save(&folder).unwrap();
        assert!(StoredSession::load(dir.path()).unwrap() == Some(session()));

        let kept = SessionFile::new(folder, session());
        kept.renew(SessionTokens { access_token: "next".to_owned(), refresh_token: None });
        let loaded = StoredSession::load(dir.path()).unwrap().unwrap();
        assert_eq!((loaded.access_token.as_str(), loaded.refresh_token), ("next", None));
        assert_eq!(loaded.opened, 3);
    }

    #[tokio::test]
    async fn a_damaged_session_is_refused_without_showing_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AccountFolder::take(dir.path()).await.unwrap();
        folder.write(NAME, br#"{"user": "secret-token", "device": 1}"#).unwrap();
        let error = StoredSession::load(dir.path()).err().unwrap();
        assert_eq!(error.kind(), PlatformErrorKind::Fatal);
        let words = std::error::Error::source(&error).unwrap().to_string();
        assert!(words.contains("damaged in line 1") && !words.contains("secret"), "{words}");
    }
}
