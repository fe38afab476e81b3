//! Who decides when to send: ours, and one with a fixed interval.

use std::time::{Duration, Instant};

use talaria::pace::{Class, EDITS, EditPace, Governor, Next, Ticket, Unshown};
use talaria_platform::Rate;

use super::SECOND;
use super::network::Network;
use super::simulation::epoch;

/// Who decides when to send. `text` is `None` for the final.
pub trait Editor {
    fn next(&self, stream: usize, now: Instant, text: Option<Unshown>, open: usize) -> Next;
    fn started(&mut self, stream: usize, now: Instant, text: Option<Unshown>) -> Option<Ticket>;
    fn answered(&mut self, ticket: Option<Ticket>, now: Instant, outcome: Result<(), Duration>);
}

/// Ours.
pub struct Paced {
    governor: Governor,
    streams: Vec<EditPace>,
}

impl Paced {
    pub fn new(network: &Network, belief: Option<Rate>, streams: usize) -> Self {
        let governor = Governor::new(epoch(), belief, None);
        Self { governor, streams: vec![EditPace::new(network.pause, EDITS); streams] }
    }
}

impl Editor for Paced {
    fn next(&self, stream: usize, now: Instant, text: Option<Unshown>, open: usize) -> Next {
        match text {
            Some(text) => self.streams[stream].next(now, text, &self.governor, open),
            None => self.governor.next(now, Class::Final, open),
        }
    }

    fn started(&mut self, stream: usize, now: Instant, text: Option<Unshown>) -> Option<Ticket> {
        if let Some(text) = text {
            self.streams[stream].started(now, text);
        }
        Some(self.governor.started(now))
    }

    fn answered(&mut self, ticket: Option<Ticket>, now: Instant, outcome: Result<(), Duration>) {
        match (ticket, outcome) {
            (Some(ticket), Ok(())) => self.governor.succeeded(ticket),
            (Some(ticket), Err(after)) => self.governor.limited(ticket, now, after),
            (None, _) => {}
        }
    }
}

/// An edit each second until the network refuses, then again when it may.
#[derive(Default)]
pub struct Fixed {
    latest: Option<Instant>,
    held: Option<Instant>,
}

impl Editor for Fixed {
    fn next(&self, _: usize, now: Instant, text: Option<Unshown>, _: usize) -> Next {
        let paced = self.latest.filter(|_| text.is_some()).map(|latest| latest + SECOND);
        match paced.max(self.held) {
            Some(due) if due > now => Next::At(due),
            _ => Next::Now,
        }
    }

    fn started(&mut self, _: usize, now: Instant, _: Option<Unshown>) -> Option<Ticket> {
        self.latest = Some(now);
        None
    }

    fn answered(&mut self, _: Option<Ticket>, now: Instant, outcome: Result<(), Duration>) {
        self.held = outcome.err().map(|after| now + after);
    }
}
