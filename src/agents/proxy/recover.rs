//! Looks for a lost answer in the transcript that the upstream keeps of its session.
//!
//! A plain upstream is never sent a prompt twice. But an upstream that keeps sessions has stored the answer, if there was
//! one. The answer is taken only if it certainly belongs to this prompt: our prompt is the last one in the transcript, it
//! occurs once more than the turns answered before, and an answer follows it.
//!
//! Only `finish_reason: stop` proves that an answer is complete. hermes-agent interrupts its agent when the reader of the
//! stream leaves, and stores the text until then without any `finish_reason`.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use talaria_platform::Backoff;
use tokio::time::Instant;

use super::capabilities::body;
use super::process_start::UtcMoment;
use super::protocol::TurnProtocol;
use super::runs::request;
use super::runs::run_turn::ForgottenRun;
use super::{ProxyAgent, SMALL_REQUEST};
use crate::agent::{AgentErrorKind, AgentOutput, LostTurn, RecoveredAnswer, TurnEvent};
use crate::i18n::TextKey;
use crate::ids::SessionId;
use crate::openai::error;

/// Longest search for an answer: the upstream may still work on it, or be away. Other turns of the session wait.
const WAIT: Duration = Duration::from_secs(120);

/// The pause after the first look; each further one is twice as long, up to the second: once a new process answers
/// there, people should know within ten seconds how things are. While nothing listens the first applies.
const PAUSES: Backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(5));

/// Most looks for the texts of an answer whose run has ended.
const LOOKS: usize = 3;

/// Looks without the question after which a server that has no run under way will not begin it. The request may have been
/// on its way at the first one.
const IDLE_LOOKS: usize = 2;

/// The largest session that is looked at.
const TRANSCRIPT: usize = 8 * 1024 * 1024;

/// Result of one look into the upstream's session.
#[derive(Debug, PartialEq, Eq)]
enum SearchResult {
    /// The answer, or a part of it.
    Answer(RecoveredAnswer),
    /// The session's messages were read, and the turn has not come to its end there. With the time at which the question
    /// was stored, if the upstream tells it.
    Unfinished { asked_at: Option<UtcMoment> },
    /// The turn has not come to its end there, and the upstream process started after the question was stored, so it
    /// never will.
    Abandoned,
    /// The session's messages could not be read now.
    NotYet,
    /// Nothing that could be told from somebody else's answer.
    Never,
}

/// Messages of a session, as the upstream returns them.
#[derive(Deserialize)]
struct UpstreamTranscript {
    data: Vec<UpstreamMessage>,
}

/// One message of an upstream's session. A field of another type than expected counts as absent.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UpstreamMessage {
    role: Value,
    content: Value,
    tool_calls: Value,
    finish_reason: Value,
    timestamp: Value,
}

/// The answer to the last question of a session.
pub(super) struct KeptAnswer {
    /// The texts of its messages, in order. There are several if tool calls are between them.
    texts: Vec<String>,
    /// A length limit has cut the last one.
    pub is_cut: bool,
}

impl KeptAnswer {
    fn of(said: &[UpstreamMessage]) -> Option<Self> {
        let last = said.iter().rposition(|said| said.role == "user")?;
        let answer: Vec<_> = said.get(last + 1..)?.iter().filter(|said| said.role == "assistant").collect();
        let is_cut = answer.last()?.finish_reason == "length";
        let texts = answer.iter().filter_map(|said| said.text().map(str::to_owned)).collect();
        Some(Self { texts, is_cut })
    }

    /// The whole answer, if its last message is this one. A run that ended without a text has none.
    pub fn whole(&self, output: &str) -> Option<String> {
        let is_ours = output.trim().is_empty() || self.texts.last().is_some_and(|last| last == output.trim());
        (is_ours && !self.texts.is_empty()).then(|| self.texts.join("\n\n"))
    }
}

