//! The line between a test and its scripted processes: a log in one direction, opened gates in the other.
//!
//! A scripted process is this test program, started once more behind a file with the name of the real one. It writes
//! everything that it receives, sends and runs into the log, so that a test can wait for it; a test opens the gates at
//! which the process waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::watch;

/// Longest wait. Only a failure takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One line for each [`LogEntry`], in the folder of the scripted program.
const LOG: &str = "log.jsonl";

/// The socket, in that folder.
pub const SOCKET: &str = "socket";

/// Something that a player waits for.
pub enum Nudge {
    Answered(Value),
    Opened(String),
    Interrupted,
}

/// Something that a process did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its process id.
    pub process: u32,
    pub event: LogEvent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LogEvent {
    /// It began.
    Started { arguments: String, cwd: String, environment: BTreeMap<String, String> },
    /// A message of ours came, as it is.
    Received(Value),
    /// Input that is no message.
    Unreadable(String),
    /// It sent a message. Floods are left out.
    Sent(Value),
    /// It began to run a command.
    Ran { thread: String, command: String },
    /// It waits at a gate.
    Waits(String),
}

impl LogEntry {
    /// Parameters of a received message with this method.
    pub fn received(&self, method: &str) -> Option<&Value> {
        match &self.event {
            LogEvent::Received(message) if message["method"] == method => Some(&message["params"]),
            _ => None,
        }
    }
}

/// The test's end.
pub struct PeerControl {
    entries: watch::Receiver<Vec<LogEntry>>,
    opened: Arc<watch::Sender<BTreeSet<String>>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl PeerControl {
    pub fn listen(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (sender, entries) = watch::channel(Vec::new());
        let opened = Arc::new(watch::Sender::new(BTreeSet::new()));
        let (sender, gates) = (Arc::new(sender), opened.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reader, writer) = stream.into_split();
                let sender = sender.clone();
                let gates = tell_gates(writer, gates.subscribe());
                let reading = async move {
                    let mut lines = tokio::io::BufReader::new(reader).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        // A process that is killed may leave half of a line.
                        if let Ok(entry) = serde_json::from_str(&line) {
                            sender.send_modify(|entries: &mut Vec<LogEntry>| entries.push(entry));
                        }
                    }
                };
                // Whichever ends first, the process is gone; then the connection is closed.
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = reading => {}
                        () = gates => {}
                    }
                });
            }
        });
        Self { entries, opened, accepting }
    }

    /// Opens a gate, now and for all that come to it later.
    pub fn opens(&self, gate: &str) {
        self.opened.send_modify(|opened| {
            opened.insert(gate.to_owned());
        });
    }

    /// Waits until a process waits at this gate, or has passed it.
    pub async fn reached(&self, gate: &str) {
        self.logs(|entry| matches!(&entry.event, LogEvent::Waits(name) if name == gate)).await;
    }

    /// Waits until a message with this method was received, and returns its parameters.
    pub async fn receives(&self, method: &str) -> Value {
        self.logs(|entry| entry.received(method).is_some()).await.received(method).cloned().unwrap()
    }

    /// Waits until the log is as wanted.
    pub async fn has_logged(&self, wanted: impl Fn(&[LogEntry]) -> bool) {
        let mut entries = self.entries.clone();
        let waiting = entries.wait_for(|entries| wanted(entries));
        let has_logged = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
        assert!(has_logged, "it never came to that:\n{}", self.history());
    }

    /// Waits for an entry of the log, from its beginning on.
    pub async fn logs(&self, wanted: impl Fn(&LogEntry) -> bool) -> LogEntry {
        let mut entries = self.entries.clone();
        let waiting = entries.wait_for(|entries| entries.iter().any(&wanted));
        let found = match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(entries) => entries.unwrap().iter().find(|entry| wanted(entry)).cloned(),
            Err(_) => None,
        };
        found.unwrap_or_else(|| panic!("it never came to that:\n{}", self.history()))
    }

    /// The log so far.
    pub fn log(&self) -> Vec<LogEntry> {
        self.entries.borrow().clone()
    }

    /// Parameters of all messages so far with this method.
    pub fn received(&self, method: &str) -> Vec<Value> {
        self.log().iter().filter_map(|entry| entry.received(method).cloned()).collect()
    }

    /// Answers so far to requests of the process: their results or errors.
    pub fn answers(&self) -> Vec<Value> {
        let answer = |entry: LogEntry| match entry.event {
            LogEvent::Received(message) if message["method"].is_null() => Some(message),
            _ => None,
        };
        self.log().into_iter().filter_map(answer).collect()
    }

    /// Commands that ran, in order.
    pub fn ran(&self) -> Vec<String> {
        let ran = |entry: LogEntry| match entry.event {
            LogEvent::Ran { command, .. } => Some(command),
            _ => None,
        };
        self.log().into_iter().filter_map(ran).collect()
    }

    /// Process ids of all processes so far, in order.
    pub fn processes(&self) -> Vec<u32> {
        let started =
            |entry: LogEntry| matches!(entry.event, LogEvent::Started { .. }).then_some(entry.process);
        self.log().into_iter().filter_map(started).collect()
    }

    /// The environment of the last process.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let environment = |entry: LogEntry| match entry.event {
            LogEvent::Started { environment, .. } => Some(environment),
            _ => None,
        };
        self.log().into_iter().rev().find_map(environment).expect("it was started")
    }

    /// A variable of the last process.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.environment().remove(name)
    }

    /// Everything for the message of a failure.
    pub fn history(&self) -> String {
        self.log().iter().map(|entry| format!("{entry:?}\n")).collect()
    }
}

