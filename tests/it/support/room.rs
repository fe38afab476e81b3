//! A chat network in memory that a test controls, and the rooms on it.
//!
//! It keeps the contract (send keys, reading from a cursor, deletion), takes a moment for every request, and can fail
//! in every way a network fails. It notes every violation of the contract by the core (two requests for one message
//! at a time, a text that is too long, a terminal's text that shrinks), and [`Room::settled`] fails with it.

mod network;
mod platform;
mod requests;

use std::fmt::Write as _;
use std::time::Duration;

use talaria_platform::{
    AuthorTrust, EventAuthor, EventId, IncomingMessage, MediaId, MediaInfo, MediaKind, MessageId, Place,
    RoomEvent, RoomEventKind, RoomInfo as RoomFacts, RoomInvite, ThreadId, UserId,
};

pub use network::{Chat, Shown};
pub use requests::{Fault, Gate, Request, What};

/// If nothing has changed for this long, nothing will: longer than a request, a retry's longest pause and the wait
/// before a final is repeated. Costs nothing, because the clock is paused.
const QUIET: Duration = Duration::from_secs(120);

/// One room as the people in it see it.
#[derive(Clone)]
pub struct Room {
    pub chat: Chat,
    pub name: String,
    /// Whether it is a chat between one person and us.
    pub direct: bool,
    /// The thread that people write in.
    pub thread: Option<String>,
}

/// A message of ours with an ask.
#[derive(Clone, Debug)]
pub struct Asked {
    pub message: MessageId,
    pub code: String,
    pub text: String,
}

/// One line of a room's timeline.
#[derive(Clone)]
enum Line {
    Person {
        who: String,
        text: String,
    },
    /// Our message with this number.
    Ours(usize),
}

impl Room {
    /// The place of this room or thread.
    pub fn place(&self) -> Place {
        Place { thread: self.thread.clone().map(ThreadId::new), ..Place::room(self.name.clone()) }
    }

    /// A thread in this room.
    pub fn thread(&self, name: &str) -> Self {
        Self { thread: Some(name.to_owned()), ..self.clone() }
    }

    /// A person writes a message; returns when the gateway has it on disk.
    pub async fn says(&self, who: &str, text: &str) -> EventId {
        self.brings(who, text, Vec::new()).await
    }

    /// A person writes a message with attached files; returns when the gateway has it on disk.
    pub async fn brings(&self, who: &str, text: &str, media: Vec<MediaInfo>) -> EventId {
        let event = self.posts(who, text, media);
        self.chat.is_read().await;
        event
    }

    /// A person writes a message; does not wait for the gateway.
    pub fn posts(&self, who: &str, text: &str, media: Vec<MediaInfo>) -> EventId {
        self.chat.show_person(self, who, text);
        let message = IncomingMessage { media, ..IncomingMessage::text(text) };
        self.chat.happens(self.event(who, RoomEventKind::Message(message)))
    }

    /// A person writes an encrypted message on one of their devices.
    pub async fn says_on(&self, who: &str, device: &str, trust: AuthorTrust, text: &str) -> EventId {
        self.chat.show_person(self, who, text);
        let mut event = self.event(who, RoomEventKind::Message(IncomingMessage::text(text)));
        (event.secure, event.author.trust, event.author.device) = (true, trust, Some(device.to_owned()));
        self.does(event).await
    }

    /// A forger writes under a name that the keys contradict.
    pub async fn a_forger_says(&self, who: &str, text: &str) {
        self.chat.show_person(self, who, text);
        let mut event = self.event(who, RoomEventKind::Message(IncomingMessage::text(text)));
        event.author.trust = AuthorTrust::Violated;
        self.chat.happens(event);
        self.chat.is_read().await;
    }

    /// A program writes a message, and the network marks it as a program's.
    pub async fn a_bot_says(&self, who: &str, text: &str) -> EventId {
        self.chat.show_person(self, who, text);
        let mut event = self.event(who, RoomEventKind::Message(IncomingMessage::text(text)));
        event.author.bot = true;
        self.does(event).await
    }

    /// A person reacts to a message of ours; does not wait for the gateway.
    pub fn marks(&self, who: &str, to: &MessageId, mark: &str) {
        self.chat.happens(self.event(who, RoomEventKind::Reacted { to: to.clone(), mark: mark.to_owned() }));
    }

    /// A person reacts to a message of ours; returns when the gateway has it on disk.
    pub async fn reacts(&self, who: &str, to: &MessageId, mark: &str) {
        self.does(self.event(who, RoomEventKind::Reacted { to: to.clone(), mark: mark.to_owned() })).await;
    }

    /// A person leaves.
    pub async fn leaves(&self, who: &str) {
        self.does(self.event(who, RoomEventKind::Left)).await;
    }

    /// A person comes, or comes back.
    pub async fn joins(&self, who: &str) {
        self.does(self.event(who, RoomEventKind::Joined)).await;
    }

    /// A person invites us here; returns whether we join.
    pub async fn invites(&self, who: &str) -> bool {
        self.invites_as(self.event(who, RoomEventKind::Joined)).await
    }

