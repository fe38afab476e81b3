//! Messages of codex for one turn, between the router of the process and the turn.
//!
//! All turns of a process share one pipe, so a turn that does not keep up must not hold the others for long: pieces of
//! the same text are joined while they wait, and a turn whose queue stays full loses it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::waiting_message::WaitingMessage;
use crate::agents::jsonrpc::{IncomingMessage, ProcessFailure, RequestId};

/// Messages that wait for a turn. A turn takes them as they come; they wait only for the store, or for a reader over
/// HTTP who does not read.
const QUEUE: usize = 512;

/// Bytes of the messages that wait for a turn: as many as the connection holds for all of them, so that one line of the
/// largest size need not wait for an empty queue.
const BYTES: usize = 16 * 1024 * 1024;

/// Longest wait of the router for room. All other turns of the process wait as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The queue of one turn. The router pushes, the turn takes.
#[derive(Debug, Default)]
pub struct TurnQueue {
    state: Mutex<QueueState>,
    /// Told when there may be something for the turn.
    filled: Notify,
    /// Told when there may be room for the router.
    room: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<WaitingMessage>,
    /// Bytes of all messages.
    bytes: usize,
    end: Option<QueueEnd>,
    /// The turn takes nothing more.
    is_left: bool,
}

/// The reason why nothing more comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// The process is gone.
    Gone(ProcessFailure),
    /// The turn did not keep up.
    Overflow,
}

/// The next thing in a queue.
#[derive(Debug, PartialEq)]
pub enum QueueItem {
    /// A message.
    Message(IncomingMessage),
    /// Nothing more comes.
    End(QueueEnd),
}

