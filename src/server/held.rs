//! The answer to whoever has a key: it breaks off when the key no longer counts, and holds an app's place for as long as
//! it is read.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::rarely::{Rarely, rarely};

/// A body with what it holds.
pub struct Held {
    body: Body,
    /// Asked with every delta of a stream, behind a lock that all streams with this key share.
    revoked: Rarely<WaitForCancellationFutureOwned>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Holds a place until the body is read or given up.
    pub fn new(body: Body, revoked: CancellationToken, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, revoked: rarely(revoked.cancelled_owned()), _place: place }
    }
}

impl hyper::body::Body for Held {
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
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
