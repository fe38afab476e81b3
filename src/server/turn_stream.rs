//! Reads a turn, live or when it is long over, and makes a stream of it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::revocable_body::held;
use super::sse::SseBuffer;
use super::text_budget::{SHORT, no_room};
use super::turn_result::{EndParts, TurnResult};
use super::{ApiError, Caller, Server};
use crate::agent::{PriorAsk, TurnEvent};
use crate::ids::TurnId;
use crate::poll_when_woken::{PollWhenWoken, poll_when_woken};
use crate::store;
use crate::testing::keepalive_interval;
use crate::turns::log::{LogPosition, slice};
use crate::turns::{BudgetPayer, InputPermit, TooLate, TurnWatch};

/// A silent stream says this often that it lives. Less than the 30 s after which common proxies give a stream up.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How soon to look again for a turn that has no end yet and that nobody runs: the store failed it, it broke, or its
/// room has not come to it.
const AGAIN: Duration = Duration::from_millis(500);

/// How long an answer that is over waits until others are read.
const ROOM: Duration = Duration::from_secs(60);

/// The id of what comes before everything else; of several events, of the last.
pub const START: &str = "start";

/// The id of what comes after everything else.
pub const END: &str = "end";

/// One reader of one turn.
pub struct TurnReader {
    server: Arc<Server>,
    /// Which.
    pub run: TurnId,
    /// `None` if the turn ended so long ago that only the store knows it, or waits for its room.
    watch: Option<TurnWatch>,
    position: LogPosition,
    /// A reader that has seen the beginning goes on from there.
    seen_start: bool,
    /// A reader that has seen the end wants nothing but to hear that it was the end.
    seen_end: bool,
    revoked: CancellationToken,
    /// Whether it takes the events one after the other, and does not only wait for the end.
    streams: bool,
    /// What the text of its end counts, if that is long.
    room: Option<InputPermit>,
    /// Whose share that is.
    payer: BudgetPayer,
    /// How it ended, while what is missing of its text is told.
    ended: Option<Box<TurnResult>>,
    /// The text came out as another one than what grew, and all of that is told here.
    told_anew: bool,
}

/// Breaks a stream off: an end that looks like one would pass for the end of the answer.
#[derive(Debug, thiserror::Error)]
#[error("the stream is cut off")]
struct CutOff;

/// What a surface makes of what happens.
pub trait StreamFormat: Send + 'static {
    /// What the end tells a reader who has so many bytes of the text.
    fn end_parts(read: usize) -> EndParts {
        EndParts::Unread(read)
    }

    /// The first events of a stream that is read from its beginning.
    fn begin(&mut self, out: &mut SseBuffer);
    /// Something happened; a reader that goes on from `at` has seen it.
    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer);
    /// Earlier processes asked this in the turn; said again and again, and always the same.
    fn prior_asks(&mut self, _left: &Arc<[PriorAsk]>) {}
    /// Nothing more has happened so far.
    fn so_far(&mut self, _out: &mut SseBuffer) {}
    /// Whatever the reader has of the text, it came out as another one: nothing can be added to that.
    fn text_replaced(&mut self) {}
    /// The turn is over. `is_told`: the reader has the whole text in deltas, in this stream or before it.
    fn end(&mut self, end: &TurnResult, is_told: bool, out: &mut SseBuffer);
    /// The last words, which also a reader is told who has seen the end.
    fn close(&mut self, out: &mut SseBuffer);
}

/// How far a reader has come.
enum ReadProgress {
    /// There may be more.
    Yes,
    /// The turn is over.
    Ended(Box<TurnResult>),
    /// Nothing is left of the turn: its session was removed, and it was stopped for that.
    Gone,
    /// Nothing more is said here: the process ends, and the next one goes on; or the reader may no longer read.
    Cut,
}

impl TurnReader {
    /// Reads a turn from its beginning, or from behind the event that was seen last. An id that is none of ours means
    /// the beginning: too much is better than a gap.
    pub fn open(
        server: &Arc<Server>,
        caller: &Caller,
        run: &TurnId,
        after: Option<&str>,
    ) -> Result<Self, TooLate> {
        let position = after.and_then(|id| id.parse().ok());
        Ok(Self {
            watch: server.turns.watch(run)?,
            server: server.clone(),
            run: run.clone(),
            seen_start: position.is_some() || after == Some(START),
            seen_end: after == Some(END),
            position: position.unwrap_or_default(),
            revoked: caller.revoked.clone(),
            streams: false,
            room: None,
            payer: caller.payer(),
            ended: None,
            told_anew: false,
        })
    }

