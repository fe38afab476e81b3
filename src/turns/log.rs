//! What has happened in a turn so far, for any number of readers.
//!
//! Text lies in one buffer and an entry for text only says how far it reaches, so that a thousand
//! deltas between two looks cost a reader one slice and the log one entry. A reader keeps its own
//! [`LogPosition`] and asks for what is new; it is never sent anything, so a slow one holds nobody up.

mod budget;
mod position;
mod read;
mod summary;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asks::RESTART;
use crate::agent::{
    AskChoice, AskOpened, AskPosition, AskResolved, PriorAsk, Step, TokenUsage, TranscriptRecord, TurnEvent,
};
use crate::i18n::LocalizedText;
use crate::ids::AskId;
use crate::reply::EnclosedFile;
use crate::util::random_hex;
use budget::{CountedBytes, LogReaders};
pub use budget::{LogBudget, LogReader, NoRoom};
pub use position::LogPosition;
pub use read::{SLICE, slice};
pub use summary::TurnSummary;

/// Counted for each entry beside its text, so that a flood of tiny steps is bounded too.
const ENTRY: usize = 128;

/// Bytes of a text by which it grows at once, if it is longer.
const LONG: usize = 1024 * 1024;

/// Names of tools that are kept for the record; more than any honest turn uses.
const TOOLS: usize = 64;

/// The events of one turn.
pub struct TurnLog {
    inner: Mutex<LogState>,
    /// Tells readers that wait in [`TurnLog::changed`].
    changed: Notify,
    /// Fired by the engine when nothing more will come.
    ended: CancellationToken,
    /// Fired when it has grown beyond its cap.
    full: CancellationToken,
    /// The most that text, thoughts and entries may take together.
    cap: usize,
    /// Whether readers come who are told everything, also after the end: then text and thoughts stay.
    for_readers: bool,
    /// Whether the upstream is read only as fast as somebody takes it.
    waits_for_readers: bool,
    /// Tells an upstream that waits for readers that one of them took something or left.
    read_on: Notify,
    /// What earlier processes asked in this turn, and how it came out.
    prior_asks: Arc<[PriorAsk]>,
    /// Tells it from every other log, also from those of other processes.
    name: u32,
}

#[derive(Default)]
struct LogState {
    /// Shared with whoever stores the end: it may be long.
    text: Arc<String>,
    /// The reasoning, if anybody may read it.
    thoughts: String,
    entries: Vec<LogEntry>,
    /// Messages that the agent told.
    records: Vec<TranscriptRecord>,
    size: usize,
    /// The same as it counts among all logs.
    counted: CountedBytes,
    readers: LogReaders,
    /// News of steps among the entries.
    steps: usize,
    /// Questions and answers among them, without what was refused at once: the next process does not know of it.
    questions: usize,
    tools: Vec<String>,
    /// Files that came in the text. Bounded by whoever takes them out of it.
    files: Vec<EnclosedFile>,
    /// How many there were beside those.
    more_files: usize,
    /// How what is attached to the question is remembered.
    attached: Option<String>,
    usage: TokenUsage,
    /// When the newest entry came or grew.
    changed_at: Option<Instant>,
    /// When the oldest entry came, or grew, that was not read since.
    unread_since: Option<Instant>,
    /// Somebody waits in [`TurnLog::changed`]. Most deltas come while nobody does, and then nobody needs
    /// to be told.
    awaited: bool,
    /// Set before `ended` fires.
    suspended: bool,
    /// Bytes of text, from its beginning, that people have been shown.
    shown: usize,
    /// Somebody asked to stop the turn.
    frozen: bool,
    /// What the text is after all, if it is not what was told.
    settled: Option<String>,
    /// It is not what was told, and more.
    differs: bool,
    /// What an earlier process told, as far as it is kept.
    before: String,
}

enum LogEntry {
    /// Text up to this byte.
    Text(usize),
    /// Reasoning up to this byte.
    Thought(usize),
    Step(Step),
    Notice(Option<LocalizedText>),
    Asked(AskOpened),
    Answered(AskResolved),
}

