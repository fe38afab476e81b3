//! A model agent that can be handed to codex: one agent around the two.
//!
//! Each request is made for the runtime that the agent has at that moment, and [`PreparedTurn::runtime`] says which: a
//! switch does not move a turn that runs, and a request that an earlier process stored goes to the runtime it was made
//! for. The store gives each runtime a session id of its own, so the next turn after a switch begins with the history
//! and without the thread of before.

mod control;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use talaria_platform::{BoxFuture, CancellationToken};

use crate::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentOutput, AgentTurn, AnsweringAgent, EndedSession,
    LostTurn, NamedAgent, PreparedTurn, RecoveredAnswer, ReviewRequest, ReviewResult, SharedAgent, TurnEnd,
};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::rules::{AgentRuntime, LiveRules};
pub use control::{RuntimeChange, RuntimeControl, RuntimeState, SwitchTable};
pub use report::{FixedRuntime, RuntimeRefusal};

/// The agent around a model agent and a codex agent. It is registered under the name of the first.
pub struct RuntimeSwitch {
    name: AgentName,
    own: SharedAgent,
    codex: SharedAgent,
    /// Says which of the two runs turns now.
    live: Arc<LiveRules>,
}

/// State that the switch keeps of a turn between its tries.
#[derive(Default)]
struct TurnRuntime {
    /// Codex was asked last.
    is_codex: AtomicBool,
}

impl RuntimeSwitch {
    /// `codex` runs the turns of `own` whenever `live` says so.
    pub fn new(own: NamedAgent, codex: SharedAgent, live: Arc<LiveRules>) -> Self {
        let NamedAgent { name, agent: own } = own;
        Self { name, own, codex, live }
    }

    /// The runtime of turns that begin now.
    fn runtime(&self) -> AgentRuntime {
        self.live.now().agents.runtime(&self.name)
    }

    /// The agent of a runtime.
    fn on(&self, runtime: AgentRuntime) -> &SharedAgent {
        match runtime {
            AgentRuntime::Auto => &self.own,
            AgentRuntime::CodexAppServer => &self.codex,
        }
    }
}

impl Agent for RuntimeSwitch {
    fn about(&self) -> AgentInfo {
        let (own, codex, runtime) = (self.own.about(), self.codex.about(), self.runtime());
        // A request that an earlier process stored may be for either of them.
        let resume = own.resume || codex.resume;
        match runtime {
            AgentRuntime::Auto => AgentInfo { runtime: Some(runtime), resume, ..own },
            AgentRuntime::CodexAppServer => AgentInfo {
                name: TextKey::AgentOnCodex.with("agent", own.name),
                runtime: Some(runtime),
                resume,
                // Conversations are reviewed by the model, on either runtime.
                learns: own.learns,
                reviews: own.reviews,
                ..codex
            },
        }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            let runtime = self.runtime();
            let made = self.on(runtime).prepare(turn).await;
            let made = made.map_err(|error| hinted(error, turn, runtime))?;
            Ok(PreparedTurn { runtime, ..made })
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        let runtime = prepared.runtime;
        let is_codex = runtime == AgentRuntime::CodexAppServer;
        turn.scratch.get_or_default::<TurnRuntime>().is_codex.store(is_codex, Ordering::Relaxed);
        let run = self.on(runtime).run_turn(turn, prepared, out, stop);
        match runtime {
            AgentRuntime::Auto => run,
            AgentRuntime::CodexAppServer => {
                Box::pin(async move { run.await.map_err(|error| hinted(error, turn, runtime)) })
            }
        }
    }

    fn until_resumable(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        let ran = turn.scratch.get::<TurnRuntime>();
        match ran.is_some_and(|ran| ran.is_codex.load(Ordering::Relaxed)) {
            true => self.codex.until_resumable(turn),
            false => self.own.until_resumable(turn),
        }
    }

    fn abandon(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        let ran = turn.scratch.get::<TurnRuntime>();
        match ran.is_some_and(|ran| ran.is_codex.load(Ordering::Relaxed)) {
            true => self.codex.abandon(turn),
            false => self.own.abandon(turn),
        }
    }

    fn end(&self, ended: EndedSession) -> BoxFuture<'_, ()> {
        // A model holds nothing for a session, so every report is one of codex.
        self.codex.end(ended)
    }

    fn retire(&self) {
        self.own.retire();
        self.codex.retire();
    }

    fn program_version(&self) -> Option<String> {
        self.on(self.runtime()).program_version()
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        self.on(self.runtime()).reachable()
    }

    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        self.on(self.runtime()).learn_abilities()
    }

    fn state_lines(&self) -> Vec<LocalizedText> {
        self.on(self.runtime()).state_lines()
    }

    fn operator_lines(&self) -> Vec<LocalizedText> {
        self.on(self.runtime()).operator_lines()
    }

    fn review(&self, request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
        self.own.review(request)
    }

    fn may_recover(&self, prepared: &PreparedTurn) -> bool {
        self.on(prepared.runtime).may_recover(prepared)
    }

    fn recover<'a>(
        &'a self,
        lost: LostTurn<'a>,
        out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        self.on(lost.prepared.runtime).recover(lost, out)
    }
}

