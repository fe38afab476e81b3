//! Finds the folder that codex keeps its configuration in.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The folder of codex: `codex_home` of the agent's entry, else `CODEX_HOME`, else `~/.codex`. `None` if there is no
/// home folder either. The process and the migration must both use this one.
pub fn find_codex_home(
    configured: Option<&Path>,
    codex_home: Option<&OsStr>,
    home: Option<&OsStr>,
) -> Option<PathBuf> {
    let filled = |value: Option<&OsStr>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = configured.map(Path::to_owned).or_else(|| filled(codex_home));
    let found = found.or_else(|| filled(home).map(|home| home.join(".codex")))?;
    // codex runs in another folder than we do.
    std::path::absolute(found).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_wins_over_the_variable_and_that_over_the_home_folder() {
        let found = |configured: Option<&str>, variable: Option<&str>, home: Option<&str>| {
            find_codex_home(configured.map(Path::new), variable.map(OsStr::new), home.map(OsStr::new))
        };
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(found(Some("/entry"), Some("/var"), Some("/home/ann")), path("/entry"));
        assert_eq!(found(None, Some("/var"), Some("/home/ann")), path("/var"));
        assert_eq!(found(None, Some(""), Some("/home/ann")), path("/home/ann/.codex"));
        assert_eq!(found(None, None, Some("/home/ann")), path("/home/ann/.codex"));
        assert_eq!(found(None, None, None), None);
        assert!(found(None, Some("here"), None).unwrap().is_absolute());
    }
}
