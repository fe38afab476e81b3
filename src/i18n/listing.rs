//! Prints the catalogue for an operator: the output of `talaria words`.

use std::fmt::Write as _;

use super::{TextCatalog, TextKey, TextKind};

const HEAD: &str = "\
# Every text that Talaria itself says in rooms. To say one differently, put its line into the
# configuration under `words:`, without the `#` before it, and change it. What stands in braces is filled in.
";

impl TextCatalog {
    /// Every text as a commented line that can be pasted under `words:`, with its permitted changes.
    pub fn listing(&self) -> String {
        let mut listing = HEAD.to_owned();
        let reworded = self.reworded();
        for (text, words) in TextKey::ALL.iter().zip(&self.texts) {
            let (key, gaps) = (text.key(), gaps(*text));
            let silent = match text.kind() {
                TextKind::Notice => "\"\" silences it",
                TextKind::Part => "cannot be silenced",
            };
            let changed = if reworded.contains(text) { "reworded; " } else { "" };
            // A JSON string is a YAML string, and always one line.
            let words = serde_json::Value::from(words.as_str());
            let _ = write!(listing, "\n  # ({changed}{silent}{gaps})\n  # {key}: {words}\n");
        }
        listing
    }
}

fn gaps(text: TextKey) -> String {
    let needed = |gap| if text.needs().contains(gap) { " is needed" } else { "" };
    text.gaps().iter().map(|gap| format!("; {{{gap}}}{}", needed(gap))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_listing_can_be_pasted_and_says_what_may_be_done() {
        for language in TextCatalog::languages() {
            let words = TextCatalog::of(language).unwrap();
            let listing = words.listing();
            let pasted: String = listing
                .lines()
                .filter_map(|line| line.strip_prefix("  # ").filter(|line| !line.starts_with('(')))
                .map(|line| format!("{line}\n"))
                .collect();
            let pasted: BTreeMap<String, String> = serde_yaml::from_str(&pasted).unwrap();
            assert_eq!(pasted.len(), TextKey::ALL.len());
            let mut again = TextCatalog::default();
            for (key, wording) in &pasted {
                assert_eq!(again.reword(key, wording), Ok(()), "{key}");
            }
            assert_eq!(again.texts, words.texts, "{language}");
        }
        let listing = TextCatalog::default().listing();
        assert!(
            listing
                .contains("\n  # (\"\" silences it; {ahead})\n  # queued_many: \"Queued: {ahead} messages")
        );
        assert!(listing.contains(
            "\n  # (cannot be silenced; {title} is needed; {action} is needed; {code} is needed)\n  # ask: "
        ));
        assert!(listing.contains("\n  # (cannot be silenced)\n  # stopped: \"(stopped)\"\n"));
    }
}
