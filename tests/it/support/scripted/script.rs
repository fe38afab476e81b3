//! The script of one run: the agent's words, steps, asks and end, in order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use talaria::agent::{
    AgentError, AgentErrorKind, AgentOutput, Ask, SessionMessage, Step, StepState, TokenUsage, TurnEnd,
    TurnEvent,
};
use talaria::i18n::LocalizedText;
use talaria_platform::CancellationToken;
use tokio::sync::{Notify, watch};

use super::{Scripted, ask, lock};

/// The agent's actions in one run.
#[derive(Clone)]
pub struct Script(Arc<Inner>);

struct Inner {
    lines: Mutex<Vec<Does>>,
    when: Mutex<Option<String>>,
    hanging: watch::Sender<bool>,
    go_on: Notify,
    told_to_stop: watch::Sender<bool>,
}

#[derive(Clone)]
enum Does {
    Says(String),
    Thinks(String),
    Steps(Step),
    Notes(Option<String>),
    Remarks(LocalizedText),
    Uses(TokenUsage),
    Records(SessionMessage),
    Reports(serde_json::Value),
    Facts(serde_json::Value),
    Line(String),
    Whole(String),
    Waits(Duration),
    Hangs,
    /// Hangs, and when it is asked to stop reports that nothing ran.
    HangsUnsent(AgentError),
    IgnoresStop,
    Fails(AgentError),
    Ends(TurnEnd),
    Panics,
    /// Asks all of these at once and waits for every answer.
    Asks(Vec<Ask>),
    /// Asks, and does not wait for the answer.
    AsksBriefly(Ask, Duration),
}

