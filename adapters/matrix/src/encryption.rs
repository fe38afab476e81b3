//! Keeps our device signed and our keys backed up.
//!
//! With a recovery key, the account's own identity signs our device. An account without an identity gets one, and its
//! recovery key is written to a file once. In any other case a person has to help, and the log tells them how. Every
//! step can be interrupted and is repeated: none may leave an account that nobody can recover.

mod recovery;
mod setup;
pub(crate) mod verify;

use std::time::Duration;

use matrix_sdk::encryption::VerificationState;
use talaria_platform::{Backoff, CancellationToken, PlatformError};
use tokio::sync::broadcast;

use crate::account::MatrixAccount;
use crate::config::MatrixSettings;
use crate::login::{OpenedAccount, rolled_back};

pub(crate) use recovery::KEY as RECOVERY_KEY;
pub(crate) use setup::{DeviceSetup, look, set_up};

/// Time limit for one attempt to set up the device.
const TRY: Duration = Duration::from_secs(120);

/// Pauses between failed attempts.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(2), Duration::from_secs(300));

/// Interval at which the set-up is checked while nothing changes.
const NOW_AND_THEN: Duration = Duration::from_secs(60);

/// Sets up the device after the first sync, and keeps it set up until `stop`. Returns an error only if the account
/// cannot be used any more.
pub(crate) async fn keep(account: &MatrixAccount, stop: &CancellationToken) -> Result<(), PlatformError> {
    let opened = &account.opened;
    // Listens before the first sync: requests that come with it must not be missed.
    let (_listening, answering) = verify::listen(opened, account.settings.trust);
    let doubled = opened.client.subscribe_to_duplicate_key_upload_errors();
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        () = key_was_doubled(doubled) => Err(rolled_back()),
        () = look_after(account) => Ok(()),
        () = answering => Ok(()),
    }
}

/// Waits until the homeserver reports other keys for our device than we have.
async fn key_was_doubled<T: Clone>(mut doubled: broadcast::Receiver<T>) {
    match doubled.recv().await {
        Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
    }
}

/// Sets up the device and reacts to changes of its verification. Never ends.
async fn look_after(account: &MatrixAccount) {
    let opened = &account.opened;
    // Cannot fail: the sender lives as long as the account.
    let _ = account.synced.subscribe().wait_for(|synced| *synced).await;
    try_set_up(opened, &account.settings).await;
    let mut state = opened.client.encryption().verification_state();
    let mut now_and_then = tokio::time::interval(NOW_AND_THEN);
    loop {
        tokio::select! {
            _ = now_and_then.tick() => opened.session.settle(),
            changed = state.next() => match changed {
                Some(now) => changed_to(opened, &account.settings, now).await,
                None => std::future::pending().await,
            },
        }
    }
}

/// Reacts to a change: another device signed ours, or the account got another identity.
async fn changed_to(opened: &OpenedAccount, settings: &MatrixSettings, now: VerificationState) {
    let believed = opened.setup.borrow().is_signed();
    let signed = match now {
        VerificationState::Verified => true,
        VerificationState::Unverified => false,
        VerificationState::Unknown => return,
    };
    if signed != believed {
        try_set_up(opened, settings).await;
    }
}

/// Tries to set up the device until it succeeds or a person has to help.
async fn try_set_up(opened: &OpenedAccount, settings: &MatrixSettings) {
    let mut backoff = PAUSES;
    loop {
        let why = match tokio::time::timeout(TRY, set_up(opened, settings)).await {
            Ok(Ok(setup)) => {
                setup.tell();
                opened.setup.send_replace(setup);
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => format!("it took longer than {} seconds", TRY.as_secs()),
        };
        let pause = backoff.advance();
        tracing::warn!(why, ?pause, "our Matrix device could not be set up; it is tried again");
        opened.setup.send_replace(DeviceSetup::Trying { why });
        tokio::time::sleep(pause).await;
    }
}
