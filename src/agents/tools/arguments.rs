//! Reads optional arguments of a tool call. Models send numbers as text and `null` for nothing; both are understood.

use serde_json::{Map, Value};

use super::ToolFailure;

/// The text argument `name`, if it is there and not empty.
pub fn optional_text<'a>(
    arguments: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, ToolFailure> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(ToolFailure::failed(format!("`{name}` must be a string"))),
    }
}

/// The whole number `name`, if it is there. Larger ones become `most`.
pub fn optional_count(
    arguments: &Map<String, Value>,
    name: &str,
    most: usize,
) -> Result<Option<usize>, ToolFailure> {
    let number = match arguments.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    let number =
        number.ok_or_else(|| ToolFailure::failed(format!("`{name}` must be a whole number, 0 or more")))?;
    Ok(Some(usize::try_from(number).unwrap_or(most).min(most)))
}

/// The switch `name`; off if it is not there.
pub fn optional_switch(arguments: &Map<String, Value>, name: &str) -> Result<bool, ToolFailure> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(_) => Err(ToolFailure::failed(format!("`{name}` must be true or false"))),
    }
}

/// A text argument as one line for people; empty if it makes no sense.
pub fn subject_line(arguments: &Map<String, Value>, name: &str) -> String {
    /// Characters of a subject. It stands beside a step.
    const SUBJECT: usize = 120;
    arguments
        .get(name)
        .and_then(Value::as_str)
        .map_or_else(String::new, |text| crate::util::one_line(text, SUBJECT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn numbers_and_switches_are_read_as_models_send_them() {
        for (value, count) in [
            (json!({}), None),
            (json!({"n": null}), None),
            (json!({"n": 7}), Some(7)),
            (json!({"n": " 7"}), Some(7)),
        ] {
            assert_eq!(optional_count(&map(value), "n", 10).unwrap(), count);
        }
        assert_eq!(optional_count(&map(json!({"n": 99})), "n", 10).unwrap(), Some(10));
        for wrong in [json!({"n": -1}), json!({"n": 1.5}), json!({"n": "many"}), json!({"n": []})] {
            assert!(optional_count(&map(wrong), "n", 10).is_err());
        }
        assert!(optional_switch(&map(json!({"b": "true"})), "b").unwrap());
        assert!(!optional_switch(&map(json!({"b": false})), "b").unwrap());
        assert!(optional_switch(&map(json!({"b": 1})), "b").is_err());
        assert_eq!(optional_text(&map(json!({"t": ""})), "t").unwrap(), None);
        assert!(optional_text(&map(json!({"t": 3})), "t").is_err());
        assert_eq!(subject_line(&map(json!({"t": "a\nb"})), "t"), "a b");
        assert_eq!(subject_line(&map(json!({"t": 3})), "t"), "");
    }
}
