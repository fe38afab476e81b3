//! The process: answers requests and plays turns, each in a thread of its own.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::scenario::{Act, InterruptRule, OwnTurn, Scenario, ScriptedAnswer};
use super::turn_player::{Nudge, Player, TurnPlace};
use super::{ARGUMENTS, SCENARIO};
use crate::support::scripted_process::{ControlLine, LogEvent};

/// The code of codex for almost every mistake.
const INVALID: i64 = -32_600;

/// A time for the members that want one.
const TIME: i64 = 1_794_784_020_000;

/// State of the process.
pub(super) struct Peer {
    folder: PathBuf,
    pub control: ControlLine,
    state: Mutex<PeerState>,
    /// Held while a line is written.
    output: Mutex<()>,
    /// Set by an act: input is not read any more.
    pub stops_reading: AtomicBool,
}

#[derive(Default)]
struct PeerState {
    is_initialized: bool,
    threads: HashMap<String, LoadedThread>,
    /// Requests of ours without an answer.
    asked: HashMap<i64, Sender<Nudge>>,
    /// How often each method was called.
    calls: HashMap<String, usize>,
    last_request: i64,
    turns: usize,
    /// Whether a turn was begun that nobody has asked for.
    has_own_turn: bool,
}

/// A thread that this process has open.
#[derive(Default)]
struct LoadedThread {
    cwd: String,
    running: Option<(String, Sender<Nudge>)>,
    /// Whether the running turn has begun.
    has_begun: bool,
    /// Commands that were accepted for the session.
    accepted: HashSet<String>,
}

/// Runs until the end of input.
pub(super) fn run(folder: &Path) -> ! {
    let peer = Arc::new(Peer {
        folder: folder.to_owned(),
        control: ControlLine::connect(folder),
        state: Mutex::new(PeerState { last_request: -1, ..PeerState::default() }),
        output: Mutex::default(),
        stops_reading: AtomicBool::new(false),
    });
    peer.control.write(LogEvent::Started {
        arguments: std::env::var(ARGUMENTS).unwrap_or_default(),
        cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
        environment: std::env::vars().collect(),
    });
    // The harness has begun a line.
    peer.write(b"\n");
    Player::alone(peer.clone()).plays(&peer.scenario().on_start);
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        while peer.stops_reading.load(Ordering::SeqCst) {
            std::thread::park();
        }
        match read {
            Ok(1..) => peer.takes(&line),
            Ok(0) | Err(_) => std::process::exit(0),
        }
    }
}

impl Peer {
    pub(super) fn scenario(&self) -> Scenario {
        serde_json::from_str(&std::fs::read_to_string(self.folder.join(SCENARIO)).unwrap()).unwrap()
    }

