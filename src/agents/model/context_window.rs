//! Keeps a request within the model's window by leaving out the oldest turns. Pure.
//!
//! Nobody but the model's server can count its tokens, so they are estimated from bytes, rather too many than too few.

use serde_json::{Value, json};

/// Bytes that count as one token. English has about four, code and other languages fewer.
const BYTES_PER_TOKEN: u64 = 3;

/// Tokens that each message costs beside its text.
const PER_MESSAGE: u64 = 8;

/// Bytes of a tool result that stay when the turn itself is too long for the window.
const SHORT_RESULT: usize = 512;

/// Bytes that stay of a result that the model has not read yet.
const UNREAD_RESULT: usize = 4 * 1024;

/// The messages of a request, in the three parts that are treated differently.
#[derive(Clone, Debug, Default)]
pub struct RequestMessages {
    /// The system message, if there is one.
    system: Option<Value>,
    /// Earlier turns. Each begins with a message of the user.
    history: Vec<Value>,
    /// The prompt, and everything that the model and the tools have said since.
    turn: Vec<Value>,
}

impl RequestMessages {
    /// Takes the messages of a prepared request apart: the last one is the prompt.
    pub fn new(mut messages: Vec<Value>) -> Self {
        let prompt = messages.pop();
        let is_system = messages.first().is_some_and(|first| first["role"] == "system");
        let system = is_system.then(|| messages.remove(0));
        Self { system, history: messages, turn: prompt.into_iter().collect() }
    }

    /// Adds a paragraph to the system message.
    pub fn add_to_system(&mut self, text: &str) {
        let before = self.system.as_ref().and_then(|system| system["content"].as_str());
        let content = before.map_or_else(|| text.to_owned(), |before| format!("{before}\n\n{text}"));
        self.system = Some(json!({ "role": "system", "content": content }));
    }

    /// Adds a message of the model or of a tool.
    pub fn push(&mut self, message: Value) {
        self.turn.push(message);
    }

    /// All messages in order.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.system.iter().chain(&self.history).chain(&self.turn)
    }

    /// Leaves out the oldest turns until the request fits into `window` tokens, `fixed` bytes of which are tools; a turn
    /// that is too long by itself has its oldest tool results shortened. Returns whether anything was left out.
    pub fn fit(&mut self, window: u64, fixed: usize) -> bool {
        // The answer needs room, too.
        let room = window.saturating_sub((window / 8).clamp(256, 8_192)).saturating_sub(tokens(fixed));
        let mut used: u64 = self.iter().map(cost).sum();
        let mut dropped = false;
        while used > room && self.drop_oldest_turn(&mut used) {
            dropped = true;
        }
        if used > room {
            dropped |= self.shorten_results();
        }
        dropped
    }

    /// Shortens the results of this turn: much those of earlier rounds, less those that the model has not read yet.
    /// Returns whether any was longer before.
    pub fn shorten_results(&mut self) -> bool {
        let newest = self.turn.iter().rposition(|message| message["role"] == "assistant").unwrap_or_default();
        let mut shortened = false;
        for (at, message) in self.turn.iter_mut().enumerate().filter(|(_, message)| message["role"] == "tool")
        {
            shortened |= shorten(message, if at < newest { SHORT_RESULT } else { UNREAD_RESULT });
        }
        shortened
    }

    /// Leaves out the older half of the earlier turns. Returns whether there were any.
    pub fn halve_history(&mut self) -> bool {
        let turns = self.history.iter().filter(|message| message["role"] == "user").count();
        let mut used = u64::MAX;
        (0..turns.div_ceil(2).max(1)).fold(false, |dropped, _| self.drop_oldest_turn(&mut used) || dropped)
    }

    /// Leaves out one whole turn: a question with everything up to the next one.
    fn drop_oldest_turn(&mut self, used: &mut u64) -> bool {
        if self.history.is_empty() {
            return false;
        }
        let later = self.history.iter().skip(1).position(|message| message["role"] == "user");
        let end = later.map_or(self.history.len(), |at| at + 1);
        let dropped: u64 = self.history.drain(..end).map(|message| cost(&message)).sum();
        *used = used.saturating_sub(dropped);
        true
    }
}

/// Estimated tokens of a message. A picture counts as its bytes, which is too much, but never too little.
fn cost(message: &Value) -> u64 {
    PER_MESSAGE + tokens(length(message))
}

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Bytes of all texts in a value.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(length).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + length(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}

/// Shortens a tool's result to about `bytes`. Returns whether it was much longer before.
fn shorten(message: &mut Value, bytes: usize) -> bool {
    let Some(content) = message["content"].as_str().filter(|content| content.len() > 2 * bytes) else {
        return false;
    };
    let start = &content[..content.floor_char_boundary(bytes)];
    message["content"] = json!(format!("{start}\n[… the rest was left out to save room …]"));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: &str, words: usize) -> Value {
        json!({ "role": role, "content": "word ".repeat(words) })
    }

    fn roles(messages: &RequestMessages) -> Vec<&str> {
        messages.iter().filter_map(|message| message["role"].as_str()).collect()
    }

    #[test]
    fn the_oldest_whole_turns_are_left_out_and_nothing_else() {
        let mut messages = RequestMessages::new(vec![
            said("system", 10),
            said("user", 500),
            said("assistant", 10),
            said("tool", 10),
            said("user", 10),
            said("assistant", 10),
            said("user", 10),
        ]);
        assert!(!messages.clone().fit(100_000, 0));
        assert!(messages.fit(900, 0));
        assert_eq!(roles(&messages), ["system", "user", "assistant", "user"]);
        assert!(!messages.fit(900, 0), "it fits now");
        assert!(messages.fit(10, 0));
        assert_eq!(roles(&messages), ["system", "user"], "the prompt always stays");
    }

    #[test]
    fn a_long_turn_has_its_older_results_shortened() {
        let mut messages = RequestMessages::new(vec![said("user", 1)]);
        for _ in 0..3 {
            messages.push(said("assistant", 1));
            messages.push(said("tool", 1_000));
        }
        assert!(messages.fit(2_500, 0));
        let lengths: Vec<_> = messages.turn.iter().filter(|one| one["role"] == "tool").map(length).collect();
        assert!(lengths[0] < 1_000 && lengths[1] < 1_000 && lengths[2] > 4_000, "{lengths:?}");
        messages.push(said("tool", 10_000));
        assert!(messages.shorten_results());
        assert!(messages.iter().map(length).all(|bytes| bytes < 5_100), "also one that nobody has read");
    }

    #[test]
    fn half_of_the_turns_go_when_the_server_says_that_it_is_too_much() {
        let turns = (0..4).flat_map(|_| [said("user", 1), said("assistant", 1)]);
        let mut messages = RequestMessages::new(turns.chain([said("user", 1)]).collect());
        assert!(messages.halve_history());
        assert_eq!(messages.history.len(), 4);
        assert!(messages.halve_history() && messages.halve_history() && !messages.halve_history());
        assert_eq!(roles(&messages), ["user"]);
    }
}
