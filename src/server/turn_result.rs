//! The result of a finished turn, in the forms that HTTP clients receive.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::headers::TurnHeaders;
use super::sse::SseBuffer;
use super::text_budget::LoadResult;
use super::{ApiError, Caller, Server};
use crate::agent::{REMARKS_FACT, SessionMessage, TokenUsage, ToolActivity};
use crate::i18n::TextCatalog;
use crate::ids::TurnId;
use crate::openai::wire::FailureReason;
use crate::reply::{self, TurnOutcome};
use crate::store::{self, FinishedTurn, TurnState, Tx};
use crate::turns::{BudgetPayer, InputPermit};

/// Fact of a turn: the agent's own word for why it ended.
pub const STOP_REASON: &str = "stop_reason";

/// Result of a finished turn, as read from the store.
#[derive(Clone, Debug)]
pub struct TurnResult {
    /// The final text. Shared, because it may be long and is used in many places.
    pub text: Arc<String>,
    /// `text` holds only the beginning: the reader has all of it already.
    pub in_short: bool,
    /// True if the final text is not an extension of the streamed text.
    pub text_replaced: bool,
    /// Success, stop, or the kind of failure.
    pub outcome: TurnOutcome,
    /// Tokens used.
    pub usage: TokenUsage,
    /// Names and values that the agent reported about the run.
    pub facts: Map<String, Value>,
    /// Messages of the agent and its tools in order; loaded only for [`EndParts::TextAndTranscript`].
    pub transcript: Vec<TranscriptEntry>,
    /// Why the turn failed or was cut short, in words; `None` if it did not.
    pub failure: Option<String>,
}

/// A message of the agent or of a tool.
#[derive(Clone, Debug)]
pub struct TranscriptEntry {
    /// Role and tool calls of the message. Its content is moved to `text`.
    pub message: SessionMessage,
    /// Holds the content. Shared with the text of the turn where they are equal.
    pub text: Arc<String>,
    /// Part of `text` that is the content.
    pub range: Range<usize>,
}

/// Parts of a result to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndParts {
    /// No text: the reader has seen the end.
    Outcome,
    /// The text of the answer, unless the reader has this many bytes of it and they are all.
    Unread(usize),
    /// The text of the answer.
    Text,
    /// The text of the answer, and the messages of the agent and its tools.
    TextAndTranscript,
}

/// Tokens used by a turn, with the field names of chat completions.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tokens")]
pub struct ChatTokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// Tokens used by a turn, with the field names of runs and sessions.
#[derive(Serialize, JsonSchema)]
pub struct RunTokens {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
}

impl TurnResult {
    /// Loads the result of a turn, waiting until the text budget has room for its text; `None` if the turn has
    /// not ended.
    pub async fn read(
        server: &Server,
        payer: &BudgetPayer,
        run: &TurnId,
        parts: EndParts,
    ) -> store::Result<(Option<Self>, Option<InputPermit>)> {
        server.texts.load(&server.store, payer, Self::reading(server, run, parts)).await
    }

    /// Like [`read`](Self::read), for a request that gets an error with `Retry-After` if no room becomes free
    /// in time.
    pub async fn read_soon(
        server: &Server,
        caller: &Caller,
        run: &TurnId,
    ) -> Result<(Option<Self>, Option<InputPermit>), ApiError> {
        let reading = Self::reading(server, run, EndParts::Text);
        server.texts.load_soon(&server.store, caller, reading).await
    }

    /// Whether the turn has ended.
    pub async fn is_there(server: &Server, run: &TurnId) -> store::Result<bool> {
        let id = run.clone();
        Ok(server.store.read(move |tx| tx.ended(&id)).await?.is_some())
    }

