//! Translates one Matrix event into an event for the core.

use matrix_sdk::deserialized_responses::{
    TimelineEvent, TimelineEventKind, UnableToDecryptReason, VerificationLevel,
};
use matrix_sdk::ruma::UserId as MatrixUserId;
use matrix_sdk::ruma::events::room::message::MessageType;
use matrix_sdk::{Room, RoomState};
use talaria_platform::{
    AddressedWhen, AuthorTrust, EventAuthor, EventId, InboxError, IncomingMessage, MessageId, Place,
    PlatformError, RoomEvent, RoomEventKind, RoomId, ThreadId, UserId,
};

use super::SyncReader;
use super::invites::RoomUpgrade;
use super::mention::OwnNames;
use super::room_events::DirectRooms;
use super::text;
use super::wire::{self, MatrixEvent, MatrixEventKind, MemberChange, MessageContent};
use crate::media;

/// Facts that all events of one room in a response share.
pub(super) struct RoomContext {
    pub room: talaria_platform::RoomInfo,
    /// Our display name there.
    own_name: Option<String>,
    /// Whether every message there is meant for us.
    hears_all: bool,
    /// Whether the room is encrypted, or ever was.
    encrypted: bool,
}

/// Result of translating an event.
pub(super) enum TranslatedEvent {
    /// An event for the core.
    Tell(RoomEvent),
    /// An event that cannot be decrypted yet.
    Park(MatrixEvent),
    /// An event that concerns nobody.
    Drop,
}

