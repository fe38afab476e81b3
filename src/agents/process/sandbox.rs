//! The sandbox around a command: `bwrap` (bubblewrap), where it is there and works.
//!
//! A command in it sees the whole file system read-only, can write only its workspace and a private `/tmp`, sees no
//! process but its own, and reaches the network only if the operator says so. Everything of ours is hidden: state folder,
//! configuration, files with secrets, and the folders in which sockets lie, because a socket can be used through a
//! read-only file system too.

mod hidden_paths;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::ProcessSpec;

pub use hidden_paths::socket_paths;

/// Name of the program.
const PROGRAM: &str = "bwrap";

/// Longest wait for the answer whether the sandbox works.
const TRIAL: Duration = Duration::from_secs(5);

/// How often the trial looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes of an explanation by `bwrap` that are shown.
const REASON: u64 = 300;

/// Folders with sockets of other programs. In some systems `/run` also has the programs themselves.
const RUNTIME_FOLDER: &str = "/run";

/// Links to programs in [`RUNTIME_FOLDER`] on NixOS.
const RUNTIME_PROGRAMS: &str = "/run/current-system";

/// Whether commands can be sandboxed on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Commands run within this program.
    Bwrap(PathBuf),
    /// There is no `bwrap`.
    Missing,
    /// There is a `bwrap`, but it does not work, for this reason. Often user namespaces are forbidden.
    NotWorking(String),
}

/// The limits of one sandboxed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// The one folder that it can write.
    pub workspace: PathBuf,
    /// Files and folders of ours, which it must not see. Those that do not exist need no hiding.
    pub hidden: Vec<PathBuf>,
    /// Whether it reaches the network.
    pub network: bool,
}

impl SandboxState {
    /// Finds out whether commands can be sandboxed, once per process. The first call starts `bwrap` and waits for it.
    pub fn detect() -> &'static Self {
        static STATE: OnceLock<SandboxState> = OnceLock::new();
        STATE.get_or_init(|| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            match find_program(PROGRAM, &path) {
                None => Self::Missing,
                Some(program) => match try_out(&program) {
                    Ok(()) => Self::Bwrap(program),
                    Err(reason) => Self::NotWorking(reason),
                },
            }
        })
    }

    /// Whether commands run in a sandbox.
    pub fn is_on(&self) -> bool {
        match self {
            Self::Bwrap(_) => true,
            Self::Missing | Self::NotWorking(_) => false,
        }
    }

    /// One sentence for the operator.
    pub fn describe(&self) -> String {
        match self {
            Self::Bwrap(program) => {
                format!("commands of the terminal are sandboxed with {}", program.display())
            }
            Self::Missing => {
                "commands of the terminal are not sandboxed, because there is no bwrap: they can read every \
                              file of this user; install the package bubblewrap"
                    .to_owned()
            }
            Self::NotWorking(reason) => format!(
                "commands of the terminal are not sandboxed, because bwrap does not work here ({reason}): they can read \
                 every file of this user"
            ),
        }
    }

    /// The command within the sandbox, or unchanged if there is none.
    pub fn wrap(&self, spec: ProcessSpec, policy: &SandboxPolicy) -> ProcessSpec {
        match self {
            Self::Bwrap(program) => wrap(program, spec, policy),
            Self::Missing | Self::NotWorking(_) => spec,
        }
    }
}

fn wrap(program: &Path, mut spec: ProcessSpec, policy: &SandboxPolicy) -> ProcessSpec {
    let mut args = base_arguments(policy.network);
    let mut add = |words: &[&OsStr]| args.extend(words.iter().map(OsString::from));
    let workspace = policy.workspace.canonicalize().unwrap_or_else(|_| policy.workspace.clone());
    add(&["--bind".as_ref(), workspace.as_ref(), workspace.as_ref()]);
    // After everything else, so that nothing uncovers them again.
    for path in hidden_paths::outermost(&policy.hidden) {
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => {
                add(&["--tmpfs".as_ref(), path.as_ref(), "--remount-ro".as_ref(), path.as_ref()]);
            }
            Ok(_) => add(&["--ro-bind".as_ref(), "/dev/null".as_ref(), path.as_ref()]),
            // It is gone by now.
            Err(_) => {}
        }
    }
    add(&["--chdir".as_ref(), spec.cwd.as_ref(), "--".as_ref(), &spec.program]);
    args.append(&mut spec.args);
    if let Some(folder) = spec.env.get_mut(OsStr::new("TMPDIR")) {
        // Every other folder is read-only.
        *folder = "/tmp".into();
    }
    ProcessSpec { program: program.into(), args, ..spec }
}

