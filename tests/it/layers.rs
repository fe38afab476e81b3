//! Modules of the core depend on one another in one direction only.
//!
//! The test reads the sources: each `crate::module` in product code must name a module that stands before its own in
//! [`ORDER`]. Test modules may use everything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of `src`, lowest first. A module may use only those that stand before it.
const ORDER: &[&str] = &[
    // Helpers without a domain, and the list of platform kinds.
    "util",
    "os",
    "poll_when_woken",
    "pace",
    "supervise",
    "testing",
    "platforms",
    // Words, names and rules.
    "i18n",
    "ids",
    "token",
    "chat_command",
    "access",
    "rules",
    // Contracts and pure parts.
    "agent",
    "turn_source",
    "media",
    "reply",
    "turn_log",
    "config",
    "openai",
    // The store, and what needs nothing but the store.
    "store",
    "state_dir",
    "metrics",
    "notice",
    "post_commit",
    // Agents, and the engine that runs them.
    "agents",
    "delivery",
    "conversation",
    "turns",
    // Surfaces: chat rooms and HTTP.
    "command",
    "hub",
    "server",
    // The process.
    "logging",
    "control",
    "gateway",
    "cli",
    "main",
];

#[test]
fn no_module_uses_one_that_stands_after_it() {
    let mut backwards = Vec::new();
    for file in sources() {
        let user = module_of(&file);
        for used in used_modules(&product_code(&fs::read_to_string(&file).unwrap())) {
            if used != user && place_of(&used) > place_of(&user) {
                backwards.push(format!("{}: `{user}` uses `{used}`", file.display()));
            }
        }
    }
    assert!(backwards.is_empty(), "these lines lead backwards:\n{}", backwards.join("\n"));
}

#[test]
fn the_order_names_every_module_once() {
    let named: BTreeSet<_> = ORDER.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(named.len(), ORDER.len());
    let mut there: BTreeSet<_> = sources().iter().map(|file| module_of(file)).collect();
    // The map of the crate is no part of it.
    there.remove("lib");
    assert_eq!(named, there);
}

#[test]
fn every_way_of_naming_a_module_is_found() {
    let code = "use crate::store::Tx;\nuse crate::{agent, ids::TurnId};\nlet n = crate::util::hex(&x);\n\
                // crate::hub is only mentioned here\npub(crate) fn f() {}\nuse crate::{\n    turns::{Turns, self},\n    reply,\n};";
    let used: Vec<_> = used_modules(&product_code(code)).into_iter().collect();
    assert_eq!(used, ["agent", "ids", "reply", "store", "turns", "util"]);
    let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::hub::Hub;\n}\n";
    assert!(used_modules(&product_code(tests)).is_empty());
}

/// Every source file of the core, without files that only tests have.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut files) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_stem().and_then(|stem| stem.to_str()) {
                Some("tests") => {}
                Some(_) if path.is_dir() => folders.push(path),
                Some(_) if path.extension().is_some_and(|ending| ending == "rs") => files.push(path),
                Some(_) | None => {}
            }
        }
    }
    files
}

/// The module at the top of the crate that a file belongs to.
fn module_of(file: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let first = file.strip_prefix(root).unwrap().components().next().unwrap();
    let name = first.as_os_str().to_str().unwrap();
    name.strip_suffix(".rs").unwrap_or(name).to_owned()
}

fn place_of(module: &str) -> usize {
    ORDER.iter().position(|name| *name == module).unwrap_or(if module == "lib" { ORDER.len() } else { 0 })
}

/// The text without comments and without the tests at its end.
fn product_code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The modules that `crate::…` paths name.
fn used_modules(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            Some(group) => used.extend(first_names(group)),
            None => used.extend(leading_name(path)),
        }
    }
    used
}

/// The first name of each path in `a, b::{c, d}}…`.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut at_start, mut names) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if c.is_whitespace() => {}
            _ if depth == 0 && at_start => {
                names.extend(leading_name(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    names
}

fn leading_name(path: &str) -> Option<String> {
    let name: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    name.starts_with(|c: char| c.is_ascii_lowercase()).then_some(name)
}