    /// The author of this event invites us here; returns whether we join.
    pub async fn invites_as(&self, event: RoomEvent) -> bool {
        let RoomEvent { author, room: about, .. } = event;
        let invite = RoomInvite { id: EventId::new(""), room: self.place().room, about, author };
        self.chat.inbox().await.may_join(invite).await.unwrap()
    }

    /// An event happens here; returns when the gateway has it on disk.
    pub async fn does(&self, event: RoomEvent) -> EventId {
        let id = self.chat.happens(event);
        self.chat.is_read().await;
        id
    }

    /// A person edits an earlier message; returns when the gateway has it on disk.
    pub async fn edits(&self, who: &str, of: &EventId, text: &str) {
        self.chat.happens(self.event(who, RoomEventKind::Edited { of: of.clone(), text: text.to_owned() }));
        self.chat.is_read().await;
    }

    /// A person edits an earlier message; does not wait for the gateway.
    pub fn changes(&self, who: &str, of: &EventId, text: &str) {
        self.chat.happens(self.event(who, RoomEventKind::Edited { of: of.clone(), text: text.to_owned() }));
    }

    /// A person deletes an earlier message; does not wait for the gateway.
    pub fn takes_back(&self, who: &str, of: &EventId) {
        self.chat.happens(self.event(who, RoomEventKind::Deleted { of: of.clone() }));
    }

    /// A person deletes an earlier message; returns when the gateway has it on disk.
    pub async fn deletes(&self, who: &str, of: &EventId) {
        self.chat.happens(self.event(who, RoomEventKind::Deleted { of: of.clone() }));
        self.chat.is_read().await;
    }

    /// The network delivers an earlier event once more.
    pub async fn delivers_again(&self, event: &EventId) {
        self.chat.repeats(event);
        self.chat.is_read().await;
    }

    /// Waits until nothing changes any more, on the whole network, and renders the room.
    pub async fn settled(&self) -> String {
        self.chat.is_quiet(QUIET).await;
        self.now()
    }

    /// Renders the room as it is.
    pub fn now(&self) -> String {
        self.chat.assert_no_violation();
        let mut text = String::new();
        for line in self.chat.timeline(&self.name) {
            let (who, words) = match line {
                Line::Person { who, text } => (who, text),
                Line::Ours(number) => self.chat.rendered(number),
            };
            for (index, line) in words.lines().filter(|line| !line.trim().is_empty()).enumerate() {
                let _ = writeln!(text, "{:<6}{line}", if index == 0 { who.as_str() } else { "" });
            }
        }
        text
    }

    /// Waits until the rendered room contains these words.
    pub async fn shows(&self, words: &str) {
        let found = || self.now().contains(words).then_some(());
        self.chat.until(&format!("the room shows {words:?}"), found).await;
    }

    /// Waits until we have sent this many messages here, and returns the last of them.
    pub async fn has_messages(&self, count: usize) -> String {
        let found = || Some(self.ours()).filter(|ours| ours.len() >= count).and_then(|mut ours| ours.pop());
        self.chat.until(&format!("the room has {count} messages of ours"), found).await
    }

    /// A person sends a command, and reads the one message that answers it.
    pub async fn is_answered(&self, who: &str, command: &str) -> String {
        let count = self.ours().len();
        self.says(who, command).await;
        self.has_messages(count + 1).await
    }

    /// The agent's asks here, oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        let code =
            |text: &str| text.split_once("`/deny ").and_then(|(_, rest)| rest.get(..4)).map(str::to_owned);
        let asked = self.chat.asked(&self.name).into_iter();
        asked.map(|(message, text)| Asked { code: code(&text).unwrap(), message, text }).collect()
    }

    /// Waits until the agent asks with these words, and returns the latest such ask.
    pub async fn is_asked(&self, words: &str) -> Asked {
        let found = || self.asked().into_iter().rfind(|asked| asked.text.contains(words));
        self.chat.until(&format!("the agent asks {words:?}"), found).await
    }

    /// Our current messages, oldest first, each with its whole text.
    pub fn ours(&self) -> Vec<String> {
        self.chat.ours(&self.name)
    }

    /// All texts of our first message so far, in order.
    pub fn history_of_first(&self) -> Vec<String> {
        self.chat.revisions(&self.name)
    }

    /// A moderator removes our first message.
    pub fn loses_our_first_message(&self) {
        self.chat.lose_first(&self.name);
    }

    /// An event of a person of this network in this room.
    pub fn event(&self, who: &str, kind: RoomEventKind) -> RoomEvent {
        RoomEvent {
            id: EventId::new(""),
            place: self.place(),
            room: RoomFacts { name: Some(self.name.clone()), direct: self.direct },
            author: EventAuthor {
                id: UserId::new(format!("{who}:test")),
                name: Some(who.trim_start_matches('@').to_owned()),
                trust: AuthorTrust::Network,
                bot: false,
                device: None,
            },
            secure: false,
            kind,
        }
    }
}

/// A file as a sender describes it.
pub fn file(id: &str, kind: MediaKind, name: &str) -> MediaInfo {
    MediaInfo { id: MediaId::from(id), kind, name: name.to_owned(), mime: None, size: None }
}
