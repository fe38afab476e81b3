//! Requests byte for byte, and the parsing of everything that servers send.

use serde_json::{Value, json};

use super::*;
use crate::agent::{MessageRole, SessionMessage};
use crate::i18n::TextKey;

fn said(role: MessageRole, content: &str) -> SessionMessage {
    SessionMessage::new(role, content)
}

fn messages(context: &str, history: &[SessionMessage], prompt: &str) -> Value {
    let request = chat_request(
        "m",
        &CompletionRequest { context, history, prompt, ..CompletionRequest::default() },
        false,
    );
    serde_json::from_slice::<Value>(&request).unwrap()["messages"].take()
}

#[test]
fn a_request_has_model_messages_and_asks_for_a_stream() {
    let request: Value = serde_json::from_slice(&chat_request(
        "hermes-agent",
        &CompletionRequest { context: "", prompt: "hi", ..CompletionRequest::default() },
        true,
    ))
    .unwrap();
    assert_eq!(
        request,
        json!({
            "model": "hermes-agent",
            "messages": [{ "role": "user", "content": "hi" }],
            "stream": true,
            "stream_options": { "include_usage": true },
        })
    );
}

#[test]
fn usage_is_not_mentioned_unless_asked_for() {
    let request: Value = serde_json::from_slice(&chat_request(
        "m",
        &CompletionRequest { context: "", prompt: "hi", ..CompletionRequest::default() },
        false,
    ))
    .unwrap();
    assert_eq!(request.get("stream_options"), None);
}

#[test]
fn the_same_request_is_the_same_bytes() {
    let history = [said(MessageRole::User, "a"), said(MessageRole::Assistant, "b")];
    let once = chat_request(
        "m",
        &CompletionRequest {
            context: "be kind",
            history: &history,
            prompt: "c",
            ..CompletionRequest::default()
        },
        true,
    );
    assert_eq!(
        once,
        chat_request(
            "m",
            &CompletionRequest {
                context: "be kind",
                history: &history,
                prompt: "c",
                ..CompletionRequest::default()
            },
            true
        )
    );
}

#[test]
fn the_context_becomes_the_system_message() {
    assert_eq!(
        messages("be kind\n", &[], "hi"),
        json!([{ "role": "system", "content": "be kind\n" }, { "role": "user", "content": "hi" }])
    );
}

#[test]
fn a_blank_context_is_no_system_message() {
    assert_eq!(messages(" \n", &[], "hi"), json!([{ "role": "user", "content": "hi" }]));
}

#[test]
fn only_what_was_really_said_goes_along_and_the_prompt_comes_last_and_once() {
    let history = [
        said(MessageRole::User, "weather?"),
        said(MessageRole::Assistant, ""),
        said(MessageRole::Tool, "{\"temperature\":7}"),
        said(MessageRole::Assistant, "7 °C"),
        said(MessageRole::User, " \n"),
    ];
    assert_eq!(
        messages("", &history, "say \"thanks\"\n"),
        json!([
            { "role": "user", "content": "weather?" },
            { "role": "assistant", "content": "7 °C" },
            { "role": "user", "content": "say \"thanks\"\n" },
        ])
    );
}

#[test]
fn an_ordinary_delta_is_borrowed() {
    let data = r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    let chunk = StreamChunk::parse(data).unwrap();
    assert_eq!((chunk.text(), chunk.thought(), chunk.finish_reason()), (Some("Hello"), None, None));
    assert!(matches!(chunk.choice.unwrap().delta.unwrap().content, Some(Cow::Borrowed(_))));
    assert_eq!((chunk.usage, chunk.error), (None, None));
}

