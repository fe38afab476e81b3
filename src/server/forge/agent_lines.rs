//! Events of a turn as this surface shows them: one JSON object each. Pure.
//!
//! An agent that gives its own lines is passed on: each line as it came, and where it carries text, thinking or a tool call,
//! with `type`, `content`, `name`, `args` and `result` before everything else. Older clients read the line, newer ones the
//! fields. For any other agent, entries of the same form are made from the events of the turn.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::agent::{AskChoice, DenyReason, Step, StepState, TurnEvent};
use crate::ids::TurnId;
use crate::server::approvals;

/// What a caller can do who could not be asked.
const NOT_STREAMED: &str = "Nobody could be asked: request the turn with Accept: text/event-stream";

/// Tool calls whose names are remembered for their later lines.
const NAMES: usize = 1_000;

/// Writes the entries of one turn, in order.
pub struct AgentLines {
    /// The session under the name that the app knows.
    session: String,
    run: TurnId,
    /// The agent gives its own lines, so nothing is made of its events.
    is_raw: bool,
    /// Its lines are left out from here on, so entries are made of its events again.
    is_cut: bool,
    /// Names of tool calls by their ids: later lines about a call often leave its name out.
    names: HashMap<String, String>,
}

impl AgentLines {
    /// Entries of a turn. `is_raw`: lines of the agent are in its log already.
    pub fn new(session: &str, run: &TurnId, is_raw: bool) -> Self {
        let (session, run) = (session.to_owned(), run.clone());
        Self { session, run, is_raw, is_cut: false, names: HashMap::new() }
    }

    /// Leaves all further lines of the agent out: what they say is still told, in shorter entries.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Whether lines of the agent are left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn makes_entries(&self) -> bool {
        !self.is_raw || self.is_cut
    }

    /// The entry for an event, in one line; `None` for an event that has none.
    pub fn entry(&mut self, event: &TurnEvent<'_>) -> Option<String> {
        match event {
            TurnEvent::Raw(_) if self.is_cut => None,
            TurnEvent::RawCut => {
                self.cut();
                None
            }
            TurnEvent::Raw(line) => {
                self.is_raw = true;
                self.annotated(line)
            }
            TurnEvent::Asked(asked) if !asked.refused => {
                Some(with_type("permission_request", approvals::requested(&self.run, asked)))
            }
            TurnEvent::Asked(_) => None,
            TurnEvent::Answered(answered) => {
                let mut data = approvals::responded(&self.run, answered);
                if answered.choice == AskChoice::Deny(DenyReason::NotStreamed) {
                    data["detail"] = json!(NOT_STREAMED);
                }
                Some(with_type("permission_answer", data))
            }
            TurnEvent::Text(text) if self.makes_entries() => {
                Some(self.chunk("agent_message_chunk", "text", text))
            }
            TurnEvent::Thought(text) if self.makes_entries() => {
                Some(self.chunk("agent_thought_chunk", "thinking", text))
            }
            TurnEvent::Step(step) if self.makes_entries() => Some(self.step(step)),
            TurnEvent::Text(_)
            | TurnEvent::Thought(_)
            | TurnEvent::Step(_)
            | TurnEvent::Notice(_)
            | TurnEvent::Remark(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Upstream(_)
            | TurnEvent::Facts(_) => None,
        }
    }

    /// The last entry of an agent that gives no lines of its own, or whose lines were left out: how the turn ended.
    pub fn end(&self, stop_reason: &str) -> Option<String> {
        let result = json!({ "jsonrpc": "2.0", "id": self.run.0, "result": { "stopReason": stop_reason } });
        self.makes_entries().then(|| result.to_string())
    }

    fn chunk(&self, update: &str, kind: &str, text: &str) -> String {
        json!({
            "type": kind, "content": text, "jsonrpc": "2.0", "method": "session/update",
            "params": {
                "sessionId": self.session, "sessionUpdate": update, "content": { "type": "text", "text": text },
            },
        })
        .to_string()
    }

    fn step(&mut self, step: &Step) -> String {
        let Step { id, title, detail, state } = step;
        let is_new = self.remember(id, title);
        let (update, status) = match state {
            StepState::Running if is_new => ("tool_call", "in_progress"),
            StepState::Running => ("tool_call_update", "in_progress"),
            StepState::Done => ("tool_call_update", "completed"),
            StepState::Failed => ("tool_call_update", "failed"),
        };
        json!({
            "type": "tool_call", "name": title, "args": detail, "result": null,
            "jsonrpc": "2.0", "method": "session/update",
            "params": {
                "sessionId": self.session, "sessionUpdate": update, "toolCallId": id, "title": title, "status": status,
                "rawInput": detail,
            },
        })
        .to_string()
    }

    /// A line of the agent with the fields that newer clients read. A line that is no object is left out.
    fn annotated(&mut self, line: &str) -> Option<String> {
        // Outside of strings, JSON may have any blank; in a stream of events a line end would be the end of the data.
        let line = line.trim().replace(['\r', '\n'], " ");
        let parsed: Map<String, Value> = serde_json::from_str(&line).ok()?;
        let fields = match parsed.contains_key("type") {
            true => None,
            false => self.fields(&parsed),
        };
        let Some(fields) = fields else { return Some(line) };
        let fields = Value::Object(fields).to_string();
        let (begun, rest) = (fields.strip_suffix('}')?, line.strip_prefix('{')?);
        Some(format!("{begun},{rest}"))
    }

    fn fields(&mut self, line: &Map<String, Value>) -> Option<Map<String, Value>> {
        if line.get("method")?.as_str()? != "session/update" {
            return None;
        }
        let params = line.get("params")?;
        // Real agents nest the update, others have it in the parameters.
        let update = params.get("update").filter(|update| update.is_object()).unwrap_or(params);
        let text = || update.get("content")?.get("text")?.as_str();
        let said = |kind: &str| Some(fields([("type", json!(kind)), ("content", json!(text()?))]));
        match update.get("sessionUpdate")?.as_str()? {
            "agent_message_chunk" => said("text"),
            "agent_thought_chunk" => said("thinking"),
            "tool_call" | "tool_call_update" => {
                let of = |name: &str| update.get(name).cloned().unwrap_or(Value::Null);
                let id = update.get("toolCallId").and_then(Value::as_str).unwrap_or_default();
                if let Some(title) = update.get("title").and_then(Value::as_str) {
                    self.remember(id, title);
                }
                let result = match of("rawOutput") {
                    Value::Null => content_text(update.get("content")),
                    output => output,
                };
                let name = self.names.get(id).map_or(Value::Null, |name| json!(name));
                Some(fields([
                    ("type", json!("tool_call")),
                    ("name", name),
                    ("args", of("rawInput")),
                    ("result", result),
                ]))
            }
            _ => None,
        }
    }

    /// Remembers the name of a tool call; whether it is a new one.
    fn remember(&mut self, id: &str, name: &str) -> bool {
        let is_new = !self.names.contains_key(id);
        if self.names.len() < NAMES || !is_new {
            self.names.insert(id.to_owned(), name.to_owned());
        }
        is_new
    }
}