    /// Waits for the end, and makes an answer of it. Dropping it before is leaving.
    pub async fn until_the_end(
        mut self,
        make: impl FnOnce(TurnResult) -> Response + Send,
    ) -> Result<Response, ApiError> {
        loop {
            if let Some(watch) = &self.watch {
                tokio::select! {
                    () = watch.log.ended() => {}
                    () = self.revoked.cancelled() => return Err(ApiError::invalid_key()),
                }
            }
            let ended = tokio::time::timeout(ROOM, self.read_end(EndParts::Text)).await;
            if let Some(ended) =
                ended.map_err(|_| no_room("this one is kept, ask for its run in a moment"))??
            {
                return Ok(held(make(*ended), self.revoked.clone(), self.room.take()));
            }
            match self.look_again().await? {
                ReadProgress::Yes | ReadProgress::Ended(_) => {}
                ReadProgress::Gone => return Err(ApiError::no_session()),
                ReadProgress::Cut if self.revoked.is_cancelled() => return Err(ApiError::invalid_key()),
                ReadProgress::Cut => return Err(ApiError::draining()),
            }
        }
    }

    /// How the turn ended, if it has. Waits until there is room for a long text, which counts until this reader is gone.
    async fn read_end(&mut self, parts: EndParts) -> store::Result<Option<Box<TurnResult>>> {
        let is_long = |watch: &TurnWatch| watch.log.size() > SHORT;
        if self.watch.as_ref().is_some_and(is_long) && TurnResult::is_there(&self.server, &self.run).await? {
            // The text waits for its room there, and not in the log too.
            self.watch = None;
        }
        let (ended, room) = TurnResult::read(&self.server, &self.payer, &self.run, parts).await?;
        self.room = room;
        Ok(ended.map(Box::new))
    }

    /// The turn as a stream of events.
    pub fn stream(mut self, mut format: impl StreamFormat) -> Response {
        // A reader that only wants to hear of the end takes nothing, so nobody waits for it.
        self.streams = !self.seen_end;
        if let Some(watch) = self.watch.as_mut().filter(|_| self.streams) {
            watch.streams();
        }
        let mut frames = SseBuffer::default();
        if !self.seen_start && !self.seen_end {
            format.begin(&mut frames);
        }
        let keepalive = keepalive_interval(KEEPALIVE);
        let reading = EventStream {
            reader: self,
            format,
            frames,
            over: None,
            keepalive,
            silence: poll_when_woken(tokio::time::sleep(keepalive)),
            said: Instant::now(),
        };
        let body = futures_util::stream::unfold(reading, EventStream::next);
        let mut response = Response::new(Body::from_stream(body));
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        response
    }