    /// Loads everything in one transaction.
    fn reading(
        server: &Server,
        run: &TurnId,
        parts: EndParts,
    ) -> impl Fn(&Tx<'_>, usize) -> store::Result<LoadResult<Option<Self>>> + Clone + Send + 'static {
        let (id, live) = (run.clone(), server.live.clone());
        let is_read = move |finish: &FinishedTurn, bytes: usize| match parts {
            EndParts::Outcome => true,
            EndParts::Unread(read) => read == bytes && !finish.text_replaced,
            EndParts::Text | EndParts::TextAndTranscript => false,
        };
        move |tx, most| {
            let mut bytes = tx.text_bytes(&id)?;
            // Parts that are not needed do not wait for room in the budget.
            let short = tx.finished_in_short(&id)?.filter(|(_, finish)| is_read(finish, bytes));
            if let Some((_, finish)) = short {
                return Ok(LoadResult::Whole(Some(Self::of(finish, true, Vec::new(), &live.now().words))));
            }
            if parts == EndParts::TextAndTranscript {
                bytes += tx.transcript_bytes(&id)?;
            }
            if bytes > most {
                return Ok(LoadResult::TooLong(bytes));
            }
            let Some((_, finish)) = tx.finished(&id)? else { return Ok(LoadResult::Whole(None)) };
            let said = match parts {
                EndParts::Outcome | EndParts::Unread(_) | EndParts::Text => Vec::new(),
                EndParts::TextAndTranscript => tx.transcript(&id)?,
            };
            let transcript = said.into_iter().map(|said| entry(said.message, &finish.text)).collect();
            Ok(LoadResult::Whole(Some(Self::of(finish, false, transcript, &live.now().words))))
        }
    }

    fn of(
        finish: FinishedTurn,
        in_short: bool,
        transcript: Vec<TranscriptEntry>,
        words: &TextCatalog,
    ) -> Self {
        let FinishedTurn { text, text_replaced, outcome, usage, facts, .. } = finish;
        let failure = failure(&outcome, &text, words);
        Self { text, in_short, text_replaced, outcome, usage, facts, transcript, failure }
    }

    /// Result of a turn of which only this text is left: its session was deleted, and the turn was stopped for
    /// that.
    pub fn gone(text: Arc<String>) -> Self {
        let (usage, facts, transcript) = (TokenUsage::default(), Map::new(), Vec::new());
        let outcome = TurnOutcome::Stopped;
        Self { text, in_short: false, text_replaced: false, outcome, usage, facts, transcript, failure: None }
    }

    /// Whether the agent said all that it wanted.
    pub fn is_completed(&self) -> bool {
        self.outcome == TurnOutcome::Done
    }

    /// Whether there is an answer, but not all of it.
    pub fn is_partial(&self) -> bool {
        !self.is_completed() && !self.text.trim().is_empty()
    }

    /// Sentences of ours below the answer, such as that something was declined. Each is the JSON form of a
    /// [`RelayedRemark`](crate::openai::wire::RelayedRemark).
    pub fn remarks(&self) -> &[Value] {
        self.facts.get(REMARKS_FACT).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A text that the agent reported under this name.
    pub fn fact(&self, name: &str) -> Option<String> {
        self.facts.get(name)?.as_str().map(str::to_owned)
    }

    /// `completed`, `failed` or `cancelled`.
    pub fn status(&self) -> &'static str {
        status_after(&self.outcome)
    }

    /// `finish_reason` of a chat completion: `stop`, `length` or `error`.
    pub fn finish_reason(&self) -> &'static str {
        match &self.outcome {
            TurnOutcome::Done => "stop",
            // A client that knows only the standard reasons must see that the answer is incomplete.
            TurnOutcome::Stopped | TurnOutcome::Limit => "length",
            TurnOutcome::CutShort { .. }
            | TurnOutcome::Failed { .. }
            | TurnOutcome::Unavailable { .. }
            | TurnOutcome::Interrupted
            | TurnOutcome::Unknown { .. }
            | TurnOutcome::Cancelled { .. } => "error",
        }
    }

