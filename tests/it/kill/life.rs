//! One life of the real binary.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Number of SIGKILL in an exit status.
const SIGKILL: i32 = 9;

/// How often we check whether a process has ended.
const LOOK: Duration = Duration::from_millis(3);

/// A running gateway. Dropping this kills it.
pub struct Life {
    child: Child,
}

impl Life {
    /// Starts the binary with its state in `home` and without the test's own environment.
    pub fn begin(home: &Path, environment: &[(&str, String)]) -> Self {
        Self::begin_as(&[], home, environment)
    }

    /// Starts the binary like [`begin`](Self::begin), with arguments.
    pub fn begin_as(args: &[&str], home: &Path, environment: &[(&str, String)]) -> Self {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log(home))
            .expect("the test's own folder");
        let child = Command::new(env!("CARGO_BIN_EXE_talaria"))
            .args(args)
            .env_clear()
            .env("TALARIA_HOME", home)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary that cargo has just built");
        Self { child }
    }

    /// Waits until the process kills itself. The error says what it did instead.
    pub async fn dies(mut self, patience: Duration) -> Result<(), String> {
        match tokio::time::timeout(patience, self.ended()).await {
            Ok(status) if status.signal() == Some(SIGKILL) => Ok(()),
            Ok(status) => Err(format!("it ended with {status}")),
            Err(_) => Err("it never got there".to_owned()),
        }
    }

    /// Kills the process at a moment of the test's choice.
    pub async fn kill(mut self) {
        // It may have ended by itself; then the checker sees that in the rooms.
        self.child.kill().ok();
        self.ended().await;
    }

    async fn ended(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                return status;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The log file of all lives of one home.
pub fn log(home: &Path) -> std::path::PathBuf {
    home.join("gateway.log")
}

#[tokio::test]
async fn only_a_kill_counts_as_one() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("talaria.yaml"), "no_such_key: 1\n").unwrap();
    let life = Life::begin(home.path(), &[]);
    assert_eq!(life.dies(Duration::from_secs(30)).await, Err("it ended with exit status: 78".to_owned()));
}