/// Adds to an error of codex how to switch back, in a form that works where the question was asked.
fn hinted(error: AgentError, turn: &AgentTurn, runtime: AgentRuntime) -> AgentError {
    // A turn that is prepared again goes on by itself.
    if runtime == AgentRuntime::Auto || error.kind == AgentErrorKind::PrepareAgain {
        return error;
    }
    let AgentError { kind, words } = error;
    // Some reasons are sentences, and others are parts of one. They are so in every language.
    let is_sentence = words.to_string().trim_end().ends_with('.');
    let text = match (is_sentence, turn.asked_in_room) {
        (true, true) => TextKey::CodexFailedRoom,
        (true, false) => TextKey::CodexFailedHttp,
        (false, true) => TextKey::CodexBrokeRoom,
        (false, false) => TextKey::CodexBrokeHttp,
    };
    AgentError { kind, words: text.with("why", words) }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::agent::{
        AgentKind, Ask, AskChoice, AttemptKind, DenyReason, EqualTurns, RewindSupport, SessionMessage,
        TurnEvent,
    };
    use crate::ids::{SessionId, TurnId};
    use crate::rules::{AgentPolicy, AgentRules, Rules};

    /// An agent that notes its calls and fails every turn like this.
    struct Noting {
        kind: AgentKind,
        fails: AgentError,
        calls: Mutex<Vec<&'static str>>,
    }

    impl Noting {
        fn new(kind: AgentKind, fails: AgentErrorKind, words: &str) -> Arc<Self> {
            Arc::new(Self { kind, fails: AgentError::new(fails, words), calls: Mutex::default() })
        }

        fn note(&self, call: &'static str) {
            self.calls.lock().push(call);
        }

        fn noted(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.calls.lock())
        }
    }

    impl Agent for Noting {
        fn about(&self) -> AgentInfo {
            let is_model = self.kind == AgentKind::Model;
            AgentInfo {
                rewind: if is_model { RewindSupport::Possible } else { RewindSupport::Impossible },
                resume: !is_model,
                models: if is_model { vec!["gpt-5".to_owned()] } else { Vec::new() },
                ..AgentInfo::new(self.kind, if is_model { "model gpt-5" } else { "codex" })
            }
        }

        fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
            self.note("prepare");
            Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
        }

        fn run_turn<'a>(
            &'a self,
            _turn: &'a AgentTurn,
            _prepared: PreparedTurn,
            _out: &'a dyn AgentOutput,
            _stop: CancellationToken,
        ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
            self.note("run");
            Box::pin(async { Err(self.fails.clone()) })
        }

        fn abandon(&self, _turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
            self.note("abandon");
            None
        }

        fn end(&self, _ended: EndedSession) -> BoxFuture<'_, ()> {
            self.note("end");
            Box::pin(async {})
        }

        fn may_recover(&self, _prepared: &PreparedTurn) -> bool {
            self.note("may_recover");
            true
        }

        fn recover<'a>(
            &'a self,
            _lost: LostTurn<'a>,
            _out: &'a dyn AgentOutput,
        ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
            self.note("recover");
            Box::pin(async { None })
        }

        fn review(&self, _request: ReviewRequest) -> BoxFuture<'_, Result<ReviewResult, AgentError>> {
            self.note("review");
            Box::pin(async { Ok(ReviewResult::default()) })
        }
    }

    struct Nowhere;

    impl AgentOutput for Nowhere {
        fn emit(&self, _event: TurnEvent<'_>) {}

        fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
            Box::pin(async { AskChoice::Deny(DenyReason::Gone) })
        }

        fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// A switch around two noting agents.
    struct Scene {
        own: Arc<Noting>,
        codex: Arc<Noting>,
        live: Arc<LiveRules>,
        switch: RuntimeSwitch,
    }

    impl Scene {
        fn new(fails: AgentErrorKind, words: &str) -> Self {
            let policy = AgentPolicy { runtime: Some(AgentRuntime::Auto), ..AgentPolicy::default() };
            let agents =
                AgentRules { by_name: [(AgentName::local(), policy)].into(), ..AgentRules::default() };
            let live = LiveRules::new(Rules { agents, ..Rules::default() });
            let own = Noting::new(AgentKind::Model, fails, words);
            let codex = Noting::new(AgentKind::Codex, fails, words);
            let named = NamedAgent { name: AgentName::local(), agent: own.clone() };
            let switch = RuntimeSwitch::new(named, codex.clone(), live.clone());
            Self { own, codex, live, switch }
        }

        fn switches_to(&self, runtime: AgentRuntime) {
            self.live.override_runtime(&AgentName::local(), Some(runtime));
        }

        async fn fails(&self, turn: &AgentTurn, prepared: PreparedTurn) -> AgentError {
            let run = self.switch.run_turn(turn, prepared, &Nowhere, CancellationToken::new());
            run.await.unwrap_err()
        }
    }

    fn turn(asked_in_room: bool) -> AgentTurn {
        let turn = AgentTurn::new(TurnId("0".into()), AgentName::local(), SessionId("s".into()));
        AgentTurn { asked_in_room, attempt: AttemptKind::First, ..turn }
    }

    #[tokio::test]
    async fn a_request_goes_to_the_runtime_that_it_was_made_for() {
        let scene = Scene::new(AgentErrorKind::Refused, "No.");
        let turn = turn(true);
        let for_model = scene.switch.prepare(&turn).await.unwrap();
        scene.switches_to(AgentRuntime::CodexAppServer);
        let for_codex = scene.switch.prepare(&turn).await.unwrap();
        assert_eq!(
            (for_model.runtime, for_codex.runtime),
            (AgentRuntime::Auto, AgentRuntime::CodexAppServer)
        );
        scene.fails(&turn, for_model.clone()).await;
        assert!(scene.switch.abandon(&turn).is_none());
        assert_eq!(
            (scene.own.noted(), scene.codex.noted()),
            (vec!["prepare", "run", "abandon"], vec!["prepare"])
        );
        scene.switches_to(AgentRuntime::Auto);
        scene.fails(&turn, for_codex.clone()).await;
        assert!(scene.switch.abandon(&turn).is_none());
        scene.switch.may_recover(&for_codex);
        let lost = LostTurn { turn: &turn, prepared: &for_codex, before: EqualTurns::default() };
        scene.switch.recover(lost, &Nowhere).await;
        assert_eq!(
            (scene.own.noted(), scene.codex.noted()),
            (vec![], vec!["run", "abandon", "may_recover", "recover"])
        );
        scene.switch.may_recover(&for_model);
        assert_eq!((scene.own.noted(), scene.codex.noted()), (vec!["may_recover"], vec![]));
    }

    #[test]
    fn the_description_is_that_of_the_runtime_and_names_it() {
        let scene = Scene::new(AgentErrorKind::Refused, "No.");
        let about = scene.switch.about();
        assert_eq!((about.kind, about.runtime), (AgentKind::Model, Some(AgentRuntime::Auto)));
        assert_eq!((about.name.to_string().as_str(), about.models.len()), ("model gpt-5", 1));
        // A stored request may be for the other one.
        assert!(about.resume);
        scene.switches_to(AgentRuntime::CodexAppServer);
        let about = scene.switch.about();
        assert_eq!((about.kind, about.runtime), (AgentKind::Codex, Some(AgentRuntime::CodexAppServer)));
        assert_eq!(about.name.to_string(), "codex app-server in place of model gpt-5");
        assert_eq!((about.rewind, about.models.len()), (RewindSupport::Impossible, 0));
    }

    #[tokio::test]
    async fn the_model_reviews_and_codex_frees_on_either_runtime() {
        let scene = Scene::new(AgentErrorKind::Refused, "No.");
        for runtime in AgentRuntime::ALL {
            scene.switches_to(runtime);
            let ended = EndedSession {
                agent: AgentName::local(),
                session: SessionId("s".into()),
                upstream: serde_json::json!({ "thread": 1 }),
            };
            scene.switch.end(ended).await;
            assert_eq!((scene.own.noted(), scene.codex.noted()), (vec![], vec!["end"]), "{runtime}");
        }
    }

    #[tokio::test]
    async fn a_failure_of_codex_says_how_to_switch_back() {
        let hint = async |kind: AgentErrorKind, words: &str, in_room: bool, runtime: AgentRuntime| {
            let scene = Scene::new(kind, words);
            scene.switches_to(runtime);
            let turn = turn(in_room);
            let prepared = scene.switch.prepare(&turn).await.unwrap();
            let error = scene.fails(&turn, prepared).await;
            assert_eq!(error.kind, kind);
            error.words.to_string()
        };
        let codex = AgentRuntime::CodexAppServer;
        let (refused, cut) = (AgentErrorKind::Refused, AgentErrorKind::CutShort);
        assert_eq!(
            hint(refused, "It has ended.", true, codex).await,
            "It has ended. An admin can switch back with `/codex-runtime auto`."
        );
        assert_eq!(
            hint(refused, "It has ended.", false, codex).await,
            "It has ended. `talaria codex off` on the machine of the agent switches back."
        );
        assert_eq!(
            hint(cut, "it has ended", true, codex).await,
            "it has ended; an admin can switch back with `/codex-runtime auto`"
        );
        assert_eq!(
            hint(AgentErrorKind::Unknown { after: None }, "it has ended", false, codex).await,
            "it has ended; `talaria codex off` on the machine of the agent switches back"
        );
        assert_eq!(hint(refused, "It has ended.", true, AgentRuntime::Auto).await, "It has ended.");
        assert_eq!(hint(AgentErrorKind::PrepareAgain, "again", true, codex).await, "again");
    }
}
