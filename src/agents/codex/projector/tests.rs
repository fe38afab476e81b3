//! Items as codex 0.166 and 0.169 wrote them, shortened, and what becomes of them.

use std::collections::HashMap;

use super::*;
use crate::agent::{ToolActivity, legal_history};
use crate::agents::call_messages::NAME_CHARS;

const THREAD: &str = "01a1e176-c68a-7f52-aab2-964a5d4503c9";

fn user_message() -> Value {
    json!({
        "type": "userMessage", "id": "01a1e176-7cd8-71b1-8438-54fb582bda00", "clientId": null,
        "content": [{ "type": "text", "text": "hi there", "text_elements": [] }],
        "startedAtMs": 1794784001244_u64, "completedAtMs": 1794784001244_u64,
    })
}

fn agent_message(text: &str) -> Value {
    json!({
        "type": "agentMessage", "id": "msg_r1", "text": text, "phase": null, "memoryCitation": null,
        "delivery": null, "questions": null, "startedAtMs": 1794784001339_u64, "completedAtMs": 1794784001340_u64,
    })
}

fn command() -> Value {
    json!({
        "type": "commandExecution", "id": "call_r2", "pluginId": null, "scriptPath": null,
        "command": "/bin/bash -lc 'echo APPROVED > a.txt; cat a.txt'", "cwd": "/work-dir/ws",
        "processId": "59010", "source": "unifiedExecStartup", "status": "completed",
        "commandActions": [{ "type": "unknown", "command": "echo APPROVED > a.txt; cat a.txt" }],
        "aggregatedOutput": "APPROVED\n", "exitCode": 0, "durationMs": 0,
    })
}

fn declined_command() -> Value {
    json!({
        "type": "commandExecution", "id": "call_r4", "command": "/bin/bash -lc 'echo NOPE'", "cwd": "/work-dir/ws",
        "processId": null, "source": "agent", "status": "declined", "commandActions": [],
        "aggregatedOutput": null, "exitCode": null, "durationMs": null,
    })
}

fn file_change(status: &str) -> Value {
    json!({
        "type": "fileChange", "id": "call_r15", "status": status,
        "changes": [{ "path": "/work-dir/ws/new3.txt", "kind": { "type": "add" }, "diff": "hello from patch\n" }],
    })
}

fn mcp_tool() -> Value {
    json!({
        "type": "mcpToolCall", "id": "call_r2", "server": "el", "tool": "echo", "status": "completed",
        "arguments": { "text": "hey", "again": { "z": 1, "a": 2 } }, "appContext": null, "mcpAppUi": null,
        "pluginId": null, "readOnlyHint": null,
        "result": { "content": [{ "type": "text", "text": "echo:hey" }], "structuredContent": null, "_meta": null },
        "error": null, "durationMs": 1,
    })
}

fn mcp_tool_in(id: &str) -> Value {
    let mut item = mcp_tool();
    item["id"] = json!(id);
    item
}

fn dynamic_tool() -> Value {
    json!({
        "type": "dynamicToolCall", "id": "call_r41", "namespace": null, "tool": "get_weather",
        "arguments": { "city": "Paris" }, "status": "completed",
        "contentItems": [{ "type": "inputText", "text": "sunny" }], "success": true, "durationMs": 4,
    })
}

fn reasoning(summary: &str) -> Value {
    json!({ "type": "reasoning", "id": "rs_r40", "summary": [summary], "content": [] })
}

fn completed(item: &Value) -> Vec<SessionMessage> {
    Projector::new(THREAD).completed(item)
}

/// The call and the result of an item that ran a tool: id, name, arguments, result.
fn tool_of(messages: &[SessionMessage]) -> (String, String, String, String) {
    let [called, result] = messages else { panic!("{messages:?}") };
    assert_eq!((called.role, result.role), (MessageRole::Assistant, MessageRole::Tool));
    let Some(ToolActivity::Calls { tool_calls }) = &called.tools else { panic!("{called:?}") };
    let [call] = tool_calls.as_slice() else { panic!("{tool_calls:?}") };
    let id = call["id"].as_str().unwrap().to_owned();
    let name = call["function"]["name"].as_str().unwrap().to_owned();
    let answers = ToolActivity::Result { tool_call_id: id.clone(), tool_name: name.clone() };
    assert_eq!(result.tools, Some(answers));
    (id, name, call["function"]["arguments"].as_str().unwrap().to_owned(), result.content.clone())
}

