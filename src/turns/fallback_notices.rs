//! Notices to a room when the fallback begins to answer it, and when the agent itself answers again.
//!
//! Each notice is stored in the transaction that changes who answers the session, so it is sent once.

use super::source;
use crate::agent::AgentInfo;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::notice::Notice;
use crate::store::{OutboxRow, TurnRow};
use crate::util::{one_line, random_hex};

/// Most characters of an agent's name.
const NAME: usize = 60;

/// Says that the fallback answers from this turn on. Empty if the operator silenced it.
pub(super) fn away(
    turn: &TurnRow,
    max_text: usize,
    agent: &AgentInfo,
    words: &TextCatalog,
) -> Vec<OutboxRow> {
    let name = agent.fallback.as_ref().map_or(&agent.name, |other| &other.about.name);
    notice(turn, max_text, &TextKey::AgentAway.with("agent", one_line(&words.say(name), NAME)), words)
}

/// Says that the agent itself has answered this turn, and whether it `knows` the turns that the fallback answered. Empty
/// if the operator silenced it.
pub(super) fn back(turn: &TurnRow, max_text: usize, knows: bool, words: &TextCatalog) -> Vec<OutboxRow> {
    let text = if knows { TextKey::AgentBack } else { TextKey::AgentBackUnaware };
    notice(turn, max_text, &text.into(), words)
}

fn notice(turn: &TurnRow, max_text: usize, phrase: &LocalizedText, words: &TextCatalog) -> Vec<OutboxRow> {
    // Random, because one turn may see several changes. The key is stored, so every try to send the notice has the same.
    let key = turn.id.send_key(format_args!("over.{}", random_hex(4)));
    // The notice is about the place, not about a message.
    let notice =
        source::notice(&turn.source, key, max_text).map(|notice| Notice { reply_to: None, ..notice });
    notice.map(|notice| notice.rows(words, phrase)).unwrap_or_default()
}
