//! The tool calls of a turn, put together from the news about each. Pure.
//!
//! Agents tell a call in pieces, some leave out the beginning and some the end, and a request for permission may name no
//! more than the id. So everything that is known about a call is kept until the turn ends, within limits.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::agent::{Step, StepState};
use crate::agents::call_messages::{EndedCall, NO_END, arguments_text};
use crate::agents::sorted_json::{list_field, sorted, text_field};
use crate::agents::step_lines::{TITLE_CHARS, shown_line, step_id};
use crate::agents::tools::cap_result;
use crate::util::one_line;

/// Calls that are remembered. No agent runs more at once.
const CALLS: usize = 64;

/// Bytes of one call's parameters that are remembered, and of its content. Longer ones come with the request itself if
/// they must be judged.
const REMEMBERED: usize = 64 * 1024;

/// Bytes of a terminal's output that are remembered.
const OUTPUT: usize = 48 * 1024;

/// Result of a call that nobody allowed.
const DECLINED: &str = "[declined: nobody allowed it]";

/// The kinds of calls that the protocol names.
const KINDS: [&str; 9] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"];

/// A tool call as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// The agent's id of it.
    pub id: String,
    /// The agent's words for the action.
    pub title: String,
    /// The kind by the protocol's names; empty if unknown.
    pub kind: String,
    /// Name of the tool, if the agent tells it.
    pub name: String,
    /// Parameters of the tool, in the tool's own form.
    pub raw_input: Value,
    /// Content that it makes or shows: texts and changes of files.
    pub content: Vec<Value>,
    /// Files that it is about.
    pub locations: Vec<String>,
    raw_output: Value,
    /// Output of its terminal.
    output: String,
    state: Option<StepState>,
    /// Somebody refused it.
    is_declined: bool,
}

/// What became of a call after news about it.
#[derive(Debug, Default)]
pub struct CallNews {
    /// The step, if people see a change.
    pub step: Option<Step>,
    /// The call, if it has ended now.
    pub ended: Option<(String, EndedCall)>,
}

/// The calls of a turn.
#[derive(Debug, Default)]
pub struct ToolCalls {
    /// At most [`CALLS`], oldest first, and the step of each as people have seen it.
    calls: VecDeque<(ToolCall, Option<Step>)>,
}

impl ToolCalls {
    /// Takes `tool_call` or `tool_call_update`.
    pub fn update(&mut self, update: &Value) -> CallNews {
        let Some((call, shown)) = self.entry(text_field(update, "toolCallId")) else {
            return CallNews::default();
        };
        let had_ended = call.has_ended();
        call.merge(update);
        let step = call.step();
        let step = (shown.as_ref() != Some(&step)).then(|| {
            *shown = Some(step.clone());
            step
        });
        let ended = (call.has_ended() && !had_ended).then(|| (call.id.clone(), call.ended()));
        CallNews { step, ended }
    }

    /// The call that a request for permission is about, with everything that is known about it.
    pub fn requested(&self, request: &Value) -> ToolCall {
        let id = text_field(request, "toolCallId");
        let known = self.calls.iter().find(|(call, _)| call.id == id).map(|(call, _)| call.clone());
        let mut call = known.unwrap_or_else(|| ToolCall { id: id.to_owned(), ..ToolCall::default() });
        call.merge_all(request);
        call
    }

    /// Notes that nobody allowed a call. Some agents never tell its end.
    pub fn declined(&mut self, id: &str) {
        if let Some((call, _)) = self.calls.iter_mut().find(|(call, _)| call.id == id) {
            call.is_declined = true;
        }
    }

    /// The calls without an end, once the turn is over. `well` if the agent says that it did all it wanted.
    pub fn broken_off(&mut self, well: bool) -> (Vec<Step>, Vec<(String, EndedCall)>) {
        let open = std::mem::take(&mut self.calls).into_iter().filter(|(call, _)| !call.has_ended());
        let of_call = |(mut call, _): (ToolCall, Option<Step>)| {
            let is_done = well && !call.is_declined;
            call.state = Some(if is_done { StepState::Done } else { StepState::Failed });
            let result = match (call.is_declined, call.result()) {
                (true, _) => DECLINED.to_owned(),
                (false, Some(result)) if is_done => result,
                (false, _) => NO_END.to_owned(),
            };
            let step = call.step();
            (step, (call.id.clone(), EndedCall { result, ..call.ended() }))
        };
        open.map(of_call).unzip()
    }

