//! Plays the acts of a script.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use super::agent_process::AgentProcess;
use super::script::Act;
use crate::support::scripted_process::{LogEvent, Nudge};

/// The prompt of a player.
pub(super) struct PromptPlace {
    pub id: Value,
    pub session: String,
    pub cwd: String,
    pub prompt: String,
}

/// The end of a prompt.
enum PromptEnd {
    Answer(Value),
    Cancelled,
    Error(i64, String),
}

/// Plays acts, within a prompt or before all prompts.
pub(super) struct Player {
    agent: Arc<AgentProcess>,
    place: Option<PromptPlace>,
    nudge: Sender<Nudge>,
    nudges: Receiver<Nudge>,
    /// Calls and messages so far.
    items: usize,
}

impl Player {
    /// A player outside of prompts.
    pub(super) fn alone(agent: Arc<AgentProcess>) -> Self {
        let (nudge, nudges) = channel();
        Self { agent, place: None, nudge, nudges, items: 0 }
    }

    pub(super) fn of_prompt(
        agent: Arc<AgentProcess>,
        place: PromptPlace,
        nudge: Sender<Nudge>,
        nudges: Receiver<Nudge>,
    ) -> Self {
        Self { agent, place: Some(place), nudge, nudges, items: 0 }
    }

    /// Plays acts outside of prompts.
    pub(super) fn plays(mut self, acts: &[Act]) {
        for act in acts {
            let _ = self.act(act);
        }
    }

