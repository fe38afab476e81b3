//! A turn whose surface wants the agent's own lines, on the agent alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use talaria::agent::{
    Agent as _, AgentError, AgentErrorKind, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, EndedSession,
    SessionMessage, TurnEnd, TurnEvent,
};
use talaria::agents::AgentServices;
use talaria::agents::acp::pool::AcpPool;
use talaria::agents::acp::{AcpAgent, AcpTimes};
use talaria::agents::process::{ProcessHost, count_children};
use talaria::config::AcpConfig;
use talaria::i18n::TextKey;
use talaria::ids::{AgentName, SessionId, TurnId};
use talaria_platform::{BoxFuture, CancellationToken};
use tempfile::TempDir;

use super::scripted_agent::{Act, Script, ScriptedAgent};
use crate::support::relay::services;

/// Keeps what an agent emits.
#[derive(Default)]
struct Output {
    lines: Mutex<Vec<Value>>,
    text: Mutex<String>,
    facts: Mutex<serde_json::Map<String, Value>>,
    report: Mutex<Option<Value>>,
    /// How often a report had to be on disk before the turn went on.
    stored: Mutex<u32>,
    /// The disk is full.
    stores_nothing: bool,
    /// Stops the turn when the prompt is about to be sent.
    stop: CancellationToken,
    stops_early: bool,
}

impl AgentOutput for Output {
    fn emit(&self, event: TurnEvent<'_>) {
        match event {
            TurnEvent::Raw(line) => self.lines.lock().push(serde_json::from_str(line).unwrap()),
            TurnEvent::Text(text) => self.text.lock().push_str(text),
            TurnEvent::Facts(facts) => self.facts.lock().extend(facts),
            TurnEvent::Upstream(report) => {
                if self.stops_early && report["begun"] == true {
                    self.stop.cancel();
                }
                *self.report.lock() = Some(report);
            }
            _ => {}
        }
    }

    fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(async { AskChoice::Deny(DenyReason::Person) })
    }

    fn store_upstream(&self, report: Value) -> BoxFuture<'_, Result<(), AgentError>> {
        self.emit(TurnEvent::Upstream(report));
        *self.stored.lock() += 1;
        Box::pin(async {
            match self.stores_nothing {
                true => Err(AgentError::new(AgentErrorKind::Refused, TextKey::BrokeUnrecorded)),
                false => Ok(()),
            }
        })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A pool with so many places for processes.
fn pool(folder: &TempDir, places: usize) -> Arc<AcpPool> {
    let host = ProcessHost::new(folder.path()).with_shim(env!("CARGO_BIN_EXE_talaria"));
    AcpPool::new(Arc::new(host), places)
}

/// An agent without a gateway.
struct Direct {
    scripted: ScriptedAgent,
    config: AcpConfig,
    agent: AcpAgent,
    pool: Arc<AcpPool>,
    folder: TempDir,
    /// The last report about each session.
    reports: Mutex<HashMap<String, Value>>,
}

impl Direct {
    fn new(script: &Script) -> Self {
        Self::with_places(script, 2, |_| {})
    }

