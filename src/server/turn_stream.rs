//! Reads a turn, running or finished, and streams it as server-sent events or waits for its end.

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
use super::text_budget::{SHORT, no_capacity};
use super::turn_result::{EndParts, TurnResult};
use super::{ApiError, Caller, Server};
use crate::agent::{PriorAsk, TurnEvent};
use crate::ids::TurnId;
use crate::poll_when_woken::{PollWhenWoken, poll_when_woken};
use crate::store;
use crate::testing::keepalive_interval;
use crate::turn_log::{LogPosition, slice};
use crate::turns::{BudgetPayer, InputPermit, TooLate, TurnWatch};

/// A stream that has been silent this long sends a keepalive comment. Common proxies drop a stream after 30 s
/// of silence.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Pause before looking again for a turn that has no end yet and is not running: a store error broke it, it
/// panicked, or the room has not reached it in its queue.
const AGAIN: Duration = Duration::from_millis(500);

/// Longest wait of a finished answer for the text budget, until other answers have been sent.
const BUDGET_WAIT: Duration = Duration::from_secs(60);

/// Event id of the beginning: carried by the last of the events that [`StreamFormat::begin`] writes.
pub const START: &str = "start";

/// Event id of the last event of a stream.
pub const END: &str = "end";

/// One reader of one turn.
pub struct TurnReader {
    server: Arc<Server>,
    /// The turn that is read.
    pub run: TurnId,
    /// `None` if the turn ended so long ago that only the store has it, or waits in the queue of its room.
    watch: Option<TurnWatch>,
    position: LogPosition,
    /// The reader has the opening events already (it named a position or [`START`] in `Last-Event-ID`).
    seen_start: bool,
    /// The reader has the end already; it is only told that nothing follows.
    seen_end: bool,
    revoked: CancellationToken,
    /// Whether it streams events, and does not only wait for the end.
    streams: bool,
    /// Share of the text budget that the final text occupies, if it is long.
    permit: Option<InputPermit>,
    /// Whose share of the text budget `permit` counts against.
    payer: BudgetPayer,
    /// Result of the turn, kept while the rest of its text is streamed.
    ended: Option<Box<TurnResult>>,
    /// The final text differs from the streamed deltas, and this stream sent all of it.
    told_anew: bool,
}

/// Error that breaks a stream off: a clean end would look like the end of the answer.
#[derive(Debug, thiserror::Error)]
#[error("the stream is cut off")]
struct CutOff;

/// Turns events of a turn into the events of one HTTP surface.
pub trait StreamFormat: Send + 'static {
    /// Parts of the result to load for a reader who has `read` bytes of the text.
    fn end_parts(read: usize) -> EndParts {
        EndParts::Unread(read)
    }

    /// Writes the opening events of a stream that is read from its beginning.
    fn begin(&mut self, out: &mut SseBuffer);
    /// Writes an event of the turn. `at` is the position behind it, from which a reader can resume.
    fn event(&mut self, event: TurnEvent<'_>, at: &LogPosition, out: &mut SseBuffer);
    /// Asks made before the last restart. Called before every read; idempotent.
    fn prior_asks(&mut self, _left: &Arc<[PriorAsk]>) {}
    /// Called when the reader has caught up with the log.
    fn so_far(&mut self, _out: &mut SseBuffer) {}
    /// Called when the final text is not an extension of the streamed text, so that nothing can be appended to
    /// that.
    fn text_replaced(&mut self) {}
    /// Writes the end of the turn. `is_told`: the reader has received the whole text as deltas, in this stream
    /// or before.
    fn end(&mut self, end: &TurnResult, is_told: bool, out: &mut SseBuffer);
    /// Writes the closing words of the stream, also for a reader who has seen the end.
    fn close(&mut self, out: &mut SseBuffer);
}

/// Result of one step of reading.
enum ReadProgress {
    /// More events may follow.
    Yes,
    /// The turn is over.
    Ended(Box<TurnResult>),
    /// Nothing is left of the turn: its session was deleted, and the turn was stopped for that.
    Gone,
    /// The stream breaks off: the process ends and its successor continues the turn, or the caller lost access.
    Cut,
}

