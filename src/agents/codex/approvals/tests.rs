//! Requests as codex 0.166 and 0.169 wrote them, what people are asked, and what codex is answered.

use std::collections::VecDeque;

use parking_lot::Mutex;
use talaria_platform::BoxFuture;

use super::*;
use crate::agent::{AgentError, AnswerForm, SessionMessage, TurnEvent};
use crate::agents::jsonrpc::RequestId;
use crate::i18n::TextCatalog;

const THREAD: &str = "01a1e176-c68a-7f52-aab2-964a5d4503c9";

/// Gives each ask the next answer, and keeps the asks.
#[derive(Default)]
struct Person {
    choices: Mutex<VecDeque<AskChoice>>,
    asked: Mutex<Vec<Ask>>,
}

impl AgentOutput for Person {
    fn emit(&self, event: TurnEvent<'_>) {
        panic!("an approval emits nothing: {event:?}");
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'static, AskChoice> {
        self.asked.lock().push(ask);
        let choice = self.choices.lock().pop_front().expect("nobody should be asked");
        Box::pin(async { choice })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}

/// One request in a turn.
struct Scene {
    items: ItemCache,
    policy: ApprovalPolicy,
    cwd: &'static str,
}

impl Scene {
    fn new() -> Self {
        Self { items: ItemCache::default(), policy: ApprovalPolicy::default(), cwd: "/work-dir/session" }
    }

    fn asking_for_permissions() -> Self {
        let policy = ApprovalPolicy { permissions: PermissionPolicy::Ask, own_server: None };
        Self { policy, ..Self::new() }
    }

