//! What was read from the store of keys and has not been written since.
//!
//! A write empties it: keys of people change seldom. While a write is under way nothing is kept, and neither is
//! anything that was read from before the write until after it.

use std::collections::HashMap;
use std::sync::Arc;

use matrix_sdk::ruma::{DeviceId, OwnedDeviceId, OwnedUserId, UserId};
use matrix_sdk_base::crypto::store::types::TrackedUser;
use matrix_sdk_base::crypto::{DeviceData, UserIdentityData};
use parking_lot::Mutex;

/// Devices that are kept; each takes about two kilobytes. A room with more of them reads them from disk.
pub(super) const DEVICES: usize = 2_000;

/// People whose devices or identity are kept.
const PEOPLE: usize = 1_000;

/// Tracked people that are kept. Each takes about a hundred bytes.
const TRACKED: usize = 10_000;

/// The cache.
#[derive(Debug, Default)]
pub(super) struct ReadCache {
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    kept: KeptKeys,
    /// Writes that are under way.
    writing: usize,
    /// Number of writes that ended.
    written: u64,
}

#[derive(Debug, Default)]
struct KeptKeys {
    devices: HashMap<OwnedUserId, HashMap<OwnedDeviceId, DeviceData>>,
    device_count: usize,
    /// As JSON: an identity shares its state with its clones, and the SDK compares what is stored with what it has
    /// changed.
    identities: HashMap<OwnedUserId, Option<String>>,
    tracked: Option<Vec<TrackedUser>>,
    no_unsent_requests: bool,
}

/// Permission to keep what is read from now on, unless a write comes in between.
#[derive(Clone, Copy)]
pub(super) struct ReadTicket(Option<u64>);

/// A write that is under way. Dropped when the store has ended it, whether well or not.
pub(super) struct CacheWrite(Arc<ReadCache>);

impl Drop for CacheWrite {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing -= 1;
        state.written += 1;
    }
}

impl ReadCache {
    /// Forgets everything, and keeps nothing until the returned write is dropped.
    pub fn begin_write(cache: &Arc<Self>) -> CacheWrite {
        let mut state = cache.state.lock();
        state.writing += 1;
        state.kept = KeptKeys::default();
        CacheWrite(cache.clone())
    }

    /// Taken before each read whose result is to be kept.
    pub fn ticket(&self) -> ReadTicket {
        let state = self.state.lock();
        ReadTicket((state.writing == 0).then_some(state.written))
    }

    pub fn devices(&self, user: &UserId) -> Option<HashMap<OwnedDeviceId, DeviceData>> {
        self.state.lock().kept.devices.get(user).cloned()
    }

    /// One device of a person whose devices are kept: `Some(None)` if there is no such device.
    #[expect(clippy::option_option, reason = "not kept, kept as absent, kept")]
    pub fn device(&self, user: &UserId, device: &DeviceId) -> Option<Option<DeviceData>> {
        self.state.lock().kept.devices.get(user).map(|devices| devices.get(device).cloned())
    }

    pub fn keep_devices(
        &self,
        ticket: ReadTicket,
        user: &UserId,
        devices: &HashMap<OwnedDeviceId, DeviceData>,
    ) {
        self.keep(ticket, |kept| {
            if kept.devices.len() >= PEOPLE || kept.device_count + devices.len() > DEVICES {
                kept.devices.clear();
                kept.device_count = 0;
            }
            if devices.len() <= DEVICES && kept.devices.insert(user.to_owned(), devices.clone()).is_none() {
                kept.device_count += devices.len();
            }
        });
    }

    /// The identity of a person: `Some(None)` if it is known that there is none.
    #[expect(clippy::option_option, reason = "not kept, kept as absent, kept")]
    pub fn identity(&self, user: &UserId) -> Option<Option<UserIdentityData>> {
        let kept = self.state.lock().kept.identities.get(user).cloned()?;
        match kept {
            Some(json) => serde_json::from_str(&json).ok().map(Some),
            None => Some(None),
        }
    }

    pub fn keep_identity(&self, ticket: ReadTicket, user: &UserId, identity: Option<&UserIdentityData>) {
        let Ok(json) = identity.map(serde_json::to_string).transpose() else { return };
        self.keep(ticket, |kept| {
            if kept.identities.len() >= PEOPLE {
                kept.identities.clear();
            }
            kept.identities.insert(user.to_owned(), json);
        });
    }

    pub fn tracked_users(&self) -> Option<Vec<TrackedUser>> {
        self.state.lock().kept.tracked.clone()
    }

    pub fn keep_tracked_users(&self, ticket: ReadTicket, users: &[TrackedUser]) {
        if users.len() <= TRACKED {
            self.keep(ticket, |kept| kept.tracked = Some(users.to_vec()));
        }
    }

    pub fn has_no_unsent_requests(&self) -> bool {
        self.state.lock().kept.no_unsent_requests
    }

    pub fn keep_no_unsent_requests(&self, ticket: ReadTicket) {
        self.keep(ticket, |kept| kept.no_unsent_requests = true);
    }

    /// Devices that are kept, counted.
    #[cfg(test)]
    pub fn kept_devices(&self) -> usize {
        self.state.lock().kept.devices.values().map(HashMap::len).sum()
    }

    fn keep(&self, ReadTicket(ticket): ReadTicket, change: impl FnOnce(&mut KeptKeys)) {
        let mut state = self.state.lock();
        if state.writing == 0 && ticket == Some(state.written) {
            change(&mut state.kept);
        }
    }
}
