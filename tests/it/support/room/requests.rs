//! Requests to the network, and the ways in which they can fail.

use std::time::Duration;

use talaria_platform::{MessageBody, MessageId, Place, PlatformErrorKind, RateLimit, SendKey};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A request that came in.
#[derive(Clone, Debug)]
pub struct Request {
    pub at: Instant,
    pub what: What,
    pub place: Place,
    pub key: SendKey,
    pub body: MessageBody,
    /// Whether it was refused by the rate limit.
    pub refused: bool,
}

/// The action that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Send,
    Edit(MessageId),
}

/// How a request fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No effect; this is the response.
    Answers(PlatformErrorKind),
    /// It has its effect, but the response is lost.
    LostAnswer,
    /// There is never a response; the effect comes when the gate opens.
    Late(Gate),
    /// Effect and response come when the gate opens.
    Waits(Gate),
}

/// Holds a request until a test releases it.
#[derive(Clone, Debug, Default)]
pub struct Gate(CancellationToken);

impl Gate {
    /// Lets everything through, now and later.
    pub fn open(&self) {
        self.0.cancel();
    }

    pub async fn opened(&self) {
        self.0.cancelled().await;
    }
}

/// The network's own limit, which the gateway can only guess.
pub struct Bucket {
    rate: RateLimit,
    tokens: f64,
    as_of: Instant,
}

impl Bucket {
    pub fn new(rate: RateLimit) -> Self {
        Self { rate, tokens: rate.burst, as_of: Instant::now() }
    }

    /// Takes a token, or returns how long until there is one.
    pub fn take(&mut self) -> Result<(), Duration> {
        let passed = self.as_of.elapsed().as_secs_f64();
        self.as_of = Instant::now();
        self.tokens = (self.tokens + passed * self.rate.per_second).min(self.rate.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.rate.per_second))
    }
}
