//! The contract between Talaria and a chat network.
//!
//! An adapter is a crate that implements [`Platform`]. It reports what happens in rooms as [`RoomEvent`]s and makes
//! rooms show [`MessageBody`]s. The core decides everything else: who may speak, which session a message belongs to,
//! when to edit, what to repeat after a crash.
//!
//! # Writing an adapter
//!
//! 1. **Describe yourself.** [`Platform::about`] returns [`PlatformCapabilities`]: can messages be edited,
//!    how long may they be, how many requests the network allows. It is data; the core never probes.
//!    [`PlatformKind`] is the kind: its name, its part of the configuration, its variables, its secrets, its
//!    operator commands. The core has one list of kinds, and that list is all that it knows of your network.
//! 2. **Read.** The core has at most one [`Platform::run`] running. Start from [`Inbox::cursor`] (your own last
//!    committed position, `None` on the very first start), read the network, and hand over the events
//!    as [`EventBatch`]es with [`Inbox::accept`]. When `accept` has returned, the batch is on disk: only
//!    then may you acknowledge it to the network. Hand over one network response as one batch, in
//!    order. Delivering an event twice is harmless, because the core drops events that it has seen; losing
//!    one is not. Leave out your own messages and everything said before you first joined. When
//!    `accept` fails, nothing of the batch was stored: offer the same batch again, or return
//!    [`PlatformErrorKind::Retry`] and let the next `run` read it again from the cursor. An adapter whose
//!    network cannot be read again keeps the batch until then.
//! 3. **Write.** [`Platform::send`], [`edit`](Platform::edit), [`delete`](Platform::delete) and
//!    [`react`](Platform::react) make *one* request each. Neither retry nor throttle: report the outcome as a
//!    [`PlatformErrorKind`] and the core does the rest. A send carries a [`SendKey`]; the same key must never
//!    post twice, so pass it on as the network's transaction id. The core stores message ids: an edit may be for
//!    a message that an earlier process sent.
//! 4. **End.** When the stop token fires, stop reading and return from `run` with `Ok`. Sends may
//!    still come for a few seconds, until the process ends. If `run` returns `Ok` before the token fires,
//!    there is nothing more to read (the end of a file): the core finishes the open turns and, if no other
//!    platform runs, ends the process.
//! 5. **Prove it.** The feature `conformance` has a module of that name with the rules above as a
//!    test suite: connect your platform to a network that the test controls, and call `run_all`.
//!    It names each rule that an adapter breaks.
//!
//! Choose the kind of an error by what would help: waiting ([`PlatformErrorKind::Retry`]), another message
//! ([`Gone`](PlatformErrorKind::Gone)), other content ([`Rejected`](PlatformErrorKind::Rejected)), another platform
//! ([`Unsupported`](PlatformErrorKind::Unsupported)), a person ([`Fatal`](PlatformErrorKind::Fatal)). When it is
//! unknown whether a request arrived, use `Retry`: the key makes the repetition safe.
//!
//! Ids are opaque to the core: only the adapter that made one may look inside.
//!
//! Adapters use the same file names, as far as they need them: `config login inbound outbound media error`. The
//! console adapter is the smallest example.

mod backoff;
mod body;
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod event;
mod id;
mod inbox;
mod kind;
mod one_line;
pub mod operator;
mod platform;
mod task;

pub use backoff::{Backoff, jitter};
pub use body::{AnswerRemark, BodyKind, MessageBody, OutgoingFile, Signal};
pub use error::{PlatformError, PlatformErrorKind};
pub use event::{
    AuthorTrust, EventAuthor, IncomingMessage, MediaInfo, MediaKind, QuotedMessage, RoomEvent, RoomEventKind,
    RoomInfo, RoomInvite,
};
pub use id::{AccountId, EventId, MediaId, MessageId, Place, RoomId, SendKey, ThreadId, UserId};
pub use inbox::{EventBatch, Inbox, InboxError};
pub use kind::{AccountPlatform, AccountSettings, AuthorProof, LibraryLog, PeopleTraits, PlatformKind};
pub use one_line::{clip, one_line};
pub use operator::{
    AccountLink, CommandFailure, CommandReport, OperatorError, OperatorRequest, RequestRefusal,
};
pub use platform::{
    AddressedWhen, DeletionProgress, PlaceLifetime, Platform, PlatformCapabilities, RateLimit, ShowMode,
};
pub use task::spawn_task;
pub use tokio_util::sync::CancellationToken;

/// A boxed future, so that the traits can be used behind `Arc<dyn …>` and an adapter's large future
/// types stay inside its own crate.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
