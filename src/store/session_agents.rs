//! Agents that were asked in a session: under which id, whether they know all of it, and their reports about it.
//!
//! An agent is always asked under the newest id of the session (`<id>.<n>`). An id belongs to the agent that was asked
//! under it and to the fallback of that one: any other agent gets a new id first, also if it comes back. An agent whose
//! fallback answered since gets a new id too, because the history is another one to it; if it cannot change its history,
//! it keeps the id and does not know what was said meanwhile. An agent that was switched to another runtime gets a new id
//! as well: its earlier runtime remembers the old one. [`Tx::ask_agent`] decides all of this, for rooms and apps.

use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;

use super::{Result, SessionRow, Tx};
use crate::agent::{EndedSession, RewindSupport};
use crate::ids::{AgentName, SessionId};
use crate::rules::AgentRuntime;

/// A session as one agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// The session's id for the agent.
    pub id: SessionId,
    /// The agent's last report about it.
    pub upstream: Option<Value>,
    /// The agent knew the session under another id before, and is to be told that that one is over.
    pub replaced: bool,
}

/// The stored row of an agent in a session.
struct AskedAgent {
    /// Under which id it was asked last.
    forks: u32,
    /// Another agent answered since, and this one was not told.
    missed: bool,
    /// The runtime that it was asked on; `None` for one that this version does not know.
    runtime: Option<AgentRuntime>,
    upstream: Option<Value>,
}

/// An agent that must be told that a session is over; see [`Agent::end`](crate::agent::Agent::end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEnd {
    /// Our id of the session. It may be in use again, or deleted.
    pub session: SessionId,
    /// The content of the call.
    pub ended: EndedSession,
}

