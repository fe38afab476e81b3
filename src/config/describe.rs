//! What would run, in words: the answer of `talaria check`.

use std::fmt;

use super::{AgentChoice, Config, LocalConfig, Secret, ServerConfig, api_key};
use crate::i18n::DEFAULT_LANGUAGE;

impl Config {
    /// A few aligned lines, then the warnings. Holds no key, only whether there is one.
    pub fn describe(&self) -> String {
        self.describe_with(&self.describe_platforms(), &self.describe_accounts())
    }

    /// The same of `talaria serve`, which leaves the platforms alone.
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
            ("agent", self.agent.to_string()),
            ("platforms", platforms.to_owned()),
        ] {
            text.push_str(&format!("{name:13}  {value}\n"));
        }
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
            (_, true) => "without a key: whoever is on this machine may ask".to_owned(),
            (Some(_), false) => "with a key".to_owned(),
            (None, false) => format!("key in {}", api_key::path(&self.home).display()),
        };
        // What nobody asked for stays out of the way of a pipe; see `platforms`.
        let implied = if server.explicit { "" } else { " (not while prompts are piped in)" };
        format!("{address}, model {model_name}, {key}{implied}")
    }

    /// What is worth knowing about each account, in a line of its own.
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

impl fmt::Display for AgentChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(proxy, fallback) => {
                let (url, model, key) = (proxy.url.as_str(), &proxy.model, key_words(proxy.key.as_ref()));
                write!(f, "remote agent server at {url}, model {model}, {key}")?;
                match fallback {
                    Some(local) => write!(f, "; while it is away, {local}"),
                    None => Ok(()),
                }
            }
            Self::Local(local) => write!(f, "{local}"),
            Self::Guide => f.write_str("none configured: a built-in guide answers and says what to set"),
        }
    }
}

impl fmt::Display for LocalConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, model, key) = (self.url.as_str(), &self.model, key_words(self.key.as_ref()));
        write!(f, "model server at {url}, model {model}, {key}")
    }
}

fn key_words(key: Option<&Secret>) -> &'static str {
    match key {
        Some(_) => "with a key",
        None => "without a key",
    }
}
