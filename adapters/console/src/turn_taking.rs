//! Whose turn it is to speak.
//!
//! The reader hands the word to the agent with every prompt and, where prompts come from a file,
//! reads the next one only when the word came back. So a file of a hundred prompts is answered in
//! order and never fills a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use talaria_platform::{EventId, MessageBody};
use tokio::sync::watch;

/// Shared by the reader and by whatever shows bodies.
#[derive(Clone)]
pub struct TurnTaking {
    speaker: watch::Sender<CurrentSpeaker>,
    /// The agent works on something, be it an earlier prompt than the last.
    answering: Arc<AtomicBool>,
}

#[derive(Debug, PartialEq)]
enum CurrentSpeaker {
    Person,
    /// This prompt has not got its last word yet.
    Agent(EventId),
    /// Nothing can be shown any more.
    Nobody,
}

impl TurnTaking {
    /// The person speaks first.
    pub fn new() -> Self {
        Self { speaker: watch::Sender::new(CurrentSpeaker::Person), answering: Arc::default() }
    }

    /// The agent has the word until the last word on `prompt` was shown. Called before the prompt
    /// is handed over, because the answer may be quicker than the handing over.
    pub fn ask(&self, prompt: EventId) {
        self.change(CurrentSpeaker::Agent(prompt));
    }

    /// A body was shown. The last word on the open prompt gives the word back, whatever its kind: a
    /// refusal ends a prompt like an answer does, and a question waits for the person.
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

    /// Nothing can be shown any more; final.
    pub fn close(&self) {
        self.change(CurrentSpeaker::Nobody);
    }

    /// The agent begins to work on an answer, or has ended.
    pub fn answering(&self, on: bool) {
        self.answering.store(on, Ordering::Relaxed);
    }

    /// Whether nothing is on its way: a prompt that waits was told so, but what it waits for is not done.
    pub fn is_done(&self) -> bool {
        self.is_free() && !self.answering.load(Ordering::Relaxed)
    }

    /// Whether the person has the word.
    pub fn is_free(&self) -> bool {
        *self.speaker.borrow() == CurrentSpeaker::Person
    }

    /// Waits until the agent does not have the word.
    pub async fn free(&self) {
        self.until(|speaker| !matches!(speaker, CurrentSpeaker::Agent(_))).await;
    }

    /// Waits until nothing can be shown any more.
    pub async fn closed(&self) {
        self.until(|speaker| *speaker == CurrentSpeaker::Nobody).await;
    }

    async fn until(&self, reached: impl FnMut(&CurrentSpeaker) -> bool) {
        // Cannot fail: the other end is in `self`.
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
