//! Remembers our own messages and the threads that we take part in: a reply to one, and a message in the other, is for
//! us.
//!
//! `outbound` adds what it sends: a response of the homeserver brings our own messages only together with those of
//! others (see `inbound::wake`). What is not remembered is looked up on the homeserver.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use matrix_sdk::ruma::{EventId, OwnedEventId, OwnedRoomId, RoomId};
use parking_lot::Mutex;

/// Values that each cache remembers. A thousand conversations back is far enough.
const REMEMBERED: usize = 2_000;

/// Our own messages, and the threads that we take part in.
#[derive(Default)]
pub(crate) struct OwnMessages {
    messages: Mutex<RecentCache<(OwnedRoomId, OwnedEventId)>>,
    /// By their first event.
    threads: Mutex<RecentCache<(OwnedRoomId, OwnedEventId)>>,
}

impl OwnMessages {
    /// Remembers a message of ours and its thread.
    pub fn wrote(&self, room: &RoomId, event: &EventId, thread: Option<&EventId>) {
        self.messages.lock().insert((room.to_owned(), event.to_owned()));
        if let Some(root) = thread {
            self.takes_part(room, root);
        }
    }

    /// Remembers that we take part in a thread.
    pub fn takes_part(&self, room: &RoomId, root: &EventId) {
        self.threads.lock().insert((room.to_owned(), root.to_owned()));
    }

    /// Whether this is known to be our message.
    pub fn has(&self, room: &RoomId, event: &EventId) -> bool {
        self.messages.lock().has(&(room.to_owned(), event.to_owned()))
    }

    /// Whether we are known to take part in a thread, or to have begun it.
    pub fn has_thread(&self, room: &RoomId, root: &EventId) -> bool {
        let key = (room.to_owned(), root.to_owned());
        self.threads.lock().has(&key) || self.messages.lock().has(&key)
    }
}

/// The last [`REMEMBERED`] values.
pub(crate) struct RecentCache<T> {
    known: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for RecentCache<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Eq + Hash + Clone> RecentCache<T> {
    pub fn has(&self, value: &T) -> bool {
        self.known.contains(value)
    }

    pub fn insert(&mut self, value: T) {
        if !self.known.insert(value.clone()) {
            return;
        }
        self.order.push_back(value);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::{event_id, room_id};

    use super::*;

    #[test]
    fn a_thread_is_ours_once_we_wrote_in_it_or_began_it() {
        let (written, room) = (OwnMessages::default(), room_id!("!room"));
        written.wrote(room, event_id!("$answer"), Some(event_id!("$root")));
        assert!(written.has(room, event_id!("$answer")) && !written.has(room, event_id!("$root")));
        assert!(
            written.has_thread(room, event_id!("$root")) && written.has_thread(room, event_id!("$answer"))
        );
        assert!(!written.has_thread(room_id!("!another"), event_id!("$root")));
    }

    #[test]
    fn only_so_much_is_remembered() {
        let mut recent = RecentCache::default();
        for number in 0..=REMEMBERED {
            recent.insert(number);
            recent.insert(number);
        }
        assert_eq!(recent.known.len(), REMEMBERED);
        assert!(!recent.has(&0) && recent.has(&REMEMBERED));
    }
}
