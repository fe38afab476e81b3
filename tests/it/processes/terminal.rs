//! The tool `terminal`, with and without the sandbox.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use talaria::agent::{AskChoice, DenyReason};
use talaria::agents::process::sandbox::SandboxState;
use talaria::agents::process::{HiddenFiles, count_children};
use talaria::agents::tools::terminal::{CommandSlots, TerminalParts, TerminalTool};
use talaria::agents::tools::{AgentTool as _, RESULT_BYTES, ToolCall, ToolFailure};
use talaria::config::TerminalConfig;
use talaria_platform::CancellationToken;
use tokio::sync::Notify;

use super::{Gate, PATIENCE, STUBBORN, host, nobody_is_left, sandbox};
use crate::support::person::{Person, turn};

/// A tool whose workspace is `folder`, which counts as the state folder too.
pub fn terminal(folder: &Path, sandbox: SandboxState) -> TerminalTool {
    TerminalTool::new(parts(folder, sandbox))
}

fn parts(folder: &Path, sandbox: SandboxState) -> TerminalParts {
    TerminalParts {
        host: Arc::new(host(folder)),
        slots: CommandSlots::default(),
        sandbox,
        workspace: folder.to_owned(),
        hidden: HiddenFiles::default(),
        config: TerminalConfig::default(),
        further_variables: Arc::new(Vec::new),
    }
}

/// Calls the tool with a person who allows everything.
pub async fn run(tool: &TerminalTool, arguments: Value) -> Result<String, ToolFailure> {
    call(tool, &object(arguments), &Person::allowing(), &CancellationToken::new(), &|_| {}).await
}

async fn call(
    tool: &TerminalTool,
    arguments: &Map<String, Value>,
    person: &Person,
    stop: &CancellationToken,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<String, ToolFailure> {
    let turn = turn();
    let calling = tool.call(ToolCall { arguments, turn: &turn, out: person, progress, stop });
    tokio::time::timeout(PATIENCE, calling).await.expect("it ends")
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Without a sandbox, and with it where there is one.
fn sandboxes() -> Vec<SandboxState> {
    [SandboxState::Missing].into_iter().chain(sandbox()).collect()
}

#[tokio::test]
async fn output_comes_in_its_order_with_the_exit_status() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let tool = terminal(folder.path(), sandbox);
        for (command, expected) in [
            ("echo out; echo err >&2; echo out; exit 3", "out\nerr\nout\n[exit status 3]"),
            ("true", "[no output]\n[exit status 0]"),
            ("cat; echo no input", "no input\n[exit status 0]"),
            ("printf '\\033[31mred\\033[0m\\377\\r\\n'", "red\u{fffd}\n[exit status 0]"),
            ("-x 2>/dev/null", "[no output]\n[exit status 127]"),
            ("kill -9 $$", "[no output]\n[exit status 137: ended by signal 9]"),
            ("echo $0 \"$#\"", "sh 0\n[exit status 0]"),
            ("sleep 1000 & setsid sleep 1000 & echo done", "done\n[exit status 0]"),
            ("(", "status 2]"),
        ] {
            let result = run(&tool, json!({ "command": command })).await.unwrap();
            assert!(
                result == expected || result.ends_with(expected) && command == "(",
                "{command}: {result}"
            );
        }
        let result = run(&tool, json!({ "command": "pwd; echo x > file", "cwd": "deep" })).await.unwrap();
        assert_eq!(
            result,
            format!("{}/deep\n[exit status 0]", folder.path().canonicalize().unwrap().display())
        );
        assert_eq!(std::fs::read_to_string(folder.path().join("deep/file")).unwrap(), "x\n");
        assert_eq!(count_children(folder.path()), 0);
    }
}

#[tokio::test]
async fn only_an_approval_runs_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let tool = terminal(folder.path(), SandboxState::Missing);
    let arguments = object(json!({ "command": "echo x > ran" }));
    for (answer, part) in [
        (AskChoice::Deny(DenyReason::Person), "a person said no"),
        (AskChoice::Deny(DenyReason::Gone), "nobody here"),
        (AskChoice::Deny(DenyReason::TooLong), "too long"),
        (AskChoice::Option("yes".into()), "nothing was done"),
        (AskChoice::Text("yes".into()), "nothing was done"),
    ] {
        let person = Person::saying(answer.clone());
        let ended = call(&tool, &arguments, &person, &CancellationToken::new(), &|_| {}).await;
        let Err(ToolFailure::Failed(words)) = ended else { panic!("{answer:?}: {ended:?}") };
        assert!(words.contains(part), "{words}");
        let asked = person.asked.lock();
        assert!(asked[0].title.to_string().contains("not sandboxed") && asked[0].detail == "echo x > ran");
    }
    for reason in [DenyReason::Stopped, DenyReason::Timeout] {
        let person = Person::denying(reason);
        let ended = call(&tool, &arguments, &person, &CancellationToken::new(), &|_| {}).await;
        assert!(matches!(
            (reason, ended),
            (DenyReason::Stopped, Err(ToolFailure::Stopped))
                | (DenyReason::Timeout, Err(ToolFailure::Halt(_)))
        ));
    }
    assert!(!folder.path().join("ran").exists());
    run(&tool, json!({ "command": "echo x > ran" })).await.unwrap();
    assert!(folder.path().join("ran").exists());
}

