//! Opens the account: its folder, the lock on it, the store and the session.
//!
//! A device is its keys, and the store holds them. So a session and its store belong together for good: a new login
//! makes a new device with a new store, a session whose store is gone is refused, and a token whose device has
//! published keys that we do not have is refused too. The session is written last: a crash before that has uploaded
//! nothing, and the next start asks for the same device again.

mod client;
pub(crate) mod folder;
pub(crate) mod http;
mod key;
mod logout;
mod pending;
pub(crate) mod session;

use std::io;
use std::sync::Arc;

use matrix_sdk::Client;
use matrix_sdk::ruma::{OwnedDeviceId, OwnedUserId};
use matrix_sdk::store::{RoomLoadSettings, StateStoreDataKey};
use talaria_platform::{PlatformError, PlatformErrorKind};
use tokio::sync::watch;

use crate::config::{LoginMethod, MatrixSettings};
use crate::encryption::DeviceSetup;
use crate::encryption::verify::VerificationRequests;
use crate::error::{from_http, from_sdk};
use crate::operator_error::{fatal, trouble};
use client::{broken, build};
use folder::AccountFolder;
use http::{HomeserverClient, HomeserverError, RequestFailure};
use session::{SessionFile, StoredSession};

pub(crate) use logout::log_out;

/// Key in the store under which the number of openings is kept.
const OPENED: &[u8] = b"talaria.opened";

/// Hint for a token that cannot be used.
const NEW_TOKEN: &str =
    "log in by password instead, or make a token with a new device that no other program has used";

/// An account that is logged in. No other process has its folder open.
pub(crate) struct OpenedAccount {
    /// The SDK's client, with its store open.
    pub client: Client,
    /// The account's user id.
    pub own: OwnedUserId,
    /// Our device.
    pub device: OwnedDeviceId,
    /// The session and its file; unsaved tokens are written from time to time.
    pub session: Arc<SessionFile>,
    /// The folder, locked while anything uses the account.
    pub folder: Arc<AccountFolder>,
    /// The homeserver without the SDK, for the operator's commands.
    pub http: HomeserverClient,
    /// State of the device's set-up; set by `encryption`.
    pub setup: watch::Sender<DeviceSetup>,
    /// Requests to verify us.
    pub requests: Arc<VerificationRequests>,
}

/// Whether an earlier login left a session in the account's folder, valid or not.
pub fn has_session(settings: &MatrixSettings) -> bool {
    settings.folder.join(session::NAME).exists()
}

/// Opens the stored session, or logs in.
pub(crate) async fn open(settings: &MatrixSettings) -> Result<OpenedAccount, PlatformError> {
    let folder = Arc::new(AccountFolder::take(&settings.folder).await?);
    let http = HomeserverClient::find(&settings.homeserver).await?;
    match StoredSession::load(&settings.folder)? {
        Some(session) => restore(settings, folder, http, session).await,
        None => log_in(settings, folder, http).await,
    }
}

/// Continues with the stored device.
async fn restore(
    settings: &MatrixSettings,
    folder: Arc<AccountFolder>,
    http: HomeserverClient,
    mut session: StoredSession,
) -> Result<OpenedAccount, PlatformError> {
    if settings.user.as_ref().is_some_and(|user| *user != session.user) {
        return Err(fatal(
            format!("the folder {} belongs to {}", settings.folder.display(), session.user),
            "give each account an entry with a name of its own; or run `talaria matrix logout` to end the old one",
        ));
    }
    settle(&folder, session::PENDING);
    let store = folder.at(&session.store);
    if !store.join(client::CRYPTO).is_file() {
        return Err(broken(format!("the device's store {} is missing", store.display())));
    }
    let key = key::of_old(&folder, settings.store_key)?;
    if let Some(token) = newer_token(settings, &http, &session).await? {
        session.access_token = token;
        session.save(&folder).map_err(|error| unwritable(&folder, &error))?;
    }
    let client = build(&http, &store, &key, settings.trust).await?;
    count_opening(&client, &folder, &mut session).await?;
    let opened = enter(client, http, folder, session).await?;
    // Fails now rather than in the middle of a turn: on a token that was revoked, or a homeserver that is away.
    let who = opened.client.whoami().await.map_err(from_http).map_err(revoked)?;
    if who.user_id != opened.own || who.device_id.as_ref().is_some_and(|device| *device != opened.device) {
        return Err(fatal(
            format!("the homeserver takes our token for {} and not for {}", who.user_id, opened.own),
            "is this still the same homeserver? Run `talaria matrix logout` to log in there anew",
        ));
    }
    Ok(opened)
}

