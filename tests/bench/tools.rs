//! Gates T1 and T2: the cost of one round of tools, and of MCP servers that nobody uses.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use talaria::agent::{
    Agent as _, AgentError, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, SessionMessage, TurnEvent,
};
use talaria::agents::model::{AgentTools, ModelAgent};
use talaria::agents::tools::{AgentTool, ToolCall, ToolFailure, ToolSpec};
use talaria::config::{AgentSettings, Config, ConfigSources};
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria_platform::{BoxFuture, CancellationToken, spawn_task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::idle;
use crate::rounds::{process_cpu, ratio};
use crate::table::Row;

/// Turns of one measurement.
const TURNS: usize = 200;

const MB: f64 = 1024.0 * 1024.0;

/// T1: CPU time of a turn with one round of tools, beside the two requests that it makes, read by a bare client.
pub fn iteration() -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        spawn_task("model", async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_task("connection", serve(stream));
            }
        });
        anyhow::Ok(address)
    })?;
    let (agent, client) = (agent(&format!("http://{address}/v1"))?, reqwest::Client::new());
    let url = format!("http://{address}/v1/chat/completions");
    let measured = ratio(
        "µs",
        || {
            runtime.block_on(timed(async || {
                bare(&client, &url).await?;
                bare(&client, &url).await
            }))
        },
        || runtime.block_on(timed(async || turn(&agent).await)),
    )?;
    let what = format!("a turn with one tool call, beside two bare requests ({})", measured.noise);
    Ok(vec![Row::at_most("T1", what, measured.median, 3.0)])
}

/// T2: memory and processes of ten configured servers that no turn has used.
pub fn unused_servers() -> anyhow::Result<Vec<Row>> {
    let servers: String =
        (0..10).map(|n| format!("  server{n}: {{command: cat, args: [\"-{n}\"]}}\n")).collect();
    let (without, _) = idle::measured("")?;
    let (with, children) = idle::measured(&format!("mcp_servers:\n{servers}"))?;
    Ok(vec![
        Row::at_most("T2", "memory of 10 unused MCP servers (MB)", (with - without) / MB, 1.0),
        Row::at_most("T2", "processes of 10 unused MCP servers", children as f64, 0.0),
    ])
}

/// CPU time of one action in microseconds, over [`TURNS`] of them.
async fn timed(mut action: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let before = process_cpu();
    for _ in 0..TURNS {
        action().await?;
    }
    Ok((process_cpu() - before) * 1e6 / TURNS as f64)
}

/// One request of a client that reads everything and keeps nothing.
async fn bare(client: &reqwest::Client, url: &str) -> anyhow::Result<()> {
    let mut answer = client.post(url).body(r#"{"messages":[]}"#).send().await?;
    while answer.chunk().await?.is_some() {}
    Ok(())
}

/// One turn of the agent, with one tool call.
async fn turn(agent: &ModelAgent) -> anyhow::Result<()> {
    let turn = AgentTurn {
        prompt: "how many?".to_owned(),
        ..AgentTurn::new(TurnId("0".to_owned()), AgentName::local(), SessionId("s".to_owned()))
    };
    let prepared = agent.prepare(&turn).await?;
    agent.run_turn(&turn, prepared, &Nowhere, CancellationToken::new()).await?;
    Ok(())
}

fn agent(url: &str) -> anyhow::Result<ModelAgent> {
    let home = crate::scratch()?;
    let sources = ConfigSources { config: None, folder: home.path().to_owned(), serve: false };
    let vars = |name: &str| match name {
        "OPENAI_BASE_URL" => Some(url.to_owned()),
        "OPENAI_MODEL" => Some("small".to_owned()),
        "TALARIA_HOME" => Some(home.path().display().to_string()),
        _ => None,
    };
    let config = Config::load(&sources, &vars).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    match config.agents.default_entry() {
        Some(AgentSettings::Model(config)) => {
            Ok(ModelAgent::new(config.clone(), AgentTools::only([Arc::new(Quick) as Arc<dyn AgentTool>]))?)
        }
        _ => anyhow::bail!("no model is configured"),
    }
}

/// A model that calls a tool once, and answers when it has the result.
async fn serve(mut stream: TcpStream) {
    let call = json!({ "index": 0, "id": "c1", "function": { "name": "quick", "arguments": "{}" } });
    let delta = |delta: Value, finish: &str| {
        format!("data: {}\n\n", json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }))
    };
    let calls = delta(json!({ "tool_calls": [call] }), "tool_calls") + "data: [DONE]\n\n";
    let answers = delta(json!({ "content": "Forty-two." }), "stop") + "data: [DONE]\n\n";
    let mut buffer = Vec::new();
    loop {
        let Some((head, length)) = read_head(&mut stream, &mut buffer).await else { return };
        while buffer.len() < head + length {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
        let body = String::from_utf8_lossy(&buffer[head..head + length]).into_owned();
        buffer.drain(..head + length);
        let answer = if body.contains(r#""tool_call_id""#) { &answers } else { &calls };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        if stream.write_all((head + answer.as_str()).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The length of the head in the buffer, and of the body that follows; `None` if the other end is gone.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(usize, usize)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            return Some((end + 4, length.unwrap_or(0)));
        }
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return None;
        }
    }
}

/// A tool that costs nothing.
struct Quick;

impl AgentTool for Quick {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({ "type": "object" });
        ToolSpec { name: "quick".to_owned(), description: "Counts.".to_owned(), parameters }
    }

    fn subject(&self, _arguments: &Map<String, Value>) -> String {
        String::new()
    }

    fn call<'a>(&'a self, _call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async { Ok("42".to_owned()) })
    }
}

/// Takes everything and keeps nothing.
struct Nowhere;

impl AgentOutput for Nowhere {
    fn emit(&self, _event: TurnEvent<'_>) {}

    fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(async { AskChoice::Deny(DenyReason::Gone) })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}
