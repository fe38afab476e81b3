//! Reads a log: all events after the reader's position, in order, long text in pieces.

use std::ops::ControlFlow;

use tokio::time::Instant;

use super::{LogEntry, LogPosition, TurnLog};
use crate::agent::{AskChoice, AskOpened, DenyReason, TurnEvent};

/// Most bytes of text per event. A reader that comes late to a long turn would otherwise get all of it at once, and
/// make several copies of it before the first is sent.
pub const SLICE: usize = 64 * 1024;

/// The next piece of `text` from the byte `from`; empty at the end, and where no character begins.
pub fn slice(text: &str, from: usize) -> &str {
    cut(text.get(from..).unwrap_or_default())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SLICE)]
}

impl TurnLog {
    /// Waits until there is an event after `position`, or the end.
    pub async fn changed(&self, position: &LogPosition) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // Registers before it looks, so that it misses no event in between.
        changed.as_mut().enable();
        if self.is_beyond(position) || self.is_ended() {
            return;
        }
        changed.await;
    }

    /// Whether there is an event after `position`. If not, the next event wakes the waiting readers.
    pub(super) fn is_beyond(&self, position: &LogPosition) -> bool {
        let mut inner = self.lock();
        inner.awaited = true;
        let position = position.within(self.name);
        match inner.entries.get(position.entry) {
            // Text that was taken out, or that the reader knows from another log, is not new.
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

    /// Calls `on` with each event after `position` and moves `position`. Returns the time of the oldest event that
    /// nobody had read before; `None` if there was no event.
    pub fn read(&self, position: &mut LogPosition, mut on: impl FnMut(TurnEvent<'_>)) -> Option<Instant> {
        let since = {
            let mut inner = self.lock();
            inner.unread_since.take().or(inner.changed_at)
        };
        *position = position.within(self.name);
        let before = *position;
        self.read_all(position, |event, _| {
            on(event);
            ControlFlow::Continue(())
        });
        since.filter(|_| before != *position)
    }

    /// Calls `on` with each event after `position` and with the position after that event: a reader that resumes there
    /// misses nothing and gets nothing twice. Stops when `on` breaks, because the log is locked meanwhile. Returns
    /// whether it came to the end. The upstream waits for these reads.
    pub fn read_each(
        &self,
        position: &mut LogPosition,
        on: impl FnMut(TurnEvent<'_>, LogPosition) -> ControlFlow<()>,
    ) -> bool {
        let read = self.read_all(position, on);
        if self.lock().was_given(position.text.saturating_add(position.thought)) {
            self.read_on.notify_waiters();
        }
        read
    }

    /// Reads like [`TurnLog::read_each`], but the upstream never waits for these reads: checkpoints use them.
    pub fn read_all(
        &self,
        position: &mut LogPosition,
        mut on: impl FnMut(TurnEvent<'_>, LogPosition) -> ControlFlow<()>,
    ) -> bool {
        *position = position.within(self.name);
        // A reader that comes from another log cannot know these denials.
        let denied = self.prior_asks.iter().filter_map(|left| left.answered.as_ref());
        let denied = denied.filter(|answered| answered.choice == AskChoice::Deny(DenyReason::Restart));
        for answered in denied.skip(position.denied) {
            position.denied += 1;
            if on(TurnEvent::Answered(answered.clone()), *position).is_break() {
                return false;
            }
        }
        let inner = self.lock();
        if inner.raw_cut.is_some_and(|cut| cut < position.entry) {
            // A reader that resumes behind the cut has to know of it. It is no event that one could stop at.
            let _ = on(TurnEvent::RawCut, *position);
        }
        while let Some(entry) = inner.entries.get(position.entry) {
            let at = position.behind();
            let last = position.entry + 1 == inner.entries.len();
            // The last text entry may still grow, so the next read looks at it again.
            let grows = last && matches!(entry, LogEntry::Text(_) | LogEntry::Thought(_));
            let new = position.known == 0;
            let mut left = false;
            let flow = match entry {
                // Missing text was taken out at the end of the turn: the store has it.
                LogEntry::Text(end) => {
                    let text = inner.text.get(position.text..*end).unwrap_or_default();
                    let piece = cut(text);
                    position.text += piece.len();
                    left = piece.len() < text.len();
                    if *end >= position.known {
                        position.known = 0;
                    }
                    match piece.is_empty() {
                        true => ControlFlow::Continue(()),
                        false => on(TurnEvent::Text(piece), *position),
                    }
                }
                LogEntry::Thought(end) => {
                    let text = inner.thoughts.get(position.thought..*end).unwrap_or_default();
                    let piece = if new { cut(text) } else { text };
                    position.thought += piece.len();
                    left = piece.len() < text.len();
                    match new && !piece.is_empty() {
                        true => on(TurnEvent::Thought(piece), *position),
                        false => ControlFlow::Continue(()),
                    }
                }
                LogEntry::Raw(line) if new => on(TurnEvent::Raw(line), at),
                LogEntry::RawCut if new => on(TurnEvent::RawCut, at),
                LogEntry::Step(step) if new => on(TurnEvent::Step(step.clone()), at),
                LogEntry::Notice(words) if new => on(TurnEvent::Notice(words.clone()), at),
                LogEntry::Asked(asked) if new => on(TurnEvent::Asked(asked.clone()), at),
                LogEntry::Answered(answered) if new => on(TurnEvent::Answered(answered.clone()), at),
                LogEntry::Raw(_)
                | LogEntry::RawCut
                | LogEntry::Step(_)
                | LogEntry::Notice(_)
                | LogEntry::Asked(_)
                | LogEntry::Answered(_) => ControlFlow::Continue(()),
            };
            if grows && !left {
                return true;
            }
            if !left {
                position.entry += 1;
            }
            if flow.is_break() {
                return false;
            }
        }
        true
    }

    /// Every ask that was opened in this log, also those refused at once.
    pub fn asked(&self) -> Vec<AskOpened> {
        let inner = self.lock();
        let asked = inner.entries.iter().filter_map(|entry| match entry {
            LogEntry::Asked(asked) => Some(asked.clone()),
            LogEntry::Text(_)
            | LogEntry::Thought(_)
            | LogEntry::Raw(_)
            | LogEntry::RawCut
            | LogEntry::Step(_)
            | LogEntry::Notice(_)
            | LogEntry::Answered(_) => None,
        });
        asked.collect()
    }
}

fn more(text: &str, from: usize, to: usize) -> bool {
    text.get(from..to).is_some_and(|text| !text.is_empty())
}
