//! Runs a turn as a run in the background, and finds its end after any break.
//!
//! A run is begun once. Its id is stored at once, so that another try, also of the next process, asks for its true state
//! and begins nothing. Without the id (the answer to the request was lost) the engine looks into the session.
//!
//! The events have one reader, and are gone when it leaves. So a try that did not begin the run trusts only the state of
//! the run, which it asks for again and again. It reads the events beside that, because they may still bring asks.
//!
//! The state has only the last message of an answer. What was said before its tool calls is in the session.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::Response;
use reqwest::header::ACCEPT;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_platform::{Backoff, BoxFuture, CancellationToken};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::UpstreamRunId;
use super::event_taker::{RunEventTaker, RunOutput, RunProgress, RunSteps, cancelled, failure};
use super::request::{addressed, hashed_prompt};
use super::status::{NoStatus, RunState, RunStatus};
use super::stop_work::StopWork;
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, AgentTurn, AttemptKind, TurnEnd, TurnEvent};
use crate::agents::proxy::approvals::PendingApprovals;
use crate::agents::proxy::capabilities::{ANSWER, body};
use crate::agents::proxy::protocol::TurnProtocol;
use crate::agents::proxy::{ProxyAgent, WHO};
use crate::i18n::TextKey;
use crate::openai::error;
use crate::openai::event_stream::EventStream;
use crate::openai::hashed_text::HashedText;
use crate::poll_when_woken::poll_when_woken;
use crate::testing::failpoint;

/// Pauses between two questions for the state of a run. A person waits for the answer; a run may take hours.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_secs(3));

/// Time for which the upstream may be away while it is asked for the state. After that the engine decides how long it
/// tries again.
const AWAY: Duration = Duration::from_secs(60);

/// The report of a run, stored with the session. See [`TurnEvent::Upstream`].
#[derive(Serialize, Deserialize)]
struct RunReport {
    /// The upstream's id of the run.
    run: String,
    /// The turn that it is the run of.
    turn: String,
}

/// The upstream does not know the run of a turn any more, so nothing there goes on with it.
#[derive(Default)]
pub(in crate::agents::proxy) struct ForgottenRun;

/// A run that is asked for and whose id is not stored yet. Kept with the turn.
#[derive(Default)]
pub(in crate::agents::proxy) struct RunBeginning {
    /// Of the last request: fires when the id is stored, or there will be none.
    begun: Mutex<CancellationToken>,
}

impl RunBeginning {
    /// A run is asked for, until the guard is dropped.
    fn begins(&self) -> DropGuard {
        let begun = CancellationToken::new();
        *self.begun.lock() = begun.clone();
        begun.drop_guard()
    }

    /// Ready when the id is stored, or there will be none.
    pub fn until_begun(&self) -> BoxFuture<'static, ()> {
        let begun = self.begun.lock().clone();
        Box::pin(async move { begun.cancelled().await })
    }
}

/// Why a run has no id.
enum NotBegun {
    /// The request was not sent, or its answer was lost.
    Unsent(reqwest::Error),
    /// No answer came in time.
    Silent,
    /// The upstream refuses.
    Refused(Box<Response>),
    /// The upstream agrees, and its answer has no id.
    Unreadable,
}

/// End of a stream of events.
enum EventsEnd {
    /// The turn is over.
    Over { end: Result<TurnEnd, AgentError>, text: FinalText },
    /// The stream broke off.
    Broken(AgentError),
    /// There is no stream.
    Absent,
}

/// What is known of the text of an answer when its run has ended.
#[derive(Default)]
pub struct FinalText {
    /// See [`RunProgress::is_whole`].
    pub is_whole: bool,
    /// See [`RunProgress::output`].
    pub output: RunOutput,
}

/// Id of the run of a turn, if an earlier try or process has stored it.
pub fn stored_run(turn: &AgentTurn) -> Option<UpstreamRunId> {
    let report = RunReport::deserialize(turn.upstream.as_ref()?).ok()?;
    UpstreamRunId::new(&report.run).filter(|_| report.turn == turn.id.0)
}

