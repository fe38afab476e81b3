//! What a room is told when the stand-in begins to answer it, and when the agent itself does again.
//!
//! Each is said in the transaction that changes who answers the session, so it is said once.

use super::source;
use crate::agent::AgentInfo;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::notice::Notice;
use crate::store::{OutboxRow, TurnRow};
use crate::util::one_line;
use crate::util::random_hex;

/// The most characters of an agent's name.
const NAME: usize = 60;

/// That the stand-in answers from this turn on. Nothing if the operator silenced it.
pub(super) fn away(
    turn: &TurnRow,
    max_text: usize,
    agent: &AgentInfo,
    words: &TextCatalog,
) -> Vec<OutboxRow> {
    let name = agent.stand_in.as_ref().map_or(&agent.name, |other| &other.name);
    notice(turn, max_text, &TextKey::AgentAway.with("agent", one_line(&words.say(name), NAME)), words)
}

/// That the agent itself has answered this turn, and whether it `knows` what was said meanwhile. Nothing if the operator
/// silenced it.
pub(super) fn back(turn: &TurnRow, max_text: usize, knows: bool, words: &TextCatalog) -> Vec<OutboxRow> {
    let text = if knows { TextKey::AgentBack } else { TextKey::AgentBackUnaware };
    notice(turn, max_text, &text.into(), words)
}

fn notice(turn: &TurnRow, max_text: usize, phrase: &LocalizedText, words: &TextCatalog) -> Vec<OutboxRow> {
    // Not the same for every change of one turn: it may see several. It is stored, and so is the same for every
    // try of sending it.
    let key = turn.id.send_key(format_args!("over.{}", random_hex(4)));
    // It is about the place, not about a message.
    let notice =
        source::notice(&turn.source, key, max_text).map(|notice| Notice { reply_to: None, ..notice });
    notice.map(|notice| notice.rows(words, phrase)).unwrap_or_default()
}
