//! The rules that an operator may change while the gateway runs: access, sessions, limits, budgets, and the texts for
//! rooms.
//!
//! Code asks [`LiveRules`] anew for each decision, so a reload holds from the next event on.

mod agent_runtime;
mod budget;
mod session_key;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use talaria_platform::{AccountId, RoomId};

use crate::access::{AccessLists, AccessPolicy, AgentAccess, AgentAsker};
use crate::i18n::TextCatalog;
use crate::ids::AgentName;
pub use agent_runtime::AgentRuntime;
pub use budget::BudgetConfig;
pub use session_key::SessionKey;

/// All rules at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Texts that rooms are shown.
    pub words: TextCatalog,
    /// Rules by account. An account that is missing here lets nobody in.
    pub accounts: HashMap<AccountId, Arc<AccountRules>>,
    /// Rules about agents.
    pub agents: AgentRules,
    /// Budgets of tokens.
    pub budget: BudgetConfig,
}

/// Rules about agents: who may talk to each, and what each is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentRules {
    /// Rules by name. An agent that is missing here talks to nobody.
    pub by_name: BTreeMap<AgentName, AgentPolicy>,
    /// Runtimes that were chosen at run time, as the store has them. A reload keeps those of agents that can be
    /// switched; see [`LiveRules::override_runtime`].
    pub overrides: BTreeMap<AgentName, AgentRuntime>,
}

/// Rules about one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPolicy {
    /// People and programs that may talk to it.
    pub access: AgentAccess,
    /// People and programs that may talk to it while codex runs its turns. Codex acts on the machine, so without a
    /// list in the configuration it is for admins, as agents of kind `codex` are.
    pub codex_access: AgentAccess,
    /// The runtime that the configuration gives it; `None` for an agent that cannot be switched to another one.
    pub runtime: Option<AgentRuntime>,
    /// Text for the system message of its turns, after the text for all agents; empty for none.
    pub instructions: String,
}

impl Default for AgentPolicy {
    fn default() -> Self {
        Self {
            access: AgentAccess::everybody(),
            codex_access: AgentAccess::default(),
            runtime: None,
            instructions: String::new(),
        }
    }
}

impl AgentRules {
    /// Whether somebody may talk to the agent with this name, on its current runtime.
    pub fn admit(&self, agent: &AgentName, asker: AgentAsker<'_>) -> bool {
        self.by_name.get(agent).is_some_and(|policy| match self.runtime(agent) {
            AgentRuntime::Auto => policy.access.admits(asker),
            AgentRuntime::CodexAppServer => policy.codex_access.admits(asker),
        })
    }

    /// The current runtime of the agent with this name. An override of an agent that cannot be switched any more has no
    /// effect.
    pub fn runtime(&self, agent: &AgentName) -> AgentRuntime {
        match self.by_name.get(agent).and_then(|policy| policy.runtime) {
            Some(usual) => self.overrides.get(agent).copied().unwrap_or(usual),
            None => AgentRuntime::Auto,
        }
    }

    /// The agents whose runtime can be switched.
    pub fn switchable(&self) -> BTreeSet<AgentName> {
        let switchable = self.by_name.iter().filter(|(_, policy)| policy.runtime.is_some());
        switchable.map(|(name, _)| name.clone()).collect()
    }

    /// Text for the system message of the turns of the agent with this name.
    pub fn instructions(&self, agent: &AgentName) -> &str {
        self.by_name.get(agent).map_or("", |policy| policy.instructions.as_str())
    }
}

/// Rules of one account.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountRules {
    /// Which person may do which action.
    pub access: AccessPolicy,
    /// Environment variable that replaces the list `access.people` where it is set; for hints to the operator.
    pub people_variable: Option<&'static str>,
    /// Rules that group prompts into sessions and begin new ones.
    pub session: SessionRules,
    /// Effect of a prompt that comes while an answer runs.
    pub busy: BusyPolicy,
    /// Rooms with rules of their own.
    pub places: HashMap<RoomId, PlaceRules>,
    /// Rate limits of one person; `None` for an account that belongs to one person.
    pub limits: Option<PersonLimits>,
}

/// Rules of one room that differ from its account's; `None` takes the account's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceRules {
    /// Effect of a prompt that comes while an answer runs.
    pub busy: Option<BusyPolicy>,
    /// Which person may do which action in this room.
    pub access: Option<AccessPolicy>,
    /// The agent that answers in this room.
    pub agent: Option<AgentName>,
    /// The folder in which an agent that is a program works for this room.
    pub folder: Option<PathBuf>,
}

