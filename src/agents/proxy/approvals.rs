//! Asks of the upstream, until people here have answered them.
//!
//! An ask comes as an event of the stream and becomes an ask of this agent, with the same options; its answer goes back
//! as a request of its own. Meanwhile the stream is read on. The list belongs to the turn, not to one attempt of it: a
//! stream that is read again from its beginning repeats its asks, and none is asked twice. At the end of the turn every
//! open ask is withdrawn. For asks without ids see `AskOrder`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use talaria_platform::{BoxFuture, CancellationToken};
use tokio::sync::Notify;

use super::runs::ask_order::{AskOrder, AskPlace};
use super::runs::run_event::UnnamedAsk;
use super::runs::{AnswerReceipt, AskAddress, UpstreamRunId, UpstreamRuns};
use crate::agent::{AgentOutput, AnswerForm, Ask, AskChoice, AttemptKind, TurnEvent};
use crate::i18n::{LocalizedText, TextKey};
use crate::openai::wire::ApprovalEvent;
use crate::util::code_span;

/// Asks of one turn that are remembered. The engine refuses sooner; this bounds the memory that an upstream can fill.
const MOST: usize = 200;

/// Delay of an ask of a stream that is read again. If it was answered before, the stream says so a moment later, and
/// nobody needs to be asked.
const SETTLE: Duration = Duration::from_millis(250);

/// Characters of a title in a notice.
const TITLE: usize = 60;

/// The asks of one turn.
#[derive(Default)]
pub(super) struct PendingApprovals {
    inner: Mutex<PendingState>,
    /// Notified when an ask has come.
    came: Notify,
}

#[derive(Default)]
struct PendingState {
    /// The upstream's name for the run; `None` before it has answered, and again when the run is over.
    run: Option<UpstreamRunId>,
    /// Every ask that came, open or not, by the upstream's id or ours.
    known: HashMap<String, AskTokens>,
    /// Asks without an answer, and answers that the upstream does not have yet.
    open: FuturesUnordered<BoxFuture<'static, ApprovalOutcome>>,
    /// The asks without an id of the upstream's.
    order: AskOrder,
}

/// What became of an ask at the upstream.
#[derive(Clone, Default)]
struct AskTokens {
    /// Fires when nobody needs to answer any more.
    gone: CancellationToken,
    /// Fires when the upstream has an answer.
    answered: CancellationToken,
}

impl AskTokens {
    /// The upstream has an answer: from somebody else, or from us.
    fn answer(&self) {
        self.gone.cancel();
        self.answered.cancel();
    }
}

/// Result of an ask of the upstream.
struct ApprovalOutcome {
    /// The upstream's id of the ask, or ours; empty for none.
    id: String,
    /// If a person answered and the upstream does not have the answer: a text for the room.
    unheard: Option<LocalizedText>,
}

impl PendingApprovals {
    /// The run has begun, or is read again.
    pub fn begun(&self, run: Option<UpstreamRunId>) {
        let mut inner = self.inner();
        inner.run = run.or(inner.run.take());
    }

    /// The run is over.
    pub fn ended(&self) {
        self.inner().run = None;
    }

    /// The run that may still go on, if there is one.
    pub fn run(&self) -> Option<UpstreamRunId> {
        self.inner().run.clone()
    }

    /// Takes an event of the stream about an ask.
    pub fn hear(
        &self,
        approval: ApprovalEvent<'_>,
        attempt: AttemptKind,
        runs: &UpstreamRuns,
        out: &dyn AgentOutput,
    ) {
        let mut inner = self.inner();
        match approval {
            ApprovalEvent::Answered { id } => {
                // Somebody answered it elsewhere, or it is our own answer.
                if let Some(tokens) = inner.known.get(id.as_ref()) {
                    tokens.answer();
                }
            }
            ApprovalEvent::Asked { id, .. } if inner.known.contains_key(id.as_ref()) => {}
            ApprovalEvent::Asked { .. } if inner.known.len() >= MOST => {
                tracing::warn!("the upstream asks without end; what it asks now it denies by itself");
            }
            ApprovalEvent::Asked { id, run, title, detail, cwd, reason, form } => {
                let run = run.and_then(|run| UpstreamRunId::new(&run)).or_else(|| inner.run.clone());
                let Some(run) = run else {
                    tracing::warn!("the upstream asks and does not say for which run; it denies by itself");
                    return;
                };
                let id = id.into_owned();
                let ask = Ask {
                    title: title.into_owned().into(),
                    detail: detail.into_owned(),
                    cwd: cwd.map(|cwd| cwd.into_owned()),
                    reason: reason.map(|reason| reason.into_owned()),
                    form,
                };
                let address = AskAddress::Id(id.clone());
                self.open(&mut inner, NewAsk { id, address, run, ask, attempt }, runs, out);
            }
        }
    }

