//! Reviews of conversations with an agent that has no model loop of ours, such as codex: its turns and tools are counted,
//! and another model pays.

use std::sync::Arc;

use serde_json::json;
use talaria::agent::{
    Agent, AgentError, AgentInfo, AgentKind, AgentOutput, AgentTable, AgentTurn, LearningTools, PreparedTurn,
    ReviewRequest, ReviewResult, RewindSupport, SharedAgent, TurnEnd,
};
use talaria::agents::AgentServices;
use talaria::agents::codex::projector::Projector;
use talaria::agents::model::{AgentTools, ModelAgent};
use talaria::config::{BuiltinTool, ModelConfig, ReviewConfig};
use talaria::ids::AgentName;
use talaria_platform::{BoxFuture, CancellationToken};

use super::review::{NOTED, notes, order};
use super::support::{config_with, offered, shown, system, told};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::logged::Logged;
use crate::support::scripted::Scripted;
use crate::support::upstream::Upstream;

const BOTH: LearningTools = LearningTools { memory: true, skills: true };

/// A line of the log about a review that nobody does.
const SKIPPED: &str = "a conversation is not reviewed";

fn codex(learns: LearningTools) -> Scripted {
    Scripted::new(AgentKind::Codex, "codex", RewindSupport::Impossible, false).with_learning(learns)
}

/// A gateway whose agent is this codex, and a model agent with the tools that reviews need.
async fn gateway(codex: &Scripted, reviewer: &Upstream, review: ReviewConfig) -> TestGateway {
    let (codex, config) = (codex.clone(), config_with(reviewer, &[BuiltinTool::Memory, BuiltinTool::Skills]));
    let build = Arc::new(move |services: &AgentServices| {
        AgentTable::new(AgentName::proxy(), Arc::new(codex.clone()))
            .with(AgentName::local(), model(&config, services))
    });
    TestGateway::with(Setup { build: Some(build), review, ..Setup::default() }).await
}

fn model(config: &ModelConfig, services: &AgentServices) -> SharedAgent {
    let tools = AgentTools::new(config, services).unwrap();
    Arc::new(ModelAgent::new(config.clone(), tools).unwrap())
}

fn at(memory: u32, skills: u32, agent: Option<AgentName>) -> ReviewConfig {
    ReviewConfig { memory, skills, agent }
}

/// Asks something; codex runs so many commands, one after the other, and answers with the words in capital letters.
async fn asks(gateway: &TestGateway, codex: &Scripted, words: &str, commands: usize) {
    let mut projector = Projector::new("01a1e179-8c72-7910-b80b-e4387e1f262d");
    let mut records =
        projector.completed(&json!({ "type": "reasoning", "id": "rs_1", "summary": ["I look."] }));
    for number in 0..commands {
        records.extend(projector.completed(&json!({
            "type": "commandExecution", "id": format!("call_{words}_{number}"), "command": "ls", "cwd": "/w",
            "status": "completed", "aggregatedOutput": "the words of a command", "exitCode": 0,
        })));
    }
    // A plan is on record, and no tool.
    records.extend(projector.completed(&json!({ "type": "plan", "id": "plan_1", "text": "1. look" })));
    let answer = words.to_uppercase();
    let last = projector.completed(&json!({ "type": "agentMessage", "id": "msg_1", "text": answer }));
    codex.script().records(records).says([answer.as_str()]).records(last);
    gateway.room().says("@ann", words).await;
    shown(gateway, &answer).await;
}