/// The turn has grown beyond its cap.
#[derive(Debug)]
pub struct LogFull;

impl TurnLog {
    /// An empty log that holds at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        // A random beginning, because positions outlive their process.
        static NAMES: LazyLock<AtomicU32> =
            LazyLock::new(|| AtomicU32::new(u32::from_str_radix(&random_hex(4), 16).unwrap_or_default()));
        let (inner, changed, ended) = (Mutex::default(), Notify::new(), CancellationToken::new());
        let name = NAMES.fetch_add(1, Ordering::Relaxed).max(1);
        Self {
            inner,
            changed,
            ended,
            full: CancellationToken::new(),
            cap,
            for_readers: false,
            waits_for_readers: false,
            read_on: Notify::new(),
            prior_asks: Arc::default(),
            name,
        }
    }

    /// The same for readers who are told everything, also after the end.
    pub fn for_readers(cap: usize) -> Self {
        Self { for_readers: true, ..Self::new(cap) }
    }

    /// The same, counted in this budget.
    pub fn within(self, budget: Arc<LogBudget>) -> Self {
        self.lock().counted = CountedBytes::new(budget);
        self
    }

    /// The same of a turn that goes on only as fast as it is read, if it is.
    pub fn waiting_for_readers(self) -> Self {
        Self { waits_for_readers: true, ..self }
    }

    /// The same of a turn in which earlier processes asked this.
    pub fn after(self, prior_asks: Arc<[PriorAsk]>) -> Self {
        Self { prior_asks, ..self }
    }

    /// What earlier processes asked in this turn, and how it came out.
    pub fn prior_asks(&self) -> &Arc<[PriorAsk]> {
        &self.prior_asks
    }

    /// An earlier process told this.
    pub fn told_before(&self, text: String) {
        self.lock().before = text;
    }

    /// Whether readers come who are told everything.
    pub fn is_for_readers(&self) -> bool {
        self.for_readers
    }

    /// Appends an event. Thoughts are always counted, but kept only for those who may read them: no room may.
    pub fn append(&self, event: TurnEvent<'_>) -> Result<(), LogFull> {
        self.append_at(event).map(drop)
    }

    /// The same, and where it stands.
    pub fn append_at(&self, event: TurnEvent<'_>) -> Result<AskPosition, LogFull> {
        let appended = self.take(event);
        if appended.is_err() {
            self.full.cancel();
        }
        appended
    }

    /// Fires when the log has grown beyond its cap, whoever wrote too much.
    pub fn full(&self) -> &CancellationToken {
        &self.full
    }

    fn take(&self, event: TurnEvent<'_>) -> Result<AskPosition, LogFull> {
        let mut inner = self.lock();
        let at = inner.ask_position(&self.prior_asks);
        let now = Instant::now();
        inner.changed_at = Some(now);
        if !matches!(event, TurnEvent::Thought(_) | TurnEvent::Usage(_) | TurnEvent::Record(_)) {
            inner.unread_since.get_or_insert(now);
        }
        match event {
            TurnEvent::Text(text) => {
                inner.size += text.len();
                if inner.size > self.cap {
                    return Err(LogFull);
                }
                push(Arc::make_mut(&mut inner.text), text);
                let end = inner.text.len();
                match inner.entries.last_mut() {
                    Some(LogEntry::Text(up_to)) => *up_to = end,
                    _ => inner.add(LogEntry::Text(end)),
                }
            }
            TurnEvent::Thought(text) => {
                inner.size += text.len();
                if self.for_readers && inner.size <= self.cap {
                    push(&mut inner.thoughts, text);
                    let end = inner.thoughts.len();
                    match inner.entries.last_mut() {
                        Some(LogEntry::Thought(up_to)) => *up_to = end,
                        _ => inner.add(LogEntry::Thought(end)),
                    }
                }
            }
            TurnEvent::Step(step) => {
                inner.size += step.title.len() + step.id.len();
                inner.steps += 1;
                if inner.tools.len() < TOOLS && !step.title.is_empty() && !inner.tools.contains(&step.title) {
                    inner.tools.push(step.title.clone());
                }
                inner.add(LogEntry::Step(step));
            }
            TurnEvent::Notice(words) => inner.add(LogEntry::Notice(words)),
            TurnEvent::Usage(usage) => inner.usage = usage,
            TurnEvent::Record(record) => {
                inner.size += ENTRY + record.message.content.len();
                inner.records.push(record);
            }
            TurnEvent::Asked(asked) => {
                inner.size += asked.ask.detail.len() + asked.ask.title.len();
                inner.questions += usize::from(!asked.refused);
                inner.add(LogEntry::Asked(asked));
            }
            TurnEvent::Answered(answered) => {
                // The process may have ended it, or nearly, before whoever waited for it heard.
                if !inner.is_answered(&answered.id) {
                    inner.questions += usize::from(inner.is_asked(&answered.id));
                    inner.add(LogEntry::Answered(answered));
                }
            }
        }
        let size = inner.size.min(self.cap);
        inner.counted.grow_to(size);
        let full = inner.size > self.cap;
        let awaited = mem::take(&mut inner.awaited);
        drop(inner);
        if awaited {
            self.changed.notify_waiters();
        }
        if full { Err(LogFull) } else { Ok(at) }
    }

    /// Where a question would stand that is asked or answered now.
    pub fn ask_position(&self) -> AskPosition {
        self.lock().ask_position(&self.prior_asks)
    }

    /// Says of every question that nobody has answered that it is denied, because the process ends.
    pub fn deny_unanswered(&self) {
        let unanswered = self.lock().unanswered();
        for id in unanswered {
            let answered = AskResolved { id, choice: AskChoice::Deny, rule: RESTART };
            // One that is full ends anyway.
            let _ = self.append(TurnEvent::Answered(answered));
        }
    }

    /// Says what the text is, with the files that are in it. Where it goes on with what was told, readers get the rest;
    /// otherwise only the end says so, because what they have read cannot be taken back.
    pub fn settle(&self, text: String, files: Vec<EnclosedFile>, more_files: usize) -> Result<(), LogFull> {
        let mut inner = self.lock();
        if text.len() > self.cap {
            return Err(LogFull);
        }
        (inner.files, inner.more_files) = (files, more_files);
        let rest = text.strip_prefix(inner.text.as_str()).filter(|_| text.starts_with(&inner.before));
        let Some(rest) = rest.map(str::to_owned) else {
            inner.settled = Some(text);
            inner.differs = true;
            return Ok(());
        };
        drop(inner);
        if rest.is_empty() { Ok(()) } else { self.append(TurnEvent::Text(&rest)) }
    }

    /// Whether `text` begins with all that this process and an earlier one told.
    pub fn is_continued_by(&self, text: &str) -> bool {
        let inner = self.lock();
        text.starts_with(inner.text.as_str()) && text.starts_with(&inner.before)
    }

    /// Keeps a file for the end; the text names it.
    pub fn enclose(&self, file: EnclosedFile) {
        let mut inner = self.lock();
        inner.size += ENTRY + file.name.len();
        inner.files.push(file);
    }

    /// Counts a file that is one too many; the text names it.
    pub fn enclose_no_more(&self) {
        self.lock().more_files += 1;
    }

    /// Keeps how what is attached to the question is remembered; the last time counts.
    pub fn attached(&self, lines: String) {
        self.lock().attached = Some(lines);
    }

    /// Waits until there is something after `position`, or the end.
    pub async fn changed(&self, position: &LogPosition) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // Registered before looking, so that nothing slips in between.
        changed.as_mut().enable();
        if self.is_beyond(position) || self.is_ended() {
            return;
        }
        changed.await;
    }

    /// Waits for the end.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether the end has come.
    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Says that nothing more will come, because the turn is over.
    pub fn end(&self) {
        self.lock().counted.ends();
        self.ended.cancel();
        // The end is a change too: whoever waits for one need not wait for both with every delta.
        self.changed.notify_waiters();
    }

    /// Says that nothing more will come, because the process ends; the next one resumes the turn.
    pub fn suspend(&self) {
        self.lock().suspended = true;
        self.end();
    }

    /// Whether the turn goes on in the next process.
    pub fn is_suspended(&self) -> bool {
        self.lock().suspended
    }

    /// The text that was told; nothing where it was taken.
    pub fn text(&self) -> Arc<String> {
        self.lock().text.clone()
    }

    /// When the newest event came.
    pub fn changed_at(&self) -> Option<Instant> {
        self.lock().changed_at
    }

    /// Says that nothing more is to be shown before the end. It is near, and whoever asked may have left: what
    /// comes until then is not for those who stay.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Whether only the end is to be shown.
    pub fn is_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// The room shows the text up to this byte.
    pub fn shown(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.shown = inner.shown.max(bytes);
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        self.lock().size
    }

    /// The whole text, the tools and the cost. Taken out where nobody reads a turn any more that is over, because
    /// the text may be long.
    pub fn take_summary(&self) -> TurnSummary {
        let mut inner = self.lock();
        let settled = inner.settled.take();
        // Only `settle` looks at it, and the agent is done. The log may stay, and this may be as long as its text.
        inner.before = String::new();
        let told = || if self.for_readers { inner.text.clone() } else { mem::take(&mut inner.text) };
        TurnSummary {
            text: settled.map_or_else(told, Arc::new),
            differs: inner.differs,
            records: mem::take(&mut inner.records),
            tools: mem::take(&mut inner.tools),
            files: mem::take(&mut inner.files),
            more_files: inner.more_files,
            attached: inner.attached.take(),
            usage: inner.usage,
            shown: inner.shown,
        }
    }

    /// Whether there is something after `position`. If not, the next event tells who waits for it.
    fn is_beyond(&self, position: &LogPosition) -> bool {
        let mut inner = self.lock();
        inner.awaited = true;
        let position = position.within(self.name);
        match inner.entries.get(position.entry) {
            // Text that was taken, or is known from elsewhere, is nothing new.
            Some(LogEntry::Text(end)) => {
                more(&inner.text, position.text, *end) || position.entry + 1 < inner.entries.len()
            }
            Some(LogEntry::Thought(end)) => {
                more(&inner.thoughts, position.thought, *end) || position.entry + 1 < inner.entries.len()
            }
            Some(_) => true,
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        // Nothing here can leave the log half changed, so a panic elsewhere does not spoil it.
        self.inner.lock()
    }
}

