//! Receives an agent's events for the log: separates thoughts and files from text, skips replays, bounds the size.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use talaria_platform::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, AgentErrorKind, StepState, TurnEvent};
use crate::i18n::TextKey;
use crate::reply::{FileFilter, ReasoningFilter, TextOrFile, TextOrReasoning};
use crate::testing::failpoint;
use crate::turn_log::TurnLog;

/// Event sink of one turn, shared by all its attempts.
pub(super) struct TurnSink<'a> {
    log: &'a TurnLog,
    /// Files stay in the text: API clients parse it themselves.
    verbatim: bool,
    /// Cancelled when the turn exceeds its cap: the agent ends, and the engine sees why.
    pub full: CancellationToken,
    inner: Mutex<SinkState>,
}

#[derive(Default)]
struct SinkState {
    filter: ReasoningFilter,
    files: FileFilter,
    /// Bytes of text received.
    text: ReplayProgress,
    /// Bytes of reasoning received apart from the text.
    thoughts: ReplayProgress,
    /// Steps received, in any attempt: the log's cap bounds them.
    steps: HashSet<(String, StepState)>,
    /// Number of step changes received. Counted apart, because a replay may give its steps new ids.
    step_changes: ReplayProgress,
    /// The current attempt replays an earlier one.
    replays: bool,
    /// Start of the wait for the first text, and where to record its length; taken when the text comes.
    first: Option<(Instant, Histogram)>,
}

/// Progress of one kind of event.
#[derive(Default)]
struct ReplayProgress {
    /// Amount in the attempt that got furthest.
    furthest: usize,
    /// Amount in the current attempt.
    now: usize,
}

impl ReplayProgress {
    /// Adds `more` and returns how much of it an earlier attempt already brought.
    fn add(&mut self, more: usize) -> usize {
        let known = self.furthest.saturating_sub(self.now).min(more);
        self.now += more;
        self.furthest = self.furthest.max(self.now);
        known
    }
}

impl<'a> TurnSink<'a> {
    /// A sink into `log`. `first` records the time from now until the first text.
    pub fn new(log: &'a TurnLog, first: Option<Histogram>) -> Self {
        let verbatim = log.is_for_readers();
        let first = first.map(|histogram| (Instant::now(), histogram));
        let inner = Mutex::new(SinkState { first, ..SinkState::default() });
        Self { log, verbatim, full: log.full().clone(), inner }
    }

