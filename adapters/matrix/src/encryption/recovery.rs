//! Keeps the account recoverable: its secrets are in its secret storage on the homeserver, under a key that a person
//! has.

use matrix_sdk::encryption::Encryption;
use matrix_sdk::encryption::recovery::RecoveryError;
use talaria_platform::config::Secret;

use super::setup::words;
use crate::login::OpenedAccount;

/// File with the recovery key, written once.
pub(crate) const KEY: &str = "recovery.key";

/// File that exists from before a key is made until the key is in its file. If it is found after a crash, nobody has
/// ever seen the key.
const ASKED: &str = "recovery.pending";

/// Whether a new device could continue with the secrets and backup on the homeserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStatus {
    /// Yes: secrets and backup are there.
    Yes,
    /// Yes, but nobody has taken the key out of the state folder yet.
    KeyInFile,
    /// No: we do not have all secrets of the identity, so we cannot store them there.
    SecretsElsewhere,
    /// No: there is a backup of room keys, and we do not have its key.
    ForeignBackup,
    /// No: room keys are not backed up.
    NoBackup,
}

impl RecoveryStatus {
    pub fn is_well(self) -> bool {
        match self {
            Self::Yes | Self::KeyInFile => true,
            Self::SecretsElsewhere | Self::ForeignBackup | Self::NoBackup => false,
        }
    }

    pub fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Yes => ("its keys are backed up", None),
            Self::KeyInFile => (
                "its keys are backed up",
                Some(
                    "move `recovery.key` from the account's folder to a safe place: with it a lost device is replaced",
                ),
            ),
            Self::SecretsElsewhere => (
                "a new device could not be signed by it",
                Some("set `recovery_key` (MATRIX_RECOVERY_KEY_FILE) and restart"),
            ),
            Self::ForeignBackup => (
                "its keys are not backed up, because the backup on the homeserver has another key",
                Some(
                    "set `recovery_key` to the account's present key and restart; if nobody has it, reset the key \
                     backup in another client of the account",
                ),
            ),
            Self::NoBackup => (
                "its keys are not backed up: somebody switched the backup off for this account",
                Some("switch the key backup on in another client of the account"),
            ),
        }
    }
}

/// Makes the account recoverable. Called when our device is signed. After an error another attempt is worthwhile.
pub(super) async fn keep_recoverable(
    opened: &OpenedAccount,
    given: Option<&Secret>,
) -> Result<RecoveryStatus, String> {
    let encryption = opened.client.encryption();
    if !encryption.cross_signing_status().await.is_some_and(|status| status.is_complete()) {
        return Ok(RecoveryStatus::SecretsElsewhere);
    }
    let is_enabled = encryption.secret_storage().is_enabled().await.map_err(words)?;
    if !is_enabled || unseen(opened)? {
        return make_key(opened, &encryption, is_enabled).await;
    }
    let found = look(opened).await?;
    if found != RecoveryStatus::NoBackup {
        return Ok(found);
    }
    // Without the recovery key we could not store the new backup's key where a new device finds it.
    let Some(key) = given else { return Ok(RecoveryStatus::NoBackup) };
    encryption.recovery().enable_backup().await.map_err(words)?;
    let storage = encryption.secret_storage().open_secret_store(key.expose().trim()).await.map_err(words)?;
    storage.export_secrets().await.map_err(words)?;
    Ok(RecoveryStatus::Yes)
}

/// Checks whether the account can be recovered as it is; changes nothing.
pub(super) async fn look(opened: &OpenedAccount) -> Result<RecoveryStatus, String> {
    let encryption = opened.client.encryption();
    let backups = encryption.backups();
    if !encryption.cross_signing_status().await.is_some_and(|status| status.is_complete()) {
        return Ok(RecoveryStatus::SecretsElsewhere);
    }
    if backups.are_enabled().await {
        let waiting = opened.folder.at(KEY).exists();
        return Ok(if waiting { RecoveryStatus::KeyInFile } else { RecoveryStatus::Yes });
    }
    match backups.fetch_exists_on_server().await.map_err(words)? {
        true => Ok(RecoveryStatus::ForeignBackup),
        false => Ok(RecoveryStatus::NoBackup),
    }
}

/// The recovery key in the file, if it is still there.
pub(super) fn kept(opened: &OpenedAccount) -> Result<Option<Secret>, String> {
    let content = opened.folder.read(KEY).map_err(words)?;
    Ok(content
        .and_then(|content| String::from_utf8(content).ok())
        .map(|key| Secret::from(key.trim().to_owned())))
}

/// Whether a key was made that nobody has seen, because the process ended before the key was in its file.
fn unseen(opened: &OpenedAccount) -> Result<bool, String> {
    if !opened.folder.at(ASKED).exists() {
        return Ok(false);
    }
    if opened.folder.at(KEY).exists() {
        opened.folder.remove(ASKED).map_err(words)?;
        return Ok(false);
    }
    Ok(true)
}

/// Makes a recovery key and writes it to the file.
async fn make_key(
    opened: &OpenedAccount,
    encryption: &Encryption,
    is_enabled: bool,
) -> Result<RecoveryStatus, String> {
    opened.folder.write(ASKED, b"").map_err(words)?;
    let recovery = encryption.recovery();
    // A secret storage whose key nobody has seen gets a new key; its contents come from our own store.
    let made = match is_enabled {
        true => recovery.reset_key().await,
        false => recovery.enable().await,
    };
    let key = match made {
        Ok(key) => key,
        Err(RecoveryError::BackupExistsOnServer) => {
            opened.folder.remove(ASKED).map_err(words)?;
            return Ok(RecoveryStatus::ForeignBackup);
        }
        Err(error) => return Err(words(error)),
    };
    opened.folder.write(KEY, format!("{key}\n").as_bytes()).map_err(words)?;
    opened.folder.remove(ASKED).map_err(words)?;
    let file = opened.folder.at(KEY);
    tracing::warn!(
        file = %file.display(),
        hint = "move it to a safe place; with it a new device goes on where a lost one ended",
        "the account's recovery key was written to a file"
    );
    Ok(RecoveryStatus::KeyInFile)
}
