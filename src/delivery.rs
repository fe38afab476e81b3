//! Makes platforms show the latest reply, as often as they permit.
//!
//! One [`DeliveryAccount`] per platform entry holds the state that its streams share: the rate limiter and the
//! outbox. A growing answer ([`LiveMessage`]) is best effort: the latest text wins, one request at a time,
//! dropped when the network is busy. Messages that must arrive stay in the outbox until they have ([`outbox`]).

mod live_message;
pub mod outbox;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{
    AccountId, BodyKind, EventId, MessageBody, MessageId, Place, Platform, PlatformCapabilities,
    PlatformError, PlatformErrorKind, RateLimit, SendKey, ShowMode, Signal, spawn_task,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::StepsSetting;
use crate::i18n::LocalizedText;
use crate::ids::TurnId;
use crate::metrics::Metrics;
use crate::pace::{NextRequest, RateLimiter, RequestClass, RequestTicket};
use crate::rules::LiveRules;
use crate::store::{self, Store, unix_now};

pub use live_message::{LiveMessage, TextCheckpoint};

/// Time limit for one request to a platform. Afterwards its outcome is unknown.
pub const REQUEST: Duration = Duration::from_secs(30);

/// Time after which a transient signal (typing) is given up.
const SIGNAL: Duration = Duration::from_secs(5);

/// Later edits of an account's growing answers are checked on a common beat, so that they share wake-ups and
/// commits. Short compared with the pause between two edits, and long compared with a commit.
const BEAT: Duration = Duration::from_millis(50);

/// All accounts.
pub struct Delivery {
    accounts: HashMap<AccountId, Arc<DeliveryAccount>>,
    metrics: Arc<Metrics>,
}

/// One account on a chat network, seen from the sending side.
pub struct DeliveryAccount {
    id: AccountId,
    platform: Arc<dyn Platform>,
    about: PlatformCapabilities,
    store: Store,
    /// The operator's settings for how answers are shown.
    display: DisplaySettings,
    /// Current rules, with the texts for rooms.
    live: Arc<LiveRules>,
    rate_limiter: Mutex<RateLimiter>,
    /// Time from which [`DeliveryAccount::beat`] counts.
    began: Instant,
    /// Turns whose answer is growing now. Their rows in the outbox wait until the last edit is done.
    open: Mutex<HashSet<TurnId>>,
    /// Wakes the outbox: rows were added, or may be sent now.
    work: Notify,
    /// Notified when a row is done. [`DeliveryAccount::flushed`] waits for it, and so do answers that are held back
    /// behind an earlier turn.
    done: Notify,
    /// Fired when the account can no longer be used.
    lost: CancellationToken,
    /// Set by the task that runs the platform, read for the operator.
    reading: Mutex<ReadingState>,
    /// Counts edits and retries.
    metrics: Arc<Metrics>,
}

/// Whether a platform receives messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadingState {
    /// The platform has not begun to read.
    #[default]
    Starting,
    /// The platform reads, as far as we know.
    Reads,
    /// The platform failed and is retried after a pause.
    Pausing,
    /// The platform has nothing more to read.
    Ended,
}

/// Settings for the display of answers.
#[derive(Clone, Copy, Debug)]
pub struct DisplaySettings {
    /// How tool calls are shown while they run.
    pub steps: StepsSetting,
    /// Most edits of one growing answer, not counting the final.
    pub edits: u32,
    /// Whether reactions on a prompt show its progress.
    pub reactions: bool,
}

impl Delivery {
    /// Delivery without accounts.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { accounts: HashMap::new(), metrics }
    }

    /// Adds an account, with the rate that its rate limiter learned in earlier runs.
    pub async fn add(
        &mut self,
        id: AccountId,
        platform: Arc<dyn Platform>,
        store: Store,
        display: DisplaySettings,
        live: Arc<LiveRules>,
    ) -> store::Result<Arc<DeliveryAccount>> {
        let about = platform.about();
        let key = rate_key(&id);
        let learned =
            store.read(move |tx| tx.setting(&key)).await?.and_then(|text| parse_rate(&text, about.rate));
        let account = Arc::new(DeliveryAccount {
            platform,
            about,
            store,
            display,
            live,
            rate_limiter: Mutex::new(RateLimiter::new(now(), about.rate, learned)),
            began: Instant::now(),
            open: Mutex::default(),
            work: Notify::new(),
            done: Notify::new(),
            lost: CancellationToken::new(),
            reading: Mutex::default(),
            metrics: self.metrics.clone(),
            id: id.clone(),
        });
        self.accounts.insert(id, account.clone());
        Ok(account)
    }

    /// An account by its id.
    pub fn account(&self, id: &AccountId) -> Option<Arc<DeliveryAccount>> {
        self.accounts.get(id).cloned()
    }

    /// Longest message of an account, in bytes; unlimited for an unknown account.
    pub fn max_text(&self, id: &AccountId) -> usize {
        self.accounts.get(id).map_or(usize::MAX, |account| account.about().max_text)
    }

    /// All accounts.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<DeliveryAccount>> {
        self.accounts.values()
    }
}

