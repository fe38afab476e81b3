//! Turns by codex: text, steps, approvals, pictures, and everything that goes wrong at codex or at its provider.

use serde_json::{Value, json};
use talaria::config::Secret;
use talaria_platform::MediaKind;

use super::scene::CodexScene;
use super::scripted_peer::{Act, CommandAct, Scenario, ScriptedAnswer};
use crate::support::room::file;
use crate::support::served::json as body;

#[tokio::test]
async fn text_between_commands_is_one_answer_and_the_command_is_a_step() {
    let scenario = Scenario::default().turn(
        "files",
        [
            Act::Thinks("**Looking**".to_owned()),
            Act::says(&["Let me ", "look."]),
            Act::Runs(CommandAct {
                command: "ls".into(),
                output: "notes.txt\n".into(),
                exit: 0,
                asks: false,
                waits: Some("listed".into()),
            }),
            Act::says(&["There are ", "notes."]),
        ],
    );
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "which files are there?").await;
    scene.room().shows("⚙️ exec_command: `ls`").await;
    scene.codex.opens("listed");
    scene.shows("There are notes.").await;
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  which files are there?
    bot   Let me look.
          There are notes.
    ");
    scene.ends().await;
}

#[tokio::test]
async fn a_command_runs_only_after_a_person_has_seen_and_allowed_it() {
    let scenario = Scenario::default()
        .turn("remove", [Act::runs_if_allowed("rm notes.txt", ""), Act::says(&["It is gone."])])
        .turn("burn", [Act::runs_if_allowed("rm -rf /", ""), Act::says(&["I leave it."])]);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "remove my notes").await;
    let asked = scene.room().is_asked("rm notes.txt").await;
    let folder = scene.session_folder().display().to_string();
    assert!(asked.text.contains(&folder), "{}", asked.text);
    assert_eq!(scene.codex.ran(), Vec::<String>::new());
    scene.asks(&format!("/approve {}", asked.code), "It is gone.").await;
    assert_eq!(scene.codex.ran(), ["rm notes.txt"]);

    scene.room().says("@ann", "burn everything").await;
    let asked = scene.room().is_asked("rm -rf /").await;
    scene.asks(&format!("/deny {}", asked.code), "I leave it.").await;
    assert_eq!(scene.codex.ran(), ["rm notes.txt"]);
    assert_eq!(scene.codex.answers()[1]["result"]["decision"], "decline");
    scene.ends().await;
}

#[tokio::test]
async fn codex_goes_on_while_a_person_thinks() {
    let half = |gate: &str| [Act::says(&["Meanwhile."]), Act::waits(gate)];
    let ask = json!({ "id": 90, "method": "item/commandExecution/requestApproval", "params": {
        "threadId": "$thread", "turnId": "$turn", "itemId": "x", "kind": "command", "command": "ls", "cwd": "/w" } });
    let scenario = Scenario::default()
        .turn("two things", [vec![Act::writes(format!("{ask}\n"))], half("gate").to_vec()].concat());
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "do two things").await;
    let asked = scene.room().is_asked("ls").await;
    scene.room().shows("Meanwhile.").await;
    scene.room().says("@ann", &format!("/approve {}", asked.code)).await;
    scene.comes_to("an answer", || scene.codex.answers().iter().any(|answer| answer["id"] == 90)).await;
    scene.codex.opens("gate");
    scene.ends().await;
}

#[tokio::test]
async fn a_stream_that_broke_is_not_shown_twice() {
    let scenario = Scenario::default().turn(
        "hello",
        [
            Act::says_half(&["Hello, I am "]),
            Act::Retries("Reconnecting... 1/1".to_owned()),
            Act::waits("gate"),
            Act::says(&["Hello, I am ", "codex."]),
        ],
    );
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "hello").await;
    scene.room().shows("it tries again").await;
    scene.codex.opens("gate");
    scene.shows("codex.").await;
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  hello
    bot   Hello, I am codex.
    ");
    scene.ends().await;
}

