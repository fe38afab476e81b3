//! Decides what runs in this process, and builds the platforms: the configured accounts, the terminal, and whether the
//! agent server is served. Standard input has a say in it.

use std::sync::Arc;

use anyhow::Context as _;
use talaria_console::{
    Console, ConsoleInput, ConsoleOutput, ConsoleTexts, LONGEST_LINE, StdinKind, stdin_kind,
};
use talaria_platform::{AccountId, AccountPlatform, Platform};

use crate::config::{Config, ServerConfig};
use crate::i18n::{TextCatalog, TextKey};

/// Mode that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Everything that is configured.
    Run,
    /// A chat in the terminal, and nothing else.
    Chat,
    /// The agent server, and nothing else.
    Serve,
}

/// Role of the agent server in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeMode {
    /// The server was asked for, or is all there is: if it cannot listen, that is a failure to start. Otherwise the chat
    /// goes on without it.
    pub needed: bool,
    /// The server goes on when there is nothing more to read. Not beside a chat in a terminal, which a person leaves.
    pub stays: bool,
}

/// The platforms of this process.
#[derive(Default)]
pub struct Platforms {
    /// Accounts, each with the name of its entry.
    pub accounts: Vec<(AccountId, Arc<dyn Platform>)>,
    /// A person chats on this process' terminal.
    pub terminal: bool,
    /// Accounts that belong to the person who started the process.
    pub owned: Vec<AccountId>,
    /// Consoles that have nothing to read.
    pub without_input: Vec<AccountId>,
    /// The console that prompts are piped into, if there is one.
    pub pipe: Option<Arc<Console>>,
    /// The console that somebody types into, if there is one.
    pub screen: Option<Arc<Console>>,
    /// Whether the agent server is served, as [`Config::server`] says; `None` if it is not.
    pub serve: Option<ServeMode>,
}

/// Builds the configured accounts; the console if there are none and a person might type, or if it is asked for alone.
pub fn build(config: &Config, mode: RunMode) -> anyhow::Result<Platforms> {
    let plan = plan_of(config, mode);
    let mut platforms = Platforms { serve: plan.serve, ..Platforms::default() };
    if plan.console {
        platforms.add_console("console".into(), &config.rules.words)?;
    }
    if !plan.platforms {
        return Ok(platforms);
    }
    for (name, entry) in &config.platforms {
        match entry.settings().open() {
            AccountPlatform::Terminal => platforms.add_console(name.clone(), &config.rules.words)?,
            AccountPlatform::Network(platform) => platforms.accounts.push((name.clone(), platform)),
        }
    }
    Ok(platforms)
}

/// Whether the agent server would be served in this mode, and how.
pub fn serves(config: &Config, mode: RunMode) -> Option<ServeMode> {
    plan_of(config, mode).serve
}

fn plan_of(config: &Config, mode: RunMode) -> PlatformPlan {
    plan(mode, config.server.as_ref(), !config.platforms.is_empty(), stdin_kind())
}

/// Parts that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlatformPlan {
    /// The configured accounts.
    platforms: bool,
    /// A console although none is configured.
    console: bool,
    serve: Option<ServeMode>,
}

/// Decides which parts run. A pipe has one prompt per line and then ends; a port that nobody asked for would only be in
/// its way. Where nothing can be typed, a server is all there is.
fn plan(mode: RunMode, server: Option<&ServerConfig>, configured: bool, stdin: StdinKind) -> PlatformPlan {
    let all = Some(ServeMode { needed: true, stays: true });
    let explicit = server.is_some_and(|server| server.explicit);
    match (mode, stdin) {
        (RunMode::Serve, _) => PlatformPlan { platforms: false, console: false, serve: all },
        (RunMode::Chat, _) => PlatformPlan { platforms: false, console: true, serve: None },
        (RunMode::Run, _) if configured => {
            PlatformPlan { platforms: true, console: false, serve: all.filter(|_| server.is_some()) }
        }
        (RunMode::Run, StdinKind::Terminal) => {
            let beside = server.map(|_| ServeMode { needed: explicit, stays: false });
            PlatformPlan { platforms: false, console: true, serve: beside }
        }
        (RunMode::Run, StdinKind::Lines) => {
            PlatformPlan { platforms: false, console: true, serve: all.filter(|_| explicit) }
        }
        (RunMode::Run, StdinKind::Nothing) => {
            let serve = all.filter(|_| server.is_some());
            PlatformPlan { platforms: false, console: serve.is_none(), serve }
        }
    }
}

impl Platforms {
    fn add_console(&mut self, name: AccountId, words: &TextCatalog) -> anyhow::Result<()> {
        self.terminal = stdin_kind() == StdinKind::Terminal;
        if stdin_kind() == StdinKind::Nothing {
            self.without_input.push(name.clone());
        }
        let wording = ConsoleTexts {
            greeting: words.say(&TextKey::ConsoleGreeting.into()),
            leaving: words.say(&TextKey::ConsoleLeaving.into()),
            quit: words.say(&TextKey::ConsoleQuit.into()),
            replaced: words.say(&TextKey::ConsoleReplaced.into()),
            interrupted: words.say(&TextKey::NoRetryInterrupted.into()),
            too_long: words.say(&TextKey::ConsoleTooLong.with("mib", LONGEST_LINE / (1024 * 1024))),
        };
        let console = Console::new(ConsoleInput::stdin(), ConsoleOutput::stdio(), wording)
            .context("the console could not be opened")?;
        let console = Arc::new(console);
        match stdin_kind() {
            StdinKind::Lines => self.pipe = Some(console.clone()),
            StdinKind::Terminal => self.screen = Some(console.clone()),
            StdinKind::Nothing => {}
        }
        self.owned.push(name.clone());
        self.accounts.push((name, console));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that run: the configured platforms, the console, and the server if it is served (`!` if it must be, `+` if
    /// it goes on when nothing is left to read).
    fn there(mode: RunMode, server: Option<bool>, configured: bool, stdin: StdinKind) -> String {
        let server = server.map(|explicit| ServerConfig { explicit, ..ServerConfig::default() });
        let PlatformPlan { platforms, console, serve } = plan(mode, server.as_ref(), configured, stdin);
        let serve = serve.map(|ServeMode { needed, stays }| {
            format!("server{}{}", if needed { "!" } else { "" }, if stays { "+" } else { "" })
        });
        let parts = [platforms.then(|| "platforms".to_owned()), console.then(|| "console".to_owned()), serve];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_there_depends_on_what_is_asked_for_and_who_can_type() {
        use StdinKind::{Lines, Nothing, Terminal};
        for (server, stdin, is_there) in [
            (Some(false), Terminal, "console server"),
            (Some(true), Terminal, "console server!"),
            (None, Terminal, "console"),
            (Some(false), Lines, "console"),
            (Some(true), Lines, "console server!+"),
            (None, Lines, "console"),
            (Some(false), Nothing, "server!+"),
            (Some(true), Nothing, "server!+"),
            (None, Nothing, "console"),
        ] {
            assert_eq!(there(RunMode::Run, server, false, stdin), is_there, "{server:?} {stdin:?}");
        }
        for stdin in [Terminal, Lines, Nothing] {
            assert_eq!(there(RunMode::Run, None, true, stdin), "platforms");
            assert_eq!(there(RunMode::Run, Some(true), true, stdin), "platforms server!+");
            for configured in [true, false] {
                assert_eq!(there(RunMode::Serve, Some(true), configured, stdin), "server!+");
                assert_eq!(there(RunMode::Chat, Some(true), configured, stdin), "console");
            }
        }
    }
}
