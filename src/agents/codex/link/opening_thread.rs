//! News of a thread that codex is opening for us. They may come before we have read the answer that it is open. Pure.

use crate::agents::jsonrpc::IncomingMessage;
use crate::agents::sorted_json::text_field;

/// News of a thread between the call that opens it and the note that it is loaded.
#[derive(Debug, Default)]
pub(super) struct OpeningThread {
    /// The turn that runs in it. Nobody has started one yet, so codex began it by itself.
    turn: Option<String>,
    /// Position of the last message that codex has closed it.
    closed: Option<u64>,
}

impl OpeningThread {
    /// Notes what a message says about the thread.
    pub fn observe(&mut self, message: &IncomingMessage) {
        let turn = text_field(&message.params["turn"], "id");
        match message.method.as_str() {
            "turn/started" => self.turn = Some(turn.to_owned()),
            "turn/completed" => _ = self.turn.take_if(|running| running == turn),
            "thread/closed" | "thread/archived" | "thread/deleted" => self.closed = Some(message.position),
            _ => {}
        }
    }

    /// The turn that runs in it.
    pub fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Whether codex has closed the thread after it was opened, which was after so many messages of the process.
    pub fn has_closed(&self, opened: u64) -> bool {
        self.closed.is_some_and(|closed| closed >= opened)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(news: &mut OpeningThread, method: &str, params: Value, position: u64) {
        let method = method.to_owned();
        news.observe(&IncomingMessage { position, method, params, request: None, bytes: 0 });
    }

    #[test]
    fn a_turn_runs_until_its_own_end_and_only_a_later_close_counts() {
        let mut news = OpeningThread::default();
        let turn = |id: &str| json!({ "turn": { "id": id } });
        told(&mut news, "thread/closed", json!({}), 3);
        assert!(!news.has_closed(4) && news.has_closed(3));
        told(&mut news, "turn/started", turn("own"), 5);
        told(&mut news, "turn/completed", turn("other"), 6);
        assert_eq!(news.turn(), Some("own"));
        told(&mut news, "turn/completed", turn("own"), 7);
        assert_eq!(news.turn(), None);
        told(&mut news, "thread/archived", json!({}), 8);
        assert!(news.has_closed(4));
    }
}