impl ProxyAgent {
    /// Begins the run of a turn, or finds it, and follows it to its end.
    pub(in crate::agents::proxy) async fn run_in_background(
        &self,
        turn: &AgentTurn,
        request: Bytes,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        let approvals = turn.scratch.get_or_default::<PendingApprovals>();
        let prompt = hashed_prompt(&request);
        let run = match turn.attempt {
            AttemptKind::First => {
                let beginning = turn.scratch.get_or_default::<RunBeginning>();
                let _begun = beginning.begins();
                match self.begin(turn, request, stop).await? {
                    Some(run) => {
                        let report = RunReport { run: run.0.clone(), turn: turn.id.0.clone() };
                        approvals.begun(Some(run.clone()));
                        // On disk before anything else: without its id nobody finds the run again.
                        if let Err(error) = out.store_upstream(json!(report)).await {
                            self.stop_run(turn).await;
                            return Err(error);
                        }
                        failpoint("run.begun");
                        run
                    }
                    None => return Ok(TurnEnd::Stopped),
                }
            }
            AttemptKind::Resume => match approvals.run().or_else(|| stored_run(turn)) {
                Some(run) => run,
                None => {
                    let words = TextKey::ConnectionError.with("who", WHO).with("why", TextKey::WhyLost);
                    return Err(AgentError::new(AgentErrorKind::Lost, words));
                }
            },
        };
        approvals.begun(Some(run.clone()));
        // Most turns need no approval, so this must cost nothing.
        let mut attending = poll_when_woken(approvals.attend(out));
        let end = tokio::select! {
            biased;
            end = self.follow(turn, (&run, &prompt), &approvals, out, stop) => end,
            never = &mut attending => match never {},
        };
        match &end {
            Ok(TurnEnd::Stopped) => self.stop_run(turn).await,
            Ok(_) => approvals.ended(),
            // The memory is full, or nobody reads: the run must not go on for nobody.
            Err(error) if error.words == TextKey::BrokeNoRoom.into() => self.stop_run(turn).await,
            Err(_) => {}
        }
        end
    }

    /// Tells the upstream to stop the run of a turn, if it has one. If this is dropped first, the work is left with the
    /// turn.
    pub(in crate::agents::proxy) async fn stop_run(&self, turn: &AgentTurn) {
        self.need_stop(turn).done().await;
    }