#[tokio::test]
async fn a_flood_of_output_stays_small_and_shows_its_ends() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let tool = terminal(folder.path(), sandbox);
        // The first command pages in the code that every command needs.
        run(&tool, json!({ "command": "yes | head -c 1000000" })).await.unwrap();
        let before = talaria::os::resident_memory();
        let command = "echo begin; yes 0123456789 | head -c 50000000; echo; echo end";
        let result = run(&tool, json!({ "command": command })).await.unwrap();
        assert!(result.len() <= RESULT_BYTES, "{}", result.len());
        assert!(result.starts_with("begin\n0123456789\n") && result.ends_with("\nend\n[exit status 0]"));
        assert!(result.contains("bytes left out"));
        if let (Some(before), Some(after)) = (before, talaria::os::resident_memory()) {
            assert!(after - before < 8 << 20, "{} bytes more", after - before);
        }
    }
}

#[tokio::test]
async fn an_endless_flood_ends_at_the_limit() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let tool = terminal(folder.path(), sandbox);
        let ended = run(&tool, json!({ "command": "yes", "timeout_secs": 1 })).await;
        let Err(ToolFailure::Failed(words)) = ended else { panic!("{ended:?}") };
        assert!(words.len() <= RESULT_BYTES && words.starts_with("y\ny\n"));
        assert_eq!(count_children(folder.path()), 0);
    }
}

#[tokio::test]
async fn a_command_that_hangs_ends_at_its_limit_and_its_output_is_told() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let mut gate = Gate::new(folder.path());
        let tool = terminal(folder.path(), sandbox);
        let command = format!("exec 9>gate; echo x >&9; echo begun; {STUBBORN}");
        let began = Instant::now();
        let ended = run(&tool, json!({ "command": command, "timeout_secs": 1 })).await;
        let Err(ToolFailure::Failed(words)) = ended else { panic!("{ended:?}") };
        assert_eq!(words, "begun\n[not finished after 1 s: the command was ended]");
        assert!(began.elapsed() < Duration::from_secs(10));
        gate.is_held().await;
        gate.all_have_gone().await;
        assert_eq!(count_children(folder.path()), 0);
    }
}

#[tokio::test]
async fn a_stop_ends_the_command() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let mut gate = Gate::new(folder.path());
        let tool = terminal(folder.path(), sandbox);
        let stop = CancellationToken::new();
        let arguments =
            object(json!({ "command": format!("exec 9>gate; echo x >&9; echo begun; {STUBBORN}") }));
        let progress = |line: &str| {
            assert_eq!(line, "begun");
            stop.cancel();
        };
        let ended = call(&tool, &arguments, &Person::allowing(), &stop, &progress).await;
        assert_eq!(ended, Err(ToolFailure::Stopped));
        gate.is_held().await;
        gate.all_have_gone().await;
        assert_eq!(count_children(folder.path()), 0);
    }
}

#[tokio::test]
async fn a_dropped_call_ends_the_command() {
    for sandbox in sandboxes() {
        let folder = tempfile::tempdir().unwrap();
        let mut gate = Gate::new(folder.path());
        let tool = terminal(folder.path(), sandbox);
        let arguments =
            object(json!({ "command": format!("exec 9>gate; echo x >&9; echo begun; {STUBBORN}") }));
        let begun = Notify::new();
        let (person, stop) = (Person::allowing(), CancellationToken::new());
        let progress = |_: &str| begun.notify_one();
        tokio::select! {
            ended = call(&tool, &arguments, &person, &stop, &progress) => panic!("{ended:?}"),
            () = begun.notified() => {}
        }
        gate.is_held().await;
        gate.all_have_gone().await;
        nobody_is_left(folder.path()).await;
    }
}

#[tokio::test]
async fn several_commands_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.path().join("meet")).status().unwrap().success());
    let tool = terminal(folder.path(), SandboxState::Missing);
    // Each waits for the other at the pipe.
    let (reader, writer) = tokio::join!(
        run(&tool, json!({ "command": "cat meet" })),
        run(&tool, json!({ "command": "echo hello > meet" }))
    );
    assert_eq!(reader.as_deref(), Ok("hello\n[exit status 0]"));
    assert_eq!(writer.as_deref(), Ok("[no output]\n[exit status 0]"));
}

#[tokio::test]
async fn commands_of_all_agents_together_are_limited_and_one_that_waits_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let gates: Vec<_> = (0..8).map(|number| folder.path().join(format!("gate-{number}"))).collect();
    assert!(std::process::Command::new("mkfifo").args(&gates).status().unwrap().success());
    // Two agents share the slots.
    let slots = CommandSlots::default();
    let agent = || {
        let parts = TerminalParts { slots: slots.clone(), ..parts(folder.path(), SandboxState::Missing) };
        TerminalTool::new(parts)
    };
    let (one, other) = (agent(), agent());
    let holds = |number: usize| run(&one, json!({ "command": format!("read x < gate-{number}; echo held") }));
    let holding = futures_util::future::join_all((0..8).map(holds));
    let (person, stop) = (Person::allowing(), CancellationToken::new());
    let (arguments, waits) = (object(json!({ "command": "echo x > ran" })), Notify::new());
    let progress = |line: &str| {
        assert_eq!(line, "waits until another command has ended");
        waits.notify_one();
    };
    let ninth = call(&other, &arguments, &person, &stop, &progress);
    let opens = async {
        waits.notified().await;
        assert!(!folder.path().join("ran").exists());
        for gate in gates {
            // Waits until the command reads.
            tokio::task::spawn_blocking(move || std::fs::write(gate, "x\n")).await.unwrap().unwrap();
        }
    };
    let all = async { tokio::join!(holding, ninth, opens) };
    let (held, ninth, ()) = tokio::time::timeout(PATIENCE, all).await.expect("all of them end");
    assert!(held.iter().all(|held| held.as_deref() == Ok("held\n[exit status 0]")), "{held:?}");
    assert_eq!(ninth.as_deref(), Ok("[no output]\n[exit status 0]"));
    assert!(folder.path().join("ran").exists());
}
