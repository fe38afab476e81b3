//! `/approvals`: lists the grants that hold in this place, and revokes one.
//!
//! Only grants of this place are found: of its room, and of the session that is talked about here.

use super::{CommandCall, CommandContext, CommandOutcome, decide, say, sessions};
use crate::access::{AccessAction, AccessDecision, GrantScope, PlaceKind};
use crate::chat_command::ChatCommand;
use crate::i18n::TextKey;
use crate::store::{GrantRow, Result};
use crate::util::one_line;

/// Grants that one list shows.
const LISTED: usize = 30;

/// Characters of an id that is repeated to the person.
const ID: usize = 20;

/// Rule in the audit: a person takes back their own grant.
const GIVER: &str = "giver";

/// Carries the command out.
pub(super) fn run(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let (context, behind) = (call.context, call.behind);
    let (word, rest) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
    match (word.to_ascii_lowercase().as_str(), rest.trim()) {
        ("", _) => list(context, &grants(call)?),
        ("revoke", id) if !id.is_empty() => revoke(context, &grants(call)?, id),
        _ => say(TextKey::ApprovalsWords),
    }
}

/// The grants that hold here.
fn grants(call: &CommandCall<'_>) -> Result<Vec<GrantRow>> {
    let (context, event) = (call.context, call.context.event);
    let place = PlaceKind::from(event.room.direct);
    context.tx.grants_in(context.account, &event.place.room, place, &call.session.id)
}

fn list(context: &CommandContext<'_>, grants: &[GrantRow]) -> Result<CommandOutcome> {
    if grants.is_empty() {
        return say(TextKey::ApprovalsNone);
    }
    let line = |grant: &GrantRow| {
        let text = match grant.session {
            Some(_) => TextKey::ApprovalsSession,
            None => TextKey::ApprovalsAlways,
        };
        let agent = grant.agent.as_ref().unwrap_or_else(|| context.agents.default_name());
        context.words.say(
            &text
                .with("id", grant.id.as_str())
                .with("title", grant.title.as_str())
                .with("agent", agent.as_str())
                .with("by", one_line(&grant.by, 255))
                .with("until", sessions::moment(grant.expires)),
        )
    };
    let mut lines: Vec<String> = grants.iter().take(LISTED).map(line).collect();
    if grants.len() > LISTED {
        lines.push(context.words.say(&TextKey::ApprovalsMore.with("count", grants.len() - LISTED)));
    }
    say(TextKey::Approvals.with("list", lines.join("\n")))
}

fn revoke(context: &CommandContext<'_>, grants: &[GrantRow], id: &str) -> Result<CommandOutcome> {
    let wanted = id.to_ascii_lowercase();
    let mut fitting = grants.iter().filter(|grant| grant.id.starts_with(&wanted));
    let grant = match (fitting.next(), fitting.next()) {
        (Some(grant), None) => grant,
        (Some(_), Some(_)) => return say(TextKey::ApprovalAmbiguous.with("id", one_line(id, ID))),
        (None, _) => return say(TextKey::ApprovalUnknown.with("id", one_line(id, ID))),
    };
    let event = context.event;
    // A person who may allow something for good may also take it back.
    let AccessDecision { allowed, rule } = decide(context, AccessAction::Approve(GrantScope::Always))?;
    let (allowed, rule) = match grant.by == event.author.id.as_str() {
        true => (true, GIVER),
        false => (allowed, rule.name()),
    };
    let (kind, action) = (PlaceKind::from(event.room.direct), AccessAction::Command(ChatCommand::Approvals));
    context.tx.audit(context.account, &event.author.id, &event.place.room, kind, action, allowed, rule)?;
    if !allowed {
        return say(TextKey::ApprovalOfAnother.with("title", grant.title.as_str()));
    }
    context.tx.revoke_grant(&grant.id)?;
    say(TextKey::ApprovalRevoked.with("title", grant.title.as_str()))
}
