//! Hides the configured secrets of a server or an agent in words that leave the process.
//!
//! Both get keys from us, in their environment, their arguments, their headers or their address, and may print them.

use serde_json::Value;

use crate::config::{McpServerConfig, McpTransport, Secret};

/// Shortest value that is taken for a secret. Shorter ones are flags and numbers, and occur in any text.
const SHORTEST: usize = 6;

/// Length from which a value without spaces and slashes is taken for a secret, if it has letters and digits.
const RANDOM: usize = 20;

/// Parts of the names of variables and options that hold secrets.
const SECRET_NAMES: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CREDENTIAL"];

/// The secrets of one server or agent.
pub struct SecretMask {
    /// Longest first: one may begin with another.
    values: Vec<String>,
}

impl SecretMask {
    /// Every header is a secret. A variable, an argument or a part of the address is one by its name or by its look:
    /// others, such as a folder or a time zone, occur in results that people need.
    pub fn of(config: &McpServerConfig) -> Self {
        let secrets: Vec<&str> = match &config.transport {
            McpTransport::Stdio { env, args, .. } => {
                let secret = env.iter().filter(|(name, value)| is_secret(name, value.expose()));
                secret.map(|(_, value)| value.expose()).chain(secret_arguments(args)).collect()
            }
            McpTransport::Http { url, headers } => {
                // Some servers have a key in their path.
                let parts =
                    url.as_str().split(['/', '?', '&', '=', '@', ':']).filter(|part| looks_random(part));
                headers.values().map(Secret::expose).chain(parts).collect()
            }
        };
        Self::hiding(&secrets)
    }

    /// For an agent that is a program: every variable that its entry gives it is a secret, whatever it looks like, but for
    /// whole paths, which its words need. An argument is one by its name or by its look.
    pub fn of_program(variables: &[String], args: &[String]) -> Self {
        let values = variables.iter().map(String::as_str).filter(|value| !value.starts_with('/'));
        Self::hiding(&values.chain(secret_arguments(args)).collect::<Vec<_>>())
    }

    fn hiding(secrets: &[&str]) -> Self {
        // Of `Bearer KEY`, also the key alone.
        let words = secrets.iter().flat_map(|secret| [Some(*secret), secret.split(' ').nth(1)]);
        let mut values: Vec<String> =
            words.flatten().filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// The value with no secret in any of its texts.
    pub fn hide_in(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.hide_in(value)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.hide(&name), self.hide_in(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    /// The text without the secrets.
    pub fn hide(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, value| match text.contains(value.as_str()) {
            true => text.replace(value.as_str(), "[redacted]"),
            false => text,
        })
    }
}

/// Secrets among arguments: `--token=X`, `TOKEN=X`, `--token X`, and words that look like a key.
fn secret_arguments(args: &[String]) -> impl Iterator<Item = &str> {
    let before = std::iter::once("").chain(args.iter().map(String::as_str));
    args.iter().zip(before).filter_map(|(argument, before)| {
        let (name, value) = argument.split_once('=').unwrap_or((before, argument));
        // A word after a word is no value of an option, whatever the first one is called.
        let name = if argument.contains('=') || name.starts_with('-') { name } else { "" };
        (!value.starts_with('-') && is_secret(name, value)).then_some(value)
    })
}

fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    looks_random(value) || SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn looks_random(value: &str) -> bool {
    value.len() >= RANDOM
        && !value.contains(['/', ' '])
        && value.contains(|c: char| c.is_ascii_digit())
        && value.contains(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::BaseUrl;

    #[test]
    fn keys_are_secrets_and_folders_are_not() {
        for (name, value, secret) in [
            ("API_KEY", "hunter2", true),
            ("github_token", "abcdefgh", true),
            ("SLACK", "xoxb-17653672481-19874698323", true),
            ("TZ", "Europe/Berlin", false),
            ("ROOT", "/srv/data/2026/something", false),
            ("NODE_OPTIONS", "--max-old-space-size", false),
        ] {
            assert_eq!(is_secret(name, value), secret, "{name}");
        }
    }

    #[test]
    fn secrets_among_arguments_are_found() {
        let args = [
            "--api-key=hunter2",
            "--token",
            "letmein1",
            "DB_PASSWORD=opensesame",
            "sk-0123456789abcdefghij",
            "--verbose",
            "--auth",
            "--port",
            "8080-8090",
            "key",
            "/srv/data",
            "--root=/srv/data/2026",
        ];
        let args = args.map(str::to_owned);
        let found: Vec<_> = secret_arguments(&args).collect();
        assert_eq!(found, ["hunter2", "letmein1", "opensesame", "sk-0123456789abcdefghij"]);
    }

    #[test]
    fn a_key_in_an_address_is_a_secret() {
        let url = BaseUrl::parse("https://mcp.example.org/s/0123456789abcdefghij/mcp").unwrap();
        let transport = McpTransport::Http { url, headers: BTreeMap::new() };
        let mask = SecretMask::of(&McpServerConfig {
            transport,
            enabled: true,
            connect_timeout: Duration::ZERO,
            timeout: Duration::ZERO,
            include: None,
            exclude: Vec::new(),
            permissions: BTreeMap::new(),
            origins: BTreeMap::new(),
        });
        assert_eq!(
            mask.hide("mcp.example.org/s/0123456789abcdefghij/mcp"),
            "mcp.example.org/s/[redacted]/mcp"
        );
    }

    #[test]
    fn every_variable_of_a_program_is_a_secret_but_for_paths_and_flags() {
        let variables = ["correct horse battery", "/srv/app", "true"].map(str::to_owned);
        let mask = SecretMask::of_program(&variables, &["--token=hunter2".to_owned()]);
        assert_eq!(
            mask.hide("no correct horse battery for hunter2 in /srv/app: true"),
            "no [redacted] for [redacted] in /srv/app: true"
        );
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_stands() {
        let mask = SecretMask { values: vec!["Bearer abcdef".to_owned(), "abcdef".to_owned()] };
        assert_eq!(
            mask.hide("no abcdef, no Bearer abcdef, yes abc"),
            "no [redacted], no [redacted], yes abc"
        );
    }
}