impl SyncReader<'_> {
    /// Collects the facts about a room, once for all of its events.
    pub async fn about(&self, room: &Room, direct: &DirectRooms) -> Result<RoomContext, InboxError> {
        let (account, direct) = (self.account, direct.has(room));
        let id = RoomId::new(room.room_id().as_str());
        let hearing = account.settings.rooms.get(&id).unwrap_or(&account.settings.hearing);
        if room.state() == RoomState::Joined && room.encryption_state().is_encrypted() {
            account.rooms.saw_encrypted(room.room_id()).await?;
        }
        Ok(RoomContext {
            room: talaria_platform::RoomInfo { name: room.name().as_deref().and_then(text::name), direct },
            own_name: self.name_of(room, &account.own).await,
            hears_all: match hearing {
                AddressedWhen::Everything => true,
                AddressedWhen::Mentioned => false,
            },
            encrypted: account.rooms.was_encrypted(room.room_id()).await?,
        })
    }

    /// Translates an event. Our own joins and leaves do not come here. After an error nothing of the batch may be
    /// stored: it is read again.
    pub async fn translate(
        &self,
        room: &Room,
        about: &RoomContext,
        event: &TimelineEvent,
    ) -> Result<TranslatedEvent, PlatformError> {
        let Some(happening) = wire::of(event) else { return Ok(TranslatedEvent::Drop) };
        if happening.sender == self.account.own {
            self.own_event(room, &happening);
            return Ok(TranslatedEvent::Drop);
        }
        let proof = self.proof(room, event, &happening).await?;
        let name = match &happening.what {
            MatrixEventKind::Said(_)
            | MatrixEventKind::Edited { .. }
            | MatrixEventKind::Deleted { .. }
            | MatrixEventKind::Reacted { .. } => self.name_of(room, &happening.sender).await,
            MatrixEventKind::Member { .. }
            | MatrixEventKind::Upgraded { .. }
            | MatrixEventKind::Sealed { .. }
            | MatrixEventKind::Nothing => None,
        };
        let called = name.as_deref().unwrap_or(happening.sender.as_str());
        let place = || Place::room(room.room_id().as_str());
        let id = EventId::new(happening.id.as_str());
        let (place, kind) = match &happening.what {
            // The SDK has handled it. Some clients send the request in plaintext, which is no reason for a warning.
            MatrixEventKind::Said(MessageContent {
                message: MessageType::VerificationRequest(_), ..
            }) => {
                return Ok(TranslatedEvent::Drop);
            }
            MatrixEventKind::Said(_) | MatrixEventKind::Edited { .. } if about.encrypted && !proof.secure => {
                self.warn_of_plaintext(room);
                return Ok(TranslatedEvent::Drop);
            }
            MatrixEventKind::Said(said) => {
                match self.said(room, about, (&happening.sender, called), said).await? {
                    Some(kind) => {
                        let thread = said.thread.as_ref().map(|root| ThreadId::new(root.as_str()));
                        (Place { thread, ..place() }, kind)
                    }
                    None => return Ok(TranslatedEvent::Drop),
                }
            }
            MatrixEventKind::Edited { of, said } => {
                let Some(text) = text::of(&said.message, false, called) else {
                    return Ok(TranslatedEvent::Drop);
                };
                let text = about.names(&self.account.own).after(&text).unwrap_or(&text).to_owned();
                (place(), RoomEventKind::Edited { of: EventId::new(of.as_str()), text })
            }
            MatrixEventKind::Deleted { of } => {
                (place(), RoomEventKind::Deleted { of: EventId::new(of.as_str()) })
            }
            MatrixEventKind::Reacted { to, mark } => {
                (place(), RoomEventKind::Reacted { to: MessageId::new(to.as_str()), mark: mark.clone() })
            }
            MatrixEventKind::Member { who, change } => {
                let kind = match change {
                    MemberChange::Came => RoomEventKind::Joined,
                    MemberChange::Went => RoomEventKind::Left,
                    MemberChange::Other => return Ok(TranslatedEvent::Drop),
                };
                return Ok(TranslatedEvent::Tell(moved(room, about, id, who, kind)));
            }
            MatrixEventKind::Upgraded { to } => {
                self.invites.upgraded(RoomUpgrade {
                    event: id,
                    to: to.clone(),
                    by: happening.sender.clone(),
                    about: about.room.clone(),
                });
                return Ok(TranslatedEvent::Drop);
            }
            MatrixEventKind::Sealed { session: Some(_), .. } if is_worth_waiting(event) => {
                return Ok(TranslatedEvent::Park(happening));
            }
            MatrixEventKind::Sealed { .. } | MatrixEventKind::Nothing => return Ok(TranslatedEvent::Drop),
        };
        let author = EventAuthor {
            id: UserId::new(happening.sender.as_str()),
            name,
            trust: proof.trust,
            bot: false,
            device: proof.device,
        };
        Ok(TranslatedEvent::Tell(RoomEvent {
            id,
            place,
            room: about.room.clone(),
            author,
            secure: proof.secure,
            kind,
        }))
    }

    /// Translates a message; `None` if it is not from a person to people. If it is unknown whether the message is for
    /// us, we neither obey nor ignore it: the author is asked to send it again.
    async fn said(
        &self,
        room: &Room,
        about: &RoomContext,
        (sender, called): (&MatrixUserId, &str),
        said: &MessageContent,
    ) -> Result<Option<RoomEventKind>, PlatformError> {
        let Some(text) = text::of(&said.message, said.reply_to.is_some(), called) else { return Ok(None) };
        let names = about.names(&self.account.own);
        let after = names.after(&text);
        let mut addressed =
            about.room.direct || about.hears_all || after.is_some() || names.are_mentioned(said);
        let (mut quote, mut undecided) = (None, false);
        if let Some(reply_to) = &said.reply_to {
            let earlier = self.lookup.earlier(room, reply_to, sender, about.encrypted).await?;
            addressed |= earlier.ours == Some(true);
            undecided = earlier.ours.is_none();
            quote = earlier.quote;
        }
        if !addressed && let Some(root) = &said.thread {
            let ours = self.lookup.is_our_thread(room, root).await?;
            addressed = ours == Some(true);
            undecided |= ours.is_none();
        }
        if undecided && !addressed {
            return Ok(Some(RoomEventKind::Unreadable));
        }
        Ok(Some(RoomEventKind::Message(IncomingMessage {
            text: after.map(str::to_owned).unwrap_or(text),
            addressed,
            reply_to: said.reply_to.as_ref().map(|id| EventId::new(id.as_str())),
            // The quote of a message to others is not needed.
            quote: quote.filter(|_| addressed),
            media: media::of(&said.message).into_iter().collect(),
        })))
    }

    /// Our own events are not answered; but we remember our messages, because replies to them are for us. This comes
    /// late: see `wake`. `outbound` has remembered what this process sent.
    fn own_event(&self, room: &Room, happening: &MatrixEvent) {
        match &happening.what {
            MatrixEventKind::Said(said) => {
                self.account.written.wrote(room.room_id(), &happening.id, said.thread.as_deref());
            }
            MatrixEventKind::Edited { .. }
            | MatrixEventKind::Deleted { .. }
            | MatrixEventKind::Reacted { .. }
            | MatrixEventKind::Member { .. }
            | MatrixEventKind::Upgraded { .. }
            | MatrixEventKind::Sealed { .. }
            | MatrixEventKind::Nothing => {}
        }
    }

    /// Warns of plaintext in an encrypted room. Anybody with access to the homeserver can write it in anybody's name,
    /// so it is never obeyed. One warning for each room, because there may be a flood.
    fn warn_of_plaintext(&self, room: &Room) {
        if self.plaintext.first_in(room.room_id()) {
            tracing::warn!(room = %room.room_id(), "a message in the clear in an encrypted room was ignored");
        }
    }
}

