//! The requests of five real agents: the action that people judge, what a list allows, and the options that are offered.

use serde_json::Map;

use super::*;

/// A request as an agent sends it, and what becomes of it.
struct RealRequest {
    agent: &'static str,
    call: Value,
    options: Value,
    /// The exact action.
    detail: &'static str,
    /// An entry of a list that allows it; `None` if no entry with a `*` can.
    entry: Option<&'static str>,
    /// Ids of the options that a room is offered.
    room: &'static [&'static str],
    /// Ids of the options that an app is offered.
    app: &'static [&'static str],
}

fn options(written: &[(&str, &str, &str)]) -> Value {
    written.iter().map(|(id, name, kind)| json!({ "optionId": id, "name": name, "kind": kind })).collect()
}

fn codex_rules() -> Value {
    options(&[
        ("allow_once", "Yes, proceed", "allow_once"),
        (
            "accept_execpolicy_amendment",
            "Yes, and don't ask again for commands that start with `make`",
            "allow_always",
        ),
        ("cancel", "No, and tell Codex what to do differently", "reject_once"),
    ])
}

fn zed_rules() -> Value {
    options(&[
        ("approved", "Yes, proceed", "allow_once"),
        ("approved-execpolicy-amendment", "Yes, and don't ask again for `make`", "allow_always"),
        ("abort", "No, and tell Codex what to do differently", "reject_once"),
    ])
}

fn execute(title: &str, more: Value) -> Value {
    let mut call = json!({ "toolCallId": "c", "title": title, "kind": "execute", "status": "pending" });
    let more: Map<String, Value> = serde_json::from_value(more).unwrap();
    call.as_object_mut().unwrap().extend(more);
    call
}

fn text(text: &str) -> Value {
    json!([{ "type": "content", "content": { "type": "text", "text": text } }])
}

/// One request of each form that was captured.
fn real_requests() -> Vec<RealRequest> {
    let edit = |title: &str, path: &str| {
        json!({ "toolCallId": "c", "title": title, "kind": "edit", "status": "pending",
            "content": [{ "type": "diff", "path": path, "oldText": null, "newText": "written\n" }],
            "locations": [{ "path": path }] })
    };
    let claude = options(&[
        ("allow-once", "Yes", "allow_once"),
        ("allow-with-updates", "Yes, allow all edits during this session", "allow_always"),
        ("reject", "No", "reject_once"),
    ]);
    let opencode = options(&[
        ("once", "Allow once", "allow_once"),
        ("always", "Always allow", "allow_always"),
        ("reject", "Reject", "reject_once"),
    ]);
    let gemini = options(&[
        ("proceed_always", "Allow for this session", "allow_always"),
        ("proceed_once", "Allow", "allow_once"),
        ("cancel", "Reject", "reject_once"),
    ]);
    let session = options(&[
        ("allow_once", "Yes, proceed", "allow_once"),
        ("allow_for_session", "Yes, and don't ask again for these files", "allow_always"),
        ("cancel", "No, and tell Codex what to do differently", "reject_once"),
    ]);
    vec![
        RealRequest {
            agent: "codex-acp, a command",
            call: execute("make test", json!({ "rawInput": { "command": "make test", "cwd": "/ws" } })),
            options: codex_rules(),
            detail: "make test",
            entry: Some("make*"),
            room: &["allow_once", "cancel"],
            app: &["allow_once", "cancel"],
        },
        RealRequest {
            agent: "codex-acp, a change",
            call: json!({ "toolCallId": "c", "title": "Edit files", "kind": "edit", "status": "pending",
                "locations": [{ "path": "/ws/a.txt" }] }),
            options: session,
            detail: "Edit files\na.txt",
            entry: None,
            room: &["allow_once", "allow_for_session", "cancel"],
            app: &["allow_once", "cancel"],
        },
        RealRequest {
            agent: "zed, a command",
            call: execute(
                "make test",
                json!({ "content": text("Do you want to run this?\nProposed Amendment: make\ntest"),
                    "rawInput": { "call_id": "c", "turn_id": "t", "started_at_ms": 1, "cwd": "/ws",
                        "command": ["/bin/bash", "-lc", "make test"], "reason": "Do you want to run this?",
                        "proposed_execpolicy_amendment": ["make", "test"],
                        "available_decisions": ["approved", "abort"],
                        "parsed_cmd": [{ "type": "unknown", "cmd": "make test" }] } }),
            ),
            options: zed_rules(),
            detail: "make test",
            entry: Some("make*"),
            room: &["approved", "abort"],
            app: &["approved", "abort"],
        },
        RealRequest {
            agent: "zed, a change",
            call: edit("Edit /ws/a.txt", "/ws/a.txt"),
            options: options(&[
                ("approved", "Yes", "allow_once"),
                ("abort", "No, provide feedback", "reject_once"),
            ]),
            detail: "Edit /ws/a.txt\na.txt (+1)",
            entry: None,
            room: &["approved", "abort"],
            app: &["approved", "abort"],
        },
        RealRequest {
            agent: "claude, a command",
            call: execute(
                "make test",
                json!({ "name": "Bash", "content": text("run it"), "locations": [{ "path": "/ws/out" }],
                    "rawInput": { "command": "make test", "description": "run it" } }),
            ),
            options: claude.clone(),
            detail: "make test",
            entry: Some("make*"),
            room: &["allow-once", "allow-with-updates", "reject"],
            app: &["allow-once", "reject"],
        },
        RealRequest {
            agent: "claude, a change",
            call: edit("Write a.txt", "/ws/a.txt"),
            options: claude,
            detail: "Write a.txt\na.txt (+1)",
            entry: None,
            room: &["allow-once", "allow-with-updates", "reject"],
            app: &["allow-once", "reject"],
        },
        RealRequest {
            agent: "opencode, a command",
            call: execute("make test", json!({ "locations": [], "rawInput": { "command": "make test" } })),
            options: opencode.clone(),
            detail: "make test",
            entry: Some("make*"),
            room: &["once", "always", "reject"],
            app: &["once", "reject"],
        },
        RealRequest {
            agent: "opencode, a change",
            call: edit("/ws/a.txt", "/ws/a.txt"),
            options: opencode,
            detail: "a.txt (+1)",
            entry: None,
            room: &["once", "always", "reject"],
            app: &["once", "reject"],
        },
        RealRequest {
            agent: "gemini, a command",
            call: execute(
                "make test",
                json!({ "locations": [], "content": text("[current working directory /ws] (run it)") }),
            ),
            options: gemini,
            detail: "make test",
            entry: Some("make*"),
            room: &["proceed_always", "proceed_once", "cancel"],
            app: &["proceed_once", "cancel"],
        },
    ]
}

