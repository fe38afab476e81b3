//! Tests of everything before a command runs. Commands run in `tests/it/processes`, with the real shim.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn tool(workspace: &Path, sandbox: SandboxState) -> TerminalTool {
    TerminalTool::new(TerminalParts {
        host: Arc::new(ProcessHost::new(workspace)),
        slots: CommandSlots::default(),
        sandbox,
        workspace: workspace.to_owned(),
        hidden: HiddenFiles::default(),
        config: TerminalConfig::default(),
        further_variables: Arc::new(Vec::new),
    })
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[test]
fn arguments_that_make_no_sense_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("work/deep")).unwrap();
    fs::create_dir(root.join("outside")).unwrap();
    fs::write(root.join("work/file"), "").unwrap();
    symlink(root.join("outside"), root.join("work/link")).unwrap();
    symlink("/", root.join("work/root")).unwrap();
    let tool = tool(&root.join("work"), SandboxState::Missing);
    for (value, part) in [
        (json!({}), "`command` is missing"),
        (json!({ "command": 7 }), "`command` must be a string"),
        (json!({ "command": " \n" }), "`command` is empty"),
        (json!({ "command": "a\0b" }), "NUL"),
        (json!({ "command": "ls", "timeout_secs": 0 }), "`timeout_secs`"),
        (json!({ "command": "ls", "timeout_secs": -1 }), "`timeout_secs`"),
        (json!({ "command": "ls", "timeout_secs": "5" }), "`timeout_secs`"),
        (json!({ "command": "ls", "cwd": 5 }), "`cwd` must be a string"),
        (json!({ "command": "ls", "cwd": "/" }), "relative"),
        (json!({ "command": "ls", "cwd": root.join("work").to_str() }), "relative"),
        (json!({ "command": "ls", "cwd": ".." }), "leads out"),
        (json!({ "command": "ls", "cwd": "deep/../../outside" }), "leads out"),
        (json!({ "command": "ls", "cwd": "link" }), "leads out"),
        (json!({ "command": "ls", "cwd": "root/etc" }), "leads out"),
        (json!({ "command": "ls", "cwd": "file" }), "no folder"),
        (json!({ "command": "ls", "cwd": "none" }), "no folder"),
        (json!({ "command": "ls", "cwd": "deep\0" }), "no folder"),
    ] {
        let Err(ToolFailure::Failed(words)) = tool.read(&arguments(value.clone())).map(|_| ()) else {
            panic!("{value} was taken")
        };
        assert!(words.contains(part), "{value}: {words}");
    }
    for cwd in [json!(null), json!(""), json!("."), json!("deep"), json!("deep/..")] {
        let value = arguments(json!({ "command": "ls", "cwd": cwd }));
        assert!(tool.read(&value).is_ok(), "{cwd}");
    }
}

#[test]
fn the_time_limit_can_only_be_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), SandboxState::Missing);
    for (seconds, limit) in [(json!(null), 120), (json!(5), 5), (json!(9_999_999_u64), 120)] {
        let value = arguments(json!({ "command": "ls", "timeout_secs": seconds }));
        assert_eq!(tool.read(&value).ok().map(|request| request.limit), Some(Duration::from_secs(limit)));
    }
}

#[test]
fn equal_commands_make_equal_asks_and_only_without_a_sandbox_they_say_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deep")).unwrap();
    let bwrap = || SandboxState::Bwrap("/usr/bin/bwrap".into());
    let ask = |sandbox: SandboxState, value: Value| {
        let tool = tool(folder.path(), sandbox);
        let value = arguments(value);
        tool.read(&value).map(|request| tool.ask(&request)).unwrap()
    };
    let plain = ask(bwrap(), json!({ "command": "make  test\n" }));
    assert_eq!(plain.detail, "make  test\n");
    assert_eq!(plain.cwd.as_deref(), folder.path().canonicalize().unwrap().to_str());
    assert!(plain.form.is_approval() && !plain.title.to_string().contains("not sandboxed"));
    assert_eq!(
        plain,
        ask(bwrap(), json!({ "timeout_secs": 3, "cwd": "deep/..", "command": "make  test\n" }))
    );
    assert_ne!(plain, ask(bwrap(), json!({ "command": "make test\n" })));
    assert_ne!(plain, ask(bwrap(), json!({ "command": "make  test\n", "cwd": "deep" })));
    for sandbox in [SandboxState::Missing, SandboxState::NotWorking(String::new())] {
        let bare = ask(sandbox, json!({ "command": "make  test\n" }));
        assert!(bare.title.to_string().contains("not sandboxed"));
        assert_eq!(bare.detail, plain.detail);
    }
}

#[test]
fn a_step_is_named_by_its_command_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), SandboxState::Missing);
    assert_eq!(tool.subject(&arguments(json!({ "command": "a\n  b\u{1b}[2K" }))), "a b[2K");
    assert_eq!(tool.subject(&arguments(json!({ "command": 3 }))), "");
    let spec = tool.spec();
    assert_eq!(spec.name, "terminal");
    assert!(spec.description.contains("without a sandbox") && spec.description.contains("120 seconds"));
}
