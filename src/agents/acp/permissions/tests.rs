//! Tests: what a request for permission asks people, and which answer the agent gets.

mod real_requests;

use std::time::Duration;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;

use super::*;
use crate::access::{AppPermissions, GrantScope};
use crate::agent::{AgentError, SessionMessage, TurnEvent};
use crate::agents::acp::tool_calls::ToolCalls;
use crate::ids::{AgentName, SessionId, TurnId};

/// Answers each ask in the same way.
struct Person {
    choice: AskChoice,
    asked: Mutex<Vec<Ask>>,
}

impl AgentOutput for Person {
    fn emit(&self, _event: TurnEvent<'_>) {}

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.asked.lock().push(ask);
        let choice = self.choice.clone();
        Box::pin(async move { choice })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

fn codex_options() -> Value {
    json!([
        { "optionId": "yes", "name": "Yes, proceed", "kind": "allow_once" },
        { "optionId": "ever", "name": "Yes, always", "kind": "allow_always" },
        { "optionId": "no", "name": "No", "kind": "reject_once" },
    ])
}

fn command(command: &str) -> ToolCall {
    ToolCalls::default().requested(&json!({ "toolCallId": "c", "title": command, "kind": "execute",
        "rawInput": { "command": command, "cwd": "/ws" } }))
}

async fn decided(
    choice: AskChoice,
    options: &Value,
    policy: &AppPermissions,
) -> (PermissionAnswer, Vec<Ask>) {
    let turn = AgentTurn::new(TurnId("t".to_owned()), AgentName::local(), SessionId("s".to_owned()));
    decided_in(&turn, choice, command("make"), options, policy).await
}

async fn decided_in(
    turn: &AgentTurn,
    choice: AskChoice,
    call: ToolCall,
    options: &Value,
    policy: &AppPermissions,
) -> (PermissionAnswer, Vec<Ask>) {
    let person = Person { choice, asked: Mutex::default() };
    let answering = answer(call, options, turn, "/ws", policy, &person);
    let answer = tokio::time::timeout(Duration::from_secs(5), answering).await.unwrap();
    (answer, person.asked.into_inner())
}

fn option(id: &str) -> AskChoice {
    AskChoice::Option(id.to_owned())
}

#[tokio::test]
async fn people_are_offered_the_agents_own_options_and_the_agent_gets_their_choice() {
    let ask = AppPermissions::Ask;
    for (choice, chosen) in [
        (option("yes"), "yes"),
        (option("ever"), "ever"),
        (option("no"), "no"),
        (AskChoice::Allow(GrantScope::Once), "yes"),
        (AskChoice::Deny(DenyReason::Person), "no"),
        (AskChoice::Text("do it".into()), "no"),
        (option("another"), "no"),
    ] {
        let (answer, asked) = decided(choice.clone(), &codex_options(), &ask).await;
        assert_eq!(answer.reply["outcome"]["optionId"], chosen, "{choice:?}");
        assert_eq!(answer.declined.is_some(), chosen == "no", "{choice:?}");
        assert!(!answer.halts);
        assert_eq!((asked[0].detail.as_str(), asked[0].cwd.as_deref()), ("make", Some("/ws")));
        assert_eq!(asked[0].form.options.len(), 3);
    }
    let (answer, _) = decided(AskChoice::Deny(DenyReason::Stopped), &codex_options(), &ask).await;
    assert_eq!(answer.reply, cancelled());
    let (answer, _) = decided(AskChoice::Deny(DenyReason::Timeout), &codex_options(), &ask).await;
    assert!(answer.halts && answer.reply == cancelled());
}

#[tokio::test]
async fn without_an_option_that_rejects_once_a_refusal_is_cancelled_and_without_one_that_allows_nobody_is_asked()
 {
    let ask = AppPermissions::Ask;
    let only_yes = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
        { "optionId": "never", "name": "Never", "kind": "reject_always" }]);
    let (answer, _) = decided(AskChoice::Deny(DenyReason::Person), &only_yes, &ask).await;
    assert_eq!(answer.reply, cancelled());
    let twice = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
        { "optionId": "yes", "name": "No", "kind": "reject_once" }]);
    let unknown = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_for_a_week" }]);
    let long = json!([{ "optionId": "yes", "name": "y".repeat(999), "kind": "allow_always" }]);
    for options in [json!([]), json!(null), twice, unknown, long] {
        let (answer, asked) = decided(option("yes"), &options, &ask).await;
        assert_eq!((answer.reply, asked.len()), (cancelled(), 0), "{options}");
        assert!(answer.remark.is_some());
    }
}

