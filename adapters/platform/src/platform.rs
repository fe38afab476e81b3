//! The trait an adapter implements, and how it describes itself.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    BoxFuture, CancellationToken, Inbox, MediaId, MessageBody, MessageId, Place, PlatformError,
    PlatformErrorKind, SendKey, Signal,
};

/// An account on a chat network.
pub trait Platform: Send + Sync {
    /// What this platform can do. Called when the gateway is built; must be constant and must not
    /// touch the network.
    fn about(&self) -> PlatformCapabilities;

    /// Reads until `stop` fires or there is nothing more to read; never called twice at a time.
    ///
    /// Reconnects by itself for as long as that can help. `Err` with [`PlatformErrorKind::Fatal`] stops this
    /// platform for good; any other error makes the core call `run` again after a pause, with the
    /// same inbox. May be dropped at any await; whatever was not accepted then counts as not read.
    fn run(&self, inbox: Arc<dyn Inbox>, stop: CancellationToken)
    -> BoxFuture<'_, Result<(), PlatformError>>;

    /// Whether the network is known not to be reached at this moment, while `run` tries again by itself. Must not
    /// wait for anything.
    fn is_away(&self) -> bool {
        false
    }

    /// How long a place lasts. Asked before a turn is run there and before it is left to the next process. Must not
    /// wait for anything.
    fn lasts(&self, _place: &Place) -> PlaceLifetime {
        PlaceLifetime::Always
    }

    /// Posts a message and returns its id; one request. Two sends to one place may be under way at
    /// once (an answer that begins and a notice), never two with one key. The same `key` again (after a crash or an unknown outcome, perhaps with another
    /// body) returns the message that is already there instead of posting a second one.
    fn send<'a>(
        &'a self,
        place: &'a Place,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<MessageId, PlatformError>>;

    /// Makes an earlier message read `body`; one request. Only called where
    /// [`PlatformCapabilities::show`] is `Edit` or `Append`, and never twice at a time for one message;
    /// elsewhere it returns [`PlatformErrorKind::Unsupported`]. The message may be one that an earlier
    /// process sent, and the same body may come twice. `key` is the edit's own.
    fn edit<'a>(
        &'a self,
        place: &'a Place,
        message: &'a MessageId,
        key: &'a SendKey,
        body: &'a MessageBody,
    ) -> BoxFuture<'a, Result<(), PlatformError>>;

    /// Takes an earlier message of ours back, with everything that it ever said; one request. Where the network keeps
    /// edits as events of their own, they can be read after the message itself is gone: then the message goes first,
    /// one edit with each further call, and all but the last call return [`DeletionProgress::More`]. The second call comes when
    /// every edit of ours that was under way at the first one has arrived or never will; such an edit goes too. Later
    /// calls come when nothing else is to be sent, perhaps from another process. Only called where
    /// [`PlatformCapabilities::delete`] is set. A call may come again for what is gone already. After [`PlatformErrorKind::Gone`] the
    /// message counts as gone; where it is there still, because we may not take it back, that is
    /// [`PlatformErrorKind::Rejected`], and where messages can be edited it says instead that it is void.
    fn delete<'a>(
        &'a self,
        _place: &'a Place,
        _message: &'a MessageId,
        _key: &'a SendKey,
    ) -> BoxFuture<'a, Result<DeletionProgress, PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }

    /// Puts a mark on a message: one of ours, or a person's by the text of its [`EventId`](crate::EventId); one request.
    /// Only called where [`PlatformCapabilities::react`] is set; elsewhere it returns [`PlatformErrorKind::Unsupported`]. It may neither
    /// add nor change a message. A mark that is there already counts as put, because after [`PlatformErrorKind::Retry`] the call
    /// comes again, perhaps from another process, where the mark must arrive; an account that is not open yet answers
    /// that too. After [`PlatformErrorKind::Gone`] or [`PlatformErrorKind::Rejected`] the mark is given up. Marks that only say how a
    /// question goes are tried once.
    fn react<'a>(
        &'a self,
        _place: &'a Place,
        _message: &'a MessageId,
        _mark: &'a str,
    ) -> BoxFuture<'a, Result<(), PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }

    /// Shows something for a moment. Best effort: the core does not look at the outcome.
    fn signal<'a>(&'a self, _place: &'a Place, _signal: Signal) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// The content of an attached file, decrypted and checked. Must stop and fail with
    /// [`PlatformErrorKind::Rejected`] as soon as more than `limit` bytes have arrived, even if a smaller size was announced.
    fn fetch<'a>(
        &'a self,
        _media: &'a MediaId,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Vec<u8>, PlatformError>> {
        Box::pin(async { Err(PlatformErrorKind::Unsupported.into()) })
    }
}

/// What a platform can do: plain data, so that nobody has to find out by trying.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlatformCapabilities {
    /// How a growing answer is shown.
    pub show: ShowMode,
    /// Messages of ours can be taken back.
    pub delete: bool,
    /// Messages can be marked, with [`Platform::react`].
    pub react: bool,
    /// Rooms have threads.
    pub threads: bool,
    /// Files can be fetched and sent.
    pub media: bool,
    /// The longest [`MessageBody::markdown`] in bytes, at least 200. Longer answers are split.
    pub max_text: usize,
    /// What the network is believed to allow before it has said anything itself; `None` is no limit.
    /// Counts every send, edit and mark of the account, over all rooms.
    pub rate: Option<RateLimit>,
}

/// How far a message is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionProgress {
    /// Nothing of it can be read any more.
    Complete,
    /// The message is gone, but earlier texts of it can perhaps still be read: call again.
    More,
}

/// How long a place lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceLifetime {
    /// Whatever becomes of the process: what is open goes on with the next one.
    Always,
    /// As long as the process: what is open ends with it.
    Process,
    /// It ended with an earlier process. Nothing is run there any more, and whatever is sent or edited there is to be
    /// taken and shown to nobody.
    Gone,
}

/// How a growing answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowMode {
    /// By editing the message; two edits of one message are at least `pause` apart.
    Edit {
        /// The shortest pause that people and network find pleasant.
        pause: Duration,
    },
    /// By printing what is new, as a terminal does: each edit's text begins with the text before.
    Append,
    /// Not at all; only the finished answer is sent.
    Once,
}

/// A token bucket: `burst` requests at once, `per_second` in the long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests that come back each second.
    pub per_second: f64,
    /// Requests that may come at once after a pause.
    pub burst: f64,
}
