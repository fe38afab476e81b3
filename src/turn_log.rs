//! The in-memory event log of one running turn, for any number of readers.
//!
//! All text lies in one buffer, and a text entry only stores where it ends: a thousand deltas between two reads cost
//! the reader one slice and the log one entry. Each reader keeps its own [`LogPosition`] and pulls new events; the log
//! pushes nothing, so a slow reader holds nobody up.

mod asks;
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

use crate::agent::{AskChoice, AskOpened, AskPosition, AskResolved, PriorAsk, Step, TokenUsage, TurnEvent};
use crate::i18n::{LocalizedText, TextKey};
use crate::reply::EnclosedFile;
use crate::util::random_hex;
use budget::{CountedBytes, LogReaders};
pub use budget::{LogBudget, LogReader, NoCapacity};
pub use position::LogPosition;
pub use read::{SLICE, slice};
pub use summary::TurnSummary;

/// Bytes counted for each entry beside its text, so that the cap also bounds a flood of tiny steps.
const ENTRY: usize = 128;

/// Once a text is longer than this, its buffer grows by this many bytes at a time instead of doubling.
const LONG: usize = 1024 * 1024;

/// Most sentences below one answer. Nobody reads more; one more says that there were others.
const REMARKS: usize = 8;

/// Names and values about a run that are kept: an agent has two or three ids.
const FACTS: usize = 8;

/// Bytes of the agent's own lines that one log keeps, in a turn whose surface passes them on. All lines behind the first
/// that finds no space are left out: the turn goes on without them.
const RAW: usize = 24 * 1024 * 1024;

/// Most tool names that the summary keeps; more than any honest turn uses.
const TOOLS: usize = 64;

/// Event log of one turn. The engine appends; the room's display, HTTP streams and checkpoints read.
pub struct TurnLog {
    inner: Mutex<LogState>,
    /// Wakes readers that wait in [`TurnLog::changed`].
    changed: Notify,
    /// Cancelled by `end` and `suspend`: no event follows.
    ended: CancellationToken,
    /// Cancelled when the log exceeds its cap.
    full: CancellationToken,
    /// Most bytes that text, thoughts and entries may take together.
    cap: usize,
    /// Readers may come who get every event, also after the end (HTTP). Text and thoughts then stay in the log.
    for_readers: bool,
    /// The upstream is read only as fast as the readers take its events.
    waits_for_readers: bool,
    /// Wakes an upstream that waits for readers when one of them read something or left.
    read_on: Notify,
    /// Asks opened or resolved in this turn by earlier processes.
    prior_asks: Arc<[PriorAsk]>,
    /// Distinguishes this log from every other log, also across processes. Never 0.
    name: u32,
}

#[derive(Default)]
struct LogState {
    /// Shared, not copied, with the code that stores the end: it may be long.
    text: Arc<String>,
    /// Reasoning. Stays empty where no reader may see it.
    thoughts: String,
    entries: Vec<LogEntry>,
    size: usize,
    /// Bytes of the agent's own lines, at most [`RAW`]. They count for memory, and not towards the cap of the turn.
    raw: usize,
    /// Index of the entry behind which lines of the agent are left out; `None` while there is space.
    raw_cut: Option<usize>,
    /// Bytes charged for this log to the budget of all logs; grows in steps.
    counted: CountedBytes,
    readers: LogReaders,
    /// Step events among the entries.
    steps: usize,
    /// Asks opened and asks resolved among the entries, without those refused at once: the next process cannot know
    /// them.
    questions: usize,
    tools: Vec<String>,
    /// Files contained in the text. The parser that takes them out of the text bounds their number.
    files: Vec<EnclosedFile>,
    /// Number of files left out because there were too many.
    more_files: usize,
    /// Text that stands for the prompt's attachments in the transcript.
    attached: Option<String>,
    usage: TokenUsage,
    /// Sentences of ours below the answer.
    remarks: Vec<LocalizedText>,
    /// At most [`FACTS`].
    facts: serde_json::Map<String, serde_json::Value>,
    /// Time of the newest event.
    changed_at: Option<Instant>,
    /// Time of the oldest event that nobody has read since; reset by [`TurnLog::read`].
    unread_since: Option<Instant>,
    /// A reader waits in [`TurnLog::changed`]. Most deltas come while none does, and then nobody needs a wake-up.
    awaited: bool,
    /// The process ends, and the next one resumes the turn. Set before `ended` is cancelled.
    suspended: bool,
    /// Bytes of text, from its beginning, that people have been shown.
    shown: usize,
    /// Somebody asked to stop the turn: the room is shown nothing more before the end.
    frozen: bool,
    /// Final text reported by the agent, if it differs from the streamed deltas.
    settled: Option<String>,
    /// The final text is not an extension of the text that readers already received.
    differs: bool,
    /// Text that an earlier process streamed in this turn, as far as the store kept it.
    before: String,
}

