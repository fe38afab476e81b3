//! What a reader gets of a log: everything behind its position, in order.

use tokio::time::Instant;

use super::{Entry, Position, TurnLog};
use crate::agent::{Asked, TurnEvent};

impl TurnLog {
    /// Hands over what is new since `position` and moves it. If there was anything, says when the oldest
    /// came that nobody had read before.
    pub fn read(&self, position: &mut Position, mut on: impl FnMut(TurnEvent<'_>)) -> Option<Instant> {
        let since = {
            let mut inner = self.lock();
            inner.unread_since.take().or(inner.changed_at)
        };
        *position = position.within(self.name);
        let before = *position;
        self.read_each(position, |event, _| on(event));
        since.filter(|_| before != *position)
    }

    /// The same, with where each event ends: a reader that goes on from there misses nothing and gets nothing twice.
    pub fn read_each(&self, position: &mut Position, mut on: impl FnMut(TurnEvent<'_>, Position)) {
        let inner = self.lock();
        *position = position.within(self.name);
        while let Some(entry) = inner.entries.get(position.entry) {
            let at = Position { entry: position.entry + 1, ..*position };
            let last = position.entry + 1 == inner.entries.len();
            // The last entry of text may still grow, so it is looked at again next time.
            let grows = last && matches!(entry, Entry::Text(_) | Entry::Thought(_));
            let new = position.known == 0;
            match entry {
                // Without any text here this is a log whose text was taken: the store has it.
                Entry::Text(end) => {
                    if let Some(text) = inner.text.get(position.text..*end) {
                        position.text = *end;
                        if !text.is_empty() {
                            on(TurnEvent::Text(text), *position);
                        }
                    }
                    if *end >= position.known {
                        position.known = 0;
                    }
                }
                Entry::Thought(end) => {
                    if let Some(text) = inner.thoughts.get(position.thought..*end) {
                        position.thought = *end;
                        if new && !text.is_empty() {
                            on(TurnEvent::Thought(text), *position);
                        }
                    }
                }
                Entry::Step(step) if new => on(TurnEvent::Step(step.clone()), at),
                Entry::Notice(words) if new => on(TurnEvent::Notice(words.clone()), at),
                Entry::Asked(asked) if new => on(TurnEvent::Asked(asked.clone()), at),
                Entry::Answered(answered) if new => on(TurnEvent::Answered(answered.clone()), at),
                Entry::Step(_) | Entry::Notice(_) | Entry::Asked(_) | Entry::Answered(_) => {}
            }
            if grows {
                break;
            }
            position.entry += 1;
        }
    }

    /// Every question that was asked in it.
    pub fn asked(&self) -> Vec<Asked> {
        let inner = self.lock();
        let asked = inner.entries.iter().filter_map(|entry| match entry {
            Entry::Asked(asked) => Some(asked.clone()),
            Entry::Text(_) | Entry::Thought(_) | Entry::Step(_) | Entry::Notice(_) | Entry::Answered(_) => {
                None
            }
        });
        asked.collect()
    }
}