#[test]
fn the_prompt_makes_no_message_because_the_engine_has_stored_it() {
    let mut projector = Projector::new(THREAD);
    assert_eq!(projector.completed(&user_message()), []);
    // A second one was said by nobody here. Only its text is kept, not its picture.
    let mut second = user_message();
    second["content"] = json!([{ "type": "image", "url": "data:image/png;base64,AAAA" },
        { "type": "text", "text": "go on" }, { "type": "text", "text": "now" }]);
    let messages = projector.completed(&second);
    assert_eq!(messages, [SessionMessage::new(MessageRole::Note, "[codex: userMessage] go on\nnow")]);
    second["content"] = json!([{ "type": "localImage", "path": "/x.png" }]);
    assert_eq!(projector.completed(&second), []);
}

#[test]
fn an_answer_is_a_message_of_the_agent() {
    let said = |text: &str| vec![SessionMessage::new(MessageRole::Assistant, text)];
    assert_eq!(completed(&agent_message("Hello from the fake model.")), said("Hello from the fake model."));
    assert_eq!(completed(&agent_message("<think>hm</think>Yes.\n")), said("Yes."));
    assert_eq!(completed(&agent_message(" \n")), []);
}

#[test]
fn reasoning_stands_beside_the_next_message_of_the_agent_and_only_there() {
    let mut projector = Projector::new(THREAD);
    assert_eq!(projector.completed(&reasoning("**Thinking** about it")), []);
    assert_eq!(projector.completed(&reasoning("more")), []);
    // Neither a note nor an empty message takes it.
    assert_eq!(
        projector.completed(&json!({ "type": "plan", "id": "p", "text": "1. go" }))[0].reasoning,
        None
    );
    assert_eq!(projector.completed(&agent_message("")), []);
    let messages = projector.completed(&command());
    assert_eq!(messages[0].reasoning.as_deref(), Some("**Thinking** about it\n\nmore"));
    assert_eq!(messages[1].reasoning, None);
    assert_eq!(projector.completed(&agent_message("Done."))[0].reasoning, None);

    let plain = json!({ "type": "reasoning", "id": "rs", "summary": [], "content": ["all", "of it"] });
    projector.completed(&plain);
    assert_eq!(projector.completed(&agent_message("Yes."))[0].reasoning.as_deref(), Some("all\n\nof it"));
}

#[test]
fn a_command_is_a_call_with_its_output() {
    let (id, name, arguments, result) = tool_of(&completed(&command()));
    assert_eq!(name, "exec_command");
    assert_eq!(
        arguments,
        r#"{"command":"/bin/bash -lc 'echo APPROVED > a.txt; cat a.txt'","cwd":"/work-dir/ws"}"#
    );
    assert_eq!(result, "APPROVED\n");
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
}

#[test]
fn a_failed_command_says_so_in_its_result() {
    let ended = |output: Value, status: &str, code: Value| {
        let mut item = command();
        (item["aggregatedOutput"], item["status"], item["exitCode"]) = (output, json!(status), code);
        tool_of(&completed(&item)).3
    };
    assert_eq!(ended(json!("no such file\n"), "failed", json!(2)), "no such file\n[exit code: 2]");
    assert_eq!(ended(json!("no end of line"), "completed", json!(-1)), "no end of line\n[exit code: -1]");
    assert_eq!(ended(Value::Null, "failed", Value::Null), "[the command failed]");
    assert_eq!(ended(json!(""), "completed", json!(0)), "[no output]");
    assert_eq!(tool_of(&completed(&declined_command())).3, "[declined: the command did not run]");
    let long = ended(json!("x".repeat(100_000)), "failed", json!(7));
    assert!(long.len() < 50_000 && long.contains("bytes left out") && long.ends_with("\n[exit code: 7]"));
}

#[test]
fn an_id_depends_on_the_thread_and_the_item_and_on_nothing_else() {
    let id = |thread: &str, item: &Value| tool_of(&Projector::new(thread).completed(item)).0;
    assert_eq!(id(THREAD, &command()), id(THREAD, &command()));
    assert_ne!(id(THREAD, &command()), id(THREAD, &declined_command()));
    // Item ids are unique only within their thread.
    assert_ne!(id(THREAD, &command()), id("01a1e179-df5e-7110-8355-3addaf3a1d98", &command()));
    // An item that ends twice does not make two calls with one id.
    let mut projector = Projector::new(THREAD);
    let ids: HashMap<_, _> = (0..50).map(|_| (tool_of(&projector.completed(&command())).0, ())).collect();
    assert!(ids.len() == 50 && ids.contains_key(&id(THREAD, &command())));
}

