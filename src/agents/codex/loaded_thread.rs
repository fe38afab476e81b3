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
    /// Codex has not said that it has begun. It answers the start before that, with the id, and then does not know the turn
    /// by it yet. `None` until that answer.
    Starting(Option<String>),
    /// The turn with this id has begun.
    Running(String),
}

impl LoadedThread {
    /// A thread in which nothing runs, loaded after so many messages of the process.
    pub fn new(policy: EffectivePolicy, since: u64) -> Self {
        Self { policy, since, ..Self::default() }
    }

    /// Notes that a turn is about to be started.
    pub fn start_turn(&mut self) {
        self.active = Some(ActiveTurn::Starting(None));
    }

    /// Notes that the turn with this id has begun. False if nobody has started one: codex began it by itself.
    pub fn begin_turn(&mut self, id: &str) -> bool {
        self.active.replace(ActiveTurn::Running(id.to_owned())).is_some()
    }

    /// Notes the id of the turn that is about to begin.
    pub fn name_turn(&mut self, id: &str) {
        if let Some(ActiveTurn::Starting(name @ None)) = &mut self.active {
            *name = Some(id.to_owned());
        }
    }

    /// Notes that the turn with this id is over. The end of an earlier one, which may come late, changes nothing.
    pub fn end_turn(&mut self, id: &str) {
        self.active.take_if(|active| match active {
            ActiveTurn::Starting(name) => name.as_deref() == Some(id),
            ActiveTurn::Running(running) => running == id,
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_by_its_own_end_only() {
        let mut thread = LoadedThread::default();
        thread.start_turn();
        thread.end_turn("old");
        assert_eq!(thread.active, Some(ActiveTurn::Starting(None)));
        thread.name_turn("new");
        thread.end_turn("old");
        assert_eq!(thread.active, Some(ActiveTurn::Starting(Some("new".to_owned()))));
        assert!(thread.begin_turn("new"));
        thread.end_turn("old");
        assert_eq!(thread.active, Some(ActiveTurn::Running("new".to_owned())));
        thread.end_turn("new");
        assert_eq!(thread.active, None);
    }

    #[test]
    fn a_turn_that_nobody_started_runs_all_the_same() {
        let mut thread = LoadedThread::default();
        assert!(!thread.begin_turn("own"));
        assert_eq!(thread.active, Some(ActiveTurn::Running("own".to_owned())));
        thread.end_turn("own");
        assert_eq!(thread.active, None);
    }

    #[test]
    fn a_turn_that_never_began_is_over_too() {
        let mut thread = LoadedThread::default();
        thread.start_turn();
        thread.name_turn("new");
        thread.end_turn("new");
        assert_eq!(thread.active, None);
        // An answer that comes after the end names nothing.
        thread.name_turn("new");
        assert_eq!(thread.active, None);
    }
}
