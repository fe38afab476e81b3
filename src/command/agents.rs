//! `/agent`: lists the agents that a person may talk to, and begins a new session with one of them.
//!
//! The choice belongs to the session and is stored with it. Sessions that follow, by `/new` or by time, keep it.

use super::{CommandCall, CommandContext, CommandOutcome, say, stop_all};
use crate::access::{AGENT_RULE, AccessAction, AgentAsker, PlaceKind};
use crate::agent::AgentInfos;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, TurnId};
use crate::post_commit::PostCommit;
use crate::store::{Result, SessionRow};
use crate::util::one_line;

/// The word that stands for the agent of the place.
const DEFAULT: &str = "default";

/// The agent that the words behind the command choose: `Some(None)` is the agent of the place, and `None` means that
/// they choose none.
pub fn wanted(behind: &str, agents: &AgentInfos) -> Option<Option<AgentName>> {
    if behind == DEFAULT {
        return Some(None);
    }
    AgentName::new(behind).filter(|name| agents.has(name)).map(Some)
}

/// Why the author of a command must not talk to an agent, if so.
pub(super) fn refusal(context: &CommandContext<'_>, agent: &AgentName) -> Option<LocalizedText> {
    if !context.agents.has(agent) {
        return Some(TextKey::AgentGone.with("name", agent.as_str()));
    }
    (!may_talk_to(context, agent)).then(|| TextKey::AgentRefused.with("name", agent.as_str()))
}

/// Why the author of a command must not allow what the agent that acts in a turn asks for, if so. Allowing an action is
/// acting through that agent, so it needs a place on its list. Kept in the audit.
pub(super) fn refusal_to_allow(
    context: &CommandContext<'_>,
    turn: &TurnId,
    action: AccessAction,
) -> Result<Option<LocalizedText>> {
    let Some(turn) = context.tx.turn_head(turn)? else { return Ok(None) };
    let agent = context.tx.acting_agent(&turn, context.agents.default_name())?;
    let refusal = refusal(context, &agent);
    if refusal.is_some() {
        let (account, event) = (context.account, context.event);
        let (room, kind) = (&event.place.room, PlaceKind::from(event.room.direct));
        context.tx.audit(account, &event.author.id, room, kind, action, false, AGENT_RULE)?;
    }
    Ok(refusal)
}

/// Carries the command out. The hub has refused a choice that its author must not make.
pub(super) fn run(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let CommandCall { context, key, session, open, behind } = call;
    let current = current(context, session);
    if behind.is_empty() {
        return say(TextKey::Agents.with("list", list(context, &current)));
    }
    let Some(chosen) = wanted(behind, context.agents) else {
        return say(TextKey::AgentNone.with("name", one_line(behind, 64)));
    };
    let next = chosen.clone().unwrap_or_else(|| of_place(context));
    if next == current {
        // The choice itself may still change: from a name to the agent of the place, whichever that will be.
        context.tx.set_agent(&session.id, chosen.as_ref())?;
        return say(TextKey::AgentAlready.with("name", next.as_str()));
    }
    let mut after = stop_all(context.tx, &session.id, open)?;
    // A session in which nothing was said is as good as new.
    match session.title.is_some() || context.tx.is_used(&session.id)? {
        true => {
            context.tx.begin_session_with(key, chosen.as_ref())?;
            after.push(PostCommit::EndSessions);
        }
        false => {
            context.tx.set_agent(&session.id, chosen.as_ref())?;
            context.tx.choose_model(&session.id, None)?;
        }
    }
    Ok((after, Some(TextKey::AgentChosen.with("name", next.as_str()))))
}

/// The name of the agent that answers in a session of this place.
pub(super) fn current(context: &CommandContext<'_>, session: &SessionRow) -> AgentName {
    session.agent.clone().unwrap_or_else(|| of_place(context))
}

/// The name of the agent of the place.
fn of_place(context: &CommandContext<'_>) -> AgentName {
    let of_room = context.rules.agent_in(&context.event.place.room).cloned();
    of_room.unwrap_or_else(|| context.agents.default_name().clone())
}

/// The agents that the author may talk to, a line each.
fn list(context: &CommandContext<'_>, current: &AgentName) -> String {
    let line = |(name, info): (&AgentName, &crate::agent::AgentInfo)| {
        let text = if name == current { TextKey::AgentsCurrent } else { TextKey::AgentsOther };
        context.words.say(&text.with("name", name.as_str()).with("agent", info.name.clone()))
    };
    let listed = context.agents.iter().filter(|(name, _)| may_talk_to(context, name));
    listed.map(line).collect::<Vec<_>>().join("\n")
}

fn may_talk_to(context: &CommandContext<'_>, agent: &AgentName) -> bool {
    let event = context.event;
    let asker = AgentAsker::of(context.decision.rule, &event.author.id, &event.place.room);
    context.agent_rules.admit(agent, asker)
}
