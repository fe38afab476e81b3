//! The operator's view of an account, whether the gateway runs or not.
//!
//! While the gateway runs, the account is open and its commands come here through [`Matrix`](crate::Matrix). When
//! nothing runs, the functions of this file open the account themselves, with the same lock.

pub(crate) mod commands;
mod doctor;
mod render;
pub(crate) mod requests;
mod verify_prompt;

use matrix_sdk::config::SyncSettings;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use talaria_platform::OperatorError;

use crate::config::MatrixSettings;
use crate::encryption::{self, DeviceSetup, RECOVERY_KEY};
use crate::error::from_sdk;
use crate::login::{self, OpenedAccount};
use crate::operator_error::in_words;

pub(crate) use doctor::{DoctorReport, RATE_LIMITS};

/// Time limit for the first sync of a new device.
const FIRST_SYNC: Duration = Duration::from_secs(120);

/// An account as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountStatus {
    /// Its full id.
    pub user: String,
    /// Id of our device.
    pub device: String,
    /// The device's public key, in groups of four, as clients show it.
    pub fingerprint: String,
    /// Address of the homeserver.
    pub homeserver: String,
    /// Whether others can see that the device belongs to the account.
    pub signed: bool,
    /// State of the device's set-up, in words.
    pub says: String,
    /// The next step, if the device is not signed.
    pub hint: Option<String>,
    /// Whether room keys are backed up.
    pub backup: bool,
    /// File with the recovery key, until a person takes it away from there.
    pub recovery_key: Option<String>,
    /// Number of rooms that it is in.
    pub rooms: usize,
    /// Number of encrypted rooms among them.
    pub encrypted: usize,
    /// Number of verifications that wait for the operator.
    pub verifications: usize,
}

/// Logs in, unless that was done, and sets the device up: everything but reading.
pub async fn log_in(settings: &MatrixSettings) -> Result<AccountStatus, OperatorError> {
    let opened = login::open(settings).await.map_err(in_words)?;
    let token = opened.session.now().access_token;
    let shown = opened.http.device_key(&token, &opened.own, &opened.device).await;
    if shown.map_err(|failure| in_words(failure.into_error("looking for our device")))?.is_none() {
        // Shows the device's keys to the homeserver. The gateway itself begins with a first sync of its own.
        let sync = opened.client.sync_once(SyncSettings::new().timeout(Duration::ZERO));
        match tokio::time::timeout(FIRST_SYNC, Box::pin(sync)).await {
            Ok(synced) => synced.map(|_| ()).map_err(|error| in_words(from_sdk(error)))?,
            Err(_) => {
                return Err(OperatorError {
                    message: "the homeserver did not give the account's rooms in time".to_owned(),
                    hint: "try again".to_owned(),
                });
            }
        }
    }
    set_up(&opened, settings).await?;
    Ok(status_of(&opened).await)
}

/// Facts about an account that no gateway has open.
pub async fn status(settings: &MatrixSettings) -> Result<AccountStatus, OperatorError> {
    let opened = open_old(settings).await?;
    look(&opened).await;
    Ok(status_of(&opened).await)
}

/// Checks an account that no gateway has open.
pub async fn doctor(settings: &MatrixSettings) -> Result<DoctorReport, OperatorError> {
    let opened = open_old(settings).await?;
    look(&opened).await;
    Ok(health_of(&opened, settings).await)
}

/// Ends the device: on the homeserver, and everything of it on this disk but the recovery key. `Err` leaves both as
/// they are. With `here_only` the homeserver is not told, for when it is gone or no longer ours.
pub async fn log_out(settings: &MatrixSettings, here_only: bool) -> Result<(), OperatorError> {
    login::log_out(settings, here_only).await.map_err(in_words)
}

/// Opens an account that was logged in before: looking at it must not make a device.
async fn open_old(settings: &MatrixSettings) -> Result<OpenedAccount, OperatorError> {
    if login::session::StoredSession::load(&settings.folder).map_err(in_words)?.is_none() {
        return Err(OperatorError {
            message: "this account is not logged in".to_owned(),
            hint: "`talaria matrix login` does that, or the first start of the gateway".to_owned(),
        });
    }
    login::open(settings).await.map_err(in_words)
}

async fn set_up(opened: &OpenedAccount, settings: &MatrixSettings) -> Result<(), OperatorError> {
    match encryption::set_up(opened, settings).await {
        Ok(setup) => {
            opened.setup.send_replace(setup);
            Ok(())
        }
        Err(why) => Err(OperatorError {
            message: format!("logged in, but the device could not be set up: {why}"),
            hint: "run `talaria matrix login` again".to_owned(),
        }),
    }
}

/// Finds out how far the device's set-up is, without changing anything.
async fn look(opened: &OpenedAccount) {
    let setup = encryption::look(opened).await.unwrap_or_else(|why| DeviceSetup::Trying { why });
    opened.setup.send_replace(setup);
}

/// Facts about an open account.
pub(crate) async fn status_of(opened: &OpenedAccount) -> AccountStatus {
    let encryption = opened.client.encryption();
    let setup = opened.setup.borrow().clone();
    let (says, hint) = setup.words();
    let rooms = opened.client.joined_rooms();
    let encrypted = rooms.iter().filter(|room| room.encryption_state().is_encrypted()).count();
    let key = opened.folder.at(RECOVERY_KEY);
    AccountStatus {
        user: opened.own.to_string(),
        device: opened.device.to_string(),
        fingerprint: grouped(&encryption.ed25519_key().await.unwrap_or_default()),
        homeserver: opened.http.base().to_string(),
        signed: setup.is_signed(),
        says,
        hint: hint.map(str::to_owned),
        backup: encryption.backups().are_enabled().await,
        recovery_key: key.exists().then(|| key.display().to_string()),
        rooms: rooms.len(),
        encrypted,
        verifications: encryption::verify::list(opened).await.iter().filter(|one| one.is_open()).count(),
    }
}

/// Checks an open account.
pub(crate) async fn health_of(opened: &OpenedAccount, settings: &MatrixSettings) -> DoctorReport {
    doctor::examine(opened, settings).await
}

/// A key as clients show it.
fn grouped(key: &str) -> String {
    let letters: Vec<char> = key.chars().collect();
    letters.chunks(4).map(String::from_iter).collect::<Vec<_>>().join(" ")
}
