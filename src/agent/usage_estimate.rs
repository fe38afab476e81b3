//! Estimates the tokens of a turn from bytes, for servers that report none and for turns that died before they could.
//! Pure.

use memchr::memmem;

use super::{MessageRole, SessionMessage, TokenUsage, ToolActivity};

/// Bytes that count as one token. English text has about four.
const BYTES_PER_TOKEN: usize = 4;

/// Bytes that a picture counts as, whatever its size: servers charge about a thousand tokens for one.
const PICTURE: usize = 4 * 1024;

/// Beginning of a picture's bytes in a request; they end with the text.
const PICTURE_BEGIN: &[u8] = b";base64,";

/// Adds up the requests of one turn.
#[derive(Clone, Copy, Debug)]
pub struct UsageEstimate {
    /// Bytes of the next request.
    request: usize,
    /// Bytes of all requests so far.
    input: usize,
    /// Bytes of all answers so far.
    output: usize,
    /// Whether any answer was recorded.
    has_answer: bool,
}

impl UsageEstimate {
    /// A turn whose first request has these bytes.
    pub fn of(request: &[u8]) -> Self {
        Self { request: text_bytes(request), input: 0, output: 0, has_answer: false }
    }

    /// Takes the next recorded message. Each message of the assistant answered a request with everything before it.
    pub fn record(&mut self, message: &SessionMessage) {
        let bytes = message.content.len() + message.tools.as_ref().map_or(0, activity_bytes);
        if message.role == MessageRole::Assistant {
            self.has_answer = true;
            self.answer(bytes);
        }
        self.request = self.request.saturating_add(bytes);
    }

    /// The estimate for a turn with this text beyond its last recorded message. A turn that recorded nothing made one
    /// request all the same.
    pub fn finish(mut self, rest: &str) -> TokenUsage {
        if !self.has_answer || !rest.trim().is_empty() {
            self.answer(rest.len());
        }
        TokenUsage { input: tokens(self.input), output: tokens(self.output) }
    }

    fn answer(&mut self, bytes: usize) {
        self.input = self.input.saturating_add(self.request);
        self.output = self.output.saturating_add(bytes);
    }
}

/// Estimated tokens of so many bytes.
pub fn estimate_tokens(bytes: usize) -> u64 {
    tokens(bytes)
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

fn activity_bytes(activity: &ToolActivity) -> usize {
    match activity {
        ToolActivity::Calls { tool_calls } => tool_calls.iter().map(|call| call.to_string().len()).sum(),
        ToolActivity::Result { .. } => 0,
    }
}

/// Bytes of a request, with each picture as `PICTURE` bytes.
pub fn text_bytes(request: &[u8]) -> usize {
    let (mut rest, mut bytes) = (request, 0);
    while let Some(at) = memmem::find(rest, PICTURE_BEGIN) {
        let (before, picture) = rest.split_at(at + PICTURE_BEGIN.len());
        let end = memchr::memchr(b'"', picture).unwrap_or(picture.len());
        bytes += before.len() + PICTURE.min(end);
        rest = picture.get(end..).unwrap_or_default();
    }
    bytes + rest.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_request_has_everything_before_it() {
        let plain = UsageEstimate::of(&[b'x'; 400]).finish(&"y".repeat(80));
        assert_eq!(plain, TokenUsage { input: 100, output: 20 });
        assert_eq!(UsageEstimate::of(&[b'x'; 400]).finish(""), TokenUsage { input: 100, output: 0 });

        let mut turn = UsageEstimate::of(&[b'x'; 400]);
        let call = json!({ "id": "a" });
        let size = call.to_string().len();
        let calls = SessionMessage {
            tools: Some(ToolActivity::Calls { tool_calls: vec![call] }),
            ..SessionMessage::new(MessageRole::Assistant, "c".repeat(40 - size))
        };
        turn.record(&calls);
        turn.record(&SessionMessage::new(MessageRole::Tool, "r".repeat(160)));
        // Halted by now: nothing more was asked.
        assert_eq!(turn.finish(" "), TokenUsage { input: 100, output: 10 });
        // A second request, with the call and its result.
        assert_eq!(turn.finish(&"y".repeat(80)), TokenUsage { input: 100 + 150, output: 30 });
    }

    #[test]
    fn a_picture_counts_as_a_picture_and_not_as_text() {
        let picture = format!("{{\"url\":\"data:image/png;base64,{}\"}}", "A".repeat(1_000_000));
        let bytes = text_bytes(picture.as_bytes());
        assert!((PICTURE..PICTURE + 100).contains(&bytes), "{bytes}");
        let twice = format!("{picture}{picture} and words");
        assert_eq!(text_bytes(twice.as_bytes()), 2 * bytes + " and words".len());
        assert_eq!(text_bytes(b";base64,AAAA"), 12);
    }
}
