//! Watches one turn and keeps the room showing it.
//!
//! Reads the turn's log only when something may be shown, so that a thousand deltas between two edits
//! cost one look. What people are about to see is kept in the store first.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{ShowMode, Signal};
use tokio::time::{Instant, MissedTickBehavior};

use crate::agent::{Step, TurnEvent};
use crate::delivery::{DeliveryAccount, LiveMessage, TextCheckpoint, now};
use crate::i18n::TextKey;
use crate::pace::{NextRequest, UnshownText};
use crate::poll_when_woken::poll_when_woken;
use crate::reply::{Reply, ShowStyle};
use crate::store::{self, TurnRow};
use crate::turns::log::{LogPosition, TurnLog};
use crate::util::one_line;
use crate::util::this_process;

/// "is typing" is repeated this often while a turn runs; networks forget it after a few seconds.
const TYPING: Duration = Duration::from_secs(4);

/// Text that nobody was shown yet is kept at least this often.
const CHECKPOINT: Duration = Duration::from_secs(1);

/// How soon to ask again when no edit is possible as things stand.
const NEVER: Duration = Duration::from_secs(5);

/// Shows a turn until its log ends. `already_shown` is the text that was kept of it by an earlier process.
pub async fn show(
    account: Arc<DeliveryAccount>,
    turn: Arc<TurnRow>,
    log: Arc<TurnLog>,
    already_shown: String,
) {
    let mut conversation = Conversation::new(&account, &turn, &log, already_shown);
    if let Err(error) = conversation.run().await {
        // The turn itself meets the same error and says so; the room gets the final all the same.
        tracing::error!(%error, "a growing answer could not be kept");
    }
    account.signal(&turn.place, Signal::Typing(false));
}

/// A step that people can be shown by name, whatever the agent calls it.
fn named(account: &DeliveryAccount, mut step: Step) -> Step {
    if one_line(&step.title, 1).is_empty() {
        step.title = account.words(&TextKey::NamelessTool.into()).unwrap_or_default();
    }
    step
}

/// Waits until an answer that was held back may be shown.
async fn released(live_message: &mut Option<LiveMessage>) -> store::Result<()> {
    match live_message {
        Some(live_message) => live_message.released().await,
        None => std::future::pending().await,
    }
}

struct Conversation<'a> {
    account: &'a Arc<DeliveryAccount>,
    turn: &'a Arc<TurnRow>,
    log: &'a TurnLog,
    position: LogPosition,
    reply: Reply,
    style: ShowStyle,
    /// Bytes of text that the store holds. Begins with what an earlier process kept.
    kept: usize,
    kept_at: Instant,
    /// Before this time no look at the text could show people anything new.
    next_look: Instant,
    /// The [`fingerprint`] of what the room shows. Only compared, and the text itself may be long.
    shown: u64,
    /// When the oldest event came that the room does not show; `None` if it shows all.
    unshown_since: Option<std::time::Instant>,
    /// A step or a notice is among what the room does not show.
    unshown_line: bool,
    /// A notice for a platform that cannot show it below the growing text.
    said: SeparateNotices,
}

/// Notices that are messages of their own, because what is printed cannot be taken back.
#[derive(Default)]
struct SeparateNotices {
    waiting: Option<String>,
    last: String,
    count: u32,
}

impl<'a> Conversation<'a> {
    fn new(
        account: &'a Arc<DeliveryAccount>,
        turn: &'a Arc<TurnRow>,
        log: &'a TurnLog,
        already_shown: String,
    ) -> Self {
        let style = match account.about().show {
            ShowMode::Edit { .. } | ShowMode::Once => ShowStyle::Edit { max: account.about().max_text },
            ShowMode::Append => ShowStyle::Append,
        };
        Self {
            account,
            turn,
            log,
            position: LogPosition::default(),
            kept: already_shown.len(),
            reply: Reply::new(already_shown),
            style,
            kept_at: Instant::now(),
            next_look: Instant::now(),
            shown: fingerprint(style, ""),
            unshown_since: None,
            unshown_line: false,
            said: SeparateNotices::default(),
        }
    }

    async fn run(&mut self) -> store::Result<()> {
        // Whatever is not waiting for text is boxed: a thousand streams wait, and few of them do anything.
        let mut live_message = Box::pin(LiveMessage::open(self.account, self.turn)).await?;
        let mut typing = tokio::time::interval(TYPING);
        typing.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let log = self.log;
        let mut ended = poll_when_woken(log.ended());
        loop {
            if self.log.is_ended() {
                // The final shows it all; one more edit before it would only cost a token.
                break;
            }
            if self.log.is_frozen() {
                (&mut ended).await;
                break;
            }
            self.read();
            self.say();
            let checkpoint = self.account.beat(self.kept_at + CHECKPOINT);
            let wait = match (self.unshown_since, &mut live_message) {
                (None, live_message) => self.rest(live_message.as_ref(), checkpoint),
                (Some(_), Some(_)) if self.next_look > Instant::now() => Some(self.next_look),
                (Some(since), Some(message)) => match message.next(self.unshown(since)) {
                    NextRequest::Now => {
                        Box::pin(self.show_now(message)).await?;
                        continue;
                    }
                    NextRequest::At(at) => Some(self.beat(message, Instant::from_std(at))),
                    NextRequest::Never => Some(Instant::now() + NEVER),
                },
                (Some(_), None) => Some(Instant::now() + NEVER),
            };
            // One timer for whichever comes first: each that is set costs wake-ups of its own.
            let due = wait.map_or(checkpoint, |wait| wait.min(checkpoint));
            tokio::select! {
                biased;
                () = &mut ended => break,
                released = released(&mut live_message) => released?,
                () = log.changed(&self.position), if wait.is_none() => {}
                () = tokio::time::sleep_until(due), if wait.is_some() => {
                    if wait.is_some_and(|wait| wait > Instant::now()) {
                        Box::pin(self.keep()).await?;
                    }
                }
                _ = typing.tick() => self.account.signal(&self.turn.place, Signal::Typing(true)),
            }
        }
        if self.log.is_suspended() {
            // The next process goes on; until then people should see all that came.
            self.read();
            if let Some(message) = &mut live_message {
                Box::pin(self.show_now(message)).await?;
            }
        }
        match live_message {
            Some(live_message) => Box::pin(live_message.close()).await,
            None => Ok(()),
        }
    }