    /// Takes one event from the agent.
    pub fn emit(&self, event: TurnEvent<'_>) {
        let mut inner = self.inner.lock();
        match event {
            TurnEvent::Text(text) => {
                failpoint("stream.text");
                if let Some((since, histogram)) = inner.first.take() {
                    histogram.observe(since.elapsed().as_secs_f64());
                }
                let known = inner.text.add(text.len());
                let new = new(text, known);
                if !new.is_empty() {
                    let SinkState { filter, files, .. } = &mut *inner;
                    filter.push(new, |part| self.take(part, files));
                }
            }
            TurnEvent::Thought(text) => {
                let known = inner.thoughts.add(text.len());
                let new = new(text, known);
                if !new.is_empty() {
                    self.append(TurnEvent::Thought(new));
                }
            }
            TurnEvent::Step(step) => {
                inner.step_changes.add(1);
                let first = inner.steps.insert((step.id.clone(), step.state));
                if first || !inner.replays {
                    self.append(TurnEvent::Step(step));
                }
            }
            // A replay brings the same lines once more.
            TurnEvent::Raw(_) if inner.replays => {}
            TurnEvent::Raw(_)
            | TurnEvent::RawCut
            | TurnEvent::Notice(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Facts(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => {
                self.append(event);
            }
            // No reader sees it: the engine stores it.
            TurnEvent::Upstream(_) => {}
        }
    }

    /// Announces that the next attempt replays the same run from its start: events that came before are skipped.
    pub fn replay(&self) {
        let mut inner = self.inner.lock();
        let SinkState { text, thoughts, step_changes, replays, .. } = &mut *inner;
        [text, thoughts, step_changes].into_iter().for_each(|reached| reached.now = 0);
        *replays = true;
    }

    /// Amount received in the attempts that got furthest. A replay adds nothing until it passes every attempt before.
    pub fn progress(&self) -> usize {
        let inner = self.inner.lock();
        inner.text.furthest + inner.thoughts.furthest + inner.step_changes.furthest
    }

    /// Bytes of the text that readers have of the turn.
    pub fn text_len(&self) -> usize {
        self.log.text_len()
    }

    /// Sets the whole final text. Text that came before does not count.
    pub fn replace_text(&self, text: &str) {
        let (mut thoughts, mut files) = (ReasoningFilter::default(), FileFilter::default());
        let (mut whole, mut enclosed, mut more) = (String::new(), Vec::new(), 0);
        let mut keep = |piece: TextOrFile<'_>| match piece {
            TextOrFile::Text(text) => whole.push_str(text),
            TextOrFile::File(file) => enclosed.push(file),
            TextOrFile::More => more += 1,
        };
        let mut take = |part: TextOrReasoning<'_>| match part {
            TextOrReasoning::Text(text) if self.verbatim => keep(TextOrFile::Text(text)),
            TextOrReasoning::Text(text) => files.push(text, &mut keep),
            TextOrReasoning::Thought(_) => {}
        };
        thoughts.push(text, &mut take);
        thoughts.finish(&mut take);
        files.finish(&mut keep);
        // The final text contains everything that the filters still held back as a possible tag or file.
        *self.inner.lock() = SinkState::default();
        if self.log.settle(whole, enclosed, more).is_err() {
            self.full.cancel();
        }
    }

    /// Takes a longer version of the text. Ignores a version that does not begin with the text that people have read:
    /// it would take words away and prove nothing.
    pub fn extend_to(&self, text: &str) {
        if self.log.is_continued_by(text) {
            self.replace_text(text);
        }
    }

    /// Sets the text that stands for the prompt's attachments in the transcript.
    pub fn attached(&self, lines: String) {
        self.log.attached(lines);
    }

    /// Shows the room nothing more before the end.
    pub fn freeze(&self) {
        self.log.freeze();
    }

    /// Flushes the characters that the filters held back as a possible tag.
    pub fn finish(&self) {
        let mut inner = self.inner.lock();
        let SinkState { filter, files, .. } = &mut *inner;
        filter.finish(|part| self.take(part, files));
        files.finish(|piece| self.keep(piece));
    }

    fn take(&self, part: TextOrReasoning<'_>, files: &mut FileFilter) {
        match part {
            TextOrReasoning::Text(text) if self.verbatim => self.append(TurnEvent::Text(text)),
            TextOrReasoning::Text(text) => files.push(text, |piece| self.keep(piece)),
            TextOrReasoning::Thought(text) => self.append(TurnEvent::Thought(text)),
        }
    }

    fn keep(&self, piece: TextOrFile<'_>) {
        match piece {
            TextOrFile::Text(text) => self.append(TurnEvent::Text(text)),
            TextOrFile::File(file) => self.log.enclose(file),
            TextOrFile::More => self.log.enclose_no_more(),
        }
    }

    /// See [`AgentOutput::wait_for_capacity`](crate::agent::AgentOutput::wait_for_capacity).
    pub fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        let used_up = |_| AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeNoRoom);
        (!self.log.has_capacity()).then(|| -> BoxFuture<'_, _> {
            Box::pin(async move { self.log.wait_for_capacity().await.map_err(used_up) })
        })
    }

    fn append(&self, event: TurnEvent<'_>) {
        if self.log.append(event).is_err() {
            self.full.cancel();
        }
    }
}

