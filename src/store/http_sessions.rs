//! Sessions over HTTP: list, read, change, branch and remove.

use rusqlite::{OptionalExtension as _, Row, params};

use super::idempotency::{MESSAGE_BYTES, NewSession};
use super::sessions::{FIRST_QUESTION, known_by};
use super::{Result, TranscriptRow, Tx, unix_now};
use crate::agent::TokenUsage;
use crate::ids::SessionId;

/// Most bytes of content in one page of messages.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// The setting that counts removed sessions.
const REMOVED: &str = "sessions.removed";

/// Selects sessions by owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionOwner {
    /// Sessions of this app only.
    App(String),
    /// Sessions of the server's owner and of rooms.
    Owners,
}

/// A session as HTTP clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct SeenSession {
    pub id: SessionId,
    pub account: String,
    /// The title that was set, or else the first prompt.
    pub title: Option<String>,
    pub model: Option<String>,
    pub created: i64,
    pub used: i64,
    pub ended: Option<i64>,
    pub end_reason: Option<String>,
    pub parent: Option<SessionId>,
    pub has_system_prompt: bool,
    pub messages: u64,
    pub tool_calls: u64,
    pub api_calls: u64,
    pub tokens: TokenUsage,
}

/// Changes to a session. `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChange {
    /// The new title; `Some(None)` removes it.
    pub title: Option<Option<String>>,
    /// Ends the session for this reason.
    pub end_reason: Option<String>,
}

/// A page of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptPage {
    /// Messages, oldest first.
    pub messages: Vec<TranscriptRow>,
    /// Number of messages in the whole session.
    pub total: u64,
}

/// A part of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPage {
    /// Starts after this session.
    pub after: Option<SessionId>,
    /// Number of sessions to skip.
    pub offset: usize,
    /// Most sessions to return.
    pub limit: usize,
}

/// The statement that lists sessions. Its filters match those of the indices word for word.
fn list_query(whose: &SessionOwner, after: bool) -> String {
    let filter = match whose {
        SessionOwner::App(_) => "account = '@http' AND room = ?3",
        SessionOwner::Owners => "(account <> '@http' OR room = '') AND ?3 = ''",
    };
    let after = if after { "(used, id) < (?4, ?5)" } else { "?4 = 0 AND ?5 = ''" };
    // The page is chosen first, so that nothing is counted for sessions outside it.
    format!(
        "WITH page (id) AS MATERIALIZED (SELECT id FROM sessions WHERE {filter} AND {after}
             ORDER BY used DESC, id DESC LIMIT ?1 OFFSET ?2)
         SELECT {SEEN}, {FIRST_QUESTION} FROM page CROSS JOIN sessions USING (id)"
    )
}

/// Columns of a session, before [`FIRST_QUESTION`]. Numbers of an upstream are capped, because a sum that overflows
/// would be an error. Agents that report no messages still report the names of their tools.
const SEEN: &str = "id, account, title, model, created, max(used, created), ended, end_reason, parent,
    coalesce(system_prompt, '') <> '',
    (SELECT count(*) FROM messages WHERE messages.session = sessions.id),
    max((SELECT coalesce(sum(json_array_length(tools, '$.tool_calls')), 0) FROM messages
             WHERE messages.session = sessions.id AND tools IS NOT NULL),
        (SELECT coalesce(sum(json_array_length(tools)), 0) FROM turns WHERE turns.session = sessions.id)),
    (SELECT coalesce(sum(api_calls), 0) FROM turns WHERE turns.session = sessions.id),
    (SELECT coalesce(sum(min(input_tokens, 1000000000)), 0) FROM turns WHERE turns.session = sessions.id),
    (SELECT coalesce(sum(min(output_tokens, 1000000000)), 0) FROM turns WHERE turns.session = sessions.id)";

