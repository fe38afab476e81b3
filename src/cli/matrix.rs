//! `talaria matrix …`: what the operator does with Matrix accounts.
//!
//! While the gateway runs, it is asked over the control socket. Otherwise the account is opened here, under the same
//! locks. How the answers look is in `render`, the walk through a verification in `verify_prompt`.

mod render;
mod verify_prompt;

use std::process::ExitCode;

use axum::http::StatusCode;
use clap::{Args, Subcommand};
use talaria_matrix::{AccountStatus, DoctorReport, MatrixSettings, VerificationView, VerifyAnswer};

use super::operator::OutputFormat;
use super::{complain_about, print};
use crate::config::{Config, ConfigSources, PlatformConfig, env};
use crate::control::CommandError;
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::matrix::{AccountRequest, VerificationList, VerifyRequest, choose};
use crate::state_dir::StateDir;

/// Which account, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(
    after_help = "Examples:\n  talaria matrix login             logs in and makes a device, before the first start\n  talaria matrix doctor            what is wrong, and how to mend it\n  talaria matrix verify            compare pictures with somebody who wants to be sure\n  talaria matrix status --account support\n\nThe account is configured by the MATRIX_ variables (talaria env) or in talaria.yaml."
)]
pub struct MatrixArgs {
    /// The account, by the name of its entry in the configuration [default: the only one]
    #[arg(long, global = true, value_name = "NAME")]
    account: Option<String>,
    /// What to do
    #[command(subcommand)]
    command: MatrixCommand,
}

/// What to do with an account.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum MatrixCommand {
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
        /// How the list is printed
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
pub enum VerifyStep {
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

/// A verification.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ChosenVerification {
    /// Which, from the list
    id: String,
    /// How it is printed
    #[command(flatten)]
    output: OutputFormat,
}

/// Carries out a command.
pub fn run(args: &MatrixArgs, sources: &ConfigSources) -> ExitCode {
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
            Ok(client) => args.ask(&client).await,
            Err(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => args.do_here(sources).await,
            Err(problem) => Err(problem),
        }
    }));
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    match done {
        Ok((text, well)) => {
            let printed = print(&text);
            if well { printed } else { ExitCode::FAILURE }
        }
        Err(problem) => complain_about(&problem),
    }
}

/// What is printed, and whether that is good news.
type MatrixOutput = Result<(String, bool), CommandError>;

impl MatrixArgs {
    /// Asks the gateway that runs.
    async fn ask(&self, client: &ControlClient) -> MatrixOutput {
        let asked = AccountRequest { account: self.account.clone() };
        match &self.command {
            MatrixCommand::Login(output) | MatrixCommand::Status(output) => {
                let status: AccountStatus = client.post("/matrix/status", &asked).await?;
                Ok((output.show(&status, |status| render::status(status, true))?, true))
            }
            MatrixCommand::Doctor(output) => {
                let health: DoctorReport = client.post("/matrix/doctor", &asked).await?;
                Ok((output.show(&health, render::health)?, health.is_well()))
            }
            MatrixCommand::Verify { step: None, output } if verify_prompt::is_possible(*output) => {
                verify_prompt::through(client, &self.account).await
            }
            MatrixCommand::Verify { step, output } => {
                // `--json` holds on either side of the step.
                let wanted = |own: OutputFormat| if output.is_json() { *output } else { own };
                let (chosen, answer) = match step {
                    Some(VerifyStep::Accept(chosen)) => (chosen, VerifyAnswer::Accept),
                    Some(VerifyStep::Confirm(chosen)) => (chosen, VerifyAnswer::Match),
                    Some(VerifyStep::Mismatch(chosen)) => (chosen, VerifyAnswer::Differ),
                    Some(VerifyStep::Cancel(chosen)) => (chosen, VerifyAnswer::Cancel),
                    Some(VerifyStep::List(own)) => return self.list(client, wanted(*own)).await,
                    None => return self.list(client, *output).await,
                };
                let asked = VerifyRequest { account: self.account.clone(), id: chosen.id.clone(), answer };
                let verification: VerificationView = client.post("/matrix/verify", &asked).await?;
                Ok((wanted(chosen.output).show(&verification, render::verification)?, true))
            }
            MatrixCommand::Logout { .. } => Err(CommandError::new(
                StatusCode::CONFLICT,
                "talaria runs and uses the account",
                "stop it first, then log out",
            )),
        }
    }

    async fn list(&self, client: &ControlClient, output: OutputFormat) -> MatrixOutput {
        let asked = AccountRequest { account: self.account.clone() };
        let list: VerificationList = client.post("/matrix/verifications", &asked).await?;
        Ok((output.show(&list, render::verifications)?, true))
    }

    /// Nothing runs, so the account is opened here.
    async fn do_here(&self, sources: &ConfigSources) -> MatrixOutput {
        let config = Config::load(sources, &env::process).map_err(CommandError::config)?;
        let settings = self.settings(&config)?;
        // Keeps a gateway from starting in the middle.
        let _home = StateDir::take(&config.home).map_err(|error| {
            let hint = error.hint.unwrap_or("check the rights of the state folder");
            CommandError::new(StatusCode::CONFLICT, format!("{:#}", error.error), hint)
        })?;
        match &self.command {
            MatrixCommand::Login(output) => {
                let status = talaria_matrix::log_in(settings).await?;
                Ok((output.show(&status, |status| render::status(status, false))?, status.signed))
            }
            MatrixCommand::Status(output) => {
                let status = talaria_matrix::status(settings).await?;
                Ok((output.show(&status, |status| render::status(status, false))?, true))
            }
            MatrixCommand::Doctor(output) => {
                let health = talaria_matrix::doctor(settings).await?;
                Ok((output.show(&health, render::health)?, health.is_well()))
            }
            MatrixCommand::Verify { .. } => Err(CommandError::not_running(&config.home)),
            MatrixCommand::Logout { yes, here_only } => {
                if !yes && !verify_prompt::agrees_to_log_out()? {
                    return Ok(("Nothing was changed.".to_owned(), false));
                }
                talaria_matrix::log_out(settings, *here_only).await?;
                Ok((
                    "Logged out. The device's store is removed; a recovery key in the folder stays."
                        .to_owned(),
                    true,
                ))
            }
        }
    }

    fn settings<'a>(&self, config: &'a Config) -> Result<&'a MatrixSettings, CommandError> {
        let accounts = config.platforms.iter().filter_map(|(id, entry)| match entry {
            PlatformConfig::Matrix(settings) => Some((id, &**settings)),
            PlatformConfig::Console => None,
            #[cfg(feature = "testing")]
            PlatformConfig::Test(_) => None,
        });
        Ok(choose(accounts, self.account.as_deref())?.1)
    }
}