#[tokio::test]
async fn each_tool_of_codex_counts_and_the_named_agent_reviews() {
    let (codex, reviewer) = (codex(BOTH), Upstream::plain().await);
    let gateway = gateway(&codex, &reviewer, at(2, 3, Some(AgentName::local()))).await;
    asks(&gateway, &codex, "one", 2).await;
    assert_eq!(order(&reviewer), "", "below both thresholds");
    reviewer.answers(notes("Ann likes tea"));
    asks(&gateway, &codex, "two", 1).await;
    gateway.room().shows(NOTED).await;
    assert_eq!(order(&reviewer), "RR");

    let review = &reviewer.prompts()[0];
    assert_eq!(offered(review), ["memory", "skills"], "two turns and three tools: both are due");
    let said = told(review);
    for line in ["[person] one", "[assistant] ONE", "[person] two", "[assistant] TWO"] {
        assert!(said[0].contains(line), "{line}: {}", said[0]);
    }
    assert!(!said[0].contains("the words of a command"), "{}", said[0]);

    // Both counters began anew: two tools and one turn are not enough, a second turn is.
    asks(&gateway, &codex, "three", 2).await;
    assert_eq!(order(&reviewer), "RR");
    asks(&gateway, &codex, "four", 0).await;
    reviewer.has_prompts(3).await;
    assert_eq!(offered(&reviewer.prompts()[2]), ["memory"]);
    assert!(system(&reviewer.prompts()[2]).contains("Ann likes tea"), "the notes are those of the person");
    assert_eq!(codex.reviews(), 0, "never on codex");
}

#[tokio::test]
async fn only_tools_that_codex_was_offered_count() {
    let (codex, reviewer) = (codex(LearningTools { memory: false, skills: true }), Upstream::plain().await);
    let mut gateway = gateway(&codex, &reviewer, at(1, 10, Some(AgentName::local()))).await;
    asks(&gateway, &codex, "one", 9).await;
    asks(&gateway, &codex, "two", 0).await;
    gateway.drain().await;
    assert_eq!((order(&reviewer).as_str(), codex.reviews()), ("", 0));
}

#[tokio::test]
async fn without_a_model_of_ours_a_review_is_skipped_with_one_line() {
    let logged = Logged::listen();
    let (codex, other) = (codex(BOTH), Upstream::plain().await);
    let mut gateway = gateway(&codex, &other, at(2, 0, None)).await;
    asks(&gateway, &codex, "one", 1).await;
    assert!(logged.with(SKIPPED).is_empty());
    asks(&gateway, &codex, "two", 1).await;
    asks(&gateway, &codex, "three", 1).await;
    gateway.drain().await;
    let lines = logged.with(SKIPPED);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("INFO") && lines[0].contains("review.agent"), "{}", lines[0]);
    assert_eq!((codex.reviews(), order(&other).as_str()), (0, ""), "nobody else is asked unless named");
    insta::assert_snapshot!(gateway.room().now(), @r"
    @ann  one
    bot   ONE
    @ann  two
    bot   TWO
    @ann  three
    bot   THREE
    ");
}

/// A model agent whose turns codex runs for now.
struct SwitchedAgent {
    codex: Scripted,
    model: SharedAgent,
}

impl Agent for SwitchedAgent {
    fn about(&self) -> AgentInfo {
        AgentInfo { reviews: self.model.about().reviews, ..self.codex.about() }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        self.codex.prepare(turn)
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        self.codex.run_turn(turn, prepared, out, stop)
    }

    fn review(&self, request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
        self.model.review(request)
    }
}

#[tokio::test]
async fn a_model_agent_that_codex_runs_for_reviews_with_its_own_model() {
    let (codex, upstream) = (codex(BOTH), Upstream::plain().await);
    let (scripted, config) = (codex.clone(), config_with(&upstream, &[BuiltinTool::Memory]));
    let build = Arc::new(move |services: &AgentServices| {
        let agent = SwitchedAgent { codex: scripted.clone(), model: model(&config, services) };
        AgentTable::new(AgentName::proxy(), Arc::new(agent))
    });
    let setup = Setup { build: Some(build), review: at(1, 1, None), ..Setup::default() };
    let gateway = TestGateway::with(setup).await;
    upstream.answers(notes("Ann likes tea"));
    asks(&gateway, &codex, "one", 1).await;
    gateway.room().shows(NOTED).await;
    assert_eq!((order(&upstream).as_str(), codex.reviews()), ("RR", 0));
    assert_eq!(offered(&upstream.prompts()[0]), ["memory"], "the model has no skills");
}
