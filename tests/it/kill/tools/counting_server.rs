//! An MCP server over HTTP in the test process, which outlives any gateway and counts the calls of its only tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::super::trial::PATIENCE;
use crate::support::network::{Network, Shown};
use crate::support::upstream::http;

/// The server. Dropping this ends it.
pub struct CountingServer {
    url: String,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

struct Shared {
    network: Arc<Network>,
    /// Whether a call ends only when the room shows the text before it.
    waits: bool,
    /// How often each call was made, by its argument.
    runs: Mutex<BTreeMap<String, usize>>,
}

impl CountingServer {
    /// Listens on a port of its own. With `waits`, a call ends only when the network shows its `after`.
    pub async fn listen(network: Arc<Network>, waits: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("the port that was just bound"));
        let shared = Arc::new(Shared { network, waits, runs: Mutex::default() });
        let serving = shared.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                // A gateway that dies takes its connections with it; that is no error here.
                tokio::spawn(async move { serve(&shared, stream).await.ok() });
            }
        });
        Self { url, shared, listening }
    }

    /// Address for `mcp_servers`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How often each call was made, by its argument `what`.
    pub fn runs(&self) -> BTreeMap<String, usize> {
        self.shared.runs.lock().clone()
    }
}

impl Drop for CountingServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = http::read(&mut stream).await {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => Some(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "counter", "version": "1" },
            })),
            "tools/list" => {
                Some(json!({ "tools": [{ "name": "add", "inputSchema": { "type": "object" } }] }))
            }
            "tools/call" => Some(shared.call(&message["params"]["arguments"]).await),
            _ => None,
        };
        let response = match (request.method.as_str(), result) {
            ("POST", Some(result)) => {
                let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            }
            ("POST", None) => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
            _ => "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        stream.write_all(response.as_bytes()).await?;
    }
    Ok(())
}

impl Shared {
    /// Counts a call at once, as a tool has its effect before it ends.
    async fn call(&self, arguments: &Value) -> Value {
        let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let (what, after) = (text("what"), text("after"));
        *self.runs.lock().entry(what.clone()).or_default() += 1;
        if self.waits {
            let shows = |shown: &[Shown]| shown.iter().any(|shown| shown.body().markdown.contains(&after));
            self.network.shows(PATIENCE, shows).await;
        }
        json!({ "content": [{ "type": "text", "text": format!("counted {what}") }] })
    }
}