enum LogEntry {
    /// Text up to this byte.
    Text(usize),
    /// Reasoning up to this byte.
    Thought(usize),
    /// A line of the agent's own protocol.
    Raw(Box<str>),
    /// From here on they are left out.
    RawCut,
    Step(Step),
    Notice(Option<LocalizedText>),
    Asked(AskOpened),
    Answered(AskResolved),
}

/// A turn has produced more than its log may hold; the engine cuts it short.
#[derive(Debug)]
pub struct LogFull;

impl TurnLog {
    /// An empty log that holds at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        // Starts at a random number, because positions outlive their process.
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

    /// An empty log for readers who get every event, also after the end. Holds at most `cap` bytes.
    pub fn for_readers(cap: usize) -> Self {
        Self { for_readers: true, ..Self::new(cap) }
    }

    /// Charges this log's bytes to `budget`.
    pub fn within(self, budget: Arc<LogBudget>) -> Self {
        self.lock().counted = CountedBytes::new(budget);
        self
    }

    /// Makes the upstream wait for readers that are behind. A turn without readers goes on.
    pub fn waiting_for_readers(self) -> Self {
        Self { waits_for_readers: true, ..self }
    }

    /// Sets the asks that earlier processes opened or resolved in this turn.
    pub fn after(self, prior_asks: Arc<[PriorAsk]>) -> Self {
        Self { prior_asks, ..self }
    }

    /// Asks opened or resolved in this turn by earlier processes.
    pub fn prior_asks(&self) -> &Arc<[PriorAsk]> {
        &self.prior_asks
    }

    /// Sets the text that an earlier process streamed in this turn; [`TurnLog::settle`] compares with it.
    pub fn told_before(&self, text: String) {
        self.lock().before = text;
    }

    /// Whether readers may come who get every event, also after the end.
    pub fn is_for_readers(&self) -> bool {
        self.for_readers
    }

    /// Appends an event. Thoughts always count towards the cap, but are kept only for readers who may see them: rooms
    /// may not.
    pub fn append(&self, event: TurnEvent<'_>) -> Result<(), LogFull> {
        self.append_at(event).map(drop)
    }

    /// Appends an event like [`TurnLog::append`] and returns the position that an ask has if it is this event.
    pub fn append_at(&self, event: TurnEvent<'_>) -> Result<AskPosition, LogFull> {
        let appended = self.take(event);
        if appended.is_err() {
            self.full.cancel();
        }
        appended
    }

    /// Cancelled when the log exceeds its cap, no matter which writer wrote too much.
    pub fn full(&self) -> &CancellationToken {
        &self.full
    }

