//! The result of `POST /run`, made from the text of the answer: JSON where the text is JSON, also in a code fence. Pure.

use serde_json::Value;

/// The text of an answer as a value: parsed if all of it is JSON, or else all of the agent's `last` message, behind what it
/// said between its tool calls; without the code fence if one encloses all of it. Else the text as it is.
pub fn result_value(text: &str, last: Option<&str>) -> Value {
    let bare = bare(text);
    let parse = |text: &str| serde_json::from_str(text).ok();
    let parsed = parse(bare).or_else(|| parse(self::bare(last?)));
    parsed.unwrap_or_else(|| Value::String(bare.to_owned()))
}

/// A text without the blanks and the code fence around it.
fn bare(text: &str) -> &str {
    let text = text.trim();
    unfenced(text).unwrap_or(text)
}

/// The content of the code fence that encloses a whole text; `None` if there is none, or if there is anything beside it.
fn unfenced(text: &str) -> Option<&str> {
    let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark))?;
    let (opening, rest) = text.split_once('\n')?;
    // The fence may be longer than three, and its end is as long.
    let length = opening.len() - opening.trim_start_matches(mark.chars().next()?).len();
    let (fence, language) = opening.split_at(length);
    if language.contains('`') {
        return None;
    }
    let content = rest.strip_suffix(fence)?;
    let content = match content.is_empty() {
        true => content,
        false => content.strip_suffix('\n')?,
    };
    let content = content.strip_suffix('\r').unwrap_or(content);
    // Another fence inside begins or ends a second block: the answer is more than one.
    let is_fence = |line: &str| line.trim_start().starts_with(fence);
    (!content.lines().any(is_fence)).then_some(content.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_parsed_with_or_without_a_fence() {
        let value = json!({ "hello": "world" });
        for text in [
            r#"{"hello":"world"}"#,
            "  {\"hello\": \"world\"}\n",
            "```json\n{\"hello\":\"world\"}\n```",
            "```\n{\"hello\":\"world\"}\n```\n",
            "```JSON\r\n{\"hello\":\r\n\"world\"}\r\n```",
            "````json\n{\"hello\":\"world\"}\n````",
            "~~~\n{\"hello\":\"world\"}\n~~~",
        ] {
            assert_eq!(result_value(text, None), value, "{text:?}");
        }
        for (text, value) in [
            ("[1, 2]", json!([1, 2])),
            ("42", json!(42)),
            ("true", json!(true)),
            ("null", json!(null)),
            ("\"quoted\"", json!("quoted")),
            ("```\n[]\n```", json!([])),
        ] {
            assert_eq!(result_value(text, None), value, "{text:?}");
        }
    }

    #[test]
    fn everything_else_stays_text() {
        for (text, result) in [
            ("Hello, world", "Hello, world"),
            ("", ""),
            ("```rust\nfn main() {}\n```", "fn main() {}"),
            ("```\n```", ""),
            ("{\"hello\": ", "{\"hello\":"),
            ("{\"a\": 1} and more", "{\"a\": 1} and more"),
            ("Here it is:\n```json\n{}\n```", "Here it is:\n```json\n{}\n```"),
            ("```json\n{}\n```\nDone.", "```json\n{}\n```\nDone."),
            ("```json\n{}\n```\n```json\n{}\n```", "```json\n{}\n```\n```json\n{}\n```"),
            ("```", "```"),
            ("```json", "```json"),
            ("```x```", "```x```"),
            ("NaN", "NaN"),
        ] {
            assert_eq!(result_value(text, None), json!(result), "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(result_value(&deep, None), json!(deep), "it is not followed down for ever");
    }

    proptest! {
        #[test]
        fn a_value_survives_its_fence(text in "[ -~]{0,40}", number: i64) {
            let value = json!({ "text": text.clone(), "numbers": [number] });
            prop_assert_eq!(result_value(&value.to_string(), None), value.clone());
            prop_assert_eq!(result_value(&format!("```json\n{value:#}\n```"), None), value);
        }

        #[test]
        fn no_text_is_lost_and_none_makes_it_fail(text in "\\PC{0,60}|(```|~~~|\n|json|\\{|\\}|x){0,20}") {
            if let Value::String(kept) = result_value(&text, None) {
                prop_assert!(text.contains(&kept) || serde_json::from_str::<String>(unfenced(text.trim()).unwrap_or(text.trim())).is_ok());
            }
        }
    }

    #[test]
    fn what_an_agent_says_before_a_tool_call_does_not_hide_its_json() {
        let (text, value) = ("I look.\n\n{\"a\":1}", json!({ "a": 1 }));
        assert_eq!(result_value(text, Some("```json\n{\"a\":1}\n```")), value);
        assert_eq!(result_value("[1]", Some("[2]")), json!([1]), "all of the text comes first");
        assert_eq!(result_value(text, Some("Here: {\"a\":1}")), json!(text));
        assert_eq!(result_value(text, Some("")), json!(text));
    }
}
