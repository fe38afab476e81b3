//! The SDK's own machine on a real database.

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::FutureExt as _;
use matrix_sdk::SqliteStoreConfig;
use matrix_sdk::ruma::api::client::sync::sync_events::DeviceLists;
use matrix_sdk::ruma::{DeviceId, OneTimeKeyAlgorithm, UserId, device_id, user_id};
use matrix_sdk_base::crypto::store::CryptoStore;
use matrix_sdk_base::crypto::store::types::DeviceChanges;
use matrix_sdk_base::crypto::{DecryptionSettings, EncryptionSyncChanges, OlmMachine, TrustRequirement};

use super::*;

fn bot() -> &'static UserId {
    user_id!("@bot:example.org")
}

fn ann() -> &'static UserId {
    user_id!("@ann:example.org")
}

async fn disk(folder: &Path) -> SqliteCryptoStore {
    SqliteCryptoStore::open_with_config(&SqliteStoreConfig::new(folder).key(Some(&[7; 32]))).await.unwrap()
}

async fn machine(store: &Arc<CachedCryptoStore>) -> OlmMachine {
    OlmMachine::with_store(bot(), device_id!("BOT"), store.clone(), None).await.unwrap()
}

/// Bytes in the write-ahead log: every transaction makes it longer.
fn log_length(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("matrix-sdk-crypto.sqlite3-wal")).unwrap().len()
}

/// A response that brings nothing but our number of one-time keys.
async fn response(machine: &OlmMachine, keys: u32, position: &str) {
    let counts = BTreeMap::from([(OneTimeKeyAlgorithm::SignedCurve25519, keys.into())]);
    let response = EncryptionSyncChanges {
        to_device_events: Vec::new(),
        changed_devices: &DeviceLists::new(),
        one_time_keys_counts: &counts,
        unused_fallback_keys: None,
        next_batch_token: Some(position.to_owned()),
    };
    let settings = DecryptionSettings { sender_device_trust_requirement: TrustRequirement::Untrusted };
    machine.receive_sync_changes(response, &settings).await.unwrap();
}

fn device(user: &UserId, device: &DeviceId) -> DeviceData {
    DeviceData::from_account(&Account::with_device_id(user, device))
}

fn new(device: DeviceData) -> Changes {
    Changes { devices: DeviceChanges { new: vec![device], ..Default::default() }, ..Default::default() }
}

fn gone(device: DeviceData) -> Changes {
    Changes { devices: DeviceChanges { deleted: vec![device], ..Default::default() }, ..Default::default() }
}

fn json(identity: Option<UserIdentityData>) -> serde_json::Value {
    serde_json::to_value(identity).unwrap()
}

