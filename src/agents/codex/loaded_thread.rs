//! The state of a thread that is loaded in a codex process.

use super::wire::EffectivePolicy;
use crate::agent::Ask;

/// Approvals that are remembered of a thread. Beyond it the thread is opened anew before each turn, so that codex asks
/// again and our own grants decide.
const GRANTS: usize = 64;

/// A loaded thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedThread {
    /// The rules that hold in it.
    pub policy: EffectivePolicy,
    /// Whether the tools server that it calls by our name is our own; `None` if codex has read its configuration again
    /// since that was known.
    pub has_own_server: Option<bool>,
    /// Number of messages of the process before it was loaded.
    pub since: u64,
    /// Number of its last use, among those of all threads.
    pub used: u64,
    /// Number of times that codex has shortened its history since it was loaded.
    pub epoch: u32,
    /// The turn that runs in it. Codex would add a second prompt to that turn instead of refusing it.
    pub active: Option<ActiveTurn>,
    /// Asks that a person has allowed for longer than once, and that codex does not repeat.
    grants: Vec<Ask>,
    /// Codex may know more approvals than `grants` has.
    has_more_grants: bool,
}

/// A turn that runs in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveTurn {
    /// Codex has not said that it has begun. It answers the start before that, and then does not know the turn by its id
    /// yet.
    Starting,
    /// The turn with this id has begun.
    Running(String),
}

impl LoadedThread {
    /// A thread in which nothing runs, loaded after so many messages of the process.
    pub fn new(policy: EffectivePolicy, since: u64) -> Self {
        Self { policy, since, ..Self::default() }
    }

    /// Notes that a turn runs.
    pub fn begin_turn(&mut self, id: Option<&str>) {
        self.active = Some(id.map_or(ActiveTurn::Starting, |id| ActiveTurn::Running(id.to_owned())));
    }

    /// Remembers an ask that codex will not repeat.
    pub fn keep_grant(&mut self, ask: Ask) {
        if self.grants.contains(&ask) {
            return;
        }
        match self.grants.len() < GRANTS {
            true => self.grants.push(ask),
            false => self.has_more_grants = true,
        }
    }

    /// Asks whose approvals must still hold before the next turn; `None` if that cannot be known.
    pub fn grants(&self) -> Option<&[Ask]> {
        (!self.has_more_grants).then_some(&self.grants)
    }
}