    fn take(&self, event: TurnEvent<'_>) -> Result<AskPosition, LogFull> {
        let mut inner = self.lock();
        let at = inner.ask_position(&self.prior_asks);
        let now = Instant::now();
        inner.changed_at = Some(now);
        if !matches!(event, TurnEvent::Thought(_) | TurnEvent::Usage(_)) {
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
            TurnEvent::Raw(line) => {
                let bytes = line.len() + ENTRY;
                let is_whole = inner.raw_cut.is_none();
                if is_whole && inner.raw + bytes <= RAW && inner.counted.take_raw(bytes) {
                    inner.raw += bytes;
                    inner.entries.push(LogEntry::Raw(line.into()));
                } else if is_whole {
                    inner.raw_cut = Some(inner.entries.len());
                    inner.entries.push(LogEntry::RawCut);
                }
            }
            TurnEvent::RawCut => {}
            TurnEvent::Step(step) => {
                inner.size += step.title.len() + step.id.len() + step.detail.as_ref().map_or(0, String::len);
                inner.steps += 1;
                if inner.tools.len() < TOOLS && !step.title.is_empty() && !inner.tools.contains(&step.title) {
                    inner.tools.push(step.title.clone());
                }
                inner.add(LogEntry::Step(step));
            }
            TurnEvent::Notice(words) => inner.add(LogEntry::Notice(words)),
            TurnEvent::Remark(words) => {
                let is_known = inner.remarks.contains(&words);
                match inner.remarks.len() {
                    _ if is_known => {}
                    REMARKS => inner.remarks.push(TextKey::MoreRemarks.into()),
                    0..REMARKS => inner.remarks.push(words),
                    _ => {}
                }
            }
            TurnEvent::Usage(usage) => inner.usage = usage,
            TurnEvent::Facts(facts) => {
                for (name, value) in facts {
                    if inner.facts.len() < FACTS || inner.facts.contains_key(&name) {
                        inner.facts.insert(name, value);
                    }
                }
            }
            TurnEvent::Upstream(_) => {}
            TurnEvent::Asked(asked) => {
                let options =
                    asked.ask.form.options.iter().map(|option| option.id.len() + option.label.len());
                let reason = asked.ask.reason.as_ref().map_or(0, String::len);
                let title = asked.ask.title.to_string();
                let gap = asked.ask.gap.as_ref().map_or(0, |gap| gap.to_string().len());
                inner.size += asked.ask.detail.len() + title.len() + reason + gap + options.sum::<usize>();
                inner.questions += usize::from(!asked.refused);
                inner.add(LogEntry::Asked(asked));
            }
            TurnEvent::Answered(answered) => {
                // At shutdown `deny_unanswered` may answer an ask before its waiter does: the first answer counts.
                if !inner.is_answered(&answered.id) {
                    inner.questions += usize::from(inner.is_asked(&answered.id));
                    if let AskChoice::Text(text) = &answered.choice {
                        inner.size += text.len();
                    }
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

    /// Sets the final text and its files. If it extends the streamed text, readers get the rest as one more delta;
    /// otherwise only the summary carries it, because readers cannot take back text that they have read.
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

    /// Whether `text` begins with all text that this process and an earlier one have streamed.
    pub fn is_continued_by(&self, text: &str) -> bool {
        let inner = self.lock();
        text.starts_with(inner.text.as_str()) && text.starts_with(&inner.before)
    }

    /// Adds a file to the summary; the text names it.
    pub fn enclose(&self, file: EnclosedFile) {
        let mut inner = self.lock();
        inner.size += ENTRY + file.name.len();
        inner.files.push(file);
    }

    /// Counts a file beyond the limit; the text names it.
    pub fn enclose_no_more(&self) {
        self.lock().more_files += 1;
    }

    /// Sets the text that stands for the prompt's attachments in the transcript; the last call wins.
    pub fn attached(&self, lines: String) {
        self.lock().attached = Some(lines);
    }

    /// Waits for the end of the log.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether the log has ended: no event follows.
    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Ends the log, because the turn is over.
    pub fn end(&self) {
        self.lock().counted.ends();
        self.ended.cancel();
        // The end counts as a change: a reader need not wait for both with every delta.
        self.changed.notify_waiters();
    }

    /// Ends the log, because the process ends; the next process resumes the turn.
    pub fn suspend(&self) {
        self.lock().suspended = true;
        self.end();
    }

    /// Whether the turn goes on in the next process.
    pub fn is_suspended(&self) -> bool {
        self.lock().suspended
    }

    /// The streamed text; empty once [`TurnLog::take_summary`] has taken it.
    pub fn text(&self) -> Arc<String> {
        self.lock().text.clone()
    }

    /// Bytes of the text so far.
    pub fn text_len(&self) -> usize {
        self.lock().text.len()
    }

    /// Time of the newest event.
    pub fn changed_at(&self) -> Option<Instant> {
        self.lock().changed_at
    }

    /// Shows the room nothing more before the end. Called when somebody asked to stop the turn: the end is near, and
    /// the person who asked may have left, so text that still comes is not for those who stay.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Whether the room is to be shown nothing before the end.
    pub fn is_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// Records that the room shows the text up to this byte.
    pub fn shown(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.shown = inner.shown.max(bytes);
    }

    /// Bytes that the log takes, approximately.
    pub fn size(&self) -> usize {
        let inner = self.lock();
        inner.size + inner.raw
    }

    /// Whether there are lines of the agent itself.
    pub fn has_raw(&self) -> bool {
        let inner = self.lock();
        inner.raw > 0 || inner.raw_cut.is_some()
    }

    /// Whether lines of the agent are left out, because the log had no space for them.
    pub fn is_raw_cut(&self) -> bool {
        self.lock().raw_cut.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        // The lock does not poison. That is safe: no panic can leave the log half changed.
        self.inner.lock()
    }
}

/// Appends a piece. A short text doubles its buffer; a long one would then hold up to twice the memory that it needs.
fn push(text: &mut String, piece: &str) {
    if text.capacity() - text.len() < piece.len() && text.len() > LONG {
        text.reserve_exact(piece.len().max(LONG));
    }
    text.push_str(piece);
}

impl LogState {
    fn add(&mut self, entry: LogEntry) {
        self.size += ENTRY;
        self.entries.push(entry);
    }
}