#[tokio::test]
async fn a_policy_decides_without_asking_and_a_refusal_is_a_line() {
    let yes = option("yes");
    let (answer, asked) = decided(yes.clone(), &codex_options(), &AppPermissions::Deny).await;
    assert_eq!((&answer.reply["outcome"]["optionId"], asked.len()), (&json!("no"), 0));
    assert!(answer.remark.unwrap().to_string().contains("`make`"));
    for (entry, chosen) in [("make", "yes"), ("make*", "yes"), ("ma", "no"), ("cargo test", "no")] {
        let policy = AppPermissions::Allow(vec![entry.to_owned()]);
        let (answer, asked) = decided(yes.clone(), &codex_options(), &policy).await;
        assert_eq!((&answer.reply["outcome"]["optionId"], asked.len()), (&json!(chosen), 0), "{entry}");
    }
    // An app has a policy of its own, on every surface, and the engine answers the ask by it.
    let mut turn = AgentTurn::new(TurnId("t".to_owned()), AgentName::local(), SessionId("s".to_owned()));
    turn.app = Some("ci".to_owned());
    let policy = AppPermissions::Allow(vec!["make".to_owned()]);
    let (_, asked) = decided_in(&turn, yes.clone(), command("make"), &codex_options(), &policy).await;
    assert_eq!(asked.len(), 1);
    // An entry never allows for longer than once.
    let always = json!([{ "optionId": "ever", "name": "Yes, always", "kind": "allow_always" }]);
    let policy = AppPermissions::Allow(vec!["make".to_owned()]);
    let (answer, _) = decided(yes, &always, &policy).await;
    assert_eq!(answer.reply, cancelled());
}

#[test]
fn people_judge_the_whole_action() {
    let of = |request: Value| detail::of(&ToolCalls::default().requested(&request), "/ws");
    let zed = json!({ "toolCallId": "c", "title": "echo hi", "kind": "execute", "rawInput": { "call_id": "c",
        "command": ["/bin/bash", "-lc", "echo hi"], "cwd": "/ws", "parsed_cmd": [], "source": "agent" } });
    assert_eq!(of(zed).as_deref(), Some("echo hi"));
    let words = json!({ "toolCallId": "c", "kind": "execute",
        "rawInput": { "command": ["rm", "-rf", "my dir"] } });
    assert_eq!(of(words).as_deref(), Some("rm -rf 'my dir'"));
    let more = json!({ "toolCallId": "c", "title": "ls", "name": "Bash", "kind": "execute",
        "rawInput": { "command": "ls", "description": "look", "dangerouslyDisableSandbox": true } });
    assert_eq!(of(more).as_deref(), Some("dangerouslyDisableSandbox: true\nls"));
    let diff = json!({ "toolCallId": "c", "title": "/ws/a.txt", "kind": "edit", "content": [
        { "type": "diff", "path": "/ws/a.txt", "oldText": "a\nb", "newText": "c" },
        { "type": "diff", "path": "/etc/passwd", "newText": "x\n" } ] });
    assert_eq!(of(diff).as_deref(), Some("a.txt (-2 +1)\n/etc/passwd (+1)"));
    let place = json!({ "toolCallId": "c", "title": "Edit files", "kind": "edit", "locations": [{ "path": "/ws/b" }] });
    assert_eq!(of(place).as_deref(), Some("Edit files\nb"));
    let fetch =
        json!({ "toolCallId": "c", "title": "Fetch", "kind": "fetch", "rawInput": { "url": "http://x" } });
    assert_eq!(of(fetch).as_deref(), Some("Fetch\n{\"url\":\"http://x\"}"));
    assert_eq!(of(json!({ "toolCallId": "c", "rawInput": {} })), None);
}

#[test]
fn a_command_for_another_tool_than_the_shell_is_shown_with_the_name_of_the_tool_and_matches_no_list() {
    let allowed = AppPermissions::Allow(vec!["git status".to_owned(), "git*".to_owned()]);
    let request = |name: &str, title: &str, kind: &str| {
        ToolCalls::default()
            .requested(&json!({ "toolCallId": "c", "name": name, "title": title, "kind": kind,
            "rawInput": { "command": "git status" }, "locations": [{ "path": "/ws/a" }] }))
    };
    for (name, title, kind) in [
        ("prod_ssh", "git status", "execute"),
        ("prod_ssh", "prod_ssh", "other"),
        ("", "git status", "other"),
        ("", "prod_ssh", ""),
        ("Bash", "prod_ssh", "other"),
        ("prod_ssh", "git status", "edit"),
        ("mcp__prod__bash", "git status", "execute"),
    ] {
        let detail = detail::of(&request(name, title, kind), "/ws").unwrap();
        assert!(detail.starts_with(if name.is_empty() { title } else { name }), "{detail}");
        assert!(detail.contains(title) && detail.contains(r#"{"command":"git status"}"#), "{detail}");
        assert_eq!(allowed.decide(&detail), PermissionDecision::Deny, "{detail}");
    }
    for name in ["", "Bash", "bash", "exec_command", "run_shell_command"] {
        let detail = detail::of(&request(name, "git status", "execute"), "/ws").unwrap();
        assert_eq!((detail.as_str(), allowed.decide(&detail)), ("git status", PermissionDecision::AllowOnce));
    }
}