impl DeliveryAccount {
    /// Id of the account.
    pub fn id(&self) -> &AccountId {
        &self.id
    }

    /// The account's platform.
    pub fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    /// Capabilities of the platform.
    pub fn about(&self) -> &PlatformCapabilities {
        &self.about
    }

    /// Settings for the display of answers.
    pub fn display(&self) -> DisplaySettings {
        self.display
    }

    /// A text in the current wording; `None` if the operator silenced it.
    pub fn words(&self, phrase: &LocalizedText) -> Option<String> {
        Some(self.live.now().words.say(phrase)).filter(|words| !words.trim().is_empty())
    }

    /// Whether an answer can replace an earlier one in the same message.
    fn takes_over(&self) -> bool {
        matches!(self.about.show, ShowMode::Edit { .. })
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Fires when the account can no longer be used.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Whether the platform receives messages. Not meaningful once the account is lost.
    pub fn reading(&self) -> ReadingState {
        *self.reading.lock()
    }

    /// Sets whether the platform receives messages.
    pub fn set_reading(&self, reading: ReadingState) {
        *self.reading.lock() = reading;
    }

    /// The first beat at `at` or after it.
    pub fn beat(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.began);
        let late = since.as_nanos() % BEAT.as_nanos();
        let rest = Duration::from_nanos(u64::try_from(late).unwrap_or_default());
        if rest.is_zero() { at } else { at + (BEAT - rest) }
    }

    /// Wakes the outbox, which may have something to do.
    pub fn wake(&self) {
        self.work.notify_one();
    }

    /// Sends a transient signal without waiting for it.
    pub fn signal(self: &Arc<Self>, place: &Place, signal: Signal) {
        let (account, place) = (self.clone(), place.clone());
        spawn_task("signal", async move {
            let _ = tokio::time::timeout(SIGNAL, account.platform.signal(&place, signal)).await;
        });
    }

    /// Adds a reaction to a person's message, if the operator wants reactions. Tried once, within the rate
    /// limit: networks count a reaction as a message.
    pub fn mark(self: &Arc<Self>, place: &Place, event: &EventId, mark: &'static str) {
        if !self.display.reactions || !self.about.react {
            return;
        }
        let (account, place, message) = (self.clone(), place.clone(), MessageId::new(event.as_str()));
        spawn_task("reaction", async move {
            // A reaction that would come later than this is no longer worth it.
            if let Ok(ticket) = tokio::time::timeout(REQUEST, account.permit(RequestClass::Notice)).await {
                let _ = account.request(ticket, account.platform.react(&place, &message, mark)).await;
            }
        });
    }

    /// Sends a notice once, without waiting for it and without retrying.
    pub fn say(self: &Arc<Self>, place: &Place, key: SendKey, words: String) {
        let (account, place) = (self.clone(), place.clone());
        spawn_task("say-once", async move {
            let ticket = account.permit(RequestClass::Notice).await;
            let body = MessageBody::new(BodyKind::Notice, words);
            let _ = account.request(ticket, account.platform.send(&place, &key, &body)).await;
        });
    }

    /// Sends a message once; returns whether it arrived.
    pub async fn tell(
        &self,
        place: &Place,
        key: &SendKey,
        body: &MessageBody,
    ) -> Result<(), PlatformErrorKind> {
        let ticket = self.permit(RequestClass::Notice).await;
        self.request(ticket, self.platform.send(place, key, body)).await.map(|_| ())
    }

