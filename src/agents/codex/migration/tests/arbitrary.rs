//! Property tests: every file of a user survives.

use std::collections::BTreeSet;

use proptest::prelude::*;
use toml_edit::{Document, Item, Table};

use super::super::managed_block::{BEGIN, END, split_file};
use super::super::plain_value::{plain_table, unite};
use super::super::statements::{StatementKind, statements};
use super::*;

/// Keys and parts of keys: some clash with ours, some are hard to read.
const KEYS: &[&str] = &[
    "model",
    "a",
    "b-2",
    "default_permissions",
    "'default_permissions'",
    "sandbox_mode",
    "mcp_servers",
    "\"mcp_servers\"",
    "mcp_servers.time",
    "mcp_servers . 'time' . command",
    "mcp_servers.\"ti\\u006de\".env",
    "mcp_servers.own",
    "mcp_servers.own.command",
    "mcp_servers.talaria",
    "plugins",
    "plugins.\"calendar@openai-curated\"",
    "plugins.'x@y'.enabled",
    "permissions",
    "features",
    "projects.\"/home/ann/[x] # y\"",
    "\"größe ✓\"",
    "'quote\"'",
    "\"\"",
    "a.b.c",
];

/// Values over one line and several, with everything in them that could be taken for something else.
const VALUES: &[&str] = &[
    "1",
    "-0.0",
    "nan",
    "0xFF",
    "true",
    "1979-05-27T07:32:00Z",
    "\"text # no comment\"",
    "'literal \\ [x]'",
    "\"esc \\\" \\\\ \\u00e9\"",
    "\"\"",
    "\"\"\"\n[table]\n# >>> talaria >>>\n\\\"\"\" \"\"\"",
    "'''\r\n# <<< talaria <<<\n''''",
    "[]",
    "[ 1, # ]\n  2,\n\n  # >>> talaria >>>\n  3 ]",
    "[[1], [\"]\"]]",
    "{}",
    "{ a = 1, \"b\" = { c = '}' } }",
    "{ command = \"mine\" }",
    "\":read-only\"",
];

const HEADERS: &[(&str, &str)] = &[("[", "]"), ("[[", "]]"), (" \t[ ", " ] "), ("[", "] # mine")];

/// Some lines. They may be wrong where they stand; then they are left out.
fn piece() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(KEYS);
    let break_ = || prop::sample::select(&["\n", "\r\n", "\n\n", " \n"][..]);
    prop_oneof![
        3 => (key(), prop::sample::select(&["=", " = ", "\t=  "][..]), prop::sample::select(VALUES), break_())
            .prop_map(|(key, equals, value, end)| format!("{key}{equals}{value}{end}")),
        3 => (key(), prop::sample::select(HEADERS), break_())
            .prop_map(|(key, (open, close), end)| format!("{open}{key}{close}{end}")),
        1 => (prop::sample::select(&["a", "x"][..]), any::<String>(), break_())
            .prop_map(|(key, text, end)| format!("{key} = {}{end}", super::super::server_table::text_value(&text))),
        2 => ("[^\\x00-\\x1f\\x7f]{0,20}", break_()).prop_map(|(text, end)| format!("#{text}{end}")),
        1 => prop::sample::select(&["\n", "\r\n", "  \t\n", "# >> talaria\n", "  # c\n"][..]).prop_map(str::to_owned),
    ]
}

/// A file that is TOML and has no part of ours.
fn user_file() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(piece(), 0..14);
    (pieces, any::<bool>(), 0..8_u8).prop_map(|(pieces, has_last_break, mark)| {
        let mut text = if mark == 0 { "\u{feff}".to_owned() } else { String::new() };
        for piece in pieces {
            let longer = format!("{text}{piece}");
            if Document::parse(&longer).is_ok() {
                text = longer;
            }
        }
        let shorter = text.trim_end_matches(['\r', '\n']);
        if has_last_break || Document::parse(shorter).is_err() { text } else { shorter.to_owned() }
    })
}

fn wanted_entries() -> impl Strategy<Value = WantedEntries> {
    let names = prop::sample::select(&["time", "own", "talaria", "web", "x-1"][..]);
    let server = (any::<String>(), prop::collection::vec(any::<String>(), 0..3), any::<bool>());
    let servers = prop::collection::btree_map(names, server, 0..4);
    (servers, any::<[bool; 3]>()).prop_map(|(servers, [tools, plugins, profile])| {
        let all = wanting_all();
        let servers = servers.into_iter().map(|(name, (command, args, enabled))| {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let value = with_value(stdio(&command, &args), "VALUE", &command, ValueOrigin::Literal);
            (name.to_owned(), McpServerConfig { enabled, ..value })
        });
        WantedEntries {
            servers: servers.collect(),
            out_of_reach: BTreeMap::new(),
            tools_server: all.tools_server.filter(|_| tools),
            offered: all.offered,
            plugins: if plugins { all.plugins } else { PluginChoice::Off },
            profile: all.profile.filter(|_| profile),
        }
    })
}

/// The migrated file; `None` if it must stay as it is for the one reason that a user's file can have.
fn migrated(old: &str, wanted: &WantedEntries) -> Option<String> {
    let plan = MigrationPlan::make(old.as_bytes(), wanted);
    let new = String::from_utf8(plan.bytes).unwrap();
    match &*plan.report.errors {
        [] => Some(new),
        [MigrationError::Incomplete(_)] => {
            assert_eq!(new, old);
            None
        }
        errors => panic!("{errors:?}\n{old}"),
    }
}

