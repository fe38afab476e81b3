//! The contract between Talaria and a chat network.
//!
//! An adapter is a crate that implements [`Platform`]. It turns what happens in rooms into
//! [`RoomEvent`]s and makes rooms show [`MessageBody`]s; everything else — who may speak, which session a
//! message belongs to, when to edit, what to repeat after a crash — is decided in the core.
//!
//! # Writing an adapter
//!
//! 1. **Describe yourself.** [`Platform::about`] returns [`PlatformCapabilities`]: can messages be edited,
//!    how long may they be, how many requests the network allows. It is data; nothing is probed.
//! 2. **Read.** [`Platform::run`] runs once at a time. Start from [`Inbox::cursor`] (your own last
//!    committed position, `None` on the very first start), read the network, and hand over what came
//!    as [`EventBatch`]es with [`Inbox::accept`]. When `accept` has returned, the batch is on disk: only
//!    then may you acknowledge it to the network. Hand over one network response as one batch, in
//!    order. Delivering an event twice is harmless, because the core drops what it has seen; losing
//!    one is not. Leave out your own messages and whatever was said before you first joined. When
//!    `accept` fails, nothing was taken: offer the same batch again, or return
//!    [`PlatformErrorKind::Retry`] and let the next `run` read it again from the cursor. A network that
//!    cannot be read again keeps the batch in the adapter until then.
//! 3. **Write.** [`Platform::send`], [`edit`](Platform::edit), [`delete`](Platform::delete) and
//!    [`react`](Platform::react) make *one* request each. Neither retry nor throttle: say what happened with an [`PlatformErrorKind`] and the
//!    core does the rest. A send carries a [`SendKey`]; the same key must never post twice, so pass
//!    it on as the network's transaction id. Message ids are stored: an edit may be for a message that
//!    an earlier process sent.
//! 4. **End.** When the stop token fires, stop reading and return from `run` with `Ok`. Sends may
//!    still come for a few seconds, until the process ends. A `run` that returns `Ok` without being
//!    asked says that there is nothing more to read (the end of a file): the core finishes what is
//!    open and, if no other platform runs, ends.
//! 5. **Prove it.** The feature `conformance` has a module of that name with the rules above as a
//!    test suite: connect your platform to a network that the test controls, and call `run_all`.
//!    Wrong adapters fail with the rule they break.
//!
//! Which kind an error is follows from what would help: waiting ([`PlatformErrorKind::Retry`]), another
//! message ([`Gone`](PlatformErrorKind::Gone)), other content ([`Rejected`](PlatformErrorKind::Rejected)), another
//! platform ([`Unsupported`](PlatformErrorKind::Unsupported)), a person ([`Fatal`](PlatformErrorKind::Fatal)). When in
//! doubt whether a request arrived it is `Retry`: the key makes the repetition safe.
//!
//! Ids are opaque to the core: only the adapter that made one may look inside.
//! The same file names in every adapter help readers: `config login inbound outbound media error`,
//! as far as it has them. The console adapter is the smallest example.

mod backoff;
mod body;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod event;
mod id;
mod inbox;
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
pub use platform::{DeletionProgress, PlaceLifetime, Platform, PlatformCapabilities, RateLimit, ShowMode};
pub use task::spawn_task;
pub use tokio_util::sync::CancellationToken;

/// A boxed future, so that the traits can be used behind `Arc<dyn …>` and an adapter's large future
/// types stay inside its own crate.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