    /// With so many places for processes, and a change of the agent's configuration.
    fn with_places(script: &Script, places: usize, change: impl FnOnce(&mut AcpConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::in_pool(script, pool(&folder, places), folder, change)
    }

    fn in_pool(
        script: &Script,
        pool: Arc<AcpPool>,
        folder: TempDir,
        change: impl FnOnce(&mut AcpConfig),
    ) -> Self {
        Self::with_times(script, pool, folder, change, AcpTimes::default())
    }

    fn with_times(
        script: &Script,
        pool: Arc<AcpPool>,
        folder: TempDir,
        change: impl FnOnce(&mut AcpConfig),
        times: AcpTimes,
    ) -> Self {
        let scripted = ScriptedAgent::new(script);
        let services = AgentServices { acp: pool.clone(), ..services() };
        let mut config = AcpConfig::new(scripted.command().display().to_string(), folder.path().join("work"));
        change(&mut config);
        let agent = AcpAgent::with_times(config.clone(), times, &services);
        Self { scripted, config, agent, pool, folder, reports: Mutex::default() }
    }

    async fn asks(&self, prompt: &str, wants_raw: bool) -> (Output, Result<TurnEnd, AgentError>) {
        self.runs(Output::default(), AgentTurn { wants_raw, ..self.turn("s", prompt) }).await
    }

    /// A turn of a program in this session.
    async fn asks_in(&self, session: &str, prompt: &str) -> (Output, Result<TurnEnd, AgentError>) {
        self.runs(Output::default(), self.turn(session, prompt)).await
    }

    fn turn(&self, session: &str, prompt: &str) -> AgentTurn {
        let name = AgentName::new("claude").unwrap();
        AgentTurn {
            prompt: prompt.to_owned(),
            wants_raw: true,
            folder: Some(self.folder.path().join("forge")),
            upstream: self.reports.lock().get(session).cloned(),
            ..AgentTurn::new(TurnId("t".into()), name, SessionId(session.into()))
        }
    }

    async fn runs(&self, output: Output, turn: AgentTurn) -> (Output, Result<TurnEnd, AgentError>) {
        let prepared = self.agent.prepare(&turn).await.unwrap();
        let running = self.agent.run_turn(&turn, prepared, &output, output.stop.clone());
        let end = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap();
        if let Some(report) = output.report.lock().clone() {
            self.reports.lock().insert(turn.session.0, report);
        }
        (output, end)
    }

    /// Ends the process of a session.
    async fn ends(&self, session: &str) {
        let agent = AgentName::new("claude").unwrap();
        self.agent.end(EndedSession { agent, session: SessionId(session.into()), upstream: json!({}) }).await;
    }

    /// Builds the agent anew, as a reload does. Returns the earlier one.
    fn reloads(&mut self) -> AcpAgent {
        let services = AgentServices { acp: self.pool.clone(), ..services() };
        std::mem::replace(&mut self.agent, AcpAgent::new(self.config.clone(), &services))
    }

    fn has_process(&self, session: &str) -> bool {
        self.agent.has_process(&SessionId(session.into()))
    }
}

#[tokio::test]
async fn the_lines_are_passed_on_as_they_came_with_the_final_answer_and_the_stop_reason() {
    let odd = json!({ "sessionUpdate": "of_2027", "more": [1, 2] });
    let script = Script::default()
        .turn("go", [Act::says(&["Hel", "lo"]), Act::Updates(odd.clone()), Act::stops("of_2027")]);
    let direct = Direct::new(&script);
    let (output, end) = direct.asks("go", true).await;
    assert_eq!(end, Ok(TurnEnd::Done));
    let lines = output.lines.lock().clone();
    let kinds: Vec<_> = lines.iter().map(|line| line["params"]["update"]["sessionUpdate"].as_str()).collect();
    let text = Some("agent_message_chunk");
    assert_eq!(kinds, [text, text, Some("of_2027"), None]);
    assert_eq!(lines[2]["params"]["update"], odd);
    assert_eq!(
        (&lines[3]["result"], &lines[3]["jsonrpc"]),
        (&json!({ "stopReason": "of_2027" }), &json!("2.0"))
    );
    assert_eq!(*output.text.lock(), "Hello");
    let facts = output.facts.lock().clone();
    assert_eq!(facts["stop_reason"], "of_2027");
    assert!(facts["acp_session_id"].as_str().unwrap().starts_with("session-"));
    assert_eq!(direct.scripted.received("session/new")[0]["cwd"], json!(direct.folder.path().join("forge")));
    // The prompt is passed unchanged.
    let prompt = &direct.scripted.received("session/prompt")[0]["prompt"];
    assert_eq!(*prompt, json!([{ "type": "text", "text": "go" }]));
    assert!(direct.agent.has_process(&SessionId("s".into())));
    assert!(!direct.agent.has_process(&SessionId("other".into())));

    let (output, _) = direct.asks("go", false).await;
    assert!(output.lines.lock().is_empty(), "nobody wants them");
    direct.pool.end().await;
}

#[tokio::test]
async fn a_lost_conversation_fails_the_turn_and_a_dead_agent_leaves_its_last_words() {
    let script = Script::default()
        .turn("die", [Act::says(&["Hm"]), Act::exits(3, "panic: key=sk-proj-0123456789abcdef0123 gone")]);
    let direct = Direct::new(&script);
    let (output, end) = direct.asks("die", true).await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::CutShort);
    let facts = output.facts.lock().clone();
    let stderr = facts["stderr"].as_str().unwrap();
    assert!(stderr.contains("panic:") && !stderr.contains("sk-proj-0123456789"), "{stderr}");
    assert_eq!(facts["stop_reason"], "error");

