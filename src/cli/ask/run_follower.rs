//! Follows a run to its end: prints what comes, asks people, and stops the run when somebody presses Ctrl-C.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use talaria_platform::{BoxFuture, CancellationToken};
use tokio::time::Instant;

use super::AskReport;
use super::answer_output::{AnswerOutput, LineKind};
use super::failure::{AskFailure, FailureExit};
use super::interrupt::Interrupt;
use super::run_client::{RunClient, without_sign};
use super::run_event::{Question, RunEnd, RunEvent, RunStatus};
use super::run_events::{ReadResult, RunEvents};
use super::terminal_questions::{NextQuestion, TerminalQuestions};
use crate::agent::{AskChoice, DenyReason};
use crate::agents::proxy::runs::{AnswerReceipt, AskAddress, UpstreamRunId};
use crate::util::visible_line;

/// Time for a stopped run to end, before we leave without its end.
const STOP: Duration = Duration::from_secs(15);

/// Most characters of the server's own words.
const WORDS: usize = 500;

/// Follows one run.
pub(super) struct RunFollower<'a> {
    client: &'a RunClient,
    run: UpstreamRunId,
    output: &'a mut AnswerOutput,
    questions: TerminalQuestions,
    /// Small requests on their way to the server. The result is a line to print.
    sending: FuturesUnordered<BoxFuture<'a, Option<&'static str>>>,
    /// Asks that were denied, or answered with an option that rejects.
    denied: usize,
}

impl<'a> RunFollower<'a> {
    pub(super) fn new(
        client: &'a RunClient,
        run: UpstreamRunId,
        denies: bool,
        output: &'a mut AnswerOutput,
    ) -> Self {
        let questions = TerminalQuestions::new(denies);
        Self { client, run, output, questions, sending: FuturesUnordered::new(), denied: 0 }
    }

    /// Reads the run to its end. Without a whole answer the failure says why.
    pub(super) async fn follow(
        mut self,
        interrupt: &Interrupt,
        report: &mut AskReport,
    ) -> Result<(), AskFailure> {
        let ended = self.read(interrupt).await;
        self.questions.withdraw_all();
        report.denied = self.denied;
        let end = match ended {
            Ok(end) => end,
            Err(failure) => {
                let is_ours = matches!(failure.exit, FailureExit::Unanswered | FailureExit::Interrupted(_));
                if is_ours && !interrupt.has_come() {
                    // Nobody reads the answer any more, so the agent need not go on.
                    let stopping = self.client.runs.tell_to_stop(&self.run);
                    let _ = tokio::time::timeout(STOP, stopping).await;
                }
                return Err(self.cut_short(failure));
            }
        };
        report.usage = end.usage.clone();
        report.remarks = end.remarks.clone();
        report.stop_reason = end.stop_reason.clone().or_else(|| end.finish_reason.clone());
        self.judge(end, interrupt)
    }

    async fn read(&mut self, interrupt: &Interrupt) -> Result<RunEnd, AskFailure> {
        let mut events = RunEvents::new(self.client, self.run.clone());
        // Set when the run is being stopped: the moment at which we leave without its end.
        let mut leaves_at: Option<Instant> = None;
        loop {
            self.ask_next()?;
            let is_stopping = leaves_at.is_some();
            tokio::select! {
                biased;
                () = interrupt.came(), if !is_stopping => {
                    leaves_at = Some(Instant::now() + STOP);
                    self.stop()?;
                }
                () = tokio::time::sleep_until(leaves_at.unwrap_or_else(Instant::now)), if is_stopping => {
                    return Err(interrupt.failure());
                }
                (question, choice) = self.questions.answered() => {
                    self.output.release()?;
                    self.send(&question, choice);
                }
                Some(trouble) = self.sending.next(), if !self.sending.is_empty() => {
                    if let Some(trouble) = trouble {
                        self.output.line(LineKind::Question, trouble);
                    }
                }
                read = events.next() => match read {
                    Ok(ReadResult::Event(data)) => {
                        if let Some(end) = self.take(&data)? {
                            return Ok(end);
                        }
                    }
                    Ok(ReadResult::Lost) => {
                        self.output.line(LineKind::Notice, "The connection was lost; trying again.");
                    }
                    Ok(ReadResult::Back) => self.output.line(LineKind::Notice, "Connected again."),
                    Err(_) if is_stopping => return Err(interrupt.failure()),
                    Err(failure) => return Err(failure),
                },
            }
        }
    }

