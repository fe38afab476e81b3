//! An ACP agent that costs next to nothing: this program again, in a role. It answers every prompt at once, and opens any
//! conversation again.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use talaria::config::AcpConfig;

use super::ANSWER;

/// Name of the role.
pub const ROLE: &str = "acp-agent";

/// The settings of the agent.
pub fn config(workspace: PathBuf) -> anyhow::Result<AcpConfig> {
    let program = std::env::current_exe()?;
    let mut config = AcpConfig::new(program.display().to_string(), workspace);
    config.args = vec![crate::ROLE.to_owned(), ROLE.to_owned()];
    Ok(config)
}

/// Answers until the end of input.
pub fn run() -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let (id, session) = (&message["id"], &message["params"]["sessionId"]);
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": 1,
                "agentInfo": { "name": "scripted", "version": "1" },
                "agentCapabilities": { "loadSession": true },
                "authMethods": [],
            }),
            Some("session/new") => json!({ "sessionId": format!("s-{}", std::process::id()) }),
            Some("session/load") => json!({}),
            Some("session/prompt") => {
                let content = json!({ "type": "text", "text": ANSWER });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                let params = json!({ "sessionId": session, "update": update });
                writeln!(
                    output,
                    "{}",
                    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
                )?;
                json!({ "stopReason": "end_turn" })
            }
            _ if id.is_null() => continue,
            _ => {
                let error = json!({ "code": -32_601, "message": "unknown method" });
                writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                output.flush()?;
                continue;
            }
        };
        writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        output.flush()?;
    }
    Ok(())
}

/// Number of processes in this role.
pub fn count() -> anyhow::Result<usize> {
    let ours = std::env::current_exe()?;
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let folder = entry?.path();
        // A process may end meanwhile, and processes of others cannot be read.
        let is_ours = std::fs::read_link(folder.join("exe")).is_ok_and(|program| program == ours);
        let words = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        count += usize::from(
            is_ours && words.next() == Some(crate::ROLE.as_bytes()) && words.next() == Some(ROLE.as_bytes()),
        );
    }
    Ok(count)
}
