//! Two agents as one: the second answers while the first is away.
//!
//! Only a turn of which it is proven that nothing ran goes to the second agent. [`PreparedTurn::agent`] says which of
//! the two a request was made for, also after a crash, and the other one is never given it. A [`CircuitBreaker`] spares
//! people the wait for an agent that is away, and finds out when it is back.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{BoxFuture, CancellationToken};

use super::breaker::{BreakerRoute, CircuitBreaker};
use crate::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentOutput, AgentTurn, AnsweringAgent, Ask, AskChoice,
    AttemptKind, EndedSession, FallbackInfo, LostTurn, NamedAgent, PreparedTurn, RecoveredAnswer,
    SessionMessage, SharedAgent, TurnEnd, TurnEvent,
};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, SessionId};

/// An agent that names a longer wait than this counts as away; for any other the turn waits.
const LONG: Duration = Duration::from_secs(10);

/// The agent around two agents. It is registered under the name of the first.
pub struct FallbackAgent {
    first: NamedAgent,
    second: NamedAgent,
    /// About the first agent; the second has nobody behind it.
    breaker: Mutex<CircuitBreaker>,
}

/// State that the fallback keeps of a turn between its tries.
#[derive(Default)]
struct TurnRoute {
    /// The first agent was away in the try before, so the next request is made for the second.
    first_is_away: AtomicBool,
    /// The second agent was asked last.
    second_runs: AtomicBool,
}

impl FallbackAgent {
    /// `second` answers while `first` is away.
    pub fn new(first: NamedAgent, second: NamedAgent) -> Self {
        Self { first, second, breaker: Mutex::default() }
    }

    /// The agent that takes requests made for this name.
    fn named(&self, name: &AgentName) -> Option<&SharedAgent> {
        [&self.first, &self.second].into_iter().find(|one| one.name == *name).map(|one| &one.agent)
    }

    /// Whether the second agent may answer this turn. One that cannot work in the folder of the turn would know nothing of
    /// its files.
    fn may_answer(&self, turn: &AgentTurn) -> bool {
        !turn.without_fallback && (turn.folder.is_none() || self.second.agent.about().takes_folder)
    }

    /// Makes the request for the first agent, unless that is away and the second may answer.
    async fn prepare_first(&self, turn: &AgentTurn) -> Option<Result<PreparedTurn, AgentError>> {
        if !self.may_answer(turn) {
            return Some(self.first.agent.prepare(turn).await);
        }
        let route = turn.scratch.get_or_default::<TurnRoute>();
        // Only for one request: who is asked after a pause is decided then.
        if route.first_is_away.swap(false, Ordering::Relaxed) {
            return None;
        }
        // Not in the `match`, which would hold the lock over the question.
        let route = self.breaker().route(now());
        match route {
            BreakerRoute::Around => return None,
            BreakerRoute::Probe => {
                if let Err(error) = self.first.agent.reachable().await
                    && error.kind != AgentErrorKind::Refused
                {
                    self.failed(&error.words);
                    return None;
                }
            }
            BreakerRoute::Agent => {}
        }
        match self.first.agent.prepare(turn).await {
            Err(error) if is_away(&error) => {
                self.failed(&error.words);
                None
            }
            made => Some(made),
        }
    }

