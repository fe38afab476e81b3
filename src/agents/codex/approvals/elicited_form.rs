//! Forms of MCP servers that fit into one ask: a single field that is a choice, yes or no, or a text. Pure.

use serde_json::{Map, Value, json};

use crate::agent::{AnswerForm, AskOption, OptionKind};
use crate::agents::sorted_json::{list_field, text_field};

/// Words in a form that asks for a secret. An answer in a room would not stay one.
const SECRETS: [&str; 9] =
    ["password", "passwd", "passphrase", "passcode", "secret", "token", "credential", "api key", "api_key"];

/// A form with one field.
#[derive(Debug, PartialEq)]
pub struct ElicitedForm {
    name: String,
    /// The server's words about the field, if they say more than its name.
    about: String,
    field: FormField,
}

/// The field of a form.
#[derive(Debug, PartialEq)]
enum FormField {
    /// One of these values, each with its words for people.
    Choice(Vec<(Value, String)>),
    /// Any text.
    Text,
}

/// The reason why a form is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormRefusal {
    /// It has no field, several, or one of another type.
    Unfit,
    /// It asks for a secret.
    Secret,
}

impl ElicitedForm {
    /// Reads the schema of a form that comes with this message.
    pub fn new(schema: &Value, message: &str) -> Result<Self, FormRefusal> {
        let fields = schema.get("properties").and_then(Value::as_object).ok_or(FormRefusal::Unfit)?;
        let mut fields = fields.iter();
        let (Some((name, field)), None) = (fields.next(), fields.next()) else {
            return Err(FormRefusal::Unfit);
        };
        let words = [text_field(field, "title"), text_field(field, "description")];
        let about: Vec<_> = words.into_iter().filter(|words| !words.trim().is_empty()).collect();
        let about = about.join("\n");
        let all_words = format!("{name} {about} {message}").to_lowercase();
        if SECRETS.iter().any(|secret| all_words.contains(secret)) {
            return Err(FormRefusal::Secret);
        }
        let field = read_field(field).ok_or(FormRefusal::Unfit)?;
        Ok(Self { name: name.clone(), about, field })
    }

    /// The whole question. The name of the field stands in for a server that says nothing else.
    pub fn question(&self, message: &str) -> String {
        let words = [message.trim(), self.about.as_str()];
        let words: Vec<_> = words.into_iter().filter(|words| !words.is_empty()).collect();
        if words.is_empty() { self.name.clone() } else { words.join("\n\n") }
    }

    /// The answers that fit.
    pub fn answers(&self) -> AnswerForm {
        match &self.field {
            FormField::Text => AnswerForm { options: Vec::new(), takes_text: true },
            FormField::Choice(values) => {
                let option = |(number, (_, label)): (usize, &(Value, String))| AskOption {
                    id: number.to_string(),
                    label: label.clone(),
                    kind: OptionKind::Answer,
                };
                AnswerForm { options: values.iter().enumerate().map(option).collect(), takes_text: false }
            }
        }
    }

    /// The content for a chosen option.
    pub fn chosen(&self, id: &str) -> Option<Value> {
        match &self.field {
            FormField::Text => None,
            FormField::Choice(values) => {
                let (value, _) = values.get(id.parse::<usize>().ok()?)?;
                Some(self.content(value.clone()))
            }
        }
    }

    /// The content for a text.
    pub fn written(&self, text: &str) -> Value {
        self.content(json!(text))
    }

    fn content(&self, value: Value) -> Value {
        Value::Object(Map::from_iter([(self.name.clone(), value)]))
    }
}