/// Logs in with a new device.
async fn log_in(
    settings: &MatrixSettings,
    folder: Arc<AccountFolder>,
    http: HomeserverClient,
) -> Result<OpenedAccount, PlatformError> {
    let pending = pending::take(&folder)?;
    let key = key::of_new(&folder, settings.store_key)?;
    let session = match &settings.login {
        LoginMethod::Password(password) => {
            let Some(user) = settings.user.as_deref() else {
                return Err(fatal(
                    "a password alone is no account",
                    "set `user` to the full id, `@bot:example.org`",
                ));
            };
            let name = &settings.device_name;
            let logged = http.log_in(user, password.expose(), &pending.device, name).await;
            let logged = logged.map_err(|failure| refused_login(failure, user))?;
            StoredSession {
                user: logged.user_id,
                device: logged.device_id,
                access_token: logged.access_token,
                refresh_token: logged.refresh_token,
                store: pending.store,
                fingerprint: String::new(),
                opened: 0,
            }
        }
        LoginMethod::Token(token) => {
            let who = http.whoami(token.expose()).await.map_err(refused_token)?;
            let device = who.device_id.ok_or_else(|| {
                fatal("the access token has no device, so nothing can be encrypted", NEW_TOKEN)
            })?;
            StoredSession {
                user: who.user_id,
                device,
                access_token: token.expose().to_owned(),
                refresh_token: None,
                store: pending.store,
                fingerprint: String::new(),
                opened: 0,
            }
        }
        LoginMethod::Stored => {
            return Err(fatal(
                format!("there is no Matrix session in {}", settings.folder.display()),
                "set a password (MATRIX_PASSWORD_FILE) or an access token (MATRIX_ACCESS_TOKEN_FILE) for this account",
            ));
        }
    };
    if settings.user.as_ref().is_some_and(|user| *user != session.user) {
        return Err(fatal(
            format!("the access token belongs to {}", session.user),
            "set `user` to that id, or use a token of the account that is meant",
        ));
    }
    let known = http.device_key(&session.access_token, &session.user, &session.device).await;
    if known.map_err(|failure| failure.into_error("looking for keys of our device"))?.is_some() {
        // People would encrypt messages to it with keys that nobody has any more.
        return Err(fatal(
            format!(
                "the device {} already has keys on the homeserver, and they are not in our store",
                session.device
            ),
            NEW_TOKEN,
        ));
    }
    let store = folder.at(&session.store);
    folder::make_private(&store).map_err(|error| unwritable(&folder, &error))?;
    let client = build(&http, &store, &key, settings.trust).await?;
    let opened = enter(client, http, folder, session).await?;
    let fingerprint = fingerprint(&opened.client).await?;
    opened.session.confirm(fingerprint).map_err(|error| unwritable(&opened.folder, &error))?;
    settle(&opened.folder, session::PENDING);
    tracing::info!(user = %opened.own, device = %opened.device, "logged in to Matrix with a new device");
    Ok(opened)
}

/// Hands the session to the SDK.
async fn enter(
    client: Client,
    http: HomeserverClient,
    folder: Arc<AccountFolder>,
    session: StoredSession,
) -> Result<OpenedAccount, PlatformError> {
    let (own, device, expected) = (session.user.clone(), session.device.clone(), session.fingerprint.clone());
    let for_sdk = session.for_sdk();
    let session = Arc::new(SessionFile::new(folder.clone(), session));
    let (reload, save) = (session.clone(), session.clone());
    // Called before the new token is used, so that the file is never more than one token behind.
    client
        .set_session_callbacks(
            Box::new(move |_| Ok(reload.now().for_sdk().tokens)),
            Box::new(move |client| {
                if let Some(tokens) = client.session_tokens() {
                    save.renew(tokens);
                }
                Ok(())
            }),
        )
        .map_err(from_sdk)?;
    let restored = client.matrix_auth().restore_session(for_sdk, RoomLoadSettings::default()).await;
    restored
        .map_err(|error| broken(format!("the device's store does not belong to this session: {error}")))?;
    if !expected.is_empty() && fingerprint(&client).await? != expected {
        return Err(broken("the device's store has the keys of another device".to_owned()));
    }
    let (setup, requests) = (watch::Sender::new(DeviceSetup::NotYet), Arc::default());
    Ok(OpenedAccount { client, own, device, session, folder, http, setup, requests })
}

async fn fingerprint(client: &Client) -> Result<String, PlatformError> {
    let key = client.encryption().ed25519_key().await;
    key.ok_or_else(|| broken("the device's store has no keys".to_owned()))
}

