//! Reads one entry of `agents`: an agent of its own, or an addition to the agent of a shorthand.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{AgentSettings, KINDS, WorkSection};
use crate::config::document::ConfigDocument;
use crate::config::resolve::{ConfigResolver, filled};
use crate::config::suggest::did_you_mean;
use crate::config::yaml_lines::KeyedMapping;
use crate::config::{ConfigError, file};
use crate::ids::AgentName;
use crate::rules::AgentPolicy;

/// Names that mean something else where an agent is named: `/agent default`, `gateway.fallback: none`, and the agent
/// that answers while none is configured.
const RESERVED: [&str; 3] = ["default", "none", "guide"];

/// An entry that adds only rules to the agent of a shorthand. They are read for all kinds together, so no key is left.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicySection {}

/// Keys that all kinds share and that an entry beside a shorthand may have.
const POLICY_KEYS: [&str; 2] = ["access", "instructions"];

/// Keys of an entry that describes an agent of its own.
const OWN_KEYS: [&str; 5] = ["kind", "url", "base_url", "model", "command"];

impl ConfigResolver<'_> {
    /// Reads `agents.<name>`. An entry that has the name of a shorthand adds to the agent in `taken`. `None` only with an
    /// error.
    pub(super) fn entry(
        &mut self,
        document: &ConfigDocument,
        name: &str,
        written: file::AgentEntrySection,
        taken: &BTreeMap<AgentName, AgentSettings>,
    ) -> Option<(AgentName, AgentSettings, AgentPolicy)> {
        let path = ["agents", name];
        let Some(plain) = AgentName::new(name).filter(|name| !RESERVED.contains(&name.as_str())) else {
            let place = document.place_of_key(&path);
            self.errors.push(ConfigError::new(format!("`agents` has a name that cannot be used {place}")).hint(
                "names are 1 to 64 letters, digits, `.`, `_` and `-`; `default`, `none` and `guide` have a meaning \
                 of their own",
            ));
            return None;
        };
        if let Some(settings) = taken.get(&plain) {
            let settings = self.addition(document, name, settings.clone())?;
            let policy = self.policy(document, name, written, &settings)?;
            return Some((plain, settings, policy));
        }
        let written_kind = filled(written.kind.clone());
        // A program whose kind is not written speaks the protocol that any program can speak.
        let is_program = || {
            let keys: BTreeMap<String, IgnoredAny> = document.parse_at(&path).unwrap_or_default();
            keys.contains_key("command") && KINDS.iter().all(|kind| kind.name != name)
        };
        let kind_name = match &written_kind {
            Some(kind) => kind.as_str(),
            None if is_program() => super::acp::KIND.name,
            None => name,
        };
        let Some(kind) = KINDS.iter().find(|kind| kind.name == kind_name) else {
            self.errors.push(unknown_kind(document, name, written_kind.as_deref()));
            return None;
        };
        let settings = (kind.read)(self, document, name)?;
        let policy = self.policy(document, name, written, &settings)?;
        Some((plain, settings, policy))
    }

    /// Adds an entry to the agent of a shorthand that has its name: a model gets tools and the like. `None` only with an
    /// error.
    fn addition(
        &mut self,
        document: &ConfigDocument,
        name: &str,
        settings: AgentSettings,
    ) -> Option<AgentSettings> {
        let path = ["agents", name];
        let (added, source, keys) = match settings.clone() {
            AgentSettings::Proxy(proxy) => {
                let read = document.parse_without::<PolicySection>(&path, &POLICY_KEYS);
                let source = "`GATEWAY_PROXY_URL` or `gateway.proxy_url`";
                (read.map(|_| AgentSettings::Proxy(proxy)), source, "`access` and `instructions`")
            }
            AgentSettings::Model(mut model) => {
                let read = document.parse_without::<WorkSection>(&path, &POLICY_KEYS);
                let read = read.map(|work| {
                    self.add_work(document, name, work, &mut model);
                    AgentSettings::Model(model)
                });
                let source = "`OPENAI_BASE_URL` or the section `agent`";
                (read, source, "`access`, `instructions`, `tools`, `workspace`, `models` and `runtime`")
            }
            // No shorthand makes one.
            AgentSettings::Codex(_) | AgentSettings::Acp(_) => return Some(settings),
        };
        let error = match added {
            Ok(settings) => return Some(settings),
            Err(error) => error,
        };
        // Such an entry is a second agent with the name of the first, and not a slip in a key.
        let keys_there: BTreeMap<String, IgnoredAny> = document.parse_at(&path).unwrap_or_default();
        let stands_alone = OWN_KEYS.iter().any(|key| keys_there.contains_key(*key));
        self.errors.push(match stands_alone {
            true => {
                let place = document.place_of_key(&path);
                ConfigError::new(format!(
                    "`agents.{name}` is an agent that {source} configures already {place}"
                ))
                .hint(format!(
                    "give the entry another name, leave the other settings out, or write only {keys} here"
                ))
            }
            false => error,
        });
        None
    }

    /// The rules of an entry. `None` only with an error.
    fn policy(
        &mut self,
        document: &ConfigDocument,
        name: &str,
        written: file::AgentEntrySection,
        settings: &AgentSettings,
    ) -> Option<AgentPolicy> {
        let defaults = AgentPolicy::default();
        let (access, codex_access) = match written.access {
            Some(KeyedMapping(access)) => {
                let access = access.resolve(document, name).map_err(|error| self.errors.push(error)).ok()?;
                (access.clone(), access)
            }
            None => (settings.default_access(), defaults.codex_access),
        };
        let runtime = settings.switch().map(|switch| switch.runtime);
        let instructions = written.instructions.filter(|text| !text.trim().is_empty()).unwrap_or_default();
        Some(AgentPolicy { access, codex_access, runtime, instructions })
    }
}

fn unknown_kind(document: &ConfigDocument, name: &str, written: Option<&str>) -> ConfigError {
    let names = || KINDS.iter().map(|kind| kind.name);
    let known = names().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
    let (what, place) = match written {
        Some(_) => {
            (format!("`agents.{name}.kind` is not a known kind"), document.place(&["agents", name, "kind"]))
        }
        None => (
            format!("`agents.{name}` has no `kind`, and its name is not one"),
            document.place_of_key(&["agents", name]),
        ),
    };
    let shorthand = match name {
        "proxy" => Some("set `GATEWAY_PROXY_URL`"),
        "local" => Some("set `OPENAI_BASE_URL` and `OPENAI_MODEL`"),
        _ => None,
    };
    if let (None, Some(shorthand)) = (written, shorthand) {
        return ConfigError::new(format!("{what} {place}"))
            .hint(format!("{shorthand}, to which the entry adds; or write a `kind` (known kinds: {known})"));
    }
    let hint = match did_you_mean(written.unwrap_or(name), names()) {
        Some(hint) => format!("{hint} (known kinds: {known})"),
        None => format!("known kinds: {known}"),
    };
    ConfigError::new(format!("{what} {place}")).hint(hint)
}
