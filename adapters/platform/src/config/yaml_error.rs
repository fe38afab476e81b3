//! Turns an error of the YAML parser into words for people.
//!
//! The parser's own text quotes its input, and that may be a secret that somebody pasted into the wrong place. So only
//! harmless parts are passed on: our own words for the expected value, the path of known keys, and unknown keys that
//! look like keys.

use super::suggest::{closest, did_you_mean};
use super::{ConfigError, yaml_lines};

/// Explains `error`, which the parser reported for `text`. `name` is the file as messages show it. The mapping at the
/// path `also.0` has the keys `also.1` too, which another reader knows.
pub(super) fn explain(
    error: &serde_yaml::Error,
    name: &str,
    text: &str,
    also: (&str, &[&str]),
) -> ConfigError {
    let line = error.location().map(|location| location.line());
    let place = position(name, line);
    let full = error.to_string();
    let Some((path, fault)) = YamlFault::read(without_location(&full, error)) else {
        return syntax(&full, line, name, text);
    };
    let path = plain_part(path);
    let inside = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
    match fault {
        YamlFault::UnknownKey { key, known } => {
            let known: Vec<&str> = match also {
                (at, keys) if at == path => keys.iter().copied().chain(known).collect(),
                _ => known,
            };
            let what = if is_harmless(key, &known) {
                format!("unknown key `{key}`")
            } else {
                "there is an unknown key".to_owned()
            };
            let hint = did_you_mean(key, known.iter().copied())
                .unwrap_or_else(|| format!("the keys here are {}", list(&known)));
            ConfigError::new(format!("{what}{inside} {place}")).hint(hint)
        }
        YamlFault::UnknownWord { word, known } => {
            let error = ConfigError::new(format!("`{path}` must be one of {} {place}", list(&known)));
            match did_you_mean(word, known.iter().copied()) {
                Some(hint) => error.hint(hint),
                None => error,
            }
        }
        YamlFault::Wrong { expected } => {
            let subject = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
            ConfigError::new(format!("{subject} must be {} {place}", in_words(expected)))
        }
        YamlFault::Missing { key } => ConfigError::new(format!("`{path}` has no `{key}` {place}")),
        YamlFault::Doubled { key } => {
            let shown = if is_harmless(key, &[]) { format!("`{key}`") } else { "a key".to_owned() };
            ConfigError::new(format!("{shown} is there twice{inside} {place}")).hint("keep one of the two")
        }
    }
}

/// The names in one of serde's lists, which quotes them with backticks.
pub fn quoted(list: &str) -> Vec<&str> {
    list.split('`').skip(1).step_by(2).collect()
}

/// The fault that the parser reports, taken from its text: serde has no other form.
enum YamlFault<'a> {
    UnknownKey { key: &'a str, known: Vec<&'a str> },
    UnknownWord { word: &'a str, known: Vec<&'a str> },
    Wrong { expected: &'a str },
    Missing { key: &'a str },
    Doubled { key: &'a str },
}

impl<'a> YamlFault<'a> {
    /// Splits `path: complaint`. `None` if the text has none of serde's forms and so is about syntax.
    fn read(text: &'a str) -> Option<(&'a str, Self)> {
        const FORMS: [&str; 6] = [
            "unknown field `",
            "unknown variant `",
            "missing field `",
            "duplicate field `",
            "invalid type: ",
            "invalid value: ",
        ];
        let (start, form) = FORMS
            .iter()
            .filter_map(|form| Some((text.find(form)?, *form)))
            .min_by_key(|(start, _)| *start)?;
        let (path, rest) = (&text[..start], &text[start + form.len()..]);
        let path = path.strip_suffix(": ").unwrap_or(path);
        let fault = match form {
            "missing field `" => Self::Missing { key: rest.strip_suffix('`')? },
            "duplicate field `" => Self::Doubled { key: rest.strip_suffix('`')? },
            // The quoted input may contain anything, so the last mark is the one that serde wrote.
            "invalid type: " | "invalid value: " => {
                Self::Wrong { expected: rest.rsplit_once(", expected ")?.1 }
            }
            _ => {
                let (found, known) =
                    rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
                let known = quoted(known);
                if form == "unknown field `" {
                    Self::UnknownKey { key: found, known }
                } else {
                    Self::UnknownWord { word: found, known }
                }
            }
        };
        Some((path, fault))
    }
}

/// The parser's text without the location that it appends.
fn without_location<'a>(full: &'a str, error: &serde_yaml::Error) -> &'a str {
    error
        .location()
        .and_then(|at| full.strip_suffix(&format!(" at line {} column {}", at.line(), at.column())))
        .unwrap_or(full)
}

/// Explains an error below the level of keys and values. The parser's texts for these are fixed phrases.
fn syntax(full: &str, line: Option<usize>, name: &str, text: &str) -> ConfigError {
    if full.contains("more than one document") {
        let place = position(name, yaml_lines::line_of_second_document(text));
        return ConfigError::new(format!("the file holds more than one document {place}"))
            .hint("remove the line `---` between them, or what is left over after the first");
    }
    let place = position(name, line);
    let written = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
    if written.trim_start_matches(' ').starts_with('\t') {
        return ConfigError::new(format!("a line is indented with a tab {place}"))
            .hint("YAML wants spaces there; two for each level");
    }
    let phrase = full.split(" at line ").next().unwrap_or_default();
    ConfigError::new(format!("the file is not valid YAML: {phrase} {place}"))
        .hint("look at the indentation, the quotes and the space after each `:` there and just above")
}

/// A position as it follows a message: `(talaria.yaml, line 7)`.
pub(super) fn position(name: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("({name}, line {line})"),
        None => format!("({name})"),
    }
}

/// The beginning of a path, as far as its words may be shown: the name of a platform can be anything that somebody
/// typed.
fn plain_part(path: &str) -> &str {
    let mut end = 0;
    for part in path.split_inclusive('.') {
        if !is_harmless(part.trim_end_matches('.'), &[]) {
            break;
        }
        end += part.len();
    }
    path[..end].trim_end_matches('.')
}

/// Whether an unknown key may be shown: it looks like a key of ours, or is close to one.
fn is_harmless(key: &str, known: &[&str]) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=32).contains(&key.len()) && key.bytes().all(plain) || closest(key, known.iter().copied()).is_some()
}

/// serde's names of its own types, as people know them.
fn in_words(expected: &str) -> &str {
    match expected {
        "a boolean" => "`true` or `false`",
        "a string" => "text, in quotes if it has special characters",
        "a YAML tag starting with '!'" => "a single word",
        "a map" => "a mapping",
        "a sequence" => "a list, such as `[one, two]`",
        ours => ours,
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
