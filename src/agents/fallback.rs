//! Two agents as one: a second one stands in while the first is away.
//!
//! Only a turn of which it is proven that nothing ran goes over, and what was made ready for one of them is
//! never given to the other: [`PreparedTurn::stand_in`] says whose it is, also after a crash. A [`CircuitBreaker`]
//! spares people the wait for an agent that is away, and finds out when it is back.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{BoxFuture, CancellationToken};

use super::breaker::{BreakerRoute, CircuitBreaker};
use crate::agent::{
    Agent, AgentError, AgentErrorKind, AgentInfo, AgentOutput, AgentTurn, AnsweringAgent, Ask, AskChoice,
    AttemptKind, FallbackInfo, LostTurn, PreparedTurn, RecoveredAnswer, SharedAgent, TurnEnd, TurnEvent,
};

/// An agent that names a longer wait than this is as good as away; for any other it is waited.
const LONG: Duration = Duration::from_secs(10);

/// The agent around two agents.
pub struct FallbackAgent {
    first: SharedAgent,
    second: SharedAgent,
    /// About the first; the second has nobody behind it.
    breaker: Mutex<CircuitBreaker>,
}

impl FallbackAgent {
    /// `second` stands in for `first`.
    pub fn new(first: SharedAgent, second: SharedAgent) -> Self {
        Self { first, second, breaker: Mutex::default() }
    }

    /// Makes a turn ready for the first agent, unless that is away.
    async fn prepare_first(&self, turn: &AgentTurn) -> Option<Result<PreparedTurn, AgentError>> {
        if turn.elsewhere {
            return None;
        }
        // Not in the `match`, which would hold the lock over the question.
        let route = self.breaker().route(now());
        match route {
            BreakerRoute::Around => return None,
            BreakerRoute::Probe => {
                if let Err(error) = self.first.reachable().await
                    && error.kind != AgentErrorKind::Refused
                {
                    self.failed(&error.words);
                    return None;
                }
            }
            BreakerRoute::Agent => {}
        }
        match self.first.prepare(turn).await {
            Err(error) if is_away(&error) => {
                self.failed(&error.words);
                None
            }
            made => Some(made),
        }
    }

    /// Runs a turn at the first agent and learns from how it goes.
    async fn run_first(
        &self,
        turn: &AgentTurn,
        prepared: PreparedTurn,
        out: &dyn AgentOutput,
        stop: CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let out = ListeningOutput { out, agent: self, heard: AtomicBool::new(false) };
        let end = self.first.run_turn(turn, prepared, &out, stop).await;
        match &end {
            Ok(TurnEnd::Done | TurnEnd::Limit) => self.closed(CircuitBreaker::succeeded),
            // Whoever stopped it did not say anything about the agent.
            Ok(TurnEnd::Stopped) => {}
            Err(error) => match error.kind {
                // It is there: only busy, or it does not like this turn.
                AgentErrorKind::NothingRan { .. } | AgentErrorKind::Busy { .. } if !is_away(error) => {
                    self.closed(CircuitBreaker::answered)
                }
                AgentErrorKind::Refused | AgentErrorKind::Unfit | AgentErrorKind::CutShort => {
                    self.closed(CircuitBreaker::answered)
                }
                // Not connected, lost before the first byte, or lost in the middle.
                AgentErrorKind::NothingRan { .. }
                | AgentErrorKind::Busy { .. }
                | AgentErrorKind::Unknown { .. }
                | AgentErrorKind::Elsewhere => self.failed(&error.words),
            },
        }
        end.map_err(|error| match turn.attempt {
            AttemptKind::First if is_away(&error) => AgentError { kind: AgentErrorKind::Elsewhere, ..error },
            // An earlier try may have run, so only the same agent may be asked again.
            AttemptKind::First | AttemptKind::Resume => error,
        })
    }

    fn failed(&self, why: impl fmt::Display) {
        if self.breaker().failed(now()) {
            tracing::warn!(
                %why,
                stand_in = %self.second.about().name,
                "the agent is away; the stand-in answers"
            );
        }
    }

    /// The agent is there, as `news` tells the breaker.
    fn closed(&self, news: impl FnOnce(&mut CircuitBreaker) -> bool) {
        if news(&mut self.breaker()) {
            tracing::info!(agent = %self.first.about().name, "the agent is back");
        }
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock()
    }
}

impl Agent for FallbackAgent {
    fn about(&self) -> AgentInfo {
        let stand_in = FallbackInfo { name: self.second.about().name, answers: self.breaker().is_open() };
        AgentInfo { stand_in: Some(stand_in), ..self.first.about() }
    }