    /// The answer to a request, and the asks, if people give these answers.
    async fn answers(
        &self,
        method: &str,
        params: &Value,
        choices: impl IntoIterator<Item = AskChoice>,
    ) -> (ApprovalAnswer, Vec<Ask>) {
        let person = Person { choices: Mutex::new(choices.into_iter().collect()), ..Person::default() };
        let request = IncomingMessage {
            position: 0,
            method: method.to_owned(),
            params: params.clone(),
            request: Some(RequestId::Number(0)),
            bytes: 0,
        };
        let Self { items, policy, cwd } = self;
        let answered =
            answer(&request, &ApprovalContext { out: &person, cwd, items, policy, thread: THREAD }).await;
        assert!(person.choices.lock().is_empty(), "somebody was not asked");
        (answered, person.asked.into_inner())
    }
}

fn allow(scope: GrantScope) -> [AskChoice; 1] {
    [AskChoice::Allow(scope)]
}

fn deny(reason: DenyReason) -> [AskChoice; 1] {
    [AskChoice::Deny(reason)]
}

fn shown(remarks: &[LocalizedText]) -> String {
    remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const COMMAND: &str = "item/commandExecution/requestApproval";
const PATCH: &str = "item/fileChange/requestApproval";
const PERMISSIONS: &str = "item/permissions/requestApproval";
const ELICITATION: &str = "mcpServer/elicitation/request";
const INPUT: &str = "item/tool/requestUserInput";

fn command() -> Value {
    json!({
        "kind": "command", "threadId": THREAD, "turnId": "01a1e176-c6ec-7522-92a8-7e7dd885f6ee",
        "itemId": "call_r2", "startedAtMs": 1794784020364_u64, "environmentId": "local",
        "reason": "Do you want to run this?",
        "command": "/bin/bash -lc 'echo APPROVED > a.txt; cat a.txt'", "cwd": "/work-dir/ws",
        "commandActions": [{ "type": "unknown", "command": "echo APPROVED > a.txt; cat a.txt" }],
        "proposedExecpolicyAmendment": ["/bin/bash", "-lc", "echo APPROVED > a.txt; cat a.txt"],
        "availableDecisions": ["accept", "cancel"],
    })
}

fn decided(word: &str) -> Result<Value, RpcFault> {
    Ok(json!({ "decision": word }))
}

#[tokio::test]
async fn a_command_is_asked_exactly_with_folder_and_reason() {
    let (answer, asked) = Scene::new().answers(COMMAND, &command(), allow(GrantScope::Once)).await;
    assert_eq!(answer, ApprovalAnswer::new(json!({ "decision": "accept" })));
    let expected = Ask {
        title: TextKey::CodexAskCommand.into(),
        detail: "/bin/bash -lc 'echo APPROVED > a.txt; cat a.txt'".to_owned(),
        cwd: Some("/work-dir/ws".to_owned()),
        is_elsewhere: true,
        reason: Some("Do you want to run this?".to_owned()),
        form: AnswerForm::default(),
        gap: None,
    };
    assert_eq!(asked, [expected]);
    let german = TextCatalog::of("de").unwrap();
    assert_eq!(german.say(&asked[0].title), "einen Befehl ausführen");
}

#[tokio::test]
async fn the_folder_is_never_empty() {
    for (told, session, folder, is_elsewhere) in [
        (json!("/told"), "/session", "/told", true),
        (json!("/session"), "/session", "/session", false),
        (json!("/session/below"), "/session", "/session/below", true),
        (Value::Null, "/session", "/session", false),
        (json!(" "), "/session", "/session", false),
        (Value::Null, "", "<unknown>", true),
        // Never the session's in place of one that we cannot read.
        (json!({ "path": "/told" }), "/session", "{\"path\":\"/told\"}", true),
    ] {
        let mut params = command();
        params["cwd"] = told;
        let scene = Scene { cwd: session, ..Scene::new() };
        let (_, asked) = scene.answers(COMMAND, &params, allow(GrantScope::Once)).await;
        assert_eq!((asked[0].cwd.as_deref(), asked[0].is_elsewhere), (Some(folder), is_elsewhere));
    }
}

#[tokio::test]
async fn an_approval_for_longer_is_kept_by_codex_and_by_us() {
    for scope in [GrantScope::Session, GrantScope::Always] {
        for (kind, title) in [("command", TextKey::CodexAskCommand), ("writeStdin", TextKey::CodexAskInput)] {
            let mut params = command();
            params["kind"] = json!(kind);
            let (answer, asked) = Scene::new().answers(COMMAND, &params, allow(scope)).await;
            assert_eq!(answer.reply, decided("acceptForSession"));
            assert_eq!(asked[0].title, title.into());
            assert_eq!(answer.kept_grant.as_ref(), asked.first());
        }
    }
    let mut old = command();
    old.as_object_mut().unwrap().remove("kind");
    let (answer, _) = Scene::new().answers(COMMAND, &old, allow(GrantScope::Session)).await;
    assert_eq!(answer.reply, decided("acceptForSession"), "versions without kinds have only commands");
}

#[tokio::test]
async fn other_kinds_of_commands_are_allowed_once_and_never_for_the_session() {
    for kind in [json!("humanCommand"), json!("someday"), json!({ "someday": {} }), json!(7), json!("")] {
        let mut params = command();
        params["kind"] = kind;
        for choice in [AskChoice::Option("once".to_owned()), AskChoice::Allow(GrantScope::Session)] {
            let (answer, asked) = Scene::new().answers(COMMAND, &params, [choice]).await;
            assert_eq!((answer.reply, answer.kept_grant), (decided("accept"), None));
            // Our own engine makes no grant of an option either.
            assert!(asked[0].form.is_once_only(), "rooms are told of /approve, and not of two options");
            assert_eq!(asked[0].form.approve(GrantScope::Once), Ok(AskChoice::Option("once".to_owned())));
            assert!(asked[0].form.approve(GrantScope::Session).is_err());
        }
        for no in [AskChoice::Option("deny".to_owned()), AskChoice::Text("accept".to_owned())] {
            let (answer, _) = Scene::new().answers(COMMAND, &params, [no]).await;
            assert_eq!(answer.reply, decided("decline"));
        }
    }
}

#[tokio::test]
async fn a_command_that_gets_more_than_its_sandbox_says_so_before_its_text() {
    let mut params = command();
    params["additionalPermissions"] = json!({ "network": { "enabled": true }, "fileSystem": null });
    let (answer, asked) = Scene::new().answers(COMMAND, &params, allow(GrantScope::Session)).await;
    assert_eq!((answer.reply, answer.kept_grant), (decided("accept"), None));
    assert_eq!(asked[0].title, TextKey::CodexAskCommandMore.into());
    assert_eq!(
        asked[0].detail,
        "permissions: {\"fileSystem\":null,\"network\":{\"enabled\":true}}\n\
         /bin/bash -lc 'echo APPROVED > a.txt; cat a.txt'"
    );

    let host = r#"network: {"host":"example.org","protocol":"https"}"#;
    let with_command = format!("{host}\nnetwork-access https://example.org:443");
    for (command_words, detail) in
        [(Value::Null, host), (json!("network-access https://example.org:443"), with_command.as_str())]
    {
        let mut params = command();
        (params["command"], params["networkApprovalContext"]) =
            (command_words, json!({ "host": "example.org", "protocol": "https" }));
        let (answer, asked) = Scene::new().answers(COMMAND, &params, allow(GrantScope::Session)).await;
        assert_eq!((answer.reply, answer.kept_grant), (decided("accept"), None));
        assert_eq!(asked[0].title, TextKey::CodexAskNetwork.into());
        assert_eq!(asked[0].detail, detail);
    }
}

#[tokio::test]
async fn a_command_for_another_environment_says_so_and_is_not_kept() {
    let mut params = command();
    params["environmentId"] = json!("server-2");
    let (answer, asked) = Scene::new().answers(COMMAND, &params, allow(GrantScope::Session)).await;
    assert_eq!((answer.reply, answer.kept_grant), (decided("accept"), None));
    assert_eq!(asked[0].title, TextKey::CodexAskCommandElsewhere.into());
    assert!(asked[0].detail.starts_with("environment: \"server-2\"\n/bin/bash"), "{}", asked[0].detail);
    for here in [json!("local"), Value::Null] {
        let mut params = command();
        params["environmentId"] = here;
        let (_, asked) = Scene::new().answers(COMMAND, &params, allow(GrantScope::Once)).await;
        assert!(asked[0].detail.starts_with("/bin/bash"));
    }
    let mut params = permissions();
    params["environmentId"] = json!("server-2");
    let (_, asked) =
        Scene::asking_for_permissions().answers(PERMISSIONS, &params, allow(GrantScope::Once)).await;
    assert!(asked[0].detail.starts_with("environment: \"server-2\"\n{"), "{}", asked[0].detail);
}

#[tokio::test]
async fn every_denial_has_its_answer() {
    for (reason, word, halts, remark) in [
        (DenyReason::Person, "decline", false, ""),
        (DenyReason::Timeout, "cancel", true, ""),
        (DenyReason::Stopped, "cancel", false, ""),
        (DenyReason::Restart, "cancel", false, ""),
        (DenyReason::TooLong, "decline", false, ""),
        (DenyReason::NothingToJudge, "decline", false, ""),
        (DenyReason::TooMany, "decline", false, ""),
        (DenyReason::Policy, "decline", false, ""),
        (DenyReason::Gone, "decline", false, "Declined, because nobody here could be asked: run a command"),
        (DenyReason::Failed, "decline", false, "Declined, because nobody here could be asked: run a command"),
    ] {
        let (answer, _) = Scene::new().answers(COMMAND, &command(), deny(reason)).await;
        assert_eq!((answer.reply, answer.halts), (decided(word), halts), "{reason:?}");
        assert_eq!((shown(&answer.remarks).as_str(), answer.kept_grant), (remark, None), "{reason:?}");
    }
}

#[tokio::test]
async fn a_request_that_says_nothing_is_declined_visibly() {
    let network = json!({ "host": "example.org", "protocol": "https" });
    let permissions = json!({ "network": { "enabled": true } });
    for params in [
        json!({ "threadId": THREAD }),
        json!({ "threadId": THREAD, "command": " \n" }),
        json!({ "threadId": THREAD, "command": ["rm", "-r", "x"] }),
        // Never the part that can be read in place of the whole.
        json!({ "threadId": THREAD, "command": ["rm", "-r", "x"], "networkApprovalContext": network }),
        json!({ "threadId": THREAD, "additionalPermissions": permissions }),
        Value::Null,
    ] {
        let (answer, asked) = Scene::new().answers(COMMAND, &params, []).await;
        assert_eq!((answer.reply, asked), (decided("decline"), vec![]));
        assert!(shown(&answer.remarks).starts_with("Declined: codex asked for permission"));
    }
}

fn patch() -> Value {
    json!({
        "threadId": THREAD, "turnId": "01a1e177-e2db-70b3-992a-38b3b3c43cf1", "itemId": "call_r15",
        "startedAtMs": 1794784093104_u64, "reason": null, "grantRoot": null,
    })
}

fn started_patch() -> Value {
    json!({
        "type": "fileChange", "id": "call_r15", "status": "inProgress",
        "changes": [
            { "path": "/work-dir/ws/new3.txt", "kind": { "type": "add" }, "diff": "hello from patch\n" },
            { "path": "/work-dir/ws/old.txt", "kind": { "type": "update", "move_path": null }, "diff": "@@\n-a\n+b\n" },
        ],
    })
}

fn with_patch() -> Scene {
    let mut scene = Scene::new();
    scene.items.started(&started_patch());
    scene
}

#[tokio::test]
async fn a_patch_is_asked_with_its_summary_from_the_item_that_began() {
    for (choice, word) in [
        (AskChoice::Allow(GrantScope::Once), "accept"),
        // It would hold for other files.
        (AskChoice::Allow(GrantScope::Session), "accept"),
        (AskChoice::Deny(DenyReason::Person), "decline"),
        (AskChoice::Deny(DenyReason::Timeout), "cancel"),
    ] {
        let (answer, asked) = with_patch().answers(PATCH, &patch(), [choice]).await;
        assert_eq!((answer.reply, answer.kept_grant), (decided(word), None));
        assert_eq!(asked[0].title, TextKey::CodexAskFiles.into());
        let summary = "1 add, 1 update: /work-dir/ws/new3.txt, /work-dir/ws/old.txt\n+2 -1 (";
        assert!(asked[0].detail.starts_with(summary), "{}", asked[0].detail);
        assert!(!asked[0].detail.contains("hello"), "no content");
        assert_eq!((asked[0].cwd.as_deref(), &asked[0].reason), (Some("/work-dir/session"), &None));
    }
}

#[tokio::test]
async fn write_access_to_a_folder_is_shown() {
    let mut params = patch();
    (params["grantRoot"], params["reason"]) = (json!("/work-dir\n"), json!("I need more room."));
    let (answer, asked) = with_patch().answers(PATCH, &params, allow(GrantScope::Once)).await;
    assert_eq!(answer.reply, decided("accept"));
    assert_eq!(asked[0].title, TextKey::CodexAskFilesRoot.into());
    assert!(asked[0].detail.ends_with("\ngrantRoot: \"/work-dir\\n\""), "{}", asked[0].detail);
    assert_eq!(asked[0].reason.as_deref(), Some("I need more room."));
}

#[tokio::test]
async fn a_patch_that_nobody_knows_is_declined_visibly() {
    let mut ended = with_patch();
    ended.items.completed(&started_patch());
    let mut emptied = with_patch();
    emptied.items.patch_updated(&json!({ "itemId": "call_r15", "changes": [] }));
    let mut flooded = with_patch();
    for number in 0..40 {
        let mut item = started_patch();
        item["id"] = json!(format!("call_{number}"));
        flooded.items.started(&item);
    }
    let mut huge = Scene::new();
    let mut item = started_patch();
    item["changes"][0]["path"] = json!("x".repeat(100_000));
    huge.items.started(&item);
    for scene in [Scene::new(), ended, emptied, flooded, huge] {
        let (answer, asked) = scene.answers(PATCH, &patch(), []).await;
        assert_eq!((answer.reply, asked), (decided("decline"), vec![]));
        assert!(shown(&answer.remarks).contains("did not say for what"));
    }
}

#[tokio::test]
async fn a_patch_that_changed_is_asked_as_it_is_now() {
    let mut scene = with_patch();
    let change = json!({ "path": "/etc/passwd", "kind": { "type": "delete" }, "diff": "" });
    scene.items.patch_updated(&json!({ "threadId": THREAD, "itemId": "call_r15", "changes": [change] }));
    let (_, asked) = scene.answers(PATCH, &patch(), allow(GrantScope::Once)).await;
    assert!(asked[0].detail.starts_with("1 delete: /etc/passwd\n"), "{}", asked[0].detail);
}

fn permissions() -> Value {
    json!({
        "threadId": THREAD, "turnId": "t", "itemId": "call_r9", "environmentId": "local", "startedAtMs": 1,
        "cwd": "/work-dir/ws", "reason": "I must install a package.",
        "permissions": {
            "network": { "enabled": true },
            "fileSystem": { "read": null, "write": ["/opt"],
                "entries": [{ "path": { "type": "path", "path": "/opt" }, "access": "write" }] },
        },
    })
}

fn nothing_granted() -> Result<Value, RpcFault> {
    Ok(json!({ "permissions": {}, "scope": "turn" }))
}

#[tokio::test]
async fn more_permissions_are_declined_visibly_without_asking() {
    let (answer, asked) = Scene::new().answers(PERMISSIONS, &permissions(), []).await;
    assert_eq!((answer.reply, asked), (nothing_granted(), vec![]));
    assert!(shown(&answer.remarks).contains("more permissions than its sandbox has"));
}

#[tokio::test]
async fn more_permissions_are_asked_for_where_the_setting_says_so() {
    let scene = Scene::asking_for_permissions();
    for scope in [GrantScope::Once, GrantScope::Always] {
        let (answer, asked) = scene.answers(PERMISSIONS, &permissions(), allow(scope)).await;
        let granted = json!({ "permissions": permissions()["permissions"], "scope": "turn" });
        assert_eq!(answer, ApprovalAnswer::new(granted), "never for longer than the turn");
        let [ask] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(ask.title, TextKey::CodexAskPermissions.into());
        assert!(
            ask.detail.contains("\"write\": [\n      \"/opt\"") && ask.detail.contains("\"enabled\": true")
        );
        assert_eq!(ask.reason.as_deref(), Some("I must install a package."));
    }
    for (reason, halts) in
        [(DenyReason::Person, false), (DenyReason::Timeout, true), (DenyReason::Gone, false)]
    {
        let (answer, _) = scene.answers(PERMISSIONS, &permissions(), deny(reason)).await;
        assert_eq!((answer.reply, answer.halts), (nothing_granted(), halts));
    }
}

#[tokio::test]
async fn only_permissions_that_are_known_are_granted() {
    let scene = Scene::asking_for_permissions();
    let mut params = permissions();
    params["permissions"] = json!({ "network": null, "root": { "enabled": true } });
    let (answer, asked) = scene.answers(PERMISSIONS, &params, []).await;
    assert_eq!((answer.reply, asked), (nothing_granted(), vec![]));
    assert!(!answer.remarks.is_empty());
    params["permissions"] = json!({ "network": { "enabled": true }, "root": { "enabled": true } });
    let (answer, asked) = scene.answers(PERMISSIONS, &params, allow(GrantScope::Once)).await;
    let granted = json!({ "permissions": { "network": { "enabled": true } }, "scope": "turn" });
    assert_eq!(answer.reply, Ok(granted));
    assert!(!asked[0].detail.contains("root"));
}

fn tool_approval() -> Value {
    json!({
        "threadId": THREAD, "turnId": "01a1e179-e122-7073-9555-bca4cea13bfe", "serverName": "el", "mode": "form",
        "_meta": {
            "codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"], "tool_name": "echo",
            "tool_description": "echo", "tool_params": { "text": "hey", "again": 1 },
            "tool_params_display": [{ "name": "text", "value": "hey", "display_name": "text" }],
        },
        "message": "Allow the el MCP server to run tool \"echo\"?",
        "requestedSchema": { "type": "object", "properties": {} },
    })
}

fn elicited(action: &str, content: Value) -> Result<Value, RpcFault> {
    Ok(json!({ "action": action, "content": content, "_meta": null }))
}

#[tokio::test]
async fn a_tool_of_a_server_is_asked_with_its_arguments() {
    for (choice, action, content, halts) in [
        (AskChoice::Allow(GrantScope::Once), "accept", json!({}), false),
        (AskChoice::Allow(GrantScope::Session), "accept", json!({}), false),
        (AskChoice::Deny(DenyReason::Person), "decline", Value::Null, false),
        (AskChoice::Deny(DenyReason::Gone), "decline", Value::Null, false),
        (AskChoice::Deny(DenyReason::Stopped), "cancel", Value::Null, false),
        (AskChoice::Deny(DenyReason::Timeout), "cancel", Value::Null, true),
    ] {
        let (answer, asked) = Scene::new().answers(ELICITATION, &tool_approval(), [choice]).await;
        assert_eq!((answer.reply, answer.halts), (elicited(action, content), halts));
        let [ask] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(ask.title.to_string(), "use the tool `echo` of the MCP server `el`");
        assert_eq!(ask.detail, "MCP \"el\" \"echo\"\n{\n  \"again\": 1,\n  \"text\": \"hey\"\n}");
        assert!(ask.form.is_approval());
    }
}

#[tokio::test]
async fn a_tool_whose_arguments_are_not_told_is_allowed_once_only() {
    for arguments in [None, Some(Value::Null)] {
        let mut params = tool_approval();
        let meta = params["_meta"].as_object_mut().unwrap();
        meta.remove("tool_params");
        meta.extend(arguments.map(|arguments| ("tool_params".to_owned(), arguments)));
        for (choice, action, content) in [("once", "accept", json!({})), ("deny", "decline", Value::Null)] {
            let choice = AskChoice::Option(choice.to_owned());
            let (answer, asked) = Scene::new().answers(ELICITATION, &params, [choice]).await;
            assert_eq!(answer.reply, elicited(action, content));
            assert!(asked[0].form.is_once_only());
        }
    }
}

#[tokio::test]
async fn an_older_codex_names_the_tool_in_its_message() {
    let mut params = tool_approval();
    params["_meta"].as_object_mut().unwrap().remove("tool_name");
    let (_, asked) = Scene::new().answers(ELICITATION, &params, allow(GrantScope::Once)).await;
    let detail = "MCP \"el\" \"Allow the el MCP server to run tool \\\"echo\\\"?\"\n{\n";
    assert!(asked[0].detail.starts_with(detail), "{}", asked[0].detail);
}

#[tokio::test]
async fn only_tools_of_our_own_server_are_accepted_by_themselves() {
    let policy = ApprovalPolicy { own_server: Some("talaria".to_owned()), ..ApprovalPolicy::default() };
    let scene = Scene { policy, ..Scene::new() };
    let mut params = tool_approval();
    params["serverName"] = json!("talaria");
    let (answer, asked) = scene.answers(ELICITATION, &params, []).await;
    assert_eq!((answer.reply, asked), (elicited("accept", json!({})), vec![]));

    // A server of another name, another kind of approval, and the user's own entry of this name are asked.
    for name in ["Talaria", "talaria ", "el", ""] {
        let mut params = tool_approval();
        params["serverName"] = json!(name);
        let (answer, asked) = scene.answers(ELICITATION, &params, deny(DenyReason::Person)).await;
        assert_eq!((answer.reply, asked.len()), (elicited("decline", Value::Null), 1), "{name}");
    }
    let mut other = params.clone();
    other["_meta"]["codex_approval_kind"] = json!("mcp_server_install");
    let (_, asked) = scene.answers(ELICITATION, &other, deny(DenyReason::Person)).await;
    assert_eq!(asked.len(), 1);
    let (_, asked) = Scene::new().answers(ELICITATION, &params, deny(DenyReason::Person)).await;
    assert_eq!(asked.len(), 1, "our block did not write the entry");
    // A question of our own server is no approval.
    let mut form = question();
    form["serverName"] = json!("talaria");
    let (_, asked) = scene.answers(ELICITATION, &form, deny(DenyReason::Person)).await;
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_server_cannot_pass_its_form_or_its_web_page_for_an_approval() {
    let policy = ApprovalPolicy { own_server: Some("el".to_owned()), ..ApprovalPolicy::default() };
    let scene = Scene { policy, ..Scene::new() };
    let mut form = question();
    form["_meta"] = tool_approval()["_meta"].clone();
    let (answer, asked) = scene.answers(ELICITATION, &form, [AskChoice::Text("blue".to_owned())]).await;
    assert_eq!(asked[0].detail, "Which colour?\n\nColour");
    assert_eq!(answer.reply, elicited("accept", json!({ "colour": "blue" })));
    let mut page = tool_approval();
    page["mode"] = json!("url");
    let (answer, asked) = scene.answers(ELICITATION, &page, []).await;
    assert_eq!((answer.reply, asked), (elicited("decline", Value::Null), vec![]));
    assert!(shown(&answer.remarks).contains("wanted to have a web page opened"));
}

fn question() -> Value {
    json!({
        "threadId": THREAD, "turnId": null, "serverName": "el", "mode": "form", "_meta": null,
        "message": "Which colour?",
        "requestedSchema": {
            "type": "object", "properties": { "colour": { "type": "string", "title": "Colour" } },
            "required": ["colour"],
        },
    })
}

#[tokio::test]
async fn a_form_with_one_field_is_asked() {
    let blue = AskChoice::Text("blue".to_owned());
    let (answer, asked) = Scene::new().answers(ELICITATION, &question(), [blue]).await;
    assert_eq!(answer, ApprovalAnswer::new(elicited("accept", json!({ "colour": "blue" })).unwrap()));
    assert_eq!(asked[0].title.to_string(), "a question about the MCP server `el`");
    assert_eq!(asked[0].detail, "Which colour?\n\nColour");
    assert!(asked[0].form.takes_text && asked[0].form.options.is_empty());

    let mut choice = question();
    choice["requestedSchema"]["properties"]["colour"]["enum"] = json!(["red", "blue"]);
    let (answer, asked) =
        Scene::new().answers(ELICITATION, &choice, [AskChoice::Option("1".to_owned())]).await;
    assert_eq!(answer.reply, elicited("accept", json!({ "colour": "blue" })));
    assert_eq!(asked[0].form.options.len(), 2);
    assert!(asked[0].form.is_valid() && !asked[0].form.takes_text);

    for (reason, action, halts) in
        [(DenyReason::Person, "decline", false), (DenyReason::Timeout, "cancel", true)]
    {
        let (answer, _) = Scene::new().answers(ELICITATION, &question(), deny(reason)).await;
        assert_eq!((answer.reply, answer.halts), (elicited(action, Value::Null), halts));
    }
}

#[tokio::test]
async fn other_elicitations_are_declined_visibly() {
    let with = |name: &str, value: Value| {
        let mut params = question();
        params[name] = value;
        params
    };
    let two =
        json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } } });
    let secret = json!({ "type": "object", "properties": { "password": { "type": "string" } } });
    for (params, remark) in [
        (with("requestedSchema", two), "asked for a form that cannot be filled in here"),
        (with("requestedSchema", Value::Null), "asked for a form that cannot be filled in here"),
        (with("requestedSchema", secret), "asked for a secret"),
        (with("message", json!("Please type your PASSWORD.")), "asked for a secret"),
        (with("mode", json!("url")), "wanted to have a web page opened"),
        (with("mode", json!("openai/form")), "asked for a form that cannot be filled in here"),
        (with("mode", json!("openai/userVerification")), "asked for a form that cannot be filled in here"),
        (with("mode", Value::Null), "asked for a form that cannot be filled in here"),
    ] {
        let (answer, asked) = Scene::new().answers(ELICITATION, &params, []).await;
        assert_eq!((answer.reply, asked, answer.halts), (elicited("decline", Value::Null), vec![], false));
        let said = shown(&answer.remarks);
        assert!(said.contains(remark) && said.contains("`el`"), "{said}");
    }
}