impl ProxyAgent {
    /// Looks again and again until there is an answer, or until there cannot be one any more.
    pub(super) async fn look_for(
        &self,
        lost: LostTurn<'_>,
        out: &dyn AgentOutput,
    ) -> Option<RecoveredAnswer> {
        let prompt = prompt(&lost.prepared.request)?;
        let began = Instant::now();
        let is_forgotten = lost.turn.scratch.get::<ForgottenRun>().is_some();
        // Never longer than a stream itself may be silent.
        let (deadline, mut backoff) = (began + WAIT.min(self.config.timeouts.idle), PAUSES);
        let is_run = TurnProtocol::of(&lost.prepared.request) == TurnProtocol::Runs;
        let mut idle_looks = 0;
        let found = loop {
            // Asked first, so that the session has the answer of a run that ends in between.
            let is_idle = is_run && self.runs_nothing().await;
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            match self.look(&lost.turn.session, &prompt, lost.before).await {
                SearchResult::Answer(answer) => break Some(answer),
                SearchResult::Never | SearchResult::Abandoned => break None,
                // The process that ran the turn has ended since, and the one that answers now does not go on with it.
                SearchResult::Unfinished { .. } if self.was_refused_since(began) || is_forgotten => {
                    break None;
                }
                // The request never arrived, or its run has ended without an answer.
                SearchResult::Unfinished { .. } if idle_looks >= IDLE_LOOKS => break None,
                SearchResult::Unfinished { .. } => {}
                SearchResult::NotYet if self.was_refused_since(began) => backoff.reset(),
                SearchResult::NotYet => {}
            }
            let pause = backoff.advance();
            if Instant::now() + pause > deadline {
                break None;
            }
            out.emit(TurnEvent::Notice(Some(TextKey::LookingForAnswer.into())));
            tokio::time::sleep(pause).await;
        };
        out.emit(TurnEvent::Notice(None));
        tracing::info!(found = found.is_some(), "a lost answer was looked for");
        found
    }

    /// Whether nothing listened at the upstream's address at some time since `began`.
    fn was_refused_since(&self, began: Instant) -> bool {
        self.known().refused_at.is_some_and(|refused| refused >= began)
    }

    /// Looks once.
    async fn look(&self, session: &SessionId, prompt: &str, before: usize) -> SearchResult {
        match self.abilities().await {
            // The engine sends the request to such an upstream again instead.
            Ok(able) if able.idempotent => return SearchResult::Never,
            Ok(able) if able.transcripts || able.sessions => {}
            Ok(_) => return SearchResult::Never,
            Err(error) => {
                return match error.kind {
                    AgentErrorKind::NothingRan { .. }
                    | AgentErrorKind::Busy { .. }
                    | AgentErrorKind::Unknown { .. } => SearchResult::NotYet,
                    AgentErrorKind::PrepareAgain
                    | AgentErrorKind::Lost
                    | AgentErrorKind::Refused
                    | AgentErrorKind::Unfit
                    | AgentErrorKind::CutShort => SearchResult::Never,
                };
            }
        }
        let Some(url) = self.messages_of(session) else { return SearchResult::Never };
        // The start time is read before the messages, so that they include every answer of the process before.
        let listening_since = self.listening_since().await;
        // The time is for the whole answer, however slowly it comes.
        let patience = SMALL_REQUEST.min(self.config.timeouts.first_byte);
        let response = match self.client.get(url).headers(self.key()).timeout(patience).send().await {
            Ok(response) => response,
            Err(error) => {
                let mut known = self.known();
                known.current = None;
                if error::is_refused(&error) {
                    known.refused_at = Some(Instant::now());
                }
                return SearchResult::NotYet;
            }
        };
        match response.status().as_u16() {
            200 => {}
            408 | 429 | 500.. => return SearchResult::NotYet,
            _ => return SearchResult::Never,
        }
        match body(response, TRANSCRIPT).await {
            Ok(Some(body)) => match serde_json::from_slice::<UpstreamTranscript>(&body) {
                Ok(UpstreamTranscript { data }) => match find(&data, prompt, before) {
                    SearchResult::Unfinished { asked_at: Some(asked) }
                        if listening_since > Some(asked.clone()) =>
                    {
                        SearchResult::Abandoned
                    }
                    found => found,
                },
                Err(_) => SearchResult::Never,
            },
            Ok(None) => SearchResult::Never,
            Err(_) => SearchResult::NotYet,
        }
    }

    /// The answer to the last question of a session, as far as the upstream tells. People wait for it, so a server that
    /// cannot tell is asked only [`LOOKS`] times.
    pub(super) async fn last_answer(&self, session: &SessionId) -> Option<KeptAnswer> {
        let mut backoff = PAUSES;
        for look in 1..=LOOKS {
            match self.read_last_answer(session).await {
                Ok(kept) => return kept,
                Err(error) => tracing::debug!(%error, look, "the session was not read"),
            }
            if look < LOOKS {
                tokio::time::sleep(backoff.advance()).await;
            }
        }
        None
    }

