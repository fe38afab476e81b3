//! Messages as they stand on a line.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::failure::RpcFault;
use super::lossy_json;

/// The code that JSON-RPC has for something that cannot be parsed.
const UNREADABLE: i64 = -32_700;

/// How a peer writes JSON-RPC. We read both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcDialect {
    /// Without the member `jsonrpc`, as codex writes it.
    Bare,
    /// With `"jsonrpc": "2.0"`, as ACP wants it.
    Strict,
}

/// The id of a request of the peer. It comes from the peer's own sequence and may equal an id of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl RequestId {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) => Some(Self::Text(text)),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl From<RequestId> for Value {
    fn from(id: RequestId) -> Self {
        match id {
            RequestId::Number(number) => Self::from(number),
            RequestId::Text(text) => Self::String(text),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}

/// A message of ours.
pub(super) struct OutgoingMessage<'a> {
    method: Option<&'a str>,
    id: Option<Value>,
    /// The last member and its name.
    body: Option<(&'static str, Value)>,
}

impl<'a> OutgoingMessage<'a> {
    /// A call. Null as parameters means none.
    pub(super) fn call(id: i64, method: &'a str, params: Value) -> Self {
        let body = (!params.is_null()).then_some(("params", params));
        Self { method: Some(method), id: Some(id.into()), body }
    }

    pub(super) fn notification(method: &'a str, params: Option<Value>) -> Self {
        Self { method: Some(method), id: None, body: params.map(|params| ("params", params)) }
    }

    pub(super) fn reply(id: RequestId, answer: Result<Value, RpcFault>) -> Self {
        let body = match answer {
            Ok(result) => ("result", result),
            Err(fault) => ("error", fault_value(fault)),
        };
        Self { method: None, id: Some(id.into()), body: Some(body) }
    }

    /// The message with its line break.
    pub(super) fn to_line(&self, dialect: RpcDialect) -> Vec<u8> {
        let mut message = Map::new();
        match dialect {
            RpcDialect::Bare => {}
            RpcDialect::Strict => drop(message.insert("jsonrpc".to_owned(), "2.0".into())),
        }
        if let Some(id) = &self.id {
            message.insert("id".to_owned(), id.clone());
        }
        if let Some(method) = self.method {
            message.insert("method".to_owned(), method.into());
        }
        if let Some((name, value)) = &self.body {
            message.insert((*name).to_owned(), value.clone());
        }
        let mut line = Value::Object(message).to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

fn fault_value(fault: RpcFault) -> Value {
    let mut error = Map::new();
    error.insert("code".to_owned(), fault.code.into());
    error.insert("message".to_owned(), fault.message.into());
    if let Some(data) = fault.data {
        error.insert("data".to_owned(), data);
    }
    Value::Object(error)
}

/// What a line is, without its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A notification, or a request if it has an id.
    Message { method: String, request: Option<RequestId> },
    /// An answer; `None` if its id is none of ours.
    Answer(Option<i64>),
    /// No message.
    Noise,
}

/// Members by which messages are told apart. A request may have an id of ours: only its method tells.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    error: Option<IgnoredAny>,
    #[serde(default)]
    result: Option<IgnoredAny>,
}

/// Tells what a line is.
pub(super) fn kind_of(line: &[u8]) -> LineKind {
    // An array would be taken for the members in their order.
    if !line.trim_ascii_start().starts_with(b"{") {
        return LineKind::Noise;
    }
    let Ok(envelope) = lossy_json::read::<Envelope>(line) else { return LineKind::Noise };
    match (envelope.method, envelope.id) {
        (Some(method), None) => LineKind::Message { method, request: None },
        (Some(method), Some(id)) => match RequestId::from_value(id) {
            Some(id) => LineKind::Message { method, request: Some(id) },
            None => LineKind::Noise,
        },
        // Without a result or an error it is an answer too: JavaScript leaves out a result that is undefined.
        (None, Some(id)) => LineKind::Answer(id.as_i64()),
        (None, None) if envelope.error.is_some() || envelope.result.is_some() => LineKind::Answer(None),
        (None, None) => LineKind::Noise,
    }
}

/// The parameters of a message; null if there are none that can be read.
pub(super) fn read_params(line: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        params: Value,
    }
    lossy_json::read::<Message>(line).map(|message| message.params).unwrap_or_default()
}

/// The result or the error of an answer.
pub(super) fn read_answer(line: &[u8]) -> Result<Value, RpcFault> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        result: Value,
        #[serde(default)]
        error: Option<Value>,
    }
    match lossy_json::read::<Answer>(line) {
        Ok(Answer { result, error: None }) => Ok(result),
        Ok(Answer { error: Some(error), .. }) => Err(read_fault(error)),
        Err(_) => Err(RpcFault::new(UNREADABLE, "the answer cannot be read")),
    }
}

