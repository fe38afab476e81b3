//! A server with two apps and an agent called `claude`, which follows a script.

use std::sync::Arc;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use talaria::access::AppPermissions;
use talaria::agent::{AgentKind, AgentTable, RewindSupport, SharedAgent};
use talaria::agents::AgentServices;
use talaria::agents::acp::{AcpAgent, AcpTimes};
use talaria::agents::codex::CodexAgent;
use talaria::config::{AcpConfig, CodexConfig, ForgeConfig};
use talaria::ids::AgentName;
use talaria::rules::{AgentPolicy, AgentRules};
use talaria::server::{ForgeSettings, ServerSettings};

use crate::acp::scripted_agent::{Script as AcpScript, ScriptedAgent};
use crate::codex::scripted_peer::{Scenario, ScriptedCodex};
use crate::support::gateway::Setup;
use crate::support::scripted::{Script, Scripted};
use crate::support::served::{Served, json as read_json, settings};

/// The admin token.
pub const ADMIN: &str = "an admin token, long enough for anything";

pub struct ForgeScene {
    pub served: Served,
    pub agent: Scripted,
    /// Token of the app that owns the sessions.
    pub app: String,
    /// Token of another app.
    pub other: String,
}

impl ForgeScene {
    pub async fn start() -> Self {
        Self::with(ForgeConfig::default()).await
    }

    pub async fn with(config: ForgeConfig) -> Self {
        Self::of(config, Setup::default()).await
    }

    pub async fn of(config: ForgeConfig, setup: Setup) -> Self {
        let agent = Scripted::new(AgentKind::Model, "claude", RewindSupport::Possible, false);
        let scripted = agent.clone();
        let build = move |_: &AgentServices| -> SharedAgent { Arc::new(scripted.clone()) };
        Self::built(config, setup, settings().runs, agent, build).await
    }

    /// A scene whose `claude` cannot work in the folder of a session.
    pub async fn without_folder() -> Self {
        let agent =
            Scripted::new(AgentKind::Model, "claude", RewindSupport::Possible, false).without_folder();
        let scripted = agent.clone();
        let build = move |_: &AgentServices| -> SharedAgent { Arc::new(scripted.clone()) };
        Self::built(ForgeConfig::default(), Setup::default(), settings().runs, agent, build).await
    }

    /// A scene that admits one turn at a time, over all sessions.
    pub async fn one_turn_at_a_time() -> Self {
        let agent = Scripted::new(AgentKind::Model, "claude", RewindSupport::Possible, false);
        let scripted = agent.clone();
        let build = move |_: &AgentServices| -> SharedAgent { Arc::new(scripted.clone()) };
        Self::built(ForgeConfig::default(), Setup::default(), (1, 1), agent, build).await
    }

    /// A scene whose `claude` is an ACP agent with this script.
    pub async fn acp(script: AcpScript) -> (Self, ScriptedAgent) {
        Self::acp_with(ForgeConfig::default(), script).await
    }

    pub async fn acp_with(config: ForgeConfig, script: AcpScript) -> (Self, ScriptedAgent) {
        Self::acp_permitting(config, AppPermissions::Ask, script).await
    }

    /// The same, with a policy of the agent's own.
    pub async fn acp_permitting(
        config: ForgeConfig,
        permissions: AppPermissions,
        script: AcpScript,
    ) -> (Self, ScriptedAgent) {
        Self::acp_as_set(config, Setup::default(), script, move |agent, _| {
            agent.permissions = permissions.clone();
        })
        .await
    }

    /// The same, with other settings of the gateway, of the agent, and of its time limits.
    pub async fn acp_as_set(
        config: ForgeConfig,
        setup: Setup,
        script: AcpScript,
        change: impl Fn(&mut AcpConfig, &mut AcpTimes) + Send + Sync + 'static,
    ) -> (Self, ScriptedAgent) {
        let acp = ScriptedAgent::new(&script);
        let command = acp.command();
        let nobody = Scripted::new(AgentKind::Model, "nobody", RewindSupport::Possible, false);
        let build = move |services: &AgentServices| -> SharedAgent {
            // A forge session has a folder of its own; nothing is made here.
            let workspace = command.with_file_name("workspace");
            let mut config = AcpConfig::new(command.display().to_string(), workspace);
            let mut times = AcpTimes::default();
            change(&mut config, &mut times);
            Arc::new(AcpAgent::with_times(config, times, services))
        };
        (Self::built(config, setup, settings().runs, nobody, build).await, acp)
    }

