//! Parses the chunks of one stream, most of which differ only in their text.
//!
//! A server repeats id, model and more with every few characters, and parsing them again costs ten times as
//! much as finding the text. So the JSON around the text is remembered. If the next chunk has the same JSON,
//! and between its quotes only characters without escapes, then a full parse could only give the same values
//! with another text. Any other chunk is parsed in full, so a stream that never repeats itself works too, only
//! slower.

use std::borrow::Cow;

use super::{ChunkChoice, ChunkDelta, StreamChunk};

/// Parser for the chunks of one stream. Returns exactly what [`StreamChunk::parse`] returns.
#[derive(Debug, Default)]
pub struct ChunkCache {
    /// JSON in front of the text, from the last chunk that had only text, up to and including the opening
    /// quote; empty before the first.
    before: String,
    /// JSON behind the text of that chunk, from the closing quote on.
    after: String,
}

impl ChunkCache {
    /// Parses the data of the next event. Fails only if it is not a JSON object.
    pub fn read<'a>(&mut self, data: &'a str) -> Result<StreamChunk<'a>, serde_json::Error> {
        if let Some(text) = self.repeated(data) {
            let delta = ChunkDelta { content: Some(Cow::Borrowed(text)), ..ChunkDelta::default() };
            let choice = ChunkChoice { delta: Some(delta), finish_reason: None };
            return Ok(StreamChunk { choice: Some(choice), ..StreamChunk::default() });
        }
        let chunk = StreamChunk::parse(data)?;
        if let Some((before, after)) = frame(data, &chunk) {
            before.clone_into(&mut self.before);
            after.clone_into(&mut self.after);
        }
        Ok(chunk)
    }

    /// The text in `data`, if the JSON around it is the remembered one.
    fn repeated<'a>(&self, data: &'a str) -> Option<&'a str> {
        if self.before.is_empty() {
            return None;
        }
        let text = data.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\').then_some(text)
    }
}

/// The JSON around the text of a chunk that has only text.
fn frame<'a>(data: &'a str, chunk: &StreamChunk<'a>) -> Option<(&'a str, &'a str)> {
    let StreamChunk {
        choice: Some(ChunkChoice { delta: Some(delta), finish_reason: None }),
        usage: None,
        error: None,
        hermes: None,
    } = chunk
    else {
        return None;
    };
    // Borrowed text is a slice of `data`, so its address gives its position.
    let ChunkDelta { content: Some(Cow::Borrowed(text)), reasoning_content: None, reasoning: None } = delta
    else {
        return None;
    };
    let start = text.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    Some((data.get(..start)?, data.get(start + text.len()..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(content: &str) -> String {
        format!(
            r#"{{"id":"c1","choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":null}}]}}"#
        )
    }

    #[test]
    fn only_the_text_is_read_of_a_repeated_frame() {
        let mut chunks = ChunkCache::default();
        let (first, second) = (chunk("Hel"), chunk("lo, 😀"));
        assert_eq!(chunks.read(&first).unwrap().text(), Some("Hel"));
        assert_eq!(chunks.repeated(&second), Some("lo, 😀"));
        assert_eq!(chunks.read(&second).unwrap().text(), Some("lo, 😀"));
    }

    #[test]
    fn escapes_quotes_and_control_characters_are_left_to_the_full_reading() {
        let mut chunks = ChunkCache::default();
        chunks.read(&chunk("a")).unwrap();
        assert_eq!(chunks.read(&chunk(r"b\n")).unwrap().text(), Some("b\n"));
        assert_eq!(chunks.read(&chunk(r#"c","reasoning":"d"#)).unwrap().thought(), Some("d"));
        assert!(chunks.read(&chunk("e\nf")).is_err());
        assert!(chunks.read(&chunk(r"g\")).is_err());
    }

    #[test]
    fn a_frame_that_says_more_than_text_is_not_remembered() {
        for data in [
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"usage":{}}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"error":{}}"#,
            r#"{"choices":[{"delta":{"content":"a\n"}}]}"#,
        ] {
            let mut chunks = ChunkCache::default();
            chunks.read(data).unwrap();
            assert_eq!(chunks.before, "", "{data}");
        }
    }

    /// Streams of chunks that are alike, nearly alike, or broken in various places.
    fn stream() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof!["[a-z 😀é]{0,6}", r#"[a"\\n,:{}\[\]\t]{0,6}"#];
        let whole = text.prop_map(|text| chunk(&text));
        let broken =
            (whole.clone(), any::<prop::sample::Index>(), r#"["\\,}x]{0,2}"#).prop_map(|(data, at, junk)| {
                let at = at.index(data.len());
                if data.is_char_boundary(at) { format!("{}{junk}{}", &data[..at], &data[at..]) } else { data }
            });
        prop::collection::vec(prop_oneof![3 => whole, 1 => broken], 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn remembering_changes_nothing(stream in stream()) {
            let mut chunks = ChunkCache::default();
            for data in &stream {
                prop_assert_eq!(chunks.read(data).ok(), StreamChunk::parse(data).ok(), "{}", data);
            }
        }
    }
}
