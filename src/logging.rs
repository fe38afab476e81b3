//! The log on standard error, with a second net under the first: no secret that was loaded can
//! appear in it, whoever logs it.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::config::{AgentChoice, Config};

/// Starts logging. In a chat on a terminal only errors are shown unless more was asked for, because the log
/// shares the screen with the conversation, which says itself what a person should know.
pub fn start(config: &Config, terminal: bool) {
    let level = if terminal && config.log == "info" { "error" } else { &config.log };
    let secrets = secrets(config);
    let writer = move || Redacting { secrets: secrets.clone() };
    let ansi = rustix::termios::isatty(rustix::stdio::stderr()) && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(writer)
        .with_ansi(ansi)
        .with_target(false)
        .init();
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}

fn secrets(config: &Config) -> Vec<String> {
    let key = match &config.agent {
        AgentChoice::Proxy(proxy) => proxy.key.as_ref(),
        AgentChoice::Local(local) => local.key.as_ref(),
        AgentChoice::Guide => None,
    };
    key.map(|key| key.expose().to_owned()).into_iter().collect()
}

/// Writes one log line at a time, as the formatter hands it over.
struct Redacting {
    secrets: Vec<String>,
}

impl Write for Redacting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        let text = String::from_utf8_lossy(line);
        match self.secrets.iter().any(|secret| text.contains(secret.as_str())) {
            false => stderr.lock().write_all(line)?,
            true => {
                let clean = self
                    .secrets
                    .iter()
                    .fold(text.into_owned(), |text, secret| text.replace(secret, "[redacted]"));
                stderr.lock().write_all(clean.as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
