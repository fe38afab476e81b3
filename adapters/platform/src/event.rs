//! What happens in rooms, as an adapter tells it.

use serde::{Deserialize, Serialize};

use crate::{EventId, MediaId, MessageId, Place, RoomId, UserId};

/// Something that happened in a room.
///
/// The adapter states facts; whether the author may do this is decided in the core from `author`,
/// `room` and `secure`. Never leave these to a default that grants more than was proven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomEvent {
    /// The network's id of this event: the dedupe key, together with account and room.
    pub id: EventId,
    /// Where it happened and where an answer belongs.
    pub place: Place,
    /// What is known about the room.
    pub room: RoomInfo,
    /// Who did it.
    pub author: EventAuthor,
    /// Whether it came end-to-end encrypted.
    pub secure: bool,
    /// What was done.
    pub kind: RoomEventKind,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoomEventKind {
    /// Somebody wrote something.
    Message(IncomingMessage),
    /// An earlier message now reads differently. Only of an edit by the message's own author; the adapter drops
    /// every other one.
    Edited {
        /// The message that was edited: its first id, however often it was edited before.
        of: EventId,
        /// Its whole new text.
        text: String,
    },
    /// An earlier message is gone for everybody: its author took it back, or somebody did whom the network lets
    /// remove the words of others. The author of the event is whoever did that. Sent only when the network itself
    /// carried it out, because the core asks nobody else: a deletion is binding whoever did it. It only ever
    /// removes (what was asked is no longer asked, what was answered is taken back), so the worst that a hostile
    /// moderator comes to is what the network gave them already.
    Deleted {
        /// The message that is gone: a person's, or one of ours by the text of its [`MessageId`]. What we took back
        /// ourselves may be left out.
        of: EventId,
    },
    /// A reaction to a message, usually one of ours.
    Reacted {
        /// The message reacted to.
        to: MessageId,
        /// The reaction as shown, usually an emoji.
        mark: String,
    },
    /// The author left the room, or was made to. Until `Joined` comes, nothing they did is obeyed.
    Left,
    /// The author came into the room, or came back. After we came into a room ourselves, for the first time or
    /// again, the adapter also sends this for everybody it finds there: while we were away nobody told us that
    /// somebody who had left is back, and until this comes they are not obeyed.
    Joined,
    /// The author wrote something that we could not decrypt, or of which we could not find out whether it is new or meant
    /// for us, and no longer expect to: they are asked to send it again.
    Unreadable,
    /// Messages that can no longer be read, for example beyond the bound of a gap-fill.
    Missed {
        /// How many, as far as the adapter knows.
        count: u64,
    },
}

/// A message that a person wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IncomingMessage {
    /// The text as the person wrote it, without the network's quoting and without the mention of us.
    pub text: String,
    /// Whether it is meant for us: a direct chat, a mention, a reply to us. The adapter knows the
    /// network's conventions, so it decides; messages not addressed to us are kept out of turns.
    pub addressed: bool,
    /// The message this one answers, where the network has replies.
    pub reply_to: Option<EventId>,
    /// What that message says now, if it is of the same room and could be read: the agent needs it to know what
    /// is talked about.
    pub quote: Option<QuotedMessage>,
    /// What is attached.
    pub media: Vec<MediaInfo>,
}

impl IncomingMessage {
    /// Plain text, addressed to us.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), addressed: true, ..Self::default() }
    }
}

/// What an earlier message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotedMessage {
    /// Who wrote it, as people see them; `None` if we did.
    pub author: Option<String>,
    /// Its text, cut where it is too long to repeat.
    pub text: String,
}

/// A file in a message, described but not fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaInfo {
    /// What [`fetch`](crate::Platform::fetch) takes.
    pub id: MediaId,
    /// What the sender says it is; not to be trusted.
    pub kind: MediaKind,
    /// The sender's file name; not to be trusted.
    pub name: String,
    /// The sender's MIME type; not to be trusted.
    pub mime: Option<String>,
    /// The sender's size in bytes; not to be trusted.
    pub size: Option<u64>,
}

/// What kind of file a sender says a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// Speech or music.
    Audio,
    /// A film.
    Video,
    /// Anything else.
    File,
}

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAuthor {
    /// The immutable id.
    pub id: UserId,
    /// The display name: text for people, never a ground for a decision.
    pub name: Option<String>,
    /// How sure the adapter is that `id` really wrote this.
    pub trust: AuthorTrust,
    /// Whether the network marks the author, or the kind of message, as a program's. Programs are not
    /// answered: two of them would never end.
    pub bot: bool,
    /// The device it was written on, where the network tells devices apart: so that a person can be told which of
    /// theirs we do not trust.
    pub device: Option<String>,
}

/// How sure an adapter is of an author. Ordered: more trust is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AuthorTrust {
    /// Contradicted: the keys do not belong to the named author. Never obeyed.
    Violated,
    /// The network's word.
    Network,
    /// Signed by a device that the author vouches for.
    CrossSigned,
    /// Verified by a person.
    Verified,
}

/// Somebody wants us in a room.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomInvite {
    /// The network's id of the invitation.
    pub id: EventId,
    /// The room.
    pub room: RoomId,
    /// What is known about it from outside.
    pub about: RoomInfo,
    /// Who invites us.
    pub author: EventAuthor,
}

/// What is known about a room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomInfo {
    /// The name as people see it; text for people, never a ground for a decision.
    pub name: Option<String>,
    /// A chat between one person and us, by the network's own mark rather than by head count.
    pub direct: bool,
}
