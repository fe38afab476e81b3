//! Turns by an agent: text, steps, pictures, every stop reason, and what no room is shown.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use talaria_platform::MediaKind;

use super::scene::AcpScene;
use super::scripted_agent::{Act, Script};
use crate::support::room::file;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";

#[tokio::test]
async fn text_between_tools_is_one_answer_and_a_tool_is_a_step() {
    let script = Script::default().turn(
        "files",
        [
            Act::Thinks("secret thought".to_owned()),
            Act::says(&["Let me ", "look."]),
            Act::Updates(
                json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "kind": "execute",
                "status": "in_progress", "rawInput": { "command": "ls" } }),
            ),
            Act::waits("listed"),
            Act::Updates(
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed" }),
            ),
            Act::says(&["There are ", "notes."]),
        ],
    );
    let scene = AcpScene::with(script).await;
    scene.room().says("@ann", "which files are there?").await;
    scene.room().shows("execute: `ls`").await;
    scene.agent.opens("listed");
    scene.shows("There are notes.").await;
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  which files are there?
    bot   Let me look.
          There are notes.
    ");
    let prompt = scene.agent.received("session/prompt").remove(0)["prompt"].clone();
    let words = prompt[0]["text"].as_str().unwrap();
    assert!(words.starts_with("(From the operator of this chat:)"), "{words}");
    assert_eq!(prompt[1], json!({ "type": "text", "text": "which files are there?" }));
    // The second prompt of the conversation says nothing twice.
    scene.asks("hello", "bot   hello").await;
    assert_eq!(
        scene.agent.received("session/prompt")[1]["prompt"],
        json!([{ "type": "text", "text": "hello" }])
    );
    scene.ends().await;
}

#[tokio::test]
async fn what_no_room_is_shown_and_what_nobody_knows_changes_nothing() {
    let update = |kind: &str| Act::Updates(json!({ "sessionUpdate": kind, "content": "odd", "entries": 7 }));
    let other = json!({ "sessionId": "another", "update": { "sessionUpdate": "agent_message_chunk",
        "content": { "type": "text", "text": "not ours" } } });
    let flat =
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": " it is." } });
    let script = Script::default().turn(
        "odd",
        [
            update("usage_update"),
            update("available_commands_update"),
            update("user_message_chunk"),
            update("plan"),
            update("tool_call"),
            update("a_new_kind_of_2027"),
            Act::Notifies { method: "_vendor/thing".into(), params: json!({}) },
            Act::Notifies { method: "session/update".into(), params: other },
            Act::writes(&b"\n\nnot json\n{\"half\": \n\xff\xfe\n"[..]),
            Act::Says(vec!["Odd".to_owned()]),
            Act::Notifies { method: "session/update".into(), params: flat },
            Act::stops("a_reason_of_2027"),
        ],
    );
    let scene = AcpScene::with(script).await;
    scene.asks("odd", "Odd it is.").await;
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  odd
    bot   Odd it is.
    ");
    scene.ends().await;
}

#[tokio::test]
async fn a_plan_is_a_step_that_says_how_far_it_is() {
    let entries = |first: &str| {
        json!({ "sessionUpdate": "plan", "entries": [
            { "content": "read the notes", "priority": "high", "status": first },
            { "content": "write them anew", "priority": "low", "status": "pending" } ] })
    };
    let script = Script::default().turn(
        "plan",
        [
            Act::Updates(entries("in_progress")),
            Act::waits("shown"),
            Act::Updates(entries("completed")),
            Act::says(&["Done."]),
        ],
    );
    let scene = AcpScene::with(script).await;
    scene.room().says("@ann", "make a plan").await;
    scene.room().shows("plan: `0/2 read the notes`").await;
    scene.agent.opens("shown");
    scene.shows("Done.").await;
    scene.ends().await;
}

