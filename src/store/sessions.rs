//! Sessions and what was said in them.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, Row, params};

use super::{Result, Tx, unix_now};
use crate::agent::{MessageRole, SessionMessage, legal_history};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::rules::SessionKey;
use crate::util::hash;
use crate::util::one_line;

/// A session as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its own id.
    pub id: SessionId,
    /// Number of changes to its history after the fact.
    pub forks: u32,
    /// Number by which people call it: it counts the sessions of one key, and never changes.
    pub number: i64,
    /// Title that a person gave it.
    pub title: Option<String>,
    /// Time of the last prompt, or of its resumption, in seconds since 1970.
    pub used: i64,
    /// The agent that was chosen for it; `None` for the agent of its place, or the default one.
    pub agent: Option<AgentName>,
    /// The model that was chosen for it among those of its agent; `None` for the agent's usual one.
    pub chosen_model: Option<String>,
}

/// A session as people choose from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// The session itself.
    pub session: SessionRow,
    /// Name that people recognize it by; see `known_by`.
    pub title: Option<String>,
    /// Number of its messages.
    pub messages: usize,
    /// Whether it is the current session of its key.
    pub current: bool,
}

impl SessionRow {
    /// The name under which an upstream knows this history: a changed history is another one to it.
    pub fn upstream_id(&self) -> SessionId {
        let SessionId(id) = self.folder_name();
        SessionId(match self.forks {
            0 => id,
            n => format!("{id}.{n}"),
        })
    }

    /// A name of the session with plain characters alone, which a change of its history does not change.
    pub fn folder_name(&self) -> SessionId {
        folder_name(&self.id)
    }
}

/// A name for the session with this id that has plain characters alone.
pub fn folder_name(SessionId(id): &SessionId) -> SessionId {
    // Upstreams refuse the `/` between an app and its name for a session.
    SessionId(match id.split_once('/') {
        Some((app, name)) => format!("{app}_{}", &hash([app, name])[..16]),
        None if is_plain(id) => id.clone(),
        None => format!("s_{}", &hash([id.as_str()])[..32]),
    })
}

/// Whether a name stays as it is on its way to any upstream. A name that could be shortened, cleaned, or taken for the
/// `.<n>` of a changed history could equal the name of another session there.
fn is_plain(id: &str) -> bool {
    id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

const COLUMNS: &str = "id, forks, number, title, used, agent, chosen_model";

/// The columns of a list, before [`FIRST_QUESTION`].
const LISTED: &str = "id, forks, number, title, used, agent, chosen_model, current,
    (SELECT count(*) FROM messages WHERE messages.session = sessions.id)";

/// A session's first question. Only its beginning: it may be long, and one line of it is shown.
pub(super) const FIRST_QUESTION: &str = "(SELECT substr(prompt, 1, 400) FROM turns
    WHERE turns.session = sessions.id AND undone = 0 ORDER BY seq LIMIT 1)";

/// Characters of a question that stand for a session without a title.
const QUESTION: usize = 60;

/// Name that people recognize a session by: its title, or else its first question.
pub(super) fn known_by(title: Option<String>, question: Option<String>) -> Option<String> {
    let question = question.map(|question| one_line(&question, QUESTION));
    title.or(question).filter(|title| !title.is_empty())
}

