//! Effect of a deleted message.
//!
//! A person who deletes a prompt wants nothing of it to stay: it is not asked, or no longer, and its answer is taken
//! back. It does not matter who deleted it: the network let them, and a deletion only ever removes.

use talaria_platform::EventId;

use super::accept::EventContext;
use crate::access::AccessAction;
use crate::agent::{AgentInfo, RewindSupport};
use crate::i18n::TextKey;
use crate::post_commit::PostCommit;
use crate::store::{Result, RoomTurn, TurnRow, TurnState};

/// Rule in the audit: the network says that the message is gone.
const NETWORK: &str = "network";

/// Handles the deletion of a message: a prompt, or one of ours.
pub(super) fn take(context: &EventContext<'_>, of: &EventId) -> Result<Vec<PostCommit>> {
    let (tx, room) = (context.tx, &context.event.place.room);
    let mut turns = tx.turns_about(context.account(), room, of)?;
    // Somebody who deletes a growing answer does not want it. A complete answer was wanted: only its message is gone,
    // and must not be edited any more.
    if let Some(turn) = tx.lose_message(context.account(), room, of)? {
        turns.extend(tx.turn(&turn)?.filter(is_open).and_then(TurnRow::in_room));
    }
    if turns.is_empty() {
        return Ok(Vec::new());
    }
    context.audit(AccessAction::Delete, true, NETWORK)?;
    let mut after = Vec::new();
    for turn in turns {
        remove(context, of, turn, &mut after)?;
    }
    Ok(after)
}

/// Agents that may remember the deleted message as a prompt. Changes nothing. A growing answer need not be looked for:
/// its agent has already reported whether it can rewind.
pub(super) fn remembered_by<'a>(context: &'a EventContext<'_>, of: &EventId) -> Result<Vec<&'a AgentInfo>> {
    let turns = context.tx.turns_about(context.account(), &context.event.place.room, of)?;
    let asked = turns.iter().filter(|turn| turn.row.state != TurnState::Queued);
    Ok(asked.map(|turn| context.agent_of(&turn.row)).collect())
}

fn is_open(turn: &TurnRow) -> bool {
    matches!(turn.state, TurnState::Queued | TurnState::Dispatched | TurnState::Streaming)
}

/// Stops a turn and takes its answer back.
fn remove(
    context: &EventContext<'_>,
    of: &EventId,
    turn: RoomTurn,
    after: &mut Vec<PostCommit>,
) -> Result<()> {
    let (tx, RoomTurn { row, question }) = (context.tx, turn);
    if is_open(&row) {
        tx.ask_to_stop(&row.id)?;
        after.push(PostCommit::StopTurn(row.session.clone(), row.id.clone()));
    }
    // Text that the platform cannot delete stays in the room, and so it stays in the session too.
    if !context.acceptor.about.delete {
        return Ok(());
    }
    let asked = row.state != TurnState::Queued;
    let remembered = tx.withdraw(&row)?;
    tx.remove_shown(&row.id, &question, 0)?;
    // An agent that never got the prompt has nothing to forget.
    if !asked && !remembered {
        return Ok(());
    }
    match context.agent_of(&row).rewind {
        // A deletion comes once, and cannot wait until the agent reports what it can do: rather forget all.
        RewindSupport::Possible | RewindSupport::Unknown => tx.fork_session(&row.session),
        RewindSupport::Impossible if remembered => {
            context.notice_on(of, "gone", &TextKey::DeletedRemembered.into())
        }
        RewindSupport::Impossible => Ok(()),
    }
}
