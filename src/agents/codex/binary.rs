//! Finds the `codex` program and checks its version.
//!
//! `codex --version` runs once per call of [`find_codex`], within `VERSION_TIME`. Callers that need the version twice
//! keep the result.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::Access;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use crate::i18n::{LocalizedText, TextKey};
use crate::util::one_line;

/// Command that installs or updates codex.
pub const INSTALL_COMMAND: &str = "npm install -g @openai/codex";

/// Oldest version whose app server speaks the protocol that we use.
pub const MINIMUM: CodexVersion = CodexVersion { major: 0, minor: 125, patch: 0 };

/// Newest version that we have seen at work.
const NEWEST_KNOWN: CodexVersion = CodexVersion { major: 0, minor: 169, patch: 0 };

/// Time limit of `codex --version`. It starts Node first, which takes a second on a small machine.
const VERSION_TIME: Duration = Duration::from_secs(5);

/// Bytes that are read of each output of `codex --version`. The version takes twenty.
const OUTPUT_BYTES: u64 = 4 * 1024;

/// Characters of codex' own words in an error, for the operator and the log.
const SHOWN: usize = 200;

/// A codex program that is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodexBinary {
    /// Path of the program.
    pub program: PathBuf,
    /// Its version.
    pub version: CodexVersion,
}

/// A version of codex. The label of a pre-release is left out: `0.130.0-alpha.2` counts as `0.130.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodexVersion {
    /// Changes with the generation of the program.
    pub major: u64,
    /// Changes with every release.
    pub minor: u64,
    /// Changes with every repair of a release.
    pub patch: u64,
}

/// Why codex cannot be used. The words are for the operator and the log; [`CodexBinaryError::words`] are for rooms.
#[derive(Debug, thiserror::Error)]
pub enum CodexBinaryError {
    /// There is no such program.
    #[error("`{command}` is not found, neither as a file nor on the PATH")]
    Missing {
        /// The configured command.
        command: String,
    },
    /// The program is older than [`MINIMUM`].
    #[error("codex {version} is too old; {MINIMUM} or newer is needed")]
    TooOld {
        /// The version that was found.
        version: CodexVersion,
    },
    /// The system does not start the program.
    #[error("{program} cannot be started: {error}")]
    NotStarted {
        /// Path of the program.
        program: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The program did not end in time.
    #[error("`{program} --version` did not end within {} seconds", VERSION_TIME.as_secs())]
    Silent {
        /// Path of the program.
        program: String,
    },
    /// The program failed, or its answer contains no version.
    #[error("`{program} --version` ended with {status} and did not tell its version: {said}")]
    NoVersion {
        /// Path of the program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// The beginning of its output.
        said: String,
    },
}

impl CodexBinaryError {
    /// The sentence for a room: the problem, and how to install codex.
    pub fn words(&self) -> LocalizedText {
        match self {
            Self::Missing { .. } => TextKey::CodexMissing.into(),
            Self::TooOld { version } => TextKey::CodexTooOld.with("version", version.to_string()),
            Self::NotStarted { .. } | Self::Silent { .. } | Self::NoVersion { .. } => {
                TextKey::CodexUnusable.into()
            }
        }
        .with("minimum", MINIMUM.to_string())
        .with("install", INSTALL_COMMAND)
    }

    /// The next step of the operator.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing { .. } | Self::TooOld { .. } => format!("install it with `{INSTALL_COMMAND}`"),
            Self::NotStarted { .. } | Self::Silent { .. } | Self::NoVersion { .. } => {
                format!("run it by hand to see what is wrong; `{INSTALL_COMMAND}` installs it anew")
            }
        }
    }
}

impl fmt::Display for CodexVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl CodexVersion {
    /// The version in the output of `codex --version`. A line that begins with `codex` comes first: a warning about
    /// something else may stand before it.
    pub fn parse(output: &str) -> Option<Self> {
        let is_own = |line: &&str| line.trim_start().starts_with("codex");
        let own = output.lines().filter(is_own);
        let others = output.lines().filter(|line| !is_own(line));
        own.chain(others).flat_map(str::split_whitespace).find_map(Self::parse_word)
    }

    /// A word that begins with a version: `0.130.0`, `v0.130`, `0.130.0-alpha.2`, `0.130.0,`.
    pub(super) fn parse_word(word: &str) -> Option<Self> {
        let word = word.strip_prefix('v').unwrap_or(word);
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let mut numbers = word.get(..end)?.split('.').filter(|part| !part.is_empty()).map(str::parse::<u64>);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let patch = numbers.next().and_then(Result::ok).unwrap_or(0);
        word.starts_with(|c: char| c.is_ascii_digit()).then_some(Self { major, minor, patch })
    }
}

