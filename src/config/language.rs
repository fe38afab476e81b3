//! Resolves `language` and `words`: the texts that rooms are shown.

use std::collections::BTreeMap;

use super::ConfigError;
use super::document::ConfigDocument;
use super::suggest::{closest, did_you_mean};
use crate::i18n::{DEFAULT_LANGUAGE, TextCatalog, TextKey, WordingError};

/// The texts in force; faults in the configured ones are added to `errors`.
pub(super) fn read(
    language: Option<&str>,
    written: &BTreeMap<String, Option<String>>,
    document: Option<&ConfigDocument>,
    errors: &mut Vec<ConfigError>,
) -> TextCatalog {
    let place = |path: &[&str]| document.map(|document| document.place(path)).unwrap_or_default();
    let language = language.unwrap_or(DEFAULT_LANGUAGE);
    let mut words = TextCatalog::of(language).unwrap_or_else(|| {
        let known = TextCatalog::languages().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        errors.push(
            ConfigError::new(format!("`language` is not one of those there are {}", place(&["language"])))
                .hint(format!("known languages: {known}")),
        );
        TextCatalog::default()
    });
    for (key, wording) in written {
        let wording = wording.as_deref().unwrap_or_default();
        let place = place(&["words", key]);
        let Err(error) = words.reword(key, wording) else {
            let text = TextKey::ALL.iter().find(|text| text.key() == key);
            if let Some(gap) = text.and_then(|text| text.lacks(wording)) {
                errors.push(
                    ConfigError::new(format!("`words.{key}` does not say what people must know {place}"))
                        .hint(format!("put `{{{gap}}}` into it")),
                );
            }
            continue;
        };
        let keys = || TextKey::ALL.iter().map(|text| text.key());
        errors.push(match error {
            WordingError::Unknown => {
                let near = closest(key, keys()).and_then(|_| did_you_mean(key, keys()));
                ConfigError::new(format!("`words` has a key that is no text of ours {place}"))
                    .hint(near.unwrap_or_else(|| "`talaria words` lists every key with its text".to_owned()))
            }
            WordingError::Gap(_, []) => {
                ConfigError::new(format!("`words.{key}` has a gap in braces, but nothing fills it {place}"))
                    .hint("write `{{` for a brace")
            }
            WordingError::Gap(_, gaps) => {
                let gaps = gaps.iter().map(|gap| format!("`{{{gap}}}`")).collect::<Vec<_>>().join(", ");
                ConfigError::new(format!("`words.{key}` has a gap that nothing fills {place}"))
                    .hint(format!("it can have {gaps}; write `{{{{` for a brace"))
            }
            WordingError::Brace => {
                ConfigError::new(format!("`words.{key}` has a brace that is not closed {place}"))
                    .hint("write `{{` for a brace")
            }
            WordingError::Empty => ConfigError::new(format!(
                "`words.{key}` cannot be silenced: it answers somebody, or is a part of other texts {place}"
            ))
            .hint("give it other words; `talaria words` says which texts can be silenced"),
        });
    }
    words
}
