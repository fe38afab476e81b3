//! Describes a patch without its content: how many files of each kind, and which. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::agents::sorted_json::text_field;
use crate::util::hash;

/// Hex digits of the hash that binds an approval to the content of a patch.
const MARK: usize = 12;

/// A patch in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSummary {
    /// Kinds and paths, such as `1 add, 1 update: /work/new.py, /work/old.py`. All of them: an approval shows it in full.
    pub text: String,
    /// The first path, for a line about the patch.
    pub first_path: String,
    added: usize,
    removed: usize,
    /// Hash over everything in the patch.
    mark: String,
}

impl PatchSummary {
    /// The summary of the `changes` of an item; `None` if they name no file.
    pub fn of(changes: &[Value]) -> Option<Self> {
        let first_path = change_path(changes.first()?);
        let mut kinds = BTreeMap::<&str, usize>::new();
        let (mut added, mut removed) = (0, 0);
        for change in changes {
            *kinds.entry(change_kind(change)).or_default() += 1;
            let (more, fewer) = changed_lines(change);
            added += more;
            removed += fewer;
        }
        let kinds: Vec<_> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let paths: Vec<_> = changes.iter().map(change_path).collect();
        let text = format!("{}: {}", kinds.join(", "), paths.join(", "));
        let content = changes.iter().map(Value::to_string).collect::<Vec<_>>();
        let mark = hash(content.iter().map(String::as_str)).chars().take(MARK).collect();
        Some(Self { text, first_path, added, removed, mark })
    }

    /// The patch as a person approves it. The mark makes an approval hold for this content only.
    pub fn detail(&self) -> String {
        format!("{}\n+{} -{} ({})", self.text, self.added, self.removed, self.mark)
    }
}

/// `add`, `delete`, `update`, or a kind that we do not know.
fn change_kind(change: &Value) -> &str {
    let kind = &change["kind"];
    let name = kind.as_str().unwrap_or_else(|| text_field(kind, "type"));
    let is_plain = (1..=20).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_plain { name } else { "change" }
}

/// The path of a change, and the new one of a file that moves.
fn change_path(change: &Value) -> String {
    let mut path = quoted_if_odd(text_field(change, "path"));
    let moved = text_field(&change["kind"], "move_path");
    if !moved.is_empty() {
        let _ = write!(path, " -> {}", quoted_if_odd(moved));
    }
    path
}

/// A path that cannot pass for two, or for a line of its own.
fn quoted_if_odd(path: &str) -> String {
    let is_odd = |c: char| c.is_control() || (c.is_whitespace() && c != ' ') || matches!(c, ',' | '"' | '>');
    if path.is_empty() || path.contains(is_odd) || path.trim() != path {
        return Value::from(path).to_string();
    }
    path.to_owned()
}

/// Numbers of added and removed lines. For a new and for a deleted file codex sends its content instead of a diff.
fn changed_lines(change: &Value) -> (usize, usize) {
    let diff = text_field(change, "diff");
    match change_kind(change) {
        "add" => (diff.lines().count(), 0),
        "delete" => (0, diff.lines().count()),
        _ => {
            let count = |sign: char, head: &str| {
                diff.lines().filter(|line| line.starts_with(sign) && !line.starts_with(head)).count()
            };
            (count('+', "+++ "), count('-', "--- "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(changes: Value) -> PatchSummary {
        PatchSummary::of(changes.as_array().unwrap()).unwrap()
    }

    #[test]
    fn a_patch_is_counted_by_kind_and_names_every_file() {
        let patch = summary(json!([
            { "path": "/tmp/new.py", "kind": { "type": "add" }, "diff": "one\ntwo\n" },
            { "path": "/tmp/old.py", "kind": { "type": "update", "move_path": null },
              "diff": "--- a\n+++ b\n@@ -1,2 +1 @@\n-x\n-y\n+z\n" },
        ]));
        assert_eq!(patch.text, "1 add, 1 update: /tmp/new.py, /tmp/old.py");
        assert_eq!(patch.first_path, "/tmp/new.py");
        assert!(patch.detail().starts_with("1 add, 1 update: /tmp/new.py, /tmp/old.py\n+3 -2 ("));
        assert!(!patch.detail().contains("one"), "the content is not shown");
    }

    #[test]
    fn a_move_names_both_paths_and_an_unknown_kind_is_a_change() {
        let moved =
            json!([{ "path": "a.txt", "kind": { "type": "update", "move_path": "b.txt" }, "diff": "" }]);
        assert_eq!(summary(moved).text, "1 update: a.txt -> b.txt");
        let plain =
            json!([{ "path": "a", "kind": "delete", "diff": "x\n" }, { "path": "b", "kind": "odd kind" }]);
        assert_eq!(summary(plain).text, "1 change, 1 delete: a, b");
        assert_eq!(PatchSummary::of(&[]), None);
        assert_eq!(summary(json!([7])).text, "1 change: \"\"");
    }

    #[test]
    fn a_path_cannot_pass_for_two_or_hide_a_line() {
        let odd = json!([{ "path": "a, b\n1 add: c", "kind": { "type": "add" }, "diff": "" }]);
        assert_eq!(summary(odd).text, r#"1 add: "a, b\n1 add: c""#);
    }

    #[test]
    fn another_content_is_another_patch() {
        let patch = |diff: &str| summary(json!([{ "path": "a", "kind": { "type": "add" }, "diff": diff }]));
        assert_eq!(patch("x\n").detail(), patch("x\n").detail());
        assert_ne!(patch("x\n").detail(), patch("y\n").detail());
    }
}
