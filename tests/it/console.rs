//! A person at a real terminal: the program has a pseudo-terminal, and the test reads and types at its other end.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use tokio::sync::watch;

use crate::support::upstream::{Answer, Upstream};

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a program in it. Dropping it kills the program.
struct Terminal {
    keyboard: File,
    screen: watch::Receiver<Vec<u8>>,
    program: Child,
}

impl Terminal {
    fn starts(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let input = Stdio::from(theirs.try_clone().unwrap());
        let output = Stdio::from(theirs);
        let program = command.stdin(input).stdout(output).stderr(Stdio::null()).spawn().unwrap();
        // Its end of the terminal must be open in the program alone.
        drop(command);
        let keyboard = File::from(ours);
        let (mut shown, (sender, screen)) = (keyboard.try_clone().unwrap(), watch::channel(Vec::new()));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = shown.read(&mut buffer) {
                sender.send_modify(|bytes| bytes.extend_from_slice(&buffer[..read]));
            }
        });
        Self { keyboard, screen, program }
    }

    fn types(&mut self, line: &str) {
        self.keyboard.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.borrow()).into_owned()
    }

    /// Waits until these words stand on the screen.
    async fn shows(&mut self, words: &str) {
        let came = self.screen.wait_for(|bytes| String::from_utf8_lossy(bytes).contains(words));
        let came = matches!(tokio::time::timeout(PATIENCE, came).await, Ok(Ok(_)));
        assert!(came, "{words:?} should stand on the screen\n{}", self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[tokio::test]
async fn an_approval_is_typed_at_the_terminal_and_the_command_runs() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::plain().await);
    let workspace = tempfile::tempdir().unwrap();
    let config = json!({
        "agents": { "helper": {
            "kind": "model", "base_url": format!("{}/v1", upstream.url()), "model": "small",
            "workspace": workspace.path(), "tools": ["terminal"],
        } },
        "default_agent": "helper",
    });
    std::fs::write(home.path().join("talaria.yaml"), config.to_string()).unwrap();
    let command = |text: &str| json!({ "command": text }).to_string();
    upstream
        .answers(Answer::calls("I clean up.", &[("c1", "terminal", &command("echo x > cleaned"))]))
        .answers(Answer::says(["It is clean."]))
        .answers(Answer::calls("I break it.", &[("c2", "terminal", &command("echo x > broken"))]))
        .answers(Answer::says(["Then not."]));
    let mut talaria = Command::new(env!("CARGO_BIN_EXE_talaria"));
    talaria
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TALARIA_HOME", home.path())
        .env("NO_COLOR", "1")
        .current_dir(home.path());
    let mut terminal = Terminal::starts(talaria);

    terminal.types("clean up");
    terminal.shows("`/deny ").await;
    assert!(terminal.screen().contains("echo x > cleaned"), "{}", terminal.screen());
    let code = last_code(&terminal.screen());
    assert!(!workspace.path().join("cleaned").exists());
    terminal.types(&format!("/approve {code}"));
    terminal.shows("It is clean.").await;
    assert_eq!(std::fs::read_to_string(workspace.path().join("cleaned")).unwrap(), "x\n");

    terminal.types("break it");
    terminal.shows("echo x > broken").await;
    let other = async {
        while last_code(&terminal.screen()) == code {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(PATIENCE, other).await.expect("a second ask has a code of its own");
    let code = last_code(&terminal.screen());
    terminal.types(&format!("/deny {code}"));
    terminal.shows("Then not.").await;
    assert!(!workspace.path().join("broken").exists());
}

/// The code of the last ask on a screen.
fn last_code(screen: &str) -> String {
    let (_, rest) = screen.rsplit_once("`/deny ").unwrap();
    rest.chars().take(4).collect()
}
