//! A program that speaks JSON, one object a line, both ways. It ends with its input, and so with this process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::PATIENCE;

/// The program.
pub struct Lines {
    name: String,
    child: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
    /// Its output so far, and whether more may come.
    said: watch::Receiver<Said>,
}

/// Output of a program.
#[derive(Default)]
pub struct Said {
    pub lines: Vec<Value>,
    pub ended: bool,
}

impl Lines {
    /// Starts it. Its standard error is the test's.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (sender, said) = watch::channel(Said::default());
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A library may print anything; only lines with JSON count.
                if let Ok(value) = serde_json::from_str(&line) {
                    sender.send_modify(|said| said.lines.push(value));
                }
            }
            sender.send_modify(|said| said.ended = true);
        });
        let input = Mutex::new(child.stdin.take());
        Self { name: name.to_owned(), child: Mutex::new(child), input, said }
    }

    /// Sends it a line.
    pub fn say(&self, line: &str) {
        let mut input = self.input.lock();
        let input = input.as_mut().expect("its input is open");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Its output so far.
    pub fn said(&self) -> watch::Ref<'_, Said> {
        self.said.borrow()
    }

    /// Waits until `found` returns something for its output. `what` names it for the error.
    pub async fn until<T>(
        &self,
        what: impl std::fmt::Display,
        mut found: impl FnMut(&[Value]) -> Option<T>,
    ) -> T {
        let mut said = self.said.clone();
        let mut result = None;
        let waiting = said.wait_for(|said| {
            result = found(&said.lines);
            result.is_some() || said.ended
        });
        let in_time = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
        match result {
            Some(result) => result,
            None if in_time => panic!("{} has ended; waited for {what}", self.name),
            None => panic!("{}: {what} should have come", self.name),
        }
    }
}

impl Drop for Lines {
    /// A Synapse ends in order and reports whether its database is right; clients have nothing to lose.
    fn drop(&mut self) {
        drop(self.input.lock().take());
        let mut child = self.child.lock();
        if self.name != "synapse" {
            let _ = child.kill();
        }
        let ended = child.wait().is_ok_and(|status| status.success());
        if self.name == "synapse" && !std::thread::panicking() {
            assert!(ended, "a bot wrote in the open in an encrypted room: {:?}", self.said().lines.last());
        }
    }
}
