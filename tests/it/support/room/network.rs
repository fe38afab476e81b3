//! The network behind the rooms: its events, and what a test may ask and arrange. [`platform`](super::platform) is
//! the gateway's view of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{
    BodyKind, EventId, Inbox, MediaId, MessageBody, MessageId, PlatformCapabilities, PlatformErrorKind,
    RateLimit, RoomEvent, SendKey,
};
use tokio::sync::watch;

use super::requests::{Bucket, Fault, Gate, Request};
use super::{Line, Room};

/// Longest wait for a condition, in the test's own time.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The network; cheap to clone. Outlives every gateway that reads it.
#[derive(Clone)]
pub struct Chat {
    pub(super) about: PlatformCapabilities,
    state: Arc<Mutex<State>>,
    /// The life of the gateway that holds this clone: the requests of a killed gateway have no effect.
    pub(super) life: u64,
    /// Counts changes, so that tests can wait for one.
    pub(super) changes: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
pub(super) struct State {
    /// The people's events, oldest first; a cursor is an index.
    pub events: Vec<RoomEvent>,
    /// Number of events that a gateway has accepted.
    pub accepted: usize,
    pub timelines: HashMap<String, Vec<Line>>,
    pub messages: Vec<Posted>,
    pub keys: HashMap<SendKey, usize>,
    pub requests: Vec<Request>,
    pub under_way: Vec<String>,
    pub faults: VecDeque<(bool, Fault)>,
    pub bucket: Option<Bucket>,
    pub files: HashMap<MediaId, Vec<u8>>,
    /// Faults of the next fetches.
    pub fetching: VecDeque<Fault>,
    /// Whether the next batch happened while nobody read.
    pub late: bool,
    pub typing: HashMap<String, bool>,
    /// Read receipts and reactions, without typing.
    pub signals: Vec<Shown>,
    pub violations: Vec<String>,
    /// Faults of the next deletions.
    pub deletion_fails: VecDeque<PlatformErrorKind>,
    /// The current life; only its gateway's requests have an effect.
    pub life: u64,
    /// Faults of the next reads.
    pub reading_fails: VecDeque<PlatformErrorKind>,
    /// How often a gateway began to read.
    pub runs: usize,
    /// Whether reactions work. A gateway has to open the account first, which it does when it begins to read.
    pub open: bool,
    /// The next opening of the account waits for this gate.
    pub opening: Option<Gate>,
    /// Faults of the next reactions.
    pub reaction_fails: VecDeque<PlatformErrorKind>,
    /// The room where no message can be deleted at the moment.
    pub no_deletion_in: Option<String>,
    /// Whether the network is unreachable now, while reading keeps trying.
    pub away: bool,
    /// The inbox of the gateway that reads now. Weak, because a gateway that has ended must close its store.
    pub inbox: Option<Weak<dyn Inbox>>,
}

/// A sign beside the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Everything up to this event was marked as read.
    Read(EventId),
    /// A reaction to a message.
    Mark(MessageId, String),
}

/// A message of ours.
pub(super) struct Posted {
    pub room: String,
    pub body: MessageBody,
    pub revisions: Vec<String>,
    /// Edits that can be read, also after the message itself is gone.
    pub readable_edits: usize,
    pub deleted: bool,
    /// Whether we deleted it ourselves, so that any later request about it is wrong.
    pub taken_back: bool,
}

impl Chat {
    pub fn new(about: PlatformCapabilities, limit: Option<RateLimit>) -> Self {
        let state = State { bucket: limit.map(Bucket::new), open: true, ..State::default() };
        Self { about, state: Arc::new(Mutex::new(state)), life: 0, changes: Arc::new(watch::Sender::new(0)) }
    }

    /// The network for the next gateway; requests of this clone have no effect from now on.
    pub fn next_life(&self) -> Self {
        self.state().life += 1;
        Self { life: self.life + 1, ..self.clone() }
    }

    /// Makes the next send fail like this.
    pub fn next_send(&self, fault: Fault) {
        self.state().faults.push_back((true, fault));
    }

    /// Makes the next edit fail like this.
    pub fn next_edit(&self, fault: Fault) {
        self.state().faults.push_back((false, fault));
    }

    /// Makes one more deletion fail like this.
    pub fn deletion_fails(&self, kind: PlatformErrorKind) {
        self.state().deletion_fails.push_back(kind);
    }

    /// Makes every deletion in this room fail from now on, as with a fault of the server.
    pub fn deletions_always_fail_in(&self, room: &Room) {
        self.state().no_deletion_in = Some(room.name.clone());
    }

    /// Makes one more reaction fail like this.
    pub fn reaction_fails(&self, kind: PlatformErrorKind) {
        self.state().reaction_fails.push_back(kind);
    }

    /// The next gateway cannot open the account before the gate opens.
    pub fn next_opening(&self, gate: Gate) {
        self.state().opening = Some(gate);
    }

    /// Another gateway starts, which has yet to open the account.
    pub fn starts_anew(&self) {
        self.state().open = false;
    }

    /// Makes reading break off like this, one more time.
    pub fn reading_fails(&self, kind: PlatformErrorKind) {
        self.state().reading_fails.push_back(kind);
        self.changed();
    }

    /// Makes the network unreachable, or reachable again.
    pub fn is_away(&self, away: bool) {
        self.state().away = away;
    }

    /// How often a gateway began to read.
    pub fn runs(&self) -> usize {
        self.state().runs
    }