    /// The call with this id; it is added if it is new. `None` without an id.
    fn entry(&mut self, id: &str) -> Option<&mut (ToolCall, Option<Step>)> {
        if id.is_empty() {
            return None;
        }
        let at = match self.calls.iter().position(|(call, _)| call.id == id) {
            Some(at) => at,
            None => {
                if self.calls.len() == CALLS {
                    let ended = self.calls.iter().position(|(call, _)| call.has_ended());
                    self.calls.remove(ended.unwrap_or(0));
                }
                self.calls.push_back((ToolCall { id: id.to_owned(), ..ToolCall::default() }, None));
                self.calls.len() - 1
            }
        };
        self.calls.get_mut(at)
    }
}

impl ToolCall {
    /// Takes news, and remembers no more of it than fits.
    fn merge(&mut self, news: &Value) {
        let fits = |value: &Value| value.to_string().len() <= REMEMBERED;
        let mut kept = json!({});
        for field in ["title", "kind", "name", "status", "locations", "_meta"] {
            kept[field] = news[field].clone();
        }
        for field in ["rawInput", "content", "rawOutput"] {
            kept[field] = match &news[field] {
                value if fits(value) => value.clone(),
                Value::String(text) => cap_result(text.clone()).into(),
                _ => Value::Null,
            };
        }
        self.merge_all(&kept);
    }

    fn merge_all(&mut self, news: &Value) {
        for (field, value) in [("title", &mut self.title), ("kind", &mut self.kind), ("name", &mut self.name)]
        {
            let new = text_field(news, field);
            if !new.trim().is_empty() {
                new[..new.floor_char_boundary(REMEMBERED)].clone_into(value);
            }
        }
        if !is_empty(&news["rawInput"]) {
            self.raw_input = news["rawInput"].clone();
        }
        if !is_empty(&news["rawOutput"]) {
            self.raw_output = news["rawOutput"].clone();
        }
        let content = list_field(news, "content");
        if !content.is_empty() {
            self.content = content.to_vec();
        }
        let locations: Vec<_> = list_field(news, "locations")
            .iter()
            .take(CALLS)
            .map(|place| text_field(place, "path").to_owned())
            .filter(|path| !path.is_empty())
            .collect();
        if !locations.is_empty() {
            self.locations = locations;
        }
        let output = text_field(&news["_meta"]["terminal_output_delta"], "data");
        let room = OUTPUT.saturating_sub(self.output.len());
        self.output.push_str(&output[..output.floor_char_boundary(room)]);
        // An update without a state changes none, and an ended call does not begin again.
        let state = match text_field(news, "status") {
            "completed" => Some(StepState::Done),
            "failed" => Some(StepState::Failed),
            _ => Some(StepState::Running),
        };
        if !self.has_ended() {
            self.state = state;
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, Some(StepState::Done | StepState::Failed))
    }

    /// Name of the tool in one word or two: its own, or the kind of the call, or what the agent calls it.
    fn tool_name(&self) -> &str {
        let kind = Some(self.kind.as_str()).filter(|kind| KINDS.contains(kind));
        match (self.name.trim(), kind) {
            ("", Some(kind)) => kind,
            ("", None) if self.title.trim().is_empty() => "tool",
            ("", None) => self.title.trim(),
            (name, _) => name,
        }
    }

    /// The step that people see.
    fn step(&self) -> Step {
        let title = one_line(self.tool_name(), TITLE_CHARS);
        let subject = match self.title.trim() {
            said if said.is_empty() || said == self.tool_name() => self.locations.join(", "),
            said => said.to_owned(),
        };
        let state = self.state.unwrap_or(StepState::Running);
        Step { id: step_id(&self.id), title, detail: shown_line(&subject), state }
    }

    fn ended(&self) -> EndedCall {
        let arguments = match &self.raw_input {
            input if is_empty(input) => json!({ "title": self.title }),
            input => input.clone(),
        };
        let result = self.result().unwrap_or_else(|| match self.state {
            Some(StepState::Failed) => "[failed]".to_owned(),
            Some(StepState::Done | StepState::Running) | None => "[no result]".to_owned(),
        });
        EndedCall { name: self.tool_name().to_owned(), arguments: arguments_text(&arguments), result }
    }