    /// The work of telling the upstream to stop the run of a turn, as far as it is not done. `None` if there is no run that
    /// may go on.
    pub(in crate::agents::proxy) fn stop_work(&self, turn: &AgentTurn) -> Option<BoxFuture<'static, ()>> {
        self.need_stop(turn).take()
    }

    fn need_stop(&self, turn: &AgentTurn) -> Arc<StopWork> {
        let work = turn.scratch.get_or_default::<StopWork>();
        let approvals = turn.scratch.get_or_default::<PendingApprovals>();
        if let Some(run) = approvals.run().or_else(|| stored_run(turn)) {
            approvals.ended();
            let runs = self.runs();
            work.put(async move { runs.tell_to_stop(&run).await });
        }
        work
    }

    /// Leaves the work of stopping a run whose id is not known yet with the turn. `beginning` returns the id as soon as
    /// the run has begun. People do not wait for that.
    pub(in crate::agents::proxy) fn stop_when_begun(
        &self,
        turn: &AgentTurn,
        beginning: impl Future<Output = Option<UpstreamRunId>> + Send + 'static,
    ) {
        let runs = self.runs();
        turn.scratch.get_or_default::<StopWork>().put(async move {
            if let Some(run) = beginning.await {
                runs.tell_to_stop(&run).await;
            }
        });
    }

    /// Begins a run. `None` if the turn was stopped first.
    async fn begin(
        &self,
        turn: &AgentTurn,
        request: Bytes,
        stop: &CancellationToken,
    ) -> Result<Option<UpstreamRunId>, AgentError> {
        let body = addressed(&request, &turn.session);
        drop(request);
        let request =
            self.client.post(self.url("/v1/runs")).headers(self.headers(turn, TurnProtocol::Runs)).body(body);
        // Boxed: the future that sends a request is large, and gone when the run has begun.
        let mut beginning = Box::pin(begun(request.send(), self.config.timeouts.first_byte));
        let begun = tokio::select! {
            begun = &mut beginning => begun,
            () = stop.cancelled() => {
                self.stop_when_begun(turn, async move { beginning.await.ok() });
                return Ok(None);
            }
        };
        match begun {
            Ok(run) => Ok(Some(run)),
            Err(NotBegun::Unsent(error)) => {
                tracing::warn!(error = %error.to_string(), "the upstream was not reached");
                Err(never_twice(error::request(WHO, &error.without_url())))
            }
            Err(NotBegun::Silent) => Err(never_twice(error::broken(TextKey::BrokeServerSilent))),
            Err(NotBegun::Unreadable) => Err(never_twice(error::broken(TextKey::BrokeOff))),
            Err(NotBegun::Refused(response)) => Err(never_twice(self.events().refusal(*response).await)),
        }
    }

    /// Follows a run to its end.
    async fn follow(
        &self,
        turn: &AgentTurn,
        (run, prompt): (&UpstreamRunId, &HashedText),
        approvals: &PendingApprovals,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<TurnEnd, AgentError> {
        if turn.attempt == AttemptKind::First {
            match self.read_events(turn, run, approvals, out, stop).await {
                EventsEnd::Over { end: Ok(TurnEnd::Done), text } => {
                    return self.settle_text(turn, prompt, text, out).await;
                }
                EventsEnd::Over { end, .. } => return end,
                EventsEnd::Broken(error) => return Err(error),
                EventsEnd::Absent => {}
            }
        }
        match self.await_end(turn, run, approvals, out, stop).await? {
            (TurnEnd::Done, text) => self.settle_text(turn, prompt, text, out).await,
            (end, _) => Ok(end),
        }
    }

    /// Waits for the end of a run whose events were missed, at least in part.
    async fn await_end(
        &self,
        turn: &AgentTurn,
        run: &UpstreamRunId,
        approvals: &PendingApprovals,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<(TurnEnd, FinalText), AgentError> {
        let again = turn.attempt == AttemptKind::Resume;
        let mut events = pin!(async {
            match again {
                true => self.read_events(turn, run, approvals, out, stop).await,
                false => EventsEnd::Absent,
            }
        });
        let mut state = pin!(self.poll_state(turn, run, approvals, out));
        let mut reads = true;
        let end = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break Ok((TurnEnd::Stopped, FinalText::default())),
                end = &mut state => break end,
                end = &mut events, if reads => match end {
                    EventsEnd::Over { end, text } => break end.map(|end| (end, text)),
                    EventsEnd::Broken(_) | EventsEnd::Absent => reads = false,
                },
            }
        };
        out.emit(TurnEvent::Notice(None));
        end
    }

    /// Reads the events of a run.
    async fn read_events(
        &self,
        turn: &AgentTurn,
        run: &UpstreamRunId,
        approvals: &PendingApprovals,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> EventsEnd {
        let runs = self.runs();
        let request = self.client.get(runs.address(run, "/events")).headers(self.key());
        let request = request.header(ACCEPT, "text/event-stream").send();
        let mut opening = Box::pin(tokio::time::timeout(self.config.timeouts.first_byte, request));
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = stop.cancelled() => {
                return EventsEnd::Over { end: Ok(TurnEnd::Stopped), text: FinalText::default() };
            }
        };
        drop(opening);
        let response = match opened {
            Ok(Ok(response)) if response.status().is_success() => response,
            Ok(Ok(response)) => {
                tracing::debug!(status = %response.status(), "the run has no events to be read");
                return EventsEnd::Absent;
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error.without_url(), "the events of a run were not reached");
                return EventsEnd::Broken(error::broken(TextKey::WhyLost));
            }
            Err(_) => return EventsEnd::Broken(error::broken(TextKey::BrokeServerSilent)),
        };
        failpoint("run.events");
        let mut taker = RunEventTaker {
            run,
            runs: &runs,
            approvals,
            steps: turn.scratch.get_or_default::<RunSteps>(),
            attempt: turn.attempt,
            progress: RunProgress::default(),
        };
        let end = self.events().read(response, &mut taker, out, stop).await;
        let ours = |error: &AgentError| error.words == TextKey::BrokeNoRoom.into();
        match end {
            Err(error) if !taker.progress.is_over && !ours(&error) => match error.kind {
                // No stream.
                AgentErrorKind::Refused => EventsEnd::Absent,
                // However the reading ended, the run goes on.
                _ => EventsEnd::Broken(error::broken_as(error)),
            },
            end => {
                let RunProgress { is_whole, output, .. } = taker.progress;
                EventsEnd::Over { end, text: FinalText { is_whole, output } }
            }
        }
    }

    /// Asks for the state of a run until it has ended.
    async fn poll_state(
        &self,
        turn: &AgentTurn,
        run: &UpstreamRunId,
        approvals: &PendingApprovals,
        out: &dyn AgentOutput,
    ) -> Result<(TurnEnd, FinalText), AgentError> {
        let (runs, mut backoff, mut answered) = (self.runs(), PAUSES, Instant::now());
        let (mut unseen, mut told) = (UnseenAsk::default(), false);
        loop {
            let state = runs.status(run).await.map(RunStatus::state);
            if let Ok(state) = &state
                && unseen.must_be_declined(state, approvals)
            {
                approvals.decline_unseen(run, &runs, out);
            }
            match state {
                Ok(RunState::Completed { output, usage }) => {
                    usage.into_iter().for_each(|usage| out.emit(TurnEvent::Usage(usage)));
                    let text = FinalText { is_whole: false, output: RunOutput::Reported(output) };
                    return Ok((TurnEnd::Done, text));
                }
                Ok(RunState::Failed(why)) => return Err(failure(&why)),
                Ok(RunState::Cancelled) => return Err(cancelled()),
                Ok(RunState::Working | RunState::Asks { .. } | RunState::MayAsk) => answered = Instant::now(),
                // The process that ran it has ended, or it ended long ago. The session may have the answer.
                Err(NoStatus::Gone) => {
                    turn.scratch.get_or_default::<ForgottenRun>();
                    return Err(AgentError::new(AgentErrorKind::Lost, TextKey::WhyLost));
                }
                Err(NoStatus::Odd) => return Err(AgentError::new(AgentErrorKind::Lost, TextKey::WhyLost)),
                Err(NoStatus::Refused(error)) => return Err(error),
                Err(NoStatus::NotNow(error)) if answered.elapsed() > AWAY => {
                    return Err(error::broken_as(error));
                }
                Err(NoStatus::NotNow(_)) => {}
            }
            // Once: each notice is an entry in the log of the turn, and a run may take hours.
            if !std::mem::replace(&mut told, true) {
                out.emit(TurnEvent::Notice(Some(TextKey::LookingForAnswer.into())));
            }
            tokio::time::sleep(backoff.advance()).await;
        }
    }

    fn events(&self) -> EventStream<'_> {
        EventStream { who: WHO, timeouts: &self.config.timeouts }
    }
}

