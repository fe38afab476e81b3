//! Messages of an ask in a room: the ask itself, and the line about its end.

use talaria_platform::{BodyKind, MessageBody, SendKey};

use crate::agent::Ask;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::store::{OutboxKind, OutboxRow, Result, TurnRow, Tx};
use crate::turn_source::RoomQuestion;
use crate::turns::source;
use crate::util::{code_block, code_span};

/// Characters of a reason that are shown. It is the agent's word for itself, and no part of the action.
const REASON: usize = 300;

/// The whole text that asks. `None` if it would not show everything that a person must judge: there is no detail, or an
/// operator's wording leaves something out.
pub(super) fn ask_text(words: &TextCatalog, ask: &Ask, title: &str, code: &str) -> Option<String> {
    let Ask { title: _, detail, cwd, is_elsewhere: _, reason, form, gap } = ask;
    let block = code_block(detail);
    let folder = cwd.as_ref().map(|cwd| code_span(cwd, usize::MAX));
    let action = match folder.clone() {
        Some(folder) => TextKey::AskActionIn.with("action", block.as_str()).with("folder", folder),
        None => LocalizedText::Said(block.clone()),
    };
    let gap = gap.as_ref().map(|gap| words.say(gap));
    let action = match gap.clone() {
        Some(gap) => TextKey::AskGap.with("action", action).with("gap", gap),
        None => action,
    };
    let action = match reason.as_deref().filter(|reason| !reason.trim().is_empty()) {
        Some(reason) => TextKey::AskReason.with("action", action).with("reason", code_span(reason, REASON)),
        None => action,
    };
    let options = form.options_text(words);
    let is_once_only = form.is_once_only();
    let text = match (options.is_empty(), form.takes_text) {
        _ if is_once_only => TextKey::AskOnce.with("title", title),
        (true, false) => TextKey::Ask.with("title", title),
        (true, true) => TextKey::AskText.with("title", title),
        (false, false) => TextKey::AskOptions.with("title", title).with("options", options.as_str()),
        (false, true) => TextKey::AskOptionsText.with("title", title).with("options", options.as_str()),
    };
    let text = words.say(&text.with("action", action).with("code", code));
    let shows = |part: &str| text.contains(part);
    let all = !detail.trim().is_empty()
        && shows(&block)
        && shows(code)
        && folder.is_none_or(|folder| shows(&folder))
        && gap.is_none_or(|gap| shows(&gap))
        && (is_once_only || form.options.iter().all(|option| shows(&option.shown())) && shows(&options));
    all.then_some(text)
}

/// The ask as one message, because nobody may approve half of it. It belongs to no turn: it must not wait for the end
/// of the growing answer.
pub(super) fn ask_message(question: &RoomQuestion, key: SendKey, text: String) -> OutboxRow {
    OutboxRow {
        key,
        account: question.account.clone(),
        place: question.place.clone(),
        turn: None,
        kind: OutboxKind::Notice,
        part: 0,
        body: MessageBody { reply_to: Some(question.event.clone()), ..MessageBody::new(BodyKind::Ask, text) },
        not_before: 0,
    }
}

/// Tells the room how an ask ended, unless the operator silenced that. An app reads it in the events of the turn.
pub(super) fn tell(
    tx: &Tx<'_>,
    words: &TextCatalog,
    turn: &TurnRow,
    max_text: usize,
    key: SendKey,
    phrase: &LocalizedText,
) -> Result<()> {
    source::notice(&turn.source, key, max_text).map_or(Ok(()), |notice| notice.tell(tx, words, phrase))
}