impl Tx<'_> {
    /// Settles under which id an agent is asked next in a session. `partner`: the fallback of the agent, or the agent
    /// that it is the fallback of. `runtime`: the one that the request was made for. Called in the transaction that stores
    /// the request.
    pub fn ask_agent(
        &self,
        session: &SessionId,
        agent: &AgentName,
        runtime: AgentRuntime,
        partner: Option<&AgentName>,
        rewind: RewindSupport,
    ) -> Result<AgentSession> {
        let (mut row, asked) = (self.session(session)?, self.asked_agent(session, agent)?);
        let is_another = match asked.as_ref().filter(|asked| asked.forks == row.forks) {
            Some(asked) if asked.runtime != Some(runtime) => true,
            Some(asked) => asked.missed && rewind == RewindSupport::Possible,
            None => self.is_taken(session, row.forks, partner)?,
        };
        if is_another {
            self.fork_session(session)?;
            row.forks += 1;
        }
        if let Some(asked) = asked.filter(|asked| asked.forks == row.forks) {
            let id = row.upstream_id();
            // The session may have been over, and is not any more. An earlier id of it still is, and an agent that is
            // being told cannot be stopped: its report is already gone.
            self.conn
                .prepare_cached("DELETE FROM agent_ends WHERE agent = ?1 AND name = ?2 AND telling = 0")?
                .execute([agent.as_str(), &id.0])?;
            return Ok(AgentSession { id, upstream: asked.upstream, replaced: false });
        }
        let replaced = self.end_agents(session, Some(agent))?;
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO session_agents (session, agent, forks, missed, runtime, upstream)
                 VALUES (?1, ?2, ?3, 0, ?4, NULL)",
            )?
            .execute(params![session.0, agent.as_str(), row.forks, runtime.name()])?;
        Ok(AgentSession { id: row.upstream_id(), upstream: None, replaced })
    }

    /// A session as an agent was asked in it last, also if its history changed since. Changes nothing.
    pub fn agent_session(&self, session: &SessionId, agent: &AgentName) -> Result<AgentSession> {
        let row = self.session(session)?;
        let (forks, upstream) = match self.asked_agent(session, agent)? {
            Some(asked) => (asked.forks, asked.upstream),
            None => (row.forks, None),
        };
        Ok(AgentSession { id: SessionRow { forks, ..row }.upstream_id(), upstream, replaced: false })
    }

    /// Whether an agent that is being asked in a session knows everything that was said in it.
    pub fn knows_all(&self, session: &SessionId, agent: &AgentName) -> Result<bool> {
        Ok(!self.asked_agent(session, agent)?.is_some_and(|asked| asked.missed))
    }

    /// An answer of this agent stays in the session, so every other agent has missed something.
    pub fn agent_answered(&self, session: &SessionId, agent: &AgentName) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE session_agents SET missed = 1 WHERE session = ?1 AND agent <> ?2")?
            .execute([&session.0, agent.as_str()])?;
        Ok(())
    }

    /// Stores the latest report of an agent about a session. `None` deletes it.
    pub fn set_upstream(
        &self,
        session: &SessionId,
        agent: &AgentName,
        upstream: Option<&Value>,
    ) -> Result<()> {
        let upstream = upstream.map(serde_json::to_string).transpose()?;
        self.conn
            .prepare_cached(
                // A turn that an earlier version began and this one resumed may have no row.
                "INSERT INTO session_agents (session, agent, forks, upstream)
                     SELECT id, ?2, forks, ?3 FROM sessions WHERE id = ?1
                 ON CONFLICT (session, agent) DO UPDATE SET upstream = excluded.upstream",
            )?
            .execute(params![session.0, agent.as_str(), upstream])?;
        Ok(())
    }

    /// The session is answered by the fallback from now on, and its room is told so in this transaction. `false`: it was
    /// told before.
    pub fn fallback_begins(&self, id: &SessionId) -> Result<bool> {
        let mut change =
            self.conn.prepare_cached("UPDATE sessions SET away = 1 WHERE id = ?1 AND away = 0")?;
        Ok(change.execute([&id.0])? > 0)
    }

    /// The session is answered by the agent itself from now on, and its room is told so in this transaction. `false`: it
    /// was so before.
    pub fn fallback_ends(&self, id: &SessionId) -> Result<bool> {
        let mut change =
            self.conn.prepare_cached("UPDATE sessions SET away = 0 WHERE id = ?1 AND away <> 0")?;
        Ok(change.execute([&id.0])? > 0)
    }

    /// The session is over: every agent that reported something of it is to be told, or only one of them. Returns whether
    /// there is any.
    pub fn end_agents(&self, session: &SessionId, only: Option<&AgentName>) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT agent, forks, upstream FROM session_agents
             WHERE session = ?1 AND upstream IS NOT NULL AND (?2 IS NULL OR agent = ?2)",
        )?;
        let rows = query.query_map(params![session.0, only.map(AgentName::as_str)], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?))
        })?;
        let reported = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        if reported.is_empty() {
            return Ok(false);
        }
        let row = self.session(session)?;
        for (agent, forks, upstream) in reported {
            let name = SessionRow { forks, ..row.clone() }.upstream_id();
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO agent_ends (agent, name, session, upstream)
                     VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute([&agent, &name.0, &session.0, &upstream])?;
        }
        Ok(true)
    }

    /// Whether an agent is still to be told that a session is over.
    pub(super) fn has_due_ends(&self) -> Result<bool> {
        let mut query = self.conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM agent_ends)")?;
        Ok(query.query_row([], |row| row.get(0))?)
    }

    /// Agents that are still to be told that a session is over.
    pub fn due_ends(&self) -> Result<Vec<DueEnd>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT session, agent, name, upstream FROM agent_ends ORDER BY rowid")?;
        let mut rows = query.query([])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            let agent: String = row.get(1)?;
            let Some(agent) = AgentName::new(&agent) else { continue };
            let upstream = serde_json::from_str(row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?;
            let ended = EndedSession { agent, session: SessionId(row.get(2)?), upstream };
            due.push(DueEnd { session: SessionId(row.get(0)?), ended });
        }
        Ok(due)
    }

    /// An agent is about to be told that a session is over. Its report is of no use from now on: the next turn of the
    /// session, which may come before the agent has freed it, begins without it. Returns the content of the call; `None`
    /// if the session was taken up again.
    pub fn begin_end(&self, due: &DueEnd) -> Result<Option<EndedSession>> {
        let DueEnd { session, ended } = due;
        let upstream: Option<String> = self
            .conn
            .prepare_cached(
                "UPDATE agent_ends SET telling = 1 WHERE agent = ?1 AND name = ?2 RETURNING upstream",
            )?
            .query_row([ended.agent.as_str(), &ended.session.0], |row| row.get(0))
            .optional()?;
        let Some(upstream) = upstream else { return Ok(None) };
        self.conn
            .prepare_cached(
                "UPDATE session_agents SET upstream = NULL WHERE session = ?1 AND agent = ?2 AND upstream = ?3",
            )?
            .execute([&session.0, ended.agent.as_str(), &upstream])?;
        Ok(Some(EndedSession { upstream: serde_json::from_str(&upstream)?, ..ended.clone() }))
    }

    /// An agent was told that a session is over. If it is over once more since then, the agent is still to be told that.
    pub fn end_was_told(&self, due: &DueEnd) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM agent_ends WHERE agent = ?1 AND name = ?2 AND telling = 1")?
            .execute([due.ended.agent.as_str(), &due.ended.session.0])?;
        Ok(())
    }

    /// Whether an agent was asked under this id of a session, other than `partner`.
    fn is_taken(&self, session: &SessionId, forks: u32, partner: Option<&AgentName>) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM session_agents WHERE session = ?1 AND forks = ?2 AND agent IS NOT ?3)",
        )?;
        Ok(query.query_row(params![session.0, forks, partner.map(AgentName::as_str)], |row| row.get(0))?)
    }

    fn asked_agent(&self, session: &SessionId, agent: &AgentName) -> Result<Option<AskedAgent>> {
        let mut query = self.conn.prepare_cached(
            "SELECT forks, missed, runtime, upstream FROM session_agents WHERE session = ?1 AND agent = ?2",
        )?;
        let found = query
            .query_row([&session.0, agent.as_str()], |row| {
                let runtime = AgentRuntime::named(row.get_ref(2)?.as_str()?);
                Ok((row.get(0)?, row.get(1)?, runtime, row.get::<_, Option<String>>(3)?))
            })
            .optional()?;
        let Some((forks, missed, runtime, upstream)) = found else { return Ok(None) };
        let upstream = upstream.as_deref().map(serde_json::from_str).transpose()?;
        Ok(Some(AskedAgent { forks, missed, runtime, upstream }))
    }
}

