//! Requests to verify us: a few at a time, each for at most ten minutes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use matrix_sdk::Client;
use matrix_sdk::encryption::verification::{VerificationRequest, VerificationRequestState};
use matrix_sdk::event_handler::EventHandlerDropGuard;
use matrix_sdk::ruma::events::key::verification::request::ToDeviceKeyVerificationRequestEvent;
use matrix_sdk::ruma::events::room::member::MembershipState;
use matrix_sdk::ruma::events::room::message::{MessageType, OriginalSyncRoomMessageEvent};
use matrix_sdk::ruma::{DeviceId, EventId, OwnedUserId, UserId};
use parking_lot::Mutex;
use talaria_platform::AuthorTrust;
use tokio::sync::mpsc;

use super::plaintext_echo;
use crate::login::OpenedAccount;

/// Requests that may wait at a time. The operator handles them one after the other.
const WAITING: usize = 8;

/// Lifetime of a request, as Matrix specifies it.
const HOLDS: Duration = Duration::from_secs(10 * 60);

/// The verification requests of an account.
#[derive(Default)]
pub(crate) struct VerificationRequests {
    waiting: Mutex<Vec<PendingRequest>>,
    next: AtomicU64,
}

#[derive(Clone)]
pub(super) struct PendingRequest {
    pub id: String,
    pub user: OwnedUserId,
    /// Matrix' id of the verification: a transaction id or an event id.
    flow: String,
    /// Whether the other device has no keys to read our messages, so `plaintext_echo` sends our part in plaintext.
    aloud: bool,
    /// Whether the operator has acted on it. Before that, nothing is sent in plaintext: a second request makes the
    /// SDK cancel both by itself, and then anybody could make us send as much as they like.
    answered: bool,
    /// Types of our events that were sent in plaintext. Each is sent once, however often the sync returns it.
    said: BTreeSet<&'static str>,
    since: Instant,
}

/// A verification request from the network.
struct IncomingRequest<'a> {
    user: &'a UserId,
    flow: &'a str,
    /// Whether another device of our own account asks.
    own: bool,
    aloud: bool,
}

