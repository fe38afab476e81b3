//! Asks people whether a tool may do something, and turns their answer into words for the model.

use crate::agent::{Ask, AskChoice, DenyReason};
use crate::i18n::TextKey;

use super::{ToolCall, ToolFailure};

/// Waits until people allow the action of `ask`. Every other answer is the failure of the call.
///
/// `action` begins the sentence that tells the model of a denial, such as "The command".
pub async fn approve(call: &ToolCall<'_>, ask: Ask, action: &str) -> Result<(), ToolFailure> {
    let choice = tokio::select! {
        choice = call.out.ask(ask) => choice,
        () = call.stop.cancelled() => return Err(ToolFailure::Stopped),
    };
    match choice {
        AskChoice::Allow(_) => Ok(()),
        AskChoice::Deny(reason) => Err(denied(reason, action)),
        // Neither fits an approval.
        AskChoice::Option(_) | AskChoice::Text(_) => {
            Err(refused(action, "the answer neither allowed nor denied it"))
        }
    }
}

/// Only a person's no, and asks that nobody could judge, let the model go on. When nobody answers, the task halts; when
/// the process ends, so does the call.
fn denied(reason: DenyReason, action: &str) -> ToolFailure {
    let why = match reason {
        DenyReason::Timeout => return ToolFailure::Halt(TextKey::AskHalted.into()),
        DenyReason::Stopped | DenyReason::Restart => return ToolFailure::Stopped,
        DenyReason::Person => {
            "a person said no. Do not try it again in another way; say what you wanted to do and ask how to go on"
        }
        DenyReason::Gone => "there is nobody here who could be asked",
        DenyReason::TooLong => "it is too long to be shown to a person in full. Make it shorter",
        DenyReason::NothingToJudge => "it shows nothing that a person could judge",
        DenyReason::TooMany => "this turn has asked for permission too often",
        DenyReason::Failed => "the answer of a person could not be stored",
        DenyReason::Policy => "the program that asks does not permit it. Do not try it again in another way",
        DenyReason::NotStreamed => "the program that asks cannot be asked before the turn has ended",
    };
    refused(action, why)
}

fn refused(action: &str, why: &str) -> ToolFailure {
    ToolFailure::failed(format!("{action} was not allowed, so nothing was done: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_to_the_model_and_silence_halts_the_task() {
        let denied = |reason| super::denied(reason, "The command");
        assert_eq!(denied(DenyReason::Stopped), ToolFailure::Stopped);
        assert_eq!(denied(DenyReason::Restart), ToolFailure::Stopped);
        let ToolFailure::Halt(words) = denied(DenyReason::Timeout) else { panic!("it goes on") };
        // In a room these words follow "cut short: ".
        assert_eq!(words.to_string(), "nobody answered in time, so the task was halted");
        for (reason, part) in
            [(DenyReason::Person, "a person said no"), (DenyReason::TooLong, "it is too long")]
        {
            let ToolFailure::Failed(words) = denied(reason) else { panic!("{reason:?}") };
            let start = format!("The command was not allowed, so nothing was done: {part}");
            assert!(words.starts_with(&start), "{words}");
        }
    }
}