/// The new part of a piece. A replay that differs from the earlier text may cut a character in two; then the whole
/// piece is taken, because a doubled word is better than a lost one.
fn new(text: &str, known: usize) -> &str {
    text.get(known..).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Step;

    #[test]
    fn a_replay_adds_only_what_is_new() {
        let log = TurnLog::new(1000);
        let sink = TurnSink::new(&log, None);
        sink.emit(TurnEvent::Text("Hello, "));
        sink.emit(TurnEvent::Text("wor"));
        sink.replay();
        for text in ["Hell", "o, world", "!"] {
            sink.emit(TurnEvent::Text(text));
        }
        sink.finish();
        assert_eq!(*log.take_summary().text, "Hello, world!");
    }

    #[test]
    fn a_replay_that_names_its_steps_anew_is_no_progress() {
        let log = TurnLog::new(1000);
        let sink = TurnSink::new(&log, None);
        let step = |id: &str| {
            let (id, title) = (id.to_owned(), "looks".to_owned());
            TurnEvent::Step(Step { id, title, detail: None, state: StepState::Running })
        };
        sink.emit(step("a"));
        sink.emit(TurnEvent::Text("Hello"));
        let before = sink.progress();
        for id in ["b", "c"] {
            sink.replay();
            sink.emit(step(id));
            sink.emit(TurnEvent::Text("Hello"));
            assert_eq!(sink.progress(), before, "after step {id}");
        }
        sink.emit(TurnEvent::Text(", world"));
        assert!(sink.progress() > before);
    }

    #[test]
    fn the_whole_text_counts_where_it_is_another_than_its_pieces() {
        for (pieces, whole, stays) in [
            ("Hello, wor", "Hello, world!", "Hello, world!"),
            ("Let me look. <thi", "It is 42.", "It is 42."),
            ("same", "same", "same"),
            ("", "<think>secret</think>\n\nopen ![a](data:image/png;base64,iVBORw0KGgo=)", "open 📎 a.png"),
        ] {
            let log = TurnLog::new(1000);
            let sink = TurnSink::new(&log, None);
            sink.emit(TurnEvent::Text(pieces));
            sink.replace_text(whole);
            sink.finish();
            let summary = log.take_summary();
            assert_eq!(*summary.text, stays);
            assert_eq!(summary.files.len(), usize::from(whole.contains("data:")));
        }
        let log = TurnLog::new(1000);
        let sink = TurnSink::new(&log, None);
        sink.replace_text(&"x".repeat(1001));
        assert!(sink.full.is_cancelled());
    }

    #[test]
    fn thoughts_never_become_text() {
        let log = TurnLog::new(1000);
        let sink = TurnSink::new(&log, None);
        for text in ["<thi", "nk>secret</th", "ink>\n\nopen"] {
            sink.emit(TurnEvent::Text(text));
        }
        sink.finish();
        assert_eq!(*log.take_summary().text, "open");
    }

    #[test]
    fn files_never_become_text() {
        let log = TurnLog::new(1000);
        let sink = TurnSink::new(&log, None);
        for text in ["Look: ![a](da", "ta:image/png;base64,iVBORw", "0KGgo=", ") good?"] {
            sink.emit(TurnEvent::Text(text));
        }
        sink.finish();
        let summary = log.take_summary();
        assert_eq!(*summary.text, "Look: 📎 a.png good?");
        assert_eq!(summary.files.len(), 1);
    }

    #[test]
    fn a_turn_beyond_its_cap_is_asked_to_end() {
        // Ten bytes of text, and the bytes counted for an entry.
        let log = TurnLog::new(10 + 128);
        let sink = TurnSink::new(&log, None);
        sink.emit(TurnEvent::Text("0123456789"));
        assert!(!sink.full.is_cancelled());
        sink.emit(TurnEvent::Text("x"));
        assert!(sink.full.is_cancelled());
        assert_eq!(*log.take_summary().text, "0123456789");
    }
}
