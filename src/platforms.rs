//! Builds the configured platforms: the only file that knows which adapters are compiled in. It also decides what is
//! there besides them, because standard input has a say in that: the console, and whether the agent server is served.

use std::sync::Arc;

use anyhow::Context as _;
use talaria_console::{Console, Input, LONGEST_LINE, Output, StdinKind, Wording, stdin_kind};
use talaria_platform::{AccountId, Platform};

use crate::config::{Config, PlatformConfig, ServerConfig};
use crate::words::{Text, Words};

/// What was asked for on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whatever is configured.
    Run,
    /// A chat in the terminal, and nothing else.
    Chat,
    /// The agent server, and nothing else.
    Serve,
}

/// How the agent server is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Somebody asked for it, or it is all there is: if it cannot listen, that is a failure to start. Otherwise the
    /// chat goes on without it.
    pub needed: bool,
    /// It goes on when there is nothing more to read. Not beside a chat in a terminal, which somebody leaves.
    pub stays: bool,
}

/// The platforms of this process.
#[derive(Default)]
pub struct Platforms {
    /// Each with the name of its entry.
    pub accounts: Vec<(AccountId, Arc<dyn Platform>)>,
    /// A person chats on this process' terminal.
    pub terminal: bool,
    /// Those that belong to whoever started the process.
    pub owned: Vec<AccountId>,
    /// Consoles that have nothing to read.
    pub deaf: Vec<AccountId>,
    /// The console that prompts are piped into, if there is one.
    pub pipe: Option<Arc<Console>>,
    /// The console that somebody types into, if there is one.
    pub screen: Option<Arc<Console>>,
    /// Whether the agent server is served, as [`Config::server`] says; `None` if it is not.
    pub serve: Option<Serve>,
    /// The Matrix accounts among them once more, for what only their operator does.
    #[cfg(feature = "matrix")]
    pub matrix: Vec<(AccountId, Arc<talaria_matrix::Matrix>)>,
}

/// Builds what is configured; the console if nothing is and somebody might type, or if it is asked for alone.
pub fn build(config: &Config, mode: Mode) -> anyhow::Result<Platforms> {
    let plan = plan_of(config, mode);
    let mut platforms = Platforms { serve: plan.serve, ..Platforms::default() };
    if plan.console {
        platforms.add_console("console".into(), &config.rules.words)?;
    }
    if !plan.platforms {
        return Ok(platforms);
    }
    for (name, entry) in &config.platforms {
        match entry {
            PlatformConfig::Console => platforms.add_console(name.clone(), &config.rules.words)?,
            #[cfg(feature = "matrix")]
            PlatformConfig::Matrix(settings) => {
                let matrix = Arc::new(talaria_matrix::Matrix::new((**settings).clone()));
                platforms.accounts.push((name.clone(), matrix.clone()));
                platforms.matrix.push((name.clone(), matrix));
            }
            #[cfg(feature = "testing")]
            PlatformConfig::Test(test) => {
                let network = crate::testing::network::Network::new(test.clone());
                platforms.accounts.push((name.clone(), Arc::new(network)));
            }
        }
    }
    Ok(platforms)
}

/// Whether the agent server would be served in this mode, and how.
pub fn serves(config: &Config, mode: Mode) -> Option<Serve> {
    plan_of(config, mode).serve
}

fn plan_of(config: &Config, mode: Mode) -> Plan {
    plan(mode, config.server.as_ref(), !config.platforms.is_empty(), stdin_kind())
}

/// What of it all is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// What is configured.
    platforms: bool,
    /// The console that nobody configured.
    console: bool,
    serve: Option<Serve>,
}

/// Decides what is there. A pipe has one prompt per line and then ends; a port that nobody asked for would only be in
/// its way. Where nothing can be typed, a server is all there is.
fn plan(mode: Mode, server: Option<&ServerConfig>, configured: bool, stdin: StdinKind) -> Plan {
    let all = Some(Serve { needed: true, stays: true });
    let explicit = server.is_some_and(|server| server.explicit);
    match (mode, stdin) {
        (Mode::Serve, _) => Plan { platforms: false, console: false, serve: all },
        (Mode::Chat, _) => Plan { platforms: false, console: true, serve: None },
        (Mode::Run, _) if configured => {
            Plan { platforms: true, console: false, serve: all.filter(|_| server.is_some()) }
        }
        (Mode::Run, StdinKind::Terminal) => {
            let beside = server.map(|_| Serve { needed: explicit, stays: false });
            Plan { platforms: false, console: true, serve: beside }
        }
        (Mode::Run, StdinKind::Lines) => {
            Plan { platforms: false, console: true, serve: all.filter(|_| explicit) }
        }
        (Mode::Run, StdinKind::Nothing) => {
            let serve = all.filter(|_| server.is_some());
            Plan { platforms: false, console: serve.is_none(), serve }
        }
    }
}

impl Platforms {
    fn add_console(&mut self, name: AccountId, words: &Words) -> anyhow::Result<()> {
        self.terminal = stdin_kind() == StdinKind::Terminal;
        if stdin_kind() == StdinKind::Nothing {
            self.deaf.push(name.clone());
        }
        let wording = Wording {
            greeting: words.say(&Text::ConsoleGreeting.into()),
            leaving: words.say(&Text::ConsoleLeaving.into()),
            quit: words.say(&Text::ConsoleQuit.into()),
            replaced: words.say(&Text::ConsoleReplaced.into()),
            interrupted: words.say(&Text::NoRetryInterrupted.into()),
            too_long: words.say(&Text::ConsoleTooLong.with("mib", LONGEST_LINE / (1024 * 1024))),
        };
        let console = Console::new(Input::stdin(), Output::stdio(), wording)
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

    /// What is there: the configured platforms, the console, and the server if it is served (`!` if it must be, `+` if
    /// it goes on when nothing is left to read).
    fn there(mode: Mode, server: Option<bool>, configured: bool, stdin: StdinKind) -> String {
        let server = server.map(|explicit| ServerConfig { explicit, ..ServerConfig::default() });
        let Plan { platforms, console, serve } = plan(mode, server.as_ref(), configured, stdin);
        let serve = serve.map(|Serve { needed, stays }| {
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
            assert_eq!(there(Mode::Run, server, false, stdin), is_there, "{server:?} {stdin:?}");
        }
        for stdin in [Terminal, Lines, Nothing] {
            assert_eq!(there(Mode::Run, None, true, stdin), "platforms");
            assert_eq!(there(Mode::Run, Some(true), true, stdin), "platforms server!+");
            for configured in [true, false] {
                assert_eq!(there(Mode::Serve, Some(true), configured, stdin), "server!+");
                assert_eq!(there(Mode::Chat, Some(true), configured, stdin), "console");
            }
        }
    }
}
