//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::wrong_keys::network;

/// Connections at once. Each takes little, and a reader is one.
const ALL: usize = 10_000;

/// Connections of one address at once: many, because a proxy before us is one address. This machine may have all.
const EACH: usize = 2_000;

/// Open files that are for something else: the store, platforms, what is asked of an upstream.
const OTHER_FILES: usize = 256;

/// Connections that are taken however few files there may be.
const FEWEST: usize = 64;

/// What is taken.
#[derive(Clone)]
pub struct Seats {
    taken: Arc<Mutex<Taken>>,
    all: usize,
    each: usize,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// Room for one connection. Dropping it makes it free.
pub struct Seat {
    seats: Seats,
    from: IpAddr,
}

impl Seats {
    /// As many as this process may have open, which is first raised as far as we may. A turn of a connection may need
    /// another one, to the upstream.
    pub fn of_this_process() -> Self {
        let wanted = 2 * ALL + OTHER_FILES;
        let all = (open_files(wanted).saturating_sub(OTHER_FILES) / 2).clamp(FEWEST, ALL);
        if all < ALL {
            tracing::debug!(all, "the limit of open files is low, and so are fewer connections taken");
        }
        Self::new(all, EACH.min(all))
    }

    fn new(all: usize, each: usize) -> Self {
        Self { taken: Arc::default(), all, each }
    }

    /// Takes one, if there is any.
    pub fn take(&self, from: IpAddr) -> Option<Seat> {
        let from = network(from);
        let mut taken = self.lock();
        let own = taken.by.get(&from).copied().unwrap_or_default();
        if taken.all >= self.all || (own >= self.each && !from.is_loopback()) {
            return None;
        }
        taken.all += 1;
        taken.by.insert(from, own + 1);
        drop(taken);
        Some(Seat { seats: self.clone(), from })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Every change under this lock is complete in itself.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.all = taken.all.saturating_sub(1);
        let left = taken.by.get(&self.from).copied().unwrap_or_default().saturating_sub(1);
        match left {
            0 => _ = taken.by.remove(&self.from),
            left => _ = taken.by.insert(self.from, left),
        }
    }
}

/// Raises the limit of open files to what is wanted, if that is permitted; what it is then.
fn open_files(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = wanted as u64;
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
    if limit.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    usize::try_from(now).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_all_seats_but_this_machine_may() {
        let seats = Seats::new(5, 2);
        let (near, far): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        let held = [seats.take(far), seats.take(far)];
        assert!(held.iter().all(Option::is_some) && seats.take(far).is_none());
        let ours: Vec<Seat> = (0..3).map_while(|_| seats.take(near)).collect();
        assert_eq!(ours.len(), 3);
        assert!(seats.take(near).is_none() && seats.take([10, 0, 0, 2].into()).is_none());
        drop(held);
        assert!(seats.take(far).is_some(), "a seat becomes free");
        drop(ours);
        let taken = seats.lock();
        assert_eq!((taken.all, taken.by.len()), (0, 0), "nothing is left behind");
    }
}