#[test]
fn a_patch_names_kinds_and_paths_and_never_content() {
    for (status, result) in [
        ("completed", "[done] 1 add: /work-dir/ws/new3.txt"),
        ("declined", "[declined, nothing was changed] 1 add: /work-dir/ws/new3.txt"),
        ("failed", "[failed] 1 add: /work-dir/ws/new3.txt"),
    ] {
        let messages = completed(&file_change(status));
        let (_, name, arguments, told) = tool_of(&messages);
        assert_eq!((name.as_str(), told.as_str()), ("apply_patch", result));
        assert_eq!(arguments, r#"{"changes":"1 add: /work-dir/ws/new3.txt"}"#);
        assert!(!serde_json::to_string(&messages).unwrap().contains("hello from patch"));
    }
}

#[test]
fn an_mcp_call_has_the_server_in_its_name_and_sorted_arguments() {
    let (_, name, arguments, result) = tool_of(&completed(&mcp_tool()));
    assert_eq!((name.as_str(), result.as_str()), ("mcp.el.echo", "echo:hey"));
    assert_eq!(arguments, r#"{"again":{"a":2,"z":1},"text":"hey"}"#);
}

#[test]
fn an_mcp_error_is_in_the_result() {
    let ended = |status: &str, result: Value, error: Value| {
        let mut item = mcp_tool();
        (item["status"], item["result"], item["error"]) = (json!(status), result, error);
        tool_of(&completed(&item)).3
    };
    let refused = json!({ "message": "user rejected MCP tool call" });
    assert_eq!(ended("failed", Value::Null, refused), "Error: user rejected MCP tool call");
    let told = json!({ "content": [{ "type": "text", "text": "no such city" }], "structuredContent": null });
    assert_eq!(ended("failed", told, Value::Null), "Error: no such city");
    let picture =
        json!({ "content": [{ "type": "image", "data": "AAAA" }, { "type": "text", "text": "a cat" }] });
    assert_eq!(ended("completed", picture, Value::Null), "[image]\na cat");
    let structured = json!({ "content": [], "structuredContent": { "b": 1, "a": 2 } });
    assert_eq!(ended("completed", structured, Value::Null), r#"{"a":2,"b":1}"#);
    assert_eq!(ended("completed", Value::Null, Value::Null), "[no result]");
}

#[test]
fn a_dynamic_tool_keeps_its_own_name() {
    let (_, name, arguments, result) = tool_of(&completed(&dynamic_tool()));
    assert_eq!(
        (name.as_str(), arguments.as_str(), result.as_str()),
        ("get_weather", r#"{"city":"Paris"}"#, "sunny")
    );
    let mut failed = dynamic_tool();
    (failed["success"], failed["namespace"]) = (json!(false), json!("city"));
    let (_, name, _, result) = tool_of(&completed(&failed));
    assert_eq!((name.as_str(), result.as_str()), ("city.get_weather", "Error: sunny"));
}

#[test]
fn every_other_item_is_a_note_without_invented_calls() {
    for (item, start) in [
        (json!({ "type": "plan", "id": "p1", "text": "1. look\n2. mend" }), "[codex: plan] 1. look\n2. mend"),
        (
            json!({ "type": "hookPrompt", "id": "h1", "fragments": [{ "text": "be brief", "hookRunId": "r" }] }),
            "[codex: hookPrompt] be brief",
        ),
        (
            json!({ "type": "webSearch", "id": "w1", "query": "rust", "action": { "type": "search" }, "results": null }),
            r#"[codex: webSearch] {"action":{"type":"search"},"id":"w1","#,
        ),
        (json!({ "type": "imageView", "id": "i1", "path": "/x.png" }), "[codex: imageView] {"),
        (json!({ "type": "sleep", "id": "s1", "durationMs": 5 }), "[codex: sleep] {"),
        (json!({ "type": "contextCompaction", "id": "c1" }), "[codex: contextCompaction] {"),
        (json!({ "type": "enteredReviewMode", "id": "e1", "review": "x" }), "[codex: enteredReviewMode] {"),
        (json!({ "type": "exitedReviewMode", "id": "e2", "review": "x" }), "[codex: exitedReviewMode] {"),
        (json!({ "type": "subAgentActivity", "id": "a1", "kind": "started" }), "[codex: subAgentActivity] {"),
        (
            json!({ "type": "collabAgentToolCall", "id": "a2", "tool": "wait" }),
            "[codex: collabAgentToolCall] {",
        ),
        (
            json!({ "type": "imageGeneration", "id": "g1", "result": "A".repeat(1 << 20) }),
            "[codex: imageGeneration] {",
        ),
        (
            json!({ "type": "functionCallOutput", "id": "f1", "name": "x", "output": "y" }),
            "[codex: functionCallOutput] {",
        ),
        (json!({ "type": "brand new\nthing", "id": "n1" }), "[codex: brand_new_thing] {"),
    ] {
        let messages = completed(&item);
        let [note] = messages.as_slice() else { panic!("{messages:?}") };
        assert!(note.role == MessageRole::Note && note.tools.is_none(), "{note:?}");
        assert!(note.content.starts_with(start), "{}", note.content);
        assert!(note.content.len() < NOTE_BYTES + 100);
        // No agent is sent it again.
        assert_eq!(legal_history(messages), []);
    }
}

#[test]
fn a_whole_turn_is_a_legal_transcript_with_the_prompt_once() {
    let mut projector = Projector::new(THREAD);
    let mut transcript = vec![SessionMessage::new(MessageRole::User, "hi there")];
    for item in [
        user_message(),
        reasoning("hm"),
        agent_message("Let me look."),
        command(),
        json!({ "type": "plan", "id": "p1", "text": "1. look" }),
        file_change("completed"),
        mcp_tool(),
        dynamic_tool(),
        agent_message("Done."),
    ] {
        transcript.extend(projector.completed(&item));
    }
    assert_eq!(projector.tool_iterations(), 4);
    let without_notes: Vec<_> =
        transcript.iter().filter(|message| message.role != MessageRole::Note).cloned().collect();
    assert_eq!(legal_history(transcript), without_notes, "nothing had to be taken out");
    let roles: Vec<_> = without_notes.iter().map(|message| message.role).collect();
    let (user, agent, tool) = (MessageRole::User, MessageRole::Assistant, MessageRole::Tool);
    assert_eq!(roles, [user, agent, agent, tool, agent, tool, agent, tool, agent, tool, agent]);
}

#[test]
fn calls_that_did_not_end_before_their_turn_are_on_record() {
    let mut projector = Projector::new(THREAD);
    let mut running = command();
    (running["status"], running["aggregatedOutput"], running["exitCode"]) =
        (json!("inProgress"), Value::Null, Value::Null);
    projector.started(&running);
    projector.started(&mcp_tool_in("call_r3"));
    projector.started(&agent_message(""));
    assert_eq!(projector.completed(&mcp_tool_in("call_r3")).len(), 2);
    let (id, name, arguments, result) = tool_of(&projector.broken_off());
    assert_eq!((id, name.as_str()), (tool_of(&completed(&command())).0, "exec_command"));
    assert!(arguments.contains("echo APPROVED") && result.contains("It may have had its effect"));
    assert_eq!((projector.broken_off(), projector.tool_iterations()), (vec![], 2));

    for number in 0..100 {
        projector.started(&mcp_tool_in(&format!("call_{number}")));
    }
    assert_eq!(projector.broken_off().len(), 2 * OPEN_CALLS);
}

#[test]
fn hostile_items_are_bounded_and_harmless() {
    for item in [json!(null), json!([]), json!("x"), json!({}), json!({ "type": 7 }), json!({ "type": "" })] {
        assert_eq!(completed(&item), [], "{item}");
    }
    // Fields of other types count as missing.
    for kind in ["commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall"] {
        let odd =
            json!({ "type": kind, "id": 7, "command": [], "changes": {}, "arguments": "x", "result": 7 });
        tool_of(&completed(&odd));
        tool_of(&completed(&json!({ "type": kind })));
    }
    let mut huge = mcp_tool();
    huge["arguments"] = json!({ "text": "ü".repeat(1 << 20) });
    (huge["server"], huge["tool"]) = (json!("a b\n".repeat(200)), json!("x"));
    huge["result"] = json!({ "content": [{ "type": "text", "text": "y".repeat(1 << 20) }] });
    let (_, name, arguments, result) = tool_of(&completed(&huge));
    assert!(name.starts_with("mcp.a_b_a_b_") && name.len() == NAME_CHARS, "{name}");
    let arguments: Value = serde_json::from_str(&arguments).unwrap();
    assert!(arguments["cut"].as_str().unwrap().len() < 50_000 && result.len() < 50_000);
    let mut value = mcp_tool();
    value["arguments"] = json!(["a"]);
    assert_eq!(tool_of(&completed(&value)).2, r#"{"value":["a"]}"#);
    value["arguments"] = Value::Null;
    assert_eq!(tool_of(&completed(&value)).2, "{}");
    let long = json!({ "type": "reasoning", "summary": ["z".repeat(1 << 20)] });
    let mut projector = Projector::new(THREAD);
    (0..3).for_each(|_| drop(projector.completed(&long)));
    let reasoning = projector.completed(&agent_message("Yes."))[0].reasoning.clone().unwrap();
    assert!(reasoning.len() < 60_000);
}
