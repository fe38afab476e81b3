//! Plays the acts of a scenario.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use super::app_server::Peer;
use super::scenario::{Act, CommandAct, OwnTurn, PatchAct};
use crate::support::scripted_process::LogEvent;
pub(super) use crate::support::scripted_process::Nudge;

/// Bytes of each message of a flood.
const FLOOD: usize = 1_000;

/// The turn of a player.
pub(super) struct TurnPlace {
    pub thread: String,
    pub turn: String,
    pub cwd: String,
    pub prompt: String,
    /// The input as it came; null for a turn without one.
    pub input: Value,
}

/// The end of a turn.
enum TurnEnd {
    Completed,
    Interrupted,
    Failed(Value),
    /// Nobody is told.
    Silent,
}

/// Plays acts, within a turn or before all turns.
pub(super) struct Player {
    peer: Arc<Peer>,
    place: Option<TurnPlace>,
    nudge: Sender<Nudge>,
    nudges: Receiver<Nudge>,
    /// Items so far.
    items: usize,
    /// The last message.
    last: Option<Value>,
    /// The request that waits for its answer.
    asked: Option<i64>,
}

impl Player {
    /// A player outside of turns.
    pub(super) fn alone(peer: Arc<Peer>) -> Self {
        let (nudge, nudges) = channel();
        Self { peer, place: None, nudge, nudges, items: 0, last: None, asked: None }
    }

    pub(super) fn of_turn(
        peer: Arc<Peer>,
        place: TurnPlace,
        nudge: Sender<Nudge>,
        nudges: Receiver<Nudge>,
    ) -> Self {
        Self { peer, place: Some(place), nudge, nudges, items: 0, last: None, asked: None }
    }

    /// Plays acts outside of turns.
    pub(super) fn plays(mut self, acts: &[Act]) {
        for act in acts {
            let _ = self.act(act);
        }
    }

    /// Plays a turn from its beginning to its end. Without acts it repeats the prompt.
    pub(super) fn plays_turn(mut self, acts: Option<Vec<Act>>) {
        let place = self.place.as_ref().expect("a turn");
        let (thread, prompt, input) = (place.thread.clone(), place.prompt.clone(), place.input.clone());
        let gate = self.peer.scenario().begins_behind.map(Act::Waits);
        let begun = gate.iter().try_for_each(|gate| self.act(gate)).map(|()| self.begins(&thread, &input));
        let acts = acts.unwrap_or_else(|| vec![Act::Says(vec![prompt])]);
        self.goes_on(begun, &acts);
    }

    /// Begins a turn that nobody has asked for. [`goes_on_alone`](Self::goes_on_alone) plays the rest.
    pub(super) fn begins_alone(&mut self) {
        let thread = self.place.as_ref().expect("a turn").thread.clone();
        self.begins(&thread, &Value::Null);
    }

    /// Plays these acts in a turn that has begun, to its end.
    pub(super) fn goes_on_alone(self, acts: &[Act]) {
        self.goes_on(Ok(()), acts);
    }

    fn goes_on(mut self, begun: Result<(), TurnEnd>, acts: &[Act]) {
        let place = self.place.as_ref().expect("a turn");
        let (thread, is_asked_for) = (place.thread.clone(), !place.input.is_null());
        let played = begun.and_then(|()| acts.iter().try_for_each(|act| self.act(act)));
        let end = played.err().unwrap_or(TurnEnd::Completed);
        let usage = json!({ "totalTokens": 120, "inputTokens": 100, "cachedInputTokens": 10, "outputTokens": 20, "reasoningOutputTokens": 5 });
        let (status, error) = match end {
            TurnEnd::Completed => ("completed", Value::Null),
            TurnEnd::Interrupted => ("interrupted", Value::Null),
            TurnEnd::Failed(error) => ("failed", error),
            // As after an interrupt that never ends: the thread stays busy.
            TurnEnd::Silent => return,
        };
        let usage = json!({ "total": usage, "last": usage, "modelContextWindow": 258_400 });
        self.notify("thread/tokenUsage/updated", json!({ "tokenUsage": usage }));
        self.status(json!({ "type": if status == "failed" { "systemError" } else { "idle" } }));
        // Before the news: the next turn may come at once.
        self.peer.ended(&thread);
        self.notify("turn/completed", json!({ "turn": self.described(status, error) }));
        if let Some(id) = self.asked.take() {
            self.notify("serverRequest/resolved", json!({ "requestId": id }));
        }
        if is_asked_for && self.peer.scenario().own_turn == Some(OwnTurn::AfterTurn) {
            self.peer.begins_own_turn(&thread);
        }
    }

