//! `agents.<name>.access`, and what is written about it but probably not meant.

use std::collections::BTreeSet;

use serde::Deserialize;
use talaria_platform::{RoomId, UserId};

use super::AgentsConfig;
use crate::access::{AccessLists, AccessPolicy, AgentAccess, AgentAsker};
use crate::config::ConfigError;
use crate::config::document::ConfigDocument;
use crate::ids::AgentName;
use crate::rules::{AgentRules, Rules};
use crate::util::one_line;

/// As written. Admins and the owner may talk to every agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentAccessSection {
    /// Everybody who may ask at all may talk to it. Default: `false`.
    allow_all: Option<bool>,
    /// People who may talk to it, by their full ids. Default: nobody.
    people: Option<Vec<String>>,
    /// Rooms, by their ids, where everybody may talk to it who may talk there. Default: none.
    places: Option<Vec<String>>,
    /// Apps that may ask it, by the names of their tokens. Default: none.
    apps: Option<Vec<String>>,
}

impl AgentAccessSection {
    pub(super) fn resolve(self, document: &ConfigDocument, name: &str) -> Result<AgentAccess, ConfigError> {
        let list = |key: &str, written: Option<Vec<String>>| {
            let written = written.unwrap_or_default();
            let wrong = |entry: &String| {
                entry.is_empty() || entry.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
            };
            if !written.iter().any(wrong) {
                return Ok(written);
            }
            let place = document.place(&["agents", name, "access", key]);
            Err(ConfigError::new(format!(
                "`agents.{name}.access.{key}` holds what cannot be a full id {place}"
            ))
            .hint("write whole ids and names; patterns can match anybody"))
        };
        Ok(AgentAccess {
            allow_all: self.allow_all.unwrap_or(false),
            people: list("people", self.people)?.into_iter().map(UserId::new).collect(),
            places: list("places", self.places)?.into_iter().map(RoomId::new).collect(),
            apps: list("apps", self.apps)?.into_iter().collect(),
        })
    }
}

/// Warnings about lists without effect, and about people who may not talk to the agent of their place or its fallback.
pub(super) fn warnings(agents: &AgentsConfig, rules: &Rules) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, policy) in &rules.agents.by_name {
        let AgentAccess { allow_all, people, places, apps } = &policy.access;
        for (key, is_empty) in
            [("people", people.is_empty()), ("places", places.is_empty()), ("apps", apps.is_empty())]
        {
            if *allow_all && !is_empty {
                warnings.push(format!(
                    "`agents.{name}.access.{key}` has no effect, because everybody may talk to it (`allow_all`)"
                ));
            }
        }
        let known = |person: &&UserId| {
            let mut accounts = rules.accounts.values();
            accounts.any(|account| {
                account.access.may_admit(person)
                    || account.access.pairs()
                    || account
                        .places
                        .values()
                        .filter_map(|place| place.access.as_ref())
                        .any(|list| list.may_admit(person))
            })
        };
        if let Some(stranger) = people.iter().find(|person| !known(person)) {
            let stranger = one_line(stranger.as_str(), 80);
            warnings.push(format!(
                "`agents.{name}.access.people` names {stranger} without effect, because no account lets them in"
            ));
        }
    }
    let mut accounts: Vec<_> = rules.accounts.iter().collect();
    accounts.sort_by(|one, other| one.0.cmp(other.0));
    for (account, account_rules) in accounts {
        let elsewhere = RoomId::from("");
        if let Some(who) = refused(&rules.agents, &agents.default, &account_rules.access, &elsewhere) {
            let default = &agents.default;
            warnings.push(format!(
                "{who} may talk to `platforms.{account}`, but not to its agent `{default}` (`agents.{default}.access`)"
            ));
        }
        if let Some(fallback) = &agents.fallback
            && let Some(who) = refused(&rules.agents, fallback, &account_rules.access, &elsewhere)
        {
            warnings.push(format!(
                "{who} may talk to `platforms.{account}`, but not to the fallback `{fallback}` \
                 (`agents.{fallback}.access`), and waits while the agent server is away"
            ));
        }
        let mut rooms: Vec<_> = account_rules.places.iter().collect();
        rooms.sort_by(|one, other| one.0.cmp(other.0));
        for (room, place) in rooms {
            let Some(agent) = &place.agent else { continue };
            if let Some(who) = refused(&rules.agents, agent, account_rules.access_in(room), room) {
                warnings.push(format!(
                    "{who} may talk in `platforms.{account}.places.{}`, but not to its agent `{agent}` \
                     (`agents.{agent}.access`)",
                    one_line(room.as_str(), 80)
                ));
            }
        }
    }
    warnings
}

/// Somebody whom a policy lets in and the agent does not, in words.
fn refused(rules: &AgentRules, agent: &AgentName, policy: &AccessPolicy, room: &RoomId) -> Option<String> {
    let access = &rules.by_name.get(agent)?.access;
    let AccessPolicy::Listed(AccessLists { admins, people, direct, rooms, allow_all, pairing, .. }) = policy
    else {
        return None;
    };
    let is_refused = |id: &UserId| !access.admits(AgentAsker::Person { id, room });
    let listed: BTreeSet<&UserId> = people.iter().chain(direct).chain(rooms).collect();
    if let Some(person) = listed.into_iter().find(|person| !admins.contains(*person) && is_refused(person)) {
        return Some(one_line(person.as_str(), 80));
    }
    // People whom no list names.
    ((*allow_all || *pairing) && is_refused(&UserId::from("")))
        .then(|| "somebody who is on no list".to_owned())
}
