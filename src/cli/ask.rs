//! `talaria ask`: asks an agent of any Talaria server once, from a shell or a script.
//!
//! It starts a run (`POST /v1/runs`) and reads its events, so that a broken connection loses nothing: the run goes on, and
//! the events are read from behind the last one that was seen. The answer goes to standard output, everything else to
//! standard error.

mod answer_output;
mod failure;
mod interrupt;
mod prompt;
mod run_client;
mod run_event;
mod run_events;
mod run_follower;
mod server_access;
mod terminal_dialogue;
mod terminal_questions;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use self::answer_output::AnswerOutput;
use self::failure::{AskFailure, FailureExit};
use self::interrupt::Interrupt;
use self::run_client::RunClient;
use self::run_follower::RunFollower;
use super::operator::OutputFormat;
use super::{complain_of, print};
use crate::config::ConfigSources;
use crate::util::random_hex;

/// Random bytes of the key that makes a repeated request the same as one.
const IDEMPOTENCY_KEY: usize = 16;

pub(super) const HELP: &str = "\
The answer goes to standard output as it grows; steps, thoughts and notices go to standard error. Standard input that is
no terminal is read to its end and follows the question, so give a script in a loop `< /dev/null`.

Without --url and TALARIA_URL the talaria that runs on this machine is asked, with the key in its state folder. Another
server needs a key: TALARIA_API_KEY, TALARIA_API_KEY_FILE or --key-file.

When the agent asks for permission or has a question, you are asked at the terminal, also if standard input is a pipe.
Without a terminal, or with --deny, the answer is no. Ctrl-C stops the agent and prints what there is; a second one
leaves at once.

Exit codes:
  0    answered
  1    not answered, or not to its end: the agent failed, was stopped, or something that it asked for was denied
  2    wrong arguments, or nothing to ask
  69   the server cannot be reached, or the connection was lost for good
  77   the server refuses the key, or what was asked with it
  78   wrong configuration of the talaria on this machine
  130  stopped with Ctrl-C

Examples:
  talaria ask 'What is a relay?'
  git diff | talaria ask --session review 'Anything wrong here?'
  talaria ask --file plan.md --file sketch.png 'Does the text fit the picture?'
  talaria ask --agent coder --json 'Run the tests' | jq -r .answer
  talaria ask --url https://agent.example.org --key-file ~/.agent-key 'Good morning'";

/// Arguments of `talaria ask`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AskArguments {
    /// The question; `-` or nothing means standard input
    #[arg(value_name = "QUESTION")]
    words: Vec<String>,
    /// The agent that answers [default: the agent of the session, else the server's default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Continue the conversation of this name, or begin it [default: a new conversation]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Attach a picture or a text file; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// The address of the server [default: $TALARIA_URL, else the talaria that runs on this machine]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file that holds the key for the server [default: $TALARIA_API_KEY, $TALARIA_API_KEY_FILE]
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,
    /// Deny whatever the agent asks for, without asking anybody
    #[arg(long)]
    deny: bool,
    /// Print no steps, thoughts and notices
    #[arg(long, short)]
    quiet: bool,
    /// How long a broken connection or a busy server is tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    retry_for: u32,
    /// Output format
    #[command(flatten)]
    output: OutputFormat,
}

/// What is known of the run and its answer. `--json` prints it at the end, however it ended.
#[derive(Debug, Default, Serialize)]
struct AskReport {
    /// The text as far as it came.
    answer: String,
    /// Whether the agent said all that it wanted.
    complete: bool,
    agent: Option<String>,
    session: Option<String>,
    run_id: Option<String>,
    /// The agent's own word for why it ended, else `stop`, `length` or `error`.
    stop_reason: Option<String>,
    usage: Option<Value>,
    /// Asks of the agent that were denied, by a person, by a rule, or because nobody could be asked.
    denied: usize,
    /// Sentences of the server below the answer.
    remarks: Vec<String>,
    /// Why there is no whole answer.
    error: Option<Value>,
}

