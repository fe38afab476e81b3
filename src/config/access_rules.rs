//! Reads the keys of `platforms.<name>` about people: `access`, `session`, `busy`, `places`, `limits`.
//!
//! Every kind of chat network has these keys; `talaria_platform::config` lists them for the kinds, which leave them out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Deserialize;
use talaria_platform::{AddressedWhen, AuthorProof, PeopleTraits, PlatformKind, RoomId, UserId};

use super::ConfigError;
use super::document::ConfigDocument;
use super::env::EnvReader;
use super::resolve::filled;
use super::suggest::did_you_mean;
use super::value::{TimeOfDay, TimeSpan, WholeNumber};
use super::workspace::absolute_folder;
use super::yaml_lines::KeyedMapping;
use crate::access::{AccessLists, AccessPolicy};
use crate::chat_command::ChatCommand;
use crate::ids::AgentName;
use crate::rules::{AccountRules, BusyPolicy, PersonLimits, PlaceRules, SessionReset, SessionRules};

/// The keys of `platforms.<name>` about people, as written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RulesSection {
    /// People who may talk to the agent. No default: needed.
    access: Option<KeyedMapping<AccessSection>>,
    /// Rules that group messages into conversations.
    session: Option<KeyedMapping<SessionSection>>,
    /// Effect of a prompt that comes while an answer runs. Default: `queue`.
    busy: Option<WrittenBusy>,
    /// Rooms, by their ids, where something is different.
    places: BTreeMap<String, Option<KeyedMapping<PlaceSection>>>,
    /// Limits on the messages of one person.
    limits: Option<KeyedMapping<WrittenLimits>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessSection {
    /// People who may do everything everywhere. Default: nobody.
    admins: Option<Vec<String>>,
    /// People who may talk to the agent in direct chats and in rooms. Default: nobody.
    people: Option<Vec<String>>,
    /// People who may talk to the agent in direct chats. Default: nobody.
    direct: Option<Vec<String>>,
    /// People who may talk to the agent in rooms. Default: nobody.
    rooms: Option<Vec<String>>,
    /// Whether everybody may talk to the agent. Default: `false`.
    allow_all: Option<bool>,
    /// Whether strangers may ask to be let in, in direct chats. Default: `false`.
    pairing: Option<bool>,
    /// Commands that only admins may use. Default: none.
    admin_commands: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SessionSection {
    /// Whether each thread is a conversation of its own. Default: `false`.
    threads: Option<bool>,
    /// Whether each person of a shared room has a conversation of their own. Default: `false`.
    people: Option<bool>,
    /// Event that begins a new conversation by itself. Default: `none`.
    reset: Option<WrittenReset>,
    /// The time of the day for `daily`, in UTC. Default: `04:00`.
    reset_at: Option<TimeOfDay>,
    /// The pause for `idle`. Default: `24h`.
    idle: Option<TimeSpan<60_000>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenReset {
    None,
    Daily,
    Idle,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenBusy {
    Queue,
    Interrupt,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlaceSection {
    /// Effect of a prompt that comes while an answer runs. Default: as everywhere.
    busy: Option<WrittenBusy>,
    /// People who may talk to the agent here, besides admins. Default: as everywhere.
    people: Option<Vec<String>>,
    /// Whether we must be named here. Default: as everywhere.
    mention: Option<AddressedWhen>,
    /// The agent that answers here, by its name. Default: the default agent.
    agent: Option<String>,
    /// The folder in which an agent of kind `codex` or `acp` works for this room. Default: as its entry says.
    folder: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenLimits {
    /// Messages in a minute. Default: 30.
    per_minute: Option<WholeNumber<1, 10_000>>,
    /// Messages in an hour. Default: 300.
    per_hour: Option<WholeNumber<1, 100_000>>,
    /// Whether we are silent where programs talk to each other. Default: true.
    loop_guard: Option<bool>,
}

/// Traits of a network that decide which people an entry may list, and the proof that we need of them.
pub(super) struct NetworkTraits {
    people: PeopleTraits,
    /// The variable that wins over `access.people`, where this entry has one.
    variable: Option<PeopleVariable>,
    proof: AuthorProof,
}

/// A variable that lists people.
struct PeopleVariable {
    name: &'static str,
    /// The ids in it; `None` if it is unset.
    ids: Option<Vec<String>>,
}

impl NetworkTraits {
    /// Traits of an entry of this kind; its variables reach the entry with the kind's name only.
    pub(super) fn new(
        env: EnvReader<'_>,
        kind: &dyn PlatformKind,
        name: &str,
        people: PeopleTraits,
        proof: AuthorProof,
    ) -> Self {
        let ids = |list: String| {
            let ids = list.split(',').map(str::trim).filter(|id| !id.is_empty());
            ids.map(str::to_owned).collect()
        };
        let variable = people.variable.filter(|_| name == kind.name());
        let variable = variable.map(|var| PeopleVariable { name: var.name, ids: env.get(var).map(ids) });
        Self { people, variable, proof }
    }
}

/// Reads the keys of `platforms.<name>` about people.
pub(super) fn read(
    document: &ConfigDocument,
    name: &str,
    network: NetworkTraits,
) -> Result<AccountRules, ConfigError> {
    let path = ["platforms", name];
    let written: RulesSection = document.parse_at(&path)?;
    let KeyedMapping(limits) = written.limits.unwrap_or_default();
    let standard = PersonLimits::default();
    let people = network.people;
    let people_variable = network.variable.as_ref().map(|variable| variable.name);
    let lists = access(document, name, written.access, network)?;
    Ok(AccountRules {
        places: places(document, name, written.places, &lists, people)?,
        people_variable,
        access: AccessPolicy::Listed(lists),
        session: session(written.session.unwrap_or_default().0),
        busy: written.busy.map_or(BusyPolicy::Queue, BusyPolicy::from),
        limits: Some(PersonLimits {
            per_minute: limits.per_minute.map_or(standard.per_minute, |count| count.0),
            per_hour: limits.per_hour.map_or(standard.per_hour, |count| count.0),
            loop_guard: limits.loop_guard.unwrap_or(standard.loop_guard),
        }),
    })
}

fn access(
    document: &ConfigDocument,
    name: &str,
    written: Option<KeyedMapping<AccessSection>>,
    network: NetworkTraits,
) -> Result<AccessLists, ConfigError> {
    let KeyedMapping(mut written) = written.unwrap_or_default();
    let NetworkTraits { people: traits, variable, proof: AuthorProof { trust, secure_only } } = network;
    let name_of_variable = variable.as_ref().map(|variable| variable.name);
    if let Some(PeopleVariable { name: variable, ids: Some(people) }) = variable {
        if let Some(wrong) = people.iter().find(|id| !(traits.is_id)(id)) {
            let (wrong, examples) = (crate::util::one_line(wrong, 60), traits.examples.join(","));
            return Err(ConfigError::new(format!("`{variable}` holds `{wrong}`, which is not a full id"))
                .hint(format!("write whole ids with commas between them, such as `{examples}`")));
        }
        written.people = Some(people);
    }
    let listed = [&written.admins, &written.people, &written.direct, &written.rooms];
    let allow_all = written.allow_all.unwrap_or(false);
    if !allow_all && listed.iter().all(|list| list.is_none()) {
        let place = document.place_of_key(&["platforms", name]);
        let hint = match written.pairing {
            // An operator who writes this means to let people in one by one.
            Some(true) => format!(
                "write `people: []` below `platforms.{name}.access` if only those may talk whom you let in by \
                 pairing; or list people there by their full ids"
            ),
            Some(false) | None => {
                let variable = name_of_variable.map(|name| format!("`{name}` or ")).unwrap_or_default();
                format!(
                    "list people by their full ids in {variable}`platforms.{name}.access.people`; or write \
                     `access: {{allow_all: true}}` to let everybody in"
                )
            }
        };
        let what = format!("`platforms.{name}` does not say who may talk to the agent {place}");
        return Err(ConfigError::new(what).hint(hint));
    }
    let ids = |key: &str, list: Option<Vec<String>>| {
        ids(document, &["platforms", name, "access", key], list.unwrap_or_default(), traits)
    };
    Ok(AccessLists {
        admins: ids("admins", written.admins)?,
        people: ids("people", written.people)?,
        direct: ids("direct", written.direct)?,
        rooms: ids("rooms", written.rooms)?,
        allow_all,
        pairing: written.pairing.unwrap_or(false),
        admin_commands: commands(document, name, written.admin_commands.unwrap_or_default())?,
        trust,
        secure_only,
    })
}

fn commands(
    document: &ConfigDocument,
    name: &str,
    written: Vec<String>,
) -> Result<BTreeSet<ChatCommand>, ConfigError> {
    let known = |word: &str| ChatCommand::named(word.trim_start_matches('/'));
    let mut commands = BTreeSet::new();
    for word in written {
        let Some(command) = known(&word) else {
            let place = document.place(&["platforms", name, "access", "admin_commands"]);
            let message = format!("`platforms.{name}.access.admin_commands` names no command {place}");
            let near = did_you_mean(&word, ChatCommand::all().map(ChatCommand::name));
            let hint = near.unwrap_or_else(|| "`/help` in a chat lists the commands".to_owned());
            return Err(ConfigError::new(message).hint(hint));
        };
        commands.insert(command);
    }
    Ok(commands)
}

fn session(written: SessionSection) -> SessionRules {
    const MORNING: Duration = Duration::from_secs(4 * 60 * 60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    SessionRules {
        threads: written.threads.unwrap_or(false),
        people: written.people.unwrap_or(false),
        reset: match written.reset.unwrap_or(WrittenReset::None) {
            WrittenReset::None => SessionReset::None,
            WrittenReset::Daily => {
                SessionReset::Daily { at: written.reset_at.map_or(MORNING, |time| time.0) }
            }
            WrittenReset::Idle => SessionReset::Idle { after: written.idle.map_or(DAY, |span| span.0) },
        },
    }
}

/// The ids of a list, all of them full.
fn ids(
    document: &ConfigDocument,
    path: &[&str],
    list: Vec<String>,
    people: PeopleTraits,
) -> Result<BTreeSet<UserId>, ConfigError> {
    let Some(wrong) = list.iter().find(|id| !(people.is_id)(id)) else {
        return Ok(list.into_iter().map(UserId::new).collect());
    };
    let (key, place) = (path.join("."), document.place(path));
    let wrong = crate::util::one_line(wrong, 60);
    Err(ConfigError::new(format!("`{key}` holds `{wrong}`, which is not a full id {place}")).hint(format!(
        "write the whole id such as `{}`; names and patterns can belong to anybody",
        people.examples[0]
    )))
}

fn places(
    document: &ConfigDocument,
    name: &str,
    written: BTreeMap<String, Option<KeyedMapping<PlaceSection>>>,
    lists: &AccessLists,
    traits: PeopleTraits,
) -> Result<HashMap<RoomId, PlaceRules>, ConfigError> {
    let mut places = HashMap::new();
    for (room, place) in written {
        let KeyedMapping(PlaceSection { busy, people, mention: _, agent, folder }) =
            place.unwrap_or_default();
        let people = match people {
            Some(people) => {
                Some(ids(document, &["platforms", name, "places", &room, "people"], people, traits)?)
            }
            None => None,
        };
        // People whom other lists or a code let in are not let in here.
        let access = people.map(|people| {
            let (admins, admin_commands) = (lists.admins.clone(), lists.admin_commands.clone());
            let (trust, secure_only) = (lists.trust, lists.secure_only);
            AccessPolicy::Listed(AccessLists {
                admins,
                people,
                admin_commands,
                trust,
                secure_only,
                ..AccessLists::default()
            })
        });
        // Whether an agent has this name is checked when all of them are known.
        let agent = match agent.map(|agent| AgentName::new(agent.trim())) {
            Some(None) => {
                let path = ["platforms", name, "places", &room, "agent"];
                let (key, place) = (path.join("."), document.place(&path));
                return Err(ConfigError::new(format!("`{key}` cannot be the name of an agent {place}"))
                    .hint("write a name that stands below `agents`, or `proxy` or `local`"));
            }
            Some(Some(agent)) => Some(agent),
            None => None,
        };
        // Whether it reaches files of ours is checked when all of those are known.
        let folder = match filled(folder).map(|folder| absolute_folder(&folder)) {
            Some(Err((what, hint))) => {
                let path = ["platforms", name, "places", &room, "folder"];
                let (key, place) = (path.join("."), document.place(&path));
                return Err(ConfigError::new(format!("`{key}` {what} {place}")).hint(hint));
            }
            Some(Ok(folder)) => Some(folder),
            None => None,
        };
        let rules = PlaceRules { busy: busy.map(BusyPolicy::from), access, agent, folder };
        if rules != PlaceRules::default() {
            places.insert(RoomId::new(room), rules);
        }
    }
    Ok(places)
}

impl From<WrittenBusy> for BusyPolicy {
    fn from(written: WrittenBusy) -> Self {
        match written {
            WrittenBusy::Queue => Self::Queue,
            WrittenBusy::Interrupt => Self::Interrupt,
        }
    }
}