/// The texts of a tool call's content, joined; null if there are none.
fn content_text(content: Option<&Value>) -> Value {
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<_> = blocks.filter_map(|block| block.get("content")?.get("text")?.as_str()).collect();
    if texts.is_empty() { Value::Null } else { json!(texts.join("\n")) }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn with_type(kind: &str, mut data: Value) -> String {
    data["type"] = json!(kind);
    data.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines() -> AgentLines {
        AgentLines::new("s-1", &TurnId("run_1".to_owned()), false)
    }

    fn entry(line: &str) -> Value {
        serde_json::from_str(&lines().entry(&TurnEvent::Raw(line)).unwrap()).unwrap()
    }

    #[test]
    fn a_line_is_passed_on_as_it_came_with_the_fields_of_newer_clients() {
        for (update, kind) in [("agent_message_chunk", "text"), ("agent_thought_chunk", "thinking")] {
            let inner = json!({ "sessionUpdate": update, "content": { "type": "text", "text": "he\"llo" } });
            for params in [json!({ "sessionId": "a", "update": inner }), inner] {
                let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
                let got = entry(&line.to_string());
                assert_eq!((&got["type"], &got["content"]), (&json!(kind), &json!("he\"llo")));
                assert_eq!((&got["params"], &got["jsonrpc"]), (&params, &json!("2.0")));
            }
        }
        let raw = r#"{"jsonrpc":"2.0",  "method":"session/update","params":{"sessionUpdate":"agent_message_chunk","content":{"text":"a"}},"x":1.50}"#;
        let got = lines().entry(&TurnEvent::Raw(raw)).unwrap();
        assert!(got.ends_with(&raw[1..]), "byte for byte: {got}");
    }

    #[test]
    fn a_tool_call_has_a_name_arguments_and_a_result() {
        let mut lines = lines();
        let mut told = |update: Value| -> Value {
            let line = json!({ "method": "session/update", "params": { "update": update } }).to_string();
            serde_json::from_str(&lines.entry(&TurnEvent::Raw(&line)).unwrap()).unwrap()
        };
        let begun = told(
            json!({ "sessionUpdate": "tool_call", "toolCallId": "1", "title": "ls", "rawInput": { "a": 1 } }),
        );
        assert_eq!(
            [&begun["type"], &begun["name"], &begun["args"], &begun["result"]],
            [&json!("tool_call"), &json!("ls"), &json!({ "a": 1 }), &Value::Null]
        );
        let content = json!([{ "type": "content", "content": { "type": "text", "text": "x.txt" } }]);
        let ended =
            told(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "1", "content": content }));
        assert_eq!((&ended["name"], &ended["result"]), (&json!("ls"), &json!("x.txt")));
        let ended = told(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "2", "rawOutput": [1] }));
        assert_eq!((&ended["name"], &ended["result"]), (&Value::Null, &json!([1])));
    }

    #[test]
    fn a_line_of_another_kind_stays_as_it_is_and_garbage_is_left_out() {
        for line in [
            r#"{"jsonrpc":"2.0","id":"req-1","result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"plan","entries":[]}}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}}}"#,
            r#"{"type":"own","method":"session/update","params":{"sessionUpdate":"agent_message_chunk","content":{"text":"a"}}}"#,
            "{}",
        ] {
            assert_eq!(lines().entry(&TurnEvent::Raw(line)).as_deref(), Some(line));
        }
        for line in ["", "not json", "[1]", "1", "{\"a\":1"] {
            assert_eq!(lines().entry(&TurnEvent::Raw(line)), None, "{line}");
        }
    }

    #[test]
    fn an_agent_without_lines_gets_entries_of_the_same_form_and_one_with_lines_none_beside_them() {
        let mut made = lines();
        let text: Value = serde_json::from_str(&made.entry(&TurnEvent::Text("hello")).unwrap()).unwrap();
        assert_eq!((&text["type"], &text["content"]), (&json!("text"), &json!("hello")));
        assert_eq!(
            (&text["method"], &text["params"]["content"]["text"]),
            (&json!("session/update"), &json!("hello"))
        );
        let thought: Value = serde_json::from_str(&made.entry(&TurnEvent::Thought("hm")).unwrap()).unwrap();
        assert_eq!(thought["type"], "thinking");
        let step = |state| {
            TurnEvent::Step(Step { id: "1".into(), title: "ls".into(), detail: Some("/".into()), state })
        };
        let mut told = |state| -> Value { serde_json::from_str(&made.entry(&step(state)).unwrap()).unwrap() };
        let (begun, ended) = (told(StepState::Running), told(StepState::Done));
        assert_eq!(
            (&begun["type"], &begun["name"], &begun["args"]),
            (&json!("tool_call"), &json!("ls"), &json!("/"))
        );
        assert_eq!(begun["params"]["sessionUpdate"], "tool_call");
        assert_eq!(ended["params"]["status"], "completed");
        let end: Value = serde_json::from_str(&made.end("end_turn").unwrap()).unwrap();
        assert_eq!(end["result"]["stopReason"], "end_turn");

        made.entry(&TurnEvent::Raw("{}"));
        assert_eq!((made.entry(&TurnEvent::Text("hello")), made.end("end_turn")), (None, None));
        // What is left out of the lines is told in entries again.
        assert_eq!(made.entry(&TurnEvent::RawCut), None);
        assert_eq!(made.entry(&TurnEvent::Raw("{}")), None);
        assert!(made.entry(&TurnEvent::Text("hello")).unwrap().contains("hello"));
        assert!(made.end("end_turn").unwrap().contains("end_turn"));
    }

    proptest! {
        #[test]
        fn every_entry_is_one_line_of_json(text in "\\PC*|[\r\n\"\\\\]*") {
            let line = json!({ "method": "session/update", "params": {
                "update": { "sessionUpdate": "agent_message_chunk", "content": { "text": text } },
            }});
            for event in [TurnEvent::Raw(&line.to_string()), TurnEvent::Raw(&format!("{line:#}")), TurnEvent::Text(&text)] {
                let entry = lines().entry(&event).unwrap();
                prop_assert!(!entry.contains(['\n', '\r']));
                let parsed: Value = serde_json::from_str(&entry).unwrap();
                prop_assert_eq!(&parsed["content"], &json!(text));
            }
        }
    }
}