/// Reads the schema of a field; `None` if it is not one of the three kinds.
fn read_field(field: &Value) -> Option<FormField> {
    let names = list_field(field, "enumNames");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let choices: Option<Vec<_>> = match (text_field(field, "type"), field.get("enum"), field.get("oneOf")) {
        ("boolean", None, None) => Some([true, false].map(|value| (json!(value), value.to_string())).into()),
        ("string", Some(values), None) => {
            let values = values.as_array()?.iter().enumerate();
            let choice = |(number, value): (usize, &Value)| {
                let label = names.get(number).and_then(text).or_else(|| text(value))?;
                Some((value.clone(), label))
            };
            values.map(choice).collect()
        }
        ("string", None, Some(values)) => {
            let choice = |value: &Value| {
                let label = text(&value["title"]).or_else(|| text(&value["const"]))?;
                Some((json!(text(&value["const"])?), label))
            };
            values.as_array()?.iter().map(choice).collect()
        }
        ("string", None, None) => return Some(FormField::Text),
        _ => None,
    };
    choices.filter(|choices| !choices.is_empty()).map(FormField::Choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(field: Value) -> Result<ElicitedForm, FormRefusal> {
        ElicitedForm::new(&json!({ "type": "object", "properties": { "colour": field } }), "")
    }

    fn labels(field: Value) -> Vec<String> {
        form(field).unwrap().answers().options.into_iter().map(|option| option.label).collect()
    }

    #[test]
    fn a_text_is_answered_in_own_words() {
        let form = form(json!({ "type": "string", "title": "Colour" })).unwrap();
        assert_eq!(form.question("Which colour?"), "Which colour?\n\nColour");
        assert_eq!(form.answers(), AnswerForm { options: Vec::new(), takes_text: true });
        assert_eq!(form.written("blue"), json!({ "colour": "blue" }));
        assert_eq!(form.chosen("0"), None);
    }

    #[test]
    fn a_form_without_words_shows_the_name_of_its_field() {
        let form = form(json!({ "type": "string" })).unwrap();
        assert_eq!(form.question(" "), "colour");
        assert_eq!(form.question("Which?"), "Which?");
    }

    #[test]
    fn every_kind_of_choice_becomes_options() {
        assert_eq!(labels(json!({ "type": "boolean" })), ["true", "false"]);
        assert_eq!(labels(json!({ "type": "string", "enum": ["r", "b"] })), ["r", "b"]);
        let named = json!({ "type": "string", "enum": ["r", "b"], "enumNames": ["red"] });
        assert_eq!(labels(named), ["red", "b"]);
        let titled =
            json!({ "type": "string", "oneOf": [{ "const": "r", "title": "red" }, { "const": "b" }] });
        assert_eq!(labels(titled.clone()), ["red", "b"]);
        let form = form(titled).unwrap();
        assert_eq!(form.chosen("0"), Some(json!({ "colour": "r" })));
        assert_eq!((form.chosen("2"), form.chosen("red")), (None, None));
    }

    #[test]
    fn yes_is_the_boolean_and_not_its_word() {
        assert_eq!(form(json!({ "type": "boolean" })).unwrap().chosen("0"), Some(json!({ "colour": true })));
    }

    #[test]
    fn other_forms_are_not_asked() {
        for field in [
            json!({ "type": "number" }),
            json!({ "type": "integer" }),
            json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }),
            json!({ "type": "string", "enum": [] }),
            json!({ "type": "string", "enum": [1] }),
            json!({ "type": "string", "enum": ["a"], "oneOf": [] }),
            json!({}),
            json!(7),
        ] {
            assert_eq!(form(field.clone()), Err(FormRefusal::Unfit), "{field}");
        }
        for schema in [
            json!(null),
            json!({ "properties": {} }),
            json!({ "properties": { "a": { "type": "string" }, "b": { "type": "string" } } }),
        ] {
            assert_eq!(ElicitedForm::new(&schema, ""), Err(FormRefusal::Unfit), "{schema}");
        }
    }

    #[test]
    fn a_secret_is_not_asked_for() {
        for (name, field) in [
            ("password", json!({ "type": "string" })),
            ("value", json!({ "type": "string", "title": "Your API key" })),
            ("value", json!({ "type": "string", "description": "the access token of your account" })),
        ] {
            let schema = json!({ "properties": { name: field } });
            assert_eq!(ElicitedForm::new(&schema, ""), Err(FormRefusal::Secret), "{schema}");
        }
    }
}
