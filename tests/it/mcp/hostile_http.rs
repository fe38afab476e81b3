//! Servers over HTTP that misbehave.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use talaria::agents::mcp::McpPacing;
use talaria::agents::tools::ToolFailure;
use talaria::config::McpSelection;
use talaria_platform::Backoff;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::mcp::{McpScene, http};

/// The answer to a call: its first line and headers, and bytes that are repeated without end, if any.
type CallAnswer = (&'static str, &'static str);

/// A server that starts well, and answers every call like this.
struct HttpServer {
    address: String,
    /// The first line and the headers of each request.
    heads: Arc<Mutex<Vec<String>>>,
}

impl HttpServer {
    async fn start(first: Option<&'static str>, call: CallAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/mcp", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    // A client that is gone is no failure of the test.
                    let _ = answer(stream, &seen, first, call).await;
                });
            }
        });
        Self { address, heads }
    }

    fn scene(&self) -> McpScene {
        let pauses = Backoff::between(Duration::ZERO, Duration::ZERO);
        let config = http(&self.address, &[("Authorization", "Bearer seeded-secret")]);
        McpScene::with_pacing([("s", config)], McpPacing { pauses, ..McpPacing::default() })
    }
}

async fn answer(
    stream: TcpStream,
    heads: &Mutex<Vec<String>>,
    first: Option<&str>,
    call: CallAnswer,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
        if let Some(value) = head[from..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    heads.lock().push(head);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "h", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": {} }] }),
        "tools/call" => {
            stream.write_all(call.0.as_bytes()).await?;
            let chunk = call.1.repeat(4096);
            while !chunk.is_empty() {
                stream.write_all(chunk.as_bytes()).await?;
            }
            return Ok(());
        }
        _ => {
            return stream
                .write_all(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    };
    if let Some(first) = first {
        return stream.write_all(first.as_bytes()).await;
    }
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_with_a_reason() {
    for kind in [
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"a\": \"",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: ",
    ] {
        let server = HttpServer::start(None, (kind, "xxxxxxxxxxxxxxxx")).await;
        let scene = server.scene();
        let said = scene.calls("t", json!({})).await;
        let Err(ToolFailure::Failed(words)) = said else { panic!("{said:?}") };
        assert!(words.contains("its answer is too long"), "{words}");
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_us_is_named_without_its_words_and_our_key() {
    let refusal =
        "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 21\r\n\r\nBearer seeded-secret!";
    let server = HttpServer::start(Some(refusal), ("", "")).await;
    let scene = server.scene();
    let offered = scene.offers(&["s"]).await;
    assert_eq!(
        offered.problems,
        [
            "The MCP server `s` does not run: the request failed: it wants another key (status 401). Its tools are missing."
        ]
    );
    let lines = scene.servers.state_lines(&McpSelection::All);
    assert_eq!(lines[0].to_string(), "MCP server s: does not work, because it refused us (401). Tools: 0.");
    let heads = server.heads.lock().clone();
    assert!(heads[0].to_ascii_lowercase().contains("authorization: bearer seeded-secret"), "{}", heads[0]);
    scene.ends().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = HttpServer::start(None, ("", "")).await;
    let redirect: &'static str = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address
    )
    .leak();
    let server = HttpServer::start(Some(redirect), ("", "")).await;
    let scene = server.scene();
    let offered = scene.offers(&["s"]).await;
    assert!(offered.problems[0].contains("it sends us elsewhere (status 307)"), "{:?}", offered.problems);
    assert!(elsewhere.heads.lock().is_empty());
    scene.ends().await;
}

#[tokio::test]
async fn a_call_that_is_cut_short_is_a_failure_and_not_a_wait() {
    let cut =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\": ";
    let server = HttpServer::start(None, (cut, "")).await;
    let scene = server.scene();
    let said = scene.calls("t", json!({})).await;
    assert!(
        matches!(&said, Err(ToolFailure::Failed(words)) if words.contains("was lost during the call")),
        "{said:?}"
    );
    scene.ends().await;
}
