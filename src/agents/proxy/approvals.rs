//! Where the upstream's questions lie until people have answered them.
//!
//! A question comes as an event of the stream and is asked here as any agent's is; its answer goes back as a request of
//! its own. Meanwhile the stream is read on. The list is kept with the turn, not with one try of it: when a stream is
//! read again from its beginning, what lies here already is not asked a second time, and when the turn is over
//! whatever is still open is taken back.

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
use crate::i18n::TextKey;
use crate::openai::wire::ApprovalEvent;
use crate::util::code_span;

/// Questions of one turn that are looked at. The engine refuses sooner; this bounds what is remembered of an upstream
/// that never ends asking.
const MOST: usize = 200;

/// How long a question of a stream that is read again waits until it is asked. If it was answered before, the stream
/// says so a moment later, and nobody needs to be asked.
const SETTLE: Duration = Duration::from_millis(250);

/// Characters of a title in a notice.
const TITLE: usize = 60;

/// The questions of one turn.
#[derive(Default)]
pub(super) struct PendingApprovals {
    inner: Mutex<PendingState>,
    /// Told when a question has come.
    came: Notify,
}

#[derive(Default)]
struct PendingState {
    /// What the upstream calls the run; `None` before it has answered, and again when the run is over.
    run: Option<UpstreamRunId>,
    /// Every question that came, open or not, by the upstream's id of it; fired when it is answered elsewhere.
    known: HashMap<String, CancellationToken>,
    /// What is still to be answered, or to be told.
    open: FuturesUnordered<BoxFuture<'static, ApprovalOutcome>>,
}

/// How a question came out.
enum ApprovalOutcome {
    /// As it should.
    Well,
    /// A person allowed it and the upstream does not know. With what it was about.
    Unheard(String),
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

    /// The stream says something about a question.
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
                // Somebody answered it elsewhere, or it is what we told.
                if let Some(gone) = inner.known.get(id.as_ref()) {
                    gone.cancel();
                }
            }
            ApprovalEvent::Asked { id, .. } if inner.known.contains_key(id.as_ref()) => {}
            ApprovalEvent::Asked { .. } if inner.known.len() >= MOST => {
                tracing::warn!("the upstream asks without end; what it asks now it denies by itself");
            }
            ApprovalEvent::Asked { id, run, title, detail, cwd } => {
                let run = run.and_then(|run| UpstreamRunId::new(&run)).or_else(|| inner.run.clone());
                let Some(run) = run else {
                    tracing::warn!("the upstream asks and does not say for which run; it denies by itself");
                    return;
                };
                let (id, gone) = (id.into_owned(), CancellationToken::new());
                let ask = Ask {
                    title: title.into_owned(),
                    detail: detail.into_owned(),
                    cwd: cwd.map(|cwd| cwd.into_owned()),
                };
                let settle = match attempt {
                    AttemptKind::First => Duration::ZERO,
                    AttemptKind::Resume => SETTLE,
                };
                let (runs, title) = (runs.clone(), ask.title.clone());
                let question = UpstreamAsk { runs, run, id: id.clone(), title, settle };
                inner.open.push(Box::pin(question.run(out.ask(ask), gone.clone())));
                inner.known.insert(id, gone);
                self.came.notify_one();
            }
        }
    }

    /// Works on whatever lies here, for as long as it is polled.
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
                ApprovalOutcome::Unheard(title) => {
                    let title = code_span(&title, TITLE);
                    out.emit(TurnEvent::Notice(Some(TextKey::ApprovalUnheard.with("title", title))));
                }
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, PendingState> {
        self.inner.lock()
    }
}

/// One question of the upstream.
struct UpstreamAsk {
    runs: UpstreamRuns,
    run: UpstreamRunId,
    /// The upstream's id of it.
    id: String,
    title: String,
    /// How long it waits until it is asked.
    settle: Duration,
}

impl UpstreamAsk {
    /// Waits for the answer and brings it to the upstream, unless it was answered elsewhere.
    async fn run(self, ask: BoxFuture<'static, AskChoice>, gone: CancellationToken) -> ApprovalOutcome {
        let asking = async {
            if !self.settle.is_zero() {
                tokio::time::sleep(self.settle).await;
            }
            ask.await
        };
        let choice = tokio::select! {
            biased;
            // Dropping the question takes it back.
            () = gone.cancelled() => return ApprovalOutcome::Well,
            choice = asking => choice,
        };
        let told = tokio::select! {
            told = self.runs.answer(&self.run, &self.id, choice) => told,
            // It may be our own answer of which the stream tells before the request has its response.
            () = gone.cancelled() => AnswerReceipt::Yes,
        };
        match (told, choice) {
            (AnswerReceipt::No, AskChoice::Allow(_)) => ApprovalOutcome::Unheard(self.title),
            // Without an answer the upstream denies, which is what was wanted.
            (AnswerReceipt::No, AskChoice::Deny) | (AnswerReceipt::Yes, _) => ApprovalOutcome::Well,
        }
    }
}
