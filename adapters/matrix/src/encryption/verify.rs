//! Interactive verification: a person begins it in their client, the operator compares the pictures.
//!
//! Who may talk to us is not known here, so nothing is accepted by itself: requests wait for the operator, few of
//! them, and for ten minutes at most. Nothing runs in between: each call of the operator's goes on from what the SDK
//! knows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use matrix_sdk::Client;
use matrix_sdk::encryption::verification::{
    SasState, SasVerification, Verification as Flow, VerificationRequest, VerificationRequestState,
};
use matrix_sdk::event_handler::EventHandlerDropGuard;
use matrix_sdk::ruma::events::key::verification::VerificationMethod;
use matrix_sdk::ruma::events::key::verification::request::ToDeviceKeyVerificationRequestEvent;
use matrix_sdk::ruma::events::room::member::MembershipState;
use matrix_sdk::ruma::events::room::message::{MessageType, OriginalSyncRoomMessageEvent};
use matrix_sdk::ruma::{OwnedUserId, UserId};
use serde::{Deserialize, Serialize};

use crate::login::Opened;
use crate::trouble::Trouble;

/// Requests that wait at a time. One person looks at them, one after the other.
const WAITING: usize = 8;

/// How long a request holds; Matrix says so.
const HOLDS: Duration = Duration::from_secs(10 * 60);

/// How long a call of the operator's waits for the other side. Shorter than the control socket's patience.
const PATIENCE: Duration = Duration::from_secs(12);

/// How long the other side has to begin before we do.
const THEIR_TURN: Duration = Duration::from_secs(2);

/// A verification as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// What it is called in commands.
    pub id: String,
    /// Who wants to be sure of us.
    pub user: String,
    /// With which of their devices, as far as it is known.
    pub device: Option<String>,
    /// It is another device of our own account.
    pub own: bool,
    /// How far it is.
    pub stage: Stage,
    /// The pictures both sides compare, each with its name; empty until they are there.
    pub emoji: Vec<(String, String)>,
    /// The numbers that say the same, for clients that show no pictures.
    pub numbers: Option<(u16, u16, u16)>,
}

impl Verification {
    /// Whether somebody still has to do something.
    pub fn is_open(&self) -> bool {
        match self.stage {
            Stage::Asked | Stage::Accepted | Stage::Compare | Stage::Confirmed => true,
            Stage::Done | Stage::Cancelled(_) => false,
        }
    }
}

/// How far a verification is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// They wait for the operator to accept.
    Asked,
    /// Accepted; the other side has not gone on yet.
    Accepted,
    /// The pictures can be compared.
    Compare,
    /// We said that they match; the other side has not yet.
    Confirmed,
    /// Both did.
    Done,
    /// It was broken off, with the reason.
    Cancelled(String),
}

/// What the operator does with a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Begins, and goes on until the pictures are there.
    Accept,
    /// The pictures are the same on both sides.
    Match,
    /// They are not: somebody is in between.
    Differ,
    /// Not now.
    Cancel,
}

/// The requests of an account.
#[derive(Default)]
pub(crate) struct Requests {
    waiting: Mutex<Vec<Waiting>>,
    next: AtomicU64,
}

#[derive(Clone)]
struct Waiting {
    id: String,
    user: OwnedUserId,
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

    fn all(&self) -> Vec<Waiting> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().filter(|one| one.since.elapsed() < HOLDS).cloned().collect()
    }
}

