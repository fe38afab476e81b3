//! Shows one running turn in its room.
//!
//! Reads the turn's log only when the room may be updated, so that a thousand deltas between two edits cost one read.
//! Stores text as a checkpoint before people see it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use talaria_platform::{ShowMode, Signal};
use tokio::time::{Instant, MissedTickBehavior};

use crate::agent::{Step, TurnEvent};
use crate::config::StepsSetting;
use crate::delivery::{DeliveryAccount, LiveMessage, TextCheckpoint, now};
use crate::i18n::TextKey;
use crate::ids::TurnId;
use crate::pace::{NextRequest, UnshownText};
use crate::poll_when_woken::poll_when_woken;
use crate::reply::{Reply, ShowStyle};
use crate::store;
use crate::turn_log::{LogPosition, TurnLog};
use crate::turn_source::RoomQuestion;
use crate::util::one_line;
use crate::util::this_process;

/// Interval of the "is typing" signal while a turn runs; networks forget it after a few seconds.
const TYPING: Duration = Duration::from_secs(4);

/// Time without visible text before people are told that the agent types. On most networks the signal costs a request
/// to begin it and another to end it, and a quick answer needs neither.
const QUIET_START: Duration = Duration::from_millis(400);

/// Longest time that unshown text stays without a checkpoint.
const CHECKPOINT: Duration = Duration::from_secs(1);

/// Pause before the state is checked again while no edit is possible.
const RECHECK: Duration = Duration::from_secs(5);

/// Shows a turn until its log ends. `already_shown` is the text that an earlier process checkpointed.
pub async fn show(
    account: Arc<DeliveryAccount>,
    turn: TurnId,
    question: Arc<RoomQuestion>,
    log: Arc<TurnLog>,
    already_shown: String,
) {
    let mut conversation = Conversation::new(&account, &turn, &question, &log, already_shown);
    if let Err(error) = conversation.run().await {
        // The turn itself meets the same error and reports it; the room gets the final all the same.
        tracing::error!(%error, "a growing answer could not be kept");
    }
    if conversation.is_typing {
        account.signal(&question.place, Signal::Typing(false));
    }
}

/// Gives a step without a printable title a generic name, so that the room can show it.
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
    turn: &'a TurnId,
    question: &'a Arc<RoomQuestion>,
    log: &'a TurnLog,
    position: LogPosition,
    reply: Reply,
    style: ShowStyle,
    /// Bytes of text that the store holds. Starts with the text that an earlier process stored.
    kept: usize,
    kept_at: Instant,
    /// Before this time no read could show people anything new.
    next_look: Instant,
    /// [`fingerprint`] of the text that the room shows. Only compared, and the text itself may be long.
    shown: u64,
    /// Time of the oldest event that the room does not show; `None` if it shows all.
    unshown_since: Option<std::time::Instant>,
    /// The events that the room does not show include a step or a notice.
    unshown_line: bool,
    /// Notices for a platform that cannot show them below the growing text.
    said: SeparateNotices,
    /// People were told that the agent types.
    is_typing: bool,
}

/// Notices sent as messages of their own, because printed text cannot be taken back.
#[derive(Default)]
struct SeparateNotices {
    waiting: Option<String>,
    last: String,
    count: u32,
}