/// Rules that group the prompts of an account into sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionRules {
    /// Each thread is a session of its own.
    pub threads: bool,
    /// Each person of a shared room has a session of their own.
    pub people: bool,
    /// When a new session begins without a command.
    pub reset: SessionReset,
}

/// When a new session begins without a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionReset {
    /// Never.
    #[default]
    None,
    /// With the first prompt after this time of the day.
    Daily {
        /// Time since midnight, UTC.
        at: Duration,
    },
    /// With the first prompt after a pause.
    Idle {
        /// Shortest pause that ends the session.
        after: Duration,
    },
}

/// Effect of a prompt that comes while an answer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BusyPolicy {
    /// The prompt waits in line.
    #[default]
    Queue,
    /// The prompt stops the running answer and takes its place.
    Interrupt,
}

/// Rate limits of one person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersonLimits {
    /// Most messages in a minute.
    pub per_minute: usize,
    /// Most messages in an hour.
    pub per_hour: usize,
    /// Stop answering in a room where programs seem to talk to each other.
    pub loop_guard: bool,
}

impl Default for PersonLimits {
    fn default() -> Self {
        Self { per_minute: 30, per_hour: 300, loop_guard: true }
    }
}

impl SessionReset {
    /// Whether a session that was last used at `used` is over at `now`, both in seconds since 1970. A clock that was
    /// set back ends nothing: a use in the future counts as a use just now.
    pub fn is_due(self, used: i64, now: i64) -> bool {
        const DAY: i64 = 24 * 60 * 60;
        let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        match self {
            Self::None => false,
            Self::Idle { after } => now.saturating_sub(used) >= seconds(after),
            Self::Daily { at } => {
                let since = now.saturating_sub(seconds(at)).rem_euclid(DAY);
                used < now.saturating_sub(since)
            }
        }
    }
}

impl AccountRules {
    /// Rules of an account that belongs to the person who reaches it, such as a terminal.
    pub fn owner() -> Self {
        Self {
            access: AccessPolicy::Owner,
            people_variable: None,
            session: SessionRules::default(),
            busy: BusyPolicy::default(),
            places: HashMap::new(),
            limits: None,
        }
    }

    /// Rules of an account with access lists; everything else has its default.
    pub fn listed(lists: AccessLists) -> Self {
        Self { access: AccessPolicy::Listed(lists), limits: Some(PersonLimits::default()), ..Self::owner() }
    }

    /// Effect of a prompt that comes to this room while an answer runs.
    pub fn busy_in(&self, room: &RoomId) -> BusyPolicy {
        self.places.get(room).and_then(|place| place.busy).unwrap_or(self.busy)
    }

    /// The agent configured for this room; `None` means the default agent.
    pub fn agent_in(&self, room: &RoomId) -> Option<&AgentName> {
        self.places.get(room).and_then(|place| place.agent.as_ref())
    }

    /// The folder in which an agent that is a program works for this room, if the room has one of its own.
    pub fn folder_in(&self, room: &RoomId) -> Option<&PathBuf> {
        self.places.get(room).and_then(|place| place.folder.as_ref())
    }

    /// The access policy of this room.
    pub fn access_in(&self, room: &RoomId) -> &AccessPolicy {
        self.places.get(room).and_then(|place| place.access.as_ref()).unwrap_or(&self.access)
    }
}

impl Rules {
    /// Rules of an account. An account that nobody configured lets nobody in.
    pub fn account(&self, id: &AccountId) -> Arc<AccountRules> {
        self.accounts
            .get(id)
            .cloned()
            .unwrap_or_else(|| Arc::new(AccountRules::listed(AccessLists::default())))
    }

    /// Replaces the rules of one account by those in `by`.
    pub fn keep(&mut self, id: &AccountId, by: &Self) {
        match by.accounts.get(id) {
            Some(rules) => self.accounts.insert(id.clone(), rules.clone()),
            None => self.accounts.remove(id),
        };
    }
}

/// The current rules, shared by all code that decides something. Replaced by a reload.
#[derive(Debug, Default)]
pub struct LiveRules {
    /// Accounts that belong to the person who reaches them. Fixed at the start: no file can turn an account into a
    /// terminal of this process, and a mistake here would make every stranger an owner.
    owned: BTreeSet<AccountId>,
    now: RwLock<Arc<Rules>>,
}

impl LiveRules {
    /// Starts with `rules`. Only these can give an account an owner.
    pub fn new(rules: Rules) -> Arc<Self> {
        let owned = |(id, rules): (&AccountId, &Arc<AccountRules>)| {
            (rules.access == AccessPolicy::Owner).then(|| id.clone())
        };
        let owned = rules.accounts.iter().filter_map(owned).collect();
        Arc::new(Self { owned, now: RwLock::new(Arc::new(rules)) })
    }