/// Takes requests down for as long as what is returned lives.
pub(super) fn listen(opened: &Opened) -> [EventHandlerDropGuard; 2] {
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

/// All that wait or are under way.
pub(crate) async fn list(opened: &Opened) -> Vec<Verification> {
    let mut views = Vec::new();
    for waiting in opened.requests.all() {
        if let Some(request) = find(&opened.client, &waiting).await {
            views.push(view(&waiting, &request));
        }
    }
    views
}

/// Does what the operator says, and waits a moment for the other side.
pub(crate) async fn answer(opened: &Opened, id: &str, answer: Answer) -> Result<Verification, Trouble> {
    let missing = || Trouble {
        message: format!("there is no verification `{}`", id.chars().take(20).collect::<String>()),
        hint: "`talaria matrix verify list` shows those that wait; each holds for ten minutes".to_owned(),
    };
    let waiting = opened.requests.all().into_iter().find(|one| one.id == id).ok_or_else(missing)?;
    let request = find(&opened.client, &waiting).await.ok_or_else(missing)?;
    let doing = async {
        match answer {
            Answer::Accept => go_on(&request, is_comparable).await,
            Answer::Match => match sas(&request) {
                Some(sas) if sas.can_be_presented() => {
                    sas.confirm().await?;
                    go_on(&request, |_| false).await
                }
                Some(_) | None => Ok(()),
            },
            Answer::Differ => match sas(&request) {
                Some(sas) => sas.mismatch().await,
                None => request.cancel().await,
            },
            Answer::Cancel => match sas(&request) {
                Some(sas) => sas.cancel().await,
                None => request.cancel().await,
            },
        }
    };
    match tokio::time::timeout(PATIENCE, doing).await {
        // What has not happened yet is seen in the view, and the operator asks again.
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => {
            return Err(Trouble {
                message: format!("the homeserver did not take it: {error}"),
                hint: "try again".to_owned(),
            });
        }
    }
    let view = view(&waiting, &request);
    match answer {
        Answer::Match if matches!(view.stage, Stage::Asked | Stage::Accepted) => Err(Trouble {
            message: "there is nothing to compare yet".to_owned(),
            hint: format!("`talaria matrix verify accept {id}` shows the pictures first"),
        }),
        Answer::Accept | Answer::Match | Answer::Differ | Answer::Cancel => Ok(view),
    }
}

/// Does our part until `enough`, or until it is over.
async fn go_on(
    request: &VerificationRequest,
    enough: fn(&SasVerification) -> bool,
) -> Result<(), matrix_sdk::Error> {
    let mut changes = std::pin::pin!(request.changes());
    loop {
        match request.state() {
            VerificationRequestState::Requested { .. } => {
                request.accept_with_methods(vec![VerificationMethod::SasV1]).await?;
            }
            VerificationRequestState::Ready { .. } => {
                let theirs = async {
                    while let Some(state) = changes.next().await {
                        if !matches!(state, VerificationRequestState::Ready { .. }) {
                            return;
                        }
                    }
                };
                if tokio::time::timeout(THEIR_TURN, theirs).await.is_err() {
                    request.start_sas().await?;
                }
            }
            VerificationRequestState::Transitioned { verification: Flow::SasV1(sas), .. } => {
                return compare(&sas, enough).await;
            }
            // A kind that we did not offer.
            VerificationRequestState::Transitioned { .. } => return request.cancel().await,
            VerificationRequestState::Created { .. }
            | VerificationRequestState::Done
            | VerificationRequestState::Cancelled(_) => return Ok(()),
        }
    }
}

async fn compare(
    sas: &SasVerification,
    enough: fn(&SasVerification) -> bool,
) -> Result<(), matrix_sdk::Error> {
    let mut changes = std::pin::pin!(sas.changes());
    loop {
        match sas.state() {
            SasState::Started { .. } if !sas.we_started() => sas.accept().await?,
            SasState::Done { .. } | SasState::Cancelled(_) => return Ok(()),
            SasState::Created { .. }
            | SasState::Started { .. }
            | SasState::Accepted { .. }
            | SasState::KeysExchanged { .. }
            | SasState::Confirmed => {}
        }
        if enough(sas) || changes.next().await.is_none() {
            return Ok(());
        }
    }
}

fn is_comparable(sas: &SasVerification) -> bool {
    sas.can_be_presented()
}

async fn find(client: &Client, waiting: &Waiting) -> Option<VerificationRequest> {
    client.encryption().get_verification_request(&waiting.user, &waiting.flow).await
}

fn sas(request: &VerificationRequest) -> Option<SasVerification> {
    match request.state() {
        VerificationRequestState::Transitioned { verification: Flow::SasV1(sas), .. } => Some(sas),
        _ => None,
    }
}

fn view(waiting: &Waiting, request: &VerificationRequest) -> Verification {
    let mut view = Verification {
        id: waiting.id.clone(),
        user: waiting.user.to_string(),
        device: None,
        own: request.is_self_verification(),
        stage: Stage::Asked,
        emoji: Vec::new(),
        numbers: None,
    };
    match request.state() {
        VerificationRequestState::Requested { other_device_data, .. } => {
            view.device = Some(other_device_data.device_id().to_string());
        }
        VerificationRequestState::Ready { other_device_data, .. } => {
            view.device = Some(other_device_data.device_id().to_string());
            view.stage = Stage::Accepted;
        }
        VerificationRequestState::Transitioned { verification } => {
            view.stage = Stage::Accepted;
            if let Flow::SasV1(sas) = verification {
                view.device = Some(sas.other_device().device_id().to_string());
                show(&mut view, &sas);
            }
        }
        VerificationRequestState::Created { .. } => {}
        VerificationRequestState::Done => view.stage = Stage::Done,
        VerificationRequestState::Cancelled(info) => view.stage = cancelled(info.reason()),
    }
    view
}

fn show(view: &mut Verification, sas: &SasVerification) {
    match sas.state() {
        SasState::Created { .. } | SasState::Started { .. } | SasState::Accepted { .. } => {}
        SasState::KeysExchanged { emojis, decimals } => {
            view.stage = Stage::Compare;
            view.numbers = Some(decimals);
            if let Some(short) = emojis {
                let words = short.emojis.iter();
                view.emoji = words.map(|one| (one.symbol.to_owned(), one.description.to_owned())).collect();
            }
        }
        SasState::Confirmed => view.stage = Stage::Confirmed,
        SasState::Done { .. } => view.stage = Stage::Done,
        SasState::Cancelled(info) => view.stage = cancelled(info.reason()),
    }
}

/// The reason is the other side's text: one short line of it.
fn cancelled(reason: &str) -> Stage {
    Stage::Cancelled(reason.chars().filter(|c| !c.is_control()).take(100).collect())
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