    async fn read_last_answer(&self, session: &SessionId) -> reqwest::Result<Option<KeptAnswer>> {
        let able = self.abilities().await.is_ok_and(|able| able.transcripts);
        let Some(url) = self.messages_of(session).filter(|_| able) else { return Ok(None) };
        let response = self.client.get(url).headers(self.key()).timeout(SMALL_REQUEST).send().await?;
        if response.status().is_server_error() {
            response.error_for_status()?;
            return Ok(None);
        }
        let Some(body) = body(response, TRANSCRIPT).await? else { return Ok(None) };
        let kept = serde_json::from_slice::<UpstreamTranscript>(&body).ok();
        Ok(kept.and_then(|kept| KeptAnswer::of(&kept.data)))
    }

    fn messages_of(&self, session: &SessionId) -> Option<Url> {
        let mut url = Url::parse(self.config.url.as_str()).ok()?;
        url.path_segments_mut().ok()?.pop_if_empty().extend(["api", "sessions", &session.0, "messages"]);
        Some(url)
    }
}

/// The prompt of a request. `None` unless it is only text and the request has `stream_options`, which are sent only to
/// an upstream that reported its capabilities: any other has no transcript to look into.
fn prompt(request: &[u8]) -> Option<String> {
    if TurnProtocol::of(request) == TurnProtocol::Runs {
        return request::prompt(request).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    }
    let mut request: Value = serde_json::from_slice(request).ok()?;
    request.get("stream_options")?;
    let last = request.get_mut("messages")?.as_array_mut()?.pop()?;
    last.get("content")?.as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Finds the answer to a prompt that `before` earlier turns had too.
fn find(said: &[UpstreamMessage], prompt: &str, before: usize) -> SearchResult {
    let asks = |said: &&UpstreamMessage| said.role == "user" && said.text() == Some(prompt);
    match said.iter().filter(asks).count() {
        times if times == before => return SearchResult::Unfinished { asked_at: None },
        times if times != before + 1 => return SearchResult::Never,
        _ => {}
    }
    let Some(last) = said.iter().rposition(|said| said.role == "user") else { return SearchResult::Never };
    if !said.get(last).is_some_and(|said| asks(&said)) {
        return SearchResult::Never;
    }
    let asked_at = said.get(last).and_then(|said| UtcMoment::from_unix(said.timestamp.as_f64()?));
    let Some(end) = said.get(last + 1..).and_then(<[UpstreamMessage]>::last) else {
        return SearchResult::Unfinished { asked_at };
    };
    let whole = || KeptAnswer::of(said).map(|kept| kept.texts.join("\n\n")).unwrap_or_default();
    match (end.text(), end.finish_reason.as_str()) {
        // The agent works with its tools.
        _ if end.role != "assistant" || end.calls_tools() => SearchResult::Unfinished { asked_at },
        (Some(_), Some("stop")) => SearchResult::Answer(RecoveredAnswer::Complete(whole())),
        (Some(_), None | Some(_)) => SearchResult::Answer(RecoveredAnswer::Partial(whole())),
        (None, None) => SearchResult::Unfinished { asked_at },
        // The agent ended without a text.
        (None, Some(_)) => SearchResult::Never,
    }
}

impl UpstreamMessage {
    fn text(&self) -> Option<&str> {
        self.content.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    fn calls_tools(&self) -> bool {
        match &self.tool_calls {
            Value::Null => false,
            Value::Array(calls) => !calls.is_empty(),
            Value::String(calls) => !matches!(calls.trim(), "" | "[]" | "null"),
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(data: Value, before: usize) -> SearchResult {
        let UpstreamTranscript { data } = serde_json::from_value(json!({ "data": data })).unwrap();
        find(&data, "and now?", before)
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn agent(text: &str) -> Value {
        json!({ "role": "assistant", "content": text, "tool_calls": null, "finish_reason": "stop" })
    }

    fn complete(text: &str) -> SearchResult {
        SearchResult::Answer(RecoveredAnswer::Complete(text.to_owned()))
    }

    const UNFINISHED: SearchResult = SearchResult::Unfinished { asked_at: None };

    fn calls() -> Value {
        json!({ "role": "assistant", "content": "Let me see.", "tool_calls": [{ "id": "1" }] })
    }

    #[test]
    fn the_answer_behind_the_last_question_is_ours_if_the_question_is() {
        let tool = json!({ "role": "tool", "content": "42" });
        let all = json!([user("hi"), agent("hello"), user(" and now? "), calls(), tool, agent("42 it is")]);
        assert_eq!(found(all, 0), complete("Let me see.\n\n42 it is"));
    }

    #[test]
    fn a_kept_answer_is_whole_if_its_last_message_is_the_output_of_the_run() {
        let kept = |data: Value| {
            let UpstreamTranscript { data } = serde_json::from_value(json!({ "data": data })).unwrap();
            KeptAnswer::of(&data)
        };
        let tool = json!({ "role": "tool", "content": "42" });
        let with_tool =
            json!([user("hi"), agent("hello"), user("and now?"), calls(), tool, agent("42 it is")]);
        let answer = kept(with_tool).unwrap();
        assert_eq!(answer.whole(" 42 it is\n").as_deref(), Some("Let me see.\n\n42 it is"));
        assert_eq!(answer.whole("").as_deref(), Some("Let me see.\n\n42 it is"));
        assert_eq!(answer.whole("something else"), None);
        assert!(!answer.is_cut);
        let cut = json!({ "role": "assistant", "content": "Half", "finish_reason": "length" });
        assert!(kept(json!([user("and now?"), cut])).unwrap().is_cut);
        assert!(kept(json!([user("and now?")])).is_none() && kept(json!([])).is_none());
    }

    #[test]
    fn what_was_asked_before_is_told_apart_by_how_often() {
        let once = json!([user("and now?"), agent("first")]);
        let twice = json!([user("and now?"), agent("first"), user("and now?"), agent("second")]);
        assert_eq!(found(once.clone(), 1), UNFINISHED, "ours has not come there yet");
        assert_eq!(found(twice.clone(), 1), complete("second"));
        assert_eq!(found(twice, 0), SearchResult::Never, "somebody else asked the same");
        assert_eq!(found(once, 2), SearchResult::Never, "it has forgotten some of it");
    }

    #[test]
    fn somebody_elses_later_question_makes_it_doubtful() {
        assert_eq!(
            found(json!([user("and now?"), agent("a"), user("other"), agent("b")]), 0),
            SearchResult::Never
        );
    }

    #[test]
    fn what_is_not_complete_is_waited_for() {
        for tail in [json!([]), json!([calls()]), json!([calls(), { "role": "tool", "content": "x" }])] {
            let mut all = vec![user("and now?")];
            all.extend(tail.as_array().unwrap().iter().cloned());
            assert_eq!(found(Value::from(all), 0), UNFINISHED);
        }
        assert_eq!(found(json!([]), 0), UNFINISHED, "nothing has come there");
    }

    #[test]
    fn without_proof_of_its_end_an_answer_is_a_part() {
        for reason in [Value::Null, json!("length"), json!("incomplete"), json!(7)] {
            let cut = json!({ "role": "assistant", "content": "Half", "finish_reason": reason });
            let partial = SearchResult::Answer(RecoveredAnswer::Partial("Half".to_owned()));
            assert_eq!(found(json!([user("and now?"), cut]), 0), partial);
        }
        let unsaid = json!({ "role": "assistant", "content": "Half" });
        let partial = SearchResult::Answer(RecoveredAnswer::Partial("Half".to_owned()));
        assert_eq!(found(json!([user("and now?"), unsaid]), 0), partial);
    }

    #[test]
    fn an_end_without_text_is_no_answer() {
        let empty = json!({ "role": "assistant", "content": "", "finish_reason": "content_filter" });
        assert_eq!(found(json!([user("and now?"), empty]), 0), SearchResult::Never);
    }

    #[test]
    fn odd_kinds_are_no_messages() {
        let odd = json!([
            { "role": 7, "content": "and now?" }, { "role": "user", "content": ["and now?"] },
            { "content": null }, {},
        ]);
        assert_eq!(found(odd, 0), UNFINISHED);
        let odd_end = json!([user("and now?"), { "role": "assistant", "content": { "a": 1 } }]);
        assert_eq!(found(odd_end, 0), UNFINISHED);
    }

    #[test]
    fn only_text_that_was_asked_of_a_server_which_told_what_it_can_do_is_looked_for() {
        let request = |options: bool, content: Value| {
            let mut request = json!({ "messages": [{ "role": "user", "content": content }] });
            if options {
                request["stream_options"] = json!({ "include_usage": true });
            }
            prompt(request.to_string().as_bytes())
        };
        assert_eq!(request(true, json!("hi")).as_deref(), Some("hi"));
        assert_eq!(request(false, json!("hi")), None);
        assert_eq!(request(true, json!([{ "type": "text", "text": "hi" }])), None);
        assert_eq!(request(true, json!("  ")), None);
        assert_eq!(prompt(b"nonsense"), None);
    }
}
