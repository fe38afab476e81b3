//! The 10 cases of the session endpoints in the reference implementation (hermes-agent), each with its equivalent
//! against the real server on a real socket.
//!
//! | case there | equivalent here |
//! |---|---|
//! | `capabilities_advertises_session_control_surface` | [`capabilities_name_what_can_be_done_with_sessions`] |
//! | `session_crud_and_message_history` | [`a_session_is_made_listed_read_renamed_and_removed`] |
//! | `session_fork_uses_current_sessiondb_branch_primitives` | [`a_fork_has_the_messages_and_its_source_is_branched`] |
//! | `session_chat_loads_history_and_preserves_session_headers` | [`a_chat_has_the_history_and_the_headers_come_back`] |
//! | `session_chat_accepts_multimodal_message` | [`a_chat_takes_pictures`] |
//! | `session_chat_stream_accepts_multimodal_message` | [`a_stream_takes_pictures`] |
//! | `session_chat_stream_emits_lifecycle_events_and_keepalive_safe_shape` | [`a_stream_has_all_events_of_a_turn`] |
//! | `session_chat_stream_run_completed_carries_turn_transcript` | [`the_last_event_has_the_transcript_of_this_turn`] |
//! | `session_endpoints_require_auth_when_key_configured` | [`without_the_key_there_are_no_sessions`] |
//! | `session_header_rejected_without_api_key` | [`a_session_key_needs_an_api_key`] |

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{MessageRole, SessionMessage, ToolActivity};
use talaria::server::ServerSettings;

use super::events::events;
use super::sessions::{begin, begin_with};
use crate::support::gateway::Setup;
use crate::support::served::{Served, json, settings};

#[tokio::test]
async fn capabilities_name_what_can_be_done_with_sessions() {
    let served = keyless().await;
    let data = json(served.get("/v1/capabilities").await).await;
    for (feature, has) in [
        ("session_resources", true),
        ("session_chat", true),
        ("session_chat_streaming", true),
        ("session_fork", true),
        ("admin_config_rw", false),
        ("memory_write_api", false),
        ("skills_api", true),
        ("realtime_voice", false),
    ] {
        assert_eq!(data["features"][feature], has, "{feature}");
    }
    assert_eq!(data["endpoints"]["sessions"], json!({ "method": "GET", "path": "/api/sessions" }));
    let stream = json!({ "method": "POST", "path": "/api/sessions/{session_id}/chat/stream" });
    assert_eq!(data["endpoints"]["session_chat_stream"], stream);
    let skills = json(served.get("/v1/skills").await).await;
    assert_eq!(skills, json!({ "object": "list", "data": [] }), "what is announced answers");
}

#[tokio::test]
async fn a_session_is_made_listed_read_renamed_and_removed() {
    let served = keyless().await;
    let made = served.post("/api/sessions", &json!({ "title": "Mobile chat", "model": "test-model" })).await;
    assert_eq!(made.status(), 201);
    let made = json(made).await;
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    assert_eq!(made["object"], "hermes.session");
    assert_eq!(
        (&made["session"]["title"], &made["session"]["model"]),
        (&json!("Mobile chat"), &json!("test-model"))
    );

    let said = [(MessageRole::User, "hello from phone"), (MessageRole::Assistant, "hello from hermes")];
    super::sessions::say(&served, &id, &said).await;

    let listed = json(served.get("/api/sessions?limit=10&offset=0").await).await;
    assert_eq!(listed["object"], "list");
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["message_count"]), (&json!(id), &json!(2)));

    let path = format!("/api/sessions/{id}");
    let got = json(served.get(&path).await).await;
    assert_eq!((&got["session"]["id"], &got["session"]["message_count"]), (&json!(id), &json!(2)));

    let messages = json(served.get(&format!("{path}/messages")).await).await;
    assert_eq!(messages["object"], "list");
    let roles: Vec<_> = messages["data"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(messages["data"][0]["content"], "hello from phone");

    let renamed = served.request(Method::PATCH, &path).body(json!({ "title": "Renamed" }).to_string());
    let renamed = renamed.send().await.unwrap();
    assert_eq!(renamed.status(), 200);
    assert_eq!(json(renamed).await["session"]["title"], "Renamed");

    let removed = served.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(removed.status(), 200);
    assert_eq!(json(removed).await, json!({ "object": "hermes.session.deleted", "id": id, "deleted": true }));
    assert_eq!(served.get(&path).await.status(), 404);
}