/// Asks, prints the answer, and returns the exit code.
pub fn run(arguments: &AskArguments, sources: &ConfigSources) -> ExitCode {
    let mut report = AskReport::default();
    let asked = ask(arguments, sources, &mut report);
    let failure = asked.err();
    let code = failure.as_ref().map_or(ExitCode::SUCCESS, |failure| failure.exit.code());
    report.error = failure.as_ref().map(AskFailure::to_json);
    report.complete = failure.as_ref().is_none_or(|failure| failure.exit == FailureExit::Denied);
    if arguments.output.is_json() {
        let document = serde_json::to_string_pretty(&report)
            .unwrap_or_else(|error| json!({ "error": error.to_string() }).to_string());
        // Printing fails if nobody reads; then nobody reads the reason either.
        let printed = print(&escape_controls(&document));
        if failure.is_none() {
            return printed;
        }
    }
    if let Some(failure) = &failure {
        complain_of(failure.complaints.iter().map(|one| (one.message.as_str(), one.hint.as_deref())));
    }
    code
}

fn ask(arguments: &AskArguments, sources: &ConfigSources, report: &mut AskReport) -> Result<(), AskFailure> {
    // Before anything is connected: it may wait for a person or a program for long, and Ctrl-C must simply end it then.
    let prompt = prompt::read(arguments)?;
    let failed = |error: std::io::Error| AskFailure::unanswered(format!("no runtime could be made: {error}"));
    // A worker beside this thread: a write to a pipe that nobody reads blocks, and a second Ctrl-C must still end us.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    let asked = runtime.block_on(Box::pin(async {
        let interrupt = Interrupt::watch().map_err(failed)?;
        tokio::select! {
            biased;
            asked = converse(arguments, sources, &prompt, report, &interrupt) => asked,
            // Until there is a run, nothing has to be stopped.
            () = interrupt.before_run() => Err(interrupt.failure()),
        }
    }));
    // A thread that reads the terminal must not hold the process.
    runtime.shutdown_background();
    asked
}

/// Starts the run and reads it to its end.
async fn converse(
    arguments: &AskArguments,
    sources: &ConfigSources,
    prompt: &Value,
    report: &mut AskReport,
    interrupt: &Interrupt,
) -> Result<(), AskFailure> {
    let access = server_access::find(arguments, sources).await?;
    let retry_for = Duration::from_secs(arguments.retry_for.into());
    let client = RunClient::new(access, retry_for)?;
    if let Some(agent) = &arguments.agent {
        client.check_agent(agent).await?;
    }
    let body = prompt::request(prompt, arguments)?;
    interrupt.run_begins();
    let started = client.start(body, &random_hex(IDEMPOTENCY_KEY), interrupt).await?;
    report.run_id = Some(started.run.as_str().to_owned());
    report.session = Some(started.session);
    report.agent = started.agent;
    let mut output = AnswerOutput::stdio(arguments.output.is_json(), arguments.quiet);
    let follower = RunFollower::new(&client, started.run, arguments.deny, &mut output);
    let followed = follower.follow(interrupt, report).await;
    let ended = output.end();
    report.answer = output.into_answer();
    followed.and(ended)
}

/// JSON in which control characters and direction marks are escaped, so that a terminal shows it and does not obey it. They
/// occur only inside its texts, but for the line ends of the document.
fn escape_controls(document: &str) -> String {
    let mut escaped = String::with_capacity(document.len());
    for c in document.chars() {
        let is_mark = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c.is_control() && c != '\n' || is_mark {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_cannot_drive_a_terminal_and_stays_the_same() {
        let value = json!({ "answer": "\u{1b}[2J \u{9b}31m \u{7f} \u{202e} ü\n" });
        let escaped = escape_controls(&serde_json::to_string_pretty(&value).unwrap());
        assert!(
            escaped.chars().all(|c| c == '\n' || !c.is_control()) && !escaped.contains('\u{202e}'),
            "{escaped}"
        );
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
    }
}