    /// The result in words, if the agent told any.
    fn result(&self) -> Option<String> {
        let mut texts: Vec<String> = Vec::new();
        for part in &self.content {
            match text_field(part, "type") {
                "content" => texts.push(text_field(&part["content"], "text").to_owned()),
                // The file has the rest.
                "diff" => texts.push(format!("[changed {}]", text_field(part, "path"))),
                _ => {}
            }
        }
        if !self.output.is_empty() {
            texts.push(self.output.clone());
        }
        let told = ["formatted_output", "aggregated_output", "output", "stdout"];
        let raw = &self.raw_output;
        match raw {
            Value::Null => {}
            Value::String(text) => texts.push(text.clone()),
            raw => match told.iter().map(|field| text_field(raw, field)).find(|text| !text.is_empty()) {
                Some(text) => texts.push(text.to_owned()),
                None if texts.iter().all(|text| text.trim().is_empty()) => {
                    texts.push(sorted(raw).to_string());
                }
                None => {}
            },
        }
        texts.retain(|text| !text.trim().is_empty());
        texts.dedup();
        (!texts.is_empty()).then(|| cap_result(texts.join("\n")))
    }
}

/// Whether a value says nothing: agents send empty objects before they know.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(step: &Option<Step>) -> (String, String, StepState) {
        let step = step.clone().expect("a step");
        (step.title, step.detail.unwrap_or_default(), step.state)
    }

    #[test]
    fn a_call_is_put_together_from_what_different_agents_tell() {
        // opencode: a bare beginning, then the command, then the end.
        let mut calls = ToolCalls::default();
        let news = calls.update(&json!({ "toolCallId": "c", "title": "bash", "kind": "execute",
            "status": "pending", "rawInput": {} }));
        assert_eq!(shown(&news.step), ("execute".into(), "bash".into(), StepState::Running));
        let update = json!({ "toolCallId": "c", "status": "in_progress", "title": "echo hi",
            "rawInput": { "command": "echo hi" } });
        assert_eq!(shown(&calls.update(&update).step).1, "echo hi");
        assert!(calls.update(&update).step.is_none(), "nothing changed");
        let news = calls.update(&json!({ "toolCallId": "c", "status": "completed",
            "rawOutput": { "output": "hi\n", "metadata": {} } }));
        assert_eq!(shown(&news.step).2, StepState::Done);
        let (id, ended) = news.ended.unwrap();
        assert_eq!((id.as_str(), ended.name.as_str(), ended.result.as_str()), ("c", "execute", "hi\n"));
        assert_eq!(ended.arguments, r#"{"command":"echo hi"}"#);
        assert!(calls.update(&json!({ "toolCallId": "c", "status": "completed" })).ended.is_none(), "once");

        // claude: a name; gemini: only the end.
        let news =
            calls.update(&json!({ "toolCallId": "d", "name": "Bash", "title": "ls", "kind": "execute" }));
        assert_eq!(shown(&news.step), ("Bash".into(), "ls".into(), StepState::Running));
        let news = calls.update(&json!({ "toolCallId": "e", "status": "failed", "title": "write x" }));
        assert_eq!(shown(&news.step), ("write x".into(), String::new(), StepState::Failed));
        assert_eq!(news.ended.unwrap().1.result, "[failed]");
    }

    #[test]
    fn a_request_is_about_everything_that_is_known_of_its_call() {
        let mut calls = ToolCalls::default();
        calls.update(&json!({ "toolCallId": "c", "title": "rm x", "rawInput": { "command": "rm x" } }));
        let call = calls.requested(&json!({ "toolCallId": "c", "kind": "execute" }));
        assert_eq!((call.title.as_str(), call.kind.as_str()), ("rm x", "execute"));
        assert_eq!(call.raw_input, json!({ "command": "rm x" }));
        // What the request itself says wins, however long it is.
        let long = "x".repeat(2 * REMEMBERED);
        let call = calls.requested(&json!({ "toolCallId": "c", "rawInput": { "command": long } }));
        assert_eq!(call.raw_input["command"], long);
    }

    #[test]
    fn calls_without_an_end_do_not_stay_open() {
        let mut calls = ToolCalls::default();
        for id in ["a", "b"] {
            calls.update(&json!({ "toolCallId": id, "title": id, "status": "in_progress" }));
        }
        calls.declined("b");
        let (steps, ended) = calls.broken_off(true);
        let states: Vec<_> = steps.iter().map(|step| step.state).collect();
        assert_eq!(states, [StepState::Done, StepState::Failed]);
        assert_eq!(ended[1].1.result, DECLINED);
        for number in 0..1000 {
            calls.update(&json!({ "toolCallId": number.to_string(), "title": "x".repeat(100_000),
                "rawInput": { "content": "y".repeat(1_000_000) } }));
        }
        assert_eq!(calls.calls.len(), CALLS);
        assert!(
            calls.calls.iter().all(|(call, _)| call.raw_input.is_null() && call.title.len() <= REMEMBERED)
        );
        assert!(calls.update(&json!({ "title": "no id" })).step.is_none());
    }
}