fn user_input(questions: Value) -> Value {
    json!({
        "threadId": THREAD, "turnId": "01a1e179-e2fe-7b51-886f-ba3ffbd04139", "itemId": "call_r6",
        "questions": questions, "isBlocking": false, "autoResolutionMs": null,
    })
}

fn which() -> Value {
    json!({
        "id": "q1", "header": "Pick", "question": "Which?", "isOther": true, "isSecret": false,
        "options": [{ "label": "A (Recommended)", "description": "a" }, { "label": "B", "description": "" }],
    })
}

#[tokio::test]
async fn a_question_with_options_takes_an_option_or_own_words() {
    for (choice, answers) in [
        (AskChoice::Option("0".to_owned()), json!({ "q1": { "answers": ["A (Recommended)"] } })),
        (AskChoice::Text("neither".to_owned()), json!({ "q1": { "answers": ["neither"] } })),
        (AskChoice::Deny(DenyReason::Person), json!({})),
        (AskChoice::Option("7".to_owned()), json!({})),
    ] {
        let (answer, asked) = Scene::new().answers(INPUT, &user_input(json!([which()])), [choice]).await;
        assert_eq!(answer, ApprovalAnswer::new(json!({ "answers": answers })));
        let [ask] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(
            (ask.title.to_string().as_str(), ask.detail.as_str()),
            ("Pick", "Which?\n- A (Recommended): a")
        );
        let labels: Vec<_> = ask.form.options.iter().map(|option| option.label.as_str()).collect();
        assert!(labels == ["A (Recommended)", "B"] && ask.form.takes_text && ask.form.is_valid());
    }
}

