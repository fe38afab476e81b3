//! The line between a test and its scripted processes: a log in one direction, opened gates in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::watch;

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

    pub fn entries(&self) -> watch::Receiver<Vec<LogEntry>> {
        self.entries.clone()
    }

    pub fn open(&self, gate: &str) {
        self.opened.send_modify(|opened| {
            opened.insert(gate.to_owned());
        });
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