impl Drop for PeerControl {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Tells a process which gates are open.
async fn tell_gates(
    mut writer: tokio::net::unix::OwnedWriteHalf,
    mut opened: watch::Receiver<BTreeSet<String>>,
) {
    let mut told = BTreeSet::new();
    loop {
        let new: Vec<String> = opened.borrow_and_update().difference(&told).cloned().collect();
        for gate in new {
            if writer.write_all(format!("{gate}\n").as_bytes()).await.is_err() {
                return;
            }
            told.insert(gate);
        }
        if opened.changed().await.is_err() {
            return;
        }
    }
}

/// The end of a process.
pub struct ControlLine {
    log: Mutex<File>,
    /// `None` once nobody listens.
    socket: Mutex<Option<UnixStream>>,
    gates: Arc<Mutex<Gates>>,
}

#[derive(Default)]
struct Gates {
    opened: BTreeSet<String>,
    /// Turns that wait, and for which gate.
    waiting: Vec<(String, Sender<Nudge>)>,
}

impl ControlLine {
    pub fn connect(folder: &Path) -> Self {
        let log = File::options().create(true).append(true).open(folder.join(LOG)).unwrap();
        let socket = UnixStream::connect(folder.join(SOCKET)).ok();
        let gates = Arc::<Mutex<Gates>>::default();
        if let Some(socket) = &socket {
            let (reader, gates) = (BufReader::new(socket.try_clone().unwrap()), gates.clone());
            std::thread::spawn(move || {
                for gate in reader.lines().map_while(Result::ok) {
                    gates.lock().open(gate);
                }
            });
        }
        Self { log: Mutex::new(log), socket: Mutex::new(socket), gates }
    }

    pub fn write(&self, event: LogEvent) {
        let entry = LogEntry { process: std::process::id(), event };
        let line = format!("{}\n", serde_json::to_string(&entry).unwrap());
        self.log.lock().write_all(line.as_bytes()).unwrap();
        let mut socket = self.socket.lock();
        if socket.as_mut().is_some_and(|socket| socket.write_all(line.as_bytes()).is_err()) {
            *socket = None;
        }
    }

    /// Says that somebody waits at a gate, who is nudged when it is open.
    pub fn wait(&self, gate: &str, waiting: Sender<Nudge>) {
        self.write(LogEvent::Waits(gate.to_owned()));
        let mut gates = self.gates.lock();
        if gates.opened.contains(gate) {
            let _ = waiting.send(Nudge::Opened(gate.to_owned()));
        } else {
            gates.waiting.push((gate.to_owned(), waiting));
        }
    }
}

impl Gates {
    fn open(&mut self, gate: String) {
        for (_, waiting) in self.waiting.extract_if(.., |(name, _)| *name == gate) {
            let _ = waiting.send(Nudge::Opened(gate.clone()));
        }
        self.opened.insert(gate);
    }
}

/// Replaces a file at once: a process may read or run it just now.
pub fn replace(path: &Path, text: &str, mode: u32) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(new, path).unwrap();
}