    /// The current rules. Do not keep them beyond one decision.
    pub fn now(&self) -> Arc<Rules> {
        self.now.read().clone()
    }

    /// Restricts `rules` to changes that a reload may make: an account with an owner keeps its rules, and no other gets
    /// an owner.
    pub fn permissible(&self, rules: Rules) -> Rules {
        self.restrict(rules, &self.now())
    }

    fn restrict(&self, mut rules: Rules, now: &Rules) -> Rules {
        let claims = |(id, rules): (&AccountId, &Arc<AccountRules>)| {
            (rules.access == AccessPolicy::Owner).then(|| id.clone())
        };
        let claimed: Vec<AccountId> = rules.accounts.iter().filter_map(claims).collect();
        for id in claimed.iter().chain(&self.owned) {
            rules.keep(id, now);
        }
        // A choice does not come back to life when an agent can be switched once more.
        let switchable = rules.agents.switchable();
        rules.agents.overrides.clone_from(&now.agents.overrides);
        rules.agents.overrides.retain(|agent, _| switchable.contains(agent));
        rules
    }

    /// Puts `rules` into force, restricted by [`LiveRules::permissible`].
    pub fn replace(&self, rules: Rules) {
        let mut now = self.now.write();
        *now = Arc::new(self.restrict(rules, &now));
    }

    /// Replaces all overrides of runtimes by those that the store has. Called once, before anything runs.
    pub fn load_overrides(&self, overrides: BTreeMap<AgentName, AgentRuntime>) {
        let mut now = self.now.write();
        let mut rules = Rules::clone(&now);
        rules.agents.overrides = overrides;
        *now = Arc::new(rules);
    }