impl Script {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            lines: Mutex::default(),
            when: Mutex::default(),
            hanging: watch::Sender::new(false),
            go_on: Notify::new(),
            told_to_stop: watch::Sender::new(false),
        }))
    }

    /// Whether the script is for a turn with this prompt.
    pub(super) fn fits(&self, prompt: &str) -> bool {
        lock(&self.0.when).as_ref().is_none_or(|words| prompt.contains(words))
    }

    /// Uses the script only for a turn whose prompt contains these words.
    pub fn when(self, words: &str) -> Self {
        *lock(&self.0.when) = Some(words.to_owned());
        self
    }

    /// Emits pieces of text, at once.
    pub fn says<'a>(self, pieces: impl IntoIterator<Item = &'a str>) -> Self {
        pieces.into_iter().fold(self, |script, piece| script.does(Does::Says(piece.to_owned())))
    }

    /// Emits pieces of text with a pause after each.
    pub fn says_slowly<'a>(self, pause: Duration, pieces: impl IntoIterator<Item = &'a str>) -> Self {
        pieces.into_iter().fold(self, |script, piece| script.says([piece]).waits(pause))
    }

    pub fn thinks(self, text: &str) -> Self {
        self.does(Does::Thinks(text.to_owned()))
    }

    pub fn step(self, id: &str, title: &str, state: StepState) -> Self {
        self.does(Does::Steps(Step { id: id.to_owned(), title: title.to_owned(), detail: None, state }))
    }

    pub fn notes(self, words: Option<&str>) -> Self {
        self.does(Does::Notes(words.map(ToOwned::to_owned)))
    }

    pub fn remarks(self, words: impl Into<LocalizedText>) -> Self {
        self.does(Does::Remarks(words.into()))
    }

    /// Reports a final text, which may differ from the streamed one.
    pub fn whole(self, text: &str) -> Self {
        self.does(Does::Whole(text.to_owned()))
    }

    /// Reports the token usage of the turn.
    pub fn uses(self, input: u64, output: u64) -> Self {
        self.does(Does::Uses(TokenUsage { input, output }))
    }

    /// Reports messages of its transcript.
    pub fn records(self, records: impl IntoIterator<Item = SessionMessage>) -> Self {
        records.into_iter().fold(self, |script, record| script.does(Does::Records(record)))
    }

    /// Reports something about the session.
    pub fn reports(self, report: serde_json::Value) -> Self {
        self.does(Does::Reports(report))
    }

    /// Reports names and values about the run.
    pub fn facts(self, facts: serde_json::Value) -> Self {
        self.does(Does::Facts(facts))
    }

    /// Passes on lines of its own protocol.
    pub fn lines<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Self {
        lines.into_iter().fold(self, |script, line| script.does(Does::Line(line.to_owned())))
    }

    pub fn waits(self, pause: Duration) -> Self {
        self.does(Does::Waits(pause))
    }

    /// Does nothing until it is stopped or [`goes_on`](Self::goes_on).
    pub fn then_hangs(self) -> Self {
        self.does(Does::Hangs)
    }

    /// Tries to connect until it is stopped, and then fails.
    pub fn then_cannot_connect(self, kind: AgentErrorKind, words: &str) -> Self {
        self.does(Does::HangsUnsent(AgentError::new(kind, words)))
    }

    /// Does nothing for ever, even when it is asked to stop.
    pub fn then_ignores_everything(self) -> Self {
        self.does(Does::IgnoresStop)
    }

    pub fn then_fails(self, kind: AgentErrorKind, words: impl Into<LocalizedText>) -> Self {
        self.does(Does::Fails(AgentError::new(kind, words)))
    }

    pub fn then_ends(self, end: TurnEnd) -> Self {
        self.does(Does::Ends(end))
    }

    pub fn then_panics(self) -> Self {
        self.does(Does::Panics)
    }

    /// Asks whether it may do this, and does it only if allowed.
    pub fn asks(self, title: &str, detail: &str) -> Self {
        self.asks_all([ask(title, detail)])
    }

    /// Asks all of these at once.
    pub fn asks_all(self, asks: impl IntoIterator<Item = Ask>) -> Self {
        self.does(Does::Asks(asks.into_iter().collect()))
    }

    /// Asks, and withdraws the ask after a while.
    pub fn asks_briefly(self, patience: Duration, title: &str, detail: &str) -> Self {
        self.does(Does::AsksBriefly(ask(title, detail), patience))
    }

    /// Waits until the script has reached a [`then_hangs`](Self::then_hangs).
    pub async fn is_hanging(&self) {
        let _ = self.0.hanging.subscribe().wait_for(|hanging| *hanging).await;
    }

    /// Whether it was asked to stop while it hung; being dropped does not count.
    pub fn was_told_to_stop(&self) -> bool {
        *self.0.told_to_stop.borrow()
    }

    /// Waits until it was asked to stop.
    pub async fn is_told_to_stop(&self) {
        let _ = self.0.told_to_stop.subscribe().wait_for(|told| *told).await;
    }

    /// Ends the hanging.
    pub fn goes_on(&self) {
        self.0.go_on.notify_one();
    }

    fn does(self, what: Does) -> Self {
        lock(&self.0.lines).push(what);
        self
    }

    pub(super) async fn run(
        &self,
        agent: &Scripted,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let lines = lock(&self.0.lines).clone();
        for line in lines {
            match line {
                Does::Says(text) => out.emit(TurnEvent::Text(&text)),
                Does::Thinks(text) => out.emit(TurnEvent::Thought(&text)),
                Does::Steps(step) => out.emit(TurnEvent::Step(step)),
                Does::Notes(words) => out.emit(TurnEvent::Notice(words.map(Into::into))),
                Does::Remarks(words) => out.emit(TurnEvent::Remark(words)),
                Does::Uses(usage) => out.emit(TurnEvent::Usage(usage)),
                Does::Records(record) => out.record(record).await?,
                Does::Reports(report) => out.emit(TurnEvent::Upstream(report)),
                Does::Facts(facts) => {
                    out.emit(TurnEvent::Facts(facts.as_object().cloned().unwrap_or_default()));
                }
                Does::Line(line) => out.emit(TurnEvent::Raw(&line)),
                Does::Whole(text) => out.replace_text(&text),
                Does::Waits(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.cancelled() => return Ok(TurnEnd::Stopped),
                },
                Does::Hangs => {
                    self.0.hanging.send_replace(true);
                    tokio::select! {
                        () = self.0.go_on.notified() => {}
                        () = stop.cancelled() => {
                            self.0.told_to_stop.send_replace(true);
                            return Ok(TurnEnd::Stopped);
                        }
                    }
                    self.0.hanging.send_replace(false);
                }
                Does::HangsUnsent(error) => {
                    self.0.hanging.send_replace(true);
                    stop.cancelled().await;
                    return Err(error);
                }
                Does::IgnoresStop => {
                    self.0.hanging.send_replace(true);
                    std::future::pending::<()>().await;
                }
                Does::Fails(error) => return Err(error),
                Does::Ends(end) => return Ok(end),
                Does::Panics => panic!("the script said so"),
                Does::Asks(asks) => {
                    futures_util::future::join_all(asks.into_iter().map(|ask| agent.ask(out, ask))).await;
                }
                Does::AsksBriefly(ask, patience) => {
                    let _ = tokio::time::timeout(patience, agent.ask(out, ask)).await;
                }
            }
        }
        Ok(TurnEnd::Done)
    }
}
