//! Scenes: a file, an environment, and what becomes of them.

mod acp;
mod agents;
mod codex;
mod codex_runtime;
mod errors;
mod example;
mod fallback;
mod keys;
mod mcp;
#[cfg(feature = "testing")]
mod people;
mod server;
mod sources;
mod tools;
mod torture;
mod wording;

use std::any::Any;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{AgentSettings, Config, ConfigError, ConfigSources, ModelConfig, PlatformConfig, ProxyConfig};

/// A folder and an environment of one's own.
struct Scene {
    folder: TempDir,
    vars: HashMap<String, String>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home").display().to_string();
        Self { folder, vars: HashMap::from([("TALARIA_HOME".to_owned(), home)]) }
    }

    /// Puts a private `talaria.yaml` into the working folder.
    fn file(self, text: impl AsRef<[u8]>) -> Self {
        self.private_file("talaria.yaml", text);
        self
    }

    fn var(mut self, name: &str, value: impl Into<String>) -> Self {
        self.vars.insert(name.to_owned(), value.into());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.vars.remove(name);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn private_file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    }

    fn load(&self) -> Result<Config, Vec<ConfigError>> {
        self.load_from(None)
    }

    fn load_from(&self, config: Option<PathBuf>) -> Result<Config, Vec<ConfigError>> {
        let sources = ConfigSources { config, folder: self.folder.path().to_owned(), serve: false };
        Config::load(&sources, &|name| self.vars.get(name).cloned())
    }

    fn proxy(&self) -> ProxyConfig {
        match self.load().unwrap().agents.default_entry() {
            Some(AgentSettings::Proxy(proxy)) => proxy.clone(),
            other => panic!("not the proxy: {other:?}"),
        }
    }

    fn local(&self) -> ModelConfig {
        match self.load().unwrap().agents.default_entry() {
            Some(AgentSettings::Model(local)) => local.clone(),
            other => panic!("not the local agent: {other:?}"),
        }
    }

    /// All errors as the command line prints them, with the folder's random name taken out.
    fn errors(&self) -> String {
        let folder = format!("{}/", self.folder.path().display());
        printed(&self.load().unwrap_err()).replace(&folder, "")
    }
}

/// The settings of an account, which must be of this type.
fn settings<T: Clone + 'static>(platform: &PlatformConfig) -> T {
    let settings: &dyn Any = platform.settings();
    settings.downcast_ref::<T>().unwrap_or_else(|| panic!("another kind: {platform:?}")).clone()
}

fn printed(errors: &[ConfigError]) -> String {
    assert!(!errors.is_empty());
    let one = |error: &ConfigError| match &error.hint {
        Some(hint) => format!("error: {error}\n\nhint: {hint}"),
        None => format!("error: {error}"),
    };
    errors.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) {}