    /// Puts an override of an agent's runtime into force that the store has; `None` removes it.
    pub fn override_runtime(&self, agent: &AgentName, runtime: Option<AgentRuntime>) {
        let mut now = self.now.write();
        let mut rules = Rules::clone(&now);
        match runtime {
            Some(runtime) => _ = rules.agents.overrides.insert(agent.clone(), runtime),
            None => _ = rules.agents.overrides.remove(agent),
        }
        *now = Arc::new(rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_rules_talks_to_nobody() {
        let admitted = |rules: &AgentRules, name: &AgentName| {
            [AgentAsker::Admin, AgentAsker::App("forge")].map(|asker| rules.admit(name, asker))
        };
        assert_eq!(admitted(&AgentRules::default(), &AgentName::local()), [false, false]);
        let access = AgentAccess { apps: ["other".to_owned()].into(), ..AgentAccess::default() };
        let policy = AgentPolicy { access, instructions: "Be kind.".to_owned(), ..AgentPolicy::default() };
        let rules = AgentRules { by_name: [(AgentName::local(), policy)].into(), ..AgentRules::default() };
        assert_eq!(admitted(&rules, &AgentName::local()), [true, false]);
        assert_eq!(admitted(&rules, &AgentName::proxy()), [false, false]);
        assert_eq!(
            (rules.instructions(&AgentName::local()), rules.instructions(&AgentName::proxy())),
            ("Be kind.", "")
        );
    }

    #[test]
    fn an_override_wins_and_survives_a_reload() {
        let local = AgentName::local();
        let rules = |runtime: Option<AgentRuntime>| {
            let policy = AgentPolicy { runtime, ..AgentPolicy::default() };
            let agents =
                AgentRules { by_name: [(AgentName::local(), policy)].into(), ..AgentRules::default() };
            Rules { agents, ..Rules::default() }
        };
        let live = LiveRules::new(rules(Some(AgentRuntime::Auto)));
        let now = || live.now().agents.runtime(&local);
        assert_eq!(now(), AgentRuntime::Auto);
        live.load_overrides([(local.clone(), AgentRuntime::CodexAppServer)].into());
        assert_eq!(now(), AgentRuntime::CodexAppServer);
        live.replace(rules(Some(AgentRuntime::Auto)));
        assert_eq!(now(), AgentRuntime::CodexAppServer);
        // For an agent that cannot be switched any more it is forgotten.
        live.replace(rules(None));
        assert_eq!(now(), AgentRuntime::Auto);
        live.replace(rules(Some(AgentRuntime::Auto)));
        assert_eq!(now(), AgentRuntime::Auto);
        live.override_runtime(&local, Some(AgentRuntime::CodexAppServer));
        assert_eq!(now(), AgentRuntime::CodexAppServer);
        live.override_runtime(&local, None);
        assert_eq!(now(), AgentRuntime::Auto);
        live.replace(rules(Some(AgentRuntime::CodexAppServer)));
        assert_eq!(now(), AgentRuntime::CodexAppServer);
        live.override_runtime(&local, Some(AgentRuntime::Auto));
        assert_eq!(now(), AgentRuntime::Auto);
    }

    #[test]
    fn codex_is_for_admins_unless_a_list_says_otherwise() {
        let local = AgentName::local();
        let policy = AgentPolicy { runtime: Some(AgentRuntime::Auto), ..AgentPolicy::default() };
        let mut rules = AgentRules { by_name: [(local.clone(), policy)].into(), ..AgentRules::default() };
        let admitted = |rules: &AgentRules| {
            [AgentAsker::Admin, AgentAsker::App("forge")].map(|asker| rules.admit(&local, asker))
        };
        assert_eq!(admitted(&rules), [true, true]);
        rules.overrides.insert(local.clone(), AgentRuntime::CodexAppServer);
        assert_eq!(admitted(&rules), [true, false]);
    }

    #[test]
    fn no_account_gets_an_owner_later_and_none_loses_it() {
        let rules = |accounts: [(&str, AccountRules); 3]| Rules {
            accounts: accounts.map(|(id, rules)| (AccountId::from(id), Arc::new(rules))).into(),
            ..Rules::default()
        };
        let listed = || AccountRules::listed(AccessLists::default());
        let began = rules([("desk", AccountRules::owner()), ("chat", listed()), ("other", listed())]);
        let live = LiveRules::new(began.clone());
        live.replace(rules([
            ("desk", listed()),
            ("chat", AccountRules::owner()),
            ("new", AccountRules::owner()),
        ]));
        let now = live.now();
        for (id, access) in
            [("desk", AccessPolicy::Owner), ("chat", listed().access), ("new", listed().access)]
        {
            assert_eq!(now.account(&id.into()).access, access, "{id}");
        }
        live.replace(Rules::default());
        assert_eq!(live.now().account(&"desk".into()).access, AccessPolicy::Owner);
    }

    const HOUR: i64 = 60 * 60;
    const DAY: i64 = 24 * HOUR;
    /// Some midnight, in seconds since 1970.
    const MIDNIGHT: i64 = 20_000 * DAY;

    #[test]
    fn a_daily_reset_is_due_once_its_time_of_the_day_has_passed() {
        let daily = |hours: u64| SessionReset::Daily { at: Duration::from_secs(hours * 60 * 60) };
        let at = |hour: i64| MIDNIGHT + hour * HOUR;
        for (reset, used, now, due) in [
            (daily(4), at(3), at(4) - 1, false),
            (daily(4), at(3), at(4), true),
            (daily(4), at(4) - 1, at(4), true),
            (daily(4), at(4), at(4) + 1, false),
            (daily(4), at(4), at(23), false),
            // After midnight is still before four in the morning.
            (daily(4), at(22), at(24 + 2), false),
            (daily(4), at(22), at(24 + 4) - 1, false),
            (daily(4), at(22), at(24 + 4), true),
            (daily(4), at(1), at(5 * 24 + 3), true),
            (daily(0), at(0) - 1, at(0), true),
            (daily(0), at(0), at(24) - 1, false),
            (daily(23), at(22), at(23), true),
            // The clock was set back, by an hour and by years.
            (daily(4), at(5), at(4), false),
            (daily(4), at(5), at(3), false),
            (daily(4), at(5), 10, false),
            (SessionReset::None, at(1), at(50 * 24), false),
        ] {
            assert_eq!(reset.is_due(used, now), due, "{reset:?}, used {used}, now {now}");
        }
    }

    #[test]
    fn an_idle_reset_is_due_after_a_pause() {
        let idle = SessionReset::Idle { after: Duration::from_secs(60 * 60) };
        for (used, now, due) in [
            (MIDNIGHT, MIDNIGHT, false),
            (MIDNIGHT, MIDNIGHT + HOUR - 1, false),
            (MIDNIGHT, MIDNIGHT + HOUR, true),
            (MIDNIGHT, MIDNIGHT + 30 * DAY, true),
            (MIDNIGHT, MIDNIGHT - 1, false),
            (MIDNIGHT, MIDNIGHT - 30 * DAY, false),
            (i64::MIN, i64::MAX, true),
            (i64::MAX, i64::MIN, false),
        ] {
            assert_eq!(idle.is_due(used, now), due, "used {used}, now {now}");
        }
    }
}
