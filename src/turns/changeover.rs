//! What a room is told when the stand-in begins to answer it, and when the agent itself does again.
//!
//! Each is said in the transaction that changes who answers the session, so it is said once.

use talaria_platform::{Body, BodyKind};

use crate::agent::AgentInfo;
use crate::reply::one_line;
use crate::session::random_hex;
use crate::store::{OutboxKind, OutboxRow, TurnRow};
use crate::words::{Phrase, Text, Words};

/// The most characters of an agent's name.
const NAME: usize = 60;

/// That the stand-in answers from this turn on. `None` if the operator silenced it.
pub(super) fn away(turn: &TurnRow, agent: &AgentInfo, words: &Words) -> Option<OutboxRow> {
    let name = agent.stand_in.as_ref().map_or(&agent.name, |other| &other.name);
    notice(turn, &Text::AgentAway.with("agent", one_line(&words.say(name), NAME)), words)
}

/// That the agent itself has answered this turn. `None` if the operator silenced it.
pub(super) fn back(turn: &TurnRow, agent: &AgentInfo, words: &Words) -> Option<OutboxRow> {
    let text = if agent.rewind { Text::AgentBack } else { Text::AgentBackUnaware };
    notice(turn, &text.into(), words)
}

fn notice(turn: &TurnRow, phrase: &Phrase, words: &Words) -> Option<OutboxRow> {
    let line = words.say(phrase);
    if line.trim().is_empty() {
        return None;
    }
    Some(OutboxRow {
        // Not the same for every change of one turn: it may see several. It is stored, and so is the same
        // for every try of sending it.
        key: turn.id.send_key(format_args!("over.{}", random_hex(4))),
        account: turn.account.clone(),
        place: turn.place.clone(),
        // It is about the place, and must not take the place of the turn's own message.
        turn: None,
        kind: OutboxKind::Notice,
        part: 0,
        body: Body::new(BodyKind::Notice, line),
        not_before: 0,
    })
}
