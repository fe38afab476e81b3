//! The SDK's trait for [`CachedCryptoStore`]. What the cache does not know goes to the store on disk as it is.

use std::collections::HashMap;

use matrix_sdk::async_trait;
use matrix_sdk::cross_process_lock::CrossProcessLockGeneration;
use matrix_sdk::encryption::vodozemac::Curve25519PublicKey;
use matrix_sdk::ruma::events::secret::request::SecretName;
use matrix_sdk::ruma::{DeviceId, OwnedDeviceId, RoomId, TransactionId, UserId};
use matrix_sdk_base::crypto::olm::{
    InboundGroupSession, OlmMessageHash, OutboundGroupSession, PrivateCrossSigningIdentity, SenderDataType,
    Session,
};
use matrix_sdk_base::crypto::store::types::{
    BackupKeys, Changes, DehydratedDeviceKey, PendingChanges, RoomKeyCounts, RoomKeyWithheldEntry,
    RoomPendingKeyBundleDetails, RoomSettings, StoredRoomKeyBundleData, TrackedUser,
};
use matrix_sdk_base::crypto::store::{CryptoStore, CryptoStoreError, GossipRequest, SecretInfo};
use matrix_sdk_base::crypto::{Account, DeviceData, UserIdentityData};
use zeroize::Zeroizing;

use super::{CachedCryptoStore, Result};

#[async_trait]
impl CryptoStore for CachedCryptoStore {
    type Error = CryptoStoreError;

    async fn load_account(&self) -> Result<Option<Account>> {
        self.account().await
    }

    async fn load_identity(&self) -> Result<Option<PrivateCrossSigningIdentity>> {
        self.disk.load_identity().await
    }

    async fn save_changes(&self, changes: Changes) -> Result<()> {
        self.save(changes).await
    }

    async fn save_pending_changes(&self, changes: PendingChanges) -> Result<()> {
        self.save_account(changes).await
    }

    async fn save_inbound_group_sessions(
        &self,
        sessions: Vec<InboundGroupSession>,
        backed_up_to_version: Option<&str>,
    ) -> Result<()> {
        self.disk.save_inbound_group_sessions(sessions, backed_up_to_version).await
    }

    async fn get_sessions(&self, sender_key: &str) -> Result<Option<Vec<Session>>> {
        self.disk.get_sessions(sender_key).await
    }

    async fn get_inbound_group_session(
        &self,
        room_id: &RoomId,
        session_id: &str,
    ) -> Result<Option<InboundGroupSession>> {
        self.disk.get_inbound_group_session(room_id, session_id).await
    }

    async fn get_withheld_info(
        &self,
        room_id: &RoomId,
        session_id: &str,
    ) -> Result<Option<RoomKeyWithheldEntry>> {
        self.disk.get_withheld_info(room_id, session_id).await
    }

    async fn get_withheld_sessions_by_room_id(&self, room_id: &RoomId) -> Result<Vec<RoomKeyWithheldEntry>> {
        self.disk.get_withheld_sessions_by_room_id(room_id).await
    }

    async fn get_inbound_group_sessions(&self) -> Result<Vec<InboundGroupSession>> {
        self.disk.get_inbound_group_sessions().await
    }

    async fn inbound_group_session_counts(&self, backup_version: Option<&str>) -> Result<RoomKeyCounts> {
        self.disk.inbound_group_session_counts(backup_version).await
    }

    async fn get_inbound_group_sessions_by_room_id(
        &self,
        room_id: &RoomId,
    ) -> Result<Vec<InboundGroupSession>> {
        self.disk.get_inbound_group_sessions_by_room_id(room_id).await
    }

    async fn get_inbound_group_sessions_for_device_batch(
        &self,
        curve_key: Curve25519PublicKey,
        sender_data_type: SenderDataType,
        after_session_id: Option<String>,
        limit: usize,
    ) -> Result<Vec<InboundGroupSession>> {
        self.disk
            .get_inbound_group_sessions_for_device_batch(curve_key, sender_data_type, after_session_id, limit)
            .await
    }

    async fn inbound_group_sessions_for_backup(
        &self,
        backup_version: &str,
        limit: usize,
    ) -> Result<Vec<InboundGroupSession>> {
        self.disk.inbound_group_sessions_for_backup(backup_version, limit).await
    }

    async fn mark_inbound_group_sessions_as_backed_up(
        &self,
        backup_version: &str,
        room_and_session_ids: &[(&RoomId, &str)],
    ) -> Result<()> {
        self.disk.mark_inbound_group_sessions_as_backed_up(backup_version, room_and_session_ids).await
    }

    async fn reset_backup_state(&self) -> Result<()> {
        self.disk.reset_backup_state().await
    }

