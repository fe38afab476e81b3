//! Puts variables of our environment into values of `mcp_servers`: `${NAME}`. `$${` stands for `${`.

use crate::config::env::EnvReader;
use crate::config::tool_settings::ValueOrigin;

/// Fault of a value. Says nothing about its text, which may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VariableFault {
    /// A `${` without a name and a `}`.
    Unclosed,
    /// The variable is not set. Its name is known if it looks like one.
    Unset(Option<String>),
}

/// The value with its variables filled in.
pub(super) fn fill_variables(text: &str, env: EnvReader<'_>) -> Result<String, VariableFault> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = behind;
            continue;
        }
        filled.push_str(before);
        let (name, behind) = behind.split_once('}').ok_or(VariableFault::Unclosed)?;
        if !is_variable(name) {
            return Err(VariableFault::Unclosed);
        }
        let value = env.get_named(name);
        filled.push_str(&value.ok_or_else(|| VariableFault::Unset(shown(name).map(str::to_owned)))?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Whether a value takes a variable.
pub(super) fn has_variable(text: &str) -> bool {
    text.replace("$${", "").contains("${")
}

/// Source of a value, by its text before variables are filled in.
pub(super) fn origin_of(text: &str) -> ValueOrigin {
    if !has_variable(text) {
        return ValueOrigin::Literal;
    }
    let alone = |text: &str| {
        let name = text.strip_prefix("${")?.strip_suffix('}')?;
        is_variable(name).then(|| name.to_owned())
    };
    if let Some(name) = alone(text) {
        return ValueOrigin::Variable(name);
    }
    match text.split_once(' ') {
        Some((word, behind)) if word.eq_ignore_ascii_case("bearer") => {
            alone(behind.trim_start()).map_or(ValueOrigin::Composed, ValueOrigin::BearerVariable)
        }
        Some(_) | None => ValueOrigin::Composed,
    }
}

/// Whether an environment variable can have this name.
pub(in crate::config) fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(plain) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The name, if it may stand in a message: a key in the wrong place is seldom in capital letters.
pub(in crate::config) fn shown(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (is_variable(name) && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let lookup = |name: &str| match name {
            "ONE" => Some(" 1 ".to_owned()),
            "NESTED" => Some("${ONE}".to_owned()),
            "BLANK" => Some(" ".to_owned()),
            _ => None,
        };
        let unset = |name: Option<&str>| Err(VariableFault::Unset(name.map(str::to_owned)));
        for (text, filled) in [
            ("", Ok("")),
            ("plain $1 {x} $ONE", Ok("plain $1 {x} $ONE")),
            ("${ONE}", Ok("1")),
            ("a${ONE}b${ONE}", Ok("a1b1")),
            ("$${ONE} ${ONE}", Ok("${ONE} 1")),
            ("${NESTED}", Ok("${ONE}")),
            ("${MISSING}", unset(Some("MISSING"))),
            ("${BLANK}", unset(Some("BLANK"))),
            ("${ghp_secret}", unset(None)),
            ("${", Err(VariableFault::Unclosed)),
            ("${}", Err(VariableFault::Unclosed)),
            ("${ONE", Err(VariableFault::Unclosed)),
            ("${1A}", Err(VariableFault::Unclosed)),
            ("${ONE:-x}", Err(VariableFault::Unclosed)),
        ] {
            let found = fill_variables(text, EnvReader::new(&lookup));
            assert_eq!(found, filled.map(str::to_owned), "{text}");
            assert_eq!(has_variable(text), text.contains("${") && text != "$${ONE}", "{text}");
        }
        assert!(!has_variable("$${ONE}"));
    }
    #[test]
    fn the_source_of_a_value_is_known_without_the_value() {
        let variable = |name: &str| ValueOrigin::Variable(name.to_owned());
        let bearer = |name: &str| ValueOrigin::BearerVariable(name.to_owned());
        for (text, origin) in [
            ("", ValueOrigin::Literal),
            ("plain", ValueOrigin::Literal),
            ("$${ONE}", ValueOrigin::Literal),
            ("${ONE}", variable("ONE")),
            ("Bearer ${ONE}", bearer("ONE")),
            ("bearer  ${one_2}", bearer("one_2")),
            ("Bearer ${ONE}${TWO}", ValueOrigin::Composed),
            ("Basic ${ONE}", ValueOrigin::Composed),
            ("${ONE}${TWO}", ValueOrigin::Composed),
            ("a${ONE}", ValueOrigin::Composed),
            ("${ONE} $${TWO}", ValueOrigin::Composed),
        ] {
            assert_eq!(origin_of(text), origin, "{text}");
        }
    }
}