impl Tx<'_> {
    /// The current session of a key, begun now if there is none.
    pub fn session_for(&self, key: &SessionKey) -> Result<SessionRow> {
        match self.current_session(key)? {
            Some(session) => Ok(session),
            None => self.begin_session(key),
        }
    }

    /// The current session of a key, if there is one. Changes nothing.
    pub fn current_session(&self, key: &SessionKey) -> Result<Option<SessionRow>> {
        let mut query = self
            .conn
            .prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE key = ?1 AND current = 1"))?;
        Ok(query.query_row([&key.digest], read_session).optional()?)
    }

    /// Ends the current session of a key, which stays stored, and begins another one with the same agent.
    pub fn begin_session(&self, key: &SessionKey) -> Result<SessionRow> {
        let agent = self.chosen_agent(key)?;
        self.begin_session_with(key, agent.as_ref())
    }

    /// The agent that was chosen for the current session of a key.
    pub fn chosen_agent(&self, key: &SessionKey) -> Result<Option<AgentName>> {
        let mut query =
            self.conn.prepare_cached("SELECT agent FROM sessions WHERE key = ?1 AND current = 1")?;
        let agent: Option<Option<String>> = query.query_row([&key.digest], |row| row.get(0)).optional()?;
        Ok(agent.flatten().as_deref().and_then(AgentName::new))
    }

    /// Chooses the agent of a session; `None` for the agent of its place, or the default one.
    pub fn set_agent(&self, id: &SessionId, agent: Option<&AgentName>) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET agent = ?2 WHERE id = ?1")?
            .execute(params![id.0, agent.map(AgentName::as_str)])?;
        Ok(())
    }

    /// Chooses the model of a session; `None` for the usual one of its agent.
    pub fn choose_model(&self, id: &SessionId, model: Option<&str>) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET chosen_model = ?2 WHERE id = ?1")?
            .execute(params![id.0, model])?;
        Ok(())
    }

    /// Ends the current session of a key, which stays stored, and begins another one with this agent. After the commit
    /// the caller lets the engine tell the agents of the one that ended (`PostCommit::EndSessions`).
    pub fn begin_session_with(&self, key: &SessionKey, agent: Option<&AgentName>) -> Result<SessionRow> {
        let mut query = self.conn.prepare_cached("SELECT id FROM sessions WHERE key = ?1 AND current = 1")?;
        if let Some(ended) = query.query_row([&key.digest], |row| row.get(0)).optional()? {
            self.end_agents(&SessionId(ended), None)?;
        }
        self.conn
            .prepare_cached("UPDATE sessions SET current = 0 WHERE key = ?1 AND current = 1")?
            .execute([&key.digest])?;
        let id = SessionId::new(SystemTime::now());
        let mut begin = self.conn.prepare_cached(&format!(
            "INSERT INTO sessions (id, key, account, room, created, used, number, agent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5,
                 (SELECT coalesce(max(number), 0) + 1 FROM sessions WHERE key = ?2), ?6)
             RETURNING {COLUMNS}"
        ))?;
        let (account, room) = (key.account.as_str(), key.room.as_str());
        let agent = agent.map(AgentName::as_str);
        Ok(begin.query_row(params![id.0, key.digest, account, room, unix_now(), agent], read_session)?)
    }

    /// A session by its id.
    pub fn session(&self, id: &SessionId) -> Result<SessionRow> {
        let mut query = self.conn.prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?;
        Ok(query.query_row([&id.0], read_session)?)
    }

    /// The sessions of a key that say anything, the current one and then the latest first, and how many there
    /// are beyond `limit`.
    pub fn sessions_of(&self, key: &SessionKey, limit: usize) -> Result<(Vec<ListedSession>, usize)> {
        const SAYS_SOMETHING: &str = "key = ?1 AND (current = 1 OR title IS NOT NULL
                 OR EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id))";
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {LISTED}, {FIRST_QUESTION} FROM sessions WHERE {SAYS_SOMETHING}
             ORDER BY current DESC, used DESC, number DESC LIMIT ?2"
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = query.query_map(params![key.digest, limit], read_listed)?;
        let listed = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut query =
            self.conn.prepare_cached(&format!("SELECT count(*) FROM sessions WHERE {SAYS_SOMETHING}"))?;
        let all: usize = query.query_row([&key.digest], |row| row.get(0))?;
        Ok((listed.clone(), all.saturating_sub(listed.len())))
    }

    /// Finds a session of a key by its number or its id. Sessions of other keys are never found.
    pub fn find_session(&self, key: &SessionKey, named: &str) -> Result<Option<ListedSession>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {LISTED}, {FIRST_QUESTION} FROM sessions WHERE key = ?1 AND (id = ?2 OR number = ?3)"
        ))?;
        let number: Option<i64> = named.parse().ok();
        Ok(query.query_row(params![key.digest, named, number], read_listed).optional()?)
    }

    /// Makes a session of a key the current one again.
    pub fn resume_session(&self, key: &SessionKey, id: &SessionId) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET current = 0 WHERE key = ?1 AND current = 1")?
            .execute([&key.digest])?;
        self.conn
            .prepare_cached("UPDATE sessions SET current = 1, used = ?3 WHERE key = ?1 AND id = ?2")?
            .execute(params![key.digest, id.0, unix_now()])?;
        Ok(())
    }

    /// Records that a prompt came into a session, and reopens the session if it was over.
    pub fn use_session(&self, id: &SessionId) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET used = ?2, ended = NULL, end_reason = NULL WHERE id = ?1")?
            .execute(params![id.0, unix_now()])?;
        Ok(())
    }

    /// Names a session.
    pub fn set_title(&self, id: &SessionId, title: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE sessions SET title = ?2 WHERE id = ?1")?
            .execute(params![id.0, title])?;
        Ok(())
    }

    /// Whether anything was ever asked in a session.
    pub fn is_used(&self, id: &SessionId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE session = ?1)")?;
        Ok(query.query_row([&id.0], |row| row.get(0))?)
    }

    /// Records that the session's history differs from the one that the upstream remembers.
    pub fn fork_session(&self, id: &SessionId) -> Result<()> {
        self.conn.prepare_cached("UPDATE sessions SET forks = forks + 1 WHERE id = ?1")?.execute([&id.0])?;
        Ok(())
    }

    /// Appends a message.
    pub fn record(&self, session: &SessionId, turn: &TurnId, role: MessageRole, content: &str) -> Result<()> {
        self.add_message(session, turn, role, content, None, None)
    }

    /// Appends a message of an agent's own transcript.
    pub fn add_record(&self, session: &SessionId, turn: &TurnId, message: &SessionMessage) -> Result<()> {
        let SessionMessage { role, content, tools, reasoning } = message;
        let tools = tools.as_ref().map(serde_json::to_string).transpose()?;
        self.add_message(session, turn, *role, content, tools, reasoning.as_deref())
    }

    fn add_message(
        &self,
        session: &SessionId,
        turn: &TurnId,
        role: MessageRole,
        content: &str,
        tools: Option<String>,
        reasoning: Option<&str>,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO messages (session, turn, role, content, tools, reasoning, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![session.0, turn.0, role_name(role), content, tools, reasoning, unix_now()])?;
        Ok(())
    }

    /// The newest messages within both caps, oldest first, as an agent may be sent them: without notes and reasoning.
    /// Costs what it returns, not what is stored.
    pub fn history(&self, session: &SessionId, messages: usize, bytes: usize) -> Result<Vec<SessionMessage>> {
        let mut query = self.conn.prepare_cached(
            "SELECT role, content, tools FROM messages WHERE session = ?1 AND role <> 'note' ORDER BY id DESC",
        )?;
        let mut rows = query.query([&session.0])?;
        let mut newest_first = Vec::new();
        let (mut messages_left, mut bytes_left, mut tool_bytes_left) = (messages, bytes, Some(bytes));
        while let Some(row) = rows.next()? {
            let (role, content, tools): (String, String, Option<String>) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let role = role_from(&role);
            if role != MessageRole::Tool && !content.is_empty() {
                let left = (messages_left.checked_sub(1), bytes_left.checked_sub(content.len()));
                let (Some(fewer), Some(room)) = left else { break };
                (messages_left, bytes_left) = (fewer, room);
            }
            // Beyond the budget, older messages keep their text and lose their tools.
            if let Some(tools) = &tools {
                let size = tools.len() + if role == MessageRole::Tool { content.len() } else { 0 };
                tool_bytes_left = tool_bytes_left.and_then(|left| left.checked_sub(size));
            }
            let tools = tools.filter(|_| tool_bytes_left.is_some());
            if role == MessageRole::Tool && tools.is_none() {
                continue;
            }
            let tools = tools.as_deref().map(serde_json::from_str).transpose()?;
            newest_first.push(SessionMessage { tools, ..SessionMessage::new(role, content) });
        }
        newest_first.reverse();
        Ok(legal_history(newest_first))
    }

    /// Number of messages in a session.
    pub fn message_count(&self, session: &SessionId) -> Result<usize> {
        let mut query = self.conn.prepare_cached("SELECT count(*) FROM messages WHERE session = ?1")?;
        Ok(query.query_row([&session.0], |row| row.get(0))?)
    }

    /// Deletes every message that a turn added. Returns whether there were any.
    pub fn forget_messages(&self, turn: &TurnId) -> Result<bool> {
        let forgotten =
            self.conn.prepare_cached("DELETE FROM messages WHERE turn = ?1")?.execute([&turn.0])?;
        Ok(forgotten > 0)
    }

    /// Whether a session is the current one of its key.
    pub fn is_current(&self, id: &SessionId) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT current FROM sessions WHERE id = ?1")?;
        Ok(query.query_row([&id.0], |row| row.get(0)).optional()?.unwrap_or_default())
    }
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: SessionId(row.get(0)?),
        forks: row.get(1)?,
        number: row.get(2)?,
        title: row.get(3)?,
        used: row.get(4)?,
        agent: row.get::<_, Option<String>>(5)?.as_deref().and_then(AgentName::new),
        chosen_model: row.get(6)?,
    })
}