/// Looks for asks at the upstream that nobody here has seen.
#[derive(Default)]
struct UnseenAsk {
    /// There was a look before.
    has_looked: bool,
    /// The time of the ask that waited at the last look, if nobody is asked about it.
    waits: Option<Option<f64>>,
}

impl UnseenAsk {
    /// Takes the state of the run at one look. An ask counts as unseen at the second look: its event may come a moment
    /// later than the state. Before the first look events may have been missed, so an ask that may be open is unseen.
    fn must_be_declined(&mut self, state: &RunState, approvals: &PendingApprovals) -> bool {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let earlier = self.waits.take();
        match state {
            RunState::MayAsk if is_first => return true,
            RunState::Asks { at } if !approvals.attends_to(*at) => self.waits = Some(*at),
            RunState::Asks { .. } | RunState::MayAsk => {}
            // No ask is open.
            RunState::Working | RunState::Completed { .. } | RunState::Failed(_) | RunState::Cancelled => {
                return false;
            }
        }
        let is_unseen = earlier.is_some_and(|earlier| !approvals.has_heard(earlier));
        self.waits.take_if(|_| is_unseen);
        is_unseen
    }
}

/// Reads the id of a run from the answer to the request that begins it.
async fn begun(
    sending: impl Future<Output = reqwest::Result<Response>>,
    patience: Duration,
) -> Result<UpstreamRunId, NotBegun> {
    let response = match tokio::time::timeout(patience, sending).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(NotBegun::Unsent(error)),
        Err(_) => return Err(NotBegun::Silent),
    };
    if !response.status().is_success() {
        return Err(NotBegun::Refused(Box::new(response)));
    }
    let read = tokio::time::timeout(patience, body(response, ANSWER)).await;
    let Ok(Ok(Some(body))) = read else { return Err(NotBegun::Unreadable) };
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    answer["run_id"].as_str().and_then(UpstreamRunId::new).ok_or(NotBegun::Unreadable)
}

/// A request that begins a run is not repeated: if the run may have begun, its answer is looked for.
fn never_twice(error: AgentError) -> AgentError {
    match error.kind {
        AgentErrorKind::Unknown { .. } => AgentError { kind: AgentErrorKind::Lost, ..error },
        AgentErrorKind::NothingRan { .. }
        | AgentErrorKind::Busy { .. }
        | AgentErrorKind::PrepareAgain
        | AgentErrorKind::Lost
        | AgentErrorKind::Refused
        | AgentErrorKind::Unfit
        | AgentErrorKind::CutShort => error,
    }
}
