//! Memory budget for prompts and requests, over all callers.
//!
//! The bytes of a prompt count from the first one read until the turn is stored, and again from when the engine loads
//! the stored turn until the agent has taken it; in between they are only on disk. Each app has a share, so that one
//! app cannot keep the others from asking; one part is for the owner alone, and one for rooms. A small prompt may
//! overtake a large one that waits for the budget.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Bytes of all prompts together. Each byte is in memory up to four times on its way (as received, as JSON, as the
/// turn, as the request), so this limit keeps the process below its 200 MB.
const ALL: usize = 32_000_000;

/// Bytes that apps leave for rooms: enough for people's text. A message with large pictures may have to wait.
const ROOMS: usize = 2_000_000;

/// Most bytes of one app, or of all rooms: the size of the largest request.
const SHARE: usize = 10_000_000;

/// Bytes that only the owner may use.
const OWNER: usize = 10_000_000;

/// The party that is charged for a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BudgetPayer {
    /// The person who runs the server.
    Owner,
    /// All people in all rooms.
    Rooms,
    /// An app, by its name.
    App(String),
}

impl BudgetPayer {
    /// The app with this name; the empty name is the owner.
    pub fn app(name: &str) -> Self {
        if name.is_empty() { Self::Owner } else { Self::App(name.to_owned()) }
    }
}

/// The budget. One per process.
pub struct InputBudget {
    used: Mutex<UsedBytes>,
    /// Wakes waiting callers when bytes are given back.
    freed: Notify,
    limits: InputLimits,
}

#[derive(Default)]
struct UsedBytes {
    all: usize,
    /// Bytes of everybody except the owner.
    shared: usize,
    /// Bytes of all apps.
    apps: usize,
    by: HashMap<BudgetPayer, usize>,
}

/// Limits of an [`InputBudget`], in bytes.
pub struct InputLimits {
    /// Limit of all payers together.
    pub all: usize,
    /// Limit of one app, or of all rooms.
    pub share: usize,
    /// Part of `all` for the owner alone.
    pub owner: usize,
    /// Part of `all` that apps leave for rooms.
    pub rooms: usize,
}

/// Bytes charged to the budget. Dropping it gives them back.
pub struct InputPermit {
    budget: Arc<InputBudget>,
    payer: BudgetPayer,
    bytes: usize,
}

impl Default for InputBudget {
    fn default() -> Self {
        Self::new(InputLimits { all: ALL, share: SHARE, owner: OWNER, rooms: ROOMS })
    }
}

impl InputBudget {
    /// A budget with these limits.
    pub fn new(limits: InputLimits) -> Self {
        Self { used: Mutex::default(), freed: Notify::new(), limits }
    }

    /// Charges `bytes` if the budget allows it. More than a share counts as a share: a large prompt must come through
    /// some time.
    pub fn try_take(self: &Arc<Self>, payer: &BudgetPayer, bytes: usize) -> Option<InputPermit> {
        let bytes = bytes.min(self.limits.share);
        self.add(payer, bytes).then(|| InputPermit { budget: self.clone(), payer: payer.clone(), bytes })
    }

    /// Waits until the budget allows it and charges `bytes`, by the rules of [`InputBudget::try_take`].
    pub async fn take(self: &Arc<Self>, payer: &BudgetPayer, bytes: usize) -> InputPermit {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registers before it looks, so that it misses no release in between.
            freed.as_mut().enable();
            if let Some(permit) = self.try_take(payer, bytes) {
                return permit;
            }
            freed.await;
        }
    }

    fn add(&self, payer: &BudgetPayer, bytes: usize) -> bool {
        let mut used = self.lock();
        let all = used.all + bytes;
        if all > self.limits.all {
            return false;
        }
        if *payer != BudgetPayer::Owner {
            let own = used.by.get(payer).copied().unwrap_or_default() + bytes;
            let shared = used.shared + bytes;
            let apps = used.apps + if matches!(payer, BudgetPayer::App(_)) { bytes } else { 0 };
            let for_all_but_owner = self.limits.all - self.limits.owner;
            if own > self.limits.share
                || shared > for_all_but_owner
                || apps > for_all_but_owner - self.limits.rooms
            {
                return false;
            }
            used.by.insert(payer.clone(), own);
            (used.shared, used.apps) = (shared, apps);
        }
        used.all = all;
        true
    }

    fn lock(&self) -> MutexGuard<'_, UsedBytes> {
        self.used.lock()
    }
}