fn requested(request: &Value) -> ToolCall {
    ToolCalls::default().requested(request)
}

fn room_turn() -> AgentTurn {
    AgentTurn::new(TurnId("t".to_owned()), AgentName::local(), SessionId("s".to_owned()))
}

fn app_turn() -> AgentTurn {
    AgentTurn { app: Some("shop".to_owned()), ..room_turn() }
}

#[tokio::test]
async fn the_action_and_the_options_of_each_real_request_are_what_people_need() {
    let refused = AskChoice::Deny(DenyReason::Person);
    for RealRequest { agent, call, options, detail, room, app, .. } in real_requests() {
        for (turn, offered) in [(room_turn(), room), (app_turn(), app)] {
            let (_, asked) =
                decided_in(&turn, refused.clone(), requested(&call), &options, &AppPermissions::Ask).await;
            let [ask] = asked.as_slice() else { panic!("{agent}: {asked:?}") };
            let ids: Vec<_> = ask.form.options.iter().map(|option| option.id.as_str()).collect();
            assert_eq!((ask.detail.as_str(), ids.as_slice()), (detail, offered), "{agent}");
            assert_eq!(ask.cwd.as_deref(), Some("/ws"), "{agent}");
        }
    }
}

#[tokio::test]
async fn a_list_allows_the_commands_of_every_real_agent_and_the_changes_of_none() {
    for RealRequest { agent, call, options, entry, .. } in real_requests() {
        let entries = ["a.txt*", "/ws/a.txt*", "Edit*", "Write*"].into_iter().chain(entry);
        let policy = AppPermissions::Allow(entries.map(str::to_owned).collect());
        let refused = AskChoice::Deny(DenyReason::Person);
        let (answer, asked) = decided_in(&room_turn(), refused, requested(&call), &options, &policy).await;
        assert_eq!((answer.declined.is_none(), asked.len()), (entry.is_some(), 0), "{agent}");
    }
}

#[tokio::test]
async fn an_app_cannot_choose_what_outlives_its_request_and_nobody_can_write_a_rule() {
    for (options, rule) in
        [(codex_rules(), "accept_execpolicy_amendment"), (zed_rules(), "approved-execpolicy-amendment")]
    {
        for turn in [room_turn(), app_turn()] {
            let call = command("make");
            let (answer, _) = decided_in(&turn, option(rule), call, &options, &AppPermissions::Ask).await;
            assert!(answer.declined.is_some(), "{rule}: {}", answer.reply);
        }
    }
    let network = json!([
        { "optionId": "allow_once", "name": "Yes", "kind": "allow_once" },
        { "optionId": "apply_network_policy_amendment", "name": "Always", "kind": "allow_always" },
        { "optionId": "never", "name": "Never", "kind": "reject_always" },
    ]);
    for (turn, choice) in [
        (room_turn(), "apply_network_policy_amendment"),
        (app_turn(), "apply_network_policy_amendment"),
        (app_turn(), "never"),
    ] {
        let (answer, _) =
            decided_in(&turn, option(choice), command("make"), &network, &AppPermissions::Ask).await;
        assert_eq!(answer.reply, cancelled(), "{choice}");
    }
    // An app is not asked about what it could only allow for ever.
    let ever = json!([{ "optionId": "ever", "name": "Always", "kind": "allow_always" }]);
    let (answer, asked) =
        decided_in(&app_turn(), option("ever"), command("make"), &ever, &AppPermissions::Ask).await;
    assert_eq!((answer.reply, asked.len()), (cancelled(), 0));
}

#[tokio::test]
async fn a_command_of_gemini_in_another_form_or_another_folder_matches_no_list() {
    let policy = AppPermissions::Allow(vec!["make*".to_owned()]);
    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
    let far = "make ".repeat(10_000);
    for (call, is_asked) in [
        (execute("make", json!({ "content": text("[current working directory /other] (run it)") })), true),
        (
            execute(
                "make",
                json!({ "content": text("[current working directory /ws] (run it) [background]") }),
            ),
            false,
        ),
        (execute("make", json!({ "content": text("[in deep] (run it)") })), false),
        (execute("make", json!({ "content": text("[current working directory ws]") })), false),
        (
            execute(
                "make",
                json!({ "name": "prod_ssh", "content": text("[current working directory /ws]") }),
            ),
            false,
        ),
        (execute(&far, json!({ "content": text("[current working directory /ws]") })), false),
    ] {
        let refused = AskChoice::Deny(DenyReason::Person);
        let (answer, asked) = decided_in(&room_turn(), refused, requested(&call), &options, &policy).await;
        assert!(answer.declined.is_some(), "{call}");
        assert_eq!(asked.len(), usize::from(is_asked), "{call}");
    }
}
