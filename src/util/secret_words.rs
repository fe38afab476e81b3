//! Hides words of a line that look like secrets. Pure.
//!
//! For lines that are only a hint, such as the title of a running step. It knows common forms and nothing else, so it
//! never stands in for keeping a secret out of a text, and it has no place where people must read an exact command.

/// Stands for a hidden word.
const HIDDEN: &str = "[…]";

/// Parts of names whose values are secrets.
const NAMES: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "credential",
    "private",
    "authorization",
];

/// Ends of names whose values are secrets.
const NAME_ENDS: [&str; 3] = ["_key", "-key", "auth"];

/// Beginnings of keys that well-known services give out.
const PREFIXES: [&str; 13] = [
    "sk-",
    "pk-",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "eyJ",
    "AIza",
];

/// Length from which a word of mixed letters and digits is taken for a key.
const RANDOM: usize = 24;

/// The line without words that look like secrets: values of names such as `TOKEN=` or `--password`, keys of well-known
/// services, passwords in addresses, and long random words. White space between words becomes one space.
pub fn mask_secrets(line: &str) -> String {
    let mut hides_next = false;
    let words = line.split_whitespace().map(|word| {
        let hides = std::mem::take(&mut hides_next);
        let bare = word.trim_matches(['"', '\'', '(', ')', ';', ',']);
        if is_scheme(bare) {
            hides_next = true;
            return word.to_owned();
        }
        if hides && !bare.starts_with('-') {
            return HIDDEN.to_owned();
        }
        if names_secret(bare.trim_end_matches([':', '='])) && (bare.starts_with("--") || bare.ends_with(':'))
        {
            hides_next = true;
            return word.to_owned();
        }
        mask_word(word)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Masks the secret parts of one word.
fn mask_word(word: &str) -> String {
    let named = word.split_once(['=', ':']).filter(|(name, value)| names_secret(name) && !value.is_empty());
    if let Some((name, _)) = named {
        return format!("{}={HIDDEN}", name);
    }
    if let Some((before, host)) = word.split_once("://").and_then(|(_, rest)| rest.split_once('@'))
        && before.contains(':')
    {
        return word.replace(&format!("{before}@{host}"), &format!("{HIDDEN}@{host}"));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
    let mut masked = String::with_capacity(word.len());
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        masked.push_str(if is_key(part) { HIDDEN } else { part });
        let next = after.find(is_part).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        masked.push_str(between);
        rest = after;
    }
    masked
}

/// Whether the value behind this name is a secret. Only plain names: a path is none.
fn names_secret(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).trim_start_matches('-').to_ascii_lowercase();
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let is_count = name.ends_with("tokens");
    let is_secret = name == "key"
        || NAME_ENDS.iter().any(|end| name.ends_with(end))
        || NAMES.iter().any(|part| name.contains(part));
    is_plain && is_secret && !is_count
}

/// Whether a key follows this word of a header.
fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether a word is a key by its look. Hashes of git and names in small letters are none.
fn is_key(word: &str) -> bool {
    let is_known = PREFIXES.iter().any(|prefix| word.starts_with(prefix)) && word.len() >= 12;
    let has = |test: fn(char) -> bool| word.contains(test);
    let is_random = word.len() >= RANDOM
        && has(|c| c.is_ascii_digit())
        && has(|c| c.is_ascii_uppercase())
        && has(|c| c.is_ascii_lowercase());
    is_known || is_random
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_that_look_like_secrets_are_hidden() {
        for (line, shown) in [
            ("API_KEY=hunter2 cargo run", "API_KEY=[…] cargo run"),
            ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: Bearer […] x"),
            ("curl -H \"X-Api-Key: abc\" x", "curl -H \"X-Api-Key: […] x"),
            ("mysql --password hunter2 -u root", "mysql --password […] -u root"),
            ("mysql --password=hunter2", "--password=[…]"),
            ("git clone https://ann:hunter2@example.org/x.git", "git clone https://[…]@example.org/x.git"),
            ("echo sk-proj-0123456789abcdef > k", "echo […] > k"),
            ("echo \"ghp_0123456789abcdef\"", "echo \"[…]\""),
            ("export X=aB3dE5gH7jK9mN1pQ3sT5vW7", "export X=[…]"),
        ] {
            let masked = mask_secrets(line);
            assert!(masked.ends_with(shown), "{line}: {masked}");
        }
    }

    #[test]
    fn ordinary_words_stay() {
        for line in [
            "cargo test --workspace --exclude talaria-matrix",
            "git show d3487740f3e6a1b2c3d4e5f60718293a4b5c6d7e",
            "cat /home/ann/projects/token/secret/notes.md",
            "ls -la src/agents/model/tool_calls.rs",
            "https://example.org/a@b",
            "echo basics of bearers",
            "git log --author=Ann --author Bob",
            "run --max-tokens 500 key-value keyboard=us",
        ] {
            assert_eq!(mask_secrets(line), line);
        }
    }

    proptest! {
        #[test]
        fn any_line_can_be_masked(line in "\\PC{0,80}") {
            let masked = mask_secrets(&line);
            prop_assert!(!masked.contains('\n') && masked.len() <= line.len() * 8 + 8);
        }
    }
}
