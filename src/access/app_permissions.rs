//! What an app's agents may do without a person: the policy for the permissions that they ask for in its turns. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most entries of a list of allowed actions.
const ENTRIES: usize = 100;

/// Most characters of an entry.
const LONGEST: usize = 1_000;

/// Characters with which a shell begins another command, or a path leads out of where it began: behind them an action is
/// not the one that was allowed.
const BREAKS: &[char] = &[';', '&', '|', '`', '$', '(', ')', '<', '>', '{', '}', '\\', '\'', '"'];

/// The policy of one app. Anything unclear is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppPermissions {
    /// Nothing is permitted.
    #[default]
    Deny,
    /// The app is asked, as an event of its turn.
    Ask,
    /// What one of these entries names is permitted once, everything else is denied. An entry is the exact action; one that
    /// ends with `*` also fits actions that only go on in plain words, without a path that leads out of the folder.
    Allow(Vec<String>),
}

/// What becomes of one permission that an agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionDecision {
    /// It is not permitted.
    Deny,
    /// The app is asked.
    Ask,
    /// It is permitted this once.
    AllowOnce,
}

impl AppPermissions {
    /// Decides about an action, such as a whole command.
    pub fn decide(&self, action: &str) -> PermissionDecision {
        match self {
            Self::Deny => PermissionDecision::Deny,
            Self::Ask => PermissionDecision::Ask,
            Self::Allow(entries) if entries.iter().any(|entry| fits(entry, action)) => {
                PermissionDecision::AllowOnce
            }
            Self::Allow(_) => PermissionDecision::Deny,
        }
    }

    /// Reads the policy as it is sent and shown: `"deny"`, `"ask"`, or a list of what is allowed. `None` if it is none of
    /// these, or too long.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) if word == "deny" => Some(Self::Deny),
            Value::String(word) if word == "ask" => Some(Self::Ask),
            Value::Array(list) if list.len() <= ENTRIES => {
                let entry = |value: &Value| {
                    let entry = value.as_str()?.trim();
                    let is_named = !entry.trim_end_matches('*').trim().is_empty();
                    // A policy of its own, and no action: a list that has it contradicts itself.
                    let is_policy = matches!(entry, "deny" | "ask");
                    (is_named && !is_policy && entry.chars().count() <= LONGEST).then(|| entry.to_owned())
                };
                list.iter().map(entry).collect::<Option<_>>().map(Self::Allow)
            }
            Value::Object(fields) if fields.len() == 1 => match fields.get("allow")? {
                list @ Value::Array(_) => Self::read(list),
                _ => None,
            },
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        }
    }

    /// The policy as it is shown.
    pub fn shown(&self) -> Value {
        match self {
            Self::Deny => "deny".into(),
            Self::Ask => "ask".into(),
            Self::Allow(entries) => entries.clone().into(),
        }
    }
}

fn fits(entry: &str, action: &str) -> bool {
    let action = action.trim();
    match entry.strip_suffix('*') {
        None => entry == action,
        Some(beginning) => action.strip_prefix(beginning).is_some_and(|rest| {
            !rest.contains("..")
                && !rest.contains(|c: char| c.is_control() || BREAKS.contains(&c))
                && !names_absolute_path(action, beginning.len())
        }),
    }
}

/// Whether a path in the action, from this byte on, may begin at the root or at somebody's home: `/etc`, `~`, `--file=/etc`,
/// `file:/etc`, `@/etc`, `-C/etc`. Only behind the name of a folder or a file are `/` and `~` a part of a path below.
fn names_absolute_path(action: &str, from: usize) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    action.char_indices().filter(|(at, c)| *at >= from && matches!(c, '/' | '~')).any(|(at, _)| {
        let before = &action[..at];
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        // The value of a short option may follow it directly.
        let is_short_option = word.starts_with('-') && !word.starts_with("--");
        is_short_option || !before.ends_with(of_name)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allows(entry: &str, action: &str) -> bool {
        let policy = AppPermissions::read(&json!([entry])).unwrap();
        policy.decide(action) == PermissionDecision::AllowOnce
    }

    #[test]
    fn a_list_allows_what_it_names_and_nothing_that_hides_behind_it() {
        assert!(allows("cargo test", "cargo test"));
        assert!(!allows("cargo test", "cargo test --all"));
        assert!(allows("cargo test*", "cargo test --all -p one"));
        for action in [
            "cargo test; rm -rf ~",
            "cargo test && rm x",
            "cargo test | sh",
            "cargo test $(rm x)",
            "cargo test `rm x`",
            "cargo test > /etc/passwd",
            "cargo test\nrm x",
            "cargo test ../../other",
            "cargo test /other/app",
            "cargo test ~/app",
            "cargo test ~",
            "cargo test --manifest-path /other/Cargo.toml",
            "cargo test --manifest-path=/other/Cargo.toml",
            "cargo test --manifest-path=~/Cargo.toml",
            "cargo test --manifest-path=\"/other/Cargo.toml\"",
            "cargo test '/other/app'",
            "cargo test --config include:/other/app",
            "cargo test file:///other/app",
            "cargo test -C/other/app",
            "cargo test @/other/app",
            "cargo test [/]other/app",
            "cargo test one,/other/app",
            "cargo test\u{a0}/other",
            "rm x # cargo test",
            "",
        ] {
            assert!(!allows("cargo test*", action), "{action:?}");
        }
        assert!(!allows("cat*", "cat /home/u/.talaria/api.key"));
        assert!(!allows("make --dir=*", "make --dir=/other") && !allows("ls -*", "ls -I/other"));
        for action in ["cat src/lib.rs ./a/b", "cat --from=src/lib.rs", "cat HEAD~1 -n", "cat -- a/b~"] {
            assert!(allows("cat*", action), "{action:?}");
        }
        // What the entry names itself is allowed.
        assert!(
            allows("cat /srv/app/*", "cat /srv/app/src/lib.rs") && allows("gcc -I/opt *", "gcc -I/opt a/b.c")
        );
    }

    #[test]
    fn only_a_clear_policy_is_read() {
        let read = |value: Value| AppPermissions::read(&value);
        assert_eq!(read(json!("deny")), Some(AppPermissions::Deny));
        assert_eq!(read(json!("ask")), Some(AppPermissions::Ask));
        assert_eq!(read(json!([])), Some(AppPermissions::Allow(Vec::new())));
        assert_eq!(read(json!({ "allow": ["ls"] })), Some(AppPermissions::Allow(vec!["ls".to_owned()])));
        for unclear in [
            json!("allow"),
            json!(true),
            json!(null),
            json!(["*"]),
            json!([" * "]),
            json!([1]),
            json!([""]),
            json!({}),
            json!({ "allow": "ls" }),
            json!({ "allow": [], "deny": [] }),
            json!(["x".repeat(1_001)]),
        ] {
            assert_eq!(read(unclear.clone()), None, "{unclear}");
        }
        for policy in [json!("deny"), json!("ask"), json!(["ls", "cargo test*"])] {
            assert_eq!(read(policy.clone()).map(|read| read.shown()), Some(policy));
        }
        assert_eq!(AppPermissions::default().decide("ls"), PermissionDecision::Deny);
        assert_eq!(AppPermissions::Ask.decide("ls"), PermissionDecision::Ask);
    }
}