/// Appends a piece. A text doubles its room while it is short; a long one would have up to twice what it needs.
fn push(text: &mut String, piece: &str) {
    if text.capacity() - text.len() < piece.len() && text.len() > LONG {
        text.reserve_exact(piece.len().max(LONG));
    }
    text.push_str(piece);
}

fn more(text: &str, from: usize, to: usize) -> bool {
    text.get(from..to).is_some_and(|text| !text.is_empty())
}

impl LogState {
    fn ask_position(&self, prior_asks: &[PriorAsk]) -> AskPosition {
        AskPosition {
            emitted: self.text.len() + self.thoughts.len() + self.steps,
            nth: prior_asks.len() + self.questions,
        }
    }

    fn is_asked(&self, ask: &AskId) -> bool {
        let this =
            |entry: &LogEntry| matches!(entry, LogEntry::Asked(asked) if asked.id == *ask && !asked.refused);
        self.entries.iter().any(this)
    }

    fn is_answered(&self, ask: &AskId) -> bool {
        self.entries.iter().any(|entry| matches!(entry, LogEntry::Answered(answered) if answered.id == *ask))
    }

    fn unanswered(&self) -> Vec<AskId> {
        let mut open = Vec::new();
        for entry in &self.entries {
            match entry {
                LogEntry::Asked(asked) => open.push(asked.id.clone()),
                LogEntry::Answered(answered) => open.retain(|id| *id != answered.id),
                LogEntry::Text(_) | LogEntry::Thought(_) | LogEntry::Step(_) | LogEntry::Notice(_) => {}
            }
        }
        open
    }

    fn add(&mut self, entry: LogEntry) {
        self.size += ENTRY;
        self.entries.push(entry);
    }
}