/// Detects a store that is an old copy of itself, or older than the keys that the homeserver has.
async fn count_opening(
    client: &Client,
    folder: &AccountFolder,
    session: &mut StoredSession,
) -> Result<(), PlatformError> {
    let store = client.state_store();
    let unreadable = |error| broken(format!("the device's store cannot be read: {error}"));
    let count = store.get_custom_value(OPENED).await.map_err(unreadable)?;
    let count = count.and_then(|count| count.try_into().ok()).map_or(0, u64::from_be_bytes);
    if count < session.opened {
        return Err(broken(format!(
            "the device's store is an old copy (opened {count} times, and the session {})",
            session.opened
        )));
    }
    let doubled =
        store.get_kv_data(StateStoreDataKey::OneTimeKeyAlreadyUploaded).await.map_err(unreadable)?;
    if doubled.is_some() {
        return Err(rolled_back());
    }
    session.opened = count + 1;
    let value = session.opened.to_be_bytes().to_vec();
    store.set_custom_value_no_read(OPENED, value).await.map_err(unreadable)?;
    session.save(folder).map_err(|error| unwritable(folder, &error))
}

/// The error for a homeserver that has keys of this device that the store lacks: the store is older than the device.
/// Messages that others encrypt with those keys can never be read.
pub(crate) fn rolled_back() -> PlatformError {
    broken(
        "the homeserver knows keys of our device that its store does not: the store is an old copy"
            .to_owned(),
    )
}

/// A configured token that replaces the stored one.
async fn newer_token(
    settings: &MatrixSettings,
    http: &HomeserverClient,
    session: &StoredSession,
) -> Result<Option<String>, PlatformError> {
    let LoginMethod::Token(token) = &settings.login else { return Ok(None) };
    // With a refresh token, the stored token has changed since by itself.
    if token.expose() == session.access_token || session.refresh_token.is_some() {
        return Ok(None);
    }
    match http.whoami(token.expose()).await {
        Ok(who) if who.user_id == session.user && who.device_id.as_ref() == Some(&session.device) => {
            tracing::info!(device = %session.device, "the configured access token takes the place of the old one");
            Ok(Some(token.expose().to_owned()))
        }
        Ok(_) => {
            tracing::warn!(
                hint = "to change to its device run `talaria matrix logout` and start again",
                "the configured access token is for another device and not used; the session from before goes on"
            );
            Ok(None)
        }
        Err(failure) if failure.is_unknown_token() => {
            tracing::warn!(
                hint = "take it out of the configuration, or put a valid one there",
                "the configured access token is not valid and not used; the session from before goes on"
            );
            Ok(None)
        }
        Err(failure) => Err(failure.into_error("checking the access token")),
    }
}

/// Removes a file that is no longer needed. If that fails, the next start does it.
fn settle(folder: &AccountFolder, name: &str) {
    if let Err(error) = folder.remove(name) {
        tracing::debug!(%error, name, "a file could not be removed; the next start tries again");
    }
}

fn unwritable(folder: &AccountFolder, error: &io::Error) -> PlatformError {
    fatal(
        format!("the folder {} cannot be read or written: {error}", folder.at("").display()),
        "check its rights and the free space",
    )
}

fn refused_login(failure: RequestFailure, user: &str) -> PlatformError {
    match &failure {
        RequestFailure::Refused(HomeserverError { status: 403, code, .. }) if !code.is_empty() => fatal(
            format!("the homeserver does not let {user} in with this password ({code})"),
            "check the user id and the password; with single sign-on only, use an access token instead",
        ),
        RequestFailure::Away(_) | RequestFailure::Refused(_) => failure.into_error("logging in"),
    }
}

fn refused_token(failure: RequestFailure) -> PlatformError {
    match failure.is_unknown_token() {
        true => fatal("the homeserver does not know the access token", NEW_TOKEN),
        false => failure.into_error("checking the access token"),
    }
}

/// The error for a session that was ended elsewhere. The store stays: it may have keys that are nowhere else.
pub(crate) fn revoked(error: PlatformError) -> PlatformError {
    match error.kind() {
        PlatformErrorKind::Fatal => fatal(
            "the Matrix session is over: the token was revoked or the device removed",
            "run `talaria matrix logout`, then start again with a password or a new token, and the recovery key",
        ),
        PlatformErrorKind::Retry { after } => {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let message = format!("the homeserver does not answer ({why})");
            trouble(
                PlatformErrorKind::Retry { after },
                message,
                "check that it runs; the gateway tries again by itself",
            )
        }
        PlatformErrorKind::Gone | PlatformErrorKind::Rejected | PlatformErrorKind::Unsupported => error,
    }
}