    fn prepare<'a>(&'a self, turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
        Box::pin(async move {
            if let Some(made) = self.prepare_first(turn).await {
                return made;
            }
            tracing::info!(agent = %self.second.about().name, "the stand-in answers this turn");
            Ok(PreparedTurn { stand_in: true, ..self.second.prepare(turn).await? })
        })
    }

    fn run_turn<'a>(
        &'a self,
        turn: &'a AgentTurn,
        prepared: PreparedTurn,
        out: &'a dyn AgentOutput,
        stop: CancellationToken,
    ) -> BoxFuture<'a, Result<TurnEnd, AgentError>> {
        match prepared.stand_in {
            true => self.second.run_turn(turn, prepared, out, stop),
            false => Box::pin(self.run_first(turn, prepared, out, stop)),
        }
    }

    fn abandon(&self, turn: &AgentTurn) {
        // Whoever stands in keeps nothing that runs alone.
        self.first.abandon(turn);
    }

    fn reachable(&self) -> BoxFuture<'_, Result<AnsweringAgent, AgentError>> {
        Box::pin(async move {
            match self.first.reachable().await {
                Err(error)
                    if error.kind != AgentErrorKind::Refused && self.second.reachable().await.is_ok() =>
                {
                    Ok(AnsweringAgent::StandIn)
                }
                reached => reached,
            }
        })
    }

    fn learn_abilities(&self) -> BoxFuture<'_, ()> {
        self.first.learn_abilities()
    }

    fn may_recover(&self) -> bool {
        self.first.may_recover()
    }

    fn recover<'a>(
        &'a self,
        lost: LostTurn<'a>,
        out: &'a dyn AgentOutput,
    ) -> BoxFuture<'a, Option<RecoveredAnswer>> {
        match lost.prepared.stand_in {
            true => self.second.recover(lost, out),
            false => self.first.recover(lost, out),
        }
    }
}

/// Whether nothing ran and the agent does not come back in a moment.
fn is_away(error: &AgentError) -> bool {
    match error.kind {
        AgentErrorKind::NothingRan { after } => after.is_none_or(|after| after > LONG),
        AgentErrorKind::Busy { after, .. } => after.is_some_and(|after| after > LONG),
        AgentErrorKind::Unknown { .. }
        | AgentErrorKind::Elsewhere
        | AgentErrorKind::Refused
        | AgentErrorKind::Unfit
        | AgentErrorKind::CutShort => false,
    }
}

/// The time that a paused test clock shows too.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Hands everything on, and notices the first sign of life.
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

    fn replace_text(&self, text: &str) {
        self.out.replace_text(text);
    }

    fn wait_for_room(&self) -> Option<BoxFuture<'_, Result<(), AgentError>>> {
        self.out.wait_for_room()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::{AgentKind, DenyReason, RewindSupport, TurnOrigin};
    use crate::ids::{SessionId, TurnId};

    /// An agent that every turn fails at, in this way.
    struct Fails(AgentErrorKind);

    impl Agent for Fails {
        fn about(&self) -> AgentInfo {
            AgentInfo {
                kind: AgentKind::Model,
                name: "fails".into(),
                rewind: RewindSupport::Possible,
                resume: false,
                stand_in: None,
            }
        }

        fn prepare<'a>(&'a self, _turn: &'a AgentTurn) -> BoxFuture<'a, Result<PreparedTurn, AgentError>> {
            Box::pin(async { Ok(PreparedTurn::default()) })
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
    }

    /// What the engine is told of a turn that fails like this.
    async fn told(kind: AgentErrorKind, attempt: AttemptKind, stand_in: bool) -> Option<AgentErrorKind> {
        let fallback = FallbackAgent::new(Arc::new(Fails(kind)), Arc::new(Fails(kind)));
        let turn = AgentTurn {
            id: TurnId("0".into()),
            session: SessionId("s".into()),
            context: String::new(),
            history: Vec::new(),
            prompt: "hi".into(),
            parts: Vec::new(),
            images: Vec::new(),
            files: Vec::new(),
            key: "k".into(),
            origin: TurnOrigin::default(),
            attempt,
            elsewhere: false,
            params: crate::agent::ModelParams::default(),
            memory: None,
            hops: 0,
            scratch: crate::agent::AgentScratch::default(),
        };
        let prepared = PreparedTurn { stand_in, ..PreparedTurn::default() };
        let end = fallback.run_turn(&turn, prepared.clone(), &Nowhere, CancellationToken::new()).await;
        end.err().map(|error| error.kind)
    }

    #[tokio::test]
    async fn only_a_turn_of_which_nothing_ran_is_passed_on() {
        let nothing = AgentErrorKind::NothingRan { after: None };
        let soon_back = AgentErrorKind::NothingRan { after: Some(LONG) };
        let busy_for = |after| AgentErrorKind::Busy { after, rate_limited: true };
        let (busy, busy_a_while) = (busy_for(None), busy_for(Some(LONG)));
        let busy_for_long = busy_for(Some(LONG + Duration::from_secs(1)));
        let unknown = AgentErrorKind::Unknown { after: None };
        for kind in [nothing, busy_for_long] {
            assert_eq!(told(kind, AttemptKind::First, false).await, Some(AgentErrorKind::Elsewhere));
        }
        for (kind, attempt, stand_in) in [
            (nothing, AttemptKind::Resume, false),
            (nothing, AttemptKind::First, true),
            (soon_back, AttemptKind::First, false),
            (busy, AttemptKind::First, false),
            (busy_a_while, AttemptKind::First, false),
            (unknown, AttemptKind::First, false),
            (AgentErrorKind::Refused, AttemptKind::First, false),
            (AgentErrorKind::Unfit, AttemptKind::First, false),
            (AgentErrorKind::CutShort, AttemptKind::First, false),
        ] {
            assert_eq!(told(kind, attempt, stand_in).await, Some(kind), "{attempt:?} {stand_in}");
        }
    }
}
