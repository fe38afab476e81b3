//! Builds the SDK's client with our settings.

use std::path::Path;

use matrix_sdk::config::{RequestConfig, StoreConfig};
use matrix_sdk::cross_process_lock::CrossProcessLockConfig;
use matrix_sdk::encryption::{BackupDownloadStrategy, EncryptionSettings};
use matrix_sdk::{
    Client, ClientBuildError, SqliteCryptoStore, SqliteEventCacheStore, SqliteMediaStore, SqliteStateStore,
    SqliteStoreConfig,
};
use talaria_platform::{AuthorTrust, PlatformError};

use super::http::{HomeserverClient, REQUEST};
use crate::config::StoreKey;
use crate::error::from_http;
use crate::key_store::CachedCryptoStore;
use crate::operator_error::fatal;
use crate::outbound;

/// File of the crypto store; a store without it has no device.
pub(super) const CRYPTO: &str = "matrix-sdk-crypto.sqlite3";

/// Opens a store, or makes it. The client is not logged in yet.
pub(super) async fn build(
    http: &HomeserverClient,
    store: &Path,
    key: &StoreKey,
    trust: AuthorTrust,
) -> Result<Client, PlatformError> {
    // By default each of the four databases may have four connections per core, with two megabytes of pages each.
    let config = SqliteStoreConfig::with_low_memory_config(store).key(Some(&key.0));
    build_with(http, &config, trust).await.map_err(|error| match error {
        ClientBuildError::Http(error) => from_http(error),
        ClientBuildError::SqliteStore(error) => {
            let why = format!("the device's store {} cannot be opened: {error}", store.display());
            broken(why)
        }
        error => {
            fatal(format!("the Matrix client cannot be made: {error}"), "check the homeserver's address")
        }
    })
}

async fn build_with(
    http: &HomeserverClient,
    stores: &SqliteStoreConfig,
    trust: AuthorTrust,
) -> Result<Client, ClientBuildError> {
    Client::builder()
        .http_client(http.http())
        .homeserver_url(http.base().as_str())
        // Otherwise the response to a login could send us to another server.
        .respect_login_well_known(false)
        // The core waits and retries by the kind of an error; two retries would add up.
        .request_config(RequestConfig::new().timeout(REQUEST).disable_retry())
        .store_config(open_stores(stores).await?)
        // Our own lock keeps other processes away.
        .cross_process_store_config(CrossProcessLockConfig::SingleProcess)
        .handle_refresh_tokens()
        .with_room_key_recipient_strategy(outbound::recipients(trust))
        .with_decryption_settings(outbound::decryption())
        // `encryption` does the rest itself, in an order that survives a crash.
        .with_encryption_settings(EncryptionSettings {
            auto_enable_cross_signing: false,
            auto_enable_backups: false,
            backup_download_strategy: BackupDownloadStrategy::AfterDecryptionFailure,
        })
        .build()
        .await
}

/// Opens the four databases as the SDK's builder does, with our cache before the one of the keys.
async fn open_stores(config: &SqliteStoreConfig) -> Result<StoreConfig, ClientBuildError> {
    let (state, events, media, keys) = tokio::try_join!(
        SqliteStateStore::open_with_config(config),
        SqliteEventCacheStore::open_with_config(config),
        SqliteMediaStore::open_with_config(config),
        SqliteCryptoStore::open_with_config(config),
    )?;
    Ok(StoreConfig::new(CrossProcessLockConfig::SingleProcess)
        .state_store(state)
        .event_cache_store(events)
        .media_store(media)
        .crypto_store(CachedCryptoStore::new(keys)))
}

/// The error for a device that cannot continue with its files on disk. Nothing was changed.
pub(super) fn broken(why: String) -> PlatformError {
    fatal(
        why,
        "is `store_key` the one it was made with, is the disk full or damaged? Put the whole folder back from a \
         backup only if nothing was sent or read since; otherwise run `talaria matrix logout` and start again \
         with the recovery key, which makes a new device",
    )
}
