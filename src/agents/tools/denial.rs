//! The effect of a denied ask on the tool call that asked.

use super::ToolFailure;
use crate::agent::DenyReason;
use crate::i18n::TextKey;

/// The failure of a call whose ask was denied; `action` is the subject of a sentence for the model, such as "the
/// command".
///
/// Only a person's no, and asks that nobody could judge, let the model go on: when nobody answers, the task halts.
pub fn denied_call(reason: DenyReason, action: &str) -> ToolFailure {
    let refused = |why: &str| ToolFailure::failed(format!("{action} was not allowed: {why}"));
    match reason {
        DenyReason::Person => {
            refused("a person said no. Do not try it again in another way; ask what they want")
        }
        DenyReason::Timeout => ToolFailure::Halt(TextKey::HaltedUnanswered.into()),
        DenyReason::Stopped | DenyReason::Restart => ToolFailure::Stopped,
        DenyReason::Gone => refused("there is nobody here who could allow it"),
        DenyReason::TooLong => {
            refused("it is too long to be shown in full, so nobody can judge it. Make it shorter")
        }
        DenyReason::NothingToJudge => refused("it shows nothing that a person could judge"),
        DenyReason::TooMany => refused("this turn has asked too often already"),
        DenyReason::Failed => refused("the answer could not be stored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_told_and_silence_halts() {
        assert!(matches!(denied_call(DenyReason::Person, "the command"), ToolFailure::Failed(words)
            if words.starts_with("the command was not allowed: a person said no")));
        assert_eq!(
            denied_call(DenyReason::Timeout, "it"),
            ToolFailure::Halt(TextKey::HaltedUnanswered.into())
        );
        assert_eq!(denied_call(DenyReason::Stopped, "it"), ToolFailure::Stopped);
        assert_eq!(denied_call(DenyReason::Restart, "it"), ToolFailure::Stopped);
    }
}