    /// Runs a turn at the first agent and learns from how it ends.
    async fn run_first(
        &self,
        turn: &AgentTurn,
        prepared: PreparedTurn,
        out: &dyn AgentOutput,
        stop: CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let out = ListeningOutput { out, agent: self, heard: AtomicBool::new(false) };
        let end = self.first.agent.run_turn(turn, prepared, &out, stop).await;
        match &end {
            Ok(TurnEnd::Done | TurnEnd::Limit) => self.closed(CircuitBreaker::succeeded),
            // A stop says nothing about the agent.
            Ok(TurnEnd::Stopped) => {}
            Err(error) => match error.kind {
                // The agent is there: it is only busy, or refuses this turn.
                AgentErrorKind::NothingRan { .. } | AgentErrorKind::Busy { .. } if !is_away(error) => {
                    self.closed(CircuitBreaker::answered)
                }
                AgentErrorKind::PrepareAgain
                | AgentErrorKind::Refused
                | AgentErrorKind::Unfit
                | AgentErrorKind::CutShort => self.closed(CircuitBreaker::answered),
                // Not connected, lost before the first byte, or lost in the middle.
                AgentErrorKind::NothingRan { .. }
                | AgentErrorKind::Busy { .. }
                | AgentErrorKind::Unknown { .. }
                | AgentErrorKind::Lost => self.failed(&error.words),
            },
        }
        end.map_err(|error| match turn.attempt {
            AttemptKind::First if is_away(&error) && self.may_answer(turn) => {
                turn.scratch.get_or_default::<TurnRoute>().first_is_away.store(true, Ordering::Relaxed);
                AgentError { kind: AgentErrorKind::PrepareAgain, ..error }
            }
            // An earlier try may have run, so only the same agent may be asked again.
            AttemptKind::First | AttemptKind::Resume => error,
        })
    }

    fn failed(&self, why: impl fmt::Display) {
        if self.breaker().failed(now()) {
            tracing::warn!(
                %why,
                fallback = %self.second.name,
                "the agent is away; the fallback answers"
            );
        }
    }

    /// The agent is there, as `news` tells the breaker.
    fn closed(&self, news: impl FnOnce(&mut CircuitBreaker) -> bool) {
        if news(&mut self.breaker()) {
            tracing::info!(agent = %self.first.name, "the agent is back");
        }
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock()
    }
}

impl Agent for FallbackAgent {
    fn about(&self) -> AgentInfo {
        let fallback = FallbackInfo {
            agent: self.second.name.clone(),
            about: self.second.agent.about(),
            answers: self.breaker().is_open(),
        };
        AgentInfo { fallback: Some(Box::new(fallback)), ..self.first.agent.about() }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            if let Some(made) = self.prepare_first(turn).await {
                return made.map(|made| PreparedTurn { agent: self.first.name.clone(), ..made });
            }
            tracing::info!(agent = %self.second.name, "the fallback answers this turn");
            let made = self.second.agent.prepare(&turn_of_second(turn)).await?;
            Ok(PreparedTurn { agent: self.second.name.clone(), ..made })
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        let second_runs = prepared.agent == self.second.name;
        turn.scratch.get_or_default::<TurnRoute>().second_runs.store(second_runs, Ordering::Relaxed);
        if second_runs {
            return Box::pin(async move {
                self.second.agent.run_turn(&turn_of_second(turn), prepared, out, stop).await
            });
        }
        if prepared.agent == self.first.name {
            return Box::pin(self.run_first(turn, prepared, out, stop));
        }
        Box::pin(async { Err(AgentError::new(AgentErrorKind::Refused, TextKey::CannotResume)) })
    }

    fn until_resumable(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        let route = turn.scratch.get::<TurnRoute>();
        match route.is_some_and(|route| route.second_runs.load(Ordering::Relaxed)) {
            true => self.second.agent.until_resumable(turn),
            false => self.first.agent.until_resumable(turn),
        }
    }

    fn abandon(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        let route = turn.scratch.get::<TurnRoute>();
        match route.is_some_and(|route| route.second_runs.load(Ordering::Relaxed)) {
            true => self.second.agent.abandon(turn),
            false => self.first.agent.abandon(turn),
        }
    }

