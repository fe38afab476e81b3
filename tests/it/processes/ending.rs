//! The ordered end: end of input, SIGTERM, SIGKILL; and everything that a process started ends with it.

use rustix::process::{Pid, Signal, kill_process};
use talaria::agents::process::{MARKER_VARIABLE, ManagedProcess, ProcessSpec, StdinMode, count_children};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Gate, HOLD_GATE, PATIENCE, STUBBORN, host, nobody_is_left, script};

/// All output and the exit status.
async fn to_the_end(process: &mut ManagedProcess) -> (String, Option<i32>) {
    let mut output = String::new();
    let mut stdout = process.take_stdout().unwrap();
    let both = async { tokio::join!(stdout.read_to_string(&mut output), process.exited()) };
    let (read, exit) = tokio::time::timeout(PATIENCE, both).await.expect("it ends");
    read.unwrap();
    (output, exit.code)
}

#[tokio::test]
async fn input_reaches_the_process_and_the_end_of_input_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut process =
        host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, "cat; exit 7")).unwrap();
    let mut stdin = process.take_stdin().unwrap();
    let text = "0123456789".repeat(100_000);
    let writing = async {
        stdin.write_all(text.as_bytes()).await.unwrap();
        drop(stdin);
    };
    let ((), (output, code)) = tokio::join!(writing, to_the_end(&mut process));
    assert!(output == text, "{} bytes of {}", output.len(), text.len());
    assert_eq!(code, Some(7));
    assert_eq!(count_children(folder.path()), 0);
}

#[tokio::test]
async fn the_steps_come_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let text = "trap 'echo term' TERM; echo begun; cat; echo eof; while :; do sleep 1000 & wait; done";
    let mut process = host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, text)).unwrap();
    let mut stdout = process.take_stdout().unwrap();
    let mut begun = [0; 6];
    stdout.read_exact(&mut begun).await.unwrap();
    let exit = process.end().await;
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "eof\nterm\n");
    assert_eq!(exit.code, Some(128 + 9));
    assert_eq!(count_children(folder.path()), 0);
}

#[tokio::test]
async fn without_input_the_first_step_is_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let text = "trap 'echo term; exit 3' TERM; cat; echo begun; sleep 1000 & wait";
    let mut process = host(folder.path()).spawn(script(folder.path(), StdinMode::Null, text)).unwrap();
    assert!(process.take_stdin().is_none());
    let mut stdout = process.take_stdout().unwrap();
    let mut begun = [0; 6];
    stdout.read_exact(&mut begun).await.unwrap();
    assert_eq!(process.end().await.code, Some(3));
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "term\n");
}

#[tokio::test]
async fn whatever_a_process_leaves_behind_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::new(folder.path());
    let text =
        format!("{HOLD_GATE} ({STUBBORN}) & setsid sh -c \"trap '' TERM; sleep 1000; sleep 1000\" & exit 5");
    let process = host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, &text)).unwrap();
    gate.is_held().await;
    assert_eq!(process.exited().await.code, Some(5));
    gate.all_have_gone().await;
    assert_eq!(count_children(folder.path()), 0);
}

#[tokio::test]
async fn a_stubborn_process_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::new(folder.path());
    let text = format!("{HOLD_GATE} {STUBBORN}");
    let process = host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, &text)).unwrap();
    gate.is_held().await;
    assert_eq!(process.end().await.code, Some(128 + 9));
    gate.all_have_gone().await;
    assert_eq!(count_children(folder.path()), 0);
}

#[tokio::test]
async fn a_dropped_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    for stdin in [StdinMode::Piped, StdinMode::Null] {
        let folder = tempfile::tempdir_in(folder.path()).unwrap();
        let mut gate = Gate::new(folder.path());
        let text = format!("{HOLD_GATE} {STUBBORN}");
        let mut process = host(folder.path()).spawn(script(folder.path(), stdin, &text)).unwrap();
        gate.is_held().await;
        // Holding its streams does not keep it alive.
        let _streams = (process.take_stdin(), process.take_stdout());
        drop(process);
        gate.all_have_gone().await;
        nobody_is_left(folder.path()).await;
    }
}

#[tokio::test]
async fn a_writer_that_waits_for_a_process_that_never_reads_is_freed_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::new(folder.path());
    let text = format!("{HOLD_GATE} {STUBBORN}");
    let mut process = host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, &text)).unwrap();
    let mut stdin = process.take_stdin().unwrap();
    let writing = tokio::spawn(async move { stdin.write_all(&vec![b'x'; 10 << 20]).await });
    gate.is_held().await;
    process.end().await;
    let written = tokio::time::timeout(PATIENCE, writing).await.expect("it is woken").unwrap();
    assert_eq!(written.map_err(|error| error.kind()), Err(std::io::ErrorKind::BrokenPipe));
    gate.all_have_gone().await;
}

#[tokio::test]
async fn the_end_of_standard_error_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let text = "yes noise | head -c 1000000 >&2; printf 'last \\377 words' >&2; exit 1";
    let mut process = host(folder.path()).spawn(script(folder.path(), StdinMode::Null, text)).unwrap();
    assert_eq!(to_the_end(&mut process).await, (String::new(), Some(1)));
    let tail = process.stderr_tail();
    assert!(tail.ends_with("last \u{fffd} words") && tail.contains("noise\nnoise\n"), "{tail}");
    assert!((8_000..9_000).contains(&tail.len()), "{}", tail.len());
}

#[tokio::test]
async fn a_program_that_cannot_run_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let plain = script(folder.path(), StdinMode::Piped, "");
    std::fs::write(folder.path().join("data"), "no program").unwrap();
    for (program, code) in [("no-such-program", 127), ("./data", 126)] {
        let mut process =
            host(folder.path()).spawn(ProcessSpec { program: program.into(), ..plain.clone() }).unwrap();
        assert_eq!(to_the_end(&mut process).await.1, Some(code));
        assert!(process.stderr_tail().contains(&format!("{program} cannot be started")));
    }
    let gone = ProcessSpec { cwd: folder.path().join("gone"), ..plain };
    let error = host(folder.path()).spawn(gone).unwrap_err();
    assert!(error.to_string().contains("gone is not there"), "{error}");
}

#[tokio::test]
async fn a_process_has_the_environment_of_its_spec_and_its_marker_only() {
    let folder = tempfile::tempdir().unwrap();
    let plain = script(folder.path(), StdinMode::Null, "");
    let spec = ProcessSpec { program: "env".into(), args: Vec::new(), ..plain };
    let mut expected: Vec<String> = spec.env.keys().map(|name| name.to_string_lossy().into_owned()).collect();
    expected.push(MARKER_VARIABLE.to_owned());
    expected.sort();
    let mut process = host(folder.path()).spawn(spec).unwrap();
    let (output, code) = to_the_end(&mut process).await;
    let mut names: Vec<&str> = output.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!((names, code), (expected.iter().map(String::as_str).collect(), Some(0)));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_whose_shim_is_killed_ends_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::new(folder.path());
    let text = format!("{HOLD_GATE} {STUBBORN}");
    let process = host(folder.path()).spawn(script(folder.path(), StdinMode::Piped, &text)).unwrap();
    let shim = gate.is_held().await.parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(shim, Signal::KILL).unwrap();
    assert_eq!(process.exited().await.code, None);
    gate.all_have_gone().await;
    assert_eq!(count_children(folder.path()), 0);
}
