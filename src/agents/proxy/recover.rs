//! Looks for a lost answer in the transcript that the upstream keeps of its session.
//!
//! A plain upstream is never sent a prompt twice. But an upstream that keeps sessions has stored the answer, if there was
//! one. The answer is taken only if it certainly belongs to this prompt: our prompt is the last one in the transcript, it
//! occurs once more than it was asked before, and an answer follows it. See [`transcript`](super::transcript).

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use talaria_platform::Backoff;
use tokio::time::Instant;

use super::capabilities::body;
use super::protocol::TurnProtocol;
use super::runs::request;
use super::runs::run_turn::ForgottenRun;
use super::transcript::{KeptAnswer, SearchResult, UpstreamTranscript};
use super::{ProxyAgent, SMALL_REQUEST};
use crate::agent::{AgentErrorKind, AgentOutput, EqualTurns, LostTurn, RecoveredAnswer, TurnEvent};
use crate::config::UpstreamSetting;
use crate::i18n::TextKey;
use crate::ids::SessionId;
use crate::openai::error;
use crate::openai::hashed_text::HashedText;

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
        if !is_run && self.config.upstream == UpstreamSetting::Runs {
            // A turn with files: its stream names no session.
            return None;
        }
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
    async fn look(&self, session: &SessionId, prompt: &str, before: EqualTurns) -> SearchResult {
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
                Ok(transcript) => match transcript.find(prompt, before) {
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
    pub(super) async fn last_answer(&self, session: &SessionId, prompt: &HashedText) -> Option<KeptAnswer> {
        let mut backoff = PAUSES;
        for look in 1..=LOOKS {
            match self.read_last_answer(session, prompt).await {
                Ok(kept) => return kept,
                Err(error) => tracing::debug!(%error, look, "the session was not read"),
            }
            if look < LOOKS {
                tokio::time::sleep(backoff.advance()).await;
            }
        }
        None
    }

    async fn read_last_answer(
        &self,
        session: &SessionId,
        prompt: &HashedText,
    ) -> reqwest::Result<Option<KeptAnswer>> {
        let able = self.abilities().await.is_ok_and(|able| able.transcripts);
        let Some(url) = self.messages_of(session).filter(|_| able) else { return Ok(None) };
        let response = self.client.get(url).headers(self.key()).timeout(SMALL_REQUEST).send().await?;
        if response.status().is_server_error() {
            response.error_for_status()?;
            return Ok(None);
        }
        let Some(body) = body(response, TRANSCRIPT).await? else { return Ok(None) };
        let kept = serde_json::from_slice::<UpstreamTranscript>(&body).ok();
        Ok(kept.and_then(|kept| kept.last_answer(|text| prompt.is(text))))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
