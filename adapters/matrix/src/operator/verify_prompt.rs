//! Walks the operator through a verification on a terminal, and asks before a device is ended.
#![expect(clippy::print_stderr, reason = "questions on a terminal")]

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::{Duration, Instant};

use talaria_platform::operator::OutputFormat;
use talaria_platform::{AccountLink, CommandReport, OperatorError, one_line};

use super::render::{pictures, unknown_end, verification};
use super::requests::{VERIFICATIONS, VERIFY, VerificationList, VerifyRequest};
use crate::{VerificationStage, VerificationView, VerifyAnswer};

/// Interval at which the running gateway is asked whether somebody has begun.
const LOOK: Duration = Duration::from_secs(1);

/// Longest wait for a person to begin a verification, and for each of their steps.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Whether a person at a terminal can be asked.
pub(super) fn is_possible(output: OutputFormat) -> bool {
    !output.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Waits for a request, shows the pictures, asks, and waits for the end.
pub(super) async fn through(account: &dyn AccountLink) -> Result<CommandReport, OperatorError> {
    let began = Instant::now();
    let mut said = false;
    let mut one = loop {
        let list: VerificationList = account.ask(VERIFICATIONS, &()).await?;
        if let Some(one) = list.verifications.into_iter().find(VerificationView::is_open) {
            break one;
        }
        if !said {
            eprintln!(
                "Waiting: open our profile in your client and choose to verify it. (Ctrl-C ends this.)"
            );
            said = true;
        }
        wait(began).await?;
    };
    let device = one.device.as_deref().map_or_else(|| "not known".to_owned(), |device| one_line(device, 40));
    let whose = if one.own { "another device of our own account" } else { "a person" };
    eprintln!("{} wants to verify us ({whose}, device {device}).", one_line(&one.user, 200));
    if !says_yes("Go on?")? {
        let one = answer(account, &one.id, VerifyAnswer::Cancel).await?;
        return Ok(CommandReport { text: verification(&one), well: false });
    }
    while matches!(one.stage, VerificationStage::Asked | VerificationStage::Accepted) {
        one = answer(account, &one.id, VerifyAnswer::Accept).await?;
        if one.stage == VerificationStage::Accepted {
            wait(began).await?;
        }
    }
    if one.stage == VerificationStage::Compare {
        eprintln!("\n{}", pictures(&one));
        let same = says_yes("Are these the same on both sides?")?;
        one = answer(account, &one.id, if same { VerifyAnswer::Match } else { VerifyAnswer::Differ }).await?;
    }
    while one.stage == VerificationStage::Confirmed {
        wait(began).await?;
        let list: VerificationList = account.ask(VERIFICATIONS, &()).await?;
        one = match list.verifications.into_iter().find(|other| other.id == one.id) {
            Some(now) => now,
            // The gateway was restarted, or the ten minutes are over. Nobody counts as verified unless we know it.
            None => return Ok(CommandReport { text: unknown_end(&one), well: false }),
        };
    }
    Ok(CommandReport { text: verification(&one), well: one.stage == VerificationStage::Done })
}

/// Asks before a device is ended.
pub(super) fn agrees_to_log_out() -> Result<bool, OperatorError> {
    if !io::stdin().is_terminal() {
        return Err(OperatorError {
            message: "nobody can be asked here".to_owned(),
            hint: "add `--yes` to log out without a question".to_owned(),
        });
    }
    says_yes("This ends the device and removes its keys from this disk. Go on?")
}

async fn answer(
    account: &dyn AccountLink,
    id: &str,
    answer: VerifyAnswer,
) -> Result<VerificationView, OperatorError> {
    account.ask(VERIFY, &VerifyRequest { id: id.to_owned(), answer }).await
}

async fn wait(began: Instant) -> Result<(), OperatorError> {
    if began.elapsed() > PATIENCE {
        return Err(OperatorError {
            message: "nothing came for ten minutes".to_owned(),
            hint: "begin again in your client".to_owned(),
        });
    }
    tokio::time::sleep(LOOK).await;
    Ok(())
}

fn says_yes(question: &str) -> Result<bool, OperatorError> {
    eprint!("{question} [yes/no] ");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| OperatorError {
        message: error.to_string(),
        hint: "run this on a terminal".to_owned(),
    })?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
