//! Tests: the configured access lists, and the rules of places.

use std::time::Duration;

use super::*;
use crate::access::{AccessLists, AccessPolicy};
use crate::chat_command::ChatCommand;
use crate::rules::{AccountRules, BusyPolicy, PersonLimits, SessionReset};

/// A platform of the test kind with these lines below it.
fn scene(lines: &str) -> Scene {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    Scene::new().file(format!("platforms:\n  test:\n    socket: /tmp/s\n{lines}"))
}

fn rules(lines: &str) -> AccountRules {
    let config = scene(lines).load().unwrap_or_else(|errors| panic!("{}", printed(&errors)));
    (*config.rules.account(&"test".into())).clone()
}

fn lists(lines: &str) -> AccessLists {
    match rules(lines).access {
        AccessPolicy::Listed(lists) => lists,
        AccessPolicy::Owner => panic!("a chat network has no owner"),
    }
}

#[test]
fn a_platform_without_a_list_is_refused() {
    for lines in ["", "access:\n", "access:\n  allow_all: false\n"] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(scene(lines).errors(), @"
            error: `platforms.test` does not say who may talk to the agent (talaria.yaml, line 2)

            hint: list people by their full ids in `platforms.test.access.people`; or write `access: {allow_all: true}` to let everybody in
            ");
        }
    }
}

#[test]
fn pairing_alone_is_no_list_and_the_hint_names_the_empty_one() {
    insta::assert_snapshot!(scene("access: {pairing: true}").errors(), @"
    error: `platforms.test` does not say who may talk to the agent (talaria.yaml, line 2)

    hint: write `people: []` below `platforms.test.access` if only those may talk whom you let in by pairing; or list people there by their full ids
    ");
}

#[test]
fn an_empty_list_is_nobody_and_enough_to_start() {
    assert_eq!(lists("access: {people: []}"), AccessLists::default());
    assert!(lists("access: {allow_all: true}").allow_all);
    assert!(lists("access: {people: [], pairing: true}").pairing);
}

#[test]
fn lists_hold_full_ids_and_nothing_else() {
    for id in [
        "ann",
        "@ann",
        "ann:test",
        "@ann:",
        "@:test",
        "*",
        "@*:test",
        "@ann:*",
        "@ann: test",
        "@ann:t\u{e9}st",
        "",
        "@a\u{430}nn:test",
    ] {
        for key in ["admins", "people", "direct", "rooms"] {
            let errors = scene(&format!("access:\n  {key}: ['@bob:test', '{id}']\n")).errors();
            assert!(errors.contains(&format!("`platforms.test.access.{key}` holds `")), "{id}: {errors}");
            assert!(errors.contains("line 5") && errors.contains("hint: write the whole id"), "{errors}");
        }
    }
}

#[test]
fn every_key_about_people_arrives() {
    let rules = rules(
        "access:\n  admins: ['@admin:test']\n  people: ['@ann:test']\n  direct: ['@bob:test']\n  \
         rooms: ['@eve:test']\n  pairing: true\n  admin_commands: [undo, /new]\n\
         session:\n  threads: true\n  people: true\n  reset: daily\n  reset_at: '05:30'\n\
         busy: interrupt\nplaces:\n  '!quiet': {busy: queue}\n  '!own': {people: ['@cat:test']}\n\
         limits:\n  per_minute: 3\n  per_hour: 30\n  loop_guard: false\n",
    );
    let one = |id: &str| [id.into()].into();
    assert_eq!(
        rules.access,
        AccessPolicy::Listed(AccessLists {
            admins: one("@admin:test"),
            people: one("@ann:test"),
            direct: one("@bob:test"),
            rooms: one("@eve:test"),
            allow_all: false,
            pairing: true,
            admin_commands: [ChatCommand::Undo, ChatCommand::New].into(),
            trust: None,
            secure_only: false,
        })
    );
    assert!(rules.session.threads && rules.session.people);
    assert_eq!(rules.session.reset, SessionReset::Daily { at: Duration::from_secs(5 * 3600 + 30 * 60) });
    assert_eq!(
        (rules.busy_in(&"!quiet".into()), rules.busy_in(&"!other".into())),
        (BusyPolicy::Queue, BusyPolicy::Interrupt)
    );
    assert_eq!(rules.limits, Some(PersonLimits { per_minute: 3, per_hour: 30, loop_guard: false }));
    assert_eq!(*rules.access_in(&"!quiet".into()), rules.access);
    let own = AccessLists {
        admins: one("@admin:test"),
        people: one("@cat:test"),
        admin_commands: [ChatCommand::Undo, ChatCommand::New].into(),
        ..AccessLists::default()
    };
    assert_eq!(*rules.access_in(&"!own".into()), AccessPolicy::Listed(own));
    assert_eq!(rules.busy_in(&"!own".into()), BusyPolicy::Interrupt);
}

/// The command exists in tests only; a name with a dash is written like any other.
#[cfg(feature = "testing")]
#[test]
fn a_command_with_a_dash_in_its_name_can_be_for_admins() {
    for written in ["self-check", "/self-check"] {
        let rules = rules(&format!("access: {{people: [], admin_commands: [{written}]}}"));
        let AccessPolicy::Listed(lists) = &rules.access else { panic!("{rules:?}") };
        assert_eq!(lists.admin_commands, [ChatCommand::SelfCheck].into(), "{written}");
    }
}

#[test]
fn what_is_not_written_has_its_default() {
    let rules = rules("access: {people: []}");
    assert_eq!(rules, AccountRules::listed(AccessLists::default()));
    assert_eq!(rules.limits, Some(PersonLimits { per_minute: 30, per_hour: 300, loop_guard: true }));
    let idle = self::rules("access: {people: []}\nsession: {reset: idle}").session.reset;
    assert_eq!(idle, SessionReset::Idle { after: Duration::from_secs(24 * 3600) });
    let daily = self::rules("access: {people: []}\nsession: {reset: daily}").session.reset;
    assert_eq!(daily, SessionReset::Daily { at: Duration::from_secs(4 * 3600) });
}

#[test]
fn slips_are_named_with_their_line() {
    for (lines, expected) in [
        ("acces: {people: []}", "unknown key `acces` in `platforms.test` (talaria.yaml, line 4)"),
        ("acces: {people: []}", "did you mean `access`?"),
        ("access: {peoples: []}", "unknown key `peoples` in `platforms.test.access`"),
        ("access: {people: '@ann:test'}", "`platforms.test.access.people` must be"),
        ("access: {people: [], admin_commands: [stpo]}", "did you mean `stop`?"),
        ("access: {people: []}\nbusy: wait", "`platforms.test.busy`"),
        ("access: {people: []}\nsession: {reset: weekly}", "`platforms.test.session.reset`"),
        ("access: {people: []}\nsession: {reset_at: '24:00'}", "a time of the day such as `04:00`"),
        ("access: {people: []}\nsession: {reset_at: '4:00'}", "a time of the day such as `04:00`"),
        ("access: {people: []}\nsession: {idle: 59s}", "`platforms.test.session.idle`"),
        ("access: {people: []}\nlimits: {per_minute: 0}", "a whole number from 1 to 10000"),
        ("access: {people: []}\nplaces: {'!x': {buzy: queue}}", "unknown key `buzy`"),
        (
            "access: {people: []}\nplaces: {'!x': {people: [ann]}}",
            "`platforms.test.places.!x.people` holds `ann`, which is not a full id (talaria.yaml, line 5)",
        ),
    ] {
        let errors = scene(lines).errors();
        assert!(errors.contains(expected), "{lines}\n{errors}");
    }
}