    direct.scripted.forgets_everything();
    let (output, end) = direct.asks("hello", true).await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::Refused);
    assert_eq!(output.facts.lock()["session_lost"], true);
    assert_eq!(direct.scripted.received("session/new").len(), 1, "nothing is begun silently");
    direct.pool.end().await;
}

#[tokio::test]
async fn a_process_counts_until_it_has_ended_also_if_its_turn_is_given_up_while_it_is_greeted() {
    let script = Script::default().initializing([Act::StaysAlive, Act::waits("never")]);
    let direct = Direct::new(&script);
    {
        let asking = direct.asks_in("s", "hello");
        tokio::select! {
            (_, end) = asking => panic!("{end:?}"),
            _ = direct.scripted.receives("initialize") => {}
        }
    }
    let mut looks = 0;
    while direct.pool.count() > 0 {
        looks += 1;
        tokio::task::yield_now().await;
    }
    assert!(looks > 0, "it counts when its turn is gone");
    assert_eq!(count_children(direct.folder.path()), 0, "its place was free before it had ended");
    direct.pool.end().await;
}

#[tokio::test]
async fn a_turn_waits_for_a_place_that_is_about_to_be_free() {
    let script = Script::default().turn("stay", [Act::StaysAlive, Act::says(&["I stay."])]);
    let direct = Direct::with_places(&script, 1, |_| {});
    assert_eq!(direct.asks_in("one", "stay").await.1, Ok(TurnEnd::Done));
    let ((), (_, end)) = tokio::join!(direct.ends("one"), direct.asks_in("two", "hello"));
    assert_eq!(end, Ok(TurnEnd::Done));
    direct.pool.end().await;
}

#[tokio::test]
async fn a_conversation_that_only_its_process_has_keeps_that_until_its_place_is_needed() {
    let idle = Duration::from_millis(300);
    let keeper = Direct::with_places(&Script::default().without_load(), 2, |config| config.idle = idle);
    let folder = tempfile::tempdir().unwrap();
    let other = Direct::in_pool(&Script::default(), keeper.pool.clone(), folder, |config| config.idle = idle);
    assert_eq!(keeper.asks_in("s", "my name is Ann").await.1, Ok(TurnEnd::Done));
    assert_eq!(other.asks_in("s", "hello").await.1, Ok(TurnEnd::Done));
    while other.has_process("s") {
        tokio::task::yield_now().await;
    }
    assert!(keeper.has_process("s"), "it has been idle for longer");
    assert_eq!(keeper.asks_in("s", "who am I?").await.1, Ok(TurnEnd::Done));
    assert_eq!(keeper.scripted.received("session/new").len(), 1);
    keeper.ends("s").await;
    assert!(!keeper.has_process("s"));

    // Newcomers need both places, after the time for which it is kept in any case.
    let keeper =
        Direct::with_places(&Script::default().without_load(), 2, |config| config.idle = Duration::ZERO);
    for session in ["one", "two", "three"] {
        assert_eq!(keeper.asks_in(session, "hello").await.1, Ok(TurnEnd::Done), "{session}");
    }
    assert!(!keeper.has_process("one") && keeper.has_process("two"));
    let (output, end) = keeper.asks_in("one", "hello again").await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::Refused);
    assert_eq!(output.facts.lock()["session_lost"], true, "never another conversation in its place");
    keeper.pool.end().await;
}

