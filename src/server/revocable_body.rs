//! Response body that breaks off when the caller's key is revoked, and holds a permit until it is read.
//!
//! The permit is an app's request slot, or a share of the text budget. A long body is handed to hyper in
//! pieces: hyper drops a body once the rest of it is in hyper's own buffer, however large that is and however
//! slowly the client reads, and that would free the permit too early.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::poll_when_woken::{PollWhenWoken, poll_when_woken};

/// Most bytes handed to hyper at once.
const PIECE: usize = 64 * 1024;

/// A body with the permit that it holds.
pub struct RevocableBody<P> {
    body: Body,
    /// Rest of the frame that is being handed on.
    rest: Bytes,
    /// Polled with every delta of a stream. Polling the token itself would take a lock that all streams with
    /// this key share.
    revoked: PollWhenWoken<WaitForCancellationFutureOwned>,
    _place: Option<P>,
}

/// Makes a response hold a permit until its body is read or dropped.
pub fn held<P: Send + Unpin + 'static>(
    response: Response,
    revoked: CancellationToken,
    place: Option<P>,
) -> Response {
    response.map(|body| Body::new(RevocableBody::new(body, revoked, place)))
}

impl<P> RevocableBody<P> {
    /// Wraps a body, which holds `place` until it is read or dropped.
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
        // Checked first: a stream that always has more data would never be cut off.
        if Pin::new(&mut self.revoked).poll(context).is_ready() {
            // An error, not a clean end: the client must not take the body for complete.
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
