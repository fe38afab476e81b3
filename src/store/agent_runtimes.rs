//! Runtimes of agents that were chosen at run time. They win over the configuration and survive a restart.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use super::{Result, Tx, unix_now};
use crate::ids::AgentName;
use crate::rules::AgentRuntime;

impl Tx<'_> {
    /// Every chosen runtime, by agent. A runtime that this version does not know is left out.
    pub fn runtime_overrides(&self) -> Result<BTreeMap<AgentName, AgentRuntime>> {
        let mut query = self.conn.prepare_cached("SELECT agent, runtime FROM agent_runtimes")?;
        let mut rows = query.query([])?;
        let mut overrides = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let (agent, runtime): (String, String) = (row.get(0)?, row.get(1)?);
            let (Some(agent), Some(runtime)) = (AgentName::new(&agent), AgentRuntime::named(&runtime)) else {
                continue;
            };
            overrides.insert(agent, runtime);
        }
        Ok(overrides)
    }

    /// Forgets the choices for all agents but these, and returns those that are left.
    pub fn keep_runtime_overrides(
        &self,
        agents: &BTreeSet<AgentName>,
    ) -> Result<BTreeMap<AgentName, AgentRuntime>> {
        let mut chosen = self.runtime_overrides()?;
        for agent in chosen.keys().filter(|agent| !agents.contains(agent)) {
            self.set_runtime_override(agent, None)?;
        }
        chosen.retain(|agent, _| agents.contains(agent));
        Ok(chosen)
    }

    /// Stores the runtime that was chosen for an agent; `None` forgets the choice. Rows are few: one for each agent of a
    /// configuration that was ever switched.
    pub fn set_runtime_override(&self, agent: &AgentName, runtime: Option<AgentRuntime>) -> Result<()> {
        match runtime {
            Some(runtime) => self
                .conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO agent_runtimes (agent, runtime, at) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![agent.as_str(), runtime.name(), unix_now()])?,
            None => self
                .conn
                .prepare_cached("DELETE FROM agent_runtimes WHERE agent = ?1")?
                .execute([agent.as_str()])?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;

    #[tokio::test]
    async fn the_choice_for_an_agent_that_cannot_be_switched_is_forgotten() {
        let (_dir, store) = temporary();
        let (local, gone) = (AgentName::local(), AgentName::new("gone").unwrap());
        let codex = AgentRuntime::CodexAppServer;
        let left = store.write(move |tx| {
            tx.set_runtime_override(&local, Some(codex))?;
            tx.set_runtime_override(&gone, Some(codex))?;
            Ok((tx.keep_runtime_overrides(&[local].into())?, tx.runtime_overrides()?))
        });
        let chosen = BTreeMap::from([(AgentName::local(), codex)]);
        assert_eq!(left.await.unwrap(), (chosen.clone(), chosen));
    }

    #[tokio::test]
    async fn a_trial_leaves_nothing() {
        let (_dir, store) = temporary();
        let overrides = store.write(|tx| {
            let choose = |tx: &Tx<'_>| {
                tx.set_runtime_override(&AgentName::local(), Some(AgentRuntime::Auto))?;
                tx.runtime_overrides()
            };
            Ok((tx.undone(choose)?.len(), tx.runtime_overrides()?.len()))
        });
        assert_eq!(overrides.await.unwrap(), (1, 0));
    }

    #[tokio::test]
    async fn a_choice_is_kept_until_it_is_forgotten() {
        let (_dir, store) = temporary();
        let overrides = store.write(|tx| {
            let local = AgentName::local();
            tx.set_runtime_override(&local, Some(AgentRuntime::Auto))?;
            tx.set_runtime_override(&local, Some(AgentRuntime::CodexAppServer))?;
            tx.conn.execute("INSERT INTO agent_runtimes VALUES ('other', 'of a later version', 0)", [])?;
            let chosen = tx.runtime_overrides()?;
            tx.set_runtime_override(&local, None)?;
            Ok((chosen, tx.runtime_overrides()?))
        });
        let chosen = BTreeMap::from([(AgentName::local(), AgentRuntime::CodexAppServer)]);
        assert_eq!(overrides.await.unwrap(), (chosen, BTreeMap::new()));
    }
}
