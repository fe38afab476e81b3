//! Arguments, logging, configuration, and then the gateway. Everything else is in the library.

use std::process::ExitCode;

use talaria::cli::{Cli, Command, EX_CONFIG, check, operate};
use talaria::config::{Config, Sources, env};
use talaria::platforms::Mode;
use talaria::words::Words;
use talaria::{gateway, logging, platforms};

/// What a large question or answer took is given back soon after. glibc's allocator keeps it for the next one, and each
/// of its arenas keeps its own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse_or_explain();
    let serve = matches!(cli.command, Some(Command::Serve | Command::Check { serve: true }));
    let sources = Sources { config: cli.config, serve, ..Sources::default() };
    match &cli.command {
        Some(Command::Env) => return talaria::cli::print(&env::render()),
        Some(Command::Words { language: Some(language) }) => {
            return talaria::cli::print(&Words::of(language).unwrap_or_default().listing());
        }
        Some(Command::Operate(command)) => return operate::run(command, &sources),
        #[cfg(feature = "matrix")]
        Some(Command::Matrix(args)) => return talaria::cli::matrix::run(args, &sources),
        Some(
            Command::Run
            | Command::Chat
            | Command::Serve
            | Command::Check { .. }
            | Command::Words { language: None },
        )
        | None => {}
    }
    let config = match Config::load(&sources, &env::process) {
        Ok(mut config) => {
            let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            config.warnings.extend(env::misspelt(set));
            config
        }
        Err(errors) => {
            talaria::cli::complain_of(errors.iter().map(|one| (one.message.as_str(), one.hint.as_deref())));
            return ExitCode::from(EX_CONFIG);
        }
    };
    let mode = match cli.command {
        Some(Command::Check { .. }) => return check::run(&config, &sources),
        Some(Command::Words { .. }) => return talaria::cli::print(&config.rules.words.listing()),
        Some(Command::Chat) => Mode::Chat,
        Some(Command::Serve) => Mode::Serve,
        Some(Command::Run | Command::Env | Command::Operate(_)) | None => Mode::Run,
        #[cfg(feature = "matrix")]
        Some(Command::Matrix(_)) => Mode::Run,
    };
    let platforms = match platforms::build(&config, mode) {
        Ok(platforms) => platforms,
        Err(error) => {
            talaria::cli::complain(&format!("{error:#}"), None);
            return ExitCode::FAILURE;
        }
    };
    gateway::harden();
    logging::start(&config, platforms.terminal);
    if mode == Mode::Chat && !platforms.deaf.is_empty() {
        return talaria::cli::nobody_to_chat_with();
    }
    if !platforms.deaf.is_empty() {
        tracing::warn!(
            "standard input is closed, so nothing is read; run talaria in a terminal, or pipe prompts into it"
        );
    }
    match gateway::run(&config, &sources, platforms) {
        Ok(gateway::Ended::Well) => ExitCode::SUCCESS,
        Ok(gateway::Ended::Unanswered) => ExitCode::FAILURE,
        Ok(gateway::Ended::NoPlatformLeft) => ExitCode::from(EX_CONFIG),
        Err(error) => {
            talaria::cli::complain(&format!("{:#}", error.error), error.hint);
            ExitCode::FAILURE
        }
    }
}