    /// Takes an ask without an id. `step`: id and tool of the call that it is about, as far as is known.
    pub fn hear_unnamed(
        &self,
        asked: UnnamedAsk,
        step: Option<(String, String)>,
        (run, runs): (&UpstreamRunId, &UpstreamRuns),
        attempt: AttemptKind,
        out: &dyn AgentOutput,
    ) {
        let mut inner = self.inner();
        let UnnamedAsk { command, description, asked_at } = asked;
        let id = match asked_at {
            Some(at) => format!("at {at}"),
            None => format!("number {}", inner.known.len()),
        };
        if inner.known.contains_key(&id) || inner.known.len() >= MOST {
            return;
        }
        let (step, tool) = step.unzip();
        if let AskPlace::Beside(other) = inner.order.place(&id, step) {
            tracing::warn!("the upstream asks two things at once, and an answer could be for either");
            if let Some(tokens) = inner.known.get(&other) {
                tokens.gone.cancel();
            }
            inner.known.insert(id, AskTokens::default());
            let (run, runs) = (run.clone(), runs.clone());
            inner.open.push(Box::pin(async move {
                runs.decline_all(&run).await;
                ApprovalOutcome { id: String::new(), unheard: None }
            }));
            drop(inner);
            self.came.notify_one();
            out.emit(TurnEvent::Remark(TextKey::RunDeclinedSeveral.into()));
            return;
        }
        let title = tool.filter(|tool| !tool.is_empty()).map(LocalizedText::from);
        let ask = Ask {
            title: title.unwrap_or_else(|| TextKey::AgentRemote.into()),
            detail: command,
            cwd: None,
            reason: description,
            form: AnswerForm::default(),
        };
        let address = AskAddress::Oldest { asked_at };
        self.open(&mut inner, NewAsk { id, address, run: run.clone(), ask, attempt }, runs, out);
    }

    /// The upstream has an answer to its ask without an id.
    pub fn unnamed_answered(&self) {
        let mut inner = self.inner();
        if let Some(id) = inner.order.answered()
            && let Some(tokens) = inner.known.get(&id)
        {
            tokens.answer();
        }
    }

    /// A tool call has ended. If somebody was asked about it, the upstream has stopped waiting; an answer that is on its
    /// way is not taken back.
    pub fn step_ended(&self, step: &str) {
        let mut inner = self.inner();
        if let Some(id) = inner.order.step_ended(step)
            && let Some(tokens) = inner.known.get(&id)
        {
            tokens.gone.cancel();
        }
    }

    /// Whether somebody is asked now, or an answer is on its way.
    pub fn is_asking(&self) -> bool {
        !self.inner().open.is_empty()
    }

    fn open(&self, inner: &mut PendingState, new: NewAsk, runs: &UpstreamRuns, out: &dyn AgentOutput) {
        let NewAsk { id, address, run, ask, attempt } = new;
        let settle = match attempt {
            AttemptKind::First => Duration::ZERO,
            AttemptKind::Resume => SETTLE,
        };
        let tokens = AskTokens::default();
        let (runs, title) = (runs.clone(), ask.title.to_string());
        let question = UpstreamAsk { runs, run, address, title, settle };
        let (asking, watched, own) = (out.ask(ask), tokens.clone(), id.clone());
        inner.open.push(Box::pin(async move {
            ApprovalOutcome { id: own, unheard: question.run(asking, watched).await }
        }));
        inner.known.insert(id, tokens);
        self.came.notify_one();
    }

    /// Works on all asks for as long as it is polled.
    pub async fn attend(&self, out: &dyn AgentOutput) -> Infallible {
        loop {
            let next = poll_fn(|cx| match self.inner().open.poll_next_unpin(cx) {
                Poll::Ready(Some(ended)) => Poll::Ready(ended),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            let ended = tokio::select! {
                ended = next => ended,
                () = self.came.notified() => continue,
            };
            self.inner().order.ended(&ended.id);
            if let Some(words) = ended.unheard {
                out.emit(TurnEvent::Notice(Some(words)));
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, PendingState> {
        self.inner.lock()
    }
}

/// An ask that has just come.
struct NewAsk {
    /// The upstream's id of it, or ours.
    id: String,
    address: AskAddress,
    run: UpstreamRunId,
    ask: Ask,
    attempt: AttemptKind,
}

/// One ask of the upstream.
struct UpstreamAsk {
    runs: UpstreamRuns,
    run: UpstreamRunId,
    address: AskAddress,
    title: String,
    /// Delay before people are asked.
    settle: Duration,
}

impl UpstreamAsk {
    /// Waits for the answer and sends it to the upstream, unless the ask was answered elsewhere. Returns a text if the
    /// upstream does not have the answer.
    async fn run(self, ask: BoxFuture<'static, AskChoice>, tokens: AskTokens) -> Option<LocalizedText> {
        let asking = async {
            if !self.settle.is_zero() {
                tokio::time::sleep(self.settle).await;
            }
            ask.await
        };
        let choice = tokio::select! {
            biased;
            // Dropping the future withdraws the ask.
            () = tokens.gone.cancelled() => return None,
            choice = asking => choice,
        };
        let told = tokio::select! {
            told = self.runs.answer(&self.run, &self.address, &choice) => told,
            // The stream may report our own answer before the request has its response.
            () = tokens.answered.cancelled() => AnswerReceipt::Yes,
        };
        let unheard = |text: TextKey| Some(text.with("title", code_span(&self.title, TITLE)));
        match (told, choice) {
            (AnswerReceipt::No, AskChoice::Allow(_)) => unheard(TextKey::ApprovalUnheard),
            (AnswerReceipt::No, AskChoice::Option(_) | AskChoice::Text(_)) => unheard(TextKey::AnswerUnheard),
            // Without an answer the upstream denies too.
            (AnswerReceipt::No, AskChoice::Deny(_)) | (AnswerReceipt::Yes, _) => None,
        }
    }
}