    /// Stores a file that can be fetched.
    pub fn keeps(&self, id: &str, content: &[u8]) {
        self.state().files.insert(MediaId::from(id), content.to_vec());
    }

    /// Makes the next fetch fail like this.
    pub fn next_fetch(&self, fault: Fault) {
        self.state().fetching.push_back(fault);
    }

    /// Marks the next batch as one that happened while nobody read.
    pub fn was_not_read(&self) {
        self.state().late = true;
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Read receipts and reactions so far, without typing.
    pub fn signals(&self) -> Vec<Shown> {
        self.state().signals.clone()
    }

    /// Whether "is typing" is shown.
    pub fn is_typing(&self, room: &Room) -> bool {
        self.state().typing.get(&room.name).copied().unwrap_or_default()
    }

    /// Whether the room was ever told that somebody types, or no longer does.
    pub fn has_typing_signals(&self, room: &Room) -> bool {
        self.state().typing.contains_key(&room.name)
    }

    /// The inbox of the gateway that reads.
    pub async fn inbox(&self) -> Arc<dyn Inbox> {
        let inbox = || self.state().inbox.as_ref().and_then(Weak::upgrade);
        self.until("a gateway reads", inbox).await
    }

    /// Waits until a gateway has accepted every event.
    pub async fn is_read(&self) {
        self.until("everything is read", || {
            let state = self.state();
            (state.accepted == state.events.len()).then_some(())
        })
        .await;
    }

    /// Waits until there were so many changes, or nothing changes any more.
    pub async fn has_changed(&self, times: u64) {
        let mut changes = self.changes.subscribe();
        let enough = changes.wait_for(|changes| *changes >= times);
        let _ = tokio::time::timeout(Duration::from_secs(60), enough).await;
    }

    /// Waits until nothing has changed and nothing was under way for so long.
    pub async fn is_quiet(&self, quiet: Duration) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if tokio::time::timeout(quiet, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until `found` returns something; it is called now and after every change.
    pub async fn until<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        let waited = async {
            loop {
                if let Some(found) = found() {
                    return found;
                }
                let _ = changes.changed().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waited).await {
            Ok(found) => found,
            Err(_) => panic!("it never came to pass that {what}"),
        }
    }

    pub(super) fn happens(&self, mut event: RoomEvent) -> EventId {
        let mut state = self.state();
        event.id = EventId::new(format!("${}", state.events.len()));
        let id = event.id.clone();
        state.events.push(event);
        drop(state);
        self.changed();
        id
    }

    pub(super) fn repeats(&self, id: &EventId) {
        let mut state = self.state();
        let event = state.events.iter().find(|event| event.id == *id).cloned();
        state.events.extend(event);
        drop(state);
        self.changed();
    }

    pub(super) fn show_person(&self, room: &Room, who: &str, text: &str) {
        let line = Line::Person { who: who.to_owned(), text: text.to_owned() };
        self.state().timelines.entry(room.name.clone()).or_default().push(line);
    }

    pub(super) fn timeline(&self, room: &str) -> Vec<Line> {
        self.state().timelines.get(room).cloned().unwrap_or_default()
    }

    /// The sender that a message of ours seems to have, and its text.
    pub(super) fn rendered(&self, number: usize) -> (String, String) {
        let state = self.state();
        let message = &state.messages[number];
        let who = match message.body.kind {
            BodyKind::Answer if message.body.done => "bot",
            BodyKind::Answer => "bot…",
            BodyKind::Notice => "note",
            BodyKind::Ask => "ask",
        };
        let text = match message.body.files.as_slice() {
            _ if message.deleted => "(deleted)".to_owned(),
            [] => message.body.markdown.clone(),
            files => files
                .iter()
                .map(|file| format!("[{}, {}, {} bytes]", file.name, file.mime, file.content.len()))
                .collect::<Vec<_>>()
                .join(" "),
        };
        (who.to_owned(), text)
    }

    pub(super) fn ours(&self, room: &str) -> Vec<String> {
        let state = self.state();
        let there = state.messages.iter().filter(|message| message.room == room && !message.deleted);
        there.map(|message| message.body.markdown.clone()).collect()
    }

    /// The messages of a room with an ask, whether answered or not, oldest first.
    pub(super) fn asked(&self, room: &str) -> Vec<(MessageId, String)> {
        let state = self.state();
        let asks = |message: &Posted| message.room == room && message.body.kind == BodyKind::Ask;
        let all = state.messages.iter().enumerate().filter(|(_, message)| asks(message));
        all.map(|(number, message)| (MessageId::new(format!("m{number}")), message.body.markdown.clone()))
            .collect()
    }

    /// Number of edits of deleted messages that can still be read.
    pub fn edits_left_behind(&self) -> usize {
        let state = self.state();
        state.messages.iter().filter(|message| message.taken_back).map(|message| message.readable_edits).sum()
    }

    pub(super) fn revisions(&self, room: &str) -> Vec<String> {
        let state = self.state();
        let first = state.messages.iter().find(|message| message.room == room);
        first.map(|message| message.revisions.clone()).unwrap_or_default()
    }

    pub(super) fn lose_first(&self, room: &str) {
        let mut state = self.state();
        if let Some(message) = state.messages.iter_mut().find(|message| message.room == room) {
            message.deleted = true;
        }
    }

    pub(super) fn assert_no_violation(&self) {
        let violations = self.state().violations.clone();
        assert!(violations.is_empty(), "the core broke the contract: {violations:?}");
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