impl VerificationRequests {
    /// Stores a request. One for each person, so that nobody can take all places.
    fn note(&self, asked: &IncomingRequest<'_>, now: Instant) -> bool {
        let IncomingRequest { user, flow, own, aloud } = *asked;
        let mut waiting = self.waiting.lock();
        waiting.retain(|one| now.duration_since(one.since) < HOLDS);
        if waiting.iter().any(|one| one.user == user && one.flow == flow) {
            return false;
        }
        // Other devices of ours are few, and belong to the operator.
        if !own {
            waiting.retain(|one| one.user != user);
            if waiting.len() >= WAITING {
                return false;
            }
        } else if waiting.len() >= 2 * WAITING {
            return false;
        }
        let id = (self.next.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let (user, flow) = (user.to_owned(), flow.to_owned());
        waiting.push(PendingRequest {
            id,
            user,
            flow,
            aloud,
            answered: false,
            said: BTreeSet::new(),
            since: now,
        });
        true
    }

    /// Whether nobody wants to verify us.
    pub(crate) fn are_none(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.iter().all(|one| one.since.elapsed() >= HOLDS)
    }

    /// Whether only requests of our own devices are still accepted.
    fn are_full(&self) -> bool {
        self.all().len() >= WAITING
    }

    /// Removes a request.
    fn forget(&self, id: &str) {
        self.waiting.lock().retain(|one| one.id != id);
    }

    /// Notes that the operator acts on a request.
    pub(super) fn answer(&self, id: &str) {
        let mut waiting = self.waiting.lock();
        waiting.iter_mut().filter(|one| one.id == id).for_each(|one| one.answered = true);
    }

    /// Whether our part of this verification still goes out in plaintext.
    pub(super) fn is_aloud(&self, flow: &EventId) -> bool {
        self.all().iter().any(|one| one.aloud && one.answered && one.flow == flow.as_str())
    }

    /// Whether to send this event of ours in plaintext now. Returns true once per verification and type.
    pub(super) fn says_aloud(&self, flow: &EventId, part: &'static str) -> bool {
        let mut waiting = self.waiting.lock();
        let one = waiting.iter_mut().find(|one| one.flow == flow.as_str() && one.since.elapsed() < HOLDS);
        one.is_some_and(|one| one.aloud && one.answered && one.said.insert(part))
    }

    pub(super) fn all(&self) -> Vec<PendingRequest> {
        let waiting = self.waiting.lock();
        waiting.iter().filter(|one| one.since.elapsed() < HOLDS).cloned().collect()
    }
}

/// Stores requests while the returned handlers live. The returned future never ends; while it is polled, people
/// without our room keys get our part in plaintext. `trust` says who has those keys.
pub(crate) fn listen(
    opened: &OpenedAccount,
    trust: AuthorTrust,
) -> (Vec<EventHandlerDropGuard>, impl Future<Output = ()>) {
    let (client, own) = (&opened.client, opened.own.clone());
    let direct = client.add_event_handler({
        let (requests, own) = (opened.requests.clone(), own.clone());
        move |event: ToDeviceKeyVerificationRequestEvent, client: Client| {
            let (requests, own) = (requests.clone(), event.sender == own);
            async move {
                let flow = event.content.transaction_id.as_str();
                let asked = IncomingRequest { user: &event.sender, flow, own, aloud: false };
                take_down(&client, &requests, &asked).await;
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
                let (user, flow) = (&*event.sender, event.event_id.as_str());
                let aloud = !can_read(&client, trust, user, &request.from_device).await;
                take_down(&client, &requests, &IncomingRequest { user, flow, own: false, aloud }).await;
            }
        }
    });
    let (line, said) = mpsc::channel(plaintext_echo::WAITING);
    let aloud = match trust {
        AuthorTrust::Verified => Some(plaintext_echo::listen(opened, line)),
        AuthorTrust::Violated | AuthorTrust::Network | AuthorTrust::CrossSigned => None,
    };
    let all = [Some(direct), Some(in_room), aloud].into_iter().flatten();
    let all = all.map(|handler| client.event_handler_drop_guard(handler)).collect();
    (all, plaintext_echo::say_all(&opened.requests, said))
}

/// Whether a device that asks gets the keys of our messages. Where devices need only be signed by their owner, an
/// unsigned device cannot be verified either.
async fn can_read(client: &Client, trust: AuthorTrust, user: &UserId, device: &DeviceId) -> bool {
    match trust {
        AuthorTrust::Violated | AuthorTrust::Network | AuthorTrust::CrossSigned => true,
        AuthorTrust::Verified => {
            let device = client.encryption().get_device(user, device).await.ok().flatten();
            device.is_some_and(|device| device.is_verified())
        }
    }
}

/// Stores a request, if there is room for it.
async fn take_down(client: &Client, requests: &VerificationRequests, asked: &IncomingRequest<'_>) {
    let user = asked.user;
    if requests.are_full() {
        make_room(client, requests, user).await;
    }
    if requests.note(asked, Instant::now()) {
        tracing::info!(%user, hint = "`talaria matrix verify` goes on with it", "somebody wants to verify us");
    } else {
        tracing::debug!(%user, "a verification request is not stored: it is known, or too many wait");
    }
}

/// Removes requests that are over. If the list is still full and `user` is in one of our rooms, removes the oldest
/// request of a stranger that the operator has not answered: anybody may write to a device, so strangers must not be
/// able to fill the list.
async fn make_room(client: &Client, requests: &VerificationRequests, user: &UserId) {
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

/// The SDK's state of a request.
pub(super) async fn find(client: &Client, waiting: &PendingRequest) -> Option<VerificationRequest> {
    client.encryption().get_verification_request(&waiting.user, &waiting.flow).await
}

#[cfg(test)]
mod tests {
    use matrix_sdk::ruma::{event_id, user_id};

    use super::*;

    fn asks<'a>(user: &'a UserId, flow: &'a str) -> IncomingRequest<'a> {
        IncomingRequest { user, flow, own: false, aloud: false }
    }

    #[test]
    fn each_person_waits_once_and_only_a_few_do() {
        let requests = VerificationRequests::default();
        let now = Instant::now();
        let ann = user_id!("@ann:example.org");
        assert!(requests.note(&asks(ann, "one"), now));
        assert!(!requests.note(&asks(ann, "one"), now));
        assert!(requests.note(&asks(ann, "two"), now));
        assert_eq!(requests.all().len(), 1);

        for n in 0..100 {
            let user = UserId::parse(format!("@flood{n}:example.org")).unwrap();
            requests.note(&asks(&user, "x"), now);
        }
        assert_eq!(requests.all().len(), WAITING);
        assert!(requests.are_full());
        // Our own devices are still accepted.
        assert!(
            requests.note(&IncomingRequest { own: true, ..asks(user_id!("@bot:example.org"), "mine") }, now)
        );

        // Requests that are over make room.
        let over = requests.all();
        over.iter().take(2).for_each(|one| requests.forget(&one.id));
        assert!(requests.note(&asks(user_id!("@bob:example.org"), "next"), now));

        // After ten minutes the others make room too.
        let later = now + HOLDS + Duration::from_secs(1);
        assert!(requests.note(&asks(user_id!("@zoe:example.org"), "late"), later));
    }

    #[test]
    fn only_a_verification_that_the_operator_answered_and_that_has_to_be_heard_is_said_aloud() {
        let (requests, now) = (VerificationRequests::default(), Instant::now());
        let (ann, bob) = (user_id!("@ann:example.org"), user_id!("@bob:example.org"));
        let (deaf, reads) = (event_id!("$deaf"), event_id!("$reads"));
        requests.note(&IncomingRequest { aloud: true, ..asks(ann, deaf.as_str()) }, now);
        requests.note(&asks(bob, reads.as_str()), now);
        assert!(!requests.is_aloud(deaf) && !requests.says_aloud(deaf, "cancel"));

        requests.all().iter().for_each(|one| requests.answer(&one.id));
        assert!(requests.is_aloud(deaf) && !requests.is_aloud(reads));
        assert!(requests.says_aloud(deaf, "ready"));
        assert!(!requests.says_aloud(reads, "ready") && !requests.says_aloud(event_id!("$other"), "ready"));
    }

    #[test]
    fn each_part_is_said_aloud_once_and_a_second_request_waits_for_the_operator_again() {
        let (requests, now) = (VerificationRequests::default(), Instant::now());
        let ann = user_id!("@ann:example.org");
        let (first, second) = (event_id!("$first"), event_id!("$second"));
        requests.note(&IncomingRequest { aloud: true, ..asks(ann, first.as_str()) }, now);
        requests.answer(&requests.all()[0].id);
        assert!(requests.says_aloud(first, "ready") && !requests.says_aloud(first, "ready"));
        // A repeated request changes nothing.
        requests.note(&IncomingRequest { aloud: true, ..asks(ann, first.as_str()) }, now);
        assert!(!requests.says_aloud(first, "ready") && requests.says_aloud(first, "key"));

        requests.note(&IncomingRequest { aloud: true, ..asks(ann, second.as_str()) }, now);
        assert!(!requests.is_aloud(first) && !requests.is_aloud(second));
        assert!(!requests.says_aloud(first, "cancel") && !requests.says_aloud(second, "cancel"));
    }
}