    /// Takes an event. Returns the end of the run.
    fn take(&mut self, data: &str) -> Result<Option<RunEnd>, AskFailure> {
        match RunEvent::parse(data).unwrap_or(RunEvent::Other) {
            RunEvent::Text(text) => self.output.push_text(&text)?,
            RunEvent::Thought(text) => self.output.push_thought(&text),
            RunEvent::StepBegan { tool, subject } => {
                let words = subject.map_or(tool.clone(), |subject| format!("{tool}: {subject}"));
                self.output.line(LineKind::Step, &words);
            }
            RunEvent::StepFailed { tool } => {
                self.output.line(LineKind::FailedStep, &format!("{tool} failed"))
            }
            RunEvent::Notice(words) => self.output.line(LineKind::Notice, &words),
            RunEvent::Asked(question) => self.questions.push(question),
            RunEvent::Answered { id, is_denied, reason } => {
                self.denied += usize::from(is_denied);
                if let Some(question) = self.questions.withdraw(&id) {
                    self.output.release()?;
                    let reason = reason.unwrap_or_else(|| "answered elsewhere".to_owned());
                    self.output.line(LineKind::Question, &format!("{} ({reason})", question.title));
                }
            }
            RunEvent::Ended(end) => return Ok(Some(end)),
            RunEvent::Other => {}
        }
        Ok(None)
    }

    /// Asks the next question, and denies those that nobody can be asked.
    fn ask_next(&mut self) -> Result<(), AskFailure> {
        loop {
            match self.questions.begin_next() {
                NextQuestion::Nothing => return Ok(()),
                NextQuestion::Begun => {
                    self.output.hold();
                    return Ok(());
                }
                NextQuestion::Denied(question, why) => {
                    self.output.line(LineKind::Question, &described(&question));
                    self.output.line(LineKind::Question, &format!("denied: {why}"));
                    self.send(&question, AskChoice::Deny(DenyReason::Person));
                }
            }
        }
    }

    fn send(&mut self, question: &Arc<Question>, choice: AskChoice) {
        if let AskChoice::Option(id) = &choice
            && question.form.option(id).is_some_and(|option| option.kind.rejects())
        {
            self.denied += 1;
        }
        let (client, run, question) = (self.client, self.run.clone(), question.clone());
        self.sending.push(Box::pin(async move {
            let ask = AskAddress::Id(question.id.clone());
            match client.runs.send_choice(&run, &ask, &choice, &CancellationToken::new()).await {
                AnswerReceipt::Taken => None,
                AnswerReceipt::Over | AnswerReceipt::Missed => Some("The server did not take the answer."),
                AnswerReceipt::Unknown => {
                    Some("The connection broke, so it is not known whether the server has the answer.")
                }
            }
        }));
    }

    /// Tells the server to stop the run, whose end then comes as an event.
    fn stop(&mut self) -> Result<(), AskFailure> {
        self.questions.withdraw_all();
        self.output.release()?;
        self.output.line(LineKind::Notice, "Stopping; Ctrl-C again leaves at once.");
        let (client, run) = (self.client, self.run.clone());
        self.sending.push(Box::pin(async move {
            client.runs.tell_to_stop(&run).await;
            None
        }));
        Ok(())
    }

    /// Says how the run ended.
    fn judge(self, end: RunEnd, interrupt: &Interrupt) -> Result<(), AskFailure> {
        if let Some(output) = end.output {
            self.output.replace_text(output)?;
        }
        self.output.release()?;
        for remark in &end.remarks {
            self.output.line(LineKind::Notice, remark);
        }
        if interrupt.has_come() {
            return Err(self.cut_short(interrupt.failure()));
        }
        let failed = |message: &str| AskFailure { code: end.code.clone(), ..AskFailure::unanswered(message) };
        let is_blank = self.output.answer().trim().is_empty();
        match end.status {
            RunStatus::Failed => {
                let words = end.error.as_deref().unwrap_or("the agent failed");
                Err(failed(&visible_line(without_sign(words), WORDS)))
            }
            RunStatus::Cancelled => Err(self.cut_short(failed("the run was stopped"))),
            RunStatus::Completed if end.finish_reason.as_deref() == Some("length") => {
                Err(self.cut_short(failed("the agent reached its length limit")))
            }
            RunStatus::Completed if is_blank => Err(failed("the agent gave no answer")),
            RunStatus::Completed if self.denied > 0 => Err(AskFailure::new(
                FailureExit::Denied,
                "something that the agent asked for was denied",
                None,
            )),
            RunStatus::Completed => Ok(()),
        }
    }

    /// Adds to a failure that the answer above is only a part.
    fn cut_short(&self, mut failure: AskFailure) -> AskFailure {
        if !self.output.answer().trim().is_empty()
            && let Some(first) = failure.complaints.first_mut()
        {
            first.message = format!("the answer is cut short: {}", first.message);
        }
        failure
    }
}

/// A question as one line, for a log without a terminal.
fn described(question: &Question) -> String {
    let Question { title, detail, cwd, reason, gap, .. } = question;
    let folder = cwd.as_deref().map(|cwd| format!(" in {cwd}")).unwrap_or_default();
    let reason = reason.as_deref().map(|reason| format!(" (its reason: {reason})")).unwrap_or_default();
    let gap = gap.as_deref().map(|gap| format!(" ({gap})")).unwrap_or_default();
    format!("The agent asks: {title}: {detail}{folder}{gap}{reason}")
}