#[cfg(test)]
mod tests {
    use talaria_platform::{Place, UserId};

    use super::*;
    use crate::rules::{SessionKey, SessionRules};
    use crate::store::tests::temporary;

    /// Ids under which these agents, each with its partner, are asked one after the other. All of them answer.
    async fn asked(rewind: RewindSupport, turns: &'static [(&str, Option<&str>)]) -> Vec<String> {
        let (_dir, store) = temporary();
        let names = store.write(move |tx| {
            let rules = SessionRules::default();
            let place = Place::room("!all");
            let key = SessionKey::new(&"test".into(), &place, true, &UserId::from("@ann"), rules);
            let session = tx.session_for(&key)?.id;
            let ask = |(agent, partner): &(&str, Option<&str>)| {
                let name = |name: &str| AgentName::new(name).unwrap();
                let partner = partner.map(name);
                let asked =
                    tx.ask_agent(&session, &name(agent), AgentRuntime::Auto, partner.as_ref(), rewind)?;
                tx.agent_answered(&session, &name(agent))?;
                Ok(asked.id.0.replacen(session.0.as_str(), "s", 1))
            };
            turns.iter().map(ask).collect::<Result<Vec<_>>>()
        });
        names.await.unwrap()
    }

    #[tokio::test]
    async fn each_agent_has_ids_of_its_own() {
        let turns = &[("one", None), ("one", None), ("two", None), ("two", None), ("one", None)];
        for rewind in [RewindSupport::Possible, RewindSupport::Impossible, RewindSupport::Unknown] {
            assert_eq!(asked(rewind, turns).await, ["s", "s", "s.1", "s.1", "s.2"], "{rewind:?}");
        }
    }

    #[tokio::test]
    async fn another_runtime_gets_another_id_and_the_report_of_the_earlier_one_is_ended() {
        let (_dir, store) = temporary();
        let asked = store.write(|tx| {
            let place = Place::room("!all");
            let key =
                SessionKey::new(&"test".into(), &place, true, &UserId::from("@ann"), SessionRules::default());
            let (session, local) = (tx.session_for(&key)?.id, AgentName::local());
            let mut asked = Vec::new();
            for runtime in [
                AgentRuntime::CodexAppServer,
                AgentRuntime::CodexAppServer,
                AgentRuntime::Auto,
                AgentRuntime::CodexAppServer,
            ] {
                let known = tx.ask_agent(&session, &local, runtime, None, RewindSupport::Impossible)?;
                let id = known.id.0.replacen(session.0.as_str(), "s", 1);
                asked.push((id, known.upstream.is_some(), known.replaced));
                if runtime == AgentRuntime::CodexAppServer {
                    tx.set_upstream(&session, &local, Some(&serde_json::json!({ "thread": asked.len() })))?;
                }
            }
            Ok((asked, tx.due_ends()?.len()))
        });
        let (asked, due) = asked.await.unwrap();
        let asked: Vec<_> =
            asked.iter().map(|(id, known, replaced)| (id.as_str(), *known, *replaced)).collect();
        // The thread of the first id is told to end once; that of the last id lives.
        assert_eq!(
            asked,
            [("s", false, false), ("s", true, false), ("s.1", false, true), ("s.2", false, false)]
        );
        assert_eq!(due, 1);
    }

    #[tokio::test]
    async fn a_fallback_shares_the_id_of_its_agent() {
        let turns =
            &[("own", Some("other")), ("other", Some("own")), ("own", Some("other")), ("other", Some("own"))];
        assert_eq!(asked(RewindSupport::Possible, turns).await, ["s", "s", "s.1", "s.1"]);
        assert_eq!(asked(RewindSupport::Impossible, turns).await, ["s", "s", "s", "s"]);
        let first = &[("third", None), ("other", Some("own")), ("own", Some("other"))];
        assert_eq!(asked(RewindSupport::Possible, first).await, ["s", "s.1", "s.1"]);
    }
}