    /// Waits until everything that may be sent has arrived, or the account is lost.
    pub async fn flushed(&self) -> store::Result<()> {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            let (id, now) = (self.id.clone(), unix_now());
            if self.store.read(move |tx| tx.pending_count(&id, now)).await? == 0 {
                return Ok(());
            }
            tokio::select! {
                () = done => {}
                () = self.lost.cancelled() => return Ok(()),
            }
        }
    }

    /// Waits until a request of this class may be made, and counts it as made.
    async fn permit(&self, class: RequestClass) -> RequestTicket {
        loop {
            let wait = {
                let open = self.open().len();
                let mut rate_limiter = self.rate_limiter();
                match rate_limiter.next(now(), class, open) {
                    NextRequest::Now => return rate_limiter.started(now()),
                    NextRequest::At(at) => at,
                    // Only partial edits get this answer, and they ask through their own pace.
                    NextRequest::Never => now() + REQUEST,
                }
            };
            tokio::time::sleep_until(Instant::from_std(wait)).await;
        }
    }

    /// Limits a request in time and reports its outcome to the rate limiter.
    async fn request<T>(
        &self,
        ticket: RequestTicket,
        request: impl Future<Output = Result<T, PlatformError>>,
    ) -> Result<T, PlatformErrorKind> {
        let outcome = match tokio::time::timeout(REQUEST, request).await {
            Ok(outcome) => outcome,
            Err(_) => Err(PlatformErrorKind::Retry { after: None }.into()),
        };
        match outcome {
            Ok(value) => {
                self.rate_limiter().succeeded(ticket);
                Ok(value)
            }
            Err(error) => {
                if let PlatformErrorKind::Retry { after: Some(after) } = error.kind() {
                    self.learn(ticket, after);
                } else {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(account = %self.id, error = %error, source, "a request to the platform failed");
                }
                if error.kind() == PlatformErrorKind::Fatal {
                    self.lost.cancel();
                }
                Err(error.kind())
            }
        }
    }

    /// Learns from a refusal for too many requests; the learned rate survives a restart.
    fn learn(&self, ticket: RequestTicket, after: Duration) {
        let learned = {
            let mut rate_limiter = self.rate_limiter();
            rate_limiter.limited(ticket, now(), after);
            rate_limiter.learned()
        };
        tracing::debug!(account = %self.id, ?after, "the platform asks to slow down");
        if let Some(rate) = learned {
            let (store, key) = (self.store.clone(), rate_key(&self.id));
            let text = rate_text(rate, self.about.rate);
            spawn_task("keep-a-learned-rate", async move {
                if let Err(error) = store.write(move |tx| tx.set_setting(&key, &text)).await {
                    tracing::warn!(%error, "a learned rate could not be stored");
                }
            });
        }
    }

    /// Rate limit learned from the network's refusals; `None` if there were none.
    pub fn learned(&self) -> Option<RateLimit> {
        self.rate_limiter().learned()
    }

    fn rate_limiter(&self) -> MutexGuard<'_, RateLimiter> {
        self.rate_limiter.lock()
    }

    fn open(&self) -> MutexGuard<'_, HashSet<TurnId>> {
        self.open.lock()
    }

    /// Pause before the next edit of an answer that shows `shown` bytes; `None` for platforms that only show
    /// finished answers.
    fn pause(&self, shown: usize) -> Option<Duration> {
        /// A terminal needs no pause, but a frame every 30 ms looks as smooth as every single delta.
        const FRAME: Duration = Duration::from_millis(30);
        /// Each frame prints the whole text. The pause grows by one frame per this many bytes, so that the work
        /// per second does not grow: a long answer costs linear work.
        const FRAME_TEXT: usize = 8 * 1024;
        match self.about.show {
            ShowMode::Edit { pause } => Some(pause),
            ShowMode::Append => {
                Some(FRAME.saturating_mul(u32::try_from(1 + shown / FRAME_TEXT).unwrap_or(u32::MAX)))
            }
            ShowMode::Once => None,
        }
    }
}

/// Current time for pure code, from the clock that tests can pause.
pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn rate_key(account: &AccountId) -> String {
    format!("rate.{account}")
}

/// Text to store: the learned rate, and the configured one.
fn rate_text(learned: RateLimit, prior: Option<RateLimit>) -> String {
    let numbers = |rate: RateLimit| format!("{} {}", rate.per_second, rate.burst);
    format!("{};{}", numbers(learned), prior.map(numbers).unwrap_or_default())
}

/// Parses a learned rate. Discarded when the configured rate has changed, because we never probe upwards:
/// changing it is how an operator lifts a limit.
fn parse_rate(text: &str, prior: Option<RateLimit>) -> Option<RateLimit> {
    let (per_second, burst) = text.split(';').next()?.split_once(' ')?;
    let learned = RateLimit { per_second: per_second.parse().ok()?, burst: burst.parse().ok()? };
    (text == rate_text(learned, prior)).then_some(learned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_holds_until_the_operator_believes_something_else() {
        let (learned, prior) =
            (RateLimit { per_second: 0.2, burst: 9.5 }, RateLimit { per_second: 1.0, burst: 10.0 });
        for before in [Some(prior), None] {
            assert_eq!(parse_rate(&rate_text(learned, before), before), Some(learned));
            let other = Some(RateLimit { per_second: 20.0, ..prior });
            assert_eq!(parse_rate(&rate_text(learned, before), other), None);
        }
        for text in ["", "1", "1 2", "a b;1 10", ";"] {
            assert_eq!(parse_rate(text, Some(prior)), None, "{text:?}");
        }
    }
}
