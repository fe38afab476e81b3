//! The account can be recovered: its secrets are in its storage on the homeserver, under a key that a person has.

use matrix_sdk::encryption::Encryption;
use matrix_sdk::encryption::recovery::RecoveryError;

use super::setup::words;
use crate::login::OpenedAccount;
use crate::settings::MatrixSecret;

/// Where the recovery key is put, once.
pub(crate) const KEY: &str = "recovery.key";

/// A key was asked for and is not in the file yet. Found after a crash, it means that nobody has ever seen the key.
const ASKED: &str = "recovery.pending";

/// Whether what is on the homeserver is enough for a new device to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStatus {
    /// Everything is there.
    Yes,
    /// Everything is there, and nobody has taken the key away from beside the store yet.
    KeyInFile,
    /// The secrets of the identity are not all with us, so we cannot put them there.
    SecretsElsewhere,
    /// There is a backup of room keys that we have no key to.
    ForeignBackup,
    /// Room keys are not backed up.
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

/// Sees to it that the account can be recovered. Our device is signed. An error is worth another try.
pub(super) async fn keep_recoverable(
    opened: &OpenedAccount,
    given: Option<&MatrixSecret>,
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
    // Without the recovery key, the new backup's key could not be put where a new device finds it.
    let Some(key) = given else { return Ok(RecoveryStatus::NoBackup) };
    encryption.recovery().enable_backup().await.map_err(words)?;
    let storage = encryption.secret_storage().open_secret_store(key.expose().trim()).await.map_err(words)?;
    storage.export_secrets().await.map_err(words)?;
    Ok(RecoveryStatus::Yes)
}

/// Whether the account can be recovered as it is.
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

/// The key in the file, if it is still there.
pub(super) fn kept(opened: &OpenedAccount) -> Result<Option<MatrixSecret>, String> {
    let content = opened.folder.read(KEY).map_err(words)?;
    Ok(content.and_then(|content| String::from_utf8(content).ok()).map(|key| MatrixSecret::new(key.trim())))
}

/// Whether a key was made that nobody has seen, because we ended before it was in the file.
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

/// Has a recovery key made and puts it in the file.
async fn make_key(
    opened: &OpenedAccount,
    encryption: &Encryption,
    is_enabled: bool,
) -> Result<RecoveryStatus, String> {
    opened.folder.write(ASKED, b"").map_err(words)?;
    let recovery = encryption.recovery();
    // A storage whose key nobody has seen gets a new key; what is in it comes from our own store.
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
