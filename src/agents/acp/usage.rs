//! The tokens of a prompt, as agents tell them with the answer to it. Pure.
//!
//! Where an agent tells none, the store estimates them for budgets when the turn ends, as for every agent.

use serde_json::Value;

use crate::agent::TokenUsage;

/// Reads the result of `session/prompt`; zeros if it tells no tokens.
pub fn read_usage(answer: &Value) -> TokenUsage {
    let usage = &answer["usage"];
    let input = ["inputTokens", "cachedReadTokens", "cachedWriteTokens"];
    let told = TokenUsage { input: sum_of(usage, &input), output: sum_of(usage, &["outputTokens"]) };
    if told != TokenUsage::default() {
        return told;
    }
    // The form of gemini.
    let quota = &answer["_meta"]["quota"]["token_count"];
    TokenUsage { input: sum_of(quota, &["input_tokens"]), output: sum_of(quota, &["output_tokens"]) }
}

fn sum_of(counts: &Value, names: &[&str]) -> u64 {
    let count = |name: &&str| counts[*name].as_u64().unwrap_or_default();
    names.iter().map(count).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tokens_of_every_real_agent_are_read() {
        for (agent, answer, input, output) in [
            (
                "codex-acp",
                json!({ "usage": { "totalTokens": 120, "inputTokens": 90, "cachedReadTokens": 10,
                    "cachedWriteTokens": 0, "outputTokens": 20, "thoughtTokens": 5 } }),
                100,
                20,
            ),
            (
                "opencode",
                json!({ "usage": { "inputTokens": 100, "outputTokens": 20, "totalTokens": 120 } }),
                100,
                20,
            ),
            (
                "gemini",
                json!({ "_meta": { "quota": { "token_count": { "input_tokens": 200, "output_tokens": 40 } } } }),
                200,
                40,
            ),
            ("cancelled", json!({ "usage": null, "_meta": { "quota": { "token_count": null } } }), 0, 0),
            ("zed", json!({ "stopReason": "end_turn" }), 0, 0),
        ] {
            assert_eq!(read_usage(&answer), TokenUsage { input, output }, "{agent}");
        }
    }
}
