//! Tracks whose turn it is to speak: the person's or the agent's.
//!
//! The reader gives the agent the turn with every prompt. Where prompts come from a file, it reads the next one only
//! when the turn has come back, so a file of a hundred prompts is answered in order and never fills a queue.

use talaria_platform::{EventId, MessageBody};
use tokio::sync::watch;

/// Shared by the reader and by [`Console`](crate::Console), which shows bodies.
#[derive(Clone)]
pub struct TurnTaking {
    speaker: watch::Sender<CurrentSpeaker>,
    /// Whether the agent works on an answer, perhaps to a prompt before the last.
    answering: watch::Sender<bool>,
}

#[derive(Debug, PartialEq)]
enum CurrentSpeaker {
    Person,
    /// This prompt has no final message yet.
    Agent(EventId),
    /// Output has failed: nothing can be shown any more.
    Nobody,
}

impl TurnTaking {
    /// Starts with the person's turn.
    pub fn new() -> Self {
        Self { speaker: watch::Sender::new(CurrentSpeaker::Person), answering: watch::Sender::new(false) }
    }

    /// Gives the agent the turn until the final message on `prompt` was shown. Called before the prompt is handed
    /// over, because the answer may come before `accept` returns.
    pub fn ask(&self, prompt: EventId) {
        self.change(CurrentSpeaker::Agent(prompt));
    }

    /// Notes that a body was shown. The final message on the open prompt gives the turn back, whatever its kind: a
    /// refusal ends a prompt like an answer does, and an ask waits for the person.
    pub fn shown(&self, body: &MessageBody) {
        self.speaker.send_if_modified(|speaker| {
            let last = match speaker {
                CurrentSpeaker::Agent(prompt) => body.done && body.reply_to.as_ref() == Some(prompt),
                CurrentSpeaker::Person | CurrentSpeaker::Nobody => false,
            };
            if last {
                *speaker = CurrentSpeaker::Person;
            }
            last
        });
    }

    /// Ends turn-taking for good, because nothing can be shown any more.
    pub fn close(&self) {
        self.change(CurrentSpeaker::Nobody);
    }

    /// Notes that the agent begins to work on an answer, or has ended.
    pub fn answering(&self, on: bool) {
        self.answering.send_replace(on);
    }

    /// Whether it is the person's turn.
    pub fn is_free(&self) -> bool {
        *self.speaker.borrow() == CurrentSpeaker::Person
    }

    /// Waits until it is not the agent's turn.
    pub async fn free(&self) {
        self.until(|speaker| !matches!(speaker, CurrentSpeaker::Agent(_))).await;
    }

    /// Waits until no answer is on its way. Longer than [`free`](Self::free): a prompt that waits was told so, which
    /// gives the turn back, but the answer it waits for still runs.
    pub async fn done(&self) {
        self.free().await;
        // Cannot fail: `self` holds the sender.
        let _ = self.answering.subscribe().wait_for(|answering| !answering).await;
    }

    /// Waits until nothing can be shown any more.
    pub async fn closed(&self) {
        self.until(|speaker| *speaker == CurrentSpeaker::Nobody).await;
    }

    async fn until(&self, reached: impl FnMut(&CurrentSpeaker) -> bool) {
        // Cannot fail: `self` holds the sender.
        let _ = self.speaker.subscribe().wait_for(reached).await;
    }

    fn change(&self, to: CurrentSpeaker) {
        self.speaker.send_if_modified(|speaker| {
            let open = *speaker != CurrentSpeaker::Nobody;
            if open {
                *speaker = to;
            }
            open
        });
    }
}