impl TurnQueue {
    /// Adds a message, as soon as there is room for it. Returns `false` if it was not taken: nobody will answer it.
    pub async fn push(&self, message: WaitingMessage) -> bool {
        let mut message = message;
        let waiting = async {
            loop {
                match self.try_push(message) {
                    Ok(taken) => return taken,
                    Err(back) => message = back,
                }
                self.room.notified().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(taken) => taken,
            Err(_) => {
                tracing::warn!("a turn of codex does not keep up with its messages and is given up");
                self.end(QueueEnd::Overflow);
                false
            }
        }
    }

    /// Adds a message if there is room; otherwise returns it.
    fn try_push(&self, message: WaitingMessage) -> Result<bool, WaitingMessage> {
        let mut state = self.state.lock();
        if state.end.is_some() || state.is_left {
            return Ok(false);
        }
        let bytes = message.bytes();
        // One that is larger than all room is taken alone.
        if !state.messages.is_empty() && state.bytes + bytes > BYTES {
            return Err(message);
        }
        if let Some(last) = state.messages.back_mut()
            && let Some(more) = last.join(&message)
        {
            state.bytes += more;
            return Ok(true);
        }
        if state.messages.len() >= QUEUE {
            return Err(message);
        }
        state.bytes += bytes;
        state.messages.push_back(message);
        self.filled.notify_one();
        Ok(true)
    }

    /// Says that nothing more comes. The first end counts.
    pub fn end(&self, end: QueueEnd) {
        self.state.lock().end.get_or_insert(end);
        self.filled.notify_one();
        self.room.notify_one();
    }

    /// The turn takes nothing more. Returns the requests that it has not taken.
    pub fn leave(&self) -> Vec<RequestId> {
        let mut state = self.state.lock();
        state.is_left = true;
        state.bytes = 0;
        self.room.notify_one();
        state.messages.drain(..).filter_map(WaitingMessage::into_request).collect()
    }

    /// The next message in order, or the end. May be dropped at any time without losing a message.
    pub async fn next(&self) -> QueueItem {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(message) = state.messages.pop_front() {
                    state.bytes -= message.bytes();
                    self.room.notify_one();
                    return QueueItem::Message(message.unpack());
                }
                if let Some(end) = &state.end {
                    return QueueItem::End(end.clone());
                }
            }
            self.filled.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn delta(item: &str, text: &str) -> WaitingMessage {
        message("item/agentMessage/delta", json!({ "turnId": "t", "itemId": item, "delta": text }))
    }

    fn message(method: &str, params: Value) -> WaitingMessage {
        as_read(method, params, None)
    }

    fn as_read(method: &str, params: Value, request: Option<RequestId>) -> WaitingMessage {
        let line = json!({ "method": method, "params": params }).to_string().into_bytes();
        let bytes = line.len();
        let message = IncomingMessage { position: 0, method: method.to_owned(), params, request, bytes };
        WaitingMessage::new(message, line)
    }

    #[tokio::test]
    async fn pieces_of_one_text_are_joined_while_they_wait_and_everything_else_keeps_its_order() {
        let queue = TurnQueue::default();
        for pushed in [
            delta("a", "one "),
            delta("a", "two"),
            delta("b", "x"),
            message("item/completed", json!({})),
            delta("b", "y"),
        ] {
            assert!(queue.push(pushed).await);
        }
        let mut texts = Vec::new();
        for _ in 0..4 {
            let QueueItem::Message(message) = queue.next().await else { panic!("a message") };
            texts.push(message.params["delta"].as_str().unwrap_or("-").to_owned());
        }
        assert_eq!(texts, ["one two", "x", "-", "y"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_keep_up_loses_its_queue_and_holds_the_router_only_for_a_while() {
        let queue = TurnQueue::default();
        for _ in 0..QUEUE {
            assert!(queue.push(message("item/started", json!({}))).await);
        }
        let began = tokio::time::Instant::now();
        assert!(!queue.push(message("item/started", json!({}))).await);
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(!queue.push(message("item/started", json!({}))).await);
        assert_eq!(began.elapsed(), PATIENCE);
        for _ in 0..QUEUE {
            assert!(matches!(queue.next().await, QueueItem::Message(_)));
        }
        assert_eq!(queue.next().await, QueueItem::End(QueueEnd::Overflow));
    }

    #[tokio::test]
    async fn a_turn_that_leaves_gives_back_the_requests_that_it_has_not_read() {
        let queue = TurnQueue::default();
        let request = |id: i64| as_read("item/tool/call", json!({}), Some(RequestId::Number(id)));
        for pushed in [request(1), message("item/started", json!({})), request(2)] {
            assert!(queue.push(pushed).await);
        }
        assert!(matches!(queue.next().await, QueueItem::Message(_)));
        assert_eq!(queue.leave(), [RequestId::Number(2)]);
        assert!(!queue.push(request(3)).await, "the router answers it");
    }

    #[tokio::test(start_paused = true)]
    async fn large_messages_fill_the_queue_by_their_bytes() {
        let queue = Arc::new(TurnQueue::default());
        let large = || message("item/completed", json!({ "text": "x".repeat(BYTES / 4) }));
        for _ in 0..3 {
            assert!(queue.push(large()).await);
        }
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push(large()).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "the fourth waits for room");
        let QueueItem::Message(_) = queue.next().await else { panic!("a message") };
        assert!(waiting.await.unwrap());
        // Pieces that would be joined count too.
        assert!(!queue.push(delta("a", &"x".repeat(BYTES))).await, "nobody reads");
        for _ in 0..3 {
            assert!(matches!(queue.next().await, QueueItem::Message(_)));
        }
        assert_eq!(queue.next().await, QueueItem::End(QueueEnd::Overflow));
    }

    /// About the memory that a value takes.
    fn memory_of(value: &Value) -> usize {
        let inner = match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(memory_of).sum(),
            Value::Object(members) => members.iter().map(|(key, value)| key.len() + memory_of(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        size_of::<Value>() + inner
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_objects_take_no_more_room_than_their_lines() {
        let queue = TurnQueue::default();
        let objects = json!(vec![json!({}); 100_000]);
        let mut pushed = 0;
        for number in 0.. {
            let completed = message("item/completed", json!({ "item": objects }));
            // A piece of text may have members that nobody reads, and ids that are none.
            let padded = message(
                "item/agentMessage/delta",
                json!({ "itemId": number.to_string(), "delta": "x", "padding": objects }),
            );
            let strange = message("item/agentMessage/delta", json!({ "itemId": objects, "delta": "x" }));
            if !(queue.push(completed).await && queue.push(padded).await && queue.push(strange).await) {
                break;
            }
            pushed += 3;
        }
        let state = queue.state.lock();
        assert!(pushed > 30 && state.bytes <= BYTES, "{pushed} messages");
        let held = state.messages.iter().map(|message| match message {
            WaitingMessage::Piece(message) => memory_of(&message.params),
            WaitingMessage::Packed(message) => message.bytes(),
        });
        assert!(held.sum::<usize>() <= state.bytes);
    }

    #[tokio::test]
    async fn a_message_that_is_larger_than_all_room_is_taken_alone() {
        let queue = TurnQueue::default();
        assert!(queue.push(delta("a", &"x".repeat(BYTES))).await);
        assert!(matches!(queue.next().await, QueueItem::Message(_)));
        assert!(queue.push(delta("a", "y")).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_router_goes_on_when_the_turn_takes_a_message() {
        let queue = Arc::new(TurnQueue::default());
        for _ in 0..QUEUE {
            queue.push(message("item/started", json!({}))).await;
        }
        let pushing = queue.push(message("item/completed", json!({})));
        let (taken, item) = tokio::join!(pushing, queue.next());
        assert!(taken && matches!(item, QueueItem::Message(_)));
    }
}