    /// Hands over what is new, or waits for it.
    async fn more<S: StreamFormat>(
        &mut self,
        format: &mut S,
        out: &mut SseBuffer,
    ) -> store::Result<ReadProgress> {
        if let Some(watch) = &self.watch {
            let log = &watch.log;
            // Looked at before reading: what comes after the end is nothing.
            let ended = log.is_ended();
            format.prior_asks(log.prior_asks());
            let on = |event: TurnEvent<'_>, at: LogPosition| {
                format.event(event, &at, out);
                out.flow()
            };
            if !(self.seen_end || log.read_each(&mut self.position, on)) {
                return Ok(ReadProgress::Yes);
            }
            format.so_far(out);
            if !ended {
                if out.is_empty() {
                    // The end is a change too, and a token that is revoked cuts the answer from outside.
                    match self.seen_end {
                        false => log.changed(&self.position).await,
                        true => log.ended().await,
                    }
                }
                return Ok(ReadProgress::Yes);
            }
        }
        let going_on = self.ended.take();
        let begins = going_on.is_none();
        let ended = match going_on {
            Some(ended) => Some(ended),
            None if self.seen_end => self.read_end(EndParts::Outcome).await?,
            None => self.read_end(S::end_parts(self.position.text())).await?,
        };
        let Some(ended) = ended else { return self.look_again().await };
        if begins && ended.text_replaced {
            // What was read cannot be taken back: only the end says what it is.
            if self.position.text() > 0 {
                return Ok(ReadProgress::Ended(ended));
            }
            format.text_replaced();
            self.told_anew = true;
        }
        // The log is gone, or the text was never in it: an earlier process had it.
        while !(self.seen_end || ended.in_short) {
            let piece = slice(&ended.text, self.position.text());
            if piece.is_empty() {
                break;
            }
            self.position = self.position.with_text(self.position.text() + piece.len());
            format.event(TurnEvent::Text(piece), &self.position, out);
            if out.flow().is_break() {
                self.ended = Some(ended);
                return Ok(ReadProgress::Yes);
            }
        }
        Ok(ReadProgress::Ended(ended))
    }

    /// Whether the reader has the whole text of a turn that is over. One that came out as another text than what grew was
    /// told only to a reader who had none of that.
    fn is_told(&self, ended: &TurnResult) -> bool {
        ended.in_short || self.position.text() == ended.text.len() && (self.told_anew || !ended.text_replaced)
    }

    /// The end of a turn of which nothing is left but its log, if that has all that was read of it. Where it has not, no
    /// end is told: whoever believes it would throw away what there was.
    fn gone(&self) -> Option<TurnResult> {
        let text = self.watch.as_ref().map(|watch| watch.log.text()).unwrap_or_default();
        (text.len() >= self.position.text()).then(|| TurnResult::gone(text))
    }

    /// Waits a moment for a turn that has no end and that nobody runs.
    async fn look_again(&mut self) -> store::Result<ReadProgress> {
        let draining = self.server.turns.draining();
        let suspended = self.watch.as_ref().is_some_and(|watch| watch.log.is_suspended());
        if suspended || draining.is_cancelled() {
            return Ok(ReadProgress::Cut);
        }
        let id = self.run.clone();
        if self.server.store.read(move |tx| tx.turn_head(&id)).await?.is_none() {
            return Ok(ReadProgress::Gone);
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = draining.cancelled() => return Ok(ReadProgress::Cut),
            () = self.revoked.cancelled() => return Ok(ReadProgress::Cut),
        }
        if let Ok(Some(mut watch)) = self.server.turns.watch(&self.run) {
            if self.streams {
                watch.streams();
            }
            self.watch = Some(watch);
        }
        Ok(ReadProgress::Yes)
    }
}

/// A stream that is being written.
struct EventStream<S> {
    reader: TurnReader,
    format: S,
    frames: SseBuffer,
    /// Nothing more comes behind what waits.
    over: Option<StreamEnd>,
    /// How long the stream may be silent before it says that it lives.
    keepalive: Duration,
    /// Fires when nothing was said for long. Not moved with each delta, only when it fires.
    silence: PollWhenWoken<Sleep>,
    said: Instant,
}

/// How a stream is over.
#[derive(Clone, Copy)]
enum StreamEnd {
    /// All was said.
    Whole,
    /// It is to be broken off.
    Cut,
}

impl<S: StreamFormat> EventStream<S> {
    async fn next(mut self) -> Option<(Result<Bytes, CutOff>, Self)> {
        while self.frames.is_empty() {
            match self.over {
                Some(StreamEnd::Whole) => return None,
                Some(StreamEnd::Cut) => {
                    self.over = Some(StreamEnd::Whole);
                    return Some((Err(CutOff), self));
                }
                None => {}
            }
            let Self { reader, format, frames, over, keepalive, silence, said } = &mut self;
            let more = tokio::select! {
                biased;
                more = reader.more(format, frames) => Ok(more),
                () = &mut *silence => Err(()),
            };
            let ended = match more {
                Ok(Ok(ReadProgress::Yes)) => continue,
                Ok(Ok(ReadProgress::Ended(ended))) => Some(*ended),
                Ok(Ok(ReadProgress::Gone)) => reader.gone(),
                Ok(Ok(ReadProgress::Cut)) => None,
                Ok(Err(error)) => {
                    tracing::error!(%error, "a stream is cut off: the store failed");
                    None
                }
                Err(()) => {
                    if said.elapsed() >= *keepalive {
                        frames.keepalive();
                        *said = Instant::now();
                    }
                    silence.change().reset(*said + *keepalive);
                    continue;
                }
            };
            let Some(ended) = ended else {
                *over = Some(StreamEnd::Cut);
                continue;
            };
            if !reader.seen_end {
                format.end(&ended, reader.is_told(&ended), frames);
            }
            format.close(frames);
            *over = Some(StreamEnd::Whole);
        }
        self.said = Instant::now();
        let bytes = self.frames.take();
        Some((Ok(bytes), self))
    }
}