impl TurnReader {
    /// Opens a turn at its beginning, or behind the event with id `after`. An unknown id means the beginning:
    /// repeating events is better than a gap.
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
            permit: None,
            payer: caller.payer(),
            ended: None,
            told_anew: false,
        })
    }

    /// Waits for the end and builds the response. The caller counts as gone when this future is dropped.
    pub async fn until_the_end(
        self,
        make: impl FnOnce(TurnResult) -> Response + Send,
    ) -> Result<Response, ApiError> {
        self.until_the_end_with(EndParts::Text, make).await
    }

    /// Like [`until_the_end`](Self::until_the_end), with only these parts of the result.
    pub async fn until_the_end_with(
        mut self,
        parts: EndParts,
        make: impl FnOnce(TurnResult) -> Response + Send,
    ) -> Result<Response, ApiError> {
        loop {
            if let Some(watch) = &self.watch {
                tokio::select! {
                    () = watch.log.ended() => {}
                    () = self.revoked.cancelled() => return Err(ApiError::invalid_key()),
                }
            }
            let ended = tokio::time::timeout(BUDGET_WAIT, self.read_end(parts)).await;
            if let Some(ended) =
                ended.map_err(|_| no_capacity("this one is kept, ask for its run in a moment"))??
            {
                return Ok(held(make(*ended), self.revoked.clone(), self.permit.take()));
            }
            match self.look_again().await? {
                ReadProgress::Yes | ReadProgress::Ended(_) => {}
                ReadProgress::Gone => return Err(ApiError::no_session()),
                ReadProgress::Cut if self.revoked.is_cancelled() => return Err(ApiError::invalid_key()),
                ReadProgress::Cut => return Err(ApiError::draining()),
            }
        }
    }

    /// Loads the result of the turn, if it has ended. Waits until the text budget allows a long text; the
    /// text counts against the budget until this reader is dropped.
    async fn read_end(&mut self, parts: EndParts) -> store::Result<Option<Box<TurnResult>>> {
        let is_long = |watch: &TurnWatch| watch.log.size() > SHORT;
        if self.watch.as_ref().is_some_and(is_long) && TurnResult::is_there(&self.server, &self.run).await? {
            // From here on the text is read from the store. Dropping the log avoids holding it twice while we
            // wait.
            self.watch = None;
        }
        let (ended, permit) = TurnResult::read(&self.server, &self.payer, &self.run, parts).await?;
        self.permit = permit;
        Ok(ended.map(Box::new))
    }

    /// Responds with the turn as a stream of events.
    pub fn stream(mut self, mut format: impl StreamFormat) -> Response {
        // A reader that only waits for the end consumes no events, so the turn must not wait for it.
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

    /// Writes new events to `out`, or waits until there are any.
    async fn more<S: StreamFormat>(
        &mut self,
        format: &mut S,
        out: &mut SseBuffer,
    ) -> store::Result<ReadProgress> {
        if let Some(watch) = &self.watch {
            let log = &watch.log;
            // Checked before reading: the log gets no event after its end.
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
                    // The end counts as a change. A revoked token cuts the response off from outside.
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
            // Deltas cannot be taken back: only the closing event tells the final text.
            if self.position.text() > 0 {
                return Ok(ReadProgress::Ended(ended));
            }
            format.text_replaced();
            self.told_anew = true;
        }
        // Sends the text that the log does not have: the log is gone, or an earlier process streamed it.
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

    /// Whether the reader has the whole text of a finished turn. A final text that differs from the streamed
    /// one is complete only for a reader who had none of the streamed text.
    fn is_told(&self, ended: &TurnResult) -> bool {
        ended.in_short || self.position.text() == ended.text.len() && (self.told_anew || !ended.text_replaced)
    }

    /// Result of a turn of which only the log is left, if the log has everything that was read. Otherwise
    /// `None`: a client that believes a shorter text to be the end would throw away text that it has.
    fn gone(&self) -> Option<TurnResult> {
        let text = self.watch.as_ref().map(|watch| watch.log.text()).unwrap_or_default();
        (text.len() >= self.position.text()).then(|| TurnResult::gone(text))
    }

    /// Waits a moment for a turn that has no end and is not running.
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

/// State of a stream that is being written.
struct EventStream<S> {
    reader: TurnReader,
    format: S,
    frames: SseBuffer,
    /// Set when nothing follows the frames in `frames`.
    over: Option<StreamEnd>,
    /// Silence after which a keepalive comment is sent.
    keepalive: Duration,
    /// Fires after the longest permitted silence. Re-armed only when it fires, not with each delta.
    silence: PollWhenWoken<Sleep>,
    said: Instant,
}

/// End of a stream.
#[derive(Clone, Copy)]
enum StreamEnd {
    /// Everything was written.
    Whole,
    /// The connection is to be broken off.
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