impl<'a> Conversation<'a> {
    fn new(
        account: &'a Arc<DeliveryAccount>,
        turn: &'a TurnId,
        question: &'a Arc<RoomQuestion>,
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
            question,
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
            is_typing: false,
        }
    }

    async fn run(&mut self) -> store::Result<()> {
        // Every future except the wait for text is boxed: a thousand streams wait, and few of them do anything else.
        let mut live_message = Box::pin(LiveMessage::open(self.account, self.turn, self.question)).await?;
        let mut typing = tokio::time::interval_at(Instant::now() + QUIET_START, TYPING);
        typing.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let log = self.log;
        let mut ended = poll_when_woken(log.ended());
        loop {
            if self.log.is_ended() {
                // The final shows everything; one more edit before it would only cost a token of the rate limit.
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
                        if !self.is_typing {
                            // The text itself shows that the agent works.
                            typing.reset();
                        }
                        continue;
                    }
                    NextRequest::At(at) => Some(self.beat(message, Instant::from_std(at))),
                    NextRequest::Never => Some(Instant::now() + RECHECK),
                },
                (Some(_), None) => Some(Instant::now() + RECHECK),
            };
            // One timer for the earliest deadline: each timer that is set costs wake-ups of its own.
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
                _ = typing.tick() => {
                    self.is_typing = true;
                    self.account.signal(&self.question.place, Signal::Typing(true));
                }
            }
        }
        if self.log.is_suspended() {
            // The next process goes on; until then people should see everything that came.
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

    /// End of the sleep while the room shows everything that was read: no edit is possible earlier. So a delta
    /// right after an edit causes no wake-up.
    fn rest(&self, live_message: Option<&LiveMessage>, checkpoint: Instant) -> Option<Instant> {
        // Text that is not read is not stored either, so the sleep ends at the next checkpoint.
        let live_message = live_message?;
        let until = Instant::from_std(live_message.rests_until()?).min(checkpoint);
        (until > Instant::now()).then_some(self.beat(live_message, until))
    }

    /// Aligns later edits with the account's beat; the first text goes out as soon as it may.
    fn beat(&self, message: &LiveMessage, at: Instant) -> Instant {
        if message.rests_until().is_some() { self.account.beat(at) } else { at }
    }

    /// Folds new events of the log into the reply.
    fn read(&mut self) {
        let (account, reply, steps) = (self.account, &mut self.reply, self.account.display().steps);
        let (said, apart) = (&mut self.said, !matches!(self.account.about().show, ShowMode::Edit { .. }));
        let mut line = false;
        let news = self.log.read(&mut self.position, |event| match event {
            TurnEvent::Text(text) => reply.push_text(text),
            TurnEvent::Step(step) if steps != StepsSetting::Hidden => {
                let step = if steps == StepsSetting::Name { Step { detail: None, ..step } } else { step };
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
            // An ask is shown as a message of its own.
            TurnEvent::Step(_)
            | TurnEvent::Thought(_)
            | TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Usage(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Upstream(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => {}
        });
        if let Some(since) = news {
            self.unshown_since.get_or_insert(since.into_std());
            self.unshown_line |= line;
        }
    }

    /// Sends a new notice as a message of its own. Best effort: the final tells how the turn ended.
    fn say(&mut self) {
        let Some(words) = self.said.waiting.take().filter(|words| *words != self.said.last) else { return };
        self.said.count += 1;
        let key = self.turn.send_key(format_args!("w{}.{}", self.said.count, this_process()));
        self.account.say(&self.question.place, key, words.clone());
        self.said.last = words;
    }

    fn unshown(&self, since: std::time::Instant) -> UnshownText {
        let last = self.log.changed_at().map_or(since, Instant::into_std);
        let text = self.reply.text().trim_start();
        UnshownText {
            // Before the first message all text is unshown; after it, nobody reads this number.
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
                // The message is full. Further text is stored, and shown when the answer has ended.
                self.next_look = Instant::now() + CHECKPOINT;
            } else {
                self.unshown_since = None;
                self.unshown_line = false;
            }
            return Ok(());
        }
        // A terminal cannot take back printed text, so a checkpoint once a second is enough there.
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

    /// Stores new text without showing it.
    async fn keep(&mut self) -> store::Result<()> {
        self.read();
        match checkpoint(&self.reply, &mut self.kept, &mut self.kept_at) {
            Some(checkpoint) => LiveMessage::keep(self.account, self.turn, checkpoint).await,
            None => Ok(()),
        }
    }
}

/// Text that the store does not hold yet; `kept` is the length that it holds, `kept_at` the time of the last
/// checkpoint.
fn checkpoint(reply: &Reply, kept: &mut usize, kept_at: &mut Instant) -> Option<TextCheckpoint> {
    *kept_at = Instant::now();
    let text = reply.text();
    let new = text.get(*kept..).filter(|new| !new.is_empty())?.to_owned();
    let offset = std::mem::replace(kept, text.len());
    Some(TextCheckpoint { offset, text: new })
}

/// Cheap comparison of two texts. A collision would lose one edit; the final does not use it. Where text only grows,
/// its length is enough, and costs nothing for each frame of a long answer.
fn fingerprint(style: ShowStyle, text: &str) -> u64 {
    if style == ShowStyle::Append {
        return text.len() as u64;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
