//! Events of rooms, as an adapter reports them to the core.

use serde::{Deserialize, Serialize};

use crate::{EventId, MediaId, MessageId, Place, RoomId, UserId};

/// Something that happened in a room.
///
/// The adapter states facts; the core decides from `author`, `room` and `secure` whether the author may do this.
/// Never leave these to a default that grants more than was proven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomEvent {
    /// The network's id of this event: the dedupe key, together with account and room.
    pub id: EventId,
    /// Where it happened and where an answer belongs.
    pub place: Place,
    /// Facts about the room.
    pub room: RoomInfo,
    /// The person who did it.
    pub author: EventAuthor,
    /// Whether it came end-to-end encrypted.
    pub secure: bool,
    /// The action of the author.
    pub kind: RoomEventKind,
}

/// The action that a [`RoomEvent`] reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoomEventKind {
    /// The author wrote a message.
    Message(IncomingMessage),
    /// The author edited an earlier message of their own. The adapter drops every edit of another person's message.
    Edited {
        /// The edited message: its first id, however often it was edited before.
        of: EventId,
        /// Its whole new text.
        text: String,
    },
    /// An earlier message is gone for everybody: its author deleted it, or a person whom the network lets delete the
    /// messages of others. The event's author is the person who deleted it.
    ///
    /// Report it only if the network itself deleted the message: the core checks no rights of its own and obeys every
    /// deletion. A deletion only ever removes (a question is no longer asked, an answer is deleted), so a hostile
    /// moderator gains nothing beyond the rights that the network gave them.
    Deleted {
        /// The deleted message: a person's, or one of ours by the text of its [`MessageId`]. The adapter may leave
        /// out our own deletions.
        of: EventId,
    },
    /// A reaction to a message, usually one of ours.
    Reacted {
        /// The message reacted to.
        to: MessageId,
        /// The reaction as shown, usually an emoji.
        mark: String,
    },
    /// The author left the room, or was removed. Until `Joined` comes, the core obeys nothing they did.
    Left,
    /// The author came into the room, or came back. After we joined a room ourselves, for the first time or again,
    /// the adapter also reports this for everybody it finds there: nobody told us who came back while we were away,
    /// and until this event the core does not obey a person who had left.
    Joined,
    /// The author wrote a message that we could not decrypt, or could not prove to be new and meant for us, and no
    /// longer expect to. The core asks them to send it again.
    Unreadable,
    /// Messages were lost for good, for example beyond the bound of a gap-fill.
    Missed {
        /// Number of lost messages, as far as the adapter knows.
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
    /// Current text of the message in `reply_to`, if it is of the same room and could be read. The agent needs it to
    /// understand the question.
    pub quote: Option<QuotedMessage>,
    /// Attached files.
    pub media: Vec<MediaInfo>,
}

impl IncomingMessage {
    /// Makes a plain text that is addressed to us.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), addressed: true, ..Self::default() }
    }
}

/// An earlier message that a person replied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotedMessage {
    /// Display name of its author; `None` if we wrote it.
    pub author: Option<String>,
    /// Its text, cut where it is too long to repeat.
    pub text: String,
}

/// A file in a message, described but not fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaInfo {
    /// The id to give to [`fetch`](crate::Platform::fetch).
    pub id: MediaId,
    /// The kind that the sender claims; not to be trusted.
    pub kind: MediaKind,
    /// The sender's file name; not to be trusted.
    pub name: String,
    /// The sender's MIME type; not to be trusted.
    pub mime: Option<String>,
    /// The sender's size in bytes; not to be trusted.
    pub size: Option<u64>,
}

/// Kind of a file, as its sender claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaKind {
    /// A still picture.
    Image,
    /// Speech or music.
    Audio,
    /// A moving picture.
    Video,
    /// Anything else.
    File,
}

/// The person or program that caused an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAuthor {
    /// The network's id of the author, which never changes.
    pub id: UserId,
    /// The display name: text for people, never a ground for a decision.
    pub name: Option<String>,
    /// The adapter's certainty that `id` really wrote this.
    pub trust: AuthorTrust,
    /// Whether the network marks the author, or the kind of message, as a program's. The core does not answer
    /// programs: two of them would never end.
    pub bot: bool,
    /// The device it was written on, where the network tells devices apart: so that we can tell a person which of
    /// their devices we do not trust.
    pub device: Option<String>,
}

/// An adapter's certainty about an author. Ordered: more trust is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AuthorTrust {
    /// Contradicted: the keys do not belong to the named author. Never obeyed.
    Violated,
    /// Only the network says so; nothing was signed.
    Network,
    /// Signed by a device that the author vouches for.
    CrossSigned,
    /// A person verified the author.
    Verified,
}

/// An invitation to join a room.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomInvite {
    /// The network's id of the invitation.
    pub id: EventId,
    /// The room.
    pub room: RoomId,
    /// Facts about the room that are visible from outside.
    pub about: RoomInfo,
    /// The person who invites us.
    pub author: EventAuthor,
}

/// Facts about a room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomInfo {
    /// The name as people see it; text for people, never a ground for a decision.
    pub name: Option<String>,
    /// A chat between one person and us, by the network's own mark rather than by head count.
    pub direct: bool,
}
