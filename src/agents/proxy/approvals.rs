//! Asks of the upstream, until people here have answered them.
//!
//! An ask comes as an event of the stream and becomes an ask of this agent, with the same options; its answer goes back
//! as a request of its own. Meanwhile the stream is read on. The list belongs to the turn, not to one attempt of it: a
//! stream that is read again from its beginning repeats its asks, and none is asked twice. At the end of the turn every
//! open ask is withdrawn.

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

use super::runs::{AnswerReceipt, UpstreamRunId, UpstreamRuns};
use crate::agent::{AgentOutput, Ask, AskChoice, AttemptKind, TurnEvent};
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
    /// Every ask that came, open or not, by the upstream's id; the token fires when it is answered elsewhere.
    known: HashMap<String, CancellationToken>,
    /// Asks without an answer, and answers that the upstream does not have yet.
    open: FuturesUnordered<BoxFuture<'static, ApprovalOutcome>>,
}

/// Result of an ask of the upstream.
enum ApprovalOutcome {
    /// Nothing is left to say.
    Well,
    /// A person answered, and the upstream does not have the answer. The text is for the room.
    Unheard(LocalizedText),
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
                if let Some(gone) = inner.known.get(id.as_ref()) {
                    gone.cancel();
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
                let (id, gone) = (id.into_owned(), CancellationToken::new());
                let ask = Ask {
                    title: title.into_owned().into(),
                    detail: detail.into_owned(),
                    cwd: cwd.map(|cwd| cwd.into_owned()),
                    reason: reason.map(|reason| reason.into_owned()),
                    form,
                };
                let settle = match attempt {
                    AttemptKind::First => Duration::ZERO,
                    AttemptKind::Resume => SETTLE,
                };
                let (runs, title) = (runs.clone(), ask.title.to_string());
                let question = UpstreamAsk { runs, run, id: id.clone(), title, settle };
                inner.open.push(Box::pin(question.run(out.ask(ask), gone.clone())));
                inner.known.insert(id, gone);
                self.came.notify_one();
            }
        }
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
            match ended {
                ApprovalOutcome::Well => {}
                ApprovalOutcome::Unheard(words) => out.emit(TurnEvent::Notice(Some(words))),
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, PendingState> {
        self.inner.lock()
    }
}

/// One ask of the upstream.
struct UpstreamAsk {
    runs: UpstreamRuns,
    run: UpstreamRunId,
    /// The upstream's id of the ask.
    id: String,
    title: String,
    /// Delay before people are asked.
    settle: Duration,
}

impl UpstreamAsk {
    /// Waits for the answer and sends it to the upstream, unless the ask was answered elsewhere.
    async fn run(self, ask: BoxFuture<'static, AskChoice>, gone: CancellationToken) -> ApprovalOutcome {
        let asking = async {
            if !self.settle.is_zero() {
                tokio::time::sleep(self.settle).await;
            }
            ask.await
        };
        let choice = tokio::select! {
            biased;
            // Dropping the future withdraws the ask.
            () = gone.cancelled() => return ApprovalOutcome::Well,
            choice = asking => choice,
        };
        let told = tokio::select! {
            told = self.runs.answer(&self.run, &self.id, &choice) => told,
            // The stream may report our own answer before the request has its response.
            () = gone.cancelled() => AnswerReceipt::Yes,
        };
        let unheard =
            |text: TextKey| ApprovalOutcome::Unheard(text.with("title", code_span(&self.title, TITLE)));
        match (told, choice) {
            (AnswerReceipt::No, AskChoice::Allow(_)) => unheard(TextKey::ApprovalUnheard),
            (AnswerReceipt::No, AskChoice::Option(_) | AskChoice::Text(_)) => unheard(TextKey::AnswerUnheard),
            // Without an answer the upstream denies too.
            (AnswerReceipt::No, AskChoice::Deny(_)) | (AnswerReceipt::Yes, _) => ApprovalOutcome::Well,
        }
    }
}
