//! Keeps a transcript legal for the next request: model servers refuse a tool call without its result, and a result
//! without its call.

use std::collections::HashSet;

use super::{MessageRole, SessionMessage, ToolActivity};

/// Stands for the result of a call that never got one.
const NO_RESULT: &str =
    "(No result: the turn ended before this call did. It may have had its effect; it was not repeated.)";

/// Stands for the answer of a turn that ended with the results of its tools. Strict servers refuse a question directly
/// after a result.
pub const NO_ANSWER: &str = "(The turn ended here, without an answer.)";

impl ToolActivity {
    /// Ids and names of the calls in a message, in order; empty for a result.
    pub fn call_names(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Calls { tool_calls } => tool_calls
                .iter()
                .filter_map(|call| {
                    let name = call.pointer("/function/name").and_then(serde_json::Value::as_str);
                    Some((call.get("id")?.as_str()?, name.unwrap_or_default()))
                })
                .collect(),
            Self::Result { .. } => Vec::new(),
        }
    }
}

/// Ends a transcript that broke off: every call without a result gets one that says so, and `rest`, the text that the
/// agent had said beyond its last message, becomes a message of its own. If the last message is still one of a tool, a
/// line says that there is no answer.
pub fn close_transcript(mut messages: Vec<SessionMessage>, rest: &str) -> Vec<SessionMessage> {
    let answered: HashSet<String> = messages.iter().filter_map(result_of).map(str::to_owned).collect();
    if let Some(last) = messages.iter().rposition(|message| message.role == MessageRole::Assistant) {
        let calls = messages[last].tools.as_ref().map(ToolActivity::call_names).unwrap_or_default();
        let missing: Vec<_> = calls
            .into_iter()
            .filter(|(id, _)| !answered.contains(*id))
            .map(|(id, name)| SessionMessage {
                tools: Some(ToolActivity::Result { tool_call_id: id.to_owned(), tool_name: name.to_owned() }),
                ..SessionMessage::new(MessageRole::Tool, NO_RESULT)
            })
            .collect();
        messages.extend(missing);
    }
    let rest = rest.trim();
    if !rest.is_empty() {
        messages.push(SessionMessage::new(MessageRole::Assistant, rest));
    } else if messages.last().is_some_and(|last| last.role == MessageRole::Tool) {
        messages.push(SessionMessage::new(MessageRole::Assistant, NO_ANSWER));
    }
    messages
}

/// Takes out of a history everything that would make a request illegal: results without their call, which the beginning
/// of a cut history has, calls of which a result is missing, and notes, which no protocol knows.
pub fn legal_history(messages: Vec<SessionMessage>) -> Vec<SessionMessage> {
    let answered: HashSet<String> = messages.iter().filter_map(result_of).map(str::to_owned).collect();
    let mut called = HashSet::new();
    let mut legal = Vec::with_capacity(messages.len());
    for mut message in messages {
        match &message.tools {
            Some(calls @ ToolActivity::Calls { .. }) => {
                let ids: Vec<_> = calls.call_names().into_iter().map(|(id, _)| id.to_owned()).collect();
                match !ids.is_empty() && ids.iter().all(|id| answered.contains(id)) {
                    true => called.extend(ids),
                    false => message.tools = None,
                }
            }
            Some(ToolActivity::Result { tool_call_id, .. }) if !called.contains(tool_call_id) => continue,
            Some(ToolActivity::Result { .. }) => {}
            None if matches!(message.role, MessageRole::Tool | MessageRole::Note) => continue,
            None => {}
        }
        if message.tools.is_some() || !message.content.trim().is_empty() {
            legal.push(message);
        }
    }
    legal
}

/// Id of the call that a message is the result of.
fn result_of(message: &SessionMessage) -> Option<&str> {
    match &message.tools {
        Some(ToolActivity::Result { tool_call_id, .. }) => Some(tool_call_id),
        Some(ToolActivity::Calls { .. }) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn calls(content: &str, ids: &[&str]) -> SessionMessage {
        let tool_calls = ids.iter().map(
            |id| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } }),
        );
        SessionMessage {
            tools: Some(ToolActivity::Calls { tool_calls: tool_calls.collect() }),
            ..SessionMessage::new(MessageRole::Assistant, content)
        }
    }

    fn result(id: &str) -> SessionMessage {
        SessionMessage {
            tools: Some(ToolActivity::Result { tool_call_id: id.into(), tool_name: "look".into() }),
            ..SessionMessage::new(MessageRole::Tool, "seen")
        }
    }

    fn said(role: MessageRole, content: &str) -> SessionMessage {
        SessionMessage::new(role, content)
    }

    #[test]
    fn a_call_that_was_running_gets_a_result_that_says_so() {
        let closed = close_transcript(vec![calls("", &["a", "b"]), result("a")], "");
        assert_eq!(closed.len(), 4);
        assert_eq!(closed[3], said(MessageRole::Assistant, NO_ANSWER));
        assert_eq!(result_of(&closed[2]), Some("b"));
        assert!(closed[2].content.contains("not repeated"));
        assert_eq!(legal_history(closed.clone()), closed);
    }

    #[test]
    fn text_beyond_the_last_message_is_kept() {
        let closed = close_transcript(vec![calls("Let me look.", &["a"]), result("a")], "\n\nIt sa");
        assert_eq!(closed.last(), Some(&said(MessageRole::Assistant, "It sa")));
        assert_eq!(close_transcript(Vec::new(), "  "), []);
    }

    #[test]
    fn a_cut_history_loses_results_without_their_call_and_calls_without_results() {
        let cut = vec![
            result("old"),
            said(MessageRole::User, "hello"),
            said(MessageRole::Note, "a plan"),
            calls("I look.", &["a", "b"]),
            result("a"),
            calls("", &["c"]),
            result("c"),
        ];
        assert_eq!(
            legal_history(cut),
            [
                said(MessageRole::User, "hello"),
                said(MessageRole::Assistant, "I look."),
                calls("", &["c"]),
                result("c"),
            ]
        );
    }

    proptest! {
        /// Any cut of any transcript is legal afterwards: each result follows its call, and each call has its result.
        #[test]
        fn every_history_becomes_legal(picks in prop::collection::vec((0_u8..4, 0_u8..6, 0_u8..6), 0..30)) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let messages = picks.into_iter().map(|(kind, one, two)| match kind {
                0 => said(MessageRole::User, "q"),
                1 => result(names[usize::from(one)]),
                2 if one != two => calls("", &[names[usize::from(one)], names[usize::from(two)]]),
                2 => calls("t", &[names[usize::from(one)]]),
                3 if one == two => said(MessageRole::Note, "n"),
                _ => said(MessageRole::Assistant, "a"),
            });
            let legal = legal_history(messages.collect());
            let mut open = HashSet::new();
            for message in &legal {
                prop_assert!(message.role != MessageRole::Note);
                if let Some(id) = result_of(message) {
                    prop_assert!(open.contains(id));
                }
                if let Some(tools) = &message.tools {
                    open.extend(tools.call_names().into_iter().map(|(id, _)| id.to_owned()));
                }
            }
        }
    }
}