#[tokio::test]
async fn a_conversation_whose_only_prompt_was_refused_is_not_lost_with_its_process() {
    let script = Script::default().turn("log in", [Act::Fails { code: -32_000, message: String::new() }]);
    let direct = Direct::new(&script);
    let too_long = "x".repeat(9 * 1024 * 1024);
    for prompt in ["log in", &too_long] {
        assert!(direct.asks_in("s", prompt).await.1.is_err());
        direct.ends("s").await;
        // Agents keep nothing of a conversation without a prompt.
        direct.scripted.forgets_everything();
    }
    let (output, end) = direct.asks_in("s", "hello").await;
    assert_eq!(end, Ok(TurnEnd::Done), "{:?}", output.facts.lock());
    direct.pool.end().await;
}

#[tokio::test]
async fn a_cancel_never_overtakes_its_prompt() {
    let direct = Direct::new(&Script::default().turn("go", [Act::Hangs]));
    let output = Output { stops_early: true, ..Output::default() };
    let (output, end) = direct.runs(output, direct.turn("s", "go")).await;
    assert_eq!((end, &output.facts.lock()["stop_reason"]), (Ok(TurnEnd::Stopped), &json!("cancelled")));
    // The process is at rest and takes the next prompt.
    assert_eq!(direct.asks_in("s", "hello").await.1, Ok(TurnEnd::Done));
    assert_eq!(direct.scripted.processes().len(), 1);
    direct.pool.end().await;
}

#[tokio::test]
async fn no_prompt_is_sent_before_the_id_of_its_conversation_is_on_disk() {
    let direct = Direct::new(&Script::default());
    let full = Output { stores_nothing: true, ..Output::default() };
    let (_, end) = direct.runs(full, direct.turn("s", "hello")).await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::Refused);
    assert_eq!(direct.scripted.received("session/prompt"), Vec::<Value>::new());

    let direct = Direct::new(&Script::default());
    for (prompt, stored) in [("hello", 1), ("again", 0)] {
        let (output, end) = direct.asks_in("s", prompt).await;
        assert_eq!((end, *output.stored.lock()), (Ok(TurnEnd::Done), stored), "{prompt}");
    }
    direct.pool.end().await;
}

#[tokio::test]
async fn a_conversation_whose_id_is_too_long_to_be_stored_gets_no_prompt() {
    let answer = json!({ "sessionId": "s".repeat(5_000) });
    let direct = Direct::new(&Script { new_answer: Some(answer), ..Script::default() });
    let (output, end) = direct.asks_in("s", "hello").await;
    let error = end.unwrap_err();
    assert_eq!((error.kind, error.words), (AgentErrorKind::Refused, TextKey::BrokeAcpSession.into()));
    assert!(output.report.lock().is_none());
    assert_eq!(direct.scripted.received("session/prompt"), Vec::<Value>::new());
    direct.pool.end().await;
}

#[tokio::test]
async fn the_last_words_of_an_agent_have_none_of_the_variables_that_its_entry_gives_it() {
    let words = "no entry with open sesame here";
    let dies = [Act::exits(3, words)];
    for script in [Script::default().turn("die", dies.clone()), Script::default().starting(dies)] {
        let direct = Direct::with_places(&script, 2, |config| {
            config.env.insert("GATE".to_owned(), "open sesame".to_owned().into());
        });
        let (output, end) = direct.asks_in("s", "die").await;
        assert!(end.is_err());
        let facts = output.facts.lock().clone();
        let stderr = facts["stderr"].as_str().unwrap();
        assert!(stderr.contains("no entry with [redacted] here"), "{stderr}");
        direct.pool.end().await;
    }
}

