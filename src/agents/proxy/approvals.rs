//! Asks of the upstream, until people here have answered them.
//!
//! An ask comes as an event of the stream and becomes an ask of this agent, with the same options; its answer goes back
//! as a request of its own. Meanwhile the stream is read on. The list belongs to the turn, not to one attempt of it: a
//! stream that is read again from its beginning repeats its asks, and none is asked twice. At the end of the turn every
//! open ask is withdrawn. For asks without ids see `AskOrder`: while more than one of them may be open at the upstream, none
//! is asked here, and the upstream is told to deny them all.

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

use super::runs::ask_order::{AskOrder, Doubt, is_same_ask};
use super::runs::masks::may_hide_a_part;
use super::runs::run_event::UnnamedAsk;
use super::runs::{AnswerReceipt, AskAddress, UpstreamRunId, UpstreamRuns};
use crate::access::GrantScope;
use crate::agent::{AgentOutput, AnswerForm, Ask, AskChoice, AttemptKind, DenyReason, TurnEvent};
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
    /// The upstream's times of those.
    heard: Vec<f64>,
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

/// Result of the work on an ask.
enum ApprovalOutcome {
    /// The ask is over here.
    Ended {
        /// The upstream's id of the ask, or ours.
        id: String,
        /// If it is not certain that the upstream has a person's answer: a text for the room.
        unheard: Option<LocalizedText>,
        /// The upstream may still wait for the answer, and would take the next one for it.
        in_doubt: Option<RunAddress>,
    },
    /// The upstream has denied everything, after it was told for so many reasons.
    Declined { run: RunAddress, reasons: usize },
}

