//! One notice for many messages that come at once, edited to count them.
//!
//! A homeserver counts every message of ours, and people read one line more easily than eight. So the first message of
//! a run gets the notice, and each further one only edits its text. After a while, or once the run is over, a new
//! notice begins: nobody sees an edit of a message far above.

use talaria_platform::{SendKey, ShowMode};

use super::accept::EventContext;
use crate::i18n::LocalizedText;
use crate::ids::SessionId;
use crate::store::{Result, unix_now};
use crate::util::hash;

/// Seconds after which a notice is left as it is.
const RUN: i64 = 60;

/// Seconds that an edit waits for the next one, so that ten messages at once cost one edit.
const EDIT_AFTER: i64 = 2;

/// A run of messages that share one notice.
struct NoticeRun {
    began: i64,
    /// Messages in the run so far.
    count: usize,
    /// Send key of the notice.
    key: SendKey,
}

impl EventContext<'_> {
    /// Shows a notice about one message of a run; `say` makes its text from the number of messages so far. Where
    /// nothing can be edited, only the first message gets a notice.
    pub(super) fn count_notice(
        &self,
        what: &str,
        session: &SessionId,
        say: impl FnOnce(usize) -> LocalizedText,
    ) -> Result<()> {
        let (tx, now, setting) = (self.tx, unix_now(), self.run_key(what, session));
        let run = tx.setting(&setting)?.and_then(|kept| NoticeRun::parse(&kept));
        let run = run.filter(|run| (0..RUN).contains(&(now - run.began)));
        let mut run = run.unwrap_or_else(|| NoticeRun {
            began: now,
            count: 0,
            key: self.notice_key("n", &self.event.id),
        });
        run.count += 1;
        tx.set_setting(&setting, &run.text())?;
        match (run.count, self.acceptor.about.show) {
            (1, _) => self.notice(&say(1)),
            (_, ShowMode::Once) => Ok(()),
            (count, ShowMode::Append) => self.change_notice(&run.key, count, &say(count), 0),
            (count, ShowMode::Edit { .. }) => {
                self.change_notice(&run.key, count, &say(count), now + EDIT_AFTER)
            }
        }
    }

    /// Ends the run: the next message of this kind gets a notice of its own.
    pub(super) fn end_run(&self, what: &str, session: &SessionId) -> Result<()> {
        self.tx.forget_setting(&self.run_key(what, session))
    }

    fn run_key(&self, what: &str, session: &SessionId) -> String {
        let place = &self.event.place;
        let thread = place.thread.as_ref().map_or("", |thread| thread.as_str());
        format!("{what}.{}", hash([self.account().as_str(), &session.0, place.room.as_str(), thread]))
    }
}

impl NoticeRun {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let (began, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { began, count, key: SendKey::new(words.next()?) })
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.began, self.count, self.key)
    }
}
