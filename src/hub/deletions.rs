//! What it does when a message is gone.
//!
//! Whoever deletes a question wants nothing of it to stay: it is not asked, or no longer, and what was answered is
//! taken back. That is so whoever deleted it: the network let them, and a deletion only ever removes.

use talaria_platform::EventId;

use super::taking::One;
use crate::access::Action;
use crate::agent::Rewind;
use crate::command::After;
use crate::store::{Result, State, TurnRow};
use crate::words::Text;

/// What the audit calls the ground: the network's word that the message is gone.
const NETWORK: &str = "network";

/// Takes it that a message is gone: a question, or one of ours.
pub(super) fn take(one: &One<'_>, of: &EventId) -> Result<Vec<After>> {
    let (tx, room) = (one.tx, &one.event.place.room);
    let mut turns = tx.turns_about(one.account(), room, of)?;
    // An answer that is taken away while it grows is not wanted here. One that is whole was: only its message is gone,
    // and must not be edited any more.
    if let Some(turn) = tx.lose_message(one.account(), room, of)? {
        turns.extend(tx.turn(&turn)?.filter(is_open));
    }
    if turns.is_empty() {
        return Ok(Vec::new());
    }
    one.audit(Action::Delete, true, NETWORK)?;
    let mut after = Vec::new();
    for turn in turns {
        remove(one, of, turn, &mut after)?;
    }
    Ok(after)
}

/// Whether the deletion may be of a question that an agent remembers. Changes nothing. An answer that grows need not be
/// looked for: whoever gives it has said what it can do.
pub(super) fn may_rewind(one: &One<'_>, of: &EventId) -> Result<bool> {
    let turns = one.tx.turns_about(one.account(), &one.event.place.room, of)?;
    Ok(turns.iter().any(|turn| turn.state != State::Queued))
}

fn is_open(turn: &TurnRow) -> bool {
    matches!(turn.state, State::Queued | State::Dispatched | State::Streaming)
}

/// Ends a turn and takes back what it came to.
fn remove(one: &One<'_>, of: &EventId, turn: TurnRow, after: &mut Vec<After>) -> Result<()> {
    let tx = one.tx;
    if is_open(&turn) {
        tx.ask_to_stop(&turn.id)?;
        after.push(After::StopTurn(turn.session.clone(), turn.id.clone()));
    }
    // What cannot be taken back stays as it is, and is remembered as it stands there.
    if !one.all.about.delete {
        return Ok(());
    }
    let asked = turn.state != State::Queued;
    let remembered = tx.withdraw(&turn)?;
    tx.remove_shown(&turn, 0)?;
    // An agent that has never heard of it has nothing to forget.
    if !asked && !remembered {
        return Ok(());
    }
    match one.agent().rewind {
        // A deletion comes once, and cannot wait until the agent says what it can do: rather all is forgotten.
        Rewind::Possible | Rewind::Unknown => tx.fork_session(&turn.session),
        Rewind::Impossible if remembered => one.notice_on(of, "gone", &Text::DeletedRemembered.into()),
        Rewind::Impossible => Ok(()),
    }
}
