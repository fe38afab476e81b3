//! Counts the tokens of a turn by what codex tells about its thread. Pure.

use serde_json::Value;

use crate::agent::TokenUsage;

/// The tokens of a turn so far.
#[derive(Debug, Default)]
pub struct TokenCount {
    /// Tokens of the turn.
    turn: TokenUsage,
    /// Tokens of the whole thread, when they were told last.
    thread: Option<TokenUsage>,
}

impl TokenCount {
    /// Takes the member `tokenUsage` of a notification, and returns the tokens of the turn so far. Only the growth of the
    /// thread's total counts, because codex tells the use of its last request again without another request. The total
    /// falls when codex gives up a context that was full.
    pub fn add(&mut self, told: &Value) -> TokenUsage {
        let total = usage(&told["total"]);
        let last = usage(&told["last"]);
        let before = self.thread.unwrap_or(TokenUsage {
            input: total.input.saturating_sub(last.input),
            output: total.output.saturating_sub(last.output),
        });
        self.thread = Some(total);
        let TokenUsage { input, output } = &mut self.turn;
        *input = input.saturating_add(total.input.saturating_sub(before.input));
        *output = output.saturating_add(total.output.saturating_sub(before.output));
        self.turn
    }
}

fn usage(told: &Value) -> TokenUsage {
    let tokens = |key: &str| told[key].as_u64().unwrap_or_default();
    TokenUsage { input: tokens("inputTokens"), output: tokens("outputTokens") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A notification: input and output of the thread, and of its last request.
    fn told(total: (u64, u64), last: (u64, u64)) -> Value {
        let tokens = |(input, output): (u64, u64)| json!({ "inputTokens": input, "outputTokens": output });
        json!({ "total": tokens(total), "last": tokens(last), "modelContextWindow": 258_400 })
    }

    #[test]
    fn a_request_that_is_told_again_counts_once() {
        let mut count = TokenCount::default();
        for (total, last, turn) in [
            // Earlier turns took 1000 and 200.
            ((1100, 220), (100, 20), (100, 20)),
            ((1100, 220), (100, 20), (100, 20)),
            ((1350, 250), (250, 30), (350, 50)),
            // A full context is given up: the total begins anew.
            ((0, 0), (0, 0), (350, 50)),
            ((90, 10), (90, 10), (440, 60)),
            ((90, 10), (90, 10), (440, 60)),
        ] {
            let expected = TokenUsage { input: turn.0, output: turn.1 };
            assert_eq!(count.add(&told(total, last)), expected, "{total:?}");
        }
    }

    #[test]
    fn odd_numbers_never_count_less() {
        let mut count = TokenCount::default();
        let mut add = |value: Value| count.add(&value);
        assert_eq!(add(json!(null)), TokenUsage::default());
        assert_eq!(add(told((5, 1), (9, 9))), TokenUsage { input: 5, output: 1 });
        let most = u64::MAX;
        add(told((most, most), (0, 0)));
        add(told((0, 0), (0, 0)));
        assert_eq!(add(told((most, most), (0, 0))), TokenUsage { input: most, output: most });
    }
}
