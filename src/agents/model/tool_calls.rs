//! Puts the tool calls of a message together from the pieces of a stream. Pure.

use crate::openai::wire::ToolCallDelta;

/// Most calls in one message. A model that wants more is told to make them one after the other.
pub const CALLS: usize = 32;

/// Most bytes of names and arguments in one message. A whole file that is written is among them.
const CALL_BYTES: usize = 2 * 1024 * 1024;

/// A tool call as the model wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedCall {
    /// The model's id of the call; may be empty, and may repeat.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments: JSON, if the model was careful.
    pub arguments: String,
}

/// The message has more or longer calls than anybody could want.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyCalls;

/// Collects the pieces of the calls in one message.
#[derive(Debug, Default)]
pub struct ToolCallAssembler {
    /// Each call with its number in the stream, as far as the server sends one.
    calls: Vec<(Option<String>, RequestedCall)>,
    bytes: usize,
    too_many: bool,
}

impl ToolCallAssembler {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &ToolCallDelta<'_>) {
        let index = piece.index.as_deref();
        let id = piece.id.as_deref().unwrap_or_default();
        let (name, arguments) = piece.function.as_ref().map_or(("", ""), |function| {
            (function.name.as_deref().unwrap_or_default(), function.arguments.as_deref().unwrap_or_default())
        });
        self.bytes += id.len() + name.len() + arguments.len();
        let known = self.position(index, id, name);
        if self.bytes > CALL_BYTES || (known.is_none() && self.calls.len() == CALLS) {
            self.too_many = true;
            return;
        }
        let at = known.unwrap_or_else(|| {
            self.calls.push((index.map(str::to_owned), RequestedCall::default()));
            self.calls.len() - 1
        });
        let call = &mut self.calls[at].1;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some servers repeat the whole name with each piece.
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        call.arguments.push_str(arguments);
    }

    /// The complete calls, in the order of their first pieces.
    pub fn finish(self) -> Result<Vec<RequestedCall>, TooManyCalls> {
        match self.too_many {
            true => Err(TooManyCalls),
            false => Ok(self.calls.into_iter().map(|(_, call)| call).collect()),
        }
    }

    /// The call that a piece continues; `None` if it begins another one.
    fn position(&self, index: Option<&str>, id: &str, name: &str) -> Option<usize> {
        let at = match index {
            Some(_) => self.calls.iter().rposition(|(known, _)| known.as_deref() == index)?,
            None if !id.is_empty() || !name.is_empty() => return None,
            None => self.calls.len().checked_sub(1)?,
        };
        // Some servers give every call the number 0, each with an id of its own.
        let other = !id.is_empty() && !self.calls[at].1.id.is_empty() && self.calls[at].1.id != id;
        (!other).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(pieces: &[&str]) -> Result<Vec<RequestedCall>, TooManyCalls> {
        let mut assembler = ToolCallAssembler::default();
        for piece in pieces {
            assembler.push(&serde_json::from_str(piece).unwrap());
        }
        assembler.finish()
    }

    fn call(id: &str, name: &str, arguments: &str) -> RequestedCall {
        RequestedCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn pieces_of_parallel_calls_are_told_apart_by_their_number() {
        let pieces = [
            r#"{"index":0,"id":"a","type":"function","function":{"name":"look","arguments":""}}"#,
            r#"{"index":1,"id":"b","function":{"name":"write","arguments":"{\"p"}}"#,
            r#"{"index":0,"function":{"arguments":"{}"}}"#,
            r#"{"index":1,"function":{"arguments":"\":1}"}}"#,
        ];
        assert_eq!(calls(&pieces).unwrap(), [call("a", "look", "{}"), call("b", "write", r#"{"p":1}"#)]);
    }

    #[test]
    fn whole_calls_need_no_number_or_may_share_one() {
        for index in ["", r#""index":0,"#] {
            let pieces = ["a", "b"].map(|id| {
                format!(r#"{{{index}"id":"{id}","function":{{"name":"look","arguments":"{{}}"}}}}"#)
            });
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            assert_eq!(calls(&pieces).unwrap(), [call("a", "look", "{}"), call("b", "look", "{}")]);
        }
    }

    #[test]
    fn pieces_without_anything_known_are_harmless() {
        assert_eq!(calls(&[r#"{"function":{"arguments":"{}"}}"#]).unwrap(), [call("", "", "{}")]);
        assert_eq!(calls(&["{}", r#"{"index":null,"id":7}"#]).unwrap(), [call("", "", "")]);
        assert_eq!(calls(&[]).unwrap(), []);
    }

    #[test]
    fn a_flood_of_calls_is_refused() {
        let many: Vec<_> = (0..=CALLS).map(|at| format!(r#"{{"index":{at},"id":"c{at}"}}"#)).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(calls(&many), Err(TooManyCalls));
        let long = format!(r#"{{"index":0,"function":{{"arguments":"{}"}}}}"#, "x".repeat(CALL_BYTES + 1));
        assert_eq!(calls(&[&long]), Err(TooManyCalls));
    }
}
