//! Sessions with an agent over the forge surface of the real program.

use std::path::Path;

use anyhow::Context as _;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use talaria::config::AcpConfig;

use super::ANSWER;
use crate::program::ServedProgram;
use crate::real_acp::real_agents::entry;

/// The program with one agent.
pub struct OurForge(ServedProgram);

impl OurForge {
    /// Starts it with at most so many processes of the agent.
    pub fn start(config: &AcpConfig, home: &Path, processes: usize) -> anyhow::Result<Self> {
        let forge = json!({ "run_agent": "coder", "max_live_sessions": 1_000, "max_processes": processes });
        let written = json!({ "agents": { "coder": entry(config) }, "forge": forge });
        // JSON is YAML too.
        Ok(Self(ServedProgram::start(&written.to_string(), home)?))
    }

    /// Begins a session, and returns its id.
    pub async fn begin(&self) -> anyhow::Result<String> {
        let begun = self.ask(Method::POST, "/sessions", &json!({ "agent": "coder" })).await?;
        Ok(begun["session_id"].as_str().context("a session has an id")?.to_owned())
    }

    /// One turn of a session.
    pub async fn turn(&self, session: &str, prompt: &str) -> anyhow::Result<()> {
        let path = format!("/sessions/{session}/turn");
        let answer = self.ask(Method::POST, &path, &json!({ "prompt": prompt })).await?;
        let events = answer["events"].as_array().context("an answer has events")?;
        let texts = events.iter().filter(|event| event["type"] == "text");
        let said: String = texts.filter_map(|event| event["content"].as_str()).collect();
        anyhow::ensure!(answer["stop_reason"] == "end_turn" && said.contains(ANSWER), "{answer}");
        Ok(())
    }

    /// Closes a session.
    pub async fn close(&self, session: &str) -> anyhow::Result<()> {
        self.ask(Method::DELETE, &format!("/sessions/{session}"), &Value::Null).await?;
        Ok(())
    }

    /// Number of open file descriptors of the program.
    pub fn descriptors(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.0.id()))?.count())
    }

    /// Bytes of memory of the program itself.
    pub fn memory(&self) -> anyhow::Result<f64> {
        crate::child::resident(self.0.id())
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.0.request(method, path).body(body.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        anyhow::ensure!(status == StatusCode::OK, "{path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }
}
