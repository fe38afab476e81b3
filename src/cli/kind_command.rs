//! `talaria <kind> …`: commands that a kind of platform has for its accounts.
//!
//! While the gateway runs, the command asks it over the control socket. Otherwise the account is opened here, under the
//! same locks.

use std::process::ExitCode;
use std::time::Duration;

use axum::http::StatusCode;
use clap::{Arg, ArgMatches, Command, Error, FromArgMatches, Subcommand};
use serde_json::Value;
use talaria_platform::{AccountLink, BoxFuture, CommandFailure, CommandReport, OperatorError, PlatformKind};

use super::{complain_about, print};
use crate::config::{Config, ConfigSources, env};
use crate::control::accounts::choose;
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::{CommandError, ErrorDetail};
use crate::platforms::{self, KINDS};
use crate::state_dir::StateDir;

/// Name of the argument that chooses the account.
const ACCOUNT: &str = "account";

/// A command of a kind, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindCommand {
    /// Name of the kind.
    kind: String,
    arguments: ArgMatches,
}

impl Subcommand for KindCommand {
    fn augment_subcommands(command: Command) -> Command {
        let account = Arg::new(ACCOUNT)
            .long(ACCOUNT)
            .global(true)
            // First, as in a command that declares it before its subcommands.
            .display_order(0)
            .value_name("NAME")
            .help("The account, by the name of its entry in the configuration [default: the only one]");
        let commands = KINDS.iter().filter_map(|kind| Some(kind.command()?.name(kind.name())));
        commands.fold(command, |command, own| command.subcommand(own.arg(account.clone())))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        platforms::find(name).is_some_and(|kind| kind.command().is_some())
    }
}

impl FromArgMatches for KindCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match matches.subcommand() {
            Some((kind, arguments)) => Ok(Self { kind: kind.to_owned(), arguments: arguments.clone() }),
            None => Err(Error::new(clap::error::ErrorKind::MissingSubcommand)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs a command of a kind.
pub fn run(command: &KindCommand, sources: &ConfigSources) -> ExitCode {
    // Keys are in memory here too.
    crate::gateway::harden();
    let home = match crate::config::home(&env::process) {
        Ok(home) => home,
        Err(error) => return complain_about(&CommandError::config(vec![error])),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain_about(&CommandError::wrong(error.to_string(), "try again")),
    };
    let done = runtime.block_on(Box::pin(async {
        match ControlClient::open(&home, sources, CommandNeed::Running).await {
            Ok(client) => command.run_there(client).await,
            Err(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => {
                command.run_here(sources).await
            }
            Err(problem) => Err(problem),
        }
    }));
    runtime.shutdown_timeout(Duration::from_millis(500));
    match done {
        Ok(CommandReport { text, well }) => {
            let printed = print(&text);
            if well { printed } else { ExitCode::FAILURE }
        }
        Err(problem) => complain_about(&problem),
    }
}

impl KindCommand {
    fn kind(&self) -> Result<&'static dyn PlatformKind, CommandError> {
        platforms::find(&self.kind).ok_or_else(|| {
            CommandError::missing("no kind of platform is called like this", "see `talaria --help`")
        })
    }

    fn account(&self) -> Option<&String> {
        self.arguments.get_one(ACCOUNT)
    }

    /// Asks the running gateway.
    async fn run_there(&self, client: ControlClient) -> Result<CommandReport, CommandError> {
        let kind = self.kind()?;
        let link = ControlLink { client, kind: kind.name(), account: self.account().cloned() };
        kind.run_command(&self.arguments, &link).await.map_err(|failure| match failure {
            CommandFailure::Failed(error) => error.into(),
            CommandFailure::NotRunning => CommandError::wrong(
                "this command cannot be run while the gateway runs",
                "stop it first, then try again",
            ),
        })
    }

    /// Opens the account in this process, because nothing runs.
    async fn run_here(&self, sources: &ConfigSources) -> Result<CommandReport, CommandError> {
        let kind = self.kind()?;
        let config = Config::load(sources, &env::process).map_err(CommandError::config)?;
        let accounts = config.platforms.iter().filter(|(_, account)| account.kind().name() == kind.name());
        let (_, account) = choose(kind, accounts, self.account().map(String::as_str))?;
        // Keeps a gateway from starting in the middle.
        let _home = StateDir::take(&config.home).map_err(|error| {
            let hint = error.hint.unwrap_or("check the rights of the state folder");
            CommandError::new(StatusCode::CONFLICT, format!("{:#}", error.error), hint)
        })?;
        account.settings().run_command(&self.arguments).await.map_err(|failure| match failure {
            CommandFailure::Failed(error) => error.into(),
            CommandFailure::NotRunning => CommandError::not_running(&config.home),
        })
    }
}

/// An account of the running gateway.
struct ControlLink {
    client: ControlClient,
    kind: &'static str,
    account: Option<String>,
}

impl AccountLink for ControlLink {
    fn request<'a>(
        &'a self,
        action: &'a str,
        question: Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, OperatorError>> {
        let mut question = match question {
            Value::Object(question) => question,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                serde_json::Map::new()
            }
        };
        question.insert(ACCOUNT.to_owned(), self.account.clone().into());
        Box::pin(async move {
            let path = format!("/{}/{action}", self.kind);
            self.client.post_raw(&path, &question).await.map_err(|problem| {
                // The routes of kinds report one problem at a time.
                let first = problem.complaints.into_iter().next();
                let ErrorDetail { message, hint } =
                    first.unwrap_or(ErrorDetail { message: String::new(), hint: None });
                OperatorError { message, hint: hint.unwrap_or_default() }
            })
        })
    }
}
