//! What a reader gets of a log: everything behind its position, in order and in pieces.

use std::ops::ControlFlow;

use tokio::time::Instant;

use super::{LogEntry, LogPosition, TurnLog};
use crate::agent::{AskOpened, TurnEvent};
use crate::turns::asks::RESTART;

/// Bytes of text that are handed over at once, at most: whoever comes late to a long turn would otherwise be given all
/// of it at once, and make several copies of it before the first is sent.
pub const SLICE: usize = 64 * 1024;

/// The next piece of a text behind this byte; empty at its end, and where no character begins.
pub fn slice(text: &str, from: usize) -> &str {
    cut(text.get(from..).unwrap_or_default())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SLICE)]
}

impl TurnLog {
    /// Hands over what is new since `position` and moves it. If there was anything, says when the oldest
    /// came that nobody had read before.
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

    /// The same, with where each event ends: a reader that goes on from there misses nothing and gets nothing twice.
    /// Goes on for as long as the reader does, because the log waits meanwhile; whether that was to the end.
    /// What is taken so is what an upstream waits for.
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

    /// The same for whoever takes it for the record: no upstream waits for that.
    pub fn read_all(
        &self,
        position: &mut LogPosition,
        mut on: impl FnMut(TurnEvent<'_>, LogPosition) -> ControlFlow<()>,
    ) -> bool {
        *position = position.within(self.name);
        // Whatever else a reader knows from another log, it does not know this.
        let denied = self.prior_asks.iter().filter_map(|left| left.answered.as_ref());
        let denied = denied.filter(|answered| answered.rule == RESTART);
        for answered in denied.skip(position.denied) {
            position.denied += 1;
            if on(TurnEvent::Answered(answered.clone()), *position).is_break() {
                return false;
            }
        }
        let inner = self.lock();
        while let Some(entry) = inner.entries.get(position.entry) {
            let at = position.behind();
            let last = position.entry + 1 == inner.entries.len();
            // The last entry of text may still grow, so it is looked at again next time.
            let grows = last && matches!(entry, LogEntry::Text(_) | LogEntry::Thought(_));
            let new = position.known == 0;
            let mut left = false;
            let flow = match entry {
                // Without any text here this is a log whose text was taken: the store has it.
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
                LogEntry::Step(step) if new => on(TurnEvent::Step(step.clone()), at),
                LogEntry::Notice(words) if new => on(TurnEvent::Notice(words.clone()), at),
                LogEntry::Asked(asked) if new => on(TurnEvent::Asked(asked.clone()), at),
                LogEntry::Answered(answered) if new => on(TurnEvent::Answered(answered.clone()), at),
                LogEntry::Step(_) | LogEntry::Notice(_) | LogEntry::Asked(_) | LogEntry::Answered(_) => {
                    ControlFlow::Continue(())
                }
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

    /// Every question that was asked in it.
    pub fn asked(&self) -> Vec<AskOpened> {
        let inner = self.lock();
        let asked = inner.entries.iter().filter_map(|entry| match entry {
            LogEntry::Asked(asked) => Some(asked.clone()),
            LogEntry::Text(_)
            | LogEntry::Thought(_)
            | LogEntry::Step(_)
            | LogEntry::Notice(_)
            | LogEntry::Answered(_) => None,
        });
        asked.collect()
    }
}
