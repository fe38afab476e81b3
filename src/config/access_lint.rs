//! Finds access rules that are probably not meant: lists without effect, and accounts that are open to everybody. Pure.

use std::collections::BTreeSet;

use talaria_platform::UserId;

use crate::access::{AccessLists, AccessPolicy};

/// One sentence for each thing, for the log and for `talaria check`.
pub(super) fn warnings(name: &str, access: &AccessPolicy) -> Vec<String> {
    let lists = match access {
        AccessPolicy::Owner => return Vec::new(),
        AccessPolicy::Listed(lists) => lists,
    };
    let AccessLists {
        admins,
        people,
        direct,
        rooms,
        allow_all,
        pairing,
        admin_commands,
        trust: _,
        secure_only: _,
    } = lists;
    let key = |key: &str| format!("`platforms.{name}.access.{key}`");
    let mut warnings = Vec::new();
    if *allow_all {
        warnings.push(format!(
            "{} lets everybody who finds the account talk to the agent; list people instead, unless you mean it",
            key("allow_all")
        ));
        for (list, ids) in [("people", people), ("direct", direct), ("rooms", rooms)] {
            if !ids.is_empty() {
                warnings
                    .push(format!("{} has no effect, because everybody may talk (`allow_all`)", key(list)));
            }
        }
        if *pairing {
            warnings
                .push(format!("{} has no effect, because everybody may talk (`allow_all`)", key("pairing")));
        }
    } else if !pairing && [admins, people, direct, rooms].iter().all(|ids| ids.is_empty()) {
        warnings
            .push(format!("nobody may talk to the agent: every list of `platforms.{name}.access` is empty"));
    }
    let mut named_twice = |list: &str, ids: &BTreeSet<UserId>, wider: &str, wide: &BTreeSet<UserId>| {
        if let Some(id) = ids.intersection(wide).next() {
            let (id, list) = (crate::util::one_line(id.as_str(), 80), key(list));
            warnings.push(format!("{list} names {id} without effect, because `{wider}` does so already"));
        }
    };
    for (list, ids) in [("people", people), ("direct", direct), ("rooms", rooms)] {
        named_twice(list, ids, "admins", admins);
    }
    for (list, ids) in [("direct", direct), ("rooms", rooms)] {
        named_twice(list, ids, "people", people);
    }
    if admins.is_empty()
        && let Some(command) = admin_commands.first()
    {
        warnings.push(format!(
            "{} keeps /{} for admins, but there are none: nobody can use it",
            key("admin_commands"),
            command.name()
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat_command::ChatCommand;

    fn set(ids: &[&str]) -> BTreeSet<UserId> {
        ids.iter().map(|id| UserId::from(*id)).collect()
    }

    fn warned(lists: AccessLists) -> Vec<String> {
        warnings("x", &AccessPolicy::Listed(lists))
    }

    #[test]
    fn lists_that_do_something_are_not_warned_about() {
        assert_eq!(warnings("x", &AccessPolicy::Owner), [""; 0]);
        for lists in [
            AccessLists { people: set(&["@a:t"]), direct: set(&["@b:t"]), ..AccessLists::default() },
            AccessLists { pairing: true, ..AccessLists::default() },
            AccessLists {
                admins: set(&["@a:t"]),
                admin_commands: [ChatCommand::Undo].into(),
                ..AccessLists::default()
            },
            AccessLists { direct: set(&["@a:t"]), rooms: set(&["@a:t"]), ..AccessLists::default() },
        ] {
            assert_eq!(warned(lists.clone()), [""; 0], "{lists:?}");
        }
    }

    #[test]
    fn an_open_door_and_lists_without_effect_are_warned_about() {
        let ann = set(&["@a:t"]);
        for (lists, words) in [
            (AccessLists::default(), &["nobody may talk"][..]),
            (AccessLists { allow_all: true, ..AccessLists::default() }, &["lets everybody"]),
            (
                AccessLists { allow_all: true, people: ann.clone(), pairing: true, ..AccessLists::default() },
                &["lets everybody", "access.people` has no effect", "access.pairing` has no effect"],
            ),
            (
                AccessLists { admins: ann.clone(), people: ann.clone(), ..AccessLists::default() },
                &["access.people` names @a:t without effect, because `admins`"],
            ),
            (
                AccessLists { people: ann.clone(), rooms: ann.clone(), ..AccessLists::default() },
                &["access.rooms` names @a:t without effect, because `people`"],
            ),
            (
                AccessLists {
                    people: ann,
                    admin_commands: [ChatCommand::Undo].into(),
                    ..AccessLists::default()
                },
                &["keeps /undo for admins, but there are none"],
            ),
        ] {
            let warned = warned(lists);
            assert_eq!(warned.len(), words.len(), "{warned:?}");
            for (warning, words) in warned.iter().zip(words) {
                assert!(warning.contains(words), "{words:?} should be in {warning:?}");
            }
        }
    }
}
