//! One attempt to set up our device: signed by the account's identity, its keys backed up.

use matrix_sdk::encryption::Encryption;
use matrix_sdk::encryption::recovery::RecoveryError;
use matrix_sdk::encryption::secret_storage::SecretStorageError;
use matrix_sdk::ruma::api::client::uiaa::{AuthData, MatrixUserIdentifier, Password, UserIdentifier};
use talaria_platform::config::Secret;

use super::recovery::{self, RecoveryStatus};
use crate::config::{LoginMethod, MatrixSettings};
use crate::login::OpenedAccount;

/// State of our device's set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSetup {
    /// Not tried yet: the first sync has not come.
    NotYet,
    /// The last attempt failed; another follows.
    Trying {
        /// Why the last attempt failed.
        why: String,
    },
    /// The account's identity has signed our device.
    Signed(RecoveryStatus),
    /// The identity has not signed our device, and only a person can change that.
    Unsigned(MissingSetup),
}

/// The thing that a person has to provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingSetup {
    /// A recovery key: the account has an identity, and we cannot sign with it.
    RecoveryKey,
    /// Another recovery key: the given one does not open the account's secret storage.
    RightRecoveryKey,
    /// The password: the homeserver wants it before the account gets an identity.
    Password,
}

impl DeviceSetup {
    /// Whether others can see that our device belongs to the account.
    pub fn is_signed(&self) -> bool {
        match self {
            Self::Signed(_) => true,
            Self::NotYet | Self::Trying { .. } | Self::Unsigned(_) => false,
        }
    }

    /// The state in words, and a hint for the operator.
    pub fn words(&self) -> (String, Option<&'static str>) {
        match self {
            Self::NotYet => ("is set up after the first sync".to_owned(), None),
            Self::Trying { why } => (
                format!("is not set up yet: {why}"),
                Some("it is tried again; see whether the homeserver runs"),
            ),
            Self::Signed(recoverable) => {
                let (words, hint) = recoverable.words();
                (format!("is signed by the account's identity; {words}"), hint)
            }
            Self::Unsigned(want) => {
                let (words, hint) = want.words();
                (format!("is not signed by the account's identity: {words}"), Some(hint))
            }
        }
    }

    /// Writes the state to the log, for the operator.
    pub fn tell(&self) {
        let (words, hint) = self.words();
        match self {
            Self::Signed(recoverable) if recoverable.is_well() => {
                tracing::info!(hint, "our Matrix device {words}");
            }
            Self::Signed(_) | Self::NotYet | Self::Trying { .. } => {
                tracing::warn!(hint, "our Matrix device {words}");
            }
            Self::Unsigned(_) => tracing::error!(hint, "our Matrix device {words}"),
        }
    }
}

impl MissingSetup {
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::RecoveryKey => (
                "the account has one, and no recovery key is set",
                "set `recovery_key` (MATRIX_RECOVERY_KEY_FILE) and restart; or verify this device from another client of \
                 the same account, with `talaria matrix verify`. Until then people who want signed devices cannot \
                 talk to it",
            ),
            Self::RightRecoveryKey => (
                "the recovery key that is set is not the account's",
                "set `recovery_key` to the account's present key and restart: it is what the account's other client \
                 showed when recovery was set up, or `recovery.key` of an earlier start of talaria",
            ),
            Self::Password => (
                "the homeserver asks for the account's password to make one",
                "set the account's password for one start; or set up recovery for this account in another client, \
                 and set `recovery_key`",
            ),
        }
    }
}

/// Sets up the device. After an error another attempt is worthwhile.
pub(crate) async fn set_up(opened: &OpenedAccount, settings: &MatrixSettings) -> Result<DeviceSetup, String> {
    let encryption = opened.client.encryption();
    encryption.wait_for_e2ee_initialization_tasks().await;
    // Asks the homeserver: the identity in the store may be a day old.
    let identity = encryption.request_user_identity(&opened.own).await.map_err(words)?;
    if identity.is_none()
        && let Some(want) = make_identity(&encryption, opened, settings).await?
    {
        return Ok(DeviceSetup::Unsigned(want));
    }
    // A recovery key that an earlier device left in this folder is as good as a configured one.
    let kept = recovery::kept(opened)?;
    let given = settings.recovery_key.as_ref().or(kept.as_ref());
    if identity.is_some()
        && let Some(key) = given
        && !is_whole(&encryption).await?
        && !recover(&encryption, key).await?
    {
        return Ok(DeviceSetup::Unsigned(MissingSetup::RightRecoveryKey));
    }
    if !is_signed(&encryption).await? {
        sign(&encryption).await?;
    }
    if !is_signed(&encryption).await? {
        return Ok(DeviceSetup::Unsigned(MissingSetup::RecoveryKey));
    }
    recovery::keep_recoverable(opened, given).await.map(DeviceSetup::Signed)
}