async fn names(store: &impl CryptoStore) -> Vec<String> {
    let devices = store.get_user_devices(ann()).await.ok().unwrap();
    let mut names: Vec<_> = devices.into_keys().map(|name| name.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_response_that_changes_no_key_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(CachedCryptoStore::new(disk(folder.path()).await));
    let machine = machine(&store).await;
    response(&machine, 50, "one").await;
    let length = log_length(folder.path());
    for position in ["two", "three"] {
        response(&machine, 50, position).await;
    }
    assert_eq!(log_length(folder.path()), length);

    // Somebody took a key: the account has one more to upload, and it is on disk before we upload it.
    response(&machine, 49, "four").await;
    assert!(log_length(folder.path()) > length);
    let stored = disk(folder.path()).await.load_account().await.unwrap().unwrap().pickle();
    let cached = store.load_account().await.unwrap().unwrap().pickle();
    assert_eq!(stored.uploaded_signed_key_count, 49);
    assert_eq!(serde_json::to_string(&stored).unwrap(), serde_json::to_string(&cached).unwrap());
}

#[tokio::test]
async fn a_restart_does_not_write_the_same_account_again() {
    let folder = tempfile::tempdir().unwrap();
    response(&machine(&Arc::new(CachedCryptoStore::new(disk(folder.path()).await))).await, 50, "one").await;

    let next = machine(&Arc::new(CachedCryptoStore::new(disk(folder.path()).await))).await;
    let length = log_length(folder.path());
    response(&next, 50, "two").await;
    assert_eq!(log_length(folder.path()), length);
}

#[tokio::test]
async fn what_is_read_is_what_was_written_last() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(CachedCryptoStore::new(disk(folder.path()).await));
    let machine = machine(&store).await;
    let (phone, laptop) = (device(ann(), device_id!("PHONE")), device(ann(), device_id!("LAPTOP")));
    assert!(names(&*store).await.is_empty());

    store.save_changes(new(phone.clone())).await.unwrap();
    assert_eq!(names(&*store).await, ["PHONE"]);
    assert!(store.get_device(ann(), laptop.device_id()).await.unwrap().is_none());
    store.save_changes(new(laptop.clone())).await.unwrap();
    assert_eq!(names(&*store).await, ["LAPTOP", "PHONE"]);
    assert_eq!(store.get_device(ann(), laptop.device_id()).await.unwrap(), Some(laptop));
    store.save_changes(gone(phone.clone())).await.unwrap();
    assert_eq!(names(&*store).await, ["LAPTOP"]);
    assert_eq!(store.get_device(ann(), phone.device_id()).await.unwrap(), None);
    assert_eq!(names(&disk(folder.path()).await).await, ["LAPTOP"]);

    assert!(store.load_tracked_users().await.unwrap().is_empty());
    machine.update_tracked_users([ann()]).await.unwrap();
    let tracked = store.load_tracked_users().await.unwrap();
    assert_eq!(tracked.iter().map(|user| (&*user.user_id, user.dirty)).collect::<Vec<_>>(), [(ann(), true)]);

    assert!(store.get_user_identity(bot()).await.unwrap().is_none());
    machine.bootstrap_cross_signing(false).await.unwrap();
    let stored = json(disk(folder.path()).await.get_user_identity(bot()).await.unwrap());
    assert!(stored.is_object());
    for _ in 0..2 {
        assert_eq!(json(store.get_user_identity(bot()).await.unwrap()), stored);
    }
}

#[tokio::test]
async fn a_caller_who_stops_waiting_does_not_stop_the_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = CachedCryptoStore::new(disk(folder.path()).await);
    assert!(names(&store).await.is_empty());
    let abandoned = store.save_changes(new(device(ann(), device_id!("PHONE")))).now_or_never();
    assert!(abandoned.is_none());
    store.save_changes(new(device(ann(), device_id!("LAPTOP")))).await.unwrap();
    assert_eq!(names(&store).await, ["LAPTOP", "PHONE"]);
}

#[tokio::test]
async fn nothing_is_kept_of_a_read_that_a_write_overtook() {
    let cache = Arc::<ReadCache>::default();
    let before = cache.ticket();
    let writing = ReadCache::begin_write(&cache);
    let during = cache.ticket();
    drop(writing);
    for ticket in [before, during] {
        cache.keep_identity(ticket, ann(), None);
        assert!(cache.identity(ann()).is_none());
    }
    cache.keep_identity(cache.ticket(), ann(), None);
    assert!(matches!(cache.identity(ann()), Some(None)));
    let _writing = ReadCache::begin_write(&cache);
    assert!(cache.identity(ann()).is_none());
}

#[tokio::test]
async fn a_crowd_of_devices_does_not_fill_the_memory() {
    let cache = Arc::<ReadCache>::default();
    let many = device(ann(), device_id!("PHONE"));
    for person in 0..100 {
        let user = UserId::parse(format!("@{person}:example.org")).unwrap();
        let devices = (0..300).map(|number| (format!("D{number}").into(), many.clone())).collect();
        cache.keep_devices(cache.ticket(), &user, &devices);
        assert_eq!(cache.devices(&user).map(|devices| devices.len()), Some(300));
        assert!(cache.kept_devices() <= read_cache::DEVICES);
    }
}
