//! Limits the number of connections, in total and per address, and picks one to close when there are too many.
//!
//! A connection is idle while no request on it is being answered: new, with half a request, or between two
//! requests. Idle connections never keep a new one out. The one that has been idle longest is closed when
//! another needs its place, and each is closed after [`IDLE`].

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::auth_throttle::network;

/// Connections at once. Each costs little, and every reader of a stream is one.
const ALL: usize = 10_000;

/// Connections of one address at once: many, because a proxy in front of us is one address. Loopback may take
/// all.
const EACH: usize = 2_000;

/// Evicted connections that have not closed yet. They count until they are gone, because their file descriptors
/// are open until then; this many new connections need not wait for that.
const CLOSING: usize = 64;

/// File descriptors reserved for other uses: the store, platforms, requests to an upstream.
const OTHER_FILES: usize = 256;

/// Connections that are accepted however low the limit of open files is.
const FEWEST: usize = 64;

/// Longest wait of a connection for its next request.
const IDLE: Duration = Duration::from_secs(75);

/// Interval at which [`ConnectionLimit::close_idle`] should be called.
pub const CLOSE_IDLE_EVERY: Duration = Duration::from_secs(5);

/// Bound on connections, shared by all of them.
#[derive(Clone)]
pub struct ConnectionLimit {
    taken: Arc<Mutex<TakenConnections>>,
    all: usize,
    each: usize,
}

#[derive(Default)]
struct TakenConnections {
    all: usize,
    by: HashMap<IpAddr, usize>,
    /// Idle connections, in the order in which they became idle.
    idle: BTreeMap<u64, IdleConnection>,
    /// Key of the next entry in `idle`.
    next: u64,
}

struct IdleConnection {
    from: IpAddr,
    since: Instant,
    /// Ends the connection gracefully; a request that has just arrived is still answered.
    close: CancellationToken,
}

/// Place of one connection. Dropping it frees the place.
pub struct ConnectionPermit {
    connection_limit: ConnectionLimit,
    from: IpAddr,
    close: CancellationToken,
    /// Key of this connection in the idle map, while it is idle.
    idle: Mutex<Option<u64>>,
}

/// Keeps a connection from being idle for as long as a request is answered.
pub struct BusyConnection(Arc<ConnectionPermit>);

impl ConnectionLimit {
    /// As many as the limit of open files allows, after raising it as far as permitted. Each connection is
    /// counted twice, because its turn may need another one to the upstream.
    pub fn of_this_process() -> Self {
        let wanted = 2 * ALL + OTHER_FILES;
        let all = (open_files(wanted).saturating_sub(OTHER_FILES) / 2).clamp(FEWEST, ALL);
        if all < ALL {
            tracing::debug!(all, "the limit of open files is low, so fewer connections are accepted");
        }
        Self::new(all, EACH.min(all))
    }

    fn new(all: usize, each: usize) -> Self {
        Self { taken: Arc::default(), all, each }
    }

    /// Takes a place for a new connection, which ends when `close` fires. If all are taken, the connection that
    /// has been idle longest is told to close; `None` if every connection is busy.
    pub fn take(&self, from: IpAddr, close: CancellationToken) -> Option<Arc<ConnectionPermit>> {
        let from = network(from);
        let mut taken = self.lock();
        let own = taken.by.get(&from).copied().unwrap_or_default();
        let each_is_full = own >= self.each && !from.is_loopback();
        let evicted = match (taken.all >= self.all, each_is_full) {
            (false, false) => None,
            _ if taken.all >= self.all + CLOSING || (each_is_full && own >= self.each + CLOSING) => {
                return None;
            }
            (true, false) => Some(taken.remove_longest_idle(|_| true)?),
            (_, true) => Some(taken.remove_longest_idle(|idle| idle.from == from)?),
        };
        taken.all += 1;
        taken.by.insert(from, own + 1);
        drop(taken);
        if let Some(evicted) = evicted {
            evicted.close.cancel();
        }
        let permit = Arc::new(ConnectionPermit {
            connection_limit: self.clone(),
            from,
            close,
            idle: Mutex::default(),
        });
        permit.becomes_idle();
        Some(permit)
    }

    /// Tells every connection to close that has been idle for [`IDLE`].
    pub fn close_idle(&self) {
        let mut taken = self.lock();
        let mut expired = Vec::new();
        while let Some(oldest) = taken.idle.first_entry()
            && oldest.get().since.elapsed() >= IDLE
        {
            expired.push(oldest.remove().close);
        }
        drop(taken);
        expired.iter().for_each(CancellationToken::cancel);
    }

    fn lock(&self) -> MutexGuard<'_, TakenConnections> {
        self.taken.lock()
    }
}

impl TakenConnections {
    fn remove_longest_idle(&mut self, may_go: impl Fn(&IdleConnection) -> bool) -> Option<IdleConnection> {
        let key = self.idle.iter().find(|(_, idle)| may_go(idle)).map(|(key, _)| *key)?;
        self.idle.remove(&key)
    }
}