    fn end(&self, ended: EndedSession) -> BoxFuture<'_, ()> {
        match self.named(&ended.agent) {
            Some(agent) => agent.end(ended),
            None => Box::pin(async {}),
        }
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        Box::pin(async move {
            match self.first.agent.reachable().await {
                Err(error)
                    if error.kind != AgentErrorKind::Refused
                        && self.second.agent.reachable().await.is_ok() =>
                {
                    Ok(AnsweringAgent::StandIn)
                }
                reached => reached,
            }
        })
    }

    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        self.first.agent.learn_abilities()
    }

    fn state_lines(&self) -> Vec<LocalizedText> {
        [&self.first, &self.second].into_iter().flat_map(|named| named.agent.state_lines()).collect()
    }

    fn operator_lines(&self) -> Vec<LocalizedText> {
        self.first.agent.operator_lines()
    }

    fn program_version(&self) -> Option<String> {
        self.first.agent.program_version()
    }

    fn has_process(&self, conversation: &SessionId) -> bool {
        self.first.agent.has_process(conversation)
    }

    fn may_recover(&self, prepared: &PreparedTurn) -> bool {
        self.named(&prepared.agent).is_some_and(|agent| agent.may_recover(prepared))
    }

    fn recover<'a>(
        &'a self,
        lost: LostTurn<'a>,
        out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        match self.named(&lost.prepared.agent) {
            Some(agent) => agent.recover(lost, out),
            None => Box::pin(async { None }),
        }
    }
}

/// The turn with the system message of the second agent.
fn turn_of_second(turn: &AgentTurn) -> AgentTurn {
    AgentTurn { context: turn.fallback_context.clone(), model: None, effort: None, ..turn.clone() }
}

/// Whether nothing ran and the agent does not come back in a moment.
fn is_away(error: &AgentError) -> bool {
    match error.kind {
        AgentErrorKind::NothingRan { after } => after.is_none_or(|after| after > LONG),
        AgentErrorKind::Busy { after, .. } => after.is_some_and(|after| after > LONG),
        AgentErrorKind::Unknown { .. }
        | AgentErrorKind::Lost
        | AgentErrorKind::PrepareAgain
        | AgentErrorKind::Refused
        | AgentErrorKind::Unfit
        | AgentErrorKind::CutShort => false,
    }
}

/// The time of tokio's clock, which a test may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Passes everything on, and notices the first sign of life.
struct ListeningOutput<'a> {
    out: &'a dyn AgentOutput,
    agent: &'a FallbackAgent,
    heard: AtomicBool,
}

impl ListeningOutput<'_> {
    fn hear(&self) {
        // Looked at first, because every few characters of every answer come through here.
        if !self.heard.load(Ordering::Relaxed) && !self.heard.swap(true, Ordering::Relaxed) {
            self.agent.closed(CircuitBreaker::answered);
        }
    }
}

