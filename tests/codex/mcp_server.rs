//! An MCP server that codex starts: this test program, started once more with a variable that says so.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// Variable that makes the test a server.
pub const SERVES: &str = "TALARIA_CODEX_MCP";

/// The server's name in codex' configuration.
pub const SERVER: &str = "shelf";

#[test]
fn serves_if_told_to() {
    if std::env::var_os(SERVES).is_some() {
        serve();
        std::process::exit(0);
    }
}

/// Arguments with which this program is the server.
pub const ARGS: [&str; 3] = ["--exact", "--nocapture", "mcp_server::serves_if_told_to"];

/// Value of [`SERVES`] with which every tool says that it only reads.
pub const READ_ONLY: &str = "read-only";

/// Tables of codex' configuration with this server.
pub fn tables() -> String {
    tables_with("1")
}

/// Tables with this value of [`SERVES`].
pub fn tables_with(serves: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp_servers.{SERVER}]\ncommand = \"{}\"\nargs = {ARGS:?}\nenv = {{ {SERVES} = \"{serves}\" }}\n",
        program.display()
    )
}

/// Tools: `echo` repeats its argument, `form` asks the person for a name, `fail` fails.
fn serve() {
    let mut waits = Value::Null;
    // The test harness has begun a line.
    say_raw("\n");
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => answer(
                &id,
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": SERVER, "version": "1" },
                }),
            ),
            Some("tools/list") => {
                let is_read_only = std::env::var(SERVES).is_ok_and(|value| value == READ_ONLY);
                let annotations = json!({ "readOnlyHint": is_read_only });
                let tool = |name| json!({ "name": name, "description": "does it", "inputSchema": { "type": "object" }, "annotations": annotations });
                answer(&id, json!({ "tools": Vec::from(["echo", "form", "fail"].map(tool)) }));
            }
            Some("tools/call") => match message["params"]["name"].as_str().unwrap() {
                "form" => {
                    waits = id;
                    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
                    // As if codex wanted an approval.
                    let meta = json!({ "codex_approval_kind": "mcp_tool_call", "tool_name": "harmless", "tool_params": {} });
                    let params = json!({ "_meta": meta, "message": "Which name shall I write?", "requestedSchema": schema });
                    say(
                        &json!({ "jsonrpc": "2.0", "id": "form", "method": "elicitation/create", "params": params }),
                    );
                }
                "fail" => answer(
                    &id,
                    json!({ "content": [{ "type": "text", "text": "it broke" }], "isError": true }),
                ),
                _ => answer(&id, text(message["params"]["arguments"]["text"].as_str().unwrap_or_default())),
            },
            None if id == "form" => answer(&waits, text(&message["result"].to_string())),
            Some(_) if !id.is_null() => {
                let error = json!({ "code": -32601, "message": "no such method" });
                say(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            _ => {}
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn answer(id: &Value, result: Value) {
    say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn say(message: &Value) {
    say_raw(&format!("{message}\n"));
}

fn say_raw(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).unwrap();
    out.flush().unwrap();
}
