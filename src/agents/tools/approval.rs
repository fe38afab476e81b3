//! Asks people whether a tool may do something, and turns their answer into words for the model.

use crate::agent::{Ask, AskChoice, DenyReason};
use crate::i18n::TextKey;

use super::{ToolCall, ToolFailure};

/// Waits until people allow the action of `ask`. Every other answer is the failure of the call.
pub async fn approve(call: &ToolCall<'_>, ask: Ask) -> Result<(), ToolFailure> {
    let choice = tokio::select! {
        choice = call.out.ask(ask) => choice,
        () = call.stop.cancelled() => return Err(ToolFailure::Stopped),
    };
    match choice {
        AskChoice::Allow(_) => Ok(()),
        AskChoice::Deny(reason) => Err(denied(reason)),
        // Neither fits an approval.
        AskChoice::Option(_) | AskChoice::Text(_) => {
            Err(ToolFailure::failed("The answer neither allowed nor denied it, so nothing was done."))
        }
    }
}

fn denied(reason: DenyReason) -> ToolFailure {
    let words = match reason {
        DenyReason::Stopped => return ToolFailure::Stopped,
        DenyReason::Timeout => return ToolFailure::Halt(TextKey::AskHalted.into()),
        DenyReason::Person => {
            "A person refused this, so nothing was done. Do not try it again in another way; say what you wanted to do \
             and ask how to go on."
        }
        DenyReason::Restart => "The gateway is ending and nobody could be asked, so nothing was done.",
        DenyReason::Gone => "There is nobody here who could be asked for permission, so nothing was done.",
        DenyReason::TooLong => {
            "It is too long to be shown to a person in full, so nothing was done. Use a shorter one, such as a script in \
             the workspace."
        }
        DenyReason::NothingToJudge => {
            "There is nothing in it that a person could judge, so nothing was done."
        }
        DenyReason::TooMany => "This turn has asked for permission too often, so nothing was done.",
        DenyReason::Failed => "The answer of a person could not be stored, so nothing was done.",
    };
    ToolFailure::failed(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_to_the_model_and_silence_halts_the_task() {
        assert_eq!(denied(DenyReason::Stopped), ToolFailure::Stopped);
        let ToolFailure::Halt(words) = denied(DenyReason::Timeout) else { panic!("it goes on") };
        assert_eq!(words.to_string(), "Nobody answered in time, so the task was halted.");
        for (reason, part) in [(DenyReason::Person, "person refused"), (DenyReason::TooLong, "too long")] {
            let ToolFailure::Failed(words) = denied(reason) else { panic!("{reason:?}") };
            assert!(words.contains(part), "{words}");
        }
    }
}