/// The arguments that do not depend on the command.
fn base_arguments(network: bool) -> Vec<OsString> {
    let fixed = "--unshare-pid --unshare-ipc --unshare-uts --die-with-parent --new-session --cap-drop ALL \
                 --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp";
    let mut args: Vec<OsString> = fixed.split_whitespace().map(OsString::from).collect();
    if !network {
        args.push("--unshare-net".into());
    }
    if Path::new(RUNTIME_FOLDER).is_dir() {
        args.extend(
            ["--tmpfs", RUNTIME_FOLDER, "--ro-bind-try", RUNTIME_PROGRAMS, RUNTIME_PROGRAMS].map(Into::into),
        );
        // With a resolver of the system's own, this file lies in `/run`.
        if let Ok(resolver) = Path::new("/etc/resolv.conf").canonicalize()
            && resolver.starts_with(RUNTIME_FOLDER)
        {
            args.extend(["--ro-bind".into(), resolver.clone().into(), resolver.into()]);
        }
    }
    args
}

/// Runs nothing within the sandbox, and says why that does not work.
fn try_out(program: &Path) -> Result<(), String> {
    let mut trial = Command::new(program)
        .args(base_arguments(false))
        .args(["--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let until = Instant::now() + TRIAL;
    let status = loop {
        match trial.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = trial.kill();
                let _ = trial.wait();
                return Err("it does not end".to_owned());
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut reason = String::new();
    if let Some(stderr) = trial.stderr.take() {
        let _: io::Result<usize> = stderr.take(REASON).read_to_string(&mut reason);
    }
    let reason = crate::util::one_line(reason.trim_start_matches("bwrap: "), REASON as usize);
    Err(if reason.is_empty() { status.to_string() } else { reason })
}

/// The program of this name in the folders of a `PATH`.
fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::process::{EndPatience, StdinMode};

    fn spec(cwd: &Path) -> ProcessSpec {
        ProcessSpec {
            program: "sh".into(),
            args: vec!["-c".into(), "true".into()],
            env: [("TMPDIR".into(), "/var/tmp".into())].into(),
            cwd: cwd.to_owned(),
            stdin: StdinMode::Null,
            patience: EndPatience::default(),
        }
    }

    #[test]
    fn the_command_comes_last_and_what_is_hidden_comes_after_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["work", "state"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("talaria.yaml"), "").unwrap();
        let policy = SandboxPolicy {
            workspace: root.join("work"),
            hidden: vec![
                root.join("talaria.yaml"),
                root.join("state"),
                root.join("state/talaria.db"),
                root.join("gone"),
            ],
            network: false,
        };
        let wrapped = SandboxState::Bwrap("/usr/bin/bwrap".into()).wrap(spec(&policy.workspace), &policy);
        assert_eq!(wrapped.program, "/usr/bin/bwrap");
        assert_eq!(wrapped.env.get(OsStr::new("TMPDIR")), Some(&"/tmp".into()));
        let words: Vec<_> = wrapped.args.iter().map(|word| word.to_string_lossy()).collect();
        let line = words.join(" ").replace(&*root.to_string_lossy(), "ROOT");
        let (base, rest) = line.split_once(" --bind ").unwrap();
        assert!(base.contains("--unshare-pid") && base.contains("--unshare-net"), "{base}");
        assert_eq!(
            rest,
            "ROOT/work ROOT/work --tmpfs ROOT/state --remount-ro ROOT/state \
             --ro-bind /dev/null ROOT/talaria.yaml --chdir ROOT/work -- sh -c true"
        );
    }

    #[test]
    fn the_network_is_a_setting() {
        let has_net = |network| base_arguments(network).contains(&"--unshare-net".into());
        assert!(has_net(false) && !has_net(true));
    }

    #[test]
    fn without_a_sandbox_a_command_stays_as_it_is_and_the_operator_is_told() {
        let policy = SandboxPolicy { workspace: "/".into(), hidden: Vec::new(), network: true };
        for state in [SandboxState::Missing, SandboxState::NotWorking("no namespaces".into())] {
            assert_eq!(state.wrap(spec(Path::new("/")), &policy), spec(Path::new("/")));
            assert!(!state.is_on() && state.describe().contains("not sandboxed"));
        }
    }

    #[test]
    fn a_program_is_looked_for_only_in_absolute_folders() {
        assert_eq!(find_program("sh", OsStr::new("relative:/nowhere:/bin")), Some("/bin/sh".into()));
        assert_eq!(find_program("sh", OsStr::new("")), None);
    }
}