/// A run, and the client to reach it.
type RunAddress = (UpstreamRunId, UpstreamRuns);

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
            ApprovalEvent::Asked { id, run, title, detail, cwd, reason, form, gap } => {
                let run = run.and_then(|run| UpstreamRunId::new(&run)).or_else(|| inner.run.clone());
                let Some(run) = run else {
                    tracing::warn!("the upstream asks and does not say for which run; it denies by itself");
                    return;
                };
                let id = id.into_owned();
                // Where the action is not known in full, the same words may stand for another one the next time.
                let is_once = gap.is_some() && form.is_approval();
                let ask = Ask {
                    title: title.into_owned().into(),
                    detail: detail.into_owned(),
                    // Nobody here knows the folder of the session there.
                    is_elsewhere: cwd.is_some(),
                    cwd: cwd.map(|cwd| cwd.into_owned()),
                    reason: reason.map(|reason| reason.into_owned()),
                    form: if is_once { AnswerForm::once_only() } else { form },
                    gap,
                };
                let address = AskAddress::Id(id.clone());
                self.open(&mut inner, NewAsk { id, address, run, ask, is_once, attempt }, runs, out);
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
        if inner.known.contains_key(&id) {
            return;
        }
        let (step, tool) = step.unzip();
        let doubt = if inner.known.len() < MOST {
            inner.known.insert(id.clone(), AskTokens::default());
            inner.heard.extend(asked_at);
            inner.order.place(&id, step, asked_at)
        } else {
            tracing::warn!("the upstream asks without end; everything that it asks now is denied");
            Some(inner.order.doubt())
        };
        if let Some(doubt) = doubt {
            tracing::warn!(
                "the upstream asks several things at once, and an answer could be for any of them"
            );
            self.decline_all(&mut inner, doubt, (run.clone(), runs.clone()));
            drop(inner);
            out.emit(TurnEvent::Remark(TextKey::RunDeclinedSeveral.into()));
            return;
        }
        let gap = match may_hide_a_part(&command) {
            true => TextKey::RunPartHidden,
            false => TextKey::RunFolderUnknown,
        };
        let title = tool.filter(|tool| !tool.is_empty()).map(LocalizedText::from);
        let ask = Ask {
            title: title.unwrap_or_else(|| TextKey::AgentRemote.into()),
            detail: command,
            // The server tells only the command, and an approval for longer would hold for the same words in any folder.
            cwd: None,
            is_elsewhere: false,
            reason: description,
            form: AnswerForm::once_only(),
            gap: Some(gap.into()),
        };
        let address = AskAddress::Oldest { asked_at };
        let new = NewAsk { id, address, run: run.clone(), ask, is_once: true, attempt };
        self.open(&mut inner, new, runs, out);
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

    /// Whether an ask of this time has come.
    pub fn has_heard(&self, at: Option<f64>) -> bool {
        self.inner().heard.iter().any(|heard| is_same_ask(at, Some(*heard)))
    }

    /// Whether somebody is asked about the ask of this time, or it is being denied.
    pub fn attends_to(&self, at: Option<f64>) -> bool {
        let inner = self.inner();
        inner.order.is_open_at(at) || inner.order.reasons() > 0
    }

    /// The upstream waits for the answer to an ask that nobody has seen.
    pub fn decline_unseen(&self, run: &UpstreamRunId, runs: &UpstreamRuns, out: &dyn AgentOutput) {
        let mut inner = self.inner();
        let doubt = inner.order.doubt();
        self.decline_all(&mut inner, doubt, (run.clone(), runs.clone()));
        drop(inner);
        out.emit(TurnEvent::Remark(TextKey::RunDeclinedUnseen.into()));
    }

    /// Withdraws the ask that was open, and tells the upstream to deny everything, unless it is being told already.
    fn decline_all(&self, inner: &mut PendingState, doubt: Doubt, run: RunAddress) {
        let Doubt::Begins(open) = doubt else { return };
        if let Some(tokens) = open.and_then(|open| inner.known.get(&open)) {
            tokens.gone.cancel();
        }
        self.push_decline(inner, run);
    }

    fn push_decline(&self, inner: &mut PendingState, (run, runs): RunAddress) {
        let reasons = inner.order.reasons();
        inner.open.push(Box::pin(async move {
            runs.decline_all(&run).await;
            ApprovalOutcome::Declined { run: (run, runs), reasons }
        }));
        self.came.notify_one();
    }

    fn open(&self, inner: &mut PendingState, new: NewAsk, runs: &UpstreamRuns, out: &dyn AgentOutput) {
        let NewAsk { id, address, run, ask, is_once, attempt } = new;
        let settle = match attempt {
            AttemptKind::First => Duration::ZERO,
            AttemptKind::Resume => SETTLE,
        };
        let tokens = inner.known.entry(id.clone()).or_default().clone();
        let (runs, title) = (runs.clone(), ask.title.to_string());
        let question = UpstreamAsk { runs, run, address, title, is_once, settle };
        let asking = out.ask(ask);
        inner.open.push(Box::pin(question.run(id, asking, tokens)));
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
            let mut inner = self.inner();
            match ended {
                ApprovalOutcome::Ended { id, unheard, in_doubt } => {
                    inner.order.ended(&id);
                    if let Some(run) = in_doubt {
                        let doubt = inner.order.doubt();
                        self.decline_all(&mut inner, doubt, run);
                    }
                    drop(inner);
                    if let Some(words) = unheard {
                        out.emit(TurnEvent::Notice(Some(words)));
                    }
                }
                ApprovalOutcome::Declined { run, reasons } => {
                    if !inner.order.settle(reasons) {
                        self.push_decline(&mut inner, run);
                    }
                }
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
    /// The options are ours: the upstream asks for an approval, which can be given only once here.
    is_once: bool,
    attempt: AttemptKind,
}

/// One ask of the upstream.
struct UpstreamAsk {
    runs: UpstreamRuns,
    run: UpstreamRunId,
    address: AskAddress,
    title: String,
    /// The options are ours, and the upstream knows only an approval.
    is_once: bool,
    /// Delay before people are asked.
    settle: Duration,
}

impl UpstreamAsk {
    /// Waits for the answer and sends it to the upstream, unless the ask was answered elsewhere.
    async fn run(self, id: String, ask: BoxFuture<'static, AskChoice>, tokens: AskTokens) -> ApprovalOutcome {
        let asking = async {
            if !self.settle.is_zero() {
                tokio::time::sleep(self.settle).await;
            }
            ask.await
        };
        let choice = tokio::select! {
            biased;
            // Dropping the future withdraws the ask.
            () = tokens.gone.cancelled() => {
                return ApprovalOutcome::Ended { id, unheard: None, in_doubt: None };
            }
            choice = asking => choice,
        };
        let is_unnamed = matches!(self.address, AskAddress::Oldest { .. });
        let choice = if self.is_once { once_or_not(choice) } else { choice };
        let receipt = tokio::select! {
            biased;
            // The stream may report our own answer before the request has its response.
            () = tokens.answered.cancelled() => AnswerReceipt::Taken,
            receipt = self.runs.answer(&self.run, &self.address, &choice, &tokens.gone) => receipt,
        };
        let may_wait = matches!(receipt, AnswerReceipt::Missed | AnswerReceipt::Unknown);
        let in_doubt = is_unnamed && may_wait && !tokens.gone.is_cancelled();
        let unheard =
            words_of(receipt, &choice).map(|text| text.with("title", code_span(&self.title, TITLE)));
        ApprovalOutcome::Ended { id, unheard, in_doubt: in_doubt.then_some((self.run, self.runs)) }
    }
}

/// The answer to an ask that can only be allowed once, in words of the upstream.
fn once_or_not(choice: AskChoice) -> AskChoice {
    let form = AnswerForm::once_only();
    match choice {
        AskChoice::Allow(_) => AskChoice::Allow(GrantScope::Once),
        AskChoice::Option(id) if form.option(&id).is_some_and(|option| option.kind.allows()) => {
            AskChoice::Allow(GrantScope::Once)
        }
        AskChoice::Option(_) | AskChoice::Text(_) => AskChoice::Deny(DenyReason::Person),
        AskChoice::Deny(reason) => AskChoice::Deny(reason),
    }
}

/// The text for a room whose answer the upstream may not have; `None` if all is as people expect.
fn words_of(receipt: AnswerReceipt, choice: &AskChoice) -> Option<TextKey> {
    match (receipt, choice) {
        (AnswerReceipt::Over | AnswerReceipt::Missed, AskChoice::Allow(_)) => Some(TextKey::ApprovalUnheard),
        (AnswerReceipt::Over | AnswerReceipt::Missed, AskChoice::Option(_) | AskChoice::Text(_)) => {
            Some(TextKey::AnswerUnheard)
        }
        (AnswerReceipt::Unknown, AskChoice::Allow(_)) => Some(TextKey::ApprovalUnconfirmed),
        (AnswerReceipt::Unknown, AskChoice::Option(_) | AskChoice::Text(_)) => {
            Some(TextKey::AnswerUnconfirmed)
        }
        // Without an answer the upstream denies too.
        (AnswerReceipt::Over | AnswerReceipt::Missed | AnswerReceipt::Unknown, AskChoice::Deny(_))
        | (AnswerReceipt::Taken, _) => None,
    }
}
