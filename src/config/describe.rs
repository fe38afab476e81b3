//! Describes in words what would run, for `talaria check`.

use super::{AgentSettings, Config, McpSelection, ModelConfig, ServerConfig, api_key};
use crate::i18n::DEFAULT_LANGUAGE;
use crate::ids::AgentName;

impl Config {
    /// A few aligned lines, then the warnings. Holds no key, only whether there is one.
    pub fn describe(&self) -> String {
        self.describe_with(&self.describe_platforms(), &self.describe_accounts())
    }

    /// Describes what `talaria serve` would run: it leaves the platforms alone.
    pub fn describe_serving(&self) -> String {
        self.describe_with("left alone: `talaria serve` is the agent server and nothing else", "")
    }

    fn describe_with(&self, platforms: &str, accounts: &str) -> String {
        let file = match &self.file {
            Some(path) => path.display().to_string(),
            None => "no file, embedded defaults".to_owned(),
        };
        let mut text = String::new();
        for (name, value) in [
            ("configuration", file),
            ("state folder", self.home.display().to_string()),
            ("agent", self.describe_default_agent()),
        ] {
            text.push_str(&format!("{name:13}  {value}\n"));
        }
        text.push_str(&self.describe_work(&self.agents.default));
        text.push_str(&self.describe_other_agents());
        for (number, (name, server)) in self.mcp_servers.iter().enumerate() {
            let title = if number == 0 { "MCP servers" } else { "" };
            let off = if server.enabled { "" } else { " (off)" };
            text.push_str(&format!("{title:13}  {name}: {}{off}\n", server.transport));
        }
        text.push_str(&format!("{:13}  {platforms}\n", "platforms"));
        text.push_str(accounts);
        if let Some(server) = &self.server {
            text.push_str(&format!("{:13}  {}\n", "agent server", self.describe_server(server)));
        }
        text.push_str(&format!("{:13}  {}\n", "log", self.log));
        let (words, reworded) = (&self.rules.words, self.rules.words.reworded().len());
        if words.language() != DEFAULT_LANGUAGE || reworded > 0 {
            let changed = if reworded > 0 { format!(", reworded: {reworded}") } else { String::new() };
            text.push_str(&format!("{:13}  {}{changed}\n", "words", words.language()));
        }
        for warning in &self.warnings {
            text.push_str(&format!("\nwarning: {warning}\n"));
        }
        text
    }

    /// The default agent. It is named where there are several to choose from.
    fn describe_default_agent(&self) -> String {
        let words = self.agents.describe_default();
        match self.agents.entries.len() > 1 {
            true => format!("{} (default): {words}", self.agents.default),
            false => words,
        }
    }

    /// The other agents, each in a line of its own.
    fn describe_other_agents(&self) -> String {
        let others = self.agents.entries.keys().filter(|name| **name != self.agents.default);
        let line =
            |name| format!("{:13}  {name}: {}\n{}", "", self.agents.describe(name), self.describe_work(name));
        others.map(line).collect()
    }

    /// A line below an agent that has more than a chat with one model: its tools, its folder and its models.
    fn describe_work(&self, name: &AgentName) -> String {
        match self.agents.entries.get(name) {
            Some(AgentSettings::Model(model)) => match work_of(model) {
                Some(work) => format!("{:15}  {work}\n", ""),
                None => String::new(),
            },
            Some(AgentSettings::Codex(codex)) => {
                let folder = codex.cwd.as_ref().unwrap_or(&codex.workspace).display();
                format!("{:15}  folder {folder}\n", "")
            }
            Some(AgentSettings::Acp(acp)) => {
                let folder = acp.cwd.as_ref().unwrap_or(&acp.workspace).display();
                format!("{:15}  folder {folder}\n", "")
            }
            Some(AgentSettings::Proxy(_)) | None => String::new(),
        }
    }

    fn describe_platforms(&self) -> String {
        if self.platforms.is_empty() {
            return "none configured: a chat in the terminal".to_owned();
        }
        let one = |(name, platform): (&talaria_platform::AccountId, &super::PlatformConfig)| {
            let kind = platform.kind().name();
            if name.as_str() == kind { kind.to_owned() } else { format!("{name} ({kind})") }
        };
        self.platforms.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn describe_server(&self, server: &ServerConfig) -> String {
        let ServerConfig { host, port, model_name, .. } = server;
        let address = match port {
            0 => format!("http://{host}, any free port"),
            port => format!("http://{host}:{port}"),
        };
        let key = match (&server.key, server.open) {
            (_, true) => "without a key: everybody on this machine may ask".to_owned(),
            (Some(_), false) => "with a key".to_owned(),
            (None, false) => format!("key in {}", api_key::path(&self.home).display()),
        };
        // A server that nobody asked for stays out of the way of a pipe; see `gateway::plan`.
        let implied = if server.explicit { "" } else { " (not while prompts are piped in)" };
        format!("{address}, model {model_name}, {key}{implied}")
    }

    /// One line for each account that has something to tell.
    fn describe_accounts(&self) -> String {
        let mut lines = String::new();
        for (name, platform) in &self.platforms {
            let rules = self.rules.account(name);
            if let Some(account) = platform.settings().describe(rules.places.keys().collect()) {
                lines.push_str(&format!("{:13}  {account}\n", name.as_str()));
            }
        }
        lines
    }
}

/// The tools, the folder and the models of an agent in words; `None` if it has nothing but one model.
fn work_of(model: &ModelConfig) -> Option<String> {
    let mut tools: Vec<String> = model.tools.iter().map(ToString::to_string).collect();
    match &model.mcp {
        McpSelection::None => {}
        McpSelection::All => tools.push("mcp".to_owned()),
        McpSelection::Some(servers) => tools.extend(servers.iter().map(|server| format!("mcp.{server}"))),
    }
    let mut parts = Vec::new();
    if !tools.is_empty() {
        parts.push(format!("tools {}", tools.join(", ")));
    }
    if let Some(workspace) = &model.workspace {
        parts.push(format!("workspace {}", workspace.display()));
    }
    if model.models.len() > 1 {
        parts.push(format!("models {}", model.models.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
