//! Behaviour of codex that our agent relies on and that no document promises.

use serde_json::{Value, json};

use crate::codex_home::{CodexHome, CodexOptions};
use crate::direct::{DirectCodex, requests};
use crate::it::upstream::Gate;
use crate::it::upstream::Upstream;
use crate::responses::{calls, is_cut_after, offered, runs, says, says_behind, says_half, told};

/// The request for the approval of a command.
const COMMAND: &str = "item/commandExecution/requestApproval";

async fn started() -> (Upstream, CodexHome, DirectCodex) {
    let model = Upstream::plain().await;
    let home = CodexHome::new(&model.url(), &CodexOptions::default());
    let codex = DirectCodex::start(&home).await;
    (model, home, codex)
}

#[tokio::test]
async fn an_approval_for_the_session_is_forgotten_by_archiving() {
    let (model, home, mut codex) = started().await;
    let thread = codex.starts_thread(json!({})).await;
    let asked = async |codex: &mut DirectCodex| {
        model.answers(runs("echo one")).answers(says(["done"]));
        let messages = codex.turn(&thread, "go", &json!({ "decision": "acceptForSession" })).await;
        requests(&messages).contains(&COMMAND)
    };
    assert!(asked(&mut codex).await);
    assert!(!asked(&mut codex).await);
    let this = json!({ "threadId": thread });
    codex.calls("thread/unsubscribe", this.clone()).await.unwrap();
    codex.resumes(&thread).await;
    assert!(!asked(&mut codex).await, "a thread stays loaded");
    codex.calls("thread/archive", this.clone()).await.unwrap();
    let archived = codex.calls("thread/resume", this.clone()).await.unwrap_err();
    assert!(archived["message"].as_str().unwrap().contains("is archived"), "{archived}");
    codex.calls("thread/unarchive", this).await.unwrap();
    codex.resumes(&thread).await;
    assert!(asked(&mut codex).await);
    codex.ends().await;
    let mut codex = DirectCodex::start(&home).await;
    codex.resumes(&thread).await;
    assert!(asked(&mut codex).await, "another process forgets too");
}

#[tokio::test]
async fn dynamic_tools_and_the_history_survive_a_restart() {
    let (model, home, mut codex) = started().await;
    let tool = json!({ "type": "function", "name": "recall", "description": "recalls", "inputSchema": { "type": "object" } });
    let thread = codex.starts_thread(json!({ "dynamicTools": [tool] })).await;
    let item = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "I am Ann" }] });
    codex.calls("thread/inject_items", json!({ "threadId": thread, "items": [item] })).await.unwrap();
    model.answers(says(["Hello"]));
    codex.turn(&thread, "hi", &Value::Null).await;
    codex.ends().await;

    let mut codex = DirectCodex::start(&home).await;
    codex.resumes(&thread).await;
    model.answers(calls("recall", &json!({}))).answers(says(["done"]));
    let reply = json!({ "contentItems": [{ "type": "inputText", "text": "a note" }], "success": true });
    let messages = codex.turn(&thread, "again", &reply).await;
    assert_eq!(requests(&messages), ["item/tool/call"]);
    let prompts = model.prompts();
    assert!(prompts.iter().all(|prompt| offered(prompt).contains(&"recall".to_owned())));
    let last = told(&prompts[2]);
    for line in
        ["user: I am Ann", "user: hi", "assistant: Hello", "user: again", "function_call_output: a note"]
    {
        assert!(last.contains(&line.to_owned()), "{line} in {last:#?}");
    }
}

#[tokio::test]
async fn a_cut_answer_is_begun_again_as_a_second_message() {
    let (model, _home, mut codex) = started().await;
    let thread = codex.starts_thread(json!({})).await;
    model.answers(is_cut_after("half an")).answers(says(["the whole answer"]));
    let messages = codex.turn(&thread, "go", &Value::Null).await;
    let of = |method: &str| {
        messages.iter().filter(|message| message["method"] == method).cloned().collect::<Vec<_>>()
    };
    let words: Vec<_> =
        of("item/agentMessage/delta").iter().map(|message| message["params"]["delta"].clone()).collect();
    assert_eq!(words, ["half an", "the whole answer"]);
    assert_eq!(of("error")[0]["params"]["willRetry"], true);
    let completed = of("item/completed");
    let texts: Vec<_> =
        completed.iter().filter_map(|message| message["params"]["item"]["text"].as_str()).collect();
    assert_eq!(texts, ["the whole answer"]);
}