#[tokio::test]
async fn several_questions_are_several_asks() {
    let mut text = which();
    (text["id"], text["header"], text["options"], text["isOther"]) =
        (json!("q2"), json!(" "), Value::Null, json!(false));
    let choices = [AskChoice::Option("1".to_owned()), AskChoice::Text("because".to_owned())];
    let (answer, asked) = Scene::new().answers(INPUT, &user_input(json!([which(), text])), choices).await;
    let answers = json!({ "q1": { "answers": ["B"] }, "q2": { "answers": ["because"] } });
    assert_eq!(answer.reply, Ok(json!({ "answers": answers })));
    assert_eq!(asked[1].title, TextKey::CodexAskQuestion.into());
    assert!(asked[1].form.takes_text && asked[1].form.options.is_empty());

    // One that is refused does not take the others with it; one that nobody answers does.
    let choices = [AskChoice::Deny(DenyReason::Person), AskChoice::Option("0".to_owned())];
    let two = user_input(json!([which(), which()]));
    let (answer, _) = Scene::new().answers(INPUT, &two, choices).await;
    assert_eq!(answer.reply, Ok(json!({ "answers": { "q1": { "answers": ["A (Recommended)"] } } })));
    let (answer, asked) = Scene::new().answers(INPUT, &two, deny(DenyReason::Timeout)).await;
    assert_eq!((answer.reply, answer.halts, asked.len()), (Ok(json!({ "answers": {} })), true, 1));
    let (answer, _) = Scene::new().answers(INPUT, &two, deny(DenyReason::Stopped)).await;
    assert_eq!((answer.reply, answer.halts), (Ok(json!({ "answers": {} })), false));
}

