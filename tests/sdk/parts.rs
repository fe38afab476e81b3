//! Where the programs are that `tests/sdk/parts` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of this test binary's sources.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk");

/// A client that nobody here wrote, and how it is started.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// OpenAI's package for Python.
    Python,
    /// OpenAI's package for Node.js.
    Node,
}

impl Client {
    /// Plays one of the client's scenes.
    pub fn plays(self, scene: &str) -> Command {
        let mut command = match self {
            Self::Python => {
                let mut command = Command::new(venv().join("bin/python"));
                command.arg(format!("{HERE}/clients/openai_scenes.py")).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Self::Node => {
                let folder = cache().join("sdk-js");
                needs(&folder);
                let mut command = Command::new("node");
                command.arg(format!("{HERE}/clients/openai_scenes.mjs")).env("TALARIA_JS", folder);
                command
            }
        };
        command.arg(scene);
        command
    }
}

/// Where the Python packages are.
pub fn venv() -> PathBuf {
    let folder = cache().join("sdk");
    needs(&folder);
    folder
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("a home folder").join("talaria-tests")
}

fn needs(path: &Path) {
    assert!(path.join(".parts").exists(), "{} is not there; run tests/sdk/parts once", path.display());
}
