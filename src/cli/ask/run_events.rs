//! Reads the events of a run, over as many connections as it takes.
//!
//! Each event has an id; a new connection asks for those behind the last one, so that nothing comes twice. Only the event
//! that ends the run ends the reading.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Response;
use talaria_platform::Backoff;
use tokio::time::Instant;

use super::failure::{AskFailure, FailureExit};
use super::run_client::{PAUSES, RequestFailure, RunClient, SILENCE};
use crate::agents::proxy::runs::UpstreamRunId;
use crate::openai::event_stream::LAST;
use crate::openai::sse::SseParser;

/// Bytes of an event that is too long for an ordinary one, in which its kind must stand.
const BEGINNING: usize = 4096;

/// Events of one run.
pub(super) struct RunEvents<'a> {
    client: &'a RunClient,
    run: UpstreamRunId,
    open: Option<EventStream>,
    /// Id of the last event that was returned; empty before the first.
    seen: String,
    /// Every event had an id. Without ids a new connection would repeat all of them.
    is_numbered: bool,
    /// Events that have come and were not returned yet. No more than one read of the connection holds.
    waiting: VecDeque<(String, String)>,
    /// Since when there has been no byte of a stream.
    lost: Option<Instant>,
    /// Moment of the next try to connect.
    again: Option<Instant>,
    pauses: Backoff,
}

/// Result of reading.
pub(super) enum ReadResult {
    /// Data of the next event.
    Event(String),
    /// The connection was lost; reading on connects again.
    Lost,
    /// There is a connection again.
    Back,
}

struct EventStream {
    response: Response,
    parser: SseParser,
}

impl<'a> RunEvents<'a> {
    pub(super) fn new(client: &'a RunClient, run: UpstreamRunId) -> Self {
        Self {
            client,
            run,
            open: None,
            seen: String::new(),
            is_numbered: true,
            waiting: VecDeque::new(),
            lost: None,
            again: None,
            pauses: PAUSES,
        }
    }

    /// The next event. May be dropped at any time and called again: what was read is kept.
    pub(super) async fn next(&mut self) -> Result<ReadResult, AskFailure> {
        loop {
            if let Some((id, data)) = self.waiting.pop_front() {
                match id.is_empty() {
                    true => self.is_numbered = false,
                    false => self.seen = id,
                }
                return Ok(ReadResult::Event(data));
            }
            let Some(stream) = &mut self.open else {
                if let Some(again) = self.again {
                    tokio::time::sleep_until(again).await;
                }
                match self.client.events(&self.run, &self.seen).await {
                    Ok(response) => {
                        self.open = Some(EventStream { response, parser: SseParser::default() });
                        continue;
                    }
                    Err(RequestFailure::Temporary { failure, after, .. }) => {
                        if self.try_again(failure, after)? {
                            return Ok(ReadResult::Lost);
                        }
                        continue;
                    }
                    Err(RequestFailure::Final(failure)) => return Err(failure),
                }
            };
            let chunk = tokio::time::timeout(SILENCE, stream.response.chunk()).await;
            let Ok(Ok(Some(chunk))) = chunk else {
                self.open = None;
                let failure = AskFailure::unreachable(
                    "the connection to the server was lost",
                    "the run may go on over there; ask again in the same session to go on",
                );
                if self.try_again(failure, None)? {
                    return Ok(ReadResult::Lost);
                }
                continue;
            };
            stream.take(&chunk, &mut self.waiting)?;
            self.again = None;
            self.pauses = PAUSES;
            if self.lost.take().is_some() {
                return Ok(ReadResult::Back);
            }
        }
    }

    /// Plans the next try; the failure, if there was no byte for too long. Returns whether this is the first failure.
    fn try_again(&mut self, failure: AskFailure, after: Option<Duration>) -> Result<bool, AskFailure> {
        let now = Instant::now();
        let is_first = self.lost.is_none();
        let pause = after.unwrap_or_default().max(self.pauses.advance());
        let gives_up_at = *self.lost.get_or_insert(now) + self.client.retry_for;
        if !self.is_numbered || now + pause > gives_up_at {
            return Err(failure);
        }
        self.again = Some(now + pause);
        Ok(is_first)
    }
}

impl EventStream {
    /// Adds the events that end in these bytes.
    fn take(&mut self, chunk: &[u8], events: &mut VecDeque<(String, String)>) -> Result<(), AskFailure> {
        let mut found = self.parser.feed(chunk);
        loop {
            match found.next_event() {
                Ok(Some(event)) => {
                    let id = if event.own_id { event.id.to_owned() } else { String::new() };
                    events.push_back((id, event.text().into_owned()));
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let beginning = found.beginning(BEGINNING);
                    let ends = memchr::memmem::find(&beginning, br#""event":"run."#).is_some();
                    if !(ends && found.raise(LAST)) {
                        return Err(AskFailure::new(FailureExit::Unanswered, format!("{error}"), None));
                    }
                }
            }
        }
    }
}
