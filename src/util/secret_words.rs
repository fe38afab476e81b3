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
const NAME_ENDS: [&str; 6] = ["_key", "-key", "auth", "_pass", "-pass", "_pwd"];

/// Options whose values are a name and a secret with a colon between them.
const CREDENTIAL_OPTIONS: [&str; 3] = ["-u", "--user", "--proxy-user"];

/// Beginnings of keys that well-known services give out.
const PREFIXES: [&str; 22] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "pk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "npm_",
    "hf_",
    "AKIA",
    "ASIA",
    "eyJ",
    "AIza",
];

/// Length from which a word of mixed letters and digits is taken for a key.
const RANDOM: usize = 24;

/// The words behind one that names a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HiddenNext {
    Nothing,
    /// The next word is a secret.
    Value,
    /// The next word may be a name and a secret.
    Credentials,
    /// All words are secret up to one with this quote.
    UntilQuote(char),
}

/// The line without words that look like secrets: values of names such as `TOKEN=` or `--password`, keys of well-known
/// services, passwords in addresses, and long random words. White space between words becomes one space.
pub fn mask_secrets(line: &str) -> String {
    let mut hidden = HiddenNext::Nothing;
    let words = line.split_whitespace().map(|word| {
        let (shown, next) = mask_next(word, hidden);
        hidden = next;
        shown
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Masks a word, and tells which words behind it are secret.
fn mask_next(word: &str, hidden: HiddenNext) -> (String, HiddenNext) {
    let bare = word.trim_matches(['"', '\'', '(', ')', '{', '}', '[', ']', ';', ',']);
    match hidden {
        HiddenNext::Nothing => {}
        HiddenNext::Value | HiddenNext::UntilQuote(_) if is_scheme(bare) => return (word.to_owned(), hidden),
        HiddenNext::UntilQuote(quote) => {
            let next = if word.contains(quote) { HiddenNext::Nothing } else { hidden };
            return (HIDDEN.to_owned(), next);
        }
        HiddenNext::Value if bare.starts_with('-') => {}
        HiddenNext::Value => return (HIDDEN.to_owned(), open_quote(word)),
        HiddenNext::Credentials => {
            if let Some((name, _)) = word.split_once(':').filter(|(_, secret)| !secret.is_empty()) {
                return (format!("{name}:{HIDDEN}"), open_quote(word));
            }
        }
    }
    if is_scheme(bare) {
        return (word.to_owned(), HiddenNext::Value);
    }
    if CREDENTIAL_OPTIONS.contains(&bare) {
        return (word.to_owned(), HiddenNext::Credentials);
    }
    if names_secret(bare.trim_end_matches([':', '='])) && (bare.starts_with("--") || bare.ends_with(':')) {
        let next = match open_quote(word) {
            HiddenNext::UntilQuote(quote) => HiddenNext::UntilQuote(quote),
            HiddenNext::Nothing | HiddenNext::Value | HiddenNext::Credentials => HiddenNext::Value,
        };
        return (word.to_owned(), next);
    }
    mask_named(word).unwrap_or_else(|| (mask_word(word), HiddenNext::Nothing))
}

/// The quote that a word opens and does not close.
fn open_quote(word: &str) -> HiddenNext {
    let first = word.trim_start_matches(['(', '{', '[', '$']).chars().next();
    match first.filter(|first| matches!(first, '"' | '\'')) {
        Some(quote) if word.matches(quote).count() % 2 == 1 => HiddenNext::UntilQuote(quote),
        _ => HiddenNext::Nothing,
    }
}

/// Masks the value of a name within a word, such as `TOKEN=x`, `?key=x&a=1` or `{"token":"x"}`.
fn mask_named(word: &str) -> Option<(String, HiddenNext)> {
    for (at, separator) in word.char_indices().filter(|(_, c)| matches!(c, '=' | ':')) {
        let (before, value) = (&word[..at], &word[at + 1..]);
        let is_option = CREDENTIAL_OPTIONS.contains(&before) && separator == '=';
        if let Some((name, _)) = value.split_once(':').filter(|_| is_option) {
            return Some((format!("{before}={name}:{HIDDEN}"), open_quote(value)));
        }
        let name = before.trim_end_matches(['"', '\'']);
        let name = name.rsplit(|c: char| !is_part(c)).next().unwrap_or_default();
        let is_path = separator == ':' && (value.starts_with(':') || before.ends_with(':'));
        if is_path || value.is_empty() || name.is_empty() || !names_secret(name) {
            continue;
        }
        let (secret, rest) = match value.find('&').filter(|_| before.contains('?')) {
            Some(end) => value.split_at(end),
            None => (value, ""),
        };
        let (rest, _) = mask_named(rest).unwrap_or_else(|| (mask_word(rest), HiddenNext::Nothing));
        return Some((format!("{before}{separator}{HIDDEN}{rest}"), open_quote(secret)));
    }
    None
}

/// Masks the parts of a word that are secrets by their look.
fn mask_word(word: &str) -> String {
    if let Some((before, host)) = word.split_once("://").and_then(|(_, rest)| rest.split_once('@'))
        && before.contains(':')
    {
        return word.replace(&format!("{before}@{host}"), &format!("{HIDDEN}@{host}"));
    }
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

/// Whether a character can be a part of a key or of a name.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+')
}

/// Whether the value behind this name is a secret. Only plain names: a path is none.
fn names_secret(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).trim_start_matches('-').to_ascii_lowercase();
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let is_count = name.ends_with("tokens");
    let is_secret = matches!(name.as_str(), "key" | "pass")
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
            ("curl -H 'Authorization: token deadbeef' x", "curl -H 'Authorization: […] […] x"),
            ("curl -H 'Authorization: hunter2 x' y", "curl -H 'Authorization: […] […] y"),
            ("curl -u ann:hunter2 https://example.org", "curl -u ann:[…] https://example.org"),
            ("curl --user=ann:hunter2 https://example.org", "curl --user=ann:[…] https://example.org"),
            ("DB_PASS=hunter2 MYSQL_PWD=hunter2 x", "DB_PASS=[…] MYSQL_PWD=[…] x"),
            ("login --password \"two words\" -v", "login --password […] […] -v"),
            ("login --password='two words' -v", "login --password=[…] […] -v"),
            ("curl https://example.org/?a=1&api_key=hunter2&b=2", "?a=1&api_key=[…]&b=2"),
            ("curl -d {\"password\":\"hunter2\",\"a\":1} x", "curl -d {\"password\":[…] x"),
            ("curl -d '{\"a\": 1, \"token\": \"hunter2\"}' x", "curl -d '{\"a\": 1, \"token\": […] x"),
            ("text={\"secret\":\"hunter2\"}", "text={\"secret\":[…]"),
            ("redis://:hunter2@localhost", "redis://[…]@localhost"),
        ] {
            let masked = mask_secrets(line);
            assert!(masked.ends_with(shown), "{line}: {masked}");
            assert!(!masked.contains("hunter2") && !masked.contains("deadbeef"), "{line}: {masked}");
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
            "sudo -u ann ls /srv",
            "echo a=1&b=2 user:group x",
            "chown -R ann:users /srv",
            "PWD=/work ls",
            "cargo test auth::token::tests",
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