#[tokio::test]
async fn a_fork_has_the_messages_and_its_source_is_branched() {
    let served = keyless().await;
    begin(&served, "source-session", Some("Original")).await;
    let said = [(MessageRole::User, "first path"), (MessageRole::Assistant, "answer")];
    super::sessions::say(&served, "source-session", &said).await;
    let forked = served.post("/api/sessions/source-session/fork", &json!({ "title": "Alternative" })).await;
    assert_eq!(forked.status(), 201);
    let forked = json(forked).await;
    assert_eq!(forked["object"], "hermes.session");
    let fork = &forked["session"];
    assert_ne!(fork["id"], "source-session");
    assert_eq!(fork["parent_session_id"], "source-session");
    assert_eq!(fork["title"], "Alternative");
    let messages = format!("/api/sessions/{}/messages", fork["id"].as_str().unwrap());
    let messages = json(served.get(&messages).await).await;
    let contents: Vec<_> =
        messages["data"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["first path", "answer"]);
    let source = json(served.get("/api/sessions/source-session").await).await;
    assert_eq!(source["session"]["end_reason"], "branched");
}

#[tokio::test]
async fn a_chat_has_the_history_and_the_headers_come_back() {
    let served = Served::start().await;
    begin_with(
        &served,
        "chat-session",
        "Chat",
        &[(MessageRole::User, "earlier"), (MessageRole::Assistant, "prior answer")],
    )
    .await;
    served.agent().says(["fresh answer"]).uses(2, 1);
    let body = json!({ "message": "next", "system_message": "stay focused" });
    let request = served.request(Method::POST, "/api/sessions/chat-session/chat");
    let answer = request.header("X-Hermes-Session-Key", "client-42").body(body.to_string());
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-hermes-session-id"], "chat-session");
    assert_eq!(answer.headers()["x-hermes-session-key"], "client-42");
    assert!(answer.headers()["x-hermes-run-id"].to_str().unwrap().starts_with("run_"));
    let answer = json(answer).await;
    assert_eq!(answer["object"], "hermes.session.chat.completion");
    assert_eq!(answer["session_id"], "chat-session");
    assert_eq!(answer["message"], json!({ "role": "assistant", "content": "fresh answer" }));
    assert_eq!(answer["usage"], json!({ "input_tokens": 2, "output_tokens": 1, "total_tokens": 3 }));

    let [heard] = served.gateway.agent_itself().heard().try_into().unwrap();
    assert_eq!(heard.session, "chat-session");
    assert_eq!(heard.memory.as_deref(), Some("client-42"));
    assert_eq!(heard.context, "stay focused");
    assert_eq!(heard.prompt, "next");
    let history: Vec<_> = heard.history.iter().map(|said| (said.role, said.content.as_str())).collect();
    assert_eq!(history, [(MessageRole::User, "earlier"), (MessageRole::Assistant, "prior answer")]);
}

#[tokio::test]
async fn a_chat_takes_pictures() {
    let served = Served::start().await;
    begin(&served, "image-session", None).await;
    served.agent().says(["A cat."]);
    let answer = served.post("/api/sessions/image-session/chat", &picture()).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(json(answer).await["message"]["content"], "A cat.");
    assert_eq!(heard_parts(&served), expected_parts());
}

#[tokio::test]
async fn a_stream_takes_pictures() {
    let served = keyless().await;
    begin(&served, "image-stream-session", None).await;
    served.agent().says(["A cat."]);
    let answer = served.post("/api/sessions/image-stream-session/chat/stream", &picture()).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    assert!(answer.text().await.unwrap().contains("event: assistant.completed"));
    assert_eq!(heard_parts(&served), expected_parts());
}

#[tokio::test]
async fn a_stream_has_all_events_of_a_turn() {
    let served = keyless().await;
    begin(&served, "stream-session", Some("Stream")).await;
    served.agent().says(["Hello", " world"]).thinks("thinking");
    let body = json!({ "message": "stream please" });
    let answer = served.post("/api/sessions/stream-session/chat/stream", &body).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let body = answer.text().await.unwrap();
    for event in [
        "run.started",
        "message.started",
        "assistant.delta",
        "tool.progress",
        "assistant.completed",
        "run.completed",
        "done",
    ] {
        assert!(body.contains(&format!("event: {event}\n")), "{event} in {body}");
    }
    assert!(body.contains("Hello world"), "{body}");
}

