//! Who wants to verify us: few at a time, and for ten minutes at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use matrix_sdk::Client;
use matrix_sdk::encryption::verification::{VerificationRequest, VerificationRequestState};
use matrix_sdk::event_handler::EventHandlerDropGuard;
use matrix_sdk::ruma::events::key::verification::request::ToDeviceKeyVerificationRequestEvent;
use matrix_sdk::ruma::events::room::member::MembershipState;
use matrix_sdk::ruma::events::room::message::{MessageType, OriginalSyncRoomMessageEvent};
use matrix_sdk::ruma::{OwnedUserId, UserId};

use crate::login::Opened;

/// Requests that wait at a time. One person looks at them, one after the other.
const WAITING: usize = 8;

/// How long a request holds; Matrix says so.
const HOLDS: Duration = Duration::from_secs(10 * 60);

/// The requests of an account.
#[derive(Default)]
pub(crate) struct Requests {
    waiting: Mutex<Vec<Waiting>>,
    next: AtomicU64,
}

#[derive(Clone)]
pub(super) struct Waiting {
    pub id: String,
    pub user: OwnedUserId,
    /// What Matrix calls it.
    flow: String,
    since: Instant,
}

impl Requests {
    /// Takes a request down. One for each person, so that nobody takes the place of all others.
    fn note(&self, user: &UserId, flow: &str, own: bool, now: Instant) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| now.duration_since(one.since) < HOLDS);
        if waiting.iter().any(|one| one.user == user && one.flow == flow) {
            return false;
        }
        // Other devices of ours are few, and the operator's own.
        if !own {
            waiting.retain(|one| one.user != user);
            if waiting.len() >= WAITING {
                return false;
            }
        } else if waiting.len() >= 2 * WAITING {
            return false;
        }
        let id = (self.next.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        waiting.push(Waiting { id, user: user.to_owned(), flow: flow.to_owned(), since: now });
        true
    }

    /// Whether nobody but ourselves is taken down any more.
    fn are_full(&self) -> bool {
        self.all().len() >= WAITING
    }

    /// Lets go of one.
    fn forget(&self, id: &str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.id != id);
    }

    pub(super) fn all(&self) -> Vec<Waiting> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().filter(|one| one.since.elapsed() < HOLDS).cloned().collect()
    }
}

/// Takes requests down for as long as what is returned lives.
pub(crate) fn listen(opened: &Opened) -> [EventHandlerDropGuard; 2] {
    let (client, own) = (&opened.client, opened.own.clone());
    let direct = client.add_event_handler({
        let (requests, own) = (opened.requests.clone(), own.clone());
        move |event: ToDeviceKeyVerificationRequestEvent, client: Client| {
            let (requests, own) = (requests.clone(), event.sender == own);
            async move {
                take_down(&client, &requests, &event.sender, event.content.transaction_id.as_str(), own)
                    .await;
            }
        }
    });
    let requests = opened.requests.clone();
    let in_room = client.add_event_handler(move |event: OriginalSyncRoomMessageEvent, client: Client| {
        let (requests, own) = (requests.clone(), own.clone());
        async move {
            if let MessageType::VerificationRequest(request) = &event.content.msgtype
                && request.to == own
                && event.sender != own
            {
                take_down(&client, &requests, &event.sender, event.event_id.as_str(), false).await;
            }
        }
    });
    [direct, in_room].map(|handler| client.event_handler_drop_guard(handler))
}

/// Takes a request down, if there is room for it.
async fn take_down(client: &Client, requests: &Requests, user: &UserId, flow: &str, own: bool) {
    if requests.are_full() {
        make_room(client, requests, user).await;
    }
    if requests.note(user, flow, own, Instant::now()) {
        tracing::info!(%user, hint = "`talaria matrix verify` goes on with it", "somebody wants to verify us");
    } else {
        tracing::debug!(%user, "a verification request is not taken down");
    }
}

/// Lets go of what is over. If that is nothing and `user` is somebody from our rooms, the oldest stranger goes whom
/// the operator has not answered: anybody may write to a device, so strangers must not be able to fill the list.
async fn make_room(client: &Client, requests: &Requests, user: &UserId) {
    let mut unanswered = Vec::new();
    for waiting in requests.all() {
        match find(client, &waiting).await.map(|request| request.state()) {
            None | Some(VerificationRequestState::Done | VerificationRequestState::Cancelled(_)) => {
                requests.forget(&waiting.id);
            }
            Some(VerificationRequestState::Requested { .. }) => unanswered.push(waiting),
            Some(_) => {}
        }
    }
    if !requests.are_full() || !is_in_our_rooms(client, user).await {
        return;
    }
    for waiting in unanswered {
        if !is_in_our_rooms(client, &waiting.user).await {
            return requests.forget(&waiting.id);
        }
    }
}

async fn is_in_our_rooms(client: &Client, user: &UserId) -> bool {
    for room in client.joined_rooms() {
        let member = room.get_member_no_sync(user).await.ok().flatten();
        if member.is_some_and(|member| *member.membership() == MembershipState::Join) {
            return true;
        }
    }
    false
}

/// What the SDK knows of a request.
pub(super) async fn find(client: &Client, waiting: &Waiting) -> Option<VerificationRequest> {
    client.encryption().get_verification_request(&waiting.user, &waiting.flow).await
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::user_id;

    use super::*;

    #[test]
    fn each_person_waits_once_and_only_a_few_do() {
        let requests = Requests::default();
        let now = Instant::now();
        let ann = user_id!("@ann:example.org");
        assert!(requests.note(ann, "one", false, now));
        assert!(!requests.note(ann, "one", false, now));
        assert!(requests.note(ann, "two", false, now));
        assert_eq!(requests.all().len(), 1);

        for n in 0..100 {
            let user = UserId::parse(format!("@flood{n}:example.org")).unwrap();
            requests.note(&user, "x", false, now);
        }
        assert_eq!(requests.all().len(), WAITING);
        assert!(requests.are_full());
        // Our own devices still come through.
        assert!(requests.note(user_id!("@bot:example.org"), "mine", true, now));

        // What is over makes room.
        let over = requests.all();
        over.iter().take(2).for_each(|one| requests.forget(&one.id));
        assert!(requests.note(user_id!("@bob:example.org"), "next", false, now));

        // And after ten minutes others do.
        let later = now + HOLDS + Duration::from_secs(1);
        assert!(requests.note(user_id!("@zoe:example.org"), "late", false, later));
    }
}
