//! Hides the configured secrets of a server in words that leave the process.
//!
//! A server gets keys from us, in its environment or its headers, and may print them when it fails.

use crate::config::{McpServerConfig, McpTransport, Secret};

/// Shortest value that is taken for a secret. Shorter ones are flags and numbers, and occur in any text.
const SHORTEST: usize = 6;

/// Length from which a value without spaces and slashes is taken for a secret, if it has letters and digits.
const RANDOM: usize = 20;

/// Parts of the names of variables that hold secrets.
const SECRET_NAMES: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CREDENTIAL"];

/// The secrets of one server.
pub(super) struct SecretMask {
    /// Longest first: one may begin with another.
    values: Vec<String>,
}

impl SecretMask {
    /// Every header is a secret. A variable is one by its name or by its look: others, such as a folder or a time zone,
    /// occur in results that people need.
    pub(super) fn of(config: &McpServerConfig) -> Self {
        let secrets: Vec<&str> = match &config.transport {
            McpTransport::Stdio { env, .. } => {
                let secret = env.iter().filter(|(name, value)| is_secret(name, value.expose()));
                secret.map(|(_, value)| value.expose()).collect()
            }
            McpTransport::Http { headers, .. } => headers.values().map(Secret::expose).collect(),
        };
        // Of `Bearer KEY`, also the key alone.
        let words = secrets.iter().flat_map(|secret| [Some(*secret), secret.split(' ').nth(1)]);
        let mut values: Vec<String> =
            words.flatten().filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// The text without the secrets.
    pub(super) fn hide(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, value| match text.contains(value.as_str()) {
            true => text.replace(value.as_str(), "[redacted]"),
            false => text,
        })
    }
}

fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let looks_random = value.len() >= RANDOM
        && !value.contains(['/', ' '])
        && value.contains(|c: char| c.is_ascii_digit())
        && value.contains(|c: char| c.is_ascii_alphabetic());
    looks_random || SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_secret_is_hidden_wherever_it_stands() {
        let mask = SecretMask { values: vec!["Bearer abcdef".to_owned(), "abcdef".to_owned()] };
        assert_eq!(
            mask.hide("no abcdef, no Bearer abcdef, yes abc"),
            "no [redacted], no [redacted], yes abc"
        );
    }
}
