//! Slows down clients that guess keys.
//!
//! The caller passes the time in. Only wrong keys are counted, by client address and by the first bytes of the
//! key, so that guessing from one address, or with one prefix, locks no other client out. Repeats of one wrong
//! key, as from a program with an old key, are counted separately, so that the right key keeps working from
//! that address. Because a guesser can vary the first bytes, each address also has a limit of its own; keys
//! that were right from that address before are exempt from it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::Backoff;
use tokio::time::Instant;

/// Wrong keys per minute with the same first bytes; after that, keys are refused unchecked.
const GUESSES: u32 = 10;

/// Wrong keys per minute from one address, with the same first bytes or not.
const GUESSES_OF_ADDRESS: u32 = 100;

/// Period over which wrong keys are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// First and longest pause in which keys are refused unchecked. The pause doubles each time.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(60), Duration::from_secs(15 * 60));

/// After this long without a wrong key, a count starts anew.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);

/// Most counts held at once. More can only come from many addresses, against which counting is no help anyway.
const COUNTED: usize = 8192;

/// Most pairs of address and right key that are remembered.
const KNOWN: usize = 1024;

/// Bytes of a key that count as its first part. Few enough to reveal nothing, enough to tell people's keys
/// apart.
const FIRST: usize = 8;

/// Counts of recent wrong keys.
#[derive(Default)]
pub struct AuthThrottle {
    /// Hashes keys for the maps, so that the maps contain nothing of any key.
    hasher: RandomState,
    inner: Mutex<ThrottleState>,
}

#[derive(Default)]
struct ThrottleState {
    counts: HashMap<(IpAddr, ThrottleKey), FailureCount>,
    /// Addresses with the hashed first parts of keys that were right from there.
    known: HashSet<(IpAddr, u64)>,
}

/// Subject of a count of one address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ThrottleKey {
    /// Repeats of one key, by its hash.
    Key(u64),
    /// Keys with this first part, by its hash.
    First(u64),
    /// All keys from the address.
    Address,
}

struct FailureCount {
    wrong: u32,
    since: Instant,
    last: Instant,
    /// Keys are refused unchecked before this time.
    until: Option<Instant>,
    /// Pauses so far.
    pauses: Backoff,
}

impl AuthThrottle {
    /// Whether a key may be checked; if not, how long to wait.
    pub fn permit(&self, from: IpAddr, key: &[u8], now: Instant) -> Result<(), Duration> {
        let from = network(from);
        let (key, first) = self.names(key);
        let inner = self.lock();
        let paused =
            |what| inner.counts.get(&(from, what)).and_then(|count: &FailureCount| count.paused(now));
        let known = inner.known.contains(&(from, first));
        let all = if known { None } else { paused(ThrottleKey::Address) };
        match paused(ThrottleKey::Key(key)).max(paused(ThrottleKey::First(first))).max(all) {
            Some(after) => Err(after),
            None => Ok(()),
        }
    }

    /// Remaining pause, if this exact key was wrong so often that it need not be checked.
    pub fn repeats(&self, from: IpAddr, key: &[u8], now: Instant) -> Option<Duration> {
        let (key, _) = self.names(key);
        self.lock().counts.get(&(network(from), ThrottleKey::Key(key))).and_then(|count| count.paused(now))
    }

    /// Counts a wrong key.
    pub fn wrong(&self, from: IpAddr, key: &[u8], now: Instant) {
        let from = network(from);
        let (key, first) = self.names(key);
        let mut inner = self.lock();
        let anew = inner.count(from, ThrottleKey::Key(key), now).add(GUESSES, now);
        if anew {
            inner.count(from, ThrottleKey::First(first), now).add(GUESSES, now);
            inner.count(from, ThrottleKey::Address, now).add(GUESSES_OF_ADDRESS, now);
        }
    }

    /// Remembers a right key.
    pub fn right(&self, from: IpAddr, key: &[u8]) {
        let (_, first) = self.names(key);
        let known = &mut self.lock().known;
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert((network(from), first));
    }

    /// Forgets everything: the owner's key was replaced, and a key that was wrong may be right now.
    pub fn forget(&self) {
        *self.lock() = ThrottleState::default();
    }

    fn names(&self, key: &[u8]) -> (u64, u64) {
        let prefixes = crate::token::PREFIXES.iter();
        let first = match prefixes.into_iter().find_map(|prefix| key.strip_prefix(prefix.as_bytes())) {
            // The id of a token stands before its secret.
            Some(rest) => rest.split(|byte| *byte == b'_').next().unwrap_or(rest),
            None => key.get(..FIRST).unwrap_or(key),
        };
        (self.hasher.hash_one((0, key)), self.hasher.hash_one((1, first)))
    }

    fn lock(&self) -> MutexGuard<'_, ThrottleState> {
        self.inner.lock()
    }
}

impl ThrottleState {
    fn count(&mut self, from: IpAddr, what: ThrottleKey, now: Instant) -> &mut FailureCount {
        if self.counts.len() >= COUNTED && !self.counts.contains_key(&(from, what)) {
            self.evict(now);
        }
        let fresh = || FailureCount { wrong: 0, since: now, last: now, until: None, pauses: PAUSES };
        let count = self.counts.entry((from, what)).or_insert_with(fresh);
        if now.duration_since(count.last) > FORGOTTEN {
            *count = fresh();
        }
        count
    }