/// Finds `command`, a path or a name on the `PATH` of `env`, and runs it once to see its version. `env` is the whole
/// environment of that run: the one that codex gets later.
pub async fn find_codex(
    command: &str,
    env: &BTreeMap<OsString, OsString>,
) -> Result<CodexBinary, CodexBinaryError> {
    let program = look_up(command, env.get(OsStr::new("PATH")).map(OsString::as_os_str))
        .ok_or_else(|| CodexBinaryError::Missing { command: command.to_owned() })?;
    let shown = program.display().to_string();
    let asked = tokio::time::timeout(VERSION_TIME, run(&program, &["--version"], env)).await;
    let RunOutput { status, out, err } = match asked {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(CodexBinaryError::NotStarted { program: shown, error }),
        Err(_) => return Err(CodexBinaryError::Silent { program: shown }),
    };
    let Some(version) = CodexVersion::parse(&out).filter(|_| status.success()) else {
        let said = if err.trim().is_empty() { out } else { err };
        return Err(CodexBinaryError::NoVersion { program: shown, status, said: one_line(&said, SHOWN) });
    };
    if version < MINIMUM {
        return Err(CodexBinaryError::TooOld { version });
    }
    if version > NEWEST_KNOWN {
        tracing::debug!(%version, known = %NEWEST_KNOWN, "codex is newer than every version that we know");
    }
    Ok(CodexBinary { program, version })
}

/// Path of a program, as a shell finds it.
pub fn look_up(command: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |file: &Path| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|file| is_program(file));
    }
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(command)).find(|file| is_program(file))
}

/// Whether codex has a login of its own, as `codex login status` says; `None` if it does not say. A model server of somebody
/// else may need none.
pub async fn is_logged_in(binary: &CodexBinary, env: &BTreeMap<OsString, OsString>) -> Option<bool> {
    let asked = tokio::time::timeout(VERSION_TIME, run(&binary.program, &["login", "status"], env)).await;
    asked.ok()?.ok().map(|output| output.status.success())
}

/// The end of a short run of codex.
struct RunOutput {
    status: ExitStatus,
    out: String,
    err: String,
}