#[tokio::test]
async fn without_a_sandbox_only_one_rule_asks() {
    let (model, home, mut codex) = started().await;
    let mark = home.path().join("mark");
    let command = json!({ "cmd": format!("touch {}", mark.display()) });
    let parts = json!({ "granular": { "sandbox_approval": true, "rules": true, "skill_approval": true,
        "request_permissions": true, "mcp_elicitations": true } });
    for (rule, asks) in
        [(json!("on-request"), false), (parts, false), (json!("never"), false), (json!("untrusted"), true)]
    {
        let settings = json!({ "sandbox": "danger-full-access", "approvalPolicy": rule });
        let thread = codex.starts_thread(settings).await;
        model.answers(calls("exec_command", &command)).answers(says(["done"]));
        let messages = codex.turn(&thread, "go", &json!({ "decision": "decline" })).await;
        assert_eq!(requests(&messages).contains(&COMMAND), asks, "{rule}");
        assert_eq!(std::fs::remove_file(&mark).is_ok(), !asks, "{rule}");
    }
}

#[tokio::test]
async fn a_turn_that_has_not_begun_is_interrupted_without_its_id() {
    let (model, _home, mut codex) = started().await;
    let thread = codex.starts_thread(json!({})).await;
    for _ in 0..3 {
        model.answers(says_half("It goes on"));
        let input = json!([{ "type": "text", "text": "go" }]);
        codex.calls("turn/start", json!({ "threadId": thread, "input": input })).await.unwrap();
        // With its id the answer would be that no turn is active, and the turn would go on.
        codex.calls("turn/interrupt", json!({ "threadId": thread, "turnId": "" })).await.unwrap();
        let end = loop {
            let message = codex.next().await;
            if message["method"] == "turn/completed" {
                break message;
            }
        };
        assert_eq!(end["params"]["turn"]["status"], "interrupted");
        model.forgets_answers();
    }
    // Without a turn nothing happens, now or later.
    codex.calls("turn/interrupt", json!({ "threadId": thread, "turnId": "" })).await.unwrap();
    model.answers(says(["Here I am."]));
    let messages = codex.turn(&thread, "and now?", &Value::Null).await;
    assert_eq!(messages.last().unwrap()["params"]["turn"]["status"], "completed");
}

#[tokio::test]
async fn with_goals_switched_off_no_turn_follows_by_itself() {
    let model = Upstream::plain().await;
    let home = CodexHome::new(&model.url(), &CodexOptions { goals: true, ..CodexOptions::default() });
    let started =
        |messages: &[Value]| messages.iter().filter(|message| message["method"] == "turn/started").count();
    let without_goals = ["-c", "features.goals=false"];

    // As codex is: it goes on by itself, turn after turn.
    let mut codex = DirectCodex::start(&home).await;
    let thread = codex.starts_thread(json!({})).await;
    let goal = json!({ "objective": "count to ten" });
    model.answers(calls("create_goal", &goal)).answers(says(["One."])).answers(says_half("Two"));
    assert_eq!(started(&codex.turn(&thread, "count", &Value::Null).await), 1);
    while codex.next().await["method"] != "turn/started" {}
    codex.ends().await;
    model.forgets_answers();

    // The goal of the thread sleeps in a process without goals.
    let before = model.prompts().len();
    let mut codex = DirectCodex::start_with(&home, &without_goals).await;
    codex.resumes(&thread).await;
    model.answers(says(["Hello."]));
    assert_eq!(started(&codex.turn(&thread, "hi", &Value::Null).await), 1);
    codex.calls("thread/loaded/list", json!({})).await.unwrap();
    while let Some(message) = codex.next_seen() {
        assert_ne!(message["method"], "turn/started");
    }
    let prompts = model.prompts();
    assert_eq!(prompts.len(), before + 1);
    assert!(!offered(&prompts[before]).contains(&"create_goal".to_owned()));
    codex.ends().await;
}

#[tokio::test]
async fn a_second_turn_joins_the_one_that_runs() {
    let (model, _home, mut codex) = started().await;
    let thread = codex.starts_thread(json!({})).await;
    let gate = Gate::new();
    model.answers(says_behind("one", &gate, " two")).answers(says(["three"]));
    let start = |text: &str| json!({ "threadId": thread, "input": [{ "type": "text", "text": text }] });
    let first = codex.calls("turn/start", start("first")).await.unwrap();
    gate.is_reached().await;
    let second = codex.calls("turn/start", start("second")).await.unwrap();
    assert_eq!(first["turn"]["id"], second["turn"]["id"]);
    gate.open();
    while codex.next().await["method"] != "turn/completed" {}
    codex.ends().await;
}
