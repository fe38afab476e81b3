//! Paths of the programs that `tests/live/parts` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of this test binary's sources.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live");

/// A Synapse that lives as long as its input.
pub fn synapse() -> Command {
    let mut command = Command::new(format!("{HERE}/synapse"));
    needs(&cache().join("synapse/bin/python"));
    command.env_remove("PYTHONPATH");
    command
}

/// A client written in Python.
pub fn python(script: &str) -> Command {
    let python = cache().join("clients/bin/python");
    needs(&python);
    let mut command = Command::new(python);
    command.arg(format!("{HERE}/clients/{script}")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A client written in JavaScript.
pub fn node(script: &str) -> Command {
    needs(&js());
    let mut command = Command::new("node");
    command.arg(format!("{HERE}/clients/{script}")).env("TALARIA_JS", js());
    command
}

/// Whether scenes with matrix-js-sdk can run here; `tests/run` names them if not.
pub fn has_js() -> bool {
    js().join(".parts").exists()
}

fn js() -> PathBuf {
    cache().join("js")
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("a home folder").join("talaria-tests")
}

fn needs(path: &Path) {
    assert!(path.exists(), "{} is not there; run tests/live/parts once", path.display());
}
