//! Who wants to verify us: few at a time, and for ten minutes at most.

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

/// Requests that wait at a time. One person looks at them, one after the other.
const WAITING: usize = 8;

/// How long a request holds; Matrix says so.
const HOLDS: Duration = Duration::from_secs(10 * 60);

/// The requests of an account.
#[derive(Default)]
pub(crate) struct VerificationRequests {
    waiting: Mutex<Vec<PendingRequest>>,
    next: AtomicU64,
}

#[derive(Clone)]
pub(super) struct PendingRequest {
    pub id: String,
    pub user: OwnedUserId,
    /// What Matrix calls it.
    flow: String,
    /// True if the other device has no keys to read us, so `plaintext_echo` sends our part in the clear.
    aloud: bool,
    /// The operator has gone on with it. Before that nothing of it is said in the clear: a second request makes the SDK
    /// break both off by itself, and then anybody could have us say as much as they like.
    answered: bool,
    /// Parts of ours that were said in the clear. Each is said once, however often it comes back to us.
    said: BTreeSet<&'static str>,
    since: Instant,
}

/// Somebody asks.
struct IncomingRequest<'a> {
    user: &'a UserId,
    flow: &'a str,
    /// It is another device of our own account.
    own: bool,
    aloud: bool,
}

impl VerificationRequests {
    /// Takes a request down. One for each person, so that nobody takes the place of all others.
    fn note(&self, asked: &IncomingRequest<'_>, now: Instant) -> bool {
        let IncomingRequest { user, flow, own, aloud } = *asked;
        let mut waiting = self.waiting.lock();
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

    /// Whether nobody but ourselves is taken down any more.
    fn are_full(&self) -> bool {
        self.all().len() >= WAITING
    }

    /// Lets go of one.
    fn forget(&self, id: &str) {
        self.waiting.lock().retain(|one| one.id != id);
    }

    /// The operator goes on with one.
    pub(super) fn answer(&self, id: &str) {
        let mut waiting = self.waiting.lock();
        waiting.iter_mut().filter(|one| one.id == id).for_each(|one| one.answered = true);
    }

    /// Whether our part of a verification is said in the clear, still.
    pub(super) fn is_aloud(&self, flow: &EventId) -> bool {
        self.all().iter().any(|one| one.aloud && one.answered && one.flow == flow.as_str())
    }

    /// Whether a part of ours in a verification is to be said in the clear now. That is so once.
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

/// Takes requests down for as long as the handlers live, and answers in a way that can be read while the future is
/// driven, which never ends: `trust` says who can read us.
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

/// Whether a device that asks gets the keys to what we write. Where devices need only be signed by their owner, those
/// that are not cannot be verified either.
async fn can_read(client: &Client, trust: AuthorTrust, user: &UserId, device: &DeviceId) -> bool {
    match trust {
        AuthorTrust::Violated | AuthorTrust::Network | AuthorTrust::CrossSigned => true,
        AuthorTrust::Verified => {
            let device = client.encryption().get_device(user, device).await.ok().flatten();
            device.is_some_and(|device| device.is_verified())
        }
    }
}

/// Takes a request down, if there is room for it.
async fn take_down(client: &Client, requests: &VerificationRequests, asked: &IncomingRequest<'_>) {
    let user = asked.user;
    if requests.are_full() {
        make_room(client, requests, user).await;
    }
    if requests.note(asked, Instant::now()) {
        tracing::info!(%user, hint = "`talaria matrix verify` goes on with it", "somebody wants to verify us");
    } else {
        tracing::debug!(%user, "a verification request is not taken down");
    }
}

/// Lets go of what is over. If that is nothing and `user` is somebody from our rooms, the oldest stranger goes whom
/// the operator has not answered: anybody may write to a device, so strangers must not be able to fill the list.
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

/// What the SDK knows of a request.
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
        // Our own devices still come through.
        assert!(
            requests.note(&IncomingRequest { own: true, ..asks(user_id!("@bot:example.org"), "mine") }, now)
        );

        // What is over makes room.
        let over = requests.all();
        over.iter().take(2).for_each(|one| requests.forget(&one.id));
        assert!(requests.note(&asks(user_id!("@bob:example.org"), "next"), now));

        // And after ten minutes others do.
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
        // The same request once more changes nothing.
        requests.note(&IncomingRequest { aloud: true, ..asks(ann, first.as_str()) }, now);
        assert!(!requests.says_aloud(first, "ready") && requests.says_aloud(first, "key"));

        requests.note(&IncomingRequest { aloud: true, ..asks(ann, second.as_str()) }, now);
        assert!(!requests.is_aloud(first) && !requests.is_aloud(second));
        assert!(!requests.says_aloud(first, "cancel") && !requests.says_aloud(second, "cancel"));
    }
}