/// Checks the device's state; changes nothing.
pub(crate) async fn look(opened: &OpenedAccount) -> Result<DeviceSetup, String> {
    let encryption = opened.client.encryption();
    encryption.wait_for_e2ee_initialization_tasks().await;
    let identity = encryption.request_user_identity(&opened.own).await.map_err(words)?;
    if identity.is_none() {
        return Ok(DeviceSetup::NotYet);
    }
    if !is_signed(&encryption).await? {
        return Ok(DeviceSetup::Unsigned(MissingSetup::RecoveryKey));
    }
    recovery::look(opened).await.map(DeviceSetup::Signed)
}

/// Gives the account an identity. An attempt that a crash interrupted is in the store and continues.
async fn make_identity(
    encryption: &Encryption,
    opened: &OpenedAccount,
    settings: &MatrixSettings,
) -> Result<Option<MissingSetup>, String> {
    let Err(error) = encryption.bootstrap_cross_signing(None).await else {
        return fresh(encryption, opened).await.map(|()| None);
    };
    let Some(asked) = error.as_uiaa_response() else { return Err(words(error)) };
    let LoginMethod::Password(password) = &settings.login else { return Ok(Some(MissingSetup::Password)) };
    let user = UserIdentifier::Matrix(MatrixUserIdentifier::new(opened.own.to_string()));
    let mut auth = Password::new(user, password.expose().to_owned());
    auth.session = asked.session.clone();
    match encryption.bootstrap_cross_signing(Some(AuthData::Password(auth))).await {
        Ok(()) => fresh(encryption, opened).await.map(|()| None),
        Err(error) if error.as_uiaa_response().is_some() => Ok(Some(MissingSetup::Password)),
        Err(error) => Err(words(error)),
    }
}

/// Updates the store with the identity that the homeserver has now.
async fn fresh(encryption: &Encryption, opened: &OpenedAccount) -> Result<(), String> {
    encryption.request_user_identity(&opened.own).await.map(|_| ()).map_err(words)
}

/// Whether a recovery key could add nothing: we have all secrets, the signature and the backup.
async fn is_whole(encryption: &Encryption) -> Result<bool, String> {
    let secrets = encryption.cross_signing_status().await.is_some_and(|status| status.is_complete());
    if !secrets || !is_signed(encryption).await? {
        return Ok(false);
    }
    let backups = encryption.backups();
    Ok(backups.are_enabled().await || !backups.fetch_exists_on_server().await.map_err(words)?)
}

/// Reads the account's secrets from its secret storage, and signs our device with them. Returns `false` for a wrong
/// key.
async fn recover(encryption: &Encryption, key: &Secret) -> Result<bool, String> {
    let Err(error) = encryption.recovery().recover(key.expose().trim()).await else { return Ok(true) };
    match error {
        RecoveryError::SecretStorage(
            SecretStorageError::SecretStorageKey(_)
            | SecretStorageError::Decryption(_)
            | SecretStorageError::MissingKeyInfo { .. },
        ) => Ok(false),
        // We have the identity then; `keep_recoverable` reports on the backup later.
        RecoveryError::SecretStorage(
            SecretStorageError::InconsistentBackupDecryptionKey
            | SecretStorageError::MissingOrInvalidBackupDecryptionKey,
        ) => Ok(true),
        error => Err(error.to_string()),
    }
}

async fn is_signed(encryption: &Encryption) -> Result<bool, String> {
    let device = encryption.get_own_device().await.map_err(words)?;
    Ok(device.is_some_and(|device| device.is_cross_signed_by_owner()))
}

/// Signs our device if we have the key for it: a crash may have come between the identity and the signature.
async fn sign(encryption: &Encryption) -> Result<(), String> {
    let able = encryption.cross_signing_status().await.is_some_and(|status| status.has_self_signing);
    let device = encryption.get_own_device().await.map_err(words)?;
    let (true, Some(device)) = (able, device) else { return Ok(()) };
    device.verify().await.map_err(words)?;
    encryption.request_user_identity(device.user_id()).await.map_err(words)?;
    Ok(())
}

/// The text of an error; none of these errors contains a secret.
pub(super) fn words(error: impl std::error::Error) -> String {
    error.to_string()
}
