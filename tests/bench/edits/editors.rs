//! Editors, which decide when to send: ours, and one with a fixed interval.

use std::time::{Duration, Instant};

use talaria::pace::{EDITS, EditPace, NextRequest, RateLimiter, RequestClass, RequestTicket, UnshownText};
use talaria_platform::RateLimit;

use super::SECOND;
use super::network::Network;
use super::simulation::epoch;

/// Decides when to send. `text` is `None` for the final.
pub trait Editor {
    fn next(&self, stream: usize, now: Instant, text: Option<UnshownText>, open: usize) -> NextRequest;
    fn started(&mut self, stream: usize, now: Instant, text: Option<UnshownText>) -> Option<RequestTicket>;
    fn answered(&mut self, ticket: Option<RequestTicket>, now: Instant, outcome: Result<(), Duration>);
}

/// Our editor.
pub struct Paced {
    rate_limiter: RateLimiter,
    streams: Vec<EditPace>,
}

impl Paced {
    pub fn new(network: &Network, belief: Option<RateLimit>, streams: usize) -> Self {
        let rate_limiter = RateLimiter::new(epoch(), belief, None);
        Self { rate_limiter, streams: vec![EditPace::new(network.pause, EDITS); streams] }
    }
}

impl Editor for Paced {
    fn next(&self, stream: usize, now: Instant, text: Option<UnshownText>, open: usize) -> NextRequest {
        match text {
            Some(text) => self.streams[stream].next(now, text, &self.rate_limiter, open),
            None => self.rate_limiter.next(now, RequestClass::Final, open),
        }
    }

    fn started(&mut self, stream: usize, now: Instant, text: Option<UnshownText>) -> Option<RequestTicket> {
        if let Some(text) = text {
            self.streams[stream].started(now, text);
        }
        Some(self.rate_limiter.started(now))
    }

    fn answered(&mut self, ticket: Option<RequestTicket>, now: Instant, outcome: Result<(), Duration>) {
        match (ticket, outcome) {
            (Some(ticket), Ok(())) => self.rate_limiter.succeeded(ticket),
            (Some(ticket), Err(after)) => self.rate_limiter.limited(ticket, now, after),
            (None, _) => {}
        }
    }
}

/// Sends an edit each second until the network refuses, then again when allowed.
#[derive(Default)]
pub struct Fixed {
    latest: Option<Instant>,
    held: Option<Instant>,
}

impl Editor for Fixed {
    fn next(&self, _: usize, now: Instant, text: Option<UnshownText>, _: usize) -> NextRequest {
        let paced = self.latest.filter(|_| text.is_some()).map(|latest| latest + SECOND);
        match paced.max(self.held) {
            Some(due) if due > now => NextRequest::At(due),
            _ => NextRequest::Now,
        }
    }

    fn started(&mut self, _: usize, now: Instant, _: Option<UnshownText>) -> Option<RequestTicket> {
        self.latest = Some(now);
        None
    }

    fn answered(&mut self, _: Option<RequestTicket>, now: Instant, outcome: Result<(), Duration>) {
        self.held = outcome.err().map(|after| now + after);
    }
}
