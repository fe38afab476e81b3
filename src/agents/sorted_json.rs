//! JSON with sorted keys, whatever order a map of `serde_json` keeps in this build. Pure.

use serde_json::Value;

/// The value with the keys of every object in order, so that equal values become equal text.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            Value::Object(fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The text field `name` of an object; empty if there is none, or if it is no text.
pub fn text_field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list `name` of an object; none if it is no list.
pub fn list_field<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_become_equal_text() {
        let one: Value = serde_json::from_str(r#"{"b":[{"d":1,"c":2}],"a":null}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"a":null,"b":[{"c":2,"d":1}]}"#).unwrap();
        assert_eq!(sorted(&one).to_string(), r#"{"a":null,"b":[{"c":2,"d":1}]}"#);
        assert_eq!(sorted(&one).to_string(), sorted(&two).to_string());
    }

    #[test]
    fn a_field_of_another_type_counts_as_missing() {
        let value = json!({ "text": 7, "list": "x" });
        assert_eq!((text_field(&value, "text"), text_field(&value, "none")), ("", ""));
        assert!(list_field(&value, "list").is_empty() && list_field(&Value::Null, "list").is_empty());
    }
}
