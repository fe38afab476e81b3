//! Turns the gateway's own texts into messages for a room.
//!
//! Pure but for writing to the store. A notice belongs to no turn: it must neither wait for the end of a
//! growing answer nor replace the message that shows one.

use talaria_platform::{AccountId, BodyKind, EventId, MessageBody, Place, SendKey};

use crate::i18n::{LocalizedText, TextCatalog};
use crate::reply;
use crate::store::{OutboxKind, OutboxRow, Result, Tx};
use crate::util::hash;

/// The key of a notice that is said once for each of what `about` names.
pub fn notice_key(what: &str, about: &[&str]) -> SendKey {
    let digest = hash(about.iter().copied());
    SendKey::new(format!("{what}.{}", digest.get(..32).unwrap_or(&digest)))
}

/// Address and key of a notice.
pub struct Notice<'a> {
    /// Idempotency key: a second notice with this key is not sent.
    pub key: SendKey,
    /// Account that sends it.
    pub account: &'a AccountId,
    /// Place that it is sent to.
    pub place: &'a Place,
    /// The message it is about, if any.
    pub reply_to: Option<&'a EventId>,
    /// Longest message of the platform, in bytes; a longer notice becomes several messages.
    pub max_text: usize,
}

impl Notice<'_> {
    /// Adds the notice to the outbox, in the transaction that makes it true.
    pub fn tell(&self, tx: &Tx<'_>, words: &TextCatalog, phrase: &LocalizedText) -> Result<()> {
        self.rows(words, phrase).iter().try_for_each(|row| tx.add_outbox(row))
    }

    /// Adds a notice that the request in `reply_to` is refused.
    pub fn refuse(&self, tx: &Tx<'_>, words: &TextCatalog, phrase: &LocalizedText) -> Result<()> {
        let mut rows = self.rows(words, phrase);
        rows.iter_mut().for_each(|row| row.body.failed = true);
        rows.iter().try_for_each(|row| tx.add_outbox(row))
    }

    /// Changes the text of this notice, which was sent before, no earlier than `not_before`. Replaces changes
    /// that wait: only the latest one is shown. Each change needs a `revision` of its own.
    pub fn change(
        &self,
        tx: &Tx<'_>,
        words: &TextCatalog,
        phrase: &LocalizedText,
        revision: usize,
        not_before: i64,
    ) -> Result<()> {
        match self.rows(words, phrase).into_iter().next() {
            Some(row) => tx.change_notice(OutboxRow { not_before, ..row }, revision),
            None => Ok(()),
        }
    }

    /// The messages of the notice; none if the operator silenced it.
    pub fn rows(&self, words: &TextCatalog, phrase: &LocalizedText) -> Vec<OutboxRow> {
        let text = words.say(phrase);
        if text.trim().is_empty() {
            return Vec::new();
        }
        let parts = reply::split(&text, self.max_text).into_iter().enumerate();
        parts.map(|(part, text)| self.row(part, text)).collect()
    }

    fn row(&self, part: usize, text: String) -> OutboxRow {
        let key = match part {
            0 => self.key.clone(),
            more => SendKey::new(format!("{}.{more}", self.key.as_str())),
        };
        OutboxRow {
            key,
            account: self.account.clone(),
            place: self.place.clone(),
            turn: None,
            kind: OutboxKind::Notice,
            part,
            body: MessageBody {
                reply_to: self.reply_to.cloned(),
                ..MessageBody::new(BodyKind::Notice, text)
            },
            not_before: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_notice_becomes_several_messages_with_keys_of_their_own() {
        let (account, place) = (AccountId::from("test"), Place::room("!all"));
        let key = SendKey::new("n.1".to_owned());
        let notice = Notice { key, account: &account, place: &place, reply_to: None, max_text: 400 };
        let rows = notice.rows(&TextCatalog::default(), &LocalizedText::Said("word ".repeat(200)));
        let keys: Vec<_> = rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["n.1", "n.1.1", "n.1.2"]);
        assert!(rows.iter().all(|row| row.body.markdown.len() <= 400), "{rows:?}");
        assert!(notice.rows(&TextCatalog::default(), &LocalizedText::Said(" \n".to_owned())).is_empty());
    }
}