fn read_listed(row: &Row<'_>) -> rusqlite::Result<ListedSession> {
    let session = read_session(row)?;
    Ok(ListedSession {
        title: known_by(session.title.clone(), row.get(9)?),
        session,
        current: row.get(7)?,
        messages: row.get(8)?,
    })
}

pub(super) fn role_name(role: MessageRole) -> &'static str {
    match role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
        MessageRole::Note => "note",
    }
}

pub(super) fn role_from(name: &str) -> MessageRole {
    match name {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        "note" => MessageRole::Note,
        _ => MessageRole::Tool,
    }
}

#[cfg(test)]
mod tests {
    use talaria_platform::{Place, UserId};

    use super::*;
    use crate::rules::SessionRules;
    use crate::store::tests::temporary;

    #[test]
    fn no_two_sessions_are_one_to_an_upstream() {
        let long = |end: &str| "x".repeat(250) + end;
        let ids = ["s", "s.1", "a b", "a  b", "a\u{200b} b", "app/s", "app_s", "ключ"].map(str::to_owned);
        let ids = ids.into_iter().chain([long("1"), long("2")]);
        let all = ids.flat_map(|id| {
            [0, 1].map(|forks| {
                let id = SessionId(id.clone());
                SessionRow { id, forks, number: 1, title: None, used: 0, agent: None, chosen_model: None }
                    .upstream_id()
                    .0
            })
        });
        let mut all: Vec<_> = all.collect();
        assert!(
            all.iter().all(|id| id.len() < 150 && id.bytes().all(|byte| byte.is_ascii_graphic())),
            "{all:?}"
        );
        assert!(all.contains(&"s".to_owned()), "a plain name stays as it is");
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
    }

    #[tokio::test]
    async fn the_current_session_comes_first_whatever_the_clock_did() {
        let (_dir, store) = temporary();
        let (place, person) = (Place::room("!all"), UserId::from("@ann"));
        let key = SessionKey::new(&"test".into(), &place, false, &person, SessionRules::default());
        let listed = store.write(move |tx| {
            for title in ["one", "two", "three"] {
                let session = tx.begin_session(&key)?;
                tx.set_title(&session.id, title)?;
            }
            // The first was used when the clock was years ahead.
            tx.conn.execute("UPDATE sessions SET used = used + 100000000 WHERE number = 1", [])?;
            let (listed, more) = tx.sessions_of(&key, 2)?;
            let numbers: Vec<_> = listed.iter().map(|listed| listed.session.number).collect();
            Ok((numbers, more))
        });
        assert_eq!(listed.await.unwrap(), (vec![3, 1], 1));
    }
}
