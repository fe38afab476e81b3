//! The process: answers requests and plays prompts, each in a thread of its own.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::prompt_player::{Player, PromptPlace};
use super::script::{CancelRule, LoadRule, Script};
use super::{SCRIPT, SESSIONS};
use crate::support::scripted_process::{ControlLine, LogEvent, Nudge};

/// Code for an unknown conversation, as one of the real agents has it.
const UNKNOWN: i64 = -32_002;

/// State of the process.
pub(super) struct AgentProcess {
    folder: PathBuf,
    pub control: ControlLine,
    state: Mutex<ProcessState>,
    /// Held while a line is written.
    output: Mutex<()>,
    /// Set by an act: the end of input does not end the process.
    pub stays_alive: AtomicBool,
}

#[derive(Default)]
struct ProcessState {
    /// The folder of each open conversation, and the prompt that runs in it.
    sessions: HashMap<String, (String, Option<Sender<Nudge>>)>,
    /// Requests of ours without an answer.
    asked: HashMap<i64, Sender<Nudge>>,
    last_request: i64,
}

/// Runs until the end of input.
pub(super) fn run(folder: &Path) -> ! {
    let agent = Arc::new(AgentProcess {
        folder: folder.to_owned(),
        control: ControlLine::connect(folder),
        state: Mutex::new(ProcessState { last_request: -1, ..ProcessState::default() }),
        output: Mutex::default(),
        stays_alive: AtomicBool::new(false),
    });
    agent.control.write(LogEvent::Started {
        arguments: String::new(),
        cwd: std::env::current_dir().unwrap_or_default().display().to_string(),
        environment: std::env::vars().collect(),
    });
    // The harness has begun a line.
    agent.write(b"\n");
    Player::alone(agent.clone()).plays(&agent.script().on_start);
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(1..) => agent.takes(&line),
            Ok(0) | Err(_) => {
                while agent.stays_alive.load(Ordering::SeqCst) {
                    std::thread::park();
                }
                std::process::exit(0);
            }
        }
    }
}

impl AgentProcess {
    pub(super) fn script(&self) -> Script {
        serde_json::from_str(&std::fs::read_to_string(self.folder.join(SCRIPT)).unwrap()).unwrap()
    }

    /// Writes past the harness, which would capture `println!`. A client that is gone is the end.
    pub(super) fn write(&self, bytes: &[u8]) {
        let _one_at_a_time = self.output.lock();
        let mut out = std::io::stdout().lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    pub(super) fn send(&self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        let line = format!("{message}\n");
        self.control.write(LogEvent::Sent(message));
        self.write(line.as_bytes());
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
        let (id, params) = (&message["id"], &message["params"]);
        match (message["method"].as_str(), id.is_null()) {
            (Some(method), false) => self.answers(id, method, params),
            (Some("session/cancel"), true) if self.script().cancel == CancelRule::Works => {
                Player::alone(self.clone()).plays(&self.script().on_cancel);
                let session = params["sessionId"].as_str().unwrap_or_default();
                let running = self.state.lock().sessions.get(session).and_then(|session| session.1.clone());
                running.into_iter().for_each(|nudge| drop(nudge.send(Nudge::Interrupted)));
            }
            (Some(_), true) => {}
            (None, _) => {
                let waiting = id.as_i64().and_then(|id| self.state.lock().asked.remove(&id));
                waiting.into_iter().for_each(|waiting| drop(waiting.send(Nudge::Answered(message.clone()))));
            }
        }
    }

    fn answers(self: &Arc<Self>, id: &Value, method: &str, params: &Value) {
        let script = self.script();
        match method {
            "initialize" => {
                Player::alone(self.clone()).plays(&script.on_initialize);
                self.send(json!({ "id": id, "result": script.greeting }));
            }
            "session/new" => match (script.new_error, script.new_answer) {
                (Some((code, message)), _) => self.refuses(id, code, &message),
                (None, Some(answer)) => self.send(json!({ "id": id, "result": answer })),
                (None, None) => self.begins_session(id, params),
            },
            "session/load" => self.loads_session(id, params, script.load),
            "session/set_model" | "session/set_config_option" => self.send(json!({ "id": id, "result": {} })),
            "session/prompt" => self.takes_prompt(id, params, &script),
            other => self.refuses(id, -32_601, &format!("unknown method {other}")),
        }
    }

    pub(super) fn refuses(&self, id: &Value, code: i64, message: &str) {
        self.send(json!({ "id": id, "error": { "code": code, "message": message } }));
    }

    /// The file of a conversation, with a line for each of its prompts.
    fn file(&self, session: &str) -> PathBuf {
        self.folder.join(SESSIONS).join(session)
    }

    fn begins_session(&self, id: &Value, params: &Value) {
        let count = std::fs::read_dir(self.folder.join(SESSIONS)).unwrap().count();
        let session = format!("session-{}-{}", std::process::id(), count + 1);
        std::fs::write(self.file(&session), "").unwrap();
        self.opens(&session, params);
        let mut answer = self.script().offers;
        answer["sessionId"] = json!(session);
        self.send(json!({ "id": id, "result": answer }));
    }

    fn opens(&self, session: &str, params: &Value) {
        let cwd = params["cwd"].as_str().unwrap_or_default().to_owned();
        self.state.lock().sessions.insert(session.to_owned(), (cwd, None));
    }

    fn loads_session(&self, id: &Value, params: &Value, rule: LoadRule) {
        let session = params["sessionId"].as_str().unwrap_or_default();
        match rule {
            LoadRule::Works => {}
            LoadRule::Hangs => return,
            LoadRule::Dies => {
                let _ = std::io::stderr().write_all(b"the conversation is broken");
                std::process::exit(3);
            }
        }
        let Ok(prompts) = std::fs::read_to_string(self.file(session)) else {
            return self.refuses(id, UNKNOWN, &format!("Resource not found: {session}"));
        };
        self.opens(session, params);
        for prompt in prompts.lines() {
            for (kind, text) in [("user_message_chunk", prompt), ("agent_message_chunk", "an earlier answer")]
            {
                let update = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
                let params = json!({ "sessionId": session, "update": update });
                self.send(json!({ "method": "session/update", "params": params }));
            }
        }
        self.send(json!({ "id": id, "result": self.script().offers }));
    }

    fn takes_prompt(self: &Arc<Self>, id: &Value, params: &Value, script: &Script) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let (nudge, nudges) = channel();
        let cwd = match self.state.lock().sessions.get_mut(&session) {
            Some((cwd, running)) => {
                *running = Some(nudge.clone());
                cwd.clone()
            }
            None => return self.refuses(id, UNKNOWN, "Resource not found"),
        };
        let parts = params["prompt"].as_array().cloned().unwrap_or_default();
        let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let last = texts.last().copied().unwrap_or_default().to_owned();
        let mut file = std::fs::File::options().append(true).create(true).open(self.file(&session)).unwrap();
        file.write_all(format!("{}\n", last.replace('\n', " ")).as_bytes()).unwrap();
        let acts = script.acts(&last);
        let place = PromptPlace { id: id.clone(), session, cwd, prompt: last };
        let player = Player::of_prompt(self.clone(), place, nudge, nudges);
        std::thread::spawn(move || player.plays_prompt(acts));
    }

    /// Notes that the prompt of a conversation is over.
    pub(super) fn ended(&self, session: &str) {
        if let Some((_, running)) = self.state.lock().sessions.get_mut(session) {
            *running = None;
        }
    }
}
