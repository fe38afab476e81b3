//! The catalogue of all texts that rooms are shown.
//!
//! `i18n/en.yaml` and `i18n/de.yaml` hold the texts of one language each, under the keys listed in `texts`;
//! another language is one more file. The rest of the code passes [`LocalizedText`]s around (a key, and values
//! for its gaps); only code that writes to a room asks [`TextCatalog`] for the sentence. So an operator can
//! reword any text in the configuration, and silence notices.

mod listing;
mod stored;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

pub use texts::{TextKey, TextKind};

/// All languages, each with its file.
const LANGUAGES: &[(&str, &str)] =
    &[("en", include_str!("i18n/en.yaml")), ("de", include_str!("i18n/de.yaml"))];

/// Language without any setting; also that of the log.
pub const DEFAULT_LANGUAGE: &str = "en";

/// A text of the catalogue with values for its gaps, or somebody else's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalizedText {
    /// A text of the catalogue.
    Text(TextKey, Vec<(String, LocalizedText)>),
    /// Words to show unchanged: a number, a name, an agent's own text.
    Said(String),
}

/// The texts in use: those of one language, with the operator's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCatalog {
    language: &'static str,
    /// Indexed by [`TextKey`].
    texts: Vec<String>,
}

/// Why an operator's wording cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordingError {
    /// No text has that key.
    Unknown,
    /// The wording names a gap that the text does not have; lists those that it has.
    Gap(String, &'static [&'static str]),
    /// A brace is not closed.
    Brace,
    /// The wording is empty, but other texts contain this one.
    Empty,
}

/// Texts that offer `/retry`, each with a variant without the offer.
const RETRY_OFFERS: [(TextKey, TextKey); 10] = [
    (TextKey::EmptyAnswerModel, TextKey::NoRetryEmptyAnswerModel),
    (TextKey::Interrupted, TextKey::NoRetryInterrupted),
    (TextKey::UnknownNothing, TextKey::NoRetryUnknownNothing),
    (TextKey::UnknownSome, TextKey::NoRetryUnknownSome),
    (TextKey::CannotResume, TextKey::NoRetryCannotResume),
    (TextKey::BrokeBusy, TextKey::NoRetryBrokeBusy),
    (TextKey::BrokeReported, TextKey::NoRetryBrokeReported),
    (TextKey::BrokeAgain, TextKey::NoRetryBrokeAgain),
    (TextKey::BrokeRestarted, TextKey::NoRetryBrokeRestarted),
    (TextKey::BrokeStopped, TextKey::NoRetryBrokeStopped),
];

/// The default language without changes. Parsed once: a log line must not cost parsing a file.
static DEFAULT: LazyLock<TextCatalog> = LazyLock::new(|| {
    TextCatalog::of(DEFAULT_LANGUAGE)
        .unwrap_or_else(|| TextCatalog { language: DEFAULT_LANGUAGE, texts: Vec::new() })
});

impl Default for TextCatalog {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

/// Uses the default language, for the log, whatever language the rooms have.
impl fmt::Display for LocalizedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&DEFAULT.say(self))
    }
}

impl TextCatalog {
    /// The texts of a language; `None` if we do not have it.
    pub fn of(language: &str) -> Option<Self> {
        let (language, file) = LANGUAGES.iter().find(|(name, _)| *name == language)?;
        // Tests check that every file parses and is complete; a missing text would show its key.
        let written: BTreeMap<String, String> = serde_yaml::from_str(file).unwrap_or_default();
        let text = |text: &TextKey| written.get(text.key()).cloned().unwrap_or_else(|| text.key().to_owned());
        Some(Self { language, texts: TextKey::ALL.iter().map(text).collect() })
    }

