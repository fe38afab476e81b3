//! `talaria test ask ACTION`: an operator command of the test network, so that scenes can see how commands of a kind
//! reach an account.

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use talaria_platform::operator::write_answer;
use talaria_platform::{
    AccountLink, CommandFailure, CommandReport, OperatorError, OperatorRequest, RequestRefusal,
};

use super::TestConfig;

/// The action that tells the socket, with or without a gateway.
const SOCKET: &str = "socket";

/// The action that always fails.
const FAIL: &str = "fail";

/// The action with a question that no command sends.
const TYPED: &str = "typed";

/// Answer to [`SOCKET`].
#[derive(Serialize)]
struct SocketAnswer {
    socket: String,
    /// Whether the running gateway answers.
    running: bool,
}

pub(super) fn command() -> Command {
    let action = Arg::new("ACTION").required(true).help("The action that the account is asked for");
    let ask = Command::new("ask").about("Send a request to an account").arg(action);
    Command::new("test")
        .about("Look after accounts on the test network")
        .subcommand_required(true)
        .subcommand(ask)
}

pub(super) async fn run_there(
    arguments: &ArgMatches,
    account: &dyn AccountLink,
) -> Result<CommandReport, CommandFailure> {
    let answer = account.request(&action(arguments), serde_json::Value::Null).await?;
    Ok(CommandReport { text: String::from_utf8_lossy(&answer).into_owned(), well: true })
}

pub(super) async fn run_here(
    arguments: &ArgMatches,
    config: &TestConfig,
) -> Result<CommandReport, CommandFailure> {
    match action(arguments).as_str() {
        SOCKET => Ok(CommandReport { text: config.socket.display().to_string(), well: true }),
        _ => Err(CommandFailure::NotRunning),
    }
}

pub(super) async fn answer(
    config: &TestConfig,
    request: OperatorRequest<'_>,
) -> Result<Vec<u8>, RequestRefusal> {
    match request.action {
        SOCKET => write_answer(&SocketAnswer { socket: config.socket.display().to_string(), running: true }),
        FAIL => Err(OperatorError {
            message: "the test network\nis away".to_owned(),
            hint: "start the test again".to_owned(),
        }
        .into()),
        TYPED => write_answer(&request.read::<Vec<String>>()?),
        _ => Err(RequestRefusal::UnknownAction),
    }
}

fn action(arguments: &ArgMatches) -> String {
    let ask = arguments.subcommand().and_then(|(_, ask)| ask.get_one::<String>("ACTION"));
    ask.cloned().unwrap_or_default()
}