    /// A scene whose `claude` is a codex agent with this scenario.
    pub async fn codex(scenario: &Scenario) -> (Self, ScriptedCodex) {
        let codex = ScriptedCodex::new(scenario);
        let command = codex.command();
        let nobody = Scripted::new(AgentKind::Model, "nobody", RewindSupport::Possible, false);
        let build = move |services: &AgentServices| -> SharedAgent {
            let mut config = CodexConfig::new(command.with_file_name("workspace"));
            config.command = command.display().to_string();
            (config.model, config.effort) = (Some("usual".to_owned()), Some("low".to_owned()));
            Arc::new(CodexAgent::new(config, services))
        };
        let admin_token = Some(ADMIN.to_owned().into());
        let forge = ForgeConfig { admin_token, ..ForgeConfig::default() };
        (Self::built(forge, Setup::default(), settings().runs, nobody, build).await, codex)
    }

    async fn built(
        config: ForgeConfig,
        setup: Setup,
        runs: (usize, usize),
        agent: Scripted,
        build: impl Fn(&AgentServices) -> SharedAgent + Send + Sync + 'static,
    ) -> Self {
        let table = move |services: &AgentServices| {
            let other = Scripted::new(AgentKind::Model, "other", RewindSupport::Possible, false);
            AgentTable::new(AgentName::proxy(), Arc::new(other)).with(claude(), build(services))
        };
        let setup = Setup { build: Some(Arc::new(table)), ..setup };
        let rules = setup.rules.clone();
        let forge = ForgeSettings { config, ..ForgeSettings::default() };
        let settings = ServerSettings { forge, runs, ..settings() };
        let served = Served::with(setup, settings).await;
        let by_name = [claude(), AgentName::proxy()].map(|name| (name, AgentPolicy::default()));
        served.gateway.reload_agents(rules, AgentRules { by_name: by_name.into(), ..AgentRules::default() });
        let (app, other) = (served.app("forge").await, served.app("phone").await);
        Self { served, agent, app, other }
    }

    /// A scene with an admin token.
    pub async fn with_admin() -> Self {
        let admin_token = Some(ADMIN.to_owned().into());
        Self::with(ForgeConfig { admin_token, ..ForgeConfig::default() }).await
    }

    /// Makes a token with the admin token.
    pub async fn makes_token(&self, wanted: &Value) -> String {
        let request = self.request(ADMIN, Method::POST, "/admin/tokens").body(wanted.to_string());
        let made = request.send().await.unwrap();
        assert_eq!(made.status(), 200);
        read_json(made).await["token"].as_str().unwrap().to_owned()
    }

    /// A script for the agent's next turn.
    pub fn says(&self) -> Script {
        self.agent.script()
    }

    pub fn request(&self, key: &str, method: Method, path: &str) -> RequestBuilder {
        self.served.bare(method, path).bearer_auth(key)
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request(&self.app, Method::GET, path).send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(&self.app, Method::POST, path).body(body.to_string()).send().await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.request(&self.app, Method::DELETE, path).send().await.unwrap()
    }

    /// Begins a session; returns its id.
    pub async fn begin(&self) -> String {
        self.begin_as(&self.app).await
    }

    pub async fn begin_as(&self, key: &str) -> String {
        let made =
            self.request(key, Method::POST, "/sessions").body(json!({ "agent": "claude" }).to_string());
        let made = made.send().await.unwrap();
        assert_eq!(made.status(), 200);
        read_json(made).await["session_id"].as_str().unwrap().to_owned()
    }

    /// Asks for a turn and returns its answer.
    pub async fn turn(&self, session: &str, prompt: &str) -> Response {
        self.post(&format!("/sessions/{session}/turn"), &json!({ "prompt": prompt })).await
    }

    /// Sweeps as after this many seconds.
    pub async fn sweep_after(&self, seconds: u64) -> Value {
        let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + seconds).unwrap();
        let swept = self.served.gateway.server().sweep_at(now).await.unwrap();
        serde_json::to_value(swept).unwrap()
    }

    /// Names of the events in the audit of a session.
    pub async fn audit(&self, session: &str) -> Vec<String> {
        let audit = read_json(self.get(&format!("/sessions/{session}/audit")).await).await;
        let events = audit["events"].as_array().unwrap_or_else(|| panic!("{audit}"));
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Names in the folder with the folders of sessions.
    pub fn folders(&self) -> Vec<String> {
        let folder = self.served.gateway.home().join("forge/sessions");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

pub fn claude() -> AgentName {
    AgentName::new("claude").unwrap()
}

/// Checks that an answer is an error in the form of this surface, and returns its `error`.
pub async fn error(response: Response, status: u16) -> String {
    assert_eq!(response.status(), status);
    let body = read_json(response).await;
    assert_eq!(body["ok"], false, "{body}");
    for text in ["error", "detail"] {
        let words = body[text].as_str().unwrap_or_else(|| panic!("{body}"));
        assert!(!words.is_empty() && words.chars().count() <= 200, "{body}");
    }
    body["error"].as_str().unwrap().to_owned()
}
