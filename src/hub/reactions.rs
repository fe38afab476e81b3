//! Reactions to messages of ours: one of them denies an ask, and none does more.

use talaria_platform::MessageId;

use super::accept::EventContext;
use crate::access::AccessAction;
use crate::agent::{AskChoice, DenyReason};
use crate::i18n::TextKey;
use crate::post_commit::PostCommit;
use crate::store::Result;

/// The reaction that denies. None approves: a network can forge reactions, and people misplace them easily.
const NO: &str = "❌";

/// Denies the ask that the message shows, if the reaction says so and its author may deny.
pub(super) fn react(context: &EventContext<'_>, to: &MessageId, mark: &str) -> Result<Vec<PostCommit>> {
    let shown = context.tx.ask_shown_by(context.account(), &context.event.place, to)?;
    let Some(ask) = shown else { return Ok(Vec::new()) };
    if !context.authorize(AccessAction::Reaction)?.allowed || mark.trim_end_matches('\u{fe0f}') != NO {
        return Ok(Vec::new());
    }
    let (by, denial) = (context.event.author.id.as_str(), AskChoice::Deny(DenyReason::Person));
    if !context.authorize(AccessAction::Deny)?.allowed || !context.tx.answer_ask(&ask, by, &denial)? {
        return Ok(Vec::new());
    }
    context.notice(&TextKey::AskDenied.with("title", ask.title))?;
    Ok(vec![PostCommit::Answered(ask.id)])
}
