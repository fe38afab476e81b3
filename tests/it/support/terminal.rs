//! A person at a real terminal: the program has a pseudo-terminal, and the test reads and types at its other end.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::sync::watch;

/// Longest wait. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a program in it. Dropping it kills the program.
pub struct Terminal {
    keyboard: File,
    screen: watch::Receiver<Vec<u8>>,
    program: Child,
}

impl Terminal {
    /// Starts a program whose input and output are a terminal.
    pub fn starts(mut command: Command) -> Self {
        let (ours, theirs) = pair();
        let (input, output) = (Stdio::from(theirs.try_clone().unwrap()), Stdio::from(theirs));
        let program = command.stdin(input).stdout(output).stderr(Stdio::null()).spawn().unwrap();
        // Its end of the terminal must be open in the program alone.
        drop(command);
        Self::watch(ours, program)
    }

    /// Starts a shell command in a terminal of its own, which is all of its streams and its `/dev/tty`.
    pub fn runs(script: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let (ours, theirs) = pair();
        // A session of its own whose controlling terminal is standard input.
        let mut command = Command::new("/usr/bin/setsid");
        command.args(["--ctty", "/bin/sh", "-c", script]);
        prepare(&mut command);
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let program = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        drop((command, theirs));
        Self::watch(ours, program)
    }

    fn watch(keyboard: File, program: Child) -> Self {
        let (mut shown, (sender, screen)) = (keyboard.try_clone().unwrap(), watch::channel(Vec::new()));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = shown.read(&mut buffer) {
                sender.send_modify(|bytes| bytes.extend_from_slice(&buffer[..read]));
            }
        });
        Self { keyboard, screen, program }
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    /// Presses keys.
    pub fn presses(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Everything that was shown.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.borrow()).into_owned()
    }

    /// Waits until these words stand on the screen.
    pub async fn shows(&mut self, words: &str) {
        let came = self.screen.wait_for(|bytes| String::from_utf8_lossy(bytes).contains(words));
        let came = matches!(tokio::time::timeout(PATIENCE, came).await, Ok(Ok(_)));
        assert!(came, "{words:?} should stand on the screen\n{}", self.screen());
    }

    /// Waits for the end of the program. Returns its exit code and everything that was shown.
    pub async fn ended(mut self) -> (i32, String) {
        // The other end of the terminal is closed with the last process that has it open.
        let closed = async { while self.screen.changed().await.is_ok() {} };
        let closed = tokio::time::timeout(PATIENCE, closed).await;
        assert!(closed.is_ok(), "it should have ended\n{}", self.screen());
        let code = self.program.wait().unwrap().code().unwrap_or(-1);
        (code, self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The two ends of a new terminal: ours, and the program's.
fn pair() -> (File, std::os::fd::OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
    (File::from(ours), theirs)
}