fn read_fault(error: Value) -> RpcFault {
    match error {
        Value::Object(mut error) => RpcFault {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: match error.remove("message") {
                Some(Value::String(message)) => message,
                Some(other) => other.to_string(),
                None => String::new(),
            },
            data: error.remove("data"),
        },
        Value::String(message) => RpcFault::new(0, message),
        other => RpcFault::new(0, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(method: &str, request: Option<RequestId>) -> LineKind {
        LineKind::Message { method: method.to_owned(), request }
    }

    #[test]
    fn lines_are_told_apart() {
        let cases: &[(&str, LineKind)] = &[
            (r#"{"method":"a","params":{"id":1},"emittedAtMs":5}"#, message("a", None)),
            (r#"{"method":"a","id":null}"#, message("a", None)),
            (r#" {"method":"a","id":0}"#, message("a", Some(RequestId::Number(0)))),
            (r#"{"method":"a","id":"x"}"#, message("a", Some(RequestId::Text("x".to_owned())))),
            (r#"{"method":"a","id":1,"result":{}}"#, message("a", Some(RequestId::Number(1)))),
            (r#"{"method":"a","id":1.5}"#, LineKind::Noise),
            (r#"{"id":3,"result":null}"#, LineKind::Answer(Some(3))),
            (r#"{"id":3}"#, LineKind::Answer(Some(3))),
            (r#"{"id":"3","error":{}}"#, LineKind::Answer(None)),
            (r#"{"id":null,"error":{}}"#, LineKind::Answer(None)),
            (r#"{"method":7}"#, LineKind::Noise),
            (r#"[1, "a"]"#, LineKind::Noise),
            (r#"{"half": "#, LineKind::Noise),
            ("{}", LineKind::Noise),
            ("\"x\"", LineKind::Noise),
            ("Welcome!", LineKind::Noise),
            ("", LineKind::Noise),
        ];
        for (line, expected) in cases {
            assert_eq!(kind_of(line.as_bytes()), *expected, "{line}");
        }
    }

    #[test]
    fn both_dialects_are_written() {
        let call = OutgoingMessage::call(1, "a/b", json!({ "x": "two\nlines" }));
        let line = String::from_utf8(call.to_line(RpcDialect::Bare)).unwrap();
        assert_eq!(line, "{\"id\":1,\"method\":\"a/b\",\"params\":{\"x\":\"two\\nlines\"}}\n");
        let line = String::from_utf8(call.to_line(RpcDialect::Strict)).unwrap();
        assert_eq!(
            line,
            "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"a/b\",\"params\":{\"x\":\"two\\nlines\"}}\n"
        );
        let bare =
            |message: OutgoingMessage<'_>| String::from_utf8(message.to_line(RpcDialect::Bare)).unwrap();
        assert_eq!(bare(OutgoingMessage::call(2, "a", Value::Null)), "{\"id\":2,\"method\":\"a\"}\n");
        assert_eq!(bare(OutgoingMessage::notification("a", None)), "{\"method\":\"a\"}\n");
        let id = || RequestId::Text("q".to_owned());
        assert_eq!(bare(OutgoingMessage::reply(id(), Ok(Value::Null))), "{\"id\":\"q\",\"result\":null}\n");
        let fault = RpcFault { code: -1, message: "no".to_owned(), data: Some(json!([1])) };
        assert_eq!(
            bare(OutgoingMessage::reply(id(), Err(fault))),
            "{\"error\":{\"code\":-1,\"data\":[1],\"message\":\"no\"},\"id\":\"q\"}\n"
        );
    }

    #[test]
    fn an_error_is_read_in_any_shape() {
        let fault = |line: &str| read_answer(line.as_bytes()).unwrap_err();
        assert_eq!(
            fault(r#"{"id":1,"error":{"code":-32600,"message":"no","data":{"a":1}}}"#),
            RpcFault { code: -32_600, message: "no".to_owned(), data: Some(json!({ "a": 1 })) }
        );
        assert_eq!(fault(r#"{"id":1,"error":"no"}"#), RpcFault::new(0, "no"));
        assert_eq!(fault(r#"{"id":1,"error":{}}"#), RpcFault::new(0, ""));
        assert_eq!(fault(r#"{"id":1,"error":false}"#), RpcFault::new(0, "false"));
        let deep = format!("{{\"id\":1,\"result\":{}{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(kind_of(deep.as_bytes()), LineKind::Answer(Some(1)));
        assert_eq!(fault(&deep).code, UNREADABLE);
        assert_eq!(read_answer(br#"{"id":1,"error":null,"result":2}"#), Ok(json!(2)));
    }
}
