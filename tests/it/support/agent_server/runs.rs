//! Runs in the background, as hermes-agent has them: each is kept in the transcript of its session, and its events have
//! one reader.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{Request, Run, Shared, respond};

/// A run by its id.
#[derive(Clone)]
struct NamedRun {
    prompt: String,
    session: String,
    run: Run,
    /// Its events have had their reader.
    is_read: bool,
}

/// All runs of a server.
#[derive(Default)]
pub struct Runs {
    by_id: HashMap<String, NamedRun>,
    /// The ids in the order in which the runs began.
    order: Vec<String>,
}

/// Answers a request about runs or sessions.
pub async fn serve(
    shared: &Shared,
    stream: &mut BufReader<TcpStream>,
    request: Request,
) -> std::io::Result<()> {
    let mut line = request.line.split(' ');
    let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    match (method, parts.as_slice()) {
        ("GET", ["v1", "capabilities"]) => json_body(stream, "200 OK", &capabilities()).await,
        ("POST", ["v1", "runs"]) => {
            let id = begin(shared, request);
            json_body(stream, "202 Accepted", &json!({ "run_id": id, "status": "started" })).await
        }
        ("GET", ["v1", "runs", id]) => match named(shared, id) {
            Some(run) => json_body(stream, "200 OK", &state(shared, id, &run)).await,
            None => not_found(stream).await,
        },
        ("GET", ["v1", "runs", id, "events"]) => match take_events(shared, id) {
            Some(run) => tell(shared, stream, id, run).await,
            None => not_found(stream).await,
        },
        ("GET", ["api", "sessions", session, "messages"]) => {
            json_body(stream, "200 OK", &json!({ "object": "list", "data": transcript(shared, session) }))
                .await
        }
        _ => not_found(stream).await,
    }
}

fn capabilities() -> Value {
    json!({ "features": {
        "run_submission": true, "run_status": true, "run_events_sse": true, "run_stop": true,
        "run_approval_response": true, "session_resources": true, "session_continuity_header": "X-Hermes-Session-Id",
    } })
}

fn begin(shared: &Shared, request: Request) -> String {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let (prompt, session) = (text("input"), text("session_id"));
    // Without a key every request is a run of its own.
    let run = shared.run(None, &prompt, request.body).expect("a run without a key always begins");
    let mut state = shared.state();
    let id = format!("run_{}", state.named.order.len());
    state.named.order.push(id.clone());
    state.named.by_id.insert(id.clone(), NamedRun { prompt, session, run, is_read: false });
    id
}

fn named(shared: &Shared, id: &str) -> Option<NamedRun> {
    shared.state().named.by_id.get(id).cloned()
}

/// The run, if nobody has read its events.
fn take_events(shared: &Shared, id: &str) -> Option<NamedRun> {
    let mut state = shared.state();
    let run = state.named.by_id.get_mut(id)?;
    (!std::mem::replace(&mut run.is_read, true)).then(|| run.clone())
}

/// The whole text of a run, if it has ended.
fn output(shared: &Shared, run: &NamedRun) -> Option<String> {
    let pieces = (shared.answer)(&run.prompt);
    (*run.run.made.borrow() == pieces.len()).then(|| pieces.concat())
}

fn state(shared: &Shared, id: &str, run: &NamedRun) -> Value {
    match output(shared, run) {
        Some(output) => json!({
            "run_id": id, "status": "completed", "output": output, "last_event": "run.completed",
            "usage": { "input_tokens": 11, "output_tokens": 7 },
        }),
        None => json!({ "run_id": id, "status": "running" }),
    }
}

fn transcript(shared: &Shared, session: &str) -> Vec<Value> {
    let runs: Vec<_> = {
        let state = shared.state();
        let all = state.named.order.iter().filter_map(|id| state.named.by_id.get(id));
        all.filter(|run| run.session == session).cloned().collect()
    };
    let messages = runs.iter().flat_map(|run| {
        let answer = output(shared, run)
            .map(|text| json!({ "role": "assistant", "content": text, "finish_reason": "stop" }));
        std::iter::once(json!({ "role": "user", "content": run.prompt })).chain(answer)
    });
    messages.collect()
}

/// Streams the events of a run.
async fn tell(
    shared: &Shared,
    stream: &mut BufReader<TcpStream>,
    id: &str,
    named: NamedRun,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let (pieces, mut run) = ((shared.answer)(&named.prompt), named.run);
    for (index, piece) in pieces.iter().enumerate() {
        if run.made.wait_for(|made| *made > index).await.is_err() {
            return Ok(());
        }
        event(stream, &json!({ "event": "message.delta", "run_id": id, "delta": piece })).await?;
    }
    let whole = pieces.concat();
    event(stream, &json!({ "event": "reasoning.available", "run_id": id, "text": whole })).await?;
    let usage = json!({ "input_tokens": 11, "output_tokens": 7 });
    event(stream, &json!({ "event": "run.completed", "run_id": id, "output": whole, "usage": usage }))
        .await?;
    stream.write_all(b": stream closed\n\n").await?;
    stream.shutdown().await
}

async fn event(stream: &mut BufReader<TcpStream>, data: &Value) -> std::io::Result<()> {
    stream.write_all(format!("data: {data}\n\n").as_bytes()).await
}

async fn json_body(stream: &mut BufReader<TcpStream>, status: &str, body: &Value) -> std::io::Result<()> {
    respond(stream, status, "application/json", &body.to_string()).await
}

async fn not_found(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    respond(stream, "404 Not Found", "text/plain", "no such thing").await
}