    /// Short machine-readable name of the outcome.
    pub fn code(&self) -> &'static str {
        self.outcome.for_the_log().0
    }

    /// Machine-readable reason of a failure, for a Talaria that relays this answer and has its own texts.
    pub fn reason(&self) -> Option<FailureReason<'static>> {
        match &self.outcome {
            TurnOutcome::CutShort { words }
            | TurnOutcome::Failed { words }
            | TurnOutcome::Unavailable { words, .. }
            | TurnOutcome::Unknown { words } => FailureReason::of(words),
            TurnOutcome::Done
            | TurnOutcome::Stopped
            | TurnOutcome::Limit
            | TurnOutcome::Interrupted
            | TurnOutcome::Cancelled { .. } => None,
        }
    }

    /// `error` object of a failed turn.
    pub fn error(&self) -> Option<Value> {
        let message = self.failure.as_ref()?;
        Some(json!({ "message": message, "type": "server_error", "param": null, "code": self.code() }))
    }

    /// `error` object for the last chunk of a chat-completions stream. Its code is the number of the status
    /// that the answer would have had without a stream: vLLM and OpenRouter send it so, and LiteLLM makes its
    /// exception from it.
    pub fn streamed_error(&self) -> Option<Value> {
        let message = self.failure.as_ref()?;
        let problem = self.unavailable();
        let problem = problem.unwrap_or_else(|| ApiError::new(StatusCode::BAD_GATEWAY, self.code(), message));
        let mut error = problem.object(&mut SseBuffer::default());
        error["code"] = json!(problem.status.as_u16());
        error["outcome"] = json!(self.code());
        Some(error)
    }

    /// Error response to a request without a stream whose turn failed: a 502 with the partial text, because
    /// common clients take every 200 for a complete answer. `None` if the turn did not fail, or if it has text
    /// and the client accepts partial answers.
    pub fn problem(&self, turn_headers: &TurnHeaders) -> Option<ApiError> {
        if let Some(unavailable) = self.unavailable() {
            return Some(unavailable);
        }
        let message = self.failure.as_ref()?;
        let partial = (!self.text.trim().is_empty()).then(|| Box::new(self.text.clone()));
        if partial.is_some() && turn_headers.takes_partial {
            return None;
        }
        let problem = ApiError::new(StatusCode::BAD_GATEWAY, self.code(), message.as_str());
        // Clients retry a 502 by themselves. The turn may have run, so they are told not to.
        Some(ApiError { again: false, partial, ..problem })
    }

    /// Error for a turn that did not run because the agent is away or busy. A client may retry it by itself:
    /// nothing ran.
    pub fn unavailable(&self) -> Option<ApiError> {
        let TurnOutcome::Unavailable { rate_limited, retry_after, .. } = &self.outcome else { return None };
        let message = self.failure.as_deref().unwrap_or_default();
        let retry_after = Some(Duration::from_secs(*retry_after));
        let (status, code) = match rate_limited {
            true => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "agent_unavailable"),
        };
        Some(ApiError { retry_after, ..ApiError::new(status, code, message) })
    }

    /// Tokens used, as a JSON value with the field names of chat completions.
    pub fn usage(&self) -> Value {
        json!(self.tokens())
    }

    /// Tokens used, with the field names of chat completions.
    pub fn tokens(&self) -> ChatTokens {
        let TokenUsage { input, output } = self.usage;
        let total_tokens = input.saturating_add(output);
        ChatTokens { prompt_tokens: input, completion_tokens: output, total_tokens }
    }

    /// Tokens used, with the field names of runs.
    pub fn usage_of_a_run(&self) -> RunTokens {
        let TokenUsage { input, output } = self.usage;
        RunTokens { input_tokens: input, output_tokens: output, total_tokens: input.saturating_add(output) }
    }
}

/// Status of a turn with this outcome: `completed`, `failed` or `cancelled`.
pub fn status_after(outcome: &TurnOutcome) -> &'static str {
    match TurnState::after(outcome) {
        TurnState::Done => "completed",
        TurnState::Cancelled => "cancelled",
        TurnState::Failed | TurnState::Interrupted => "failed",
        // Unreachable: an outcome never leads to these states.
        TurnState::Queued | TurnState::Dispatched | TurnState::Streaming | TurnState::Finalizing => "failed",
    }
}

/// Makes a transcript entry. A content that equals the text of the turn shares it instead of holding it twice.
fn entry(mut message: SessionMessage, text: &Arc<String>) -> TranscriptEntry {
    let content = mem::take(&mut message.content);
    let said = text.trim();
    if content == said {
        let before = text.len() - text.trim_start().len();
        return TranscriptEntry { message, text: text.clone(), range: before..before + said.len() };
    }
    TranscriptEntry { message, range: 0..content.len(), text: Arc::new(content) }
}

