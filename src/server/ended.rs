//! How a turn ended, as programs are told.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::heads::Heads;
use super::{Problem, Server};
use crate::agent::{Record, Tools, Usage};
use crate::openai::wire::Reason;
use crate::reply::{self, Outcome};
use crate::session::TurnId;
use crate::store::{self, State, Transcribed};
use crate::words::Words;

/// The stored end of a turn.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The whole text. Shared, because it may be long and is told in many places.
    pub text: Arc<str>,
    /// Whether that is another one than what was told while it grew, and not only longer.
    pub retold: bool,
    /// How it came out.
    pub outcome: Outcome,
    /// What it cost.
    pub usage: Usage,
    /// What the agent and its tools said in it, in order; only where it was asked for.
    pub transcript: Vec<Transcribed>,
    /// Why it failed or was cut short, in words; `None` if it did not.
    pub failure: Option<String>,
}

/// What a turn cost, as chat completions count it.
#[derive(Serialize, JsonSchema)]
pub struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// The same as runs and sessions count it.
#[derive(Serialize, JsonSchema)]
pub struct RunTokens {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
}

impl Ended {
    /// Reads the end of a turn; `None` while there is none.
    pub async fn read(server: &Server, run: &TurnId) -> store::Result<Option<Self>> {
        let id = run.clone();
        let finished = server.store.read(move |tx| tx.finished(&id)).await?;
        let words = &server.live.now().words;
        Ok(finished.map(|(_, finish)| Self {
            failure: failure(&finish.outcome, &finish.text, words),
            text: finish.text.into(),
            retold: finish.retold,
            outcome: finish.outcome,
            usage: finish.usage,
            transcript: Vec::new(),
        }))
    }

    /// The same with what the agent and its tools said.
    pub async fn read_all(server: &Server, run: &TurnId) -> store::Result<Option<Self>> {
        let Some(ended) = Self::read(server, run).await? else { return Ok(None) };
        let id = run.clone();
        let transcript = server.store.read(move |tx| tx.transcript(&id)).await?;
        Ok(Some(Self { transcript, ..ended }))
    }

    /// The end of a turn of which only this text is left: its session was removed, and it was stopped for that.
    pub fn gone(text: String) -> Self {
        let (usage, transcript) = (Usage::default(), Vec::new());
        Self { text: text.into(), retold: false, outcome: Outcome::Stopped, usage, transcript, failure: None }
    }

    /// `completed`, `failed` or `cancelled`.
    pub fn status(&self) -> &'static str {
        match State::after(&self.outcome) {
            State::Done => "completed",
            State::Cancelled => "cancelled",
            State::Failed | State::Interrupted => "failed",
            // No outcome leads there.
            State::Queued | State::Dispatched | State::Streaming | State::Finalizing => "failed",
        }
    }

    /// `stop`, `length` or `error`, as chat completions end.
    pub fn finish_reason(&self) -> &'static str {
        match &self.outcome {
            Outcome::Done => "stop",
            // Somebody cut it: whoever knows nothing else must see that it is not whole.
            Outcome::Stopped | Outcome::Limit => "length",
            Outcome::CutShort { .. }
            | Outcome::Failed { .. }
            | Outcome::Unavailable { .. }
            | Outcome::Interrupted
            | Outcome::Unknown { .. }
            | Outcome::Cancelled { .. } => "error",
        }
    }

    /// How it came out, for programs that care which.
    pub fn code(&self) -> &'static str {
        self.outcome.for_the_log().0
    }

    /// Why it failed or was cut short, for another Talaria before this one, which has the words itself.
    pub fn reason(&self) -> Option<Reason<'static>> {
        match &self.outcome {
            Outcome::CutShort { words }
            | Outcome::Failed { words }
            | Outcome::Unavailable { words, .. }
            | Outcome::Unknown { words } => Reason::of(words),
            Outcome::Done
            | Outcome::Stopped
            | Outcome::Limit
            | Outcome::Interrupted
            | Outcome::Cancelled { .. } => None,
        }
    }

    /// The error object of a turn that failed.
    pub fn error(&self) -> Option<Value> {
        let message = self.failure.as_ref()?;
        Some(json!({ "message": message, "type": "server_error", "param": null, "code": self.code() }))
    }

    /// The same for the end of a stream of chat completions. There the code is the status that the answer would have had
    /// without a stream, as a number: that is what vLLM and OpenRouter send, and what LiteLLM makes its exception of.
    pub fn streamed_error(&self) -> Option<Value> {
        let message = self.failure.as_ref()?;
        let problem = self.unavailable();
        let problem = problem.unwrap_or_else(|| Problem::new(StatusCode::BAD_GATEWAY, self.code(), message));
        let mut error = problem.object();
        error["code"] = json!(problem.status.as_u16());
        error["outcome"] = json!(self.code());
        Some(error)
    }

    /// The answer to a request without a stream whose turn failed: a 502 with the text that there was, because common
    /// clients take every 200 for a whole answer. `None` if the turn did not fail, or if it has text and the client takes
    /// partial answers.
    pub fn problem(&self, heads: &Heads) -> Option<Problem> {
        if let Some(unavailable) = self.unavailable() {
            return Some(unavailable);
        }
        let message = self.failure.as_ref()?;
        let partial = (!self.text.trim().is_empty()).then(|| Box::new(self.text.clone()));
        if partial.is_some() && heads.takes_partial {
            return None;
        }
        let problem = Problem::new(StatusCode::BAD_GATEWAY, self.code(), message.as_str());
        // Clients try again by themselves what failed like this. It may have run, and is not asked twice unasked.
        Some(Problem { again: false, partial, ..problem })
    }

    /// The error of a turn that was not run because the agent is away or busy. A client may repeat the request by
    /// itself: nothing ran.
    pub fn unavailable(&self) -> Option<Problem> {
        let Outcome::Unavailable { rate_limited, retry_after, .. } = &self.outcome else { return None };
        let message = self.failure.as_deref().unwrap_or_default();
        let retry_after = Some(Duration::from_secs(*retry_after));
        let (status, code) = match rate_limited {
            true => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "agent_unavailable"),
        };
        Some(Problem { retry_after, ..Problem::new(status, code, message) })
    }

    /// The tokens, as chat completions count them.
    pub fn usage(&self) -> Value {
        json!(self.tokens())
    }

    /// The same.
    pub fn tokens(&self) -> Tokens {
        let Usage { input, output } = self.usage;
        let total_tokens = input.saturating_add(output);
        Tokens { prompt_tokens: input, completion_tokens: output, total_tokens }
    }

    /// The same, as runs count them.
    pub fn usage_of_a_run(&self) -> RunTokens {
        let Usage { input, output } = self.usage;
        RunTokens { input_tokens: input, output_tokens: output, total_tokens: input.saturating_add(output) }
    }
}