    /// Writes past the harness, which would capture `println!`. A client that is gone is the end.
    pub(super) fn write(&self, bytes: &[u8]) {
        let _one_at_a_time = self.output.lock();
        let mut out = std::io::stdout().lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    pub(super) fn send(&self, message: Value) {
        let line = format!("{message}\n");
        self.control.write(LogEvent::Sent(message));
        self.write(line.as_bytes());
    }

    pub(super) fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "method": method, "params": params, "emittedAtMs": TIME }));
    }

    /// Sends a request, and returns its id. The answer comes as a nudge.
    pub(super) fn ask(&self, method: &str, params: Value, nudges: Sender<Nudge>) -> i64 {
        let id = {
            let mut state = self.state.lock();
            state.last_request += 1;
            let id = state.last_request;
            state.asked.insert(id, nudges);
            id
        };
        self.send(json!({ "method": method, "id": id, "params": params }));
        id
    }

    fn takes(self: &Arc<Self>, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.control.write(LogEvent::Unreadable(String::from_utf8_lossy(line).into_owned()));
        };
        self.control.write(LogEvent::Received(message.clone()));
        let id = &message["id"];
        match (message["method"].as_str(), id.is_null()) {
            (Some(method), false) => self.answers(id, method, &message["params"]),
            (Some(_), true) => {}
            (None, _) => {
                let waiting = id.as_i64().and_then(|id| self.state.lock().asked.remove(&id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(Nudge::Answered(message));
                }
            }
        }
    }

    fn answers(self: &Arc<Self>, id: &Value, method: &str, params: &Value) {
        let scenario = self.scenario();
        let time = {
            let mut state = self.state.lock();
            let calls = state.calls.entry(method.to_owned()).or_default();
            *calls += 1;
            *calls - 1
        };
        let mut once = scenario.once.iter().filter(|(name, _)| name == method).map(|(_, answer)| answer);
        match once.nth(time).or(scenario.always.get(method)) {
            Some(ScriptedAnswer::Result(result)) => return self.send(json!({ "id": id, "result": result })),
            Some(ScriptedAnswer::Error { code, message, data }) => {
                let error = json!({ "code": code, "message": message, "data": data });
                return self.send(json!({ "id": id, "error": error }));
            }
            Some(ScriptedAnswer::Silence) => return,
            None => {}
        }
        if method == "initialize" {
            Player::alone(self.clone()).plays(&scenario.on_initialize);
        }
        let answer = match method {
            _ if method != "initialize" && !self.state.lock().is_initialized => {
                Err("Not initialized".to_owned())
            }
            "initialize" => self.initializes(),
            "thread/start" => self.starts_thread(params, &scenario),
            "thread/resume" => self.resumes_thread(params, &scenario),
            "turn/start" => {
                let acts = scenario.acts(&prompt_of(params));
                return self.starts_turn(id, params, acts);
            }
            "turn/interrupt" => return self.interrupts(id, params, scenario.interrupt),
            // The thread stays loaded.
            "thread/unsubscribe" => Ok(json!({ "status": "unsubscribed" })),
            "thread/archive" => self.archives(params),
            "thread/unarchive" => self.unarchives(params),
            "thread/inject_items" => Ok(json!({})),
            "thread/backgroundTerminals/list" => Ok(json!({ "data": [] })),
            "thread/backgroundTerminals/clean" => Ok(json!({})),
            "thread/compact/start" => return self.starts_turn(id, params, Some(vec![Act::Compacts])),
            "account/rateLimits/read" => {
                Err("codex account authentication required to read rate limits".to_owned())
            }
            "account/read" => Ok(json!({ "account": null, "requiresOpenaiAuth": false })),
            "plugin/list" => {
                Ok(json!({ "marketplaces": [], "marketplaceLoadErrors": [], "featuredPluginIds": [] }))
            }
            other => Err(format!("Invalid request: unknown variant `{other}`")),
        };
        if method == "thread/resume" && answer.is_ok() && scenario.own_turn == Some(OwnTurn::AtResume) {
            self.begins_own_turn(params["threadId"].as_str().unwrap_or_default());
        }
        match answer {
            Ok(result) => {
                let started = (method == "thread/start").then(|| result["thread"].clone());
                self.send(json!({ "id": id, "result": result }));
                if let Some(thread) = started {
                    self.notify("thread/started", json!({ "thread": thread }));
                }
            }
            Err(words) => self.refuses(id, &words),
        }
    }

    fn refuses(&self, id: &Value, words: &str) {
        self.send(json!({ "id": id, "error": { "code": INVALID, "message": words } }));
    }

    fn initializes(&self) -> Result<Value, String> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_initialized, true) {
            return Err("Already initialized".to_owned());
        }
        let home = std::env::var("CODEX_HOME").unwrap_or_else(|_| "/home/ann/.codex".to_owned());
        let agent = "talaria/0.169.0 (Debian 12.0.0; x86_64) unknown";
        Ok(json!({ "userAgent": agent, "codexHome": home, "platformFamily": "unix", "platformOs": "linux" }))
    }

    /// The file of a thread, with a line for each of its turns.
    fn rollout(&self, thread: &str) -> PathBuf {
        self.folder.join("threads").join(thread)
    }

    fn archived(&self, thread: &str) -> PathBuf {
        self.folder.join("archived").join(thread)
    }

    fn starts_thread(&self, params: &Value, scenario: &Scenario) -> Result<Value, String> {
        let mut state = self.state.lock();
        let count = |folder: &str| std::fs::read_dir(self.folder.join(folder)).unwrap().count();
        let thread = format!("thread-{}", count("threads") + count("archived") + 1);
        std::fs::write(self.rollout(&thread), "").unwrap();
        Ok(open(&mut state, &thread, params, scenario, &[]))
    }

    fn resumes_thread(&self, params: &Value, scenario: &Scenario) -> Result<Value, String> {
        let thread = params["threadId"].as_str().unwrap_or_default();
        if self.archived(thread).exists() {
            return Err(format!(
                "session {thread} is archived. Run `codex unarchive {thread}` to unarchive it first."
            ));
        }
        let turns = std::fs::read_to_string(self.rollout(thread)).unwrap_or_default();
        if turns.is_empty() {
            return Err(format!("no rollout found for thread id {thread}"));
        }
        let turn =
            |id: &str| json!({ "id": id, "items": [], "itemsView": "notLoaded", "status": "completed" });
        let turns: Vec<Value> = match params["excludeTurns"] == true {
            true => Vec::new(),
            false => turns.lines().map(turn).collect(),
        };
        Ok(open(&mut self.state.lock(), thread, params, scenario, &turns))
    }

    /// Closes a thread, which then forgets what was accepted.
    fn archives(&self, params: &Value) -> Result<Value, String> {
        let thread = params["threadId"].as_str().unwrap_or_default();
        if std::fs::rename(self.rollout(thread), self.archived(thread)).is_err() {
            return Err(format!("no rollout found for thread id {thread}"));
        }
        if let Some((_, nudge)) = self.state.lock().threads.remove(thread).and_then(|thread| thread.running) {
            let _ = nudge.send(Nudge::Interrupted);
        }
        Ok(json!({}))
    }

    fn unarchives(&self, params: &Value) -> Result<Value, String> {
        let thread = params["threadId"].as_str().unwrap_or_default();
        match std::fs::rename(self.archived(thread), self.rollout(thread)) {
            Ok(()) => Ok(json!({ "thread": { "id": thread } })),
            Err(_) => Err(format!("no archived rollout found for thread id {thread}")),
        }
    }

    /// Begins a turn; without acts it repeats its prompt.
    fn starts_turn(self: &Arc<Self>, id: &Value, params: &Value, acts: Option<Vec<Act>>) {
        let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
        let (nudge, nudges) = channel();
        let mut state = self.state.lock();
        let (number, has_own_turn) = (state.turns + 1, state.has_own_turn);
        let Some(loaded) = state.threads.get_mut(&thread) else {
            drop(state);
            return self.refuses(id, &format!("thread not found: {thread}"));
        };
        let is_compaction = params["input"].is_null();
        let answer = |turn: &str| match is_compaction {
            true => json!({ "id": id, "result": {} }),
            false => {
                let turn = json!({ "id": turn, "items": [], "itemsView": "notLoaded", "status": "inProgress", "error": null });
                json!({ "id": id, "result": { "turn": turn } })
            }
        };
        if let Some((running, _)) = &loaded.running {
            // As codex does it: the prompt steers the turn that runs.
            let answer = answer(running);
            drop(state);
            return self.send(answer);
        }
        let turn = format!("turn-{}-{number}", std::process::id());
        if !is_compaction && self.scenario().own_turn == Some(OwnTurn::InPlace) && !has_own_turn {
            drop(state);
            self.send(answer(&turn));
            return self.begins_own_turn(&thread);
        }
        loaded.running = Some((turn.clone(), nudge.clone()));
        loaded.has_begun = false;
        let cwd = loaded.cwd.clone();
        state.turns = number;
        drop(state);
        let mut rollout = std::fs::File::options().append(true).open(self.rollout(&thread)).unwrap();
        rollout.write_all(format!("{turn}\n").as_bytes()).unwrap();
        self.send(answer(&turn));
        let place =
            TurnPlace { thread, turn, cwd, prompt: prompt_of(params), input: params["input"].clone() };
        let player = Player::of_turn(self.clone(), place, nudge, nudges);
        std::thread::spawn(move || player.plays_turn(acts));
    }

    /// Begins a turn that nobody has asked for, once in each process.
    pub(super) fn begins_own_turn(self: &Arc<Self>, thread: &str) {
        let (nudge, nudges) = channel();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.has_own_turn, true) {
            return;
        }
        let turn = format!("own-turn-{}", std::process::id());
        let loaded = state.threads.get_mut(thread).expect("a loaded thread");
        loaded.running = Some((turn.clone(), nudge.clone()));
        let cwd = loaded.cwd.clone();
        drop(state);
        let (thread, prompt, input) = (thread.to_owned(), String::new(), Value::Null);
        let place = TurnPlace { thread, turn, cwd, prompt, input };
        let mut player = Player::of_turn(self.clone(), place, nudge, nudges);
        player.begins_alone();
        let acts = [Act::runs_if_allowed("make own", "ok"), Act::says(&["Nobody asked."]), Act::Hangs];
        std::thread::spawn(move || player.goes_on_alone(&acts));
    }

    fn interrupts(&self, id: &Value, params: &Value, rule: InterruptRule) {
        let (thread, turn) = (params["threadId"].as_str().unwrap_or_default(), &params["turnId"]);
        let state = self.state.lock();
        let loaded = state.threads.get(thread);
        let has_begun = loaded.is_some_and(|thread| thread.has_begun);
        let running = loaded.and_then(|thread| thread.running.clone());
        drop(state);
        // An empty id means any turn, also one that has yet to begin.
        let Some((running, nudge)) = running.filter(|_| has_begun || *turn == "") else {
            return self.refuses(id, "no active turn to interrupt");
        };
        if *turn != "" && *turn != running.as_str() {
            return self.refuses(id, &format!("expected active turn id {running}"));
        }
        match rule {
            InterruptRule::Works => {
                self.send(json!({ "id": id, "result": {} }));
                let _ = nudge.send(Nudge::Interrupted);
            }
            InterruptRule::Ignored => self.send(json!({ "id": id, "result": {} })),
            InterruptRule::Silent => {}
        }
    }

    /// Notes that the turn of a thread has begun.
    pub(super) fn begins(&self, thread: &str) {
        if let Some(thread) = self.state.lock().threads.get_mut(thread) {
            thread.has_begun = true;
        }
    }

    /// Notes that the turn of a thread is over.
    pub(super) fn ended(&self, thread: &str) {
        if let Some(thread) = self.state.lock().threads.get_mut(thread) {
            thread.running = None;
        }
    }

    /// Notes that a command was accepted for the session.
    pub(super) fn accepts(&self, thread: &str, command: &str) {
        if let Some(thread) = self.state.lock().threads.get_mut(thread) {
            thread.accepted.insert(command.to_owned());
        }
    }

    pub(super) fn is_accepted(&self, thread: &str, command: &str) -> bool {
        self.state.lock().threads.get(thread).is_some_and(|thread| thread.accepted.contains(command))
    }
}

