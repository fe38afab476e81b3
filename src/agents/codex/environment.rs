//! The environment of codex.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::agents::process::environment::{CODEX_VARIABLES, process_environment};
use crate::config::CodexConfig;

/// Variable that names the folder of codex' configuration and threads.
const CODEX_HOME: &str = "CODEX_HOME";

/// The variables that codex gets: the short list of ours, those that the entry lets through, and the entry's own. HOME
/// arrives unchanged, because the programs that codex runs need the user's real configuration.
pub fn codex_environment(config: &CodexConfig) -> BTreeMap<OsString, OsString> {
    complete(process_environment(CODEX_VARIABLES, &config.env_passthrough), config)
}

fn complete(mut passed: BTreeMap<OsString, OsString>, config: &CodexConfig) -> BTreeMap<OsString, OsString> {
    passed.extend(config.env.iter().map(|(name, value)| (name.into(), value.expose().into())));
    if let Some(home) = &config.codex_home {
        passed.insert(CODEX_HOME.into(), home.into());
    }
    // codex runs in another folder than we do. It takes an empty path for none.
    if let Some(home) = passed.get_mut(OsStr::new(CODEX_HOME)).filter(|home| !home.is_empty())
        && let Ok(absolute) = std::path::absolute(&*home)
    {
        *home = absolute.into();
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn the_entry_wins_over_our_environment() {
        let ours: BTreeMap<OsString, OsString> =
            [("CODEX_HOME", "/ours"), ("HOME", "/home/ann"), ("RUST_LOG", "info")]
                .map(|(name, value)| (name.into(), value.into()))
                .into();
        let mut config = CodexConfig::new("/work".into());
        assert_eq!(complete(ours.clone(), &config), ours);
        config.codex_home = Some("/theirs".into());
        config.env.insert("RUST_LOG".into(), Secret::from("debug".to_owned()));
        let variables = complete(ours, &config);
        assert_eq!(variables[&OsString::from("CODEX_HOME")], "/theirs");
        assert_eq!(variables[&OsString::from("RUST_LOG")], "debug");
        assert_eq!(variables[&OsString::from("HOME")], "/home/ann");
    }

    #[test]
    fn a_relative_folder_is_the_same_one_for_codex() {
        let home = |ours: &str| {
            let ours = BTreeMap::from([(OsString::from(CODEX_HOME), OsString::from(ours))]);
            complete(ours, &CodexConfig::new("/work".into())).remove(OsStr::new(CODEX_HOME)).unwrap()
        };
        assert_eq!(home("codex"), std::env::current_dir().unwrap().join("codex"));
        assert_eq!((home("/codex"), home("")), ("/codex".into(), "".into()));
    }
}
