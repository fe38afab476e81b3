//! What it does when a message is gone.
//!
//! Whoever deletes a question wants nothing of it to stay: it is not asked, or no longer, and what was answered is
//! taken back. That is so whoever deleted it: the network let them, and a deletion only ever removes.

use talaria_platform::EventId;

use super::accept::EventContext;
use crate::access::AccessAction;
use crate::agent::RewindSupport;
use crate::command::PostCommit;
use crate::i18n::TextKey;
use crate::store::{Result, TurnRow, TurnState};

/// What the audit calls the ground: the network's word that the message is gone.
const NETWORK: &str = "network";

/// Takes it that a message is gone: a question, or one of ours.
pub(super) fn take(context: &EventContext<'_>, of: &EventId) -> Result<Vec<PostCommit>> {
    let (tx, room) = (context.tx, &context.event.place.room);
    let mut turns = tx.turns_about(context.account(), room, of)?;
    // An answer that is taken away while it grows is not wanted here. One that is whole was: only its message is gone,
    // and must not be edited any more.
    if let Some(turn) = tx.lose_message(context.account(), room, of)? {
        turns.extend(tx.turn(&turn)?.filter(is_open));
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

/// Whether the deletion may be of a question that an agent remembers. Changes nothing. An answer that grows need not be
/// looked for: whoever gives it has said what it can do.
pub(super) fn may_rewind(context: &EventContext<'_>, of: &EventId) -> Result<bool> {
    let turns = context.tx.turns_about(context.account(), &context.event.place.room, of)?;
    Ok(turns.iter().any(|turn| turn.state != TurnState::Queued))
}

fn is_open(turn: &TurnRow) -> bool {
    matches!(turn.state, TurnState::Queued | TurnState::Dispatched | TurnState::Streaming)
}

/// Ends a turn and takes back what it came to.
fn remove(
    context: &EventContext<'_>,
    of: &EventId,
    turn: TurnRow,
    after: &mut Vec<PostCommit>,
) -> Result<()> {
    let tx = context.tx;
    if is_open(&turn) {
        tx.ask_to_stop(&turn.id)?;
        after.push(PostCommit::StopTurn(turn.session.clone(), turn.id.clone()));
    }
    // What cannot be taken back stays as it is, and is remembered as it stands there.
    if !context.all.about.delete {
        return Ok(());
    }
    let asked = turn.state != TurnState::Queued;
    let remembered = tx.withdraw(&turn)?;
    tx.remove_shown(&turn, 0)?;
    // An agent that has never heard of it has nothing to forget.
    if !asked && !remembered {
        return Ok(());
    }
    match context.agent().rewind {
        // A deletion comes once, and cannot wait until the agent says what it can do: rather all is forgotten.
        RewindSupport::Possible | RewindSupport::Unknown => tx.fork_session(&turn.session),
        RewindSupport::Impossible if remembered => {
            context.notice_on(of, "gone", &TextKey::DeletedRemembered.into())
        }
        RewindSupport::Impossible => Ok(()),
    }
}
