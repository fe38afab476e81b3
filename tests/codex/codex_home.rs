//! A codex that nobody else uses: the installed program, and a home folder of its own whose configuration names the
//! scripted provider.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Variable with the provider's key. One that reaches the codex of a switched agent, too.
pub const KEY_VARIABLE: &str = "CODEX_SCRIPTED_KEY";

/// The provider's key.
pub const KEY: &str = "the-key-of-the-provider";

/// The model's name.
pub const MODEL: &str = "scripted";

/// Model whose traits the scripted one has: its tools are plain functions, and patches have a tool of their own.
const LIKE: &str = "gpt-5.5";

/// Additions to codex' configuration.
#[derive(Clone, Debug, Default)]
pub struct CodexOptions {
    /// Lines for keys that are in no table.
    pub root: String,
    /// Lines of the table `features`.
    pub features: String,
    /// Tables.
    pub tables: String,
    /// Whether agents beside a turn are left as codex has them: on.
    pub agents: bool,
    /// Whether goals are left as codex has them: on.
    pub goals: bool,
}

/// A home folder.
pub struct CodexHome {
    folder: TempDir,
}

impl CodexHome {
    /// A home whose provider has this base URL, without a path.
    pub fn new(provider: &str, options: &CodexOptions) -> Self {
        // Not in the system's temporary folder: codex does not put its own links there.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = Self { folder };
        for folder in [home.codex_home(), home.workspace(), home.path().join("bin")] {
            fs::create_dir(folder).unwrap();
        }
        for name in [home.program(), home.program_on_path()] {
            symlink(program(), name).unwrap();
        }
        let catalogue = home.path().join("models.json");
        fs::write(&catalogue, catalogue_bytes()).unwrap();
        let CodexOptions { root, features, tables, agents, goals } = options;
        let agents = if *agents { "" } else { "[agents]\nenabled = false" };
        let config = format!(
            r#"model_catalog_json = "{}"
model = "{MODEL}"
model_provider = "scripted"
check_for_update_on_startup = false
suppress_unstable_features_warning = true
{root}
[model_providers.scripted]
name = "scripted"
base_url = "{provider}/v1"
wire_api = "responses"
env_key = "{KEY_VARIABLE}"
requires_openai_auth = false
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
{agents}
[features]
plugins = false
apps = false
remote_plugin = false
remote_control = false
memories = false
daemon_auto_start = false
goals = {goals}
{features}
{tables}
"#,
            catalogue.display(),
        );
        fs::write(home.codex_home().join("config.toml"), config).unwrap();
        home
    }

    /// The folder above all others, which is `HOME`.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A path of the program that only this home has.
    pub fn program(&self) -> PathBuf {
        self.path().join("codex-of-this-test")
    }

    /// The program by its usual name, alone in its folder.
    pub fn program_on_path(&self) -> PathBuf {
        self.path().join("bin/codex")
    }

    /// `CODEX_HOME`.
    pub fn codex_home(&self) -> PathBuf {
        self.path().join("codex")
    }

    /// The file of the only thread.
    pub fn only_rollout(&self) -> PathBuf {
        let mut folders = vec![self.codex_home().join("sessions")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_file() {
                    return entry.path();
                }
                folders.push(entry.path());
            }
        }
        panic!("codex has stored no thread");
    }

    /// Folder of the folders in which codex works.
    pub fn workspace(&self) -> PathBuf {
        self.path().join("work")
    }
}

/// The installed program.
fn program() -> PathBuf {
    let packages = cache().join("codex/node_modules/@openai");
    let names = fs::read_dir(&packages).into_iter().flatten().flatten().map(|entry| entry.path());
    let machines = names.map(|package| package.join("vendor")).flat_map(fs::read_dir).flatten().flatten();
    let mut programs = machines.map(|machine| machine.path().join("bin/codex"));
    programs.find(|program| program.exists()).expect("codex is not there; run tests/codex/parts once")
}

/// A catalogue with the scripted model, made of codex' own.
fn catalogue_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let told = Command::new(program())
            .args(["debug", "models"])
            .env_clear()
            .env("HOME", home.path())
            .env("CODEX_HOME", home.path())
            .output()
            .unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let mut told: Value = serde_json::from_slice(&told.stdout).unwrap();
        let models = told["models"].as_array_mut().unwrap();
        let mut model = models.drain(..).find(|model| model["slug"] == LIKE).expect("the model to be like");
        model["slug"] = json!(MODEL);
        model["upgrade"] = Value::Null;
        serde_json::to_vec(&json!({ "models": [model] })).unwrap()
    })
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("a home folder").join("talaria-tests")
}