/// Whether `new` is `old` with one piece put in. Knows nothing of markers.
fn is_insertion(old: &str, new: &str) -> bool {
    let same = |(one, other): &(u8, u8)| one == other;
    let before = old.bytes().zip(new.bytes()).take_while(same).count();
    let after = old.bytes().rev().zip(new.bytes().rev()).take_while(same).count();
    new.len() >= old.len() && before + after >= old.len()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn the_users_bytes_survive(old in user_file(), wanted in wanted_entries(), later in wanted_entries()) {
        let Some(new) = migrated(&old, &wanted) else { return Ok(()) };
        prop_assert!(is_insertion(&old, &new), "{old:?}\n{new:?}");
        // It parses, so no table is there twice.
        let document = Document::parse(new.as_str());
        prop_assert!(document.is_ok(), "{new}");
        prop_assert_eq!(migrated(&new, &wanted), Some(new.clone()), "twice is once");
        prop_assert_eq!(migrated(&new, &WantedEntries::default()), Some(old.clone()));
        if let Some(changed) = migrated(&new, &later) {
            prop_assert_eq!(Some(changed), migrated(&old, &later), "the way there does not matter");
        }
    }

    #[test]
    fn every_wanted_entry_is_there_once_or_reported(old in user_file(), wanted in wanted_entries()) {
        let report = MigrationPlan::make(old.as_bytes(), &wanted).report;
        if !report.errors.is_empty() {
            return Ok(());
        }
        let is_closed = report.clashes.iter().any(|clash| clash == "mcp_servers");
        for name in wanted.servers.keys() {
            let entry = EntryName::Server(name.clone());
            let is_reserved = name == TOOLS_SERVER && wanted.tools_server.is_some();
            let ways = [
                report.migrated.contains(&entry) && !is_reserved,
                (is_closed || report.clashes.contains(&entry.to_string())) && !is_reserved,
                report.skipped_servers.contains_key(name),
            ];
            prop_assert_eq!(ways.iter().filter(|is_so| **is_so).count(), 1, "{} {:?}", name, report);
        }
    }

    #[test]
    fn edits_by_codex_survive_the_next_migration(old in user_file(), wanted in wanted_entries()) {
        let Some(new) = migrated(&old, &wanted) else { return Ok(()) };
        // codex edits with the same library: a root key, a server and a table.
        let mut edited: DocumentMut = new.parse().unwrap();
        let mut inserted = DocumentMut::new();
        for document in [&mut edited, &mut inserted] {
            document["model_reasoning_effort"] = toml_edit::value("high");
            let mut trust = Table::new();
            trust["trust_level"] = toml_edit::value("trusted");
            document["projects_of_codex"] = Item::Table(trust);
        }
        if edited.get("mcp_servers").is_some_and(Item::is_table) {
            for document in [&mut edited, &mut inserted] {
                let mut server = Table::new();
                server["command"] = toml_edit::value("echo");
                let servers = document.entry("mcp_servers").or_insert(Item::Table(Table::new()));
                servers["added_by_codex"] = Item::Table(server);
            }
        }
        let edited = edited.to_string();
        let plan = MigrationPlan::make(edited.as_bytes(), &WantedEntries::default());
        prop_assert_eq!(&plan.report.errors, &[], "{}", edited);
        let left = Document::parse(String::from_utf8(plan.bytes).unwrap()).unwrap();
        let theirs = Document::parse(old.as_str()).unwrap();
        let expected = unite(&plain_table(theirs.as_table()), &plain_table(inserted.as_table()));
        prop_assert_eq!(Some(plain_table(left.as_table())), expected, "{}", edited);
    }

    #[test]
    fn statements_agree_with_the_parser(text in user_file()) {
        let all = statements(&text);
        let first = text.len() - text.trim_start_matches('\u{feff}').len();
        let mut end = first;
        for statement in &all {
            prop_assert_eq!(statement.range.start, end);
            end = statement.range.end;
        }
        prop_assert_eq!(end, text.len());
        // Each beginning of the file that ends between two statements is TOML.
        for statement in all.iter().filter(|statement| statement.kind != StatementKind::Blank) {
            prop_assert!(Document::parse(&text[..statement.range.end]).is_ok(), "{:?}", &text[..statement.range.end]);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_kept_after_an_error(
        noise in prop::collection::vec(prop_oneof![
            any::<String>(),
            prop::sample::select(&[BEGIN, END, "\n", "\"\"\"", "'''", "[", "]\n", "a = 1\n", "# entries: mcp_servers.a\n"][..])
                .prop_map(str::to_owned),
        ], 0..12),
        wanted in wanted_entries(),
    ) {
        let old = noise.concat();
        let plan = MigrationPlan::make(old.as_bytes(), &wanted);
        if plan.report.errors.is_empty() {
            let new = String::from_utf8(plan.bytes).unwrap();
            prop_assert!(Document::parse(new.as_str()).is_ok(), "{old:?}\n{new:?}");
            let names: BTreeSet<_> = plan.report.migrated.into_iter().collect();
            prop_assert_eq!(split_file(&new).unwrap().block.entries, names);
        } else {
            prop_assert_eq!(plan.bytes, old.into_bytes());
        }
    }
}
