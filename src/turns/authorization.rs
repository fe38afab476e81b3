//! Whether a turn may still be answered.

use talaria_platform::UserId;

use crate::access::{AccessAction, AgentAsker, PlaceKind};
use crate::chat_command::ChatCommand;
use crate::ids::AgentName;
use crate::rules::Rules;
use crate::store::{self, TurnRow, Tx};

/// Whether the author of a turn may still ask. It was decided when the question came; since then they may have
/// left, or the rules may have changed.
pub(crate) fn permitted(tx: &Tx<'_>, rules: &Rules, turn: &TurnRow) -> store::Result<bool> {
    if turn.app_request.is_some() {
        return tx.app_may_ask(turn.place.room.as_str());
    }
    may(tx, rules, turn, AccessAction::Message)
}

/// Whether the author of a turn may still talk to its agent: the agent's list may have changed since the question came.
pub(crate) fn may_talk_to(
    tx: &Tx<'_>,
    rules: &Rules,
    turn: &TurnRow,
    agent: &AgentName,
) -> store::Result<bool> {
    if turn.app_request.is_some() {
        let app = turn.place.room.as_str();
        let asker = if app.is_empty() { AgentAsker::Admin } else { AgentAsker::App(app) };
        return Ok(rules.agents.admit(agent, asker));
    }
    let author = UserId::new(turn.author.clone());
    let actor = tx.known_actor(&turn.account, &turn.place.room, &author)?;
    let account = rules.account(&turn.account);
    let kind = PlaceKind::from(turn.direct);
    let decision = account.access_in(&turn.place.room).authorize(actor, kind, AccessAction::Message);
    Ok(rules.agents.admit(agent, AgentAsker::of(decision.rule, &author, &turn.place.room)))
}

/// Whether the author of a turn may have it asked again in its room. A program has no commands.
pub(crate) fn may_retry(tx: &Tx<'_>, rules: &Rules, turn: &TurnRow) -> store::Result<bool> {
    Ok(turn.app_request.is_none() && may(tx, rules, turn, AccessAction::Command(ChatCommand::Retry))?)
}

fn may(tx: &Tx<'_>, rules: &Rules, turn: &TurnRow, action: AccessAction) -> store::Result<bool> {
    let author = UserId::new(turn.author.clone());
    let actor = tx.known_actor(&turn.account, &turn.place.room, &author)?;
    let rules = rules.account(&turn.account);
    let policy = rules.access_in(&turn.place.room);
    Ok(policy.authorize(actor, PlaceKind::from(turn.direct), action).allowed)
}