impl RoomContext {
    fn names<'a>(&'a self, own: &'a MatrixUserId) -> OwnNames<'a> {
        OwnNames { id: own, shown: self.own_name.as_deref() }
    }
}

/// Makes an event about a person, on the homeserver's word: for a membership change there is nothing better.
pub(super) fn moved(
    room: &Room,
    about: &RoomContext,
    id: EventId,
    who: &MatrixUserId,
    kind: RoomEventKind,
) -> RoomEvent {
    let author = EventAuthor {
        id: UserId::new(who.as_str()),
        name: None,
        trust: AuthorTrust::Network,
        bot: false,
        device: None,
    };
    let place = Place::room(room.room_id().as_str());
    RoomEvent { id, place, room: about.room.clone(), author, secure: false, kind }
}

/// Reports a message that could not be decrypted; `None` if it is an edit, because the original can be read.
pub(super) fn unreadable(room: &Room, about: &RoomContext, happening: &MatrixEvent) -> Option<RoomEvent> {
    let MatrixEventKind::Sealed { edit: false, thread, .. } = &happening.what else { return None };
    let id = EventId::new(happening.id.as_str());
    let mut event = moved(room, about, id, &happening.sender, RoomEventKind::Unreadable);
    event.place.thread = thread.as_ref().map(|root| ThreadId::new(root.as_str()));
    Some(event)
}

/// Whether a key that comes later may help. A malformed or forged message stays so.
fn is_worth_waiting(event: &TimelineEvent) -> bool {
    match &event.kind {
        TimelineEventKind::UnableToDecrypt { utd_info, .. } => match &utd_info.reason {
            UnableToDecryptReason::MissingMegolmSession { .. }
            | UnableToDecryptReason::UnknownMegolmMessageIndex
            | UnableToDecryptReason::Unknown => true,
            // The sender may still sign the device.
            UnableToDecryptReason::SenderIdentityNotTrusted(level) => match level {
                VerificationLevel::UnverifiedIdentity
                | VerificationLevel::UnsignedDevice
                | VerificationLevel::None(_) => true,
                VerificationLevel::VerificationViolation | VerificationLevel::MismatchedSender => false,
            },
            UnableToDecryptReason::MalformedEncryptedEvent
            | UnableToDecryptReason::MegolmDecryptionFailure
            | UnableToDecryptReason::PayloadDeserializationFailure
            | UnableToDecryptReason::MismatchedIdentityKeys => false,
        },
        // Decryption was not even tried: our own store failed.
        TimelineEventKind::PlainText { .. } => true,
        TimelineEventKind::Decrypted(_) => false,
    }
}
