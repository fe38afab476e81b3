//! Values of a TOML document without their spelling, to compare documents.

use serde_json::{Map, Value as Json};
use toml_edit::{Item, Table, Value};

/// All values of a table.
pub(super) fn plain_table(table: &Table) -> Json {
    Json::Object(table.iter().map(|(key, item)| (key.to_owned(), plain_item(item))).collect())
}

/// The values of an item.
pub(super) fn plain_item(item: &Item) -> Json {
    match item {
        Item::None => Json::Null,
        Item::Value(value) => plain_value(value),
        Item::Table(table) => plain_table(table),
        Item::ArrayOfTables(tables) => Json::Array(tables.iter().map(plain_table).collect()),
    }
}

/// A value. Kinds that JSON does not tell apart are texts with their kind before them.
fn plain_value(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::String(format!("text {}", text.value())),
        Value::Integer(number) => Json::from(*number.value()),
        Value::Float(number) => Json::String(format!("float {:x}", number.value().to_bits())),
        Value::Boolean(is_true) => Json::Bool(*is_true.value()),
        Value::Datetime(time) => Json::String(format!("time {}", time.value())),
        Value::Array(values) => Json::Array(values.iter().map(plain_value).collect()),
        Value::InlineTable(table) => {
            Json::Object(table.iter().map(|(key, value)| (key.to_owned(), plain_value(value))).collect())
        }
    }
}

/// Both objects together. `None` if both have a value for one key.
pub(super) fn unite(one: &Json, other: &Json) -> Option<Json> {
    let (Json::Object(one), Json::Object(other)) = (one, other) else { return None };
    let mut both: Map<String, Json> = one.clone();
    for (key, value) in other {
        let value = match one.get(key) {
            Some(known) => unite(known, value)?,
            None => value.clone(),
        };
        both.insert(key.clone(), value);
    }
    Some(Json::Object(both))
}

#[cfg(test)]
mod tests {
    use toml_edit::Document;

    use super::*;

    fn plain(text: &str) -> Json {
        plain_table(Document::parse(text).unwrap().as_table())
    }

    #[test]
    fn spelling_does_not_count_and_kinds_do() {
        assert_eq!(plain("a.b = 'x'\nc = 0x10"), plain("c = 16\n['a']\n\"b\" = \"\"\"x\"\"\""));
        assert_eq!(plain("a = { b = [1, { c = true }] }"), plain("[a]\nb = [\n1, # x\n{ c = true } ]"));
        for (one, other) in [
            ("a = 1", "a = 1.0"),
            ("a = 1", "a = '1'"),
            ("a = 1979-05-27", "a = '1979-05-27'"),
            ("a = nan", "a = inf"),
            ("a = -0.0", "a = 0.0"),
            ("a = true", "a = 'true'"),
            ("a = {}", "a = []"),
            ("[[a]]", "[a]"),
        ] {
            assert_ne!(plain(one), plain(other), "{one}, {other}");
        }
    }

    #[test]
    fn objects_are_united_unless_both_have_a_value() {
        assert_eq!(unite(&plain("a.b = 1"), &plain("a.c = 2\nd = 3")), Some(plain("a = {b=1, c=2}\nd=3")));
        assert_eq!(unite(&plain("a.b = 1"), &plain("a.b = 1")), None);
        assert_eq!(unite(&plain("a.b = 1"), &plain("a = 1")), None);
    }
}
