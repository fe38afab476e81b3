//! Effects outside the store that follow a transaction of the hub once it is committed.

use std::fmt;

use talaria_platform::{EventId, Place, SendKey, UserId};

use crate::i18n::LocalizedText;
use crate::ids::{AskId, SessionId, TurnId};
use crate::store::HashedCode;

/// One effect that a committed event or command still has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostCommit {
    /// A turn waits in the queue of this session.
    Run(SessionId, TurnId),
    /// A session is over, and its agents are to be told.
    EndSessions,
    /// This turn was asked to stop.
    StopTurn(SessionId, TurnId),
    /// The message that the transaction was about was taken up.
    Read(Place, EventId),
    /// A command waits in the queue of this place; the key of its answer names it.
    RunCommand(Place, SendKey),
    /// This ask was answered.
    Answered(AskId),
    /// A stranger is to be given a pairing code, which is kept nowhere else.
    GiveCode(Box<PairingCodeMessage>),
}

/// A pairing code on its way to the stranger who asked for it.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCodeMessage {
    /// The stranger.
    pub person: UserId,
    /// Where they asked.
    pub place: Place,
    /// The message in which they asked.
    pub reply_to: EventId,
    /// The sentence with the code in it.
    pub words: LocalizedText,
    /// The hash that the store keeps.
    pub code: HashedCode,
}

/// Without the sentence, because the code stands in it.
impl fmt::Debug for PairingCodeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairingCodeMessage").field("person", &self.person).finish_non_exhaustive()
    }
}
