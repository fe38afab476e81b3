//! Reads the chunks of one stream, most of which differ in nothing but their text.
//!
//! A server repeats id, model and all with every few characters, and reading that again costs ten
//! times what finding the text does. So the frame around the text is remembered. If the next chunk
//! has the same frame, and between its quotes only characters that stand for themselves, then
//! reading it in full could only give the same values with another text. Anything else is read in
//! full, so a stream that never repeats itself is read as well, only slower.

use std::borrow::Cow;

use super::{ChunkChoice, ChunkDelta, StreamChunk};

/// Reads the chunks of one stream. Gives exactly what [`StreamChunk::parse`] does.
#[derive(Debug, Default)]
pub struct ChunkCache {
    /// The last chunk that had a text and nothing else, up to the opening quote of the text; empty
    /// before there was one.
    before: String,
    /// The same chunk from the closing quote on.
    after: String,
}

impl ChunkCache {
    /// Reads the data of the next event. An error means that it is no JSON object.
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

    /// The text in `data` if the frame around it is the remembered one.
    fn repeated<'a>(&self, data: &'a str) -> Option<&'a str> {
        if self.before.is_empty() {
            return None;
        }
        let text = data.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\').then_some(text)
    }
}

/// What surrounds the text of a chunk that has nothing but text.
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
    // Borrowed means that it is a piece of `data`, so its address tells where.
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

    /// Streams of chunks that are alike, nearly alike, and broken in all kinds of places.
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
