//! Recognises weak keys: too short, or copied from an example. Pure.

/// Fewest characters of a key. Sixteen hexadecimal digits are 64 bits, beyond guessing over a network.
const SHORTEST: usize = 16;

/// Fewest different characters of a key; `aaaa…` has one.
const FEWEST: usize = 5;

/// Prefixes of texts that stand for a key in an example, in lower case and without punctuation.
const STAND_INS: &[&str] = &[
    "changeme",
    "changethis",
    "enteryour",
    "example",
    "insert",
    "mysecret",
    // The command with which an example says to make one.
    "opensslrand",
    "password",
    "pleasechange",
    "placeholder",
    "putyour",
    "replace",
    "secretkey",
    "skyour",
    "supersecret",
    "test",
    "thekey",
    "todo",
    "yourapikey",
    "yourkey",
    "yoursecret",
    "yourtoken",
];

/// Texts that people type when they are asked for sixteen characters.
const ROWS: &[&str] = &["0123456789abcdef", "abcdefghijklmnop", "qwertyuiopasdfgh", "1234567890123456"];

/// The fault of a key, as a phrase that follows its name; `None` for a good key.
pub(in crate::config) fn fault(key: &str) -> Option<&'static str> {
    if key.chars().count() < SHORTEST {
        return Some("has fewer than 16 characters");
    }
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let mut different: Vec<char> = plain.chars().collect();
    different.sort_unstable();
    different.dedup();
    let is_stand_in = STAND_INS.iter().any(|word| plain.starts_with(word))
        || ROWS.iter().any(|row| plain.starts_with(row))
        || different.len() < FEWEST;
    is_stand_in.then_some("is one from an example")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_guesses_is_no_key() {
        for key in ["", "test", "changeme", "your-key", "sk-1", "short-but-fine1"] {
            assert_eq!(fault(key), Some("has fewer than 16 characters"), "{key}");
        }
        for key in [
            "change-me-please!",
            "CHANGE_ME_CHANGE_ME",
            "your-api-key-here",
            "<your secret key>",
            "replace-with-your-own-key",
            "aaaaaaaaaaaaaaaaaaaa",
            "0000000000000000",
            "1234567890123456",
            "0123456789abcdef0123456789abcdef",
            "test-test-test-test",
            "----------------",
        ] {
            assert_eq!(fault(key), Some("is one from an example"), "{key}");
        }
        for key in [
            "3f9ad1c05e7b4428",
            "correct horse battery staple",
            "tlk_5b1c0b0a9de94c62a4a8",
            "Zx9-qL2_mN4.vB7~",
        ] {
            assert_eq!(fault(key), None, "{key}");
        }
    }
}