#[tokio::test]
async fn every_end_is_told_in_our_own_words() {
    let fails = |code: i64| [Act::Fails { code, message: "SECRET http://x".to_owned() }];
    let script = Script::default()
        .turn("long", [Act::says(&["Half"]), Act::stops("max_tokens")])
        .turn("often", [Act::says(&["Half"]), Act::stops("max_turn_requests")])
        .turn("bad", [Act::stops("refusal")])
        .turn("login", fails(-32_000))
        .turn("broken", fails(-32_603));
    let scene = AcpScene::with(script).await;
    scene.asks("long", "the length limit was reached").await;
    scene.asks("often", "as often as one answer may").await;
    scene.asks("bad", "the agent does not want to do this").await;
    scene.asks("login", "the agent is not logged in").await;
    scene.asks("broken", "the agent refused the request").await;
    let room = scene.room().now();
    assert!(!room.contains("SECRET") && !room.contains("http"), "{room}");
    // All in one conversation of one process.
    assert_eq!((scene.agent.processes().len(), scene.agent.received("session/new").len()), (1, 1));
    scene.ends().await;
}

#[tokio::test]
async fn a_picture_goes_with_the_prompt_or_into_the_folder() {
    let blind = {
        let mut script = Script::default();
        script.greeting["agentCapabilities"]["promptCapabilities"]["image"] = json!(false);
        script
    };
    for (script, sees) in [(Script::default(), true), (blind, false)] {
        let scene = AcpScene::with(script).await;
        scene.gateway.chat().keeps("photo", PNG);
        let picture = vec![file("photo", MediaKind::Image, "photo.png")];
        scene.room().brings("@ann", "what is this?", picture).await;
        scene.receives("session/prompt", 1).await;
        let prompt = scene.agent.received("session/prompt").remove(0)["prompt"].clone();
        let parts = prompt.as_array().unwrap();
        let pictures: Vec<_> = parts.iter().filter(|part| part["type"] == "image").collect();
        let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let kept = texts.iter().find_map(|text| text.split_once("in the working folder: "));
        let picture = match (pictures.as_slice(), kept) {
            ([picture], None) if sees => BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap(),
            ([], Some((_, path))) if !sees => {
                std::fs::read(scene.session_folder().join(path.trim_end_matches(')'))).unwrap()
            }
            _ => panic!("{parts:?}"),
        };
        assert_eq!(picture, PNG);
        scene.ends().await;
    }
}

#[tokio::test]
async fn an_agent_that_tells_no_tokens_costs_its_budget_an_estimate() {
    let script = Script::default().turn("quiet", [Act::says(&["Hm"]), Act::stops("end_turn")]);
    let scene = AcpScene::with(script).await;
    let counted = || {
        let database = rusqlite::Connection::open(scene.gateway.database()).unwrap();
        let query = "SELECT coalesce(sum(tokens), 0) FROM token_use";
        database.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    scene.asks("quiet", "bot   Hm").await;
    scene.comes_to("its tokens are estimated", || counted() > 0).await;
    let estimated = counted();
    scene.asks("hello", "bot   hello").await;
    scene.comes_to("they are counted", || counted() == estimated + 120).await;
    scene.ends().await;
}

/// The stored messages of the only session, one line each: role, text, calls.
fn stored(scene: &AcpScene) -> Vec<String> {
    let database = rusqlite::Connection::open(scene.gateway.database()).unwrap();
    let mut query =
        database.prepare("SELECT role, reasoning, content, tools FROM messages ORDER BY id").unwrap();
    let rows = query.query_map([], |row| {
        let (role, reasoning): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        let (content, tools): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let tools: Value = tools.map_or(json!({}), |tools| serde_json::from_str(&tools).unwrap());
        let called = tools["tool_calls"][0]["function"]["name"].as_str().map(|name| format!(" {name}()"));
        let thought = reasoning.map(|reasoning| format!(" ({reasoning})")).unwrap_or_default();
        Ok(format!("{role}{thought}: {content}{}", called.unwrap_or_default()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_turn_is_stored_with_its_tools_and_thoughts() {
    let script = Script::default().turn(
        "make",
        [
            Act::Thinks("hmm".to_owned()),
            Act::says(&["Let me try."]),
            Act::runs("make", "no rule\n"),
            Act::says(&["There is no rule."]),
        ],
    );
    let scene = AcpScene::with(script).await;
    scene.asks("make it", "There is no rule.").await;
    assert_eq!(
        stored(&scene),
        [
            "user: make it",
            "assistant (hmm): Let me try.",
            "assistant:  execute()",
            "tool: no rule\n",
            "assistant: There is no rule.",
        ]
    );
    scene.ends().await;
}
