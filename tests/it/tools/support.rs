//! A scripted tool, and answers of a model that calls tools.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use talaria::agent::{AgentTable, AnswerForm, Ask, SharedAgent};
use talaria::agents::AgentServices;
use talaria::agents::model::{AgentTools, ModelAgent};
use talaria::agents::tools::approval::approve;
use talaria::agents::tools::{AgentTool, ToolCall, ToolFailure, ToolSpec};
use talaria::config::{BuiltinTool, McpSelection, McpServerConfig, ModelConfig};
use talaria::ids::AgentName;
use talaria_platform::BoxFuture;
use tokio::sync::Semaphore;

use crate::support::gateway::{AgentBuilder, Setup, TestGateway};
use crate::support::mcp::McpScene;
use crate::support::relay::{model_config, model_with};
use crate::support::upstream::{Answer, DONE, Request, Upstream, delta, event, finish};

/// A tool that does as its script says, and remembers its calls.
#[derive(Clone)]
pub struct ScriptedTool {
    name: &'static str,
    does: ToolScript,
    calls: Arc<Mutex<Vec<Map<String, Value>>>>,
    /// Closed while nobody may pass; see [`ToolScript::Waits`].
    pub gate: Arc<Semaphore>,
}

#[derive(Clone)]
pub enum ToolScript {
    Returns(String),
    Fails(&'static str),
    /// Waits at the gate, then returns this.
    Waits(&'static str),
    Asks,
    Panics,
}

impl ScriptedTool {
    pub fn new(name: &'static str, does: ToolScript) -> Self {
        Self { name, does, calls: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    pub fn returns(name: &'static str, result: &str) -> Self {
        Self::new(name, ToolScript::Returns(result.to_owned()))
    }

    /// The arguments of every call so far.
    pub fn calls(&self) -> Vec<Map<String, Value>> {
        self.calls.lock().clone()
    }
}

impl AgentTool for ScriptedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: "Does as the test says.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "what": { "type": "string" } } }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        arguments.get("what").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        self.calls.lock().push(call.arguments.clone());
        Box::pin(async move {
            match &self.does {
                ToolScript::Returns(result) => Ok(result.clone()),
                ToolScript::Fails(why) => Err(ToolFailure::failed(*why)),
                ToolScript::Waits(result) => tokio::select! {
                    _ = self.gate.acquire() => Ok((*result).to_owned()),
                    () = call.stop.cancelled() => Err(ToolFailure::Stopped),
                },
                ToolScript::Asks => {
                    let detail = self.subject(call.arguments);
                    let form = AnswerForm::default();
                    let ask = Ask {
                        title: "Run a command".into(),
                        detail,
                        cwd: None,
                        is_elsewhere: false,
                        reason: None,
                        form,
                        gap: None,
                    };
                    approve(&call, ask, "It").await.map(|()| "it ran".to_owned())
                }
                ToolScript::Panics => panic!("as the test wants it"),
            }
        })
    }
}

/// A gateway whose agent asks the model server `upstream` and has these tools.
pub async fn agent_with(upstream: &Upstream, tools: &[&ScriptedTool]) -> TestGateway {
    agent_as(upstream, tools, |_| {}).await
}

/// A gateway whose agent has these tools and a changed configuration.
pub async fn agent_as(
    upstream: &Upstream,
    tools: &[&ScriptedTool],
    change: impl FnOnce(&mut ModelConfig),
) -> TestGateway {
    let agent = model_agent(upstream, tools, change);
    TestGateway::with(Setup { agent: Some(agent), ..Setup::default() }).await
}

pub fn model_agent(
    upstream: &Upstream,
    tools: &[&ScriptedTool],
    change: impl FnOnce(&mut ModelConfig),
) -> SharedAgent {
    let tools = tools.iter().map(|tool| Arc::new((*tool).clone()) as Arc<dyn AgentTool>);
    model_with(&upstream.url(), AgentTools::only(tools), change)
}

/// Builds agents with these real tools, the usual one first: each asks a model server of its own.
pub fn built(agents: Vec<(AgentName, ModelConfig)>) -> AgentBuilder {
    Arc::new(move |services: &AgentServices| {
        let build = |config: &ModelConfig| -> SharedAgent {
            let tools = AgentTools::new(config, services).unwrap();
            Arc::new(ModelAgent::new(config.clone(), tools).unwrap())
        };
        let (name, first) = &agents[0];
        let table = AgentTable::new(name.clone(), build(first));
        agents[1..].iter().fold(table, |table, (name, config)| table.with(name.clone(), build(config)))
    })
}

/// The configuration of an agent with these real tools.
pub fn config_with(upstream: &Upstream, tools: &[BuiltinTool]) -> ModelConfig {
    model_config(&upstream.url(), |config| config.tools = tools.iter().copied().collect())
}

/// A gateway whose agent asks the model server `upstream` and has these real tools.
pub async fn agent_using(upstream: &Upstream, tools: &[BuiltinTool], setup: Setup) -> TestGateway {
    let build = built(vec![(AgentName::proxy(), config_with(upstream, tools))]);
    TestGateway::with(Setup { build: Some(build), ..setup }).await
}

/// A gateway whose agent asks the model server `upstream` and has the tools of these servers.
pub async fn agent_with_servers<'a>(
    upstream: &Upstream,
    servers: impl IntoIterator<Item = (&'a str, McpServerConfig)>,
) -> (TestGateway, McpScene) {
    let scene = McpScene::new(servers);
    let (config, mcp) = (config_with(upstream, &[]), scene.servers.clone());
    let config = ModelConfig { mcp: McpSelection::All, ..config };
    let build: AgentBuilder = Arc::new(move |services: &AgentServices| {
        let services = AgentServices {
            store: services.store.clone(),
            host: services.host.clone(),
            mcp: mcp.clone(),
            skills: services.skills.clone(),
            terminal: services.terminal.clone(),
            hidden: services.hidden.clone(),
            command_slots: services.command_slots.clone(),
            codex: services.codex.clone(),
            acp: services.acp.clone(),
        };
        let tools = AgentTools::new(&config, &services).unwrap();
        AgentTable::new(AgentName::proxy(), Arc::new(ModelAgent::new(config.clone(), tools).unwrap()))
    });
    (TestGateway::with(Setup { build: Some(build), ..Setup::default() }).await, scene)
}

/// A gateway whose agent has these real tools and this workspace.
pub async fn agent_in(upstream: &Upstream, workspace: &Path, tools: &[BuiltinTool]) -> TestGateway {
    let config = ModelConfig { workspace: Some(workspace.to_owned()), ..config_with(upstream, tools) };
    let build = built(vec![(AgentName::proxy(), config)]);
    TestGateway::with(Setup { build: Some(build), ..Setup::default() }).await
}

/// An event with token counts.
pub fn usage(input: u64, output: u64) -> String {
    event(&json!({ "choices": [], "usage": { "prompt_tokens": input, "completion_tokens": output } }))
}

/// An answer that takes so many tokens.
pub fn says_using(text: &str, input: u64, output: u64) -> Answer {
    Answer::events(delta(text) + &*finish("stop") + &*usage(input, output) + DONE)
}

/// The system message of a request; empty if there is none.
pub fn system(request: &Request) -> String {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let system = messages.iter().find(|message| message["role"] == "system");
    system.map(|message| message["content"].as_str().unwrap().to_owned()).unwrap_or_default()
}

/// The names of the tools that a request offers.
pub fn offered(request: &Request) -> Vec<String> {
    let tools = request.json()["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

/// An answer that says something and calls these tools, each with an id, a name and arguments as JSON.
pub fn calls(text: &str, calls: &[(&str, &str, &str)]) -> Answer {
    Answer::calls(text, calls)
}

/// The messages of a request, one line each: role, text, calls.
pub fn told(request: &Request) -> Vec<String> {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let line = |message: &Value| {
        let role = message["role"].as_str().unwrap();
        let content = message["content"].as_str().unwrap_or("-");
        let calls: Vec<_> = message["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| {
                format!(" {}({})", call["function"]["name"].as_str().unwrap(), call["id"].as_str().unwrap())
            })
            .collect();
        let result = message["tool_call_id"].as_str().map(|id| format!(" for {id}")).unwrap_or_default();
        format!("{role}{result}: {content}{}", calls.concat())
    };
    messages.iter().filter(|message| message["role"] != "system").map(line).collect()
}

/// Waits until the room shows these words in a final message, and renders it.
pub async fn shown(gateway: &TestGateway, words: &str) -> String {
    let found = || Some(gateway.room().now()).filter(|room| room.contains(words) && !room.contains("bot…"));
    gateway.chat().until(&format!("the room ends with {words:?}"), found).await
}