    /// Code of the language.
    pub fn language(&self) -> &'static str {
        self.language
    }

    /// Texts that the operator has reworded.
    pub fn reworded(&self) -> Vec<TextKey> {
        let plain = Self::of(self.language).unwrap_or_default();
        let pairs = self.texts.iter().zip(&plain.texts);
        TextKey::ALL
            .iter()
            .zip(pairs)
            .filter(|(_, (ours, plain))| ours != plain)
            .map(|(text, _)| *text)
            .collect()
    }

    /// Codes of all languages.
    pub fn languages() -> impl Iterator<Item = &'static str> {
        LANGUAGES.iter().map(|(name, _)| *name)
    }

    /// Replaces a text by the operator's wording; an empty one silences a notice.
    pub fn reword(&mut self, key: &str, wording: &str) -> Result<(), WordingError> {
        let text = TextKey::ALL.iter().find(|text| text.key() == key).ok_or(WordingError::Unknown)?;
        check(*text, wording)?;
        if let Some(place) = self.texts.get_mut(*text as usize) {
            wording.trim_end().clone_into(place);
        }
        Ok(())
    }

    /// A copy without any offer of `/retry`, for people who may not use it.
    pub fn without_retry_offers(&self) -> Self {
        let mut words = self.clone();
        for (offer, plain) in RETRY_OFFERS {
            if let (Some(place), Some(text)) =
                (words.texts.get_mut(offer as usize), self.texts.get(plain as usize))
            {
                place.clone_from(text);
            }
        }
        words
    }

    /// The sentence; empty if the operator silenced it.
    pub fn say(&self, phrase: &LocalizedText) -> String {
        let (text, fill) = match phrase {
            LocalizedText::Said(words) => return words.clone(),
            LocalizedText::Text(text, fill) => (text, fill),
        };
        let template = self.texts.get(*text as usize).map_or(text.key(), String::as_str);
        let mut sentence = String::with_capacity(template.len());
        for piece in pieces(template).flatten() {
            match piece {
                TemplatePiece::Words(words) => sentence.push_str(words),
                TemplatePiece::Gap(name) => {
                    if let Some((_, value)) = fill.iter().find(|(known, _)| known == name) {
                        sentence.push_str(&self.say(value));
                    }
                }
            }
        }
        sentence
    }
}

impl TextKey {
    /// The first required gap that a wording lacks. Checked where the operator can still be told; code that
    /// shows an ask ensures by itself that everything required is there.
    pub fn lacks(self, wording: &str) -> Option<&'static str> {
        let has = |gap: &str| {
            pieces(wording).flatten().any(|piece| matches!(piece, TemplatePiece::Gap(name) if name == gap))
        };
        self.needs().iter().copied().find(|gap| !has(gap))
    }

    /// This text with one gap filled.
    pub fn with(self, gap: &str, value: impl Into<LocalizedText>) -> LocalizedText {
        LocalizedText::from(self).with(gap, value)
    }
}

impl LocalizedText {
    /// Fills one more gap.
    #[must_use]
    pub fn with(self, gap: &str, value: impl Into<LocalizedText>) -> Self {
        match self {
            Self::Text(text, mut fill) => {
                debug_assert!(text.gaps().contains(&gap), "{} has no gap {gap}", text.key());
                fill.push((gap.to_owned(), value.into()));
                Self::Text(text, fill)
            }
            Self::Said(_) => self,
        }
    }
}

impl From<TextKey> for LocalizedText {
    fn from(text: TextKey) -> Self {
        Self::Text(text, Vec::new())
    }
}

impl From<&str> for LocalizedText {
    fn from(words: &str) -> Self {
        Self::Said(words.to_owned())
    }
}

impl From<String> for LocalizedText {
    fn from(words: String) -> Self {
        Self::Said(words)
    }
}

impl From<usize> for LocalizedText {
    fn from(number: usize) -> Self {
        Self::Said(number.to_string())
    }
}

impl From<u16> for LocalizedText {
    fn from(number: u16) -> Self {
        Self::Said(number.to_string())
    }
}

impl From<u64> for LocalizedText {
    fn from(number: u64) -> Self {
        Self::Said(number.to_string())
    }
}