impl Tx<'_> {
    /// The session with this id.
    pub fn seen_session(&self, id: &SessionId) -> Result<Option<SeenSession>> {
        let mut query = self
            .conn
            .prepare_cached(&format!("SELECT {SEEN}, {FIRST_QUESTION} FROM sessions WHERE id = ?1"))?;
        Ok(query.query_row([&id.0], read_seen).optional()?)
    }

    /// A page of an owner's sessions, the last used first. `None` if the session after which the page starts is gone.
    /// The cost does not grow with the number of sessions: the index has this order, and skipped sessions are only
    /// stepped over.
    pub fn seen_sessions(
        &self,
        whose: &SessionOwner,
        page: &SessionPage,
    ) -> Result<Option<Vec<SeenSession>>> {
        let after = match &page.after {
            Some(id) => match self.last_use(id)? {
                Some(used) => Some((used, id.0.as_str())),
                None => return Ok(None),
            },
            None => None,
        };
        let mut query = self.conn.prepare_cached(&list_query(whose, after.is_some()))?;
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let (limit, offset) = (number(page.limit), number(page.offset));
        let app = match whose {
            SessionOwner::App(app) => app.as_str(),
            SessionOwner::Owners => "",
        };
        let (used, id) = after.unwrap_or_default();
        let rows = query.query_map(params![limit, offset, app, used, id], read_seen)?;
        Ok(Some(rows.collect::<rusqlite::Result<_>>()?))
    }

    fn last_use(&self, id: &SessionId) -> Result<Option<i64>> {
        let mut query = self.conn.prepare_cached("SELECT used FROM sessions WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?)
    }

    /// System text that is sent with every turn of a session.
    pub fn system_prompt(&self, id: &SessionId) -> Result<Option<String>> {
        let mut query = self.conn.prepare_cached("SELECT system_prompt FROM sessions WHERE id = ?1")?;
        let prompt: Option<Option<String>> = query.query_row([&id.0], |row| row.get(0)).optional()?;
        Ok(prompt.flatten().filter(|prompt| !prompt.is_empty()))
    }

    /// Changes a session. A session that gets a title is kept from now on.
    pub fn change_session(&self, id: &SessionId, change: &SessionChange) -> Result<()> {
        if let Some(title) = &change.title {
            self.conn
                .prepare_cached(
                    "UPDATE sessions SET title = ?2, passing = passing AND ?2 IS NULL,
                         expires = iif(?2 IS NULL, expires, NULL) WHERE id = ?1",
                )?
                .execute(params![id.0, title])?;
        }
        if let Some(reason) = &change.end_reason {
            self.end_session(id, reason)?;
        }
        Ok(())
    }

    pub(super) fn end_session(&self, id: &SessionId, reason: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET ended = ?2, end_reason = ?3 WHERE id = ?1")?
            .execute(params![id.0, unix_now(), reason])?;
        self.end_agents(id, None)?;
        Ok(())
    }

    /// Number of messages in a page, at most `limit` from `offset` on, and their bytes. Fewer than `limit` if they are
    /// long, but at least one if there is any.
    pub fn page_size(&self, id: &SessionId, limit: usize, offset: usize) -> Result<(usize, usize)> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {MESSAGE_BYTES} FROM messages WHERE session = ?1 ORDER BY id LIMIT ?2 OFFSET ?3"
        ))?;
        let mut rows = query.query(params![id.0, number(limit), number(offset)])?;
        let (mut fits, mut bytes) = (0, 0_usize);
        while let Some(row) = rows.next()? {
            let more = bytes.saturating_add(row.get(0)?);
            if fits > 0 && more > PAGE_BYTES {
                break;
            }
            (fits, bytes) = (fits + 1, more);
        }
        Ok((fits, bytes))
    }

    /// `size` messages of a session, from `offset` on.
    pub fn page_of_messages(&self, id: &SessionId, size: usize, offset: usize) -> Result<TranscriptPage> {
        let total = self.message_count(id)? as u64;
        let messages = self.transcribed(
            "session = ?1 ORDER BY id LIMIT ?2 OFFSET ?3",
            params![id.0, number(size), number(offset)],
        )?;
        Ok(TranscriptPage { messages, total })
    }

    /// Starts a session with a copy of all messages of `source`, and ends `source`.
    pub fn branch(&self, source: &SessionId, new: &NewSession) -> Result<()> {
        self.create_session(new)?;
        // The copies belong to no turn: a message that is withdrawn in `source` stays in the copy.
        self.conn
            .prepare_cached(
                "INSERT INTO messages (session, turn, role, content, tools, reasoning, at)
                 SELECT ?2, '', role, content, tools, reasoning, at FROM messages WHERE session = ?1 ORDER BY id",
            )?
            .execute([&source.0, &new.id])?;
        self.end_session(source, "branched")
    }

    /// Removes a session and everything that belongs to it. Messages in the outbox still arrive in their rooms.
    pub fn remove_session(&self, id: &SessionId) -> Result<()> {
        for table in ["checkpoints", "turn_records", "anchors", "idempotency", "asks"] {
            // A final that has yet to arrive replaces the live message, so it needs the anchor.
            let sql = format!(
                "DELETE FROM {table} WHERE turn IN (SELECT id FROM turns WHERE session = ?1 AND
                     ('{table}' <> 'anchors' OR state <> 'finalizing'))"
            );
            self.conn.prepare_cached(&sql)?.execute([&id.0])?;
        }
        self.end_agents(id, None)?;
        self.remove_forge_session(id)?;
        for table in ["messages", "grants", "responses", "turns", "session_agents"] {
            let sql = format!("DELETE FROM {table} WHERE session = ?1");
            self.conn.prepare_cached(&sql)?.execute([&id.0])?;
        }
        self.conn.prepare_cached("UPDATE sessions SET parent = NULL WHERE parent = ?1")?.execute([&id.0])?;
        // An upstream may remember the removed session, so a later session of this name must look like another one to
        // it.
        let forks: Option<i64> = self
            .conn
            .prepare_cached("DELETE FROM sessions WHERE id = ?1 RETURNING forks")?
            .query_row([&id.0], |row| row.get(0))
            .optional()?;
        let removed = self.removed_sessions()?.max(forks.unwrap_or_default()) + 1;
        self.set_setting(REMOVED, &removed.to_string())
    }

    /// A number greater than the forks of every removed session.
    pub(super) fn removed_sessions(&self) -> Result<i64> {
        Ok(self.setting(REMOVED)?.and_then(|count| count.parse().ok()).unwrap_or_default())
    }
}

