//! Tools of ours that a codex thread has: the memory, whose notes depend on who talks.
//!
//! One codex serves many people, and its configuration cannot know the session. So these tools are given to each thread
//! when it starts, and a call names its thread. A thread keeps the tools that it started with: a call of one that we no
//! longer have is answered with a failure.

use serde_json::{Map, Value, json};
use talaria_platform::CancellationToken;

use crate::agent::{AgentOutput, AgentTurn};
use crate::agents::tools::memory::MemoryTool;
use crate::agents::tools::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result};
use crate::store::Store;
use crate::util::code_span;

/// Characters of a tool's name in a sentence.
const NAME_CHARS: usize = 80;

/// The tools that threads of one agent start with.
pub struct ThreadTools {
    memory: Option<MemoryTool>,
}

impl ThreadTools {
    /// `memory`: the store with the notes, if the agent has a memory.
    pub fn new(memory: Option<Store>) -> Self {
        Self { memory: memory.map(MemoryTool::new) }
    }

    /// The tools for `dynamicTools` of `thread/start`; `None` if there are none.
    pub fn specs(&self) -> Option<Value> {
        let ToolSpec { name, description, parameters } = self.memory.as_ref()?.spec();
        Some(json!([{
            "type": "function",
            "name": name,
            "description": description,
            "inputSchema": parameters,
        }]))
    }