/// Runs the program with these arguments. Dropping the future ends everything that was started.
async fn run(program: &Path, args: &[&str], env: &BTreeMap<OsString, OsString>) -> io::Result<RunOutput> {
    let mut run = ShortRun(
        Command::new(program)
            .args(args)
            .env_clear()
            .envs(env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?,
    );
    let (out, err) = (run.0.stdout.take(), run.0.stderr.take());
    let (out, err) = tokio::try_join!(read_some(out), read_some(err))?;
    Ok(RunOutput { status: run.0.wait().await?, out, err })
}

/// The beginning of an output, as text.
async fn read_some(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A run of codex. The program of npm is a script that starts the real one, so the whole group is ended.
struct ShortRun(Child);

impl Drop for ShortRun {
    fn drop(&mut self) {
        // Without an id the leader was waited for, and its number may belong to somebody else by now.
        let leader = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(leader) = leader {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;
    use crate::i18n::TextCatalog;

    /// A folder with a `codex` that runs this script, which counts its runs in the file `runs`.
    fn installed(script: &str) -> (TempDir, BTreeMap<OsString, OsString>) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("codex");
        let runs = folder.path().join("runs");
        fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}\n{script}\n", runs.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([Path::new("relative"), folder.path()]).unwrap();
        (folder, BTreeMap::from([("PATH".into(), path)]))
    }

    fn runs(folder: &TempDir) -> Vec<String> {
        let runs = fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        runs.lines().map(str::to_owned).collect()
    }

    fn version(major: u64, minor: u64, patch: u64) -> CodexVersion {
        CodexVersion { major, minor, patch }
    }

    #[test]
    fn versions_are_found_in_every_form() {
        for (output, parsed) in [
            ("codex-cli 0.130.0\n", Some(version(0, 130, 0))),
            ("codex-cli 0.130.0-alpha.2", Some(version(0, 130, 0))),
            ("codex-cli 0.130.0 (commit 1a2b3c, built 2026.1.2)", Some(version(0, 130, 0))),
            ("codex 1.2", Some(version(1, 2, 0))),
            ("codex-cli v0.131.7+build.5", Some(version(0, 131, 7))),
            ("node 18.2.0 is old\ncodex-cli 0.140.1", Some(version(0, 140, 1))),
            ("0.141.0", Some(version(0, 141, 0))),
            ("codex-cli", None),
            ("codex-cli dev", None),
            ("codex-cli 7", None),
            ("", None),
            ("99999999999999999999.1.0", None),
        ] {
            assert_eq!(CodexVersion::parse(output), parsed, "{output:?}");
        }
    }

    #[tokio::test]
    async fn a_program_on_the_path_is_found_and_asked_once() {
        let (folder, env) = installed("echo codex-cli 0.130.0");
        let found = find_codex("codex", &env).await.unwrap();
        assert_eq!(found, CodexBinary { program: folder.path().join("codex"), version: version(0, 130, 0) });
        assert_eq!(runs(&folder), ["--version"]);
    }

    #[tokio::test]
    async fn a_path_needs_no_search() {
        let (folder, _) = installed("echo codex-cli 0.125.0");
        let program = folder.path().join("codex");
        let found = find_codex(program.to_str().unwrap(), &BTreeMap::new()).await.unwrap();
        assert_eq!(found.version, MINIMUM);
    }

    #[tokio::test]
    async fn a_version_newer_than_we_know_is_taken() {
        let (_folder, env) = installed("echo codex-cli 7.0.0");
        assert_eq!(find_codex("codex", &env).await.unwrap().version, version(7, 0, 0));
    }

    #[tokio::test]
    async fn a_login_is_known_by_the_status_that_codex_tells() {
        let (folder, env) =
            installed("[ \"$1 $2\" != 'login status' ] || exit ${LOGIN:-0}\necho codex-cli 0.169.0");
        let binary = find_codex("codex", &env).await.unwrap();
        assert_eq!(is_logged_in(&binary, &env).await, Some(true));
        let without = env.into_iter().chain([("LOGIN".into(), "1".into())]).collect();
        assert_eq!(is_logged_in(&binary, &without).await, Some(false));
        drop(folder);
        assert_eq!(is_logged_in(&binary, &without).await, None);
    }

    #[tokio::test]
    async fn an_old_program_is_refused_with_the_way_to_a_new_one() {
        for old in ["0.124.9", "0.99.0", "0.1.0-rc.1"] {
            let (_folder, env) = installed(&format!("echo codex-cli {old}"));
            let error = find_codex("codex", &env).await.unwrap_err();
            assert!(matches!(error, CodexBinaryError::TooOld { .. }), "{error}");
            let words = TextCatalog::default().say(&error.words());
            assert!(words.contains(INSTALL_COMMAND) && words.contains("0.125.0"), "{words}");
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_refused_with_the_way_to_install_it() {
        let folder = tempfile::tempdir().unwrap();
        // A file that cannot be run is no program.
        fs::write(folder.path().join("codex"), "text").unwrap();
        let env = BTreeMap::from([("PATH".into(), folder.path().as_os_str().to_owned())]);
        for command in ["codex", "/nowhere/codex"] {
            let error = find_codex(command, &env).await.unwrap_err();
            assert!(matches!(error, CodexBinaryError::Missing { .. }), "{error}");
            assert!(TextCatalog::default().say(&error.words()).contains(INSTALL_COMMAND));
            assert!(error.hint().contains(INSTALL_COMMAND));
        }
    }

    #[tokio::test]
    async fn a_program_that_fails_or_says_nothing_is_refused() {
        for script in ["echo broken >&2; exit 3", "echo hello", "echo codex-cli 0.130.0; exit 1", "true"] {
            let (_folder, env) = installed(script);
            let error = find_codex("codex", &env).await.unwrap_err();
            assert!(matches!(error, CodexBinaryError::NoVersion { .. }), "{script}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_program_is_refused() {
        // The clock moves when nothing else does, so the limit passes at once.
        let (_folder, env) = installed("exec /bin/sleep 600");
        let error = find_codex("codex", &env).await.unwrap_err();
        assert!(matches!(error, CodexBinaryError::Silent { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_ends_everything_that_was_started() {
        let (folder, env) = installed("/bin/sleep 600 & echo $! > \"${0%/*}/pid\"; wait");
        let (program, pid) = (folder.path().join("codex"), folder.path().join("pid"));
        let started = async {
            loop {
                let pid = fs::read_to_string(&pid).ok().and_then(|pid| pid.trim().parse().ok());
                if let Some(pid) = pid.and_then(Pid::from_raw) {
                    return pid;
                }
                tokio::task::yield_now().await;
            }
        };
        let child = tokio::select! {
            child = started => child,
            _ = run(&program, &["--version"], &env) => panic!("it ended by itself"),
        };
        assert!(is_over(child), "the child of the program still runs");
    }

    #[tokio::test]
    async fn endless_output_is_cut() {
        let (_folder, env) = installed("while :; do echo codex-cli 0.130.0; done");
        let error = find_codex("codex", &env).await.unwrap_err();
        assert!(matches!(error, CodexBinaryError::NoVersion { .. }), "{error}");
    }

    /// Whether a process that was killed is gone, or only not waited for yet.
    fn is_over(pid: Pid) -> bool {
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        (0..1_000_000).any(|_| {
            std::thread::yield_now();
            state().map_or(true, |state| state.contains(") Z"))
        })
    }
}
