//! Keeps everything that an agent emits in a turn, and answers its asks.

use std::fmt;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use talaria::agent::{
    AgentError, AgentOutput, Ask, AskChoice, DenyReason, OptionKind, SessionMessage, Step, TurnEnd, TurnEvent,
};
use talaria_platform::BoxFuture;
use tokio::sync::watch;

/// The output of one turn.
pub struct Recorder {
    /// The answer to every ask; `None` allows it once.
    choice: Option<AskChoice>,
    state: Mutex<Recorded>,
    text: watch::Sender<String>,
}

#[derive(Default)]
struct Recorded {
    facts: Map<String, Value>,
    lines: Vec<Value>,
    steps: Vec<Step>,
    remarks: Vec<String>,
    asked: Vec<Ask>,
    report: Option<Value>,
    messages: Vec<SessionMessage>,
}

/// A turn that has ended.
pub struct EndedTurn {
    pub end: Result<TurnEnd, AgentError>,
    pub recorder: Recorder,
}

impl Recorder {
    pub fn new(choice: Option<AskChoice>) -> Self {
        Self { choice, state: Mutex::default(), text: watch::Sender::default() }
    }

    /// Waits until there is some text.
    pub async fn speaks(&self) {
        let mut text = self.text.subscribe();
        text.wait_for(|text| !text.is_empty()).await.unwrap();
    }

    pub fn report(&self) -> Option<Value> {
        self.state.lock().report.clone()
    }
}

impl AgentOutput for Recorder {
    fn emit(&self, event: TurnEvent<'_>) {
        let mut state = self.state.lock();
        match event {
            TurnEvent::Text(more) => self.text.send_modify(|text| text.push_str(more)),
            TurnEvent::Raw(line) => state.lines.push(serde_json::from_str(line).unwrap()),
            TurnEvent::Step(step) => state.steps.push(step),
            TurnEvent::Remark(words) => state.remarks.push(words.to_string()),
            TurnEvent::Upstream(report) => state.report = Some(report),
            TurnEvent::Facts(facts) => state.facts.extend(facts),
            TurnEvent::Thought(_)
            | TurnEvent::RawCut
            | TurnEvent::Notice(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Asked(_)
            | TurnEvent::Answered(_) => {}
        }
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        let once = ask.form.options.iter().find(|option| option.kind == OptionKind::AllowOnce);
        let allowed = once.map(|option| AskChoice::Option(option.id.clone()));
        let choice = self.choice.clone().or(allowed).unwrap_or(AskChoice::Deny(DenyReason::Person));
        self.state.lock().asked.push(ask);
        Box::pin(async move { choice })
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        self.state.lock().messages.push(message);
        Box::pin(async { Ok(()) })
    }
}

impl EndedTurn {
    pub fn text(&self) -> String {
        self.recorder.text.borrow().clone()
    }

    pub fn facts(&self) -> Map<String, Value> {
        self.recorder.state.lock().facts.clone()
    }

    pub fn lines(&self) -> Vec<Value> {
        self.recorder.state.lock().lines.clone()
    }

    pub fn steps(&self) -> Vec<Step> {
        self.recorder.state.lock().steps.clone()
    }

    pub fn remarks(&self) -> Vec<String> {
        self.recorder.state.lock().remarks.clone()
    }

    pub fn asked(&self) -> Vec<Ask> {
        self.recorder.state.lock().asked.clone()
    }
}

impl fmt::Display for EndedTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.recorder.state.lock();
        writeln!(f, "{:?}\n{}\n{:?}", self.end, *self.recorder.text.borrow(), state.facts)?;
        writeln!(f, "{:#?}\n{:#?}\n{:?}", state.asked, state.steps, state.remarks)?;
        state.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
