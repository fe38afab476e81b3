//! The trait that an adapter implements, and the data with which it describes itself.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::{
    BoxFuture, CancellationToken, Inbox, MediaId, MessageBody, MessageId, OperatorRequest, Place,
    PlatformError, PlatformErrorKind, RequestRefusal, SendKey, Signal,
};

/// An account on a chat network.
pub trait Platform: Send + Sync {
    /// Capabilities of this platform. Called when the gateway is built; must be constant and must not touch the
    /// network.
    fn about(&self) -> PlatformCapabilities;

    /// Reads the network until `stop` fires or there is nothing more to read; never called twice at a time.
    ///
    /// Reconnects by itself for as long as that can help. `Err` with [`PlatformErrorKind::Fatal`] stops this platform
    /// for good; after any other error the core calls `run` again after a pause, with the same inbox. The core may
    /// drop the future at any await; a batch that was not accepted by then counts as not read.
    fn run(&self, inbox: Arc<dyn Inbox>, stop: CancellationToken)
    -> BoxFuture<'_, Result<(), PlatformError>>;

    /// Whether the network is known to be unreachable now, while `run` keeps trying. Must not wait for anything.
    fn is_away(&self) -> bool {
        false
    }

    /// Returns the lifetime of a place. Called before a turn runs there and before a turn is left to the next process.
    /// Must not wait for anything.
    fn lasts(&self, _place: &Place) -> PlaceLifetime {
        PlaceLifetime::Always
    }

    /// Posts a message and returns its id; one request. Two sends to one place may be under way at once (an answer
    /// that begins and a notice), never two with one key. If the core sends a `key` again (after a crash or an
    /// unknown outcome, perhaps with another body), this returns the message that is already there and posts no
    /// second one.
    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>>;

    /// Replaces the text of an earlier message by `body`; one request. Only called where
    /// [`PlatformCapabilities::show`] is `Edit` or `Append`, and never twice at a time for one message; elsewhere it
    /// returns [`PlatformErrorKind::Unsupported`]. An earlier process may have sent the message, and the same body
    /// may come twice. `key` belongs to this edit, not to the message.
    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>>;

    /// Deletes an earlier message of ours with every text that it ever had; one request.
    ///
    /// Some networks keep edits as events of their own, which stay readable after the message is gone. There the
    /// first call deletes the message, each further call deletes one edit, and all calls but the last return
    /// [`DeletionProgress::More`]. The second call comes once every edit that was under way at the first call has
    /// arrived or never will; such an edit is deleted too. Later calls come when nothing else is to be sent, perhaps
    /// from another process.
    ///
    /// Only called where [`PlatformCapabilities::delete`] is set. A call may come again for a message that is gone
    /// already. After [`PlatformErrorKind::Gone`] the core takes the message for gone. If the network does not let us
    /// delete it, return [`PlatformErrorKind::Rejected`]; where messages can be edited, the core then edits it to say
    /// that it is void.
    fn delete<'a>(
        &'a self,
        _place: &'a Place,
        _message: &'a MessageId,
        _key: &'a SendKey,
    ) -> BoxFuture<'a, Result<DeletionProgress, PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }

    /// Puts a reaction on a message: one of ours, or a person's by the text of its [`EventId`](crate::EventId); one
    /// request.
    ///
    /// Only called where [`PlatformCapabilities::react`] is set; elsewhere it returns
    /// [`PlatformErrorKind::Unsupported`]. It may neither add nor change a message. Return `Ok` for a reaction that
    /// is there already: after [`PlatformErrorKind::Retry`] the core calls again, perhaps from another process, if
    /// the reaction must arrive. An account that is not open yet returns `Retry` too. After
    /// [`PlatformErrorKind::Gone`] or [`PlatformErrorKind::Rejected`] the core gives the reaction up. It tries
    /// reactions that only show the state of a question once.
    fn react<'a>(
        &'a self,
        _place: &'a Place,
        _message: &'a MessageId,
        _mark: &'a str,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }

    /// Shows something for a moment. Best effort: the core ignores the outcome.
    fn signal<'a>(&'a self, _place: &'a Place, _signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Fetches the content of an attached file, decrypted and checked. Must stop and fail with
    /// [`PlatformErrorKind::Rejected`] as soon as more than `limit` bytes have arrived, even if a smaller size was
    /// announced.
    fn fetch<'a>(
        &'a self,
        _media: &'a MediaId,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Vec<u8>, PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }

    /// Answers a request of the operator's commands of this kind, as JSON. Called while the gateway runs, also when
    /// `run` has not opened the account yet or has ended. The core shows the error to the operator.
    fn answer_operator<'a>(
        &'a self,
        _request: OperatorRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<u8>, RequestRefusal>> {
        Box::pin(async { Err(RequestRefusal::UnknownAction) })
    }
}

/// Capabilities of a platform as plain data, so that the core need not find them out by trying.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlatformCapabilities {
    /// Way to show a growing answer.
    pub show: ShowMode,
    /// Whether our messages can be deleted, with [`Platform::delete`].
    pub delete: bool,
    /// Whether messages can get reactions, with [`Platform::react`].
    pub react: bool,
    /// Whether rooms have threads.
    pub threads: bool,
    /// Whether files can be fetched and sent.
    pub media: bool,
    /// The longest [`MessageBody::markdown`] in bytes, at least 200. Longer answers are split.
    pub max_text: usize,
    /// Rate that the network is believed to allow until it reports a limit itself; `None` is no limit. Counts every
    /// send, edit and reaction of the account, over all rooms.
    pub rate: Option<RateLimit>,
}

/// Progress of a deletion; returned by [`Platform::delete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionProgress {
    /// No text of the message can be read any more.
    Complete,
    /// The message is gone, but its earlier texts may still be readable: call again.
    More,
}

/// Lifetime of a place; returned by [`Platform::lasts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceLifetime {
    /// Longer than the process: the next process continues open turns.
    Always,
    /// As long as the process: open turns end with it.
    Process,
    /// The place ended with an earlier process. The core runs no turn there, and the adapter accepts sends and edits
    /// without showing them.
    Gone,
}

/// Way to show a growing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowMode {
    /// By editing the message; two edits of one message are at least `pause` apart.
    Edit {
        /// The shortest pause between two edits that people and the network find pleasant.
        pause: Duration,
    },
    /// By printing the new text, as a terminal does: each edit's text begins with the text before.
    Append,
    /// Not at all: only the finished answer is sent.
    Once,
}

/// When a message is meant for us in a room that is not a direct chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AddressedWhen {
    /// If it mentions us, replies to us, or is in a thread that we take part in.
    #[default]
    #[serde(rename = "required")]
    Mentioned,
    /// Always.
    #[serde(rename = "never")]
    Everything,
}

/// A token bucket: `burst` requests at once, `per_second` in the long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests added to the bucket each second.
    pub per_second: f64,
    /// Requests that may be made at once after a pause.
    pub burst: f64,
}
