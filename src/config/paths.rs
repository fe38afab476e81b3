//! Finds the state folder and the configuration file.

use std::path::{Path, PathBuf};

use super::document::ConfigDocument;
use super::env::{self, EnvReader};
use super::{ConfigError, ConfigSources};

/// Name of the configuration file in the folders that are searched.
const FILE_NAME: &str = "talaria.yaml";

/// The state folder, which holds everything durable; it need not exist yet. `os` is `std::env::consts::OS`.
pub(super) fn home(env: EnvReader<'_>, os: &str) -> Result<PathBuf, ConfigError> {
    if let Some(home) = env.get(&env::TALARIA_HOME) {
        return if home == "~" || home.starts_with("~/") {
            Err(ConfigError::new("`TALARIA_HOME` begins with `~`, which only a shell replaces")
                .hint("write the whole path, for example `/home/ann/talaria`"))
        } else {
            Ok(PathBuf::from(home))
        };
    }
    // The XDG specification says that a relative path is to be ignored.
    let state = env.get(&env::XDG_STATE_HOME).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = env.get(&env::HOME).map(PathBuf::from);
    let found = match os {
        "macos" => user.map(|user| user.join("Library/Application Support/talaria")),
        _ => state.or_else(|| user.map(|user| user.join(".local/state"))).map(|state| state.join("talaria")),
    };
    found.ok_or_else(|| {
        ConfigError::new("there is no folder to keep state in: neither `TALARIA_HOME` nor `HOME` is set")
            .hint("set `TALARIA_HOME` to a folder that only this user can read")
    })
}

/// The configuration file: the first of `--config`, `TALARIA_CONFIG`, `talaria.yaml` in the state folder, and
/// `talaria.yaml` in the current folder. The first two must exist if named; without any file the defaults hold.
pub(super) fn document(
    sources: &ConfigSources,
    env: EnvReader<'_>,
    home: Option<&Path>,
) -> Result<Option<ConfigDocument>, ConfigError> {
    let named = match &sources.config {
        Some(path) => Some((path.clone(), "--config")),
        None => env.get(&env::TALARIA_CONFIG).map(|path| (PathBuf::from(path), env::TALARIA_CONFIG.name)),
    };
    if let Some((path, by)) = named {
        return match ConfigDocument::read(&path)? {
            Some(document) => Ok(Some(document)),
            None => {
                Err(ConfigError::new(format!("there is no file `{}`, which `{by}` names", path.display()))
                    .hint("correct the path; without one Talaria runs on its defaults"))
            }
        };
    }
    for folder in home.into_iter().chain([sources.folder.as_path()]) {
        if let Some(document) = ConfigDocument::read(&folder.join(FILE_NAME))? {
            return Ok(Some(document));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(vars: &[(&str, &str)], os: &str) -> Result<PathBuf, ConfigError> {
        let lookup =
            |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        home(EnvReader::new(&lookup), os)
    }

    #[test]
    fn the_state_folder_follows_the_convention_of_the_system() {
        let ann = ("HOME", "/home/ann");
        let xdg = ("XDG_STATE_HOME", "/state");
        for (vars, os, expected) in [
            (vec![("TALARIA_HOME", "/t"), xdg, ann], "linux", "/t"),
            (vec![("TALARIA_HOME", " "), xdg, ann], "linux", "/state/talaria"),
            (vec![ann], "linux", "/home/ann/.local/state/talaria"),
            (vec![("XDG_STATE_HOME", "relative"), ann], "linux", "/home/ann/.local/state/talaria"),
            (vec![xdg, ann], "macos", "/home/ann/Library/Application Support/talaria"),
        ] {
            assert_eq!(home_with(&vars, os).unwrap(), Path::new(expected), "{vars:?}");
        }
    }

    #[test]
    fn without_a_home_there_is_a_clear_error() {
        let error = home_with(&[], "linux").unwrap_err();
        assert!(error.message.contains("neither `TALARIA_HOME` nor `HOME` is set"));
        assert!(error.hint.is_some());
        assert!(home_with(&[("TALARIA_HOME", "~/talaria")], "linux").is_err());
    }
}