/// One message of a transcript in the protocol's form. `content` is passed in because the caller may write a
/// long text in its own way.
pub fn message(message: &SessionMessage, content: Value) -> Value {
    let mut value = json!({ "role": message.role, "content": content });
    match &message.tools {
        Some(ToolActivity::Calls { tool_calls }) => value["tool_calls"] = json!(tool_calls),
        Some(ToolActivity::Result { tool_call_id, tool_name }) => {
            value["tool_call_id"] = json!(tool_call_id);
            value["tool_name"] = json!(tool_name);
        }
        None => {}
    }
    if let Some(reasoning) = &message.reasoning {
        value["reasoning"] = json!(reasoning);
    }
    value
}

/// Reason of a failure for programs: the text for rooms without its advice to use commands.
fn failure(outcome: &TurnOutcome, text: &str, words: &TextCatalog) -> Option<String> {
    told_failure(outcome, text, words).map(|said| without_commands(&said))
}

/// Removes the clauses that name a command such as `/retry` from a text for rooms. A text of nothing else stays
/// whole.
fn without_commands(said: &str) -> String {
    let is_command = |word: &str| {
        let name = word.strip_prefix('/').unwrap_or_default().trim_end_matches(['.', ',', ';', ')']);
        name.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase()))
    };
    let ends = ["; ", ". ", " — "];
    let mut kept = String::new();
    let mut rest = said;
    while !rest.is_empty() {
        let end = ends.iter().filter_map(|end| Some(rest.find(end)? + end.len())).min().unwrap_or(rest.len());
        let (clause, after) = rest.split_at(end);
        if !clause.split_whitespace().any(is_command) {
            kept.push_str(clause);
        }
        rest = after;
    }
    let kept = kept.trim_end_matches([' ', ';', '—']);
    if kept.is_empty() { said.to_owned() } else { kept.to_owned() }
}

fn told_failure(outcome: &TurnOutcome, text: &str, words: &TextCatalog) -> Option<String> {
    match outcome {
        TurnOutcome::Done | TurnOutcome::Stopped | TurnOutcome::Limit => None,
        TurnOutcome::Interrupted => {
            Some("The server ended while this ran; it is not run again unasked".to_owned())
        }
        TurnOutcome::CutShort { words: why } | TurnOutcome::Unknown { words: why } => {
            let said = words.say(why);
            let why = reply::bare(&said);
            Some(match text.trim().is_empty() {
                true => format!("There is no answer: {why}"),
                false => format!("The answer was cut short: {why}"),
            })
        }
        TurnOutcome::Failed { .. } | TurnOutcome::Unavailable { .. } | TurnOutcome::Cancelled { .. } => {
            Some(reply::finished("", outcome, words).trim().to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::i18n::TextKey;

    #[test]
    fn a_program_is_not_told_of_commands() {
        for (said, told) in [
            ("the model is busy; /retry asks again", "the model is busy"),
            ("It cannot resume. /retry asks again.", "It cannot resume."),
            ("It is too long; /new begins another one. Ask less", "It is too long; Ask less"),
            ("cut short: it broke — /retry runs it again", "cut short: it broke"),
            ("Check GATEWAY_PROXY_URL; see /v1/models.", "Check GATEWAY_PROXY_URL; see /v1/models."),
            ("/retry asks again", "/retry asks again"),
        ] {
            assert_eq!(without_commands(said), told, "{said}");
        }
        let words = TextCatalog::default();
        for text in [TextKey::BrokeBusy, TextKey::BrokeReported, TextKey::BrokeTooLong, TextKey::CannotResume]
        {
            for outcome in [
                TurnOutcome::CutShort { words: text.into() },
                TurnOutcome::Failed { words: text.into() },
                TurnOutcome::Unknown { words: text.into() },
            ] {
                let told = failure(&outcome, "", &words).unwrap();
                assert!(!told.contains("/retry") && !told.contains("/new"), "{told}");
                assert!(told.len() > 20, "{told}");
            }
        }
    }
}
