//! The command line: arguments, output and errors.
#![expect(clippy::print_stderr, reason = "this is the command line's own voice")]

pub mod ask;
mod audit;
pub mod check;
mod codex;
pub mod kind_command;
pub mod mcp;
pub mod operator;
mod render;
mod table;
mod token;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use crate::agents::process::EndPatience;
use crate::agents::process::shim::{self, SUBCOMMAND, ShimRequest};
use crate::control::CommandError;
use crate::i18n::TextCatalog;

/// Exit code of a configuration error in `sysexits.h`.
pub const EX_CONFIG: u8 = 78;

/// Talk to your AI agent from the chat rooms you already live in.
///
/// Without any configuration this is a chat in the terminal, and an agent server on port 8642. With
/// GATEWAY_PROXY_URL it relays to an agent server; with OPENAI_BASE_URL and OPENAI_MODEL it talks to a model
/// directly. Chat networks are configured in talaria.yaml.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// The configuration file [default: $TALARIA_CONFIG, $TALARIA_HOME/talaria.yaml, ./talaria.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The command [default: run]
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

const EXAMPLES: &str = "\
Examples:
  talaria                                     chat in the terminal
  echo 'What is Rust?' | talaria              one prompt per line, answers on standard output
  talaria ask 'What is Rust?'                 one question to the talaria that runs, or to another server
  GATEWAY_PROXY_URL=http://127.0.0.1:8642 GATEWAY_PROXY_KEY=... talaria
  talaria check                               what would run, and what is wrong
  talaria env                                 every environment variable
  talaria status                              what the running one does
  talaria pairing approve ABCD-2345           lets in the person with this code
  talaria serve                               the agent server alone, for other programs
  talaria token add phone                     a token for one of them
  talaria codex on                            has codex run the agent's turns
  talaria audit --denied --since 24h          who was refused today";

/// Commands of `talaria`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum CliCommand {
    /// Run the gateway (this is the default)
    Run,
    /// Chat in the terminal, whatever platforms are configured
    Chat,
    /// Ask an agent of a Talaria server once, from a shell or a script
    #[command(after_help = ask::HELP)]
    Ask(ask::AskArguments),
    /// Serve other programs over HTTP, whatever platforms are configured
    #[command(
        after_help = "Listens on 127.0.0.1:8642 unless API_SERVER_HOST and API_SERVER_PORT say otherwise, and asks for the\nkey in api.key of the state folder unless API_SERVER_KEY is set.\n\nExamples:\n  talaria serve\n  curl http://127.0.0.1:8642/health"
    )]
    Serve,
    /// Check the configuration and say what would run, without starting anything
    #[command(
        after_help = "Exit code 0 if it would run, if only with warnings; 1 if it could not start, or would leave every message\nunanswered; 78 if the configuration is wrong.\n\nExamples:\n  talaria check\n  talaria check --serve && talaria serve"
    )]
    Check {
        /// Check what `talaria serve` would run
        #[arg(long)]
        serve: bool,
    },
    /// List every environment variable: category, meaning, default, and whether it is secret
    Env,
    /// List every text that Talaria writes into rooms, ready to be changed under `words:` in the configuration
    Words {
        /// The language of the texts [default: as configured, with your own wordings]
        #[arg(long, value_parser = PossibleValuesParser::new(TextCatalog::languages()))]
        language: Option<String>,
    },
    /// Offer tools of the running talaria to a program that speaks MCP, such as codex
    #[command(after_help = mcp::HELP)]
    Mcp(mcp::McpArguments),
    /// Run a command for a running talaria, which holds the other end of standard input
    #[command(name = SUBCOMMAND, hide = true)]
    RunChild(ChildArguments),
    /// Commands of a kind of platform.
    #[command(flatten)]
    OfKind(kind_command::KindCommand),
    /// Commands of the operator.
    #[command(flatten)]
    Operate(operator::OperatorCommand),
}

/// Arguments of the shim; see [`shim`].
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ChildArguments {
    /// Milliseconds between the end of input and SIGTERM
    #[arg(long)]
    after_eof_ms: u64,
    /// Milliseconds between SIGTERM and SIGKILL
    #[arg(long)]
    after_term_ms: u64,
    /// Pass standard input on to the command
    #[arg(long)]
    input: bool,
    /// The command
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl ChildArguments {
    /// Runs the command to its end; see [`shim::run`].
    pub fn run(&self) -> ExitCode {
        let mut words = self.command.iter().cloned();
        let request = ShimRequest {
            program: words.next().unwrap_or_default(),
            args: words.collect(),
            has_input: self.input,
            patience: EndPatience {
                after_eof: Duration::from_millis(self.after_eof_ms),
                after_term: Duration::from_millis(self.after_term_ms),
            },
        };
        ExitCode::from(shim::run(&request))
    }
}

impl Cli {
    /// Parses the command line. An error ends the process; a whole question in place of a command gets a hint
    /// how to ask it.
    pub fn parse_or_explain() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            let is_question =
                |word: &clap::error::ContextValue| word.to_string().contains(char::is_whitespace);
            // A missing subcommand has this context too: the command that lacks it, such as `talaria token`.
            let is_unknown = error.kind() == clap::error::ErrorKind::InvalidSubcommand;
            let word = error.get(clap::error::ContextKind::InvalidSubcommand);
            if is_unknown && word.is_some_and(is_question) {
                complain("no command is called like this", Some("to ask something: talaria ask '…'"));
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }
}

/// Prints the answer of a command. A reader who has seen enough (`| head`) is not a failure.
pub fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints an error and its hint.
pub fn complain(message: &str, hint: Option<&str>) {
    eprintln!("error: {message}");
    if let Some(hint) = hint {
        eprintln!("\nhint: {hint}");
    }
}

/// Prints the error of a chat without an input.
pub fn nobody_to_chat_with() -> ExitCode {
    let hint = "run it in a terminal, or pipe prompts into it";
    complain("standard input is closed, so there is nobody to chat with", Some(hint));
    ExitCode::FAILURE
}

/// Prints errors with their hints, separated by blank lines.
pub fn complain_of<'a>(all: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) {
    for (index, (message, hint)) in all.into_iter().enumerate() {
        if index > 0 {
            eprintln!();
        }
        complain(message, hint);
    }
}

/// Prints why a command was not carried out; returns the exit code.
fn complain_about(problem: &CommandError) -> ExitCode {
    complain_of(problem.complaints.iter().map(|one| (one.message.as_str(), one.hint.as_deref())));
    match problem.is_configuration() {
        true => ExitCode::from(EX_CONFIG),
        false => ExitCode::FAILURE,
    }
}