#[tokio::test]
async fn a_secret_is_never_asked_for() {
    for secret in [json!(true), json!("yes")] {
        let mut question = which();
        (question["isSecret"], question["header"]) = (secret, json!("Password"));
        let (answer, asked) = Scene::new().answers(INPUT, &user_input(json!([question])), []).await;
        assert_eq!((answer.reply, asked), (Ok(json!({ "answers": {} })), vec![]));
        assert!(shown(&answer.remarks).contains("would not stay secret here: `Password`"));
    }
}

#[tokio::test]
async fn every_question_that_is_not_asked_has_its_line() {
    let secret = |header: &str| {
        let mut question = which();
        (question["isSecret"], question["header"]) = (json!(true), json!(header));
        question
    };
    let questions = user_input(json!([secret("Password"), secret("Pin"), secret("Pin")]));
    let (answer, _) = Scene::new().answers(INPUT, &questions, []).await;
    let said: Vec<_> = answer.remarks.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].ends_with("`Password`") && said[1].ends_with("`Pin`"), "{said:?}");
}

#[tokio::test]
async fn more_questions_than_anybody_answers_are_cut_visibly() {
    let many = json!(vec![which(); 20]);
    let choices = vec![AskChoice::Option("0".to_owned()); 8];
    let (answer, asked) = Scene::new().answers(INPUT, &user_input(many), choices).await;
    assert!(asked.len() == 8 && shown(&answer.remarks).contains("more questions at once"));
    let (answer, _) = Scene::new().answers(INPUT, &json!({ "threadId": THREAD }), []).await;
    assert_eq!(answer, ApprovalAnswer::new(json!({ "answers": {} })));
}

