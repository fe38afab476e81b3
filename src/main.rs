//! Arguments, logging, configuration, and then the gateway. Everything else is in the library.

use std::process::ExitCode;

use talaria::cli::{Cli, CliCommand, EX_CONFIG, ask, check, kind_command, mcp, operator};
use talaria::config::{Config, ConfigSources, env};
use talaria::gateway::plan::{self, RunMode};
use talaria::i18n::TextCatalog;
use talaria::{gateway, logging};

/// What a large question or answer took is given back soon after. glibc's allocator keeps it for the next one, and each
/// of its arenas keeps its own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse_or_explain();
    let serve = matches!(cli.command, Some(CliCommand::Serve | CliCommand::Check { serve: true }));
    let sources = ConfigSources { config: cli.config, serve, ..ConfigSources::default() };
    match &cli.command {
        Some(CliCommand::RunChild(child)) => return child.run(),
        Some(CliCommand::Env) => return talaria::cli::print(&env::render()),
        Some(CliCommand::Words { language: Some(language) }) => {
            return talaria::cli::print(&TextCatalog::of(language).unwrap_or_default().listing());
        }
        Some(CliCommand::Ask(arguments)) => return ask::run(arguments, &sources),
        Some(CliCommand::Mcp(arguments)) => return mcp::run(arguments, &sources),
        Some(CliCommand::Operate(command)) => return operator::run(command, &sources),
        Some(CliCommand::OfKind(command)) => return kind_command::run(command, &sources),
        Some(
            CliCommand::Run
            | CliCommand::Chat
            | CliCommand::Serve
            | CliCommand::Check { .. }
            | CliCommand::Words { language: None },
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
        Some(CliCommand::Check { .. }) => return check::run(&config, &sources),
        Some(CliCommand::Words { .. }) => return talaria::cli::print(&config.rules.words.listing()),
        Some(CliCommand::Chat) => RunMode::Chat,
        Some(CliCommand::Serve) => RunMode::Serve,
        Some(
            CliCommand::Run
            | CliCommand::Env
            | CliCommand::Ask(_)
            | CliCommand::RunChild(_)
            | CliCommand::Mcp(_)
            | CliCommand::OfKind(_)
            | CliCommand::Operate(_),
        )
        | None => RunMode::Run,
    };
    let platforms = match plan::build(&config, mode) {
        Ok(platforms) => platforms,
        Err(error) => {
            talaria::cli::complain(&format!("{error:#}"), None);
            return ExitCode::FAILURE;
        }
    };
    gateway::harden();
    logging::start(&config, platforms.terminal);
    if mode == RunMode::Chat && !platforms.without_input.is_empty() {
        return talaria::cli::nobody_to_chat_with();
    }
    if !platforms.without_input.is_empty() {
        tracing::warn!(
            "standard input is closed, so nothing is read; run talaria in a terminal, or pipe prompts into it"
        );
    }
    match gateway::run(&config, &sources, platforms) {
        Ok(gateway::ExitReason::Well) => ExitCode::SUCCESS,
        Ok(gateway::ExitReason::Unanswered) => ExitCode::FAILURE,
        Ok(gateway::ExitReason::NoPlatformLeft) => ExitCode::from(EX_CONFIG),
        Err(error) => {
            talaria::cli::complain(&format!("{:#}", error.error), error.hint);
            ExitCode::FAILURE
        }
    }
}