impl InputPermit {
    /// Raises the charge to `bytes`. Returns false, and changes nothing, if the budget does not allow the difference.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.min(self.budget.limits.share).saturating_sub(self.bytes);
        let grown = self.budget.add(&self.payer, more);
        if grown {
            self.bytes += more;
        }
        grown
    }
}

impl InputPermit {
    /// Lowers the charge to `bytes`; never raises it.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.give_back(less);
    }

    fn give_back(&self, bytes: usize) {
        let mut used = self.budget.lock();
        used.all -= bytes;
        if self.payer != BudgetPayer::Owner {
            used.shared -= bytes;
            if matches!(self.payer, BudgetPayer::App(_)) {
                used.apps -= bytes;
            }
            let left = used.by.get(&self.payer).copied().unwrap_or_default().saturating_sub(bytes);
            match left {
                0 => _ = used.by.remove(&self.payer),
                left => _ = used.by.insert(self.payer.clone(), left),
            }
        }
        drop(used);
        self.budget.freed.notify_waiters();
    }
}

impl Drop for InputPermit {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<InputBudget> {
        Arc::new(InputBudget::new(InputLimits { all: 110, share: 30, owner: 30, rooms: 10 }))
    }

    #[test]
    fn one_app_leaves_room_for_the_others_and_all_of_them_for_the_owner() {
        let budget = budget();
        let (one, two, three) = (BudgetPayer::app("one"), BudgetPayer::app("two"), BudgetPayer::app("three"));
        let held: Vec<_> = (0..100).map_while(|_| budget.try_take(&one, 10)).collect();
        assert_eq!(held.len(), 3, "an app has its share");
        let other = budget.try_take(&two, 30);
        assert!(other.is_some());
        let last = budget.try_take(&three, 10);
        assert!(last.is_some() && budget.try_take(&three, 1).is_none());
        let rooms = budget.try_take(&BudgetPayer::Rooms, 10);
        assert!(rooms.is_some() && budget.try_take(&BudgetPayer::Rooms, 1).is_none());
        let owner = budget.try_take(&BudgetPayer::app(""), 30);
        assert!(owner.is_some() && budget.try_take(&BudgetPayer::Owner, 1).is_none());
        drop((held, other, last, rooms, owner));
        let used = budget.lock();
        assert_eq!((used.all, used.shared, used.apps, used.by.len()), (0, 0, 0, 0), "nothing is left behind");
    }

    #[test]
    fn a_permit_grows_only_where_there_is_room() {
        let (budget, one) = (budget(), BudgetPayer::app("one"));
        let mut permit = budget.try_take(&one, 0).unwrap();
        assert!(permit.grow_to(10) && permit.grow_to(5) && permit.grow_to(30));
        assert!(budget.try_take(&one, 1).is_none());
        assert!(permit.grow_to(31), "what is larger than a share counts as one");
        let rest = [30, 30, 20].map(|bytes| budget.try_take(&BudgetPayer::Owner, bytes));
        permit.shrink_to(10);
        permit.shrink_to(20);
        assert_eq!((permit.bytes, budget.try_take(&one, 20).is_some()), (10, true), "it never grows by that");
        drop(permit);
        let mut permit = budget.try_take(&one, 30).unwrap();
        assert!(budget.try_take(&BudgetPayer::Owner, 1).is_none() && permit.grow_to(30));
        drop((permit, rest));
        assert_eq!(budget.lock().all, 0);
    }

    #[tokio::test]
    async fn a_waiting_payer_is_told_and_a_small_one_does_not_wait_behind_a_large_one() {
        let (budget, one) = (budget(), BudgetPayer::app("one"));
        let held = budget.try_take(&one, 20).unwrap();
        let (waiting, payer) = (budget.clone(), one.clone());
        let large = tokio::spawn(async move { waiting.take(&payer, 30).await.bytes });
        tokio::task::yield_now().await;
        assert_eq!(budget.take(&one, 10).await.bytes, 10);
        assert!(!large.is_finished());
        drop(held);
        assert_eq!(large.await.unwrap(), 30);
    }
}