    /// How long nobody needs to look although the room shows all that was read: nothing could be shown
    /// earlier. So a delta right after an edit wakes nobody.
    fn rest(&self, live_message: Option<&LiveMessage>, checkpoint: Instant) -> Option<Instant> {
        // What is not read is not kept either, so not beyond the next checkpoint.
        let live_message = live_message?;
        let until = Instant::from_std(live_message.rests_until()?).min(checkpoint);
        (until > Instant::now()).then_some(self.beat(live_message, until))
    }

    /// Later edits keep to the account's beat; the first text goes out as soon as it may.
    fn beat(&self, message: &LiveMessage, at: Instant) -> Instant {
        if message.rests_until().is_some() { self.account.beat(at) } else { at }
    }

    /// Folds what is new.
    fn read(&mut self) {
        let (account, reply, steps) = (self.account, &mut self.reply, self.account.display().steps);
        let (said, apart) = (&mut self.said, !matches!(self.account.about().show, ShowMode::Edit { .. }));
        let mut line = false;
        let news = self.log.read(&mut self.position, |event| match event {
            TurnEvent::Text(text) => reply.push_text(text),
            TurnEvent::Step(step) if steps => {
                reply.step(named(account, step));
                line = true;
            }
            TurnEvent::Notice(phrase) if apart => {
                said.waiting = phrase.and_then(|phrase| account.words(&phrase))
            }
            TurnEvent::Notice(phrase) => {
                reply.notice(phrase.and_then(|phrase| account.words(&phrase)));
                line = true;
            }
            // What is asked is a message of its own.
            TurnEvent::Step(_)
            | TurnEvent::Thought(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Record(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => {}
        });
        if let Some(since) = news {
            self.unshown_since.get_or_insert(since.into_std());
            self.unshown_line |= line;
        }
    }

    /// Sends a new notice as a message of its own. Best effort: the final says how it came out.
    fn say(&mut self) {
        let Some(words) = self.said.waiting.take().filter(|words| *words != self.said.last) else { return };
        self.said.count += 1;
        let key = self.turn.id.send_key(format_args!("w{}.{}", self.said.count, this_process()));
        self.account.say(&self.turn.place, key, words.clone());
        self.said.last = words;
    }

    fn unshown(&self, since: std::time::Instant) -> UnshownText {
        let last = self.log.changed_at().map_or(since, Instant::into_std);
        let text = self.reply.text().trim_start();
        UnshownText {
            // Before the first message all text is unshown; afterwards nobody looks.
            chars: text.len().min(64),
            line_end: self.unshown_line
                || text.get(..text.len().min(64)).is_some_and(|text| text.contains('\n')),
            since,
            last: last.max(since),
        }
    }

    async fn show_now(&mut self, message: &mut LiveMessage) -> store::Result<()> {
        let snapshot = self.reply.snapshot(self.style);
        let fingerprint = fingerprint(self.style, &snapshot);
        if snapshot.trim().is_empty() || fingerprint == self.shown {
            if self.reply.text().len() > self.account.about().max_text {
                // The message is full. What comes now is kept, and seen when the answer has ended.
                self.next_look = Instant::now() + CHECKPOINT;
            } else {
                self.unshown_since = None;
                self.unshown_line = false;
            }
            return Ok(());
        }
        // A terminal cannot take back what it printed, so keeping it once a second is enough there.
        let often =
            !matches!(self.account.about().show, ShowMode::Append) || self.kept_at.elapsed() >= CHECKPOINT;
        let checkpoint =
            if often { checkpoint(&self.reply, &mut self.kept, &mut self.kept_at) } else { None };
        let unshown = self.unshown(self.unshown_since.unwrap_or_else(now));
        if message.show(&snapshot, unshown, checkpoint).await? {
            self.log.shown(self.reply.shown_by(&snapshot));
            self.shown = fingerprint;
            self.unshown_since = None;
            self.unshown_line = false;
        }
        Ok(())
    }

    /// Keeps what is new without showing it.
    async fn keep(&mut self) -> store::Result<()> {
        self.read();
        match checkpoint(&self.reply, &mut self.kept, &mut self.kept_at) {
            Some(checkpoint) => LiveMessage::keep(self.account, self.turn, checkpoint).await,
            None => Ok(()),
        }
    }
}

/// The text that the store does not hold yet; `kept` is how much it holds, `kept_at` since when.
fn checkpoint(reply: &Reply, kept: &mut usize, kept_at: &mut Instant) -> Option<TextCheckpoint> {
    *kept_at = Instant::now();
    let text = reply.text();
    let new = text.get(*kept..).filter(|new| !new.is_empty())?.to_owned();
    let offset = std::mem::replace(kept, text.len());
    Some(TextCheckpoint { offset, text: new })
}

/// Tells two texts apart. Were it ever wrong, one edit would be left out; the final does not ask. Where text is only
/// ever added, its length says as much, and costs nothing for each frame of a long answer.
fn fingerprint(style: ShowStyle, text: &str) -> u64 {
    if style == ShowStyle::Append {
        return text.len() as u64;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