fn read_seen(row: &Row<'_>) -> rusqlite::Result<SeenSession> {
    Ok(SeenSession {
        id: SessionId(row.get(0)?),
        account: row.get(1)?,
        title: known_by(row.get(2)?, row.get(15)?),
        model: row.get(3)?,
        created: row.get(4)?,
        used: row.get(5)?,
        ended: row.get(6)?,
        end_reason: row.get(7)?,
        parent: row.get::<_, Option<String>>(8)?.map(SessionId),
        has_system_prompt: row.get(9)?,
        messages: row.get(10)?,
        tool_calls: row.get(11)?,
        api_calls: row.get(12)?,
        tokens: TokenUsage { input: row.get(13)?, output: row.get(14)? },
    })
}

fn number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Retention;
    use crate::store::tests::temporary;

    fn new(id: &str, app: &str, ephemeral: bool) -> NewSession {
        NewSession { ephemeral, ..NewSession::new(&SessionId(id.to_owned()), app) }
    }

    fn unused_for(tx: &Tx<'_>, id: &str, seconds: i64) {
        let used = unix_now() - seconds;
        tx.conn.execute("UPDATE sessions SET used = ?2 WHERE id = ?1", params![id, used]).unwrap();
    }

    fn ids(seen: Vec<SeenSession>) -> Vec<String> {
        seen.into_iter().map(|session| session.id.0).collect()
    }

    #[tokio::test]
    async fn the_last_used_comes_first_and_only_ones_own_come_at_all() {
        let (_dir, store) = temporary();
        let listed = store.write(|tx| {
            for (id, app, unused) in
                [("a", "", 10), ("b", "", 30), ("c", "", 20), ("x/a", "x", 5), ("y/a", "y", 1)]
            {
                tx.create_session(&new(id, app, false))?;
                unused_for(tx, id, unused);
            }
            let list = |whose, limit, offset, after: Option<&str>| {
                let after = after.map(|id| SessionId(id.to_owned()));
                let page = tx.seen_sessions(&whose, &SessionPage { after, offset, limit })?;
                Ok::<_, crate::store::StoreError>(page.map(ids))
            };
            let apps = |app: &str| SessionOwner::App(app.to_owned());
            Ok([
                list(SessionOwner::Owners, 10, 0, None)?,
                list(SessionOwner::Owners, 1, 1, None)?,
                list(apps("x"), 10, 0, None)?,
                list(apps("z"), 10, 0, None)?,
                list(SessionOwner::Owners, 10, 0, Some("a"))?,
                list(SessionOwner::Owners, 10, 1, Some("a"))?,
                list(SessionOwner::Owners, 10, 0, Some("gone"))?,
            ])
        });
        let listed = listed.await.unwrap();
        let expected = [Some("a c b"), Some("c"), Some("x/a"), Some(""), Some("c b"), Some("b"), None]
            .map(|ids| ids.map(str::to_owned));
        assert_eq!(listed.map(|ids| ids.map(|ids| ids.join(" "))), expected);
    }

    /// Number of instructions that SQLite's virtual machine executes.
    fn cost(conn: &rusqlite::Connection, sql: &str, values: impl rusqlite::Params) -> i32 {
        let mut query = conn.prepare(sql).unwrap();
        let mut rows = query.query(values).unwrap();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        query.get_status(rusqlite::StatementStatus::VmStep)
    }

    #[tokio::test]
    async fn a_page_of_a_list_costs_the_same_however_many_sessions_there_are() {
        let (_dir, store) = temporary();
        let costs = store.write(|tx| {
            let mut costs: Vec<Vec<i32>> = Vec::new();
            for (from, to) in [(0, 100), (100, 100_000)] {
                tx.conn.execute(
                    "INSERT INTO sessions (id, key, account, room, created, used, number)
                         WITH RECURSIVE n (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?2)
                         SELECT printf('s%06d', n), printf('k%d', n), CASE n % 3 WHEN 0 THEN 'matrix' ELSE '@http' END,
                             CASE n % 3 WHEN 1 THEN '' ELSE 'x' END, n, n * 7919 % 100003, 1 FROM n",
                    params![from, to],
                )?;
                let page = |whose: &SessionOwner, after: bool, values: (i64, i64, &str, i64, &str)| {
                    cost(tx.conn, &list_query(whose, after), values)
                };
                let (owners, app) = (SessionOwner::Owners, SessionOwner::App("x".to_owned()));
                costs.push(vec![
                    page(&owners, false, (10, 0, "", 0, "")),
                    page(&owners, false, (10, 10, "", 0, "")),
                    page(&owners, true, (10, 0, "", 50_000, "s000001")),
                    page(&app, false, (10, 0, "x", 0, "")),
                    page(&app, true, (10, 0, "x", 50_000, "s000001")),
                    cost(tx.conn, &crate::store::overview::overview_query(), [10]),
                ]);
            }
            Ok(costs)
        });
        let costs = costs.await.unwrap();
        for (few, many) in costs[0].iter().zip(&costs[1]) {
            // The pages are full in both cases; the depth of the trees does not count as instructions.
            assert!(many <= &(few + few / 10), "{costs:?}");
        }
    }

    #[tokio::test]
    async fn only_what_nobody_named_goes_and_only_when_it_is_long_unused() {
        const DAY: i64 = 24 * 60 * 60;
        let (_dir, store) = temporary();
        let left = store.write(|tx| {
            for (id, ephemeral, unused) in [
                ("new", true, 0),
                ("old", true, 31 * DAY),
                ("named", false, 400 * DAY),
                ("recent", false, 89 * DAY),
            ] {
                tx.create_session(&new(id, "", ephemeral))?;
                unused_for(tx, id, unused);
            }
            tx.create_session(&NewSession { expires: Some(unix_now() - 1), ..new("expired", "", true) })?;
            tx.create_session(&NewSession { expires: Some(unix_now() + 60), ..new("expires", "", true) })?;
            // This session gets a title later.
            tx.create_session(&NewSession { expires: Some(unix_now() - 1), ..new("titled", "", true) })?;
            tx.change_session(
                &SessionId("titled".to_owned()),
                &SessionChange { title: Some(Some("Mine".to_owned())), end_reason: None },
            )?;
            unused_for(tx, "titled", 50 * DAY);
            let left = || {
                let page = tx.seen_sessions(
                    &SessionOwner::Owners,
                    &SessionPage { limit: 10, ..SessionPage::default() },
                )?;
                let mut left = ids(page.unwrap());
                left.sort();
                Ok::<_, crate::store::StoreError>(left.join(" "))
            };
            tx.prune_sessions(Retention::default())?;
            let by_default = left()?;
            let days = |days: u64| Some(std::time::Duration::from_secs(days * DAY as u64));
            tx.prune_sessions(Retention { sessions: days(90), responses: None })?;
            Ok((by_default, left()?))
        });
        let (by_default, by_setting) = left.await.unwrap();
        assert_eq!(by_default, "expires named new recent titled");
        assert_eq!(by_setting, "expires new recent titled");
    }

    #[tokio::test]
    async fn a_page_of_long_messages_is_short_but_never_empty() {
        let (_dir, store) = temporary();
        let pages = store.write(|tx| {
            let id = SessionId("s".to_owned());
            tx.create_session(&new("s", "", false))?;
            for size in [PAGE_BYTES + 1, 10, PAGE_BYTES, 10] {
                let text = "x".repeat(size);
                tx.record(&id, &crate::ids::TurnId(String::new()), crate::agent::MessageRole::User, &text)?;
            }
            let page = |offset| {
                let (size, bytes) = tx.page_size(&id, 10, offset)?;
                let messages = tx.page_of_messages(&id, size, offset)?.messages;
                assert_eq!(bytes, messages.iter().map(|said| said.message.content.len()).sum::<usize>());
                Ok::<_, crate::store::StoreError>(messages.len())
            };
            Ok([page(0)?, page(1)?, page(2)?, page(3)?, page(4)?])
        });
        assert_eq!(pages.await.unwrap(), [1, 1, 1, 1, 0]);
    }
}