    async fn load_backup_keys(&self) -> Result<BackupKeys> {
        self.disk.load_backup_keys().await
    }

    async fn load_dehydrated_device_pickle_key(&self) -> Result<Option<DehydratedDeviceKey>> {
        self.disk.load_dehydrated_device_pickle_key().await
    }

    async fn delete_dehydrated_device_pickle_key(&self) -> Result<()> {
        self.disk.delete_dehydrated_device_pickle_key().await
    }

    async fn get_outbound_group_session(&self, room_id: &RoomId) -> Result<Option<OutboundGroupSession>> {
        self.disk.get_outbound_group_session(room_id).await
    }

    async fn load_tracked_users(&self) -> Result<Vec<TrackedUser>> {
        self.tracked_users().await
    }

    async fn save_tracked_users(&self, users: &[(&UserId, bool)]) -> Result<()> {
        self.save_tracked(users).await
    }

    async fn get_device(&self, user_id: &UserId, device_id: &DeviceId) -> Result<Option<DeviceData>> {
        self.device(user_id, device_id).await
    }

    async fn get_user_devices(&self, user_id: &UserId) -> Result<HashMap<OwnedDeviceId, DeviceData>> {
        self.devices(user_id).await
    }

    async fn get_own_device(&self) -> Result<DeviceData> {
        self.disk.get_own_device().await
    }

    async fn get_user_identity(&self, user_id: &UserId) -> Result<Option<UserIdentityData>> {
        self.identity(user_id).await
    }

    async fn is_message_known(&self, message_hash: &OlmMessageHash) -> Result<bool> {
        self.disk.is_message_known(message_hash).await
    }

    async fn get_outgoing_secret_requests(
        &self,
        request_id: &TransactionId,
    ) -> Result<Option<GossipRequest>> {
        self.disk.get_outgoing_secret_requests(request_id).await
    }

    async fn get_secret_request_by_info(&self, secret_info: &SecretInfo) -> Result<Option<GossipRequest>> {
        self.disk.get_secret_request_by_info(secret_info).await
    }

    async fn get_unsent_secret_requests(&self) -> Result<Vec<GossipRequest>> {
        self.unsent_requests().await
    }

    async fn delete_outgoing_secret_requests(&self, request_id: &TransactionId) -> Result<()> {
        self.disk.delete_outgoing_secret_requests(request_id).await
    }

    async fn get_secrets_from_inbox(&self, secret_name: &SecretName) -> Result<Vec<Zeroizing<String>>> {
        self.disk.get_secrets_from_inbox(secret_name).await
    }

    async fn delete_secrets_from_inbox(&self, secret_name: &SecretName) -> Result<()> {
        self.disk.delete_secrets_from_inbox(secret_name).await
    }

    async fn get_room_settings(&self, room_id: &RoomId) -> Result<Option<RoomSettings>> {
        self.disk.get_room_settings(room_id).await
    }

    async fn get_received_room_key_bundle_data(
        &self,
        room_id: &RoomId,
        user_id: &UserId,
    ) -> Result<Option<StoredRoomKeyBundleData>> {
        self.disk.get_received_room_key_bundle_data(room_id, user_id).await
    }

    async fn get_pending_key_bundle_details_for_room(
        &self,
        room_id: &RoomId,
    ) -> Result<Option<RoomPendingKeyBundleDetails>> {
        self.disk.get_pending_key_bundle_details_for_room(room_id).await
    }

    async fn get_all_rooms_pending_key_bundles(&self) -> Result<Vec<RoomPendingKeyBundleDetails>> {
        self.disk.get_all_rooms_pending_key_bundles().await
    }

    async fn has_downloaded_all_room_keys(&self, room_id: &RoomId) -> Result<bool> {
        self.disk.has_downloaded_all_room_keys(room_id).await
    }

    async fn get_custom_value(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.disk.get_custom_value(key).await
    }

    async fn set_custom_value(&self, key: &str, value: Vec<u8>) -> Result<()> {
        self.disk.set_custom_value(key, value).await
    }

    async fn remove_custom_value(&self, key: &str) -> Result<()> {
        self.disk.remove_custom_value(key).await
    }

    async fn try_take_leased_lock(
        &self,
        lease_duration_ms: u32,
        key: &str,
        holder: &str,
    ) -> Result<Option<CrossProcessLockGeneration>> {
        self.disk.try_take_leased_lock(lease_duration_ms, key, holder).await
    }

    async fn next_batch_token(&self) -> Result<Option<String>> {
        self.disk.next_batch_token().await
    }

    async fn close(&self) -> Result<()> {
        self.disk.close().await
    }

    async fn reopen(&self) -> Result<()> {
        self.disk.reopen().await
    }

    async fn get_size(&self) -> Result<Option<usize>> {
        self.disk.get_size().await
    }
}