    /// Answers an `item/tool/call`: the result that codex gets. Never fails otherwise: codex and its model read why.
    pub async fn call(
        &self,
        params: &Value,
        turn: &AgentTurn,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Value {
        let called = self.run(params, turn, out, stop).await;
        let (text, success) = match called {
            Ok(text) => (text, true),
            Err(ToolFailure::Failed(words)) => (words, false),
            Err(ToolFailure::Halt(_) | ToolFailure::Stopped) => ("the task was stopped".to_owned(), false),
        };
        json!({ "contentItems": [{ "type": "inputText", "text": cap_result(text) }], "success": success })
    }

    async fn run(
        &self,
        params: &Value,
        turn: &AgentTurn,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<String, ToolFailure> {
        if stop.is_cancelled() {
            return Err(ToolFailure::Stopped);
        }
        let (tool, namespace) = (params["tool"].as_str().unwrap_or_default(), &params["namespace"]);
        let memory = self.memory.as_ref().filter(|memory| memory.spec().name == tool && namespace.is_null());
        let Some(memory) = memory else {
            let name = code_span(tool, NAME_CHARS);
            return Err(ToolFailure::failed(format!("there is no tool {name} here any more")));
        };
        let arguments = read_arguments(&params["arguments"])?;
        memory.call(ToolCall { arguments: &arguments, turn, out, progress: &|_| {}, stop }).await
    }
}

/// The arguments of a call. Some models write them as a text with JSON in it.
fn read_arguments(written: &Value) -> Result<Map<String, Value>, ToolFailure> {
    let read = match written {
        Value::Object(arguments) => Some(arguments.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Null => Some(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    read.ok_or_else(|| ToolFailure::failed("the arguments must be a JSON object"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::tools::call_fixture::{ScriptedPerson, temporary_store, turn_in, turn_of};

    /// The request of the real codex for a call of this tool.
    fn request(tool: &str, arguments: Value) -> Value {
        json!({
            "threadId": "01a1e179-8c72-7910-b80b-e4387e1f262d", "turnId": "01a1e179-8ccf-7da1-aea0-aa152e4c7958",
            "callId": "call_r41", "namespace": null, "tool": tool, "arguments": arguments,
        })
    }

    async fn call(tools: &ThreadTools, turn: &AgentTurn, params: Value) -> (bool, String) {
        let (person, stop) = (ScriptedPerson::absent(), CancellationToken::new());
        let answer = tools.call(&params, turn, &person, &stop).await;
        let [item] = answer["contentItems"].as_array().unwrap().as_slice() else { panic!("{answer}") };
        assert_eq!(item["type"], "inputText");
        (answer["success"].as_bool().unwrap(), item["text"].as_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn each_thread_has_the_notes_of_its_own_person() {
        let (_folder, store) = temporary_store();
        let tools = ThreadTools::new(Some(store));
        let (ann, bob) = (turn_of("@ann"), turn_of("@bob"));
        let add = request("memory", json!({ "action": "add", "text": "likes tea" }));
        assert_eq!(call(&tools, &ann, add).await, (true, "Noted. The notes now:\n1. likes tea".to_owned()));
        let list = || request("memory", json!({ "action": "list" }));
        assert_eq!(call(&tools, &ann, list()).await, (true, "The notes:\n1. likes tea".to_owned()));
        assert_eq!(call(&tools, &bob, list()).await, (true, "The notes:\n(none)".to_owned()));
        let written = request("memory", json!("{\"action\": \"list\"}"));
        assert!(call(&tools, &ann, written).await.0, "arguments as a text are read");
    }

    #[tokio::test]
    async fn wrong_calls_fail_in_words() {
        let (_folder, store) = temporary_store();
        let tools = ThreadTools::new(Some(store));
        let ann = turn_of("@ann");
        let mut elsewhere = request("memory", json!({ "action": "list" }));
        elsewhere["namespace"] = json!("other");
        let mut odd = elsewhere.clone();
        odd["namespace"] = json!(["other"]);
        let mut said = Vec::new();
        for params in [
            request("memory", json!({ "action": "dance" })),
            request("memory", json!({ "action": "add" })),
            request("memory", json!([1])),
            request("memory", json!("{")),
            request("memory", Value::Null),
            request("terminal", json!({ "command": "id" })),
            elsewhere,
            odd,
            json!({}),
            Value::Null,
        ] {
            let (success, words) = call(&tools, &ann, params).await;
            assert!(!success, "{words}");
            said.push(words);
        }
        insta::assert_snapshot!(said.join("\n"), @r"
        `action` must be add, replace, remove or list
        `text` is missing
        the arguments must be a JSON object
        the arguments must be a JSON object
        `action` is missing
        there is no tool `terminal` here any more
        there is no tool `memory` here any more
        there is no tool `memory` here any more
        there is no tool `…` here any more
        there is no tool `…` here any more
        ");
        let (success, words) =
            call(&tools, &turn_in("s"), request("memory", json!({ "action": "list" }))).await;
        assert_eq!((success, words.as_str()), (false, "there is no memory here"));
        let none = ThreadTools::new(None);
        assert!(!call(&none, &ann, request("memory", json!({ "action": "list" }))).await.0);
        assert_eq!(none.specs(), None);
    }

    #[tokio::test]
    async fn a_thread_starts_with_the_memory_in_the_form_of_codex() {
        let (_folder, store) = temporary_store();
        let specs = ThreadTools::new(Some(store)).specs().unwrap();
        let [spec] = specs.as_array().unwrap().as_slice() else { panic!("{specs}") };
        assert_eq!((&spec["type"], &spec["name"]), (&json!("function"), &json!("memory")));
        assert_eq!(spec["inputSchema"]["required"], json!(["action"]));
        assert!(spec["description"].as_str().is_some_and(|text| text.contains("notes")));
    }

    #[tokio::test]
    async fn a_stopped_turn_changes_no_notes() {
        let (_folder, store) = temporary_store();
        let tools = ThreadTools::new(Some(store));
        let (ann, person, stop) = (turn_of("@ann"), ScriptedPerson::absent(), CancellationToken::new());
        stop.cancel();
        let add = request("memory", json!({ "action": "add", "text": "likes tea" }));
        assert_eq!(tools.call(&add, &ann, &person, &stop).await["success"], false);
        let list = request("memory", json!({ "action": "list" }));
        assert!(call(&tools, &ann, list).await.1.ends_with("(none)"));
    }
}
