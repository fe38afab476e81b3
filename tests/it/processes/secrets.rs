//! Seeded secrets of ours appear in no output of a sandboxed command, however it tries.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use talaria::agents::process::HiddenFiles;
use talaria::agents::process::sandbox::SandboxState;
use talaria::agents::tools::ToolFailure;
use talaria::agents::tools::terminal::{CommandSlots, TerminalParts, TerminalTool};
use talaria::config::TerminalConfig;

use super::terminal::run;
use super::{host, own_folder, own_process, sandbox};

/// Part of every seeded secret. No command contains it in this form.
const SEED: &str = "s3cr3t";

/// The commands, with `$R` for the folder that everything lies in and `$P` for the process id of the gateway. None may
/// show a secret.
const TRIES: &[&str] = &[
    "env; export -p; set",
    "cat $R/talaria.yaml $R/key $R/state/talaria.db $R/state/deep/api.key",
    "ls -laR $R/state; cat $R/state/* $R/state/*/*",
    "grep -r s3cr3[t] $R",
    "cat /proc/$P/environ /proc/$P/cmdline; ls /proc/$P/root/ /proc/$P/cwd/ /proc/$P/fd",
    "for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done",
    "cat /proc/1/environ; cat /proc/1/root$R/key; cat /proc/self/root$R/key",
    "ln -s $R/key link; cat link; ln -s $R/state folder; cat folder/talaria.db",
    "ln $R/key hard; cat hard; cp $R/key copy; cat copy; mv $R/key moved; cat moved",
    "umount $R/state; umount -l $R/state; cat $R/state/talaria.db; umount $R/key; cat $R/key",
    "unshare -Urm sh -c \"umount $R/key; umount -l $R/state; cat $R/key $R/state/talaria.db\"",
    "unshare -Urm sh -c \"mkdir m; mount --rbind / m; cat m$R/key m$R/state/talaria.db\"",
    "mkdir m2; mount --bind / m2; cat m2$R/key; mount -o remount,rw /; cat $R/key",
    "cd ..; cat key talaria.yaml state/talaria.db; cat ../*/key",
    "cat $R/runtime/note $XDG_RUNTIME_DIR/note; ls $XDG_RUNTIME_DIR",
    "cat $R/named",
    "cat /run/secrets/* /dev/shm/*; ls /run",
    "nsenter -t $P -m cat $R/key; chroot /proc/$P/root cat $R/key",
    "dd if=/dev/mem bs=1 count=10; cat /dev/sd* /dev/vd* /dev/nvme* | head -c 10",
];

/// Files with secrets, beside the workspace.
const FILES: &[&str] =
    &["talaria.yaml", "key", "state/talaria.db", "state/deep/api.key", "runtime/note", "named"];

/// Variables that the operator lets through. All but the last are secrets of ours, in builds without Matrix too.
const LISTED: [&str; 5] =
    ["GATEWAY_PROXY_KEY", "API_SERVER_KEY_FILE", "MATRIX_PASSWORD", "MATRIX_ACCESS_TOKEN", "LISTED"];

fn tool(root: &Path, sandbox: SandboxState) -> TerminalTool {
    TerminalTool::new(TerminalParts {
        host: Arc::new(host(&root.join("state"))),
        slots: CommandSlots::default(),
        sandbox,
        workspace: root.join("work"),
        hidden: HiddenFiles::from(
            ["talaria.yaml", "key", "state", "not-there"].map(|name| root.join(name)).to_vec(),
        ),
        config: TerminalConfig {
            env_passthrough: LISTED.map(Into::into).into(),
            ..TerminalConfig::default()
        },
        further_variables: Arc::new(|| vec!["OF_SKILL".to_owned(), "OPENAI_API_KEY".to_owned()]),
    })
}

#[test]
fn no_secret_of_ours_reaches_a_command() {
    if sandbox().is_none() {
        return;
    }
    // Not in /tmp, which is another one in the sandbox.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = folder.path();
    for name in ["work", "state/deep", "runtime"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for (number, name) in FILES.iter().enumerate() {
        fs::write(root.join(name), format!("{SEED}-file-{number}\n")).unwrap();
    }
    let mut command = own_process("processes::secrets::tries_to_read_every_secret", root);
    for name in [
        "GATEWAY_PROXY_KEY",
        "API_SERVER_KEY",
        "OPENAI_API_KEY",
        "MATRIX_PASSWORD",
        "MATRIX_ACCESS_TOKEN",
        "UNLISTED",
    ] {
        command.env(name, format!("{SEED}-variable-{name}"));
    }
    command
        .env("API_SERVER_KEY_FILE", root.join("named"))
        .env("LISTED", "listed-value")
        .env("OF_SKILL", "skill-value")
        .env("XDG_RUNTIME_DIR", root.join("runtime"));
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    // The files are as they were.
    for (number, name) in FILES.iter().enumerate() {
        assert_eq!(fs::read_to_string(root.join(name)).unwrap(), format!("{SEED}-file-{number}\n"));
    }
}

#[tokio::test]
#[ignore = "a gateway with secrets in its environment, which another test starts"]
async fn tries_to_read_every_secret() {
    let root = own_folder();
    let tool = tool(&root, sandbox().unwrap());
    let shell = |command: &str| {
        let places = format!("R={}; P={}; ", root.display(), std::process::id());
        let (tool, command) = (&tool, format!("{places}{command}"));
        async move {
            match run(tool, json!({ "command": command })).await {
                Ok(output) | Err(ToolFailure::Failed(output)) => output,
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    for command in TRIES {
        let output = shell(command).await;
        assert!(!output.contains(SEED), "{command}:\n{output}");
    }
    // Without the sandbox the same tries succeed, so they are honest ones.
    let bare = TerminalTool::new(TerminalParts {
        host: Arc::new(host(&root.join("state"))),
        slots: CommandSlots::default(),
        sandbox: SandboxState::Missing,
        workspace: root.join("work"),
        hidden: HiddenFiles::default(),
        config: TerminalConfig::default(),
        further_variables: Arc::new(Vec::new),
    });
    let read = run(&bare, json!({ "command": "cat ../key /proc/$PPID/cmdline" })).await.unwrap();
    assert!(read.contains(SEED));
    let variables = shell("env").await;
    assert!(!variables.contains("API_SERVER_KEY_FILE"), "{variables}");
    assert!(
        variables.contains("LISTED=listed-value") && variables.contains("OF_SKILL=skill-value"),
        "{variables}"
    );
    let written = shell("echo new > made && cat made; echo t > /tmp/t && cat /tmp/t; ls /etc/passwd").await;
    assert!(written.contains("new\nt\n/etc/passwd\n[exit status 0]"), "{written}");
    let refused =
        shell("echo x > $R/made; echo x > /etc/made; echo x > $R/state/made; touch $HOME/made").await;
    assert!(!root.join("made").exists() && !Path::new("/etc/made").exists(), "{refused}");
    // Each command has a new /tmp, and none of ours.
    assert!(shell("ls -A /tmp").await.starts_with("[no output]"));
    // Two lines of headings, and the loopback.
    assert!(shell("cat /proc/net/dev | wc -l").await.starts_with("3\n"));
    let _socket = UnixListener::bind(root.join("state/control.sock")).unwrap();
    assert!(!shell("ls $R/state").await.contains("control.sock"));
}