impl ConnectionPermit {
    /// Marks that a request has arrived; the connection is not idle until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> BusyConnection {
        if let Some(key) = self.key().take() {
            self.connection_limit.lock().idle.remove(&key);
        }
        BusyConnection(self.clone())
    }

    fn becomes_idle(&self) {
        let mut taken = self.connection_limit.lock();
        let key = taken.next;
        taken.next += 1;
        let idle = IdleConnection { from: self.from, since: Instant::now(), close: self.close.clone() };
        taken.idle.insert(key, idle);
        drop(taken);
        *self.key() = Some(key);
    }

    fn key(&self) -> MutexGuard<'_, Option<u64>> {
        self.idle.lock()
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.0.becomes_idle();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let key = self.key().take();
        let mut taken = self.connection_limit.lock();
        if let Some(key) = key {
            taken.idle.remove(&key);
        }
        taken.all = taken.all.saturating_sub(1);
        let left = taken.by.get(&self.from).copied().unwrap_or_default().saturating_sub(1);
        match left {
            0 => _ = taken.by.remove(&self.from),
            left => _ = taken.by.insert(self.from, left),
        }
    }
}

/// Raises the limit of open files towards `wanted` as far as permitted. Returns the limit afterwards.
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

    const NEAR: [u8; 4] = [127, 0, 0, 1];
    const FAR: [u8; 4] = [10, 0, 0, 1];

    /// A busy connection, and the token that would close it.
    fn busy(
        connection_limit: &ConnectionLimit,
        from: [u8; 4],
    ) -> Option<(BusyConnection, CancellationToken)> {
        let close = CancellationToken::new();
        let permit = connection_limit.take(from.into(), close.clone())?;
        Some((permit.busy(), close))
    }

    #[tokio::test]
    async fn one_address_does_not_take_all_seats_but_this_machine_may() {
        let connection_limit = ConnectionLimit::new(5, 2);
        let held = [busy(&connection_limit, FAR), busy(&connection_limit, FAR)];
        assert!(held.iter().all(Option::is_some) && busy(&connection_limit, FAR).is_none());
        let ours: Vec<_> = (0..3).map_while(|_| busy(&connection_limit, NEAR)).collect();
        assert_eq!(ours.len(), 3);
        assert!(busy(&connection_limit, NEAR).is_none() && busy(&connection_limit, [10, 0, 0, 2]).is_none());
        drop(held);
        assert!(busy(&connection_limit, FAR).is_some(), "a seat becomes free");
        drop(ours);
        let taken = connection_limit.lock();
        assert_eq!((taken.all, taken.by.len(), taken.idle.len()), (0, 0, 0), "nothing is left behind");
    }

    #[tokio::test]
    async fn when_all_are_taken_the_longest_idle_goes() {
        let connection_limit = ConnectionLimit::new(3, 2);
        let (first, second) = (busy(&connection_limit, FAR).unwrap(), busy(&connection_limit, FAR).unwrap());
        let silent = CancellationToken::new();
        let _silent = connection_limit.take(NEAR.into(), silent.clone()).unwrap();
        let (second_close, first_close) = (second.1.clone(), first.1.clone());
        let (second_seat, first_seat) = (second.0.0.clone(), first.0.0.clone());
        drop(second);
        drop(first);
        // An address over its limit loses one of its own connections, although another has been idle longer.
        let third = busy(&connection_limit, FAR).unwrap();
        assert_eq!(
            (silent.is_cancelled(), second_close.is_cancelled(), first_close.is_cancelled()),
            (false, true, false)
        );
        // An evicted connection counts until it is gone.
        drop(second_seat);
        let fourth = busy(&connection_limit, NEAR).unwrap();
        assert_eq!((silent.is_cancelled(), first_close.is_cancelled()), (true, false));
        drop(first_seat);
        assert_eq!((third.1.is_cancelled(), fourth.1.is_cancelled()), (false, false));
    }

    #[tokio::test]
    async fn connections_that_take_their_time_to_close_do_not_pile_up() {
        let connection_limit = ConnectionLimit::new(2, 2);
        let held: Vec<_> =
            (0..1000).map_while(|_| connection_limit.take(NEAR.into(), CancellationToken::new())).collect();
        assert_eq!(held.len(), 2 + CLOSING);
    }

    #[tokio::test]
    async fn one_address_has_no_more_than_its_share_however_slowly_its_connections_close() {
        let connection_limit = ConnectionLimit::new(1000, 2);
        let held: Vec<_> =
            (0..1000).map_while(|_| connection_limit.take(FAR.into(), CancellationToken::new())).collect();
        assert_eq!(held.len(), 2 + CLOSING);
        assert!(busy(&connection_limit, [10, 0, 0, 2]).is_some(), "others have theirs");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_from_the_end_of_its_last_answer() {
        let connection_limit = ConnectionLimit::new(2, 2);
        let (connection, close) = busy(&connection_limit, FAR).unwrap();
        let permit = connection.0.clone();
        tokio::time::advance(2 * IDLE).await;
        connection_limit.close_idle();
        assert!(!close.is_cancelled(), "it is being answered");
        drop(connection);
        tokio::time::advance(IDLE - Duration::from_millis(1)).await;
        connection_limit.close_idle();
        assert!(!close.is_cancelled());
        tokio::time::advance(Duration::from_millis(1)).await;
        connection_limit.close_idle();
        assert!(close.is_cancelled());
        drop(permit);
    }
}