/// One message of a transcript, in the form of the protocol.
/// Its words are handed in, because they may be long.
pub fn message(record: &Record, content: Value) -> Value {
    let mut value = json!({ "role": record.message.role, "content": content });
    match &record.tools {
        Some(Tools::Calls { tool_calls }) => value["tool_calls"] = json!(tool_calls),
        Some(Tools::Result { tool_call_id, tool_name }) => {
            value["tool_call_id"] = json!(tool_call_id);
            value["tool_name"] = json!(tool_name);
        }
        None => {}
    }
    value
}

/// Why it failed. A room is told of commands that help; a program has none.
fn failure(outcome: &Outcome, text: &str, words: &Words) -> Option<String> {
    told_failure(outcome, text, words).map(|said| without_commands(&said))
}

/// A sentence for rooms without the clauses that name a command such as `/retry`. Where nothing else is said, all of it.
fn without_commands(said: &str) -> String {
    let is_command = |word: &str| {
        let name = word.strip_prefix('/').unwrap_or_default().trim_end_matches(['.', ',', ';', ')']);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
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

fn told_failure(outcome: &Outcome, text: &str, words: &Words) -> Option<String> {
    match outcome {
        Outcome::Done | Outcome::Stopped | Outcome::Limit => None,
        Outcome::Interrupted => {
            Some("The server ended while this ran; it is not run again unasked".to_owned())
        }
        Outcome::CutShort { words: why } | Outcome::Unknown { words: why } => {
            let said = words.say(why);
            let why = reply::bare(&said);
            Some(match text.trim().is_empty() {
                true => format!("There is no answer: {why}"),
                false => format!("The answer was cut short: {why}"),
            })
        }
        Outcome::Failed { .. } | Outcome::Unavailable { .. } | Outcome::Cancelled { .. } => {
            Some(reply::finished("", outcome, words).trim().to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Text;

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
        let words = Words::default();
        for text in [Text::BrokeBusy, Text::BrokeReported, Text::BrokeTooLong, Text::CannotResume] {
            for outcome in [
                Outcome::CutShort { words: text.into() },
                Outcome::Failed { words: text.into() },
                Outcome::Unknown { words: text.into() },
            ] {
                let told = failure(&outcome, "", &words).unwrap();
                assert!(!told.contains("/retry") && !told.contains("/new"), "{told}");
                assert!(told.len() > 20, "{told}");
            }
        }
    }
}
