//! `talaria matrix …`: the operator's commands for Matrix accounts.
//!
//! While the gateway runs, it is asked; otherwise the account is opened here. `render` formats the answers,
//! `verify_prompt` walks through a verification.

use clap::{ArgMatches, Args, Command, FromArgMatches as _, Subcommand};
use talaria_platform::operator::OutputFormat;
use talaria_platform::{AccountLink, CommandFailure, CommandReport, OperatorError};

use super::requests::{DOCTOR, STATUS, VERIFICATIONS, VERIFY, VerificationList, VerifyRequest};
use super::{AccountStatus, DoctorReport, render, verify_prompt};
use crate::config::MatrixSettings;
use crate::{VerificationView, VerifyAnswer};

/// Arguments of `talaria matrix`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(
    after_help = "Examples:\n  talaria matrix login             logs in and makes a device, before the first start\n  talaria matrix doctor            what is wrong, and how to mend it\n  talaria matrix verify            compare pictures with somebody who wants to be sure\n  talaria matrix status --account support\n\nThe account is configured by the MATRIX_ variables (talaria env) or in talaria.yaml."
)]
struct MatrixArgs {
    /// The subcommand to run
    #[command(subcommand)]
    command: MatrixCommand,
}

/// Commands for an account.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum MatrixCommand {
    /// Log in and set the device up, without starting the gateway
    #[command(
        after_help = "The gateway does the same by itself on its first start. The password or token is the one that is\nconfigured; without a recovery key, one is made and written to a file."
    )]
    Login(OutputFormat),
    /// Say who we are there: account, device, fingerprint, whether it is signed and backed up
    Status(OutputFormat),
    /// Go on with verifications that people have begun in their clients
    #[command(
        after_help = "In your client, open the profile of the account, choose to verify it, then run\n  talaria matrix verify\nand compare the pictures. Step by step, also for scripts:\n  talaria matrix verify list\n  talaria matrix verify accept 1       shows the pictures\n  talaria matrix verify confirm 1      they are the same\n  talaria matrix verify mismatch 1     they are not"
    )]
    Verify {
        /// One step only [default: walk through it]
        #[command(subcommand)]
        step: Option<VerifyStep>,
        /// Output format of the list
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Look at device, cross-signing, backup, one-time keys, clock and limits; exit code 1 if something is wrong
    Doctor(OutputFormat),
    /// Log the device out and remove its store; the gateway must not run
    #[command(
        after_help = "What only this device could read is lost unless the key backup has it (talaria matrix doctor).\nThe recovery key in the folder stays."
    )]
    Logout {
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Remove what is on this disk without telling the homeserver, when that is gone
        #[arg(long)]
        here_only: bool,
    },
}

/// One step of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum VerifyStep {
    /// List those that wait
    List(OutputFormat),
    /// Begin, and show the pictures
    Accept(ChosenVerification),
    /// The pictures are the same on both sides
    Confirm(ChosenVerification),
    /// They are not: somebody is in between
    Mismatch(ChosenVerification),
    /// Break it off
    Cancel(ChosenVerification),
}

/// The verification that a step is for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
struct ChosenVerification {
    /// Which, from the list
    id: String,
    /// Output format of the answer
    #[command(flatten)]
    output: OutputFormat,
}

/// The command with all its arguments.
pub(crate) fn command() -> Command {
    MatrixArgs::augment_args(Command::new("matrix"))
        .about("Look after Matrix accounts: log in and out, verify people, find out what is wrong")
        .long_about(None)
}

/// Runs a command for an account of the running gateway.
pub(crate) async fn run_there(
    arguments: &ArgMatches,
    account: &dyn AccountLink,
) -> Result<CommandReport, CommandFailure> {
    match read(arguments)? {
        MatrixCommand::Login(output) | MatrixCommand::Status(output) => {
            let status: AccountStatus = account.ask(STATUS, &()).await?;
            report(output.show(&status, |status| render::status(status, true))?, true)
        }
        MatrixCommand::Doctor(output) => {
            let health: DoctorReport = account.ask(DOCTOR, &()).await?;
            report(output.show(&health, render::health)?, health.is_well())
        }
        MatrixCommand::Verify { step: None, output } if verify_prompt::is_possible(output) => {
            Ok(verify_prompt::through(account).await?)
        }
        MatrixCommand::Verify { step, output } => {
            // `--json` holds on either side of the step.
            let wanted = |own: OutputFormat| if output.is_json() { output } else { own };
            let (chosen, answer) = match step {
                Some(VerifyStep::Accept(chosen)) => (chosen, VerifyAnswer::Accept),
                Some(VerifyStep::Confirm(chosen)) => (chosen, VerifyAnswer::Match),
                Some(VerifyStep::Mismatch(chosen)) => (chosen, VerifyAnswer::Differ),
                Some(VerifyStep::Cancel(chosen)) => (chosen, VerifyAnswer::Cancel),
                Some(VerifyStep::List(own)) => return list(account, wanted(own)).await,
                None => return list(account, output).await,
            };
            let request = VerifyRequest { id: chosen.id, answer };
            let verification: VerificationView = account.ask(VERIFY, &request).await?;
            report(wanted(chosen.output).show(&verification, render::verification)?, true)
        }
        MatrixCommand::Logout { .. } => Err(OperatorError {
            message: "talaria runs and uses the account".to_owned(),
            hint: "stop it first, then log out".to_owned(),
        }
        .into()),
    }
}

/// Runs a command for an account while no gateway runs.
pub(crate) async fn run_here(
    arguments: &ArgMatches,
    settings: &MatrixSettings,
) -> Result<CommandReport, CommandFailure> {
    match read(arguments)? {
        MatrixCommand::Login(output) => {
            let status = super::log_in(settings).await?;
            report(output.show(&status, |status| render::status(status, false))?, status.signed)
        }
        MatrixCommand::Status(output) => {
            let status = super::status(settings).await?;
            report(output.show(&status, |status| render::status(status, false))?, true)
        }
        MatrixCommand::Doctor(output) => {
            let health = super::doctor(settings).await?;
            report(output.show(&health, render::health)?, health.is_well())
        }
        MatrixCommand::Verify { .. } => Err(CommandFailure::NotRunning),
        MatrixCommand::Logout { yes, here_only } => {
            if !yes && !verify_prompt::agrees_to_log_out()? {
                return report("Nothing was changed.".to_owned(), false);
            }
            super::log_out(settings, here_only).await?;
            report(
                "Logged out. The device's store is removed; a recovery key in the folder stays.".to_owned(),
                true,
            )
        }
    }
}

/// The command as the core's command line has parsed it.
fn read(arguments: &ArgMatches) -> Result<MatrixCommand, OperatorError> {
    let read = MatrixArgs::from_arg_matches(arguments);
    read.map(|arguments| arguments.command).map_err(|error| OperatorError {
        message: error.to_string(),
        hint: "see `talaria matrix --help`".to_owned(),
    })
}

async fn list(account: &dyn AccountLink, output: OutputFormat) -> Result<CommandReport, CommandFailure> {
    let list: VerificationList = account.ask(VERIFICATIONS, &()).await?;
    report(output.show(&list, render::verifications)?, true)
}

fn report(text: String, well: bool) -> Result<CommandReport, CommandFailure> {
    Ok(CommandReport { text, well })
}
