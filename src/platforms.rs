//! Builds the configured platforms: the only file that knows which adapters are compiled in.

use std::sync::Arc;

use anyhow::Context as _;
use talaria_console::{Console, Input, LONGEST_LINE, Output, StdinKind, Wording, stdin_kind};
use talaria_platform::{AccountId, Platform};

use crate::config::{Config, PlatformConfig};
use crate::words::{Text, Words};

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
    /// The Matrix accounts among them once more, for what only their operator does.
    #[cfg(feature = "matrix")]
    pub matrix: Vec<(AccountId, Arc<talaria_matrix::Matrix>)>,
}

/// Builds what is configured; the console if nothing is, or if `chat` asks for it alone.
pub fn build(config: &Config, chat: bool) -> anyhow::Result<Platforms> {
    let mut platforms = Platforms::default();
    if chat || config.platforms.is_empty() {
        platforms.add_console("console".into(), &config.rules.words)?;
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
            too_long: words.say(&Text::ConsoleTooLong.with("mib", LONGEST_LINE / (1024 * 1024))),
        };
        let console = Console::new(Input::stdin(), Output::stdio(), wording)
            .context("the console could not be opened")?;
        self.owned.push(name.clone());
        self.accounts.push((name, Arc::new(console)));
        Ok(())
    }
}