    fn begins(&mut self, thread: &str, input: &Value) {
        self.status(json!({ "type": "active", "activeFlags": [] }));
        self.peer.begins(thread);
        self.notify("turn/started", json!({ "turn": self.described("inProgress", Value::Null) }));
        if !input.is_null() {
            let id = self.item_id("user");
            let message = json!({ "type": "userMessage", "id": id, "clientId": null, "content": input });
            self.notify("item/started", json!({ "item": message }));
            self.notify("item/completed", json!({ "item": message }));
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), TurnEnd> {
        if let Ok(Nudge::Interrupted) = self.nudges.try_recv() {
            return Err(TurnEnd::Interrupted);
        }
        match act {
            Act::Says(pieces) => self.says(pieces, true),
            Act::SaysHalf(pieces) => self.says(pieces, false),
            Act::Thinks(summary) => self.thinks(summary),
            Act::Runs(command) => return self.runs(command),
            Act::Patches(patch) => return self.patches(patch),
            Act::Asks { method, params } => drop(self.asks(method, params.clone())?),
            Act::Notifies { method, params } => self.notify(method, params.clone()),
            Act::Waits(gate) => return self.waits(gate),
            Act::Hangs => return self.hangs(),
            Act::Fails { message, info } => {
                let error = json!({ "message": message, "codexErrorInfo": info, "additionalDetails": null });
                self.notify("error", json!({ "error": error, "willRetry": false }));
                return Err(TurnEnd::Failed(error));
            }
            Act::Retries(message) => {
                let info = json!({ "responseStreamDisconnected": { "httpStatusCode": null } });
                let error = json!({ "message": message, "codexErrorInfo": info, "additionalDetails": null });
                self.notify("error", json!({ "error": error, "willRetry": true }));
            }
            Act::Compacts => {
                let item = json!({ "type": "contextCompaction", "id": self.item_id("compaction") });
                self.notify("item/started", json!({ "item": item }));
                self.notify("item/completed", json!({ "item": item }));
            }
            Act::EndsSilently => return Err(TurnEnd::Silent),
            Act::Writes(bytes) => self.peer.write(&self.filled_in(bytes)),
            Act::LongLine(bytes) => {
                for part in vec![b'x'; *bytes].chunks(64 * 1024) {
                    self.peer.write(part);
                }
                self.peer.write(b"\n");
            }
            Act::LongMessage(bytes) => self.flood(&"x".repeat(*bytes)),
            Act::EndlessLine => loop {
                self.peer.write(&[b'x'; 64 * 1024]);
            },
            Act::EndlessNoise => loop {
                self.peer.write(&b"noise\n".repeat(10_000));
            },
            Act::Floods(messages) => (0..*messages).for_each(|_| self.flood(&"x".repeat(FLOOD))),
            Act::Repeats { line, times } => {
                let line = String::from_utf8(self.filled_in(line.as_bytes())).unwrap();
                for number in 0..*times {
                    self.peer.write(format!("{}\n", line.replace("$number", &number.to_string())).as_bytes());
                }
            }
            Act::StopsReading => self.peer.stops_reading.store(true, Ordering::SeqCst),
            Act::ClosesOutput => close_output(),
            Act::Exits { code, stderr } => {
                let _ = std::io::stderr().write_all(stderr.as_bytes());
                std::process::exit(*code);
            }
            Act::Dies => {
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            }
        }
        Ok(())
    }

    fn says(&mut self, pieces: &[String], is_completed: bool) {
        let id = self.item_id("msg");
        let message = |text: &str| json!({ "type": "agentMessage", "id": id, "text": text, "phase": null });
        self.notify("item/started", json!({ "item": message("") }));
        for piece in pieces {
            self.notify("item/agentMessage/delta", json!({ "itemId": id, "delta": piece }));
        }
        if is_completed {
            let item = message(&pieces.concat());
            self.notify("item/completed", json!({ "item": item }));
            self.last = Some(item);
        }
    }

    fn thinks(&mut self, summary: &str) {
        let id = self.item_id("rs");
        let item =
            |summary: Value| json!({ "type": "reasoning", "id": id, "summary": summary, "content": [] });
        self.notify("item/started", json!({ "item": item(json!([])) }));
        let delta = json!({ "itemId": id, "delta": summary, "summaryIndex": 0 });
        self.notify("item/reasoning/summaryTextDelta", delta);
        self.notify("item/completed", json!({ "item": item(json!([summary])) }));
    }

    fn runs(&mut self, act: &CommandAct) -> Result<(), TurnEnd> {
        let id = self.item_id("call");
        let (thread, cwd) =
            self.place.as_ref().map(|place| (place.thread.clone(), place.cwd.clone())).unwrap_or_default();
        let shown = format!("/bin/bash -lc '{}'", act.command);
        let actions = json!([{ "type": "unknown", "command": act.command }]);
        let item = |status: &str, output: Value, exit: Value| {
            json!({
                "type": "commandExecution", "id": id, "command": shown, "cwd": cwd, "source": "agent", "status": status,
                "commandActions": actions, "aggregatedOutput": output, "exitCode": exit, "durationMs": null,
            })
        };
        self.notify("item/started", json!({ "item": item("inProgress", Value::Null, Value::Null) }));
        if act.asks && !self.peer.is_accepted(&thread, &act.command) {
            self.status(json!({ "type": "active", "activeFlags": ["waitingOnApproval"] }));
            let params = json!({
                "kind": "command", "itemId": id, "environmentId": "local", "reason": "Do you want to run this?",
                "command": shown, "cwd": cwd, "commandActions": actions, "availableDecisions": ["accept", "cancel"],
            });
            let decision = self.asks("item/commandExecution/requestApproval", params)?;
            self.status(json!({ "type": "active", "activeFlags": [] }));
            match decision.as_str() {
                Some("accept") => {}
                Some("acceptForSession") => self.peer.accepts(&thread, &act.command),
                other => {
                    let status = if other.is_none() { "failed" } else { "declined" };
                    self.notify("item/completed", json!({ "item": item(status, Value::Null, Value::Null) }));
                    return if other == Some("cancel") { Err(TurnEnd::Interrupted) } else { Ok(()) };
                }
            }
        }
        self.peer.control.write(LogEvent::Ran { thread, command: act.command.clone() });
        if let Some(gate) = &act.waits {
            self.waits(gate)?;
        }
        let status = if act.exit == 0 { "completed" } else { "failed" };
        self.notify("item/completed", json!({ "item": item(status, json!(act.output), json!(act.exit)) }));
        Ok(())
    }

    fn patches(&mut self, act: &PatchAct) -> Result<(), TurnEnd> {
        let id = self.item_id("call");
        let change = |(kind, path, diff): &(String, String, String)| json!({ "path": path, "kind": { "type": kind }, "diff": diff });
        let changes: Vec<Value> = act.changes.iter().map(change).collect();
        let item =
            |status: &str| json!({ "type": "fileChange", "id": id, "changes": changes, "status": status });
        self.notify("item/started", json!({ "item": item("inProgress") }));
        let mut status = "completed";
        if act.asks {
            let params = json!({ "itemId": id, "reason": null, "grantRoot": null });
            let decision = self.asks("item/fileChange/requestApproval", params)?;
            status = match decision.as_str() {
                Some("accept" | "acceptForSession") => "completed",
                Some("cancel") => {
                    self.notify("item/completed", json!({ "item": item("declined") }));
                    return Err(TurnEnd::Interrupted);
                }
                Some(_) => "declined",
                None => "failed",
            };
        }
        if status == "completed" {
            let paths: Vec<&str> = act.changes.iter().map(|(_, path, _)| path.as_str()).collect();
            let command = format!("apply_patch {}", paths.join(" "));
            let thread = self.place.as_ref().map(|place| place.thread.clone()).unwrap_or_default();
            self.peer.control.write(LogEvent::Ran { thread, command });
        }
        self.notify("item/completed", json!({ "item": item(status) }));
        Ok(())
    }

    /// Asks, and returns the decision; null if the answer has none.
    fn asks(&mut self, method: &str, params: Value) -> Result<Value, TurnEnd> {
        let id = self.peer.ask(method, self.with_ids(params), self.nudge.clone());
        self.asked = Some(id);
        loop {
            match self.nudges.recv() {
                Ok(Nudge::Answered(message)) if message["id"] == id => {
                    self.asked = None;
                    self.notify("serverRequest/resolved", json!({ "requestId": id }));
                    return Ok(message["result"]["decision"].clone());
                }
                Ok(Nudge::Answered(_) | Nudge::Opened(_)) => {}
                Ok(Nudge::Interrupted) | Err(_) => return Err(TurnEnd::Interrupted),
            }
        }
    }

    fn waits(&mut self, gate: &str) -> Result<(), TurnEnd> {
        self.peer.control.wait(gate, self.nudge.clone());
        loop {
            match self.nudges.recv() {
                Ok(Nudge::Opened(opened)) if opened == gate => return Ok(()),
                Ok(Nudge::Answered(_) | Nudge::Opened(_)) => {}
                Ok(Nudge::Interrupted) | Err(_) => return Err(TurnEnd::Interrupted),
            }
        }
    }

    fn hangs(&self) -> Result<(), TurnEnd> {
        loop {
            match self.nudges.recv() {
                Ok(Nudge::Answered(_) | Nudge::Opened(_)) => {}
                Ok(Nudge::Interrupted) | Err(_) => return Err(TurnEnd::Interrupted),
            }
        }
    }

    fn item_id(&mut self, kind: &str) -> String {
        self.items += 1;
        let turn = self.place.as_ref().map_or("none", |place| place.turn.as_str());
        format!("{kind}-{turn}-{}", self.items)
    }

    fn described(&self, status: &str, error: Value) -> Value {
        let turn = self.place.as_ref().map(|place| place.turn.as_str());
        let items: Vec<Value> = self.last.iter().cloned().collect();
        json!({ "id": turn, "items": items, "itemsView": "summary", "status": status, "error": error, "durationMs": 259 })
    }

    fn status(&self, status: Value) {
        self.notify("thread/status/changed", json!({ "status": status }));
    }

    fn notify(&self, method: &str, params: Value) {
        self.peer.notify(method, self.with_ids(params));
    }

    /// A message that means nothing, past the log.
    fn flood(&self, padding: &str) {
        let params = self.with_ids(json!({ "padding": padding }));
        self.peer.write(format!("{}\n", json!({ "method": "scripted/flood", "params": params })).as_bytes());
    }

    fn with_ids(&self, mut params: Value) -> Value {
        if let (Some(place), true) = (&self.place, params.is_object()) {
            params["threadId"] = json!(place.thread);
            params["turnId"] = json!(place.turn);
        }
        params
    }

    fn filled_in(&self, bytes: &[u8]) -> Vec<u8> {
        let Some(place) = &self.place else { return bytes.to_vec() };
        replace(&replace(bytes, b"$thread", place.thread.as_bytes()), b"$turn", place.turn.as_bytes())
    }
}

fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(old.len()).position(|window| window == old) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// Closes standard output by putting another file in its place.
fn close_output() {
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    rustix::stdio::dup2_stdout(&null).unwrap();
}
