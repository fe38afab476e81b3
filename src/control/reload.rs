//! Decides which changes of a configuration take effect at once, and which need a restart. Pure.

use std::collections::BTreeSet;

use talaria_platform::AccountId;

use super::api::ReloadReport;
use crate::config::{AgentsConfig, Config, DisplayConfig, ServerConfig, TurnConfig};
use crate::ids::AgentName;
use crate::rules::{AccountRules, AgentPolicy, Rules};

/// Rules of a new configuration for the running accounts. A running account keeps the kind it was started with:
/// if the file gives its name another kind, or no longer has it, the new entry is about another account, and
/// the current rules stay in use until the restart.
pub(super) fn rules<'a>(
    running: impl IntoIterator<Item = &'a AccountId>,
    started: &Config,
    now: &Rules,
    new: &Config,
) -> Rules {
    let mut rules = new.rules.clone();
    for account in running {
        let kind = |config: &Config| config.platforms.get(account).map(|platform| platform.kind().name());
        if kind(started) != kind(new) {
            rules.keep(account, now);
        }
    }
    rules
}

/// Compares the running state (`started`, with the current `agents` and `rules`) with the new configuration; `next` are
/// the rules that will be used.
pub(super) fn compare(
    started: &Config,
    agents: &AgentsConfig,
    rules: &Rules,
    next: &Rules,
    new: &Config,
) -> ReloadReport {
    let mut keys = ReloadedKeys::default();
    keys.now("words", rules.words != next.words);
    keys.now("budget", rules.budget != next.budget);
    let names: BTreeSet<_> = rules.accounts.keys().chain(next.accounts.keys()).collect();
    for name in names {
        // An account that is new or removed is a platform that starts or ends; it is listed below.
        if let (Some(old), Some(new)) = (rules.accounts.get(name), next.accounts.get(name)) {
            let AccountRules { access, people_variable: _, session, busy, places, limits } = &**old;
            keys.now(&format!("platforms.{name}.access"), *access != new.access);
            keys.now(&format!("platforms.{name}.session"), *session != new.session);
            keys.now(&format!("platforms.{name}.busy"), *busy != new.busy);
            keys.now(&format!("platforms.{name}.places"), *places != new.places);
            keys.now(&format!("platforms.{name}.limits"), *limits != new.limits);
        }
    }
    let names: BTreeSet<_> = started.platforms.keys().chain(new.platforms.keys()).collect();
    for name in names {
        keys.restart(&format!("platforms.{name}"), started.platforms.get(name) != new.platforms.get(name));
    }
    for name in changed_agents(agents, &new.agents) {
        keys.now(&key_of(&name), true);
    }
    keys.now("default_agent", agents.default != new.agents.default);
    let names: BTreeSet<_> = rules.agents.by_name.keys().chain(next.agents.by_name.keys()).collect();
    for name in names {
        // An agent that is new or removed is listed as a whole.
        if let (Some(old), Some(new)) = (rules.agents.by_name.get(name), next.agents.by_name.get(name)) {
            // Another runtime is a change of the agent itself, which is listed above; the other list follows `access`.
            let AgentPolicy { access, codex_access: _, runtime: _, instructions } = old;
            keys.now(&format!("agents.{name}.access"), *access != new.access);
            keys.now(&format!("agents.{name}.instructions"), *instructions != new.instructions);
        }
    }
    let server = match (&started.server, &new.server) {
        // The server comes and goes with the platforms, which are listed.
        (Some(one), None) | (None, Some(one)) => one.explicit,
        // A new key is used at once; the caller replaces it.
        (Some(old), Some(new)) if old.may_take_key_of(new) => {
            *old != ServerConfig { key: old.key.clone(), ..new.clone() }
        }
        (old, new) => old != new,
    };
    keys.restart("server", server);
    keys.restart("forge", started.forge != new.forge);
    let TurnConfig {
        context_prompt,
        names,
        files,
        history_messages,
        history_bytes,
        retry_for,
        retry_scripts_for,
    } = &started.turns;
    keys.restart("agent.context_prompt", *context_prompt != new.turns.context_prompt);
    keys.restart("agent.names", *names != new.turns.names);
    keys.restart("agent.files", *files != new.turns.files);
    keys.restart("gateway.history_messages", *history_messages != new.turns.history_messages);
    keys.restart("gateway.history_bytes", *history_bytes != new.turns.history_bytes);
    let retry = (*retry_for, *retry_scripts_for) != (new.turns.retry_for, new.turns.retry_scripts_for);
    keys.restart("gateway.retry_for", retry);
    keys.restart("store.keep", started.store.sessions != new.store.sessions);
    keys.restart("store.keep_responses", started.store.responses != new.store.responses);
    let DisplayConfig { steps, edits, reactions } = started.display;
    keys.restart("display.steps", steps != new.display.steps);
    keys.restart("display.edits", edits != new.display.edits);
    keys.restart("display.reactions", reactions != new.display.reactions);
    keys.restart("log.level", started.log != new.log);
    keys.restart("skills_dir", started.skills_dir != new.skills_dir);
    keys.restart("review", started.review != new.review);
    keys.restart("terminal", started.terminal != new.terminal);
    keys.0
}

/// The agents that are new, gone, or configured in another way; also if only the agent that answers in place of one is
/// another.
pub(super) fn changed_agents(old: &AgentsConfig, new: &AgentsConfig) -> Vec<AgentName> {
    let names: BTreeSet<_> = old.entries.keys().chain(new.entries.keys()).collect();
    let differs = |name: &AgentName| old.entries.get(name) != new.entries.get(name);
    let another_fallback = old.fallback != new.fallback || new.fallback.as_ref().is_some_and(differs);
    let is_changed = |name: &AgentName| differs(name) || (another_fallback && *name == AgentName::proxy());
    names.into_iter().filter(|name| is_changed(name)).cloned().collect()
}

/// The part of the configuration that most people write an agent in.
fn key_of(name: &AgentName) -> String {
    match name.as_str() {
        "proxy" => "gateway".to_owned(),
        "local" => "agent".to_owned(),
        other => format!("agents.{other}"),
    }
}

#[derive(Default)]
struct ReloadedKeys(ReloadReport);

impl ReloadedKeys {
    fn now(&mut self, key: &str, differs: bool) {
        if differs {
            self.0.now.push(key.to_owned());
        }
    }

    fn restart(&mut self, key: &str, differs: bool) {
        if differs {
            self.0.restart.push(key.to_owned());
        }
    }
}
