//! One request to the model's server, and the streamed answer to it.

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use talaria_platform::CancellationToken;

use super::tool_calls::{RequestedCall, TooManyCalls, ToolCallAssembler};
use super::{ModelAgent, WHO};
use crate::agent::{AgentError, AgentErrorKind, AgentOutput, TurnEnd};
use crate::i18n::TextKey;
use crate::openai::stream_reader::StreamReader;
use crate::openai::{client, error};

/// The end of one request.
pub struct Completion {
    /// How the answer ended.
    pub end: TurnEnd,
    /// The tools that the model wants to be called.
    pub calls: Vec<RequestedCall>,
}

impl ModelAgent {
    /// Sends a request and reads the answer to its end. Text goes to `out` as it comes.
    pub(super) async fn complete(
        &self,
        request: Bytes,
        out: &dyn AgentOutput,
        stop: &CancellationToken,
    ) -> Result<Completion, AgentError> {
        let url = format!("{}/chat/completions", self.config.url.as_str());
        let mut request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(request);
        if let Some(bearer) = self.config.key.as_ref().and_then(client::bearer) {
            request = request.header(AUTHORIZATION, bearer);
        }
        let sent = tokio::select! {
            sent = tokio::time::timeout(self.config.timeouts.first_byte, request.send()) => sent,
            () = stop.cancelled() => return Ok(Completion { end: TurnEnd::Stopped, calls: Vec::new() }),
        };
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(error::request(WHO, &error.without_url())),
            Err(_) => return Err(error::broken(TextKey::BrokeModelSilent)),
        };
        let assembler = Mutex::new(ToolCallAssembler::default());
        let reader = StreamReader {
            who: WHO,
            timeouts: &self.config.timeouts,
            numbered: false,
            tells_subjects: false,
            asides: &|_| {},
            tool_calls: Some(&|piece| assembler.lock().push(piece)),
        };
        let end = reader.read(response, out, stop).await?;
        match assembler.into_inner().finish() {
            Ok(calls) => Ok(Completion { end, calls }),
            Err(TooManyCalls) => Err(AgentError::new(AgentErrorKind::CutShort, TextKey::BrokeTooManyCalls)),
        }
    }
}
