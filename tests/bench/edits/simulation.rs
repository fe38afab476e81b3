//! Text that arrives, an editor, and a server that refuses, in virtual time.

use std::time::{Duration, Instant};

use talaria::pace::{NextRequest, RequestTicket, UnshownText};
use talaria_platform::RateLimit;

use super::editors::Editor;
use super::network::Network;
use super::text::{TOKEN_CHARS, Trace};

/// Any fixed moment; only differences count.
pub fn epoch() -> Instant {
    use std::sync::LazyLock;
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    *EPOCH
}

/// The server's real bucket: counts a request when it arrives, charges nothing for a refusal, names the exact time.
struct Server {
    bucket: Option<RateLimit>,
    tokens: f64,
    as_of: Instant,
}

impl Server {
    fn request(&mut self, at: Instant) -> Result<(), Duration> {
        let Some(rate) = self.bucket else { return Ok(()) };
        self.tokens = (self.tokens + (at - self.as_of).as_secs_f64() * rate.per_second).min(rate.burst);
        self.as_of = at;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / rate.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

pub struct Outcome {
    pub streams: Vec<Stream>,
    pub refused: u32,
}

impl Outcome {
    /// Staleness S over all streams.
    pub fn staleness(&self) -> f64 {
        let waited: f64 = self.streams.iter().map(|stream| stream.waited).sum();
        let tokens: usize = self.streams.iter().map(|stream| stream.tokens.len()).sum();
        waited / tokens as f64
    }

    /// Seconds from the end of each text to an event; infinite if it never happened.
    pub fn lags(&self, what: fn(&Stream) -> Option<Instant>) -> impl Iterator<Item = f64> {
        self.streams
            .iter()
            .map(move |stream| what(stream).map_or(f64::INFINITY, |time| (time - stream.end()).as_secs_f64()))
    }
}

pub struct Stream {
    pub tokens: Vec<Instant>,
    pub arrived: usize,
    pub shown: usize,
    flight: Option<Flight>,
    /// Seconds that tokens waited until they were visible, summed.
    pub waited: f64,
    pub starts: Vec<Instant>,
    pub final_started: Option<Instant>,
    pub final_shown: Option<Instant>,
}

struct Flight {
    back: Instant,
    tokens: usize,
    outcome: Result<(), Duration>,
    ticket: Option<RequestTicket>,
    last: bool,
}

impl Stream {
    pub fn new(trace: &Trace) -> Self {
        Self {
            tokens: trace.tokens.iter().map(|&after| epoch() + after).collect(),
            arrived: 0,
            shown: 0,
            flight: None,
            waited: 0.0,
            starts: Vec::new(),
            final_started: None,
            final_shown: None,
        }
    }

    pub fn end(&self) -> Instant {
        self.tokens[self.tokens.len() - 1]
    }

    pub fn complete(&self) -> bool {
        self.arrived == self.tokens.len()
    }

    /// The text that arrived and is not shown; the final is due as soon as the text is complete.
    pub fn unshown(&self) -> Option<UnshownText> {
        (self.arrived > self.shown).then(|| UnshownText {
            chars: (self.arrived - self.shown) * TOKEN_CHARS,
            line_end: false,
            since: self.tokens[self.shown],
            last: self.tokens[self.arrived - 1],
        })
    }

    pub fn land(&mut self, now: Instant, editor: &mut impl Editor) -> u32 {
        let Some(flight) = self.flight.take_if(|flight| flight.back <= now) else { return 0 };
        editor.answered(flight.ticket, now, flight.outcome);
        if flight.outcome.is_err() {
            return 1;
        }
        self.waited +=
            self.tokens[self.shown..flight.tokens].iter().map(|&t| (now - t).as_secs_f64()).sum::<f64>();
        self.shown = flight.tokens;
        self.final_shown = flight.last.then_some(now);
        0
    }
}

pub fn simulate(network: &Network, trip: Duration, traces: &[Trace], mut editor: impl Editor) -> Outcome {
    let mut server = Server {
        bucket: network.bucket,
        tokens: network.bucket.map_or(0.0, |rate| rate.burst),
        as_of: epoch(),
    };
    let mut streams: Vec<_> = traces.iter().map(Stream::new).collect();
    let mut refused = 0;
    let mut now = epoch();
    loop {
        let mut wake: Option<Instant> = None;
        let mut at = |time: Instant| wake = Some(wake.map_or(time, |wake| wake.min(time)));
        for stream in &mut streams {
            refused += stream.land(now, &mut editor);
            stream.arrived +=
                stream.tokens[stream.arrived..].iter().take_while(|&&token| token <= now).count();
            if let Some(&token) = stream.tokens.get(stream.arrived) {
                at(token);
            }
        }
        let open = streams.iter().filter(|stream| stream.final_started.is_none()).count();
        for (index, stream) in streams.iter_mut().enumerate() {
            if let Some(flight) = &stream.flight {
                at(flight.back);
                continue;
            }
            let last = stream.complete();
            let text = stream.unshown().filter(|_| !last);
            if stream.final_shown.is_some() || text.is_none() && !last {
                continue;
            }
            match editor.next(index, now, text, open) {
                NextRequest::Never => {}
                NextRequest::At(time) => at(time),
                NextRequest::Now => {
                    if last {
                        stream.final_started = Some(now);
                    } else {
                        stream.starts.push(now);
                    }
                    let ticket = editor.started(index, now, text);
                    let outcome = server.request(now + trip / 2);
                    stream.flight =
                        Some(Flight { back: now + trip, tokens: stream.arrived, outcome, ticket, last });
                    at(now + trip);
                }
            }
        }
        match wake {
            Some(time) => now = time,
            None => return Outcome { streams, refused },
        }
    }
}