    /// Removes expired counts, or else the oldest eighth: never one by one, which would be expensive for each.
    fn evict(&mut self, now: Instant) {
        self.counts.retain(|_, count| now.duration_since(count.last) <= FORGOTTEN);
        if self.counts.len() >= COUNTED {
            let mut last: Vec<Instant> = self.counts.values().map(|count| count.last).collect();
            let (_, &mut oldest, _) = last.select_nth_unstable(COUNTED / 8);
            self.counts.retain(|_, count| count.last > oldest);
        }
    }
}

impl FailureCount {
    /// Counts one more wrong key. Returns whether it is the first in its window.
    fn add(&mut self, most: u32, now: Instant) -> bool {
        if now.duration_since(self.since) >= WINDOW {
            (self.wrong, self.since) = (0, now);
        }
        self.wrong += 1;
        self.last = now;
        let first = self.wrong == 1;
        if self.wrong >= most {
            self.until = Some(now + self.pauses.advance());
            // A new window begins.
            (self.wrong, self.since) = (0, now);
        }
        first
    }

    fn paused(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

/// The part of an address that a client cannot vary at will: for IPv6 its /64 network, which belongs to one
/// customer.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) if v6.is_loopback() => IpAddr::V6(v6),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 7));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 8));

    #[test]
    fn the_eleventh_wrong_key_of_a_minute_waits_longer_each_time() {
        let (wrong, start) = (AuthThrottle::default(), Instant::now());
        let guess = |number: u32, now| {
            let key = format!("the same beginning {number}");
            let permitted = wrong.permit(HERE, key.as_bytes(), now);
            if permitted.is_ok() {
                wrong.wrong(HERE, key.as_bytes(), now);
            }
            permitted
        };
        let mut now = start;
        for (round, pause) in [60, 120, 240, 480, 900, 900].into_iter().enumerate() {
            for number in 0..10 {
                assert_eq!(guess(100 * round as u32 + number, now), Ok(()), "{round} {number}");
            }
            assert_eq!(guess(99, now), Err(Duration::from_secs(pause)));
            now += Duration::from_secs(pause);
        }
        // Other addresses and keys with other first parts are not affected.
        assert_eq!(wrong.permit(THERE, b"the same beginning", start), Ok(()));
        assert_eq!(wrong.permit(HERE, b"another beginning", start), Ok(()));
        now += FORGOTTEN + Duration::from_secs(1);
        for number in 0..10 {
            assert_eq!(guess(number, now), Ok(()));
        }
        assert_eq!(guess(99, now), Err(PAUSES.pause()), "all was forgotten");
    }

    #[test]
    fn a_program_with_an_old_key_holds_up_nobody_but_itself() {
        let (wrong, start) = (AuthThrottle::default(), Instant::now());
        let mut now = start;
        let mut looked_at = 0;
        for _ in 0..3600 {
            now += Duration::from_secs(1);
            if wrong.permit(HERE, b"talaria-key-old", now).is_ok() {
                wrong.wrong(HERE, b"talaria-key-old", now);
                looked_at += 1;
            }
            assert_eq!(wrong.permit(HERE, b"talaria-key-new", now), Ok(()));
        }
        assert!((20..80).contains(&looked_at), "{looked_at}");
    }

    #[test]
    fn ever_other_beginnings_come_to_an_end_but_not_for_who_was_right_before() {
        let (wrong, now) = (AuthThrottle::default(), Instant::now());
        wrong.right(HERE, b"the owner's own key");
        for number in 0..100 {
            let key = format!("{number} guesses");
            assert_eq!(wrong.permit(HERE, key.as_bytes(), now), Ok(()));
            wrong.wrong(HERE, key.as_bytes(), now);
        }
        assert_eq!(wrong.permit(HERE, b"yet another", now), Err(PAUSES.pause()));
        assert_eq!(wrong.permit(HERE, b"the owner's own key", now), Ok(()));
        assert_eq!(wrong.permit(THERE, b"yet another", now), Ok(()));
    }

    #[test]
    fn tokens_are_told_apart_by_their_ids() {
        let (wrong, now) = (AuthThrottle::default(), Instant::now());
        for number in 0..10 {
            wrong.wrong(HERE, format!("tlr_0123abcd_{number}").as_bytes(), now);
        }
        assert!(wrong.permit(HERE, b"tlr_0123abcd_right", now).is_err());
        assert_eq!(wrong.permit(HERE, b"tlr_0123abce_right", now), Ok(()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (wrong, start) = (AuthThrottle::default(), Instant::now());
        for number in 0..20_000_u32 {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
            let now = start + Duration::from_millis(u64::from(number));
            wrong.wrong(from, b"any", now);
            wrong.right(from, b"any");
        }
        let inner = wrong.lock();
        assert!(inner.counts.len() <= COUNTED && inner.known.len() <= KNOWN);
        assert!(
            inner
                .counts
                .contains_key(&(IpAddr::V4(std::net::Ipv4Addr::from_bits(19_999)), ThrottleKey::Address))
        );
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let parse = |text: &str| network(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:2"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
        assert_ne!(parse("::1"), parse("::2"));
    }
}