#[test]
fn escapes_are_resolved() {
    let chunk =
        StreamChunk::parse(r#"{"choices":[{"delta":{"content":"a\n\"\u00e9\ud83d\ude00"}}]}"#).unwrap();
    assert_eq!(chunk.text(), Some("a\n\"é😀"));
}

#[test]
fn reasoning_has_two_names() {
    for (data, thought) in [
        (r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#, Some("a")),
        (r#"{"choices":[{"delta":{"reasoning":"b"}}]}"#, Some("b")),
        (r#"{"choices":[{"delta":{"reasoning":"b","reasoning_content":"a"}}]}"#, Some("a")),
        (r#"{"choices":[{"delta":{"reasoning":"b","reasoning_content":""}}]}"#, Some("b")),
        (r#"{"choices":[{"delta":{"reasoning":{"effort":"high"}}}]}"#, None),
    ] {
        let chunk = StreamChunk::parse(data).unwrap();
        assert_eq!((chunk.thought(), chunk.text()), (thought, None), "{data}");
    }
}

#[test]
fn the_last_chunk_tells_why_and_what_it_cost() {
    let data = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,"prompt_tokens_details":{"cached_tokens":0}}}"#;
    let chunk = StreamChunk::parse(data).unwrap();
    assert_eq!((chunk.text(), chunk.finish_reason()), (None, Some("stop")));
    assert_eq!(chunk.usage.map(agent::TokenUsage::from), Some(agent::TokenUsage { input: 12, output: 34 }));
}

#[test]
fn usage_may_come_alone() {
    let chunk = StreamChunk::parse(r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":"two"}}"#)
        .unwrap();
    assert_eq!(chunk.choice, None);
    assert_eq!(chunk.usage, Some(ChunkUsage { prompt_tokens: 1, completion_tokens: 0 }));
}

#[test]
fn a_chunk_that_says_nothing_is_no_error() {
    for data in [
        "{}",
        r#"{"choices":null}"#,
        r#"{"choices":[]}"#,
        r#"{"choices":{}}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":["x",{"delta":{"content":"second"}}]}"#,
        r#"{"choices":[{}]}"#,
        r#"{"choices":[{"delta":null,"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":[1,{"a":2}]}]}"#,
        r#"{"choices":[{"delta":{"content":null}}]}"#,
        r#"{"choices":[{"delta":{"content":""},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"content":5,"tool_calls":[{"index":0}]},"finish_reason":7}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text"}]}}],"usage":-1.5,"error":null}"#,
        r#"{"hermes":{"completed":false,"partial":[1,2]},"error":false,"usage":[]}"#,
        r#"{"error":"","usage":true}"#,
    ] {
        let chunk = StreamChunk::parse(data).unwrap();
        assert_eq!((chunk.text(), chunk.thought(), chunk.finish_reason()), (None, None, None), "{data}");
        assert_eq!((chunk.usage, chunk.error), (None, None), "{data}");
    }
}

#[test]
fn a_wrong_field_does_not_cost_the_text() {
    let data = r#"{"choices":[{"finish_reason":{"why":[]},"delta":{"reasoning":3,"content":"kept"}}],"usage":"none","error":[]}"#;
    assert_eq!(StreamChunk::parse(data).unwrap().text(), Some("kept"));
}

#[test]
fn sentences_below_the_answer_are_read_and_odd_ones_left_out() {
    let forgot = TextKey::CodexForgotAll.into();
    for (remarks, read) in [
        (r#"["Declined.",7,{"text":"codex_forgot_all"},null,{"a":1}]"#, vec![forgot]),
        (r#""Declined.""#, vec![]),
        ("null", vec![]),
    ] {
        let data = format!(r#"{{"choices":[],"hermes":{{"status":"completed","remarks":{remarks}}}}}"#);
        assert_eq!(StreamChunk::parse(&data).unwrap().remarks().collect::<Vec<_>>(), read);
    }
}

#[test]
fn only_the_first_choice_counts() {
    let data = r#"{"choices":[{"delta":{"content":"one"}},{"delta":{"content":"two"}}]}"#;
    assert_eq!(StreamChunk::parse(data).unwrap().text(), Some("one"));
}

#[test]
fn errors_come_as_objects_or_as_words() {
    let full = r#"{"error":{"message":"slow down","type":"rate_limit_error","code":429,"param":null}}"#;
    let error = StreamChunk::parse(full).unwrap().error.unwrap();
    assert_eq!(error.message.as_deref(), Some("slow down"));
    assert_eq!(error.kind.as_deref(), Some("rate_limit_error"));
    assert_eq!(error.code.as_deref(), Some("429"));

    let bare = StreamChunk::parse(r#"{"error":"boom"}"#).unwrap().error.unwrap();
    assert_eq!(bare, ErrorBody { message: Some("boom".into()), ..ErrorBody::default() });

    let odd = StreamChunk::parse(r#"{"error":{"message":{"text":1},"code":"context_length"}}"#)
        .unwrap()
        .error
        .unwrap();
    assert_eq!(odd, ErrorBody { code: Some("context_length".into()), ..ErrorBody::default() });

    assert_eq!(StreamChunk::parse(r#"{"error":{}}"#).unwrap().error, Some(ErrorBody::default()));
}

#[test]
fn an_error_may_come_with_a_finish_reason_and_hermes_details() {
    let data = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}],
        "error":{"message":"model is gone"},"hermes":{"completed":false,"failed":true,"error":"model is gone"}}"#;
    let chunk = StreamChunk::parse(data).unwrap();
    assert_eq!(chunk.finish_reason(), Some("error"));
    assert_eq!(chunk.error.unwrap().message.as_deref(), Some("model is gone"));
}

#[test]
fn what_is_no_object_is_refused() {
    for data in ["", DONE, "5", "null", "\"text\"", "{", r#"{"choices":[{"delta":{"content":"a}}]}"#, "{} {}"]
    {
        assert!(StreamChunk::parse(data).is_err(), "{data}");
    }
}

#[test]
fn tool_progress_is_read() {
    let data = r#"{"tool":"terminal","emoji":"💻","label":"ls -l","toolCallId":"call_1","status":"running"}"#;
    let progress = ToolProgress::parse(data).unwrap();
    assert_eq!(
        progress,
        ToolProgress {
            tool: Some("terminal".into()),
            emoji: Some("💻".into()),
            label: Some("ls -l".into()),
            call_id: Some("call_1".into()),
            status: Some("running".into()),
        }
    );
}

#[test]
fn tool_progress_may_lack_everything() {
    assert_eq!(ToolProgress::parse("{}").unwrap(), ToolProgress::default());
    let odd = ToolProgress::parse(r#"{"tool":null,"label":{"a":1},"toolCallId":7,"status":true,"more":[]}"#)
        .unwrap();
    assert_eq!(odd, ToolProgress { call_id: Some("7".into()), ..ToolProgress::default() });
}

#[test]
fn files_are_parts_of_the_message_and_sound_has_a_form_of_its_own() {
    let file = |name: &str, mime, content: &[u8]| agent::Attachment {
        name: name.to_owned(),
        mime,
        content: content.to_vec(),
    };
    let files = [file("a.pdf", "application/pdf", b"%PDF-"), file("b", "audio/wav", b"RIFF")];
    let request = chat_request(
        "m",
        &CompletionRequest { prompt: "hi", files: &files, ..CompletionRequest::default() },
        false,
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&request).unwrap()["messages"][0]["content"],
        json!([
            { "type": "text", "text": "hi" },
            {
                "type": "file",
                "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0=" }
            },
            { "type": "input_audio", "input_audio": { "data": "UklGRg==", "format": "wav" } },
        ])
    );
}