#[tokio::test]
async fn old_names_are_denied_in_their_own_words() {
    let old = json!({
        "conversationId": THREAD, "callId": "call_1", "command": ["rm", "-r", "/"], "cwd": "/", "reason": null,
        "parsedCmd": [],
    });
    for method in ["execCommandApproval", "applyPatchApproval"] {
        let (answer, asked) = Scene::new().answers(method, &old, []).await;
        let denied = json!({ "decision": { "denied": { "rejection": "not supported" } } });
        assert_eq!((answer.reply, asked), (Ok(denied), vec![]));
        assert!(shown(&answer.remarks).contains(method));
    }
}

#[tokio::test]
async fn an_unknown_request_is_an_error_and_never_waits() {
    let params = json!({ "threadId": THREAD });
    for (method, is_told) in [
        ("item/newThing/requestApproval", true),
        ("", true),
        ("currentTime/read", false),
        ("attestation/generate", false),
        ("account/chatgptAuthTokens/refresh", false),
        ("item/tool/call", false),
    ] {
        let (answer, asked) = Scene::new().answers(method, &params, []).await;
        assert_eq!(answer.reply.as_ref().unwrap_err().code, -32_601);
        assert_eq!((!answer.remarks.is_empty(), asked.len(), answer.halts), (is_told, 0, false), "{method}");
    }
}

#[tokio::test]
async fn a_request_of_another_thread_is_not_answered_here() {
    for method in [COMMAND, PATCH, PERMISSIONS, ELICITATION, INPUT] {
        let mut params = command();
        params["threadId"] = json!("01a1e179-df5e-7110-8355-3addaf3a1d98");
        let (answer, asked) = with_patch().answers(method, &params, []).await;
        assert_eq!((answer.reply.unwrap_err().code, asked.len()), (-32_602, 0), "{method}");
    }
}
