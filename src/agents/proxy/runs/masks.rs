//! Finds out whether a server has hidden a part of a command that it asks about.
//!
//! hermes-agent masks what looks like a secret before it sends a command, and what looks like one may be a command of its
//! own: `TOKEN=$(rm -rf garden) true` becomes `TOKEN=*** true`. Nothing else in its event tells of that. Its masks can be a
//! part of an honest command as well; then the question only has one more sentence than it needs.

/// Marks that stand in the place of a hidden text.
const MARKS: [&str; 2] = ["***", "redacted"];

/// The dots in the place of a hidden middle.
const DOTS: &str = "...";

/// Fewest characters that a masked text keeps before its hidden middle and behind it. hermes-agent keeps six and four.
const KEPT: usize = 4;

/// Whether this command may not be the whole one.
pub fn may_hide_a_part(command: &str) -> bool {
    let lower = command.to_lowercase();
    let is_long = |text: &str| text.chars().nth(KEPT - 1).is_some();
    let has_hidden_middle = |(at, _): (usize, &str)| {
        command.get(..at).is_some_and(is_long) && command.get(at + DOTS.len()..).is_some_and(is_long)
    };
    MARKS.iter().any(|mark| lower.contains(mark)) || command.match_indices(DOTS).any(has_hidden_middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mask_of_hermes_is_known() {
        for masked in [
            "API_TOKEN=*** true",
            "API_TOKEN=*** rm -rf /tmp/a",
            "curl -H 'Authorization: Bearer sk-abc...wxyz' https://example.org",
            r#"echo '{"token": "a; rm ...; x y"}'"#,
            "psql postgres://ann:***@db/garden",
            "echo '[REDACTED PRIVATE KEY]' > key",
            "echo «redacted:ghp_…»",
            "call +123****4567",
        ] {
            assert!(may_hide_a_part(masked), "{masked}");
        }
    }

    #[test]
    fn plain_commands_hide_nothing() {
        for plain in ["rm -rf /tmp/x", "cd ..", "go test ./...", "ls ** *.rs", "", "..."] {
            assert!(!may_hide_a_part(plain), "{plain}");
        }
    }
}