    /// Plays a prompt to its end. Without acts it is repeated.
    pub(super) fn plays_prompt(mut self, acts: Option<Vec<Act>>) {
        let place = self.place.as_ref().expect("a prompt");
        let (id, session, prompt) = (place.id.clone(), place.session.clone(), place.prompt.clone());
        let acts = acts.unwrap_or_else(|| vec![Act::Says(vec![prompt])]);
        let usage = json!({ "inputTokens": 100, "outputTokens": 20, "totalTokens": 120 });
        let done = PromptEnd::Answer(json!({ "stopReason": "end_turn", "usage": usage }));
        let end = acts.iter().try_for_each(|act| self.act(act)).err().unwrap_or(done);
        self.agent.ended(&session);
        match end {
            PromptEnd::Answer(answer) => self.agent.send(json!({ "id": id, "result": answer })),
            PromptEnd::Cancelled => {
                self.agent.send(json!({ "id": id, "result": { "stopReason": "cancelled" } }));
            }
            PromptEnd::Error(code, message) => self.agent.refuses(&id, code, &message),
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), PromptEnd> {
        if let Ok(Nudge::Interrupted) = self.nudges.try_recv() {
            return Err(PromptEnd::Cancelled);
        }
        match act {
            Act::Says(pieces) => {
                let message = self.item_id("message");
                for piece in pieces {
                    self.chunk("agent_message_chunk", &message, piece);
                }
            }
            Act::Thinks(text) => {
                let message = self.item_id("thought");
                self.chunk("agent_thought_chunk", &message, text);
            }
            Act::Runs { command, output, asks } => return self.runs(command, output, *asks),
            Act::Updates(update) => self.update(update.clone()),
            Act::Asks { method, params } => drop(self.asks(method, params.clone())?),
            Act::Sends { method, params } => {
                self.agent.ask(method, self.with_session(params.clone()), self.nudge.clone());
            }
            Act::Notifies { method, params } => {
                self.agent.send(json!({ "method": method, "params": self.with_session(params.clone()) }));
            }
            Act::Waits(gate) => return self.waits(gate),
            Act::Hangs => return self.waits("never"),
            Act::Ends(answer) => return Err(PromptEnd::Answer(answer.clone())),
            Act::Fails { code, message } => return Err(PromptEnd::Error(*code, message.clone())),
            Act::Writes(bytes) => self.agent.write(bytes),
            Act::LongLine(bytes) => {
                for part in vec![b'x'; *bytes].chunks(64 * 1024) {
                    self.agent.write(part);
                }
                self.agent.write(b"\n");
            }
            Act::LongMessage(bytes) => {
                self.quiet_update(json!({ "sessionUpdate": "padding", "padding": "x".repeat(*bytes) }));
            }
            Act::EndlessLine => loop {
                self.agent.write(&[b'x'; 64 * 1024]);
            },
            Act::Floods(pieces) => {
                let text = json!({ "type": "text", "text": "0123456789" });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": text });
                (0..*pieces).for_each(|_| self.quiet_update(update.clone()));
            }
            Act::Warns(words) => {
                let _ = std::io::stderr().write_all(words.as_bytes());
            }
            Act::Exits { code, stderr } => {
                let _ = std::io::stderr().write_all(stderr.as_bytes());
                std::process::exit(*code);
            }
            Act::StaysAlive => {
                self.agent.stays_alive.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    fn runs(&mut self, command: &str, output: &str, asks: bool) -> Result<(), PromptEnd> {
        let (id, cwd) = (self.item_id("call"), self.place.as_ref().map(|place| place.cwd.clone()));
        let session = self.place.as_ref().map(|place| place.session.clone()).unwrap_or_default();
        let input = json!({ "command": command, "cwd": cwd });
        self.update(
            json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": command, "kind": "execute",
            "status": "in_progress", "rawInput": input }),
        );
        if asks {
            let call = json!({ "toolCallId": id, "title": command, "kind": "execute", "status": "pending", "rawInput": input });
            let options = json!([
                { "optionId": "yes", "name": "Yes, proceed", "kind": "allow_once" },
                { "optionId": "ever", "name": "Yes, and always", "kind": "allow_always" },
                { "optionId": "no", "name": "No", "kind": "reject_once" },
            ]);
            let params = json!({ "toolCall": call, "options": options });
            let outcome = self.asks("session/request_permission", params)?;
            match outcome["outcome"]["optionId"].as_str() {
                Some("yes" | "ever") => {}
                Some(_) => {
                    self.update(
                        json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed" }),
                    );
                    return Ok(());
                }
                None => return Err(PromptEnd::Cancelled),
            }
        }
        self.agent.control.write(LogEvent::Ran { thread: session, command: command.to_owned() });
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed",
            "rawOutput": { "output": output } }));
        Ok(())
    }

    /// Asks, and returns the result; null for an error.
    fn asks(&mut self, method: &str, params: Value) -> Result<Value, PromptEnd> {
        let id = self.agent.ask(method, self.with_session(params), self.nudge.clone());
        loop {
            match self.nudges.recv() {
                Ok(Nudge::Answered(message)) if message["id"] == id => return Ok(message["result"].clone()),
                Ok(Nudge::Answered(_) | Nudge::Opened(_)) => {}
                Ok(Nudge::Interrupted) | Err(_) => return Err(PromptEnd::Cancelled),
            }
        }
    }

    fn waits(&mut self, gate: &str) -> Result<(), PromptEnd> {
        self.agent.control.wait(gate, self.nudge.clone());
        loop {
            match self.nudges.recv() {
                Ok(Nudge::Opened(opened)) if opened == gate => return Ok(()),
                Ok(Nudge::Answered(_) | Nudge::Opened(_)) => {}
                Ok(Nudge::Interrupted) | Err(_) => return Err(PromptEnd::Cancelled),
            }
        }
    }

    fn item_id(&mut self, kind: &str) -> String {
        self.items += 1;
        format!("{kind}-{}", self.items)
    }

    fn chunk(&self, kind: &str, message: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.update(json!({ "sessionUpdate": kind, "messageId": message, "content": content }));
    }

    fn update(&self, update: Value) {
        let params = self.with_session(json!({ "update": update }));
        self.agent.send(json!({ "method": "session/update", "params": params }));
    }

    /// An update past the log.
    fn quiet_update(&self, update: Value) {
        let params = self.with_session(json!({ "update": update }));
        let message = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
        self.agent.write(format!("{message}\n").as_bytes());
    }

    fn with_session(&self, mut params: Value) -> Value {
        if let (Some(place), true) = (&self.place, params.is_object() && params["sessionId"].is_null()) {
            params["sessionId"] = json!(place.session);
        }
        params
    }
}