/// Checks that a wording fits a text.
fn check(text: TextKey, wording: &str) -> Result<(), WordingError> {
    if wording.trim().is_empty() && text.kind() == TextKind::Part {
        return Err(WordingError::Empty);
    }
    for piece in pieces(wording) {
        if let TemplatePiece::Gap(name) = piece?
            && !text.gaps().contains(&name)
        {
            return Err(WordingError::Gap(name.to_owned(), text.gaps()));
        }
    }
    Ok(())
}

enum TemplatePiece<'a> {
    Words(&'a str),
    Gap(&'a str),
}

/// Splits a template into words and gaps: `{name}` is a gap, `{{` an opening brace.
fn pieces(template: &str) -> impl Iterator<Item = Result<TemplatePiece<'_>, WordingError>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(behind) = rest.strip_prefix("{{") {
            rest = behind;
            return Some(Ok(TemplatePiece::Words("{")));
        }
        if let Some(behind) = rest.strip_prefix('{') {
            let Some((name, behind)) = behind.split_once('}') else {
                rest = "";
                return Some(Err(WordingError::Brace));
            };
            rest = behind;
            return Some(Ok(TemplatePiece::Gap(name)));
        }
        let (words, behind) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        rest = behind;
        Some(Ok(TemplatePiece::Words(words)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_every_text_and_only_those_with_only_their_gaps() {
        for (language, file) in LANGUAGES {
            let written: BTreeMap<String, String> = serde_yaml::from_str(file).unwrap();
            for text in TextKey::ALL {
                let words =
                    written.get(text.key()).unwrap_or_else(|| panic!("{language} lacks {}", text.key()));
                assert!(!words.trim().is_empty(), "{language}: {} is empty", text.key());
                assert_eq!(check(*text, words), Ok(()), "{language}: {}", text.key());
                for gap in text.gaps() {
                    assert!(words.contains(&format!("{{{gap}}}")), "{language}: {} drops {gap}", text.key());
                }
            }
            for key in written.keys() {
                assert!(TextKey::ALL.iter().any(|text| text.key() == key), "{language} has an unused {key}");
            }
        }
    }

    #[test]
    fn without_retry_offers_no_text_about_an_answer_names_retry() {
        for language in TextCatalog::languages() {
            let words = TextCatalog::of(language).unwrap();
            let offers: Vec<_> =
                TextKey::ALL.iter().filter(|text| words.texts[**text as usize].contains("/retry")).collect();
            assert_eq!(offers.len(), RETRY_OFFERS.len(), "{language}: {offers:?}");
            let plain = words.without_retry_offers();
            for (offer, _) in RETRY_OFFERS {
                assert!(words.texts[offer as usize].contains("/retry"), "{language}: {offer:?}");
                assert!(!plain.texts[offer as usize].contains("/retry"), "{language}: {offer:?}");
            }
        }
    }

    #[test]
    fn a_wording_is_checked_before_it_holds() {
        let mut words = TextCatalog::default();
        assert_eq!(words.reword("nothing_runing", "x"), Err(WordingError::Unknown));
        assert_eq!(
            words.reword("queued_many", "{behind}"),
            Err(WordingError::Gap("behind".into(), &["ahead"]))
        );
        assert_eq!(words.reword("queued_many", "{ahead"), Err(WordingError::Brace));
        assert_eq!(words.reword("stopped", " "), Err(WordingError::Empty));
        words.reword("queued_many", "{{{ahead} first}").unwrap();
        assert_eq!(words.say(&TextKey::QueuedMany.with("ahead", 3_usize)), "{3 first}");
        words.reword("queued_many", "").unwrap();
        assert_eq!(words.say(&TextKey::QueuedMany.with("ahead", 3_usize)), "");
    }

    #[test]
    fn a_gap_may_hold_another_text_but_never_a_template() {
        let words = TextCatalog::default();
        let hostile = TextKey::CutShort.with("why", "{why} {{");
        assert_eq!(words.say(&hostile), "(cut short: {why} {{)");
        let nested = TextKey::CutShort.with("why", TextKey::NothingRunning);
        assert_eq!(words.say(&nested), "(cut short: Nothing is running.)");
    }
}
