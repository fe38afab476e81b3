//! Reads a turn, live or when it is long over, and makes a stream of it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use tokio_util::sync::CancellationToken;

use super::ended::Ended;
use super::frames::Frames;
use super::{Caller, Problem, Server};
use crate::agent::TurnEvent;
use crate::session::TurnId;
use crate::store::{self, StoreError};
use crate::turns::Watch;
use crate::turns::log::Position;

/// A stream says this often that it lives.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The id of what comes after everything else.
pub const END: &str = "end";

/// One reader of one turn.
pub struct Follow {
    server: Arc<Server>,
    /// Which.
    pub run: TurnId,
    /// `None` if the turn ended so long ago that only the store knows it.
    watch: Option<Watch>,
    position: Position,
    /// A reader that has seen the end wants nothing but to hear that it was the end.
    seen_end: bool,
    revoked: CancellationToken,
}

/// What a surface makes of what happens.
pub trait Shape: Send + 'static {
    /// The first events of a stream that is read from its beginning.
    fn begin(&mut self, out: &mut Frames);
    /// Something happened; a reader that goes on from `at` has seen it.
    fn event(&mut self, event: TurnEvent<'_>, at: &Position, out: &mut Frames);
    /// The turn is over.
    fn end(&mut self, end: &Ended, out: &mut Frames);
    /// The last words, which also a reader is told who has seen the end.
    fn close(&mut self, out: &mut Frames);
}

/// How far a reader has come.
enum More {
    /// There may be more.
    Yes,
    /// The turn is over.
    Ended(Box<Ended>),
    /// Nothing more is said here: the process ends, and the next one goes on; or the reader may no longer read.
    Cut,
}

impl Follow {
    /// Reads a turn from its beginning, or from behind the event that was seen last.
    pub fn open(server: &Arc<Server>, caller: &Caller, run: &TurnId, after: Option<&str>) -> Self {
        let position = after.and_then(|id| id.parse().ok());
        Self {
            watch: server.turns.watch(run),
            server: server.clone(),
            run: run.clone(),
            seen_end: after == Some(END),
            position: position.unwrap_or_default(),
            revoked: caller.revoked.clone(),
        }
    }

    /// Waits for the end. Dropping it before is leaving.
    pub async fn until_the_end(self) -> Result<Ended, Problem> {
        if let Some(watch) = &self.watch {
            tokio::select! {
                () = watch.log.ended() => {}
                () = self.revoked.cancelled() => return Err(Problem::invalid_key()),
            }
        }
        match Ended::read(&self.server, &self.run).await? {
            Some(ended) => Ok(ended),
            None => Err(Problem::draining()),
        }
    }

    /// The turn as a stream of events.
    pub fn stream(self, mut shape: impl Shape) -> Response {
        let mut frames = Frames::default();
        if self.position == Position::default() && !self.seen_end {
            shape.begin(&mut frames);
        }
        let reading = Reading { follow: self, shape, frames, over: false };
        let body = futures_util::stream::unfold(reading, Reading::next);
        let mut response = Response::new(Body::from_stream(body));
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        response
    }

    /// Hands over what is new, or waits for it.
    async fn more(&mut self, shape: &mut impl Shape, out: &mut Frames) -> store::Result<More> {
        if let Some(watch) = &self.watch {
            let log = &watch.log;
            // Looked at before reading: what comes after the end is nothing.
            let ended = log.is_ended();
            log.read_each(&mut self.position, |event, at| shape.event(event, &at, out));
            if !ended {
                if out.is_empty() {
                    tokio::select! {
                        () = log.changed(&self.position) => {}
                        () = self.revoked.cancelled() => return Ok(More::Cut),
                    }
                }
                return Ok(More::Yes);
            }
        }
        let Some(ended) = Ended::read(&self.server, &self.run).await? else { return Ok(More::Cut) };
        // The log is gone, or the text was never in it: an earlier process had it.
        if let Some(rest) = ended.text.get(self.position.text()..)
            && !rest.is_empty()
            && !self.seen_end
        {
            let at = self.position.with_text(ended.text.len());
            shape.event(TurnEvent::Text(rest), &at, out);
            self.position = at;
        }
        Ok(More::Ended(Box::new(ended)))
    }
}

/// A stream that is being written.
struct Reading<S> {
    follow: Follow,
    shape: S,
    frames: Frames,
    over: bool,
}

impl<S: Shape> Reading<S> {
    async fn next(mut self) -> Option<(Result<Bytes, StoreError>, Self)> {
        if self.over {
            return None;
        }
        while self.frames.is_empty() {
            let Self { follow, shape, frames, over } = &mut self;
            let more = tokio::time::timeout(KEEPALIVE, follow.more(shape, frames)).await;
            match more {
                Ok(Ok(More::Yes)) => {}
                Ok(Ok(More::Ended(ended))) => {
                    if !follow.seen_end {
                        shape.end(&ended, frames);
                    }
                    shape.close(frames);
                    *over = true;
                }
                // Without an end the client knows that there is more to come.
                Ok(Ok(More::Cut)) => return None,
                Ok(Err(error)) => {
                    *over = true;
                    return Some((Err(error), self));
                }
                Err(_) => frames.keepalive(),
            }
            if *over && frames.is_empty() {
                return None;
            }
        }
        let bytes = self.frames.take();
        Some((Ok(bytes), self))
    }
}
