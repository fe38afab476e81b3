//! Decides whether a person or an app may talk to one agent. Pure.
//!
//! An agent can be more than somebody to talk to: one with a terminal acts on the machine. So each agent has a list of
//! its own, which holds in addition to the lists of accounts: a person who may ask nothing anywhere is not let in here.

use std::collections::BTreeSet;

use talaria_platform::{RoomId, UserId};

use super::AccessRule;

/// Name in the audit of the rule that refuses somebody an agent.
pub const AGENT_RULE: &str = "agent";

/// Access list of one agent. Admins of an account and the owner of this gateway are never refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentAccess {
    /// Everybody who may ask at all may ask this agent.
    pub allow_all: bool,
    /// People who may ask it, by their full ids.
    pub people: BTreeSet<UserId>,
    /// Rooms where everybody may ask it who may ask there at all.
    pub places: BTreeSet<RoomId>,
    /// Apps that may ask it, by their names.
    pub apps: BTreeSet<String>,
}

/// A person or a program that asks an agent, after the account or the token has let them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAsker<'a> {
    /// The owner of this gateway, or an admin of the account.
    Admin,
    /// Any other person, in a room.
    Person {
        /// The person who asks.
        id: &'a UserId,
        /// The room where they ask.
        room: &'a RoomId,
    },
    /// A program with a token, by its name.
    App(&'a str),
}

impl<'a> AgentAsker<'a> {
    /// A person in a room whom `rule` lets ask at all.
    pub fn of(rule: AccessRule, id: &'a UserId, room: &'a RoomId) -> Self {
        match rule {
            AccessRule::Owner | AccessRule::Admin => Self::Admin,
            AccessRule::Listed
            | AccessRule::Paired
            | AccessRule::Everybody
            | AccessRule::Pairing
            | AccessRule::Violated
            | AccessRule::Bot
            | AccessRule::Left
            | AccessRule::Untrusted
            | AccessRule::Plain
            | AccessRule::AdminsOnly
            | AccessRule::NotListed => Self::Person { id, room },
        }
    }
}

impl AgentAccess {
    /// The list that admits everybody who may ask at all.
    pub fn everybody() -> Self {
        Self { allow_all: true, ..Self::default() }
    }

    /// Whether this list lets them talk to the agent.
    pub fn admits(&self, asker: AgentAsker<'_>) -> bool {
        match asker {
            AgentAsker::Admin => true,
            AgentAsker::Person { id, room } => {
                self.allow_all || self.people.contains(id) || self.places.contains(room)
            }
            AgentAsker::App(name) => self.allow_all || self.apps.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owners_and_admins_are_never_refused() {
        let (ann, hall) = (UserId::from("@ann:test"), RoomId::from("!hall"));
        for (rule, is_admin) in [
            (AccessRule::Owner, true),
            (AccessRule::Admin, true),
            (AccessRule::Listed, false),
            (AccessRule::Paired, false),
            (AccessRule::Everybody, false),
        ] {
            assert_eq!(AgentAsker::of(rule, &ann, &hall) == AgentAsker::Admin, is_admin, "{rule:?}");
        }
    }

    #[test]
    fn each_list_admits_only_those_it_names() {
        let (ann, bob) = (UserId::from("@ann:test"), UserId::from("@bob:test"));
        let (lab, hall) = (RoomId::from("!lab"), RoomId::from("!hall"));
        let askers = [
            AgentAsker::Admin,
            AgentAsker::Person { id: &ann, room: &hall },
            AgentAsker::Person { id: &bob, room: &hall },
            AgentAsker::Person { id: &bob, room: &lab },
            AgentAsker::App("forge"),
            AgentAsker::App("phone"),
            // Names of people, rooms and apps are not mixed up.
            AgentAsker::App("@ann:test"),
        ];
        for (access, admitted) in [
            (AgentAccess::default(), [true, false, false, false, false, false, false]),
            (AgentAccess::everybody(), [true; 7]),
            (
                AgentAccess { people: [ann.clone()].into(), ..AgentAccess::default() },
                [true, true, false, false, false, false, false],
            ),
            (
                AgentAccess { places: [lab.clone()].into(), ..AgentAccess::default() },
                [true, false, false, true, false, false, false],
            ),
            (
                AgentAccess { apps: ["forge".to_owned()].into(), ..AgentAccess::default() },
                [true, false, false, false, true, false, false],
            ),
        ] {
            assert_eq!(askers.map(|asker| access.admits(asker)), admitted, "{access:?}");
        }
    }
}