/// The words of a prompt.
fn prompt_of(params: &Value) -> String {
    let parts = params["input"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Opens a thread and describes it. One that is open stays as it is.
fn open(state: &mut PeerState, thread: &str, params: &Value, scenario: &Scenario, turns: &[Value]) -> Value {
    let cwd = params["cwd"].as_str().unwrap_or("/home/ann").to_owned();
    let opened = || LoadedThread { cwd: cwd.clone(), ..LoadedThread::default() };
    state.threads.entry(thread.to_owned()).or_insert_with(opened);
    let mut answer = json!({
        "thread": {
            "id": thread, "sessionId": thread, "preview": "", "ephemeral": false, "modelProvider": "fake",
            "status": { "type": "idle" }, "path": format!("/home/ann/.codex/sessions/{thread}.jsonl"), "cwd": cwd,
            "cliVersion": "0.169.0", "source": "vscode", "turns": turns,
        },
        "model": params["model"].as_str().unwrap_or("fake-model"), "modelProvider": "fake", "cwd": cwd,
        "approvalPolicy": "on-request", "approvalsReviewer": "user",
        "sandbox": { "type": "readOnly", "networkAccess": false },
        "activePermissionProfile": { "id": ":read-only", "extends": null }, "reasoningEffort": null,
    });
    for (name, value) in &scenario.thread {
        answer[name] = value.clone();
    }
    answer
}
