//! "Did you mean": finds the known word that is close to a mistyped one.

/// A suggestion for people; `None` if no known word is close.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    closest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The known word that `word` most likely stands for.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|near| (strsim::damerau_levenshtein(&word, near), near))
        .filter(|(distance, near)| *distance <= tolerance(near))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// Number of typing errors that are forgiven. Short words are close to everything, so they get fewer.
fn tolerance(word: &str) -> usize {
    if word.len() <= 4 { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["proxy_url", "proxy_key", "model", "log"];
        for (word, near) in [
            ("proxy_ulr", Some("proxy_url")),
            ("proxyurl", Some("proxy_url")),
            ("Model", Some("model")),
            ("modl", Some("model")),
            ("logs", Some("log")),
            ("lag", Some("log")),
            ("dog_", None),
            ("homeserver", None),
            ("", None),
        ] {
            assert_eq!(closest(word, known), near, "{word}");
        }
    }
}