impl AgentOutput for ListeningOutput<'_> {
    fn emit(&self, event: TurnEvent<'_>) {
        self.hear();
        self.out.emit(event);
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.hear();
        self.out.ask(ask)
    }

    fn still_granted(&self, asks: Vec<Ask>) -> BoxFuture<'_, bool> {
        self.out.still_granted(asks)
    }

    fn store_upstream(&self, report: serde_json::Value) -> BoxFuture<'_, Result<(), AgentError>> {
        self.out.store_upstream(report)
    }

    fn record(&self, message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        self.out.record(message)
    }

    fn replace_text(&self, text: &str) {
        self.out.replace_text(text);
    }

    fn wait_for_capacity(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.out.wait_for_capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::{AgentKind, DenyReason};
    use crate::ids::TurnId;

    /// An agent that every turn fails at, in this way.
    struct Fails(AgentErrorKind);

    impl Agent for Fails {
        fn about(&self) -> AgentInfo {
            AgentInfo::new(AgentKind::Model, "fails")
        }

        fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
            Box::pin(async { Ok(PreparedTurn::new(turn, "")) })
        }

        fn run_turn<'a>(
            &'a self,
            _turn: &'a AgentTurn,
            _prepared: PreparedTurn,
            _out: &'a dyn AgentOutput,
            _stop: CancellationToken,
        ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
            Box::pin(async { Err(AgentError::new(self.0, "no")) })
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

    /// Two agents, each of which fails every turn like this.
    fn failing(kind: AgentErrorKind) -> FallbackAgent {
        let one = |name| NamedAgent { name, agent: Arc::new(Fails(kind)) };
        FallbackAgent::new(one(AgentName::proxy()), one(AgentName::local()))
    }

    fn turn(attempt: AttemptKind) -> AgentTurn {
        AgentTurn {
            prompt: "hi".into(),
            key: "k".into(),
            attempt,
            ..AgentTurn::new(TurnId("0".into()), AgentName::proxy(), SessionId("s".into()))
        }
    }

    /// Error of a turn whose request was made for this agent.
    async fn error_at(
        fallback: &FallbackAgent,
        agent: AgentName,
        turn: &AgentTurn,
    ) -> Option<AgentErrorKind> {
        let prepared = PreparedTurn { agent, ..PreparedTurn::new(turn, "") };
        let end = fallback.run_turn(turn, prepared, &Nowhere, CancellationToken::new()).await;
        end.err().map(|error| error.kind)
    }

    const NOTHING_RAN: AgentErrorKind = AgentErrorKind::NothingRan { after: None };

    #[tokio::test]
    async fn only_a_turn_of_which_nothing_ran_is_passed_on() {
        let soon_back = AgentErrorKind::NothingRan { after: Some(LONG) };
        let busy_for = |after| AgentErrorKind::Busy { after, rate_limited: true };
        let busy_for_long = busy_for(Some(LONG + Duration::from_secs(1)));
        let (proxy, local) = (AgentName::proxy, AgentName::local);
        for kind in [NOTHING_RAN, busy_for_long] {
            let turn = turn(AttemptKind::First);
            let error = error_at(&failing(kind), proxy(), &turn).await;
            assert_eq!(error, Some(AgentErrorKind::PrepareAgain));
        }
        for (kind, attempt, agent) in [
            (NOTHING_RAN, AttemptKind::Resume, proxy()),
            (NOTHING_RAN, AttemptKind::First, local()),
            (soon_back, AttemptKind::First, proxy()),
            (busy_for(None), AttemptKind::First, proxy()),
            (busy_for(Some(LONG)), AttemptKind::First, proxy()),
            (AgentErrorKind::Unknown { after: None }, AttemptKind::First, proxy()),
            (AgentErrorKind::Lost, AttemptKind::First, proxy()),
            (AgentErrorKind::Refused, AttemptKind::First, proxy()),
            (AgentErrorKind::Unfit, AttemptKind::First, proxy()),
            (AgentErrorKind::CutShort, AttemptKind::First, proxy()),
        ] {
            let error = error_at(&failing(kind), agent.clone(), &turn(attempt)).await;
            assert_eq!(error, Some(kind), "{attempt:?} {agent}");
        }
    }

    #[tokio::test]
    async fn the_next_request_is_for_the_second_agent_and_the_one_after_it_for_either() {
        let (fallback, turn) = (failing(NOTHING_RAN), turn(AttemptKind::First));
        let made_for = async || fallback.prepare(&turn).await.unwrap().agent;
        assert_eq!(made_for().await, AgentName::proxy());
        error_at(&fallback, AgentName::proxy(), &turn).await;
        assert_eq!(made_for().await, AgentName::local());
        // One failure does not open the breaker, so the first agent is tried again after a pause.
        assert_eq!(made_for().await, AgentName::proxy());
    }

    #[tokio::test]
    async fn a_turn_that_the_second_agent_may_not_answer_stays_with_the_first() {
        let fallback = failing(NOTHING_RAN);
        let unfit = AgentTurn { without_fallback: true, ..turn(AttemptKind::First) };
        // The second agent cannot work in it.
        let in_folder = AgentTurn { folder: Some("/srv/session".into()), ..turn(AttemptKind::First) };
        for turn in [unfit, in_folder] {
            // Often enough to open the breaker.
            for _ in 0..5 {
                assert_eq!(fallback.prepare(&turn).await.unwrap().agent, AgentName::proxy());
                assert_eq!(error_at(&fallback, AgentName::proxy(), &turn).await, Some(NOTHING_RAN));
            }
        }
    }

    #[tokio::test]
    async fn a_request_of_an_agent_that_is_neither_of_the_two_is_not_sent() {
        let other = AgentName::new("other").unwrap();
        let error = error_at(&failing(NOTHING_RAN), other, &turn(AttemptKind::First)).await;
        assert_eq!(error, Some(AgentErrorKind::Refused));
    }
}
