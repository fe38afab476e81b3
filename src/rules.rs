//! What an operator may change while the gateway runs: who may do what, how places behave, the words.
//!
//! Everybody asks [`Live`] anew for each thing they decide, so a reload holds from the next event on.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use talaria_platform::{AccountId, RoomId};

use crate::access::{Lists, Policy};
use crate::words::Words;

/// The rules of this moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// What rooms are told.
    pub words: Words,
    /// Per account. One that is missing here lets nobody in.
    pub accounts: HashMap<AccountId, Arc<AccountRules>>,
}

/// The rules of one account.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountRules {
    /// Who may do what.
    pub access: Policy,
    /// What belongs to one session, and when another one begins.
    pub session: SessionRules,
    /// What a prompt does that comes while an answer runs.
    pub busy: Busy,
    /// Rooms where that is different.
    pub places: HashMap<RoomId, Busy>,
    /// How much one person may ask; `None` for an account that belongs to one person.
    pub limits: Option<Limits>,
}

/// What belongs to one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionRules {
    /// Each thread is a session of its own.
    pub threads: bool,
    /// Each person of a shared room has a session of their own.
    pub people: bool,
    /// When another one begins by itself.
    pub reset: Reset,
}

/// When another session begins by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// Never.
    #[default]
    None,
    /// With the first prompt after this time of the day.
    Daily {
        /// Since midnight, UTC.
        at: Duration,
    },
    /// With the first prompt after such a pause.
    Idle {
        /// The pause.
        after: Duration,
    },
}

/// What a prompt does that comes while an answer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Busy {
    /// It waits in line.
    #[default]
    Queue,
    /// It stops the running answer and takes its place.
    Interrupt,
}

/// How much one person may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages in a minute.
    pub per_minute: usize,
    /// Messages in an hour.
    pub per_hour: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_minute: 10, per_hour: 100 }
    }
}

impl AccountRules {
    /// An account that belongs to whoever reaches it, such as a terminal.
    pub fn owner() -> Self {
        Self {
            access: Policy::Owner,
            session: SessionRules::default(),
            busy: Busy::default(),
            places: HashMap::new(),
            limits: None,
        }
    }

    /// An account with lists, everything else at its default.
    pub fn listed(lists: Lists) -> Self {
        Self { access: Policy::Listed(lists), limits: Some(Limits::default()), ..Self::owner() }
    }

    /// What a prompt does in this room while an answer runs.
    pub fn busy_in(&self, room: &RoomId) -> Busy {
        self.places.get(room).copied().unwrap_or(self.busy)
    }
}

impl Rules {
    /// The rules of an account; one that nobody configured lets nobody in.
    pub fn account(&self, id: &AccountId) -> Arc<AccountRules> {
        self.accounts.get(id).cloned().unwrap_or_else(|| Arc::new(AccountRules::listed(Lists::default())))
    }
}

/// The rules as they are now; shared by everything that decides.
#[derive(Debug, Default)]
pub struct Live(RwLock<Arc<Rules>>);

impl Live {
    /// Begins with these.
    pub fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(rules))))
    }

    /// The rules of this moment. Not to be kept beyond one decision.
    pub fn now(&self) -> Arc<Rules> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes these hold from now on.
    pub fn replace(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}