#[tokio::test]
async fn an_agent_that_only_says_that_it_opens_conversations_again_keeps_its_process() {
    let idle = Duration::from_millis(300);
    let keeper = Direct::with_places(&Script::default(), 2, |config| {
        (config.idle, config.load) = (idle, false);
    });
    let folder = tempfile::tempdir().unwrap();
    let other = Direct::in_pool(&Script::default(), keeper.pool.clone(), folder, |config| config.idle = idle);
    assert_eq!(keeper.asks_in("s", "my name is Ann").await.1, Ok(TurnEnd::Done));
    assert_eq!(other.asks_in("s", "hello").await.1, Ok(TurnEnd::Done));
    while other.has_process("s") {
        tokio::task::yield_now().await;
    }
    assert!(keeper.has_process("s"), "it has been idle for longer");
    // Once it is gone the conversation is lost, and the agent is not asked for it.
    keeper.ends("s").await;
    let (output, end) = keeper.asks_in("s", "who am I?").await;
    assert_eq!(end.unwrap_err().kind, AgentErrorKind::Refused);
    assert_eq!(output.facts.lock()["session_lost"], true);
    assert_eq!(keeper.scripted.received("session/load"), Vec::<Value>::new());
    keeper.pool.end().await;
}

#[tokio::test]
async fn a_conversation_is_opened_again_only_after_the_process_that_a_reload_left_has_ended() {
    let mut direct = Direct::new(&Script::default().turn("stay", [Act::StaysAlive, Act::says(&["I stay."])]));
    // The first one is still held by a turn elsewhere, the second one is dropped, and its process is about to end.
    for is_held in [true, false] {
        assert_eq!(direct.asks_in("s", "stay").await.1, Ok(TurnEnd::Done));
        let earlier = direct.reloads();
        let earlier = is_held.then_some(earlier);
        assert_eq!(direct.asks_in("s", "hello").await.1, Ok(TurnEnd::Done), "{is_held}");
        assert_eq!(direct.pool.count(), 1, "{is_held}: the earlier process has ended");
        drop(earlier);
    }
    assert_eq!(direct.scripted.received("session/load").len(), 2);
    direct.pool.end().await;
}

#[tokio::test]
async fn the_model_and_the_effort_that_an_app_asks_for_are_chosen_where_the_agent_offers_them() {
    let option = |id: &str, category: &str, values: &[&str]| {
        let values: Vec<_> = values.iter().map(|value| json!({ "value": value, "name": value })).collect();
        json!({ "id": id, "category": category, "type": "select", "currentValue": "default", "options": values })
    };
    let offers = json!({ "configOptions": [
        option("model", "model", &["default", "opus"]),
        option("effort", "thought_level", &["default", "low", "high", "max"]),
    ] });
    let direct = Direct::new(&Script::default().offering(offers));
    for (model, effort) in [("opus", "high"), ("opus", "high"), ("opus", "xhigh"), ("gpt", "max")] {
        let turn = AgentTurn {
            model: Some(model.to_owned()),
            effort: Some(effort.to_owned()),
            ..direct.turn("s", "hello")
        };
        assert_eq!(direct.runs(Output::default(), turn).await.1, Ok(TurnEnd::Done), "{model} {effort}");
    }
    let changes = direct.scripted.received("session/set_config_option");
    let changes: Vec<_> =
        changes.iter().map(|change| format!("{} {}", change["configId"], change["value"])).collect();
    // Once each; what the agent does not offer costs nothing.
    assert_eq!(changes, ["\"model\" \"opus\"", "\"effort\" \"high\"", "\"effort\" \"max\""]);
    direct.pool.end().await;
}

#[tokio::test]
async fn a_program_that_is_silent_when_it_is_greeted_leaves_its_last_words() {
    let script = Script::default().initializing([Act::warns("waiting for a login"), Act::waits("never")]);
    let folder = tempfile::tempdir().unwrap();
    let times = AcpTimes { initialize: Duration::from_secs(1), ..AcpTimes::default() };
    let direct = Direct::with_times(&script, pool(&folder, 2), folder, |_| {}, times);
    let (output, end) = direct.asks_in("s", "hello").await;
    let error = end.unwrap_err();
    assert_eq!((error.kind, error.words), (AgentErrorKind::Refused, TextKey::BrokeAcpSilent.into()));
    let facts = output.facts.lock().clone();
    assert!(facts["stderr"].as_str().unwrap().contains("waiting for a login"), "{facts:?}");
    while direct.pool.count() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count_children(direct.folder.path()), 0, "it was ended");
    direct.pool.end().await;
}
