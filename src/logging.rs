//! The log on standard error, with a safety net: no loaded secret can appear in it, no matter which code logs it.

use std::borrow::Cow;
use std::io::{self, Write};

use parking_lot::RwLock;
use talaria_platform::LibraryLog;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, Secret};
use crate::platforms::KINDS;
use crate::token::{FILE_PREFIX, FORGE_PREFIX, PREFIX};

/// Secrets to redact, longest first. Global because there is one log; a reload may add the new key of a running
/// agent server.
static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Replaces a secret.
const REDACTED: &str = "[redacted]";

/// Bytes of the shortest secret that is looked for. A shorter one hides nothing, and stands in every second line: the `1`
/// of a variable would be redacted in all times and addresses.
const SHORTEST: usize = 4;

/// Prefixes of keys: of a request, of a model server, of the key that we generate, of tokens of apps and files.
const ANNOUNCED: [&str; 6] =
    ["Bearer ", "sk-", crate::config::api_key::PREFIX, PREFIX, FORGE_PREFIX, FILE_PREFIX];

/// Starts logging. In a chat on a terminal only errors are shown by default, because the log shares the screen
/// with the conversation, which itself shows what a person should know.
pub fn start(config: &Config, terminal: bool) {
    let level = if terminal && config.log == "info" { "error" } else { &config.log };
    secrets(config).into_iter().for_each(add);
    let ansi = rustix::termios::isatty(rustix::stdio::stderr()) && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter(level, libraries())))
        .with_writer(|| RedactingWriter)
        .with_ansi(ansi)
        .with_target(false)
        .init();
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}

/// Redacts another secret from now on: one that was not in the configuration, or has changed.
pub fn hide(secret: &Secret) {
    add(secret.expose().to_owned());
}

fn add(secret: String) {
    let mut secrets = SECRETS.write();
    if secret.len() >= SHORTEST && !secrets.contains(&secret) {
        secrets.push(secret);
        // A secret may begin with another one: the longer goes first, or its rest would stay.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }
}

/// Log levels of libraries that say too much: those of the platforms, and rmcp, which logs whole messages.
fn libraries() -> impl Iterator<Item = LibraryLog> {
    let rmcp = LibraryLog { target: "rmcp", filter: "rmcp=off" };
    KINDS.iter().filter_map(|kind| kind.library_log()).chain([rmcp])
}

/// The filter for a log level, with the levels of the platforms' libraries that it does not name.
fn filter(level: &str, libraries: impl Iterator<Item = LibraryLog>) -> String {
    let quiet = libraries.filter(|library| !level.contains(library.target));
    quiet.fold(level.to_owned(), |filter, library| format!("{filter},{}", library.filter))
}

fn secrets(config: &Config) -> Vec<String> {
    let mut secrets: Vec<_> = config.secrets().iter().map(|key| key.expose().to_owned()).collect();
    secrets.extend(config.platforms.values().flat_map(|platform| platform.settings().secrets()));
    secrets
}

/// Redacts each log line that the formatter writes.
struct RedactingWriter;

impl Write for RedactingWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let secrets = SECRETS.read();
        io::stderr().lock().write_all(&redact(line, &secrets))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The line without any of the secrets, and without the word behind a prefix of a key.
fn redact<'a>(line: &'a [u8], secrets: &[String]) -> Cow<'a, [u8]> {
    let text = String::from_utf8_lossy(line);
    let known = secrets.iter().any(|secret| text.contains(secret.as_str()));
    if !known && !ANNOUNCED.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(line);
    }
    let text = secrets.iter().fold(text.into_owned(), |text, secret| text.replace(secret, REDACTED));
    let text = ANNOUNCED.iter().fold(text, |text, word| without_what_follows(&text, word));
    Cow::Owned(text.into_bytes())
}

/// Redacts the word of plain characters behind each `announced`.
fn without_what_follows(text: &str, announced: &str) -> String {
    let mut pieces = text.split(announced);
    let mut clean = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.~+/=".contains(c);
        let key = piece.find(|c| !is_key(c)).unwrap_or(piece.len());
        // `task-list` contains `sk-` but no key.
        let inside = clean.ends_with(|c: char| c.is_ascii_alphanumeric());
        clean.push_str(announced);
        if inside {
            clean.push_str(piece);
        } else {
            clean.push_str(if key > 0 { REDACTED } else { "" });
            clean.push_str(&piece[key..]);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(line: &str) -> String {
        let secrets = ["hunter2-hunter2".to_owned(), "\"quoted\"".to_owned()];
        String::from_utf8(redact(line.as_bytes(), &secrets).into_owned()).unwrap()
    }

    #[test]
    fn a_loaded_secret_never_appears_wherever_it_stands() {
        assert_eq!(redacted("key=hunter2-hunter2, hunter2-hunter2!"), "key=[redacted], [redacted]!");
        assert_eq!(redacted("say \"quoted\""), "say [redacted]");
    }

    #[test]
    fn what_is_announced_as_a_key_is_taken_out_though_nobody_loaded_it() {
        assert_eq!(
            redacted("authorization: Bearer abc.DEF-123 sent"),
            "authorization: Bearer [redacted] sent"
        );
        assert_eq!(redacted("with sk-proj_4Xyz, then"), "with sk-[redacted], then");
        assert_eq!(redacted("token=\"tlr_12ab_34cd\" made"), "token=\"tlr_[redacted]\" made");
        assert_eq!(redacted("tlk_0123456789"), "tlk_[redacted]");
        assert_eq!(redacted("cf_12ab_34cd and ff_56"), "cf_[redacted] and ff_[redacted]");
    }

    #[test]
    fn libraries_are_quiet_until_they_are_asked() {
        let filter = |level| {
            let library = |target, filter| LibraryLog { target, filter };
            filter(level, [library("sdk", "sdk=error,sdk::http=off"), library("xml", "xml=off")].into_iter())
        };
        assert_eq!(filter("info,talaria=debug"), "info,talaria=debug,sdk=error,sdk::http=off,xml=off");
        assert_eq!(filter("info,sdk=debug"), "info,sdk=debug,xml=off");
    }

    #[test]
    fn everything_else_is_as_it_was() {
        for line in
            ["turn ended outcome=Done bytes=12\n", "disk-full, a task-list, back_off_after", "", "Grüße\n"]
        {
            assert_eq!(redacted(line), line);
        }
    }
}