#[tokio::test]
async fn the_last_event_has_the_transcript_of_this_turn() {
    let served = keyless().await;
    begin_with(
        &served,
        "transcript-session",
        "",
        &[(MessageRole::User, "before"), (MessageRole::Assistant, "long ago")],
    )
    .await;
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "web_search", "arguments": "{}" } });
    let result = ToolActivity::Result { tool_call_id: "call_1".into(), tool_name: "web_search".into() };
    served.agent().says(["Let me search for that:", "Here is the summary."]).uses(4, 2).records([
        record(
            MessageRole::Assistant,
            "Let me search for that:",
            Some(ToolActivity::Calls { tool_calls: vec![call.clone()] }),
        ),
        record(MessageRole::Tool, "results", Some(result)),
        record(MessageRole::Assistant, "Here is the summary.", None),
    ]);
    let body = json!({ "message": "search then summarize" });
    let answer = served.post("/api/sessions/transcript-session/chat/stream", &body).await;
    assert_eq!(answer.status(), 200);
    let events = events(&answer.text().await.unwrap());
    let completed = events.iter().find(|event| event.name == "run.completed").unwrap();
    let expected = json!([
        { "role": "assistant", "content": "Let me search for that:", "tool_calls": [call] },
        { "role": "tool", "content": "results", "tool_call_id": "call_1", "tool_name": "web_search" },
        { "role": "assistant", "content": "Here is the summary." },
    ]);
    assert_eq!(completed.data["messages"], expected);
    let session = json(served.get("/api/sessions/transcript-session").await).await;
    assert_eq!(session["session"]["tool_call_count"], 1);
    assert_eq!(session["session"]["message_count"], 6, "the question, too, and what was there");
}

#[tokio::test]
async fn reasoning_and_notes_stand_in_the_session_and_a_note_is_no_part_of_the_answer() {
    let served = keyless().await;
    begin(&served, "noted", None).await;
    let answer = SessionMessage {
        reasoning: Some("It is small.".to_owned()),
        ..record(MessageRole::Assistant, "Small.", None)
    };
    served.agent().says(["Small."]).records([record(MessageRole::Note, "a plan", None), answer]);
    let body = json!({ "message": "how large?" });
    let stream = served.post("/api/sessions/noted/chat/stream", &body).await.text().await.unwrap();
    let events = events(&stream);
    let completed = events.iter().find(|event| event.name == "run.completed").unwrap();
    let expected = json!([{ "role": "assistant", "content": "Small.", "reasoning": "It is small." }]);
    assert_eq!((&completed.data["messages"], &completed.data["content"]), (&expected, &json!("Small.")));
    let page = json(served.get("/api/sessions/noted/messages").await).await;
    let said: Vec<_> = page["data"].as_array().unwrap().iter().collect();
    let roles: Vec<_> = said.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "note", "assistant"]);
    assert_eq!(said[2]["reasoning"], "It is small.");
    assert!(said[1].get("reasoning").is_none());

    // Neither is sent to an agent again.
    served.post("/api/sessions/noted/chat", &json!({ "message": "and now?" })).await;
    let heard = served.gateway.agent_itself().heard().pop().unwrap();
    let user = SessionMessage::new(MessageRole::User, "how large?");
    assert_eq!(heard.history, [user, SessionMessage::new(MessageRole::Assistant, "Small.")]);
}

#[tokio::test]
async fn a_turn_of_notes_only_keeps_its_answer() {
    let served = keyless().await;
    begin(&served, "noted", None).await;
    served.agent().says(["Small."]).records([record(MessageRole::Note, "a plan", None)]);
    served.post("/api/sessions/noted/chat", &json!({ "message": "how large?" })).await;
    let page = json(served.get("/api/sessions/noted/messages").await).await;
    let said = page["data"].as_array().unwrap().iter().map(|message| &message["content"]);
    assert_eq!(said.collect::<Vec<_>>(), ["how large?", "a plan", "Small."]);
}

#[tokio::test]
async fn without_the_key_there_are_no_sessions() {
    let served = Served::start().await;
    let refused = served.bare(Method::GET, "/api/sessions").send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(json(refused).await["error"]["code"], "invalid_api_key");
    let answer = served.get("/api/sessions").await;
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!((&answer["object"], &answer["data"]), (&json!("list"), &json!([])));
}

#[tokio::test]
async fn a_session_key_needs_an_api_key() {
    let served = keyless().await;
    begin(&served, "unsafe-session", None).await;
    let request = served.bare(Method::POST, "/api/sessions/unsafe-session/chat");
    let refused = request.header("X-Hermes-Session-Key", "client-42").body(r#"{"message":"hello"}"#);
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status(), 403);
    let message = json(refused).await["error"]["message"].to_string();
    assert!(message.contains("X-Hermes-Session-Key requires API key"), "{message}");
    assert!(served.gateway.agent_itself().heard().is_empty());
}

async fn keyless() -> Served {
    Served::with(Setup::default(), ServerSettings { key: None, ..settings() }).await
}

fn picture() -> Value {
    json!({ "message": [
        { "type": "input_text", "text": "What's in this image?" },
        { "type": "input_image", "image_url": "data:image/png;base64,AAAA" },
    ] })
}

fn expected_parts() -> Value {
    json!([
        { "type": "text", "text": "What's in this image?" },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
    ])
}

fn heard_parts(served: &Served) -> Value {
    let [heard] = served.gateway.agent_itself().heard().try_into().unwrap();
    json!(heard.parts)
}

fn record(role: MessageRole, content: &str, tools: Option<ToolActivity>) -> SessionMessage {
    SessionMessage { tools, ..SessionMessage::new(role, content) }
}