#[tokio::test]
async fn failures_at_the_provider_are_told_in_our_own_words() {
    let http = |status: u16| json!({ "httpConnectionFailed": { "httpStatusCode": status } });
    let fails = |message: &str, info: Value| [Act::Fails { message: message.to_owned(), info }];
    let scenario = Scenario::default()
        .turn("login", fails("unexpected status 401 Unauthorized: SECRET, url: http://x", http(401)))
        .turn("limit", fails("SECRET", json!("usageLimitExceeded")))
        .turn("busy", fails("SECRET", json!({ "responseTooManyFailedAttempts": { "httpStatusCode": 429 } })))
        .turn("key", fails("Missing environment variable: `SECRET`.", json!("other")))
        .turn("body", fails("{\"error\": \"SECRET\"}", json!("other")))
        .turn(
            "cut",
            [&[Act::says_half(&["Half an "])][..], &fails("stream disconnected", json!("other"))].concat(),
        );
    let scene = CodexScene::with(scenario).await;
    scene.asks("login", "codex is not logged in").await;
    scene.asks("limit", "the model's account is used up").await;
    scene.asks("busy", "the model is busy").await;
    scene.asks("key", "codex lacks a variable").await;
    scene.asks("body", "the agent reported an error").await;
    scene.asks("cut", "the connection of codex to its model broke").await;
    let room = scene.room().now();
    assert!(room.contains("Half an"), "{room}");
    assert!(!room.contains("SECRET") && !room.contains("http"), "{room}");
    // The thread is still the same one.
    assert_eq!(scene.codex.received("thread/start").len(), 1);
    assert_eq!(scene.codex.received("turn/start").len(), 6);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_with_too_much_to_do_is_asked_again() {
    let busy = ScriptedAnswer::error(-32_001, "Server overloaded; retry later.");
    let scene = CodexScene::with(Scenario::default().once("turn/start", busy)).await;
    scene.asks("hello there", "bot   hello there").await;
    assert_eq!(scene.codex.received("turn/start").len(), 2);
    scene.ends().await;
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_in_words() {
    let data =
        json!({ "input_error_code": "input_too_large", "max_chars": 1_048_576, "actual_chars": 1_048_577 });
    let message = "Input exceeds the maximum length".to_owned();
    let large = ScriptedAnswer::Error { code: -32_602, message, data: Some(data) };
    let scene = CodexScene::with(Scenario::default().once("turn/start", large)).await;
    scene.asks("a very long text", "that is more than codex takes at once").await;
    scene.asks("short", "bot   short").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_prompt_that_is_larger_than_a_line_is_refused_in_words_and_other_turns_go_on() {
    let scenario = Scenario::default()
        .turn("wait", [Act::waits("gate"), Act::says(&["Here I am."])])
        .always("turn/interrupt", ScriptedAnswer::Silence);
    let scene = CodexScene::with(scenario).await;
    let other = scene.gateway.direct_room("!other");
    other.says("@ann", "wait").await;
    scene.codex.reached("gate").await;
    // Each of these characters takes six bytes in a line.
    scene.asks(&"\u{1}".repeat(1_500_000), "that is more than codex takes at once").await;
    // Without a turn there is nothing to wait for.
    scene.room().says("@ann", "short").await;
    scene.receives("turn/start", 2).await;
    assert_eq!(scene.codex.received("turn/interrupt").len(), 0);
    scene.codex.opens("gate");
    other.shows("Here I am.").await;
    assert_eq!(scene.codex.processes().len(), 1);
    scene.ends().await;
}

#[tokio::test]
async fn a_full_context_is_summarised_and_the_room_is_told() {
    let full = Act::fails("Codex ran out of room", "contextWindowExceeded");
    let scene = CodexScene::with(Scenario::default().turn("go on", [full])).await;
    scene.asks("go on", "codex has summarised it now").await;
    assert_eq!(scene.codex.received("thread/compact/start").len(), 1);
    // Nothing was repeated by itself.
    assert_eq!(scene.codex.received("turn/start").len(), 1);
    scene.asks("and now?", "bot   and now?").await;
    scene.ends().await;
}

#[tokio::test]
async fn the_late_end_of_an_earlier_turn_does_not_end_a_summary() {
    let line = |method: &str, params: Value| {
        Act::writes(format!("{}\n", json!({ "method": method, "params": params })))
    };
    let turn = |method: &str, id: &str| {
        line(
            method,
            json!({ "threadId": "thread-1", "turn": { "id": id, "items": [], "status": "completed" } }),
        )
    };
    let item = json!({ "type": "contextCompaction", "id": "c" });
    let summary = [
        turn("turn/started", "summary"),
        turn("turn/completed", "an-earlier-one"),
        Act::waits("gate"),
        line("item/completed", json!({ "threadId": "thread-1", "turnId": "summary", "item": item })),
        turn("turn/completed", "summary"),
    ];
    let full = Act::fails("Codex ran out of room", "contextWindowExceeded");
    let scenario = Scenario::default()
        .once("thread/compact/start", ScriptedAnswer::Result(json!({})))
        .turn("go on", [full])
        .turn("summarise", summary);
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "go on").await;
    scene.receives("thread/compact/start", 1).await;
    // Another turn of the process writes what codex would.
    let other = scene.gateway.direct_room("!other");
    other.says("@ann", "summarise").await;
    scene.codex.reached("gate").await;
    scene.codex.opens("gate");
    scene.shows("codex has summarised it now").await;
    scene.asks("and now?", "bot   and now?").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_that_dies_leaves_what_it_said_and_the_next_turn_resumes_the_thread() {
    let scenario = Scenario::default().turn(
        "crash",
        [Act::says(&["First."]), Act::says_half(&["Then I wi"]), Act::waits("gate"), Act::Dies],
    );
    let scene = CodexScene::with(scenario).await;
    scene.room().says("@ann", "crash please").await;
    scene.room().shows("Then I wi").await;
    scene.codex.opens("gate");
    scene.shows("(cut short: codex ended unexpectedly").await;
    insta::assert_snapshot!(scene.room().now(), @"
    @ann  crash please
    bot   First.
          Then I wi
          (cut short: codex ended unexpectedly; the log where the agent runs says more)
    ");
    scene.asks("are you there?", "bot   are you there?").await;
    assert_eq!(scene.codex.processes().len(), 2);
    assert_eq!(scene.codex.received("thread/resume")[0]["threadId"], "thread-1");
    scene.ends().await;
}

#[tokio::test]
async fn a_run_for_a_program_works_in_the_folder_of_its_session() {
    let scenario = Scenario::default().turn("hello", [Act::says(&["Hi."])]);
    let (served, codex, workspace) = CodexScene::with(scenario).await.served().await;
    let answer = body(served.post("/run", &json!({ "agent": "proxy", "prompt": "hello" })).await).await;
    assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &json!("Hi.")), "{answer}");
    let folder = codex.received("thread/start")[0]["cwd"].as_str().unwrap().to_owned();
    assert!(folder.contains("forge/sessions/"), "{folder}");
    assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0, "nothing is made beside it");
}

#[tokio::test]
async fn a_program_gets_ids_and_the_state_of_a_run() {
    let scenario = Scenario::default()
        .turn("hello", [Act::says(&["Hi."])])
        .turn("crash", [Act::says(&["One moment."]), Act::Dies]);
    let (mut served, codex, _workspace) = CodexScene::with(scenario).await.served().await;
    let asked = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    let answer = body(served.post("/v1/chat/completions", &asked).await).await;
    let hermes = &answer["hermes"];
    assert_eq!((&hermes["completed"], &hermes["partial"]), (&json!(true), &json!(false)));
    assert_eq!(hermes["codex_thread_id"], "thread-1");
    assert!(hermes["codex_turn_id"].as_str().unwrap().starts_with("turn-"), "{answer}");
    let run = hermes["run_id"].as_str().unwrap();
    let run = body(served.get(&format!("/v1/runs/{run}")).await).await;
    assert_eq!(
        (&run["completed"], &run["partial"], &run["error"]),
        (&json!(true), &json!(false), &Value::Null)
    );
    assert_eq!(run["codex_thread_id"], "thread-1");
    assert_eq!(run["usage"]["total_tokens"], 120);

    let begun = body(served.post("/v1/runs", &json!({ "input": "crash" })).await).await;
    let path = format!("/v1/runs/{}", begun["run_id"].as_str().unwrap());
    served.gateway.idle().await;
    let run = body(served.get(&path).await).await;
    assert_eq!((&run["completed"], &run["partial"]), (&json!(false), &json!(true)));
    assert_eq!(run["output"], "One moment.");
    assert!(run["error"].as_str().unwrap().contains("codex ended unexpectedly"), "{run}");
    assert_eq!(run["codex_thread_id"], "thread-2");
    served.gateway.drain().await;
    drop(codex);
}

#[tokio::test]
async fn the_processes_of_codex_are_counted_with_their_memory() {
    let (mut served, _codex, _workspace) = CodexScene::with(Scenario::default()).await.served().await;
    let value = async |name: &str| {
        let metrics = served.get("/metrics").await.text().await.unwrap();
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{metrics}"));
        line.trim().parse::<i64>().unwrap()
    };
    assert_eq!(value("talaria_agent_processes ").await, 0);
    let asked = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    assert_eq!(served.post("/v1/chat/completions", &asked).await.status(), 200);
    assert_eq!(value("talaria_agent_processes ").await, 1);
    assert!(value("talaria_agent_process_memory_bytes ").await > 1024 * 1024);
    served.gateway.drain().await;
}

#[tokio::test]
async fn the_row_of_a_turn_counts_one_call() {
    let scenario = Scenario::default().turn(
        "work",
        [Act::says(&["One."]), Act::runs("ls", "x"), Act::runs("pwd", "y"), Act::says(&["Two."])],
    );
    let (mut served, _codex, _workspace) = CodexScene::with(scenario).await.served().await;
    let begun = body(served.post("/v1/runs", &json!({ "input": "work" })).await).await;
    served.gateway.idle().await;
    let id = talaria::ids::TurnId(begun["run_id"].as_str().unwrap().to_owned());
    let (_, end) = served.gateway.store().read(move |tx| tx.finished(&id)).await.unwrap().unwrap();
    assert_eq!((end.api_calls, end.text.as_str()), (1, "One.\n\nTwo."));
    assert_eq!(end.tools, ["exec_command"]);
    served.gateway.drain().await;
}

#[tokio::test]
async fn a_picture_is_a_file_for_codex_and_gone_afterwards() {
    let scenario = Scenario::default().turn("what", [Act::waits("seen"), Act::says(&["A dot."])]);
    let scene = CodexScene::with(scenario).await;
    let png = b"\x89PNG\r\n\x1a\n0000".to_vec();
    scene.gateway.chat().keeps("mxc://dot", &png);
    scene.room().brings("@ann", "what is this?", vec![file("mxc://dot", MediaKind::Image, "dot.png")]).await;
    scene.codex.reached("seen").await;
    let started = scene.codex.received("turn/start").remove(0);
    let path = started["input"][1]["path"].as_str().unwrap().to_owned();
    assert_eq!(started["input"][1]["type"], "localImage");
    assert_eq!(std::fs::read(&path).unwrap(), png);
    scene.codex.opens("seen");
    scene.room().shows("A dot.").await;
    scene.ends().await;
    assert!(!std::path::Path::new(&path).exists());
}

#[tokio::test]
async fn codex_gets_a_short_environment_and_the_folder_of_its_entry() {
    let scene = CodexScene::as_set(Scenario::default(), |config| {
        config.codex_home = Some("/srv/codex-home".into());
        config.env.insert("EDITOR".to_owned(), Secret::from("true".to_owned()));
    })
    .await;
    scene.asks("hello", "bot   hello").await;
    let environment = scene.codex.environment();
    assert_eq!(environment["CODEX_HOME"], "/srv/codex-home");
    assert_eq!(environment["EDITOR"], "true");
    assert_eq!(environment.get("HOME"), std::env::var("HOME").ok().as_ref());
    assert!(!environment.keys().any(|name| name.starts_with("CARGO")), "{environment:?}");
    let folder = scene.session_folder().display().to_string();
    assert_eq!(scene.codex.received("thread/start")[0]["cwd"], folder);
    scene.ends().await;
}

#[tokio::test]
async fn a_codex_without_a_sandbox_that_asks_nobody_serves_nobody_unless_the_operator_means_it() {
    let open = |approval: Value| {
        Scenario::default()
            .with_thread("approvalPolicy", approval)
            .with_thread("sandbox", json!({ "type": "dangerFullAccess" }))
    };
    // Without a sandbox nothing has to be allowed to leave it.
    let parts = json!({ "granular": { "sandbox_approval": true, "rules": true } });
    for approval in [json!("never"), json!("on-request"), parts, Value::Null] {
        let scene = CodexScene::with(open(approval)).await;
        scene.asks("hello", "without a sandbox and without asking").await;
        scene.room().says("@ann", "again").await;
        let refused = || scene.room().now().matches("without a sandbox").count() == 2;
        scene.comes_to("both are refused", refused).await;
        assert_eq!(scene.codex.received("turn/start").len(), 0);
        scene.ends().await;
    }
    let scene = CodexScene::as_set(open(json!("never")), |config| config.unrestricted = true).await;
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
    let scene = CodexScene::with(open(json!("untrusted"))).await;
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_sandbox_that_is_not_known_here_counts_as_none() {
    let sandboxes = [
        json!({ "type": "externalSandbox", "networkAccess": "restricted" }),
        json!({ "type": "" }),
        json!({ "type": "nextYears" }),
        Value::Null,
    ];
    for sandbox in sandboxes {
        let scene = CodexScene::with(Scenario::default().with_thread("sandbox", sandbox)).await;
        scene.asks("hello", "without a sandbox and without asking").await;
        assert_eq!(scene.codex.received("turn/start").len(), 0);
        scene.ends().await;
    }
}

#[tokio::test]
async fn a_codex_whose_model_would_approve_instead_of_people_serves_nobody() {
    let scenario = Scenario::default().with_thread("approvalsReviewer", json!("auto_review"));
    let scene = CodexScene::with(scenario).await;
    scene.asks("hello", "a model of its own that approves instead of you").await;
    assert_eq!(scene.codex.received("thread/start")[0]["approvalsReviewer"], "user");
    assert_eq!(scene.codex.received("turn/start").len(), 0);
    scene.ends().await;
    // An old codex does not tell it.
    let scene = CodexScene::with(Scenario::default().with_thread("approvalsReviewer", Value::Null)).await;
    scene.asks("hello", "bot   hello").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_with_the_way_to_install_it() {
    let scene = CodexScene::as_set(Scenario::default(), |config| config.command = "/no/codex".into()).await;
    scene.asks("hello", "npm install -g @openai/codex").await;
    scene.ends().await;
}
