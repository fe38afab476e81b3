//! The answer to whoever has a key: it breaks off when the key no longer counts, and holds an app's place for as long as
//! it is read, or what its text counts. A long one is handed on in pieces: HTTP lets go of a body once it has the last of it in its own buffer,
//! however much that is and however slowly it is read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::poll_when_woken::{PollWhenWoken, poll_when_woken};

/// Bytes that are handed on at once.
const PIECE: usize = 64 * 1024;

/// A body with what it holds.
pub struct RevocableBody<P> {
    body: Body,
    /// What is left of the frame that is handed on.
    rest: Bytes,
    /// Asked with every delta of a stream, behind a lock that all streams with this key share.
    revoked: PollWhenWoken<WaitForCancellationFutureOwned>,
    _place: Option<P>,
}

/// A response that holds something until it is read or given up.
pub fn held<P: Send + Unpin + 'static>(
    response: Response,
    revoked: CancellationToken,
    place: Option<P>,
) -> Response {
    response.map(|body| Body::new(RevocableBody::new(body, revoked, place)))
}

impl<P> RevocableBody<P> {
    /// Holds a place until the body is read or given up.
    pub fn new(body: Body, revoked: CancellationToken, place: Option<P>) -> Self {
        Self { body, rest: Bytes::new(), revoked: poll_when_woken(revoked.cancelled_owned()), _place: place }
    }
}

impl<P: Unpin> hyper::body::Body for RevocableBody<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Before anything else: a stream that always has more to say would never be cut.
        if Pin::new(&mut self.revoked).poll(context).is_ready() {
            // Not a clean end: the reader must not take it for the whole.
            return Poll::Ready(Some(Err(axum::Error::new("the key no longer counts"))));
        }
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) if data.len() > PIECE => self.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn a_long_body_comes_in_pieces_and_holds_its_place_until_the_last() {
        let places = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let long: Vec<u8> = (0..3 * PIECE + 7).map(|number| number as u8).collect();
        let place = places.clone().try_acquire_owned().ok();
        let held = RevocableBody::new(Body::from(long.clone()), CancellationToken::new(), place);
        assert_eq!(held.size_hint().exact(), Some(long.len() as u64));
        let mut stream = Body::new(held).into_data_stream();
        let mut read = Vec::new();
        while read.len() < long.len() {
            assert_eq!(places.available_permits(), 0);
            let piece = stream.next().await.unwrap().unwrap();
            assert!(piece.len() <= PIECE);
            read.extend_from_slice(&piece);
        }
        assert!(read == long);
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!(places.available_permits(), 1);
    }
}
