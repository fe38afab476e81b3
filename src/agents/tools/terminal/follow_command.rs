//! Follows a command to its end: reads its output, and ends it at its limit or when the turn is stopped.

use std::time::Duration;

use talaria_platform::CancellationToken;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;

use super::command_output::CommandOutput;
use crate::agents::process::{ManagedProcess, ProcessExit};

/// Longest wait for the end of the output after the command has ended. Something that escaped may hold it open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Bytes that are read at a time. A command that writes faster than we read waits.
const CHUNK: usize = 16 * 1024;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// It ended by itself.
    Exited(ProcessExit),
    /// We ended it at its limit.
    TimedOut,
    /// We ended it, because its turn was stopped.
    Stopped,
}

/// Reads the output until the command has ended. Nothing of it runs afterwards.
pub(super) async fn follow_command(
    mut process: ManagedProcess,
    limit: Duration,
    stop: &CancellationToken,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> (CommandEnd, String) {
    let mut output = CommandOutput::default();
    let mut stdout = process.take_stdout();
    let limit = tokio::time::sleep(limit);
    tokio::pin!(limit);
    let mut chunk = vec![0; CHUNK];
    let end = loop {
        tokio::select! {
            // In this order, so that a flood of output delays no end.
            biased;
            () = stop.cancelled() => break CommandEnd::Stopped,
            () = &mut limit => break CommandEnd::TimedOut,
            read = read_some(&mut stdout, &mut chunk) => {
                output.push(chunk.get(..read).unwrap_or_default());
                if let Some(line) = output.new_last_line() {
                    progress(&line);
                }
            }
            exit = process.exited() => break CommandEnd::Exited(exit),
        }
    };
    process.end().await;
    let rest = async {
        while stdout.is_some() {
            let read = read_some(&mut stdout, &mut chunk).await;
            output.push(chunk.get(..read).unwrap_or_default());
        }
    };
    let _ = tokio::time::timeout(LAST_OUTPUT, rest).await;
    // Words of the sandbox and of the shim; the command's own are in its output.
    output.push_line(&process.stderr_tail());
    (end, output.text())
}

/// Reads the next bytes. At the end, `stdout` becomes `None`, and there is nothing more to wait for.
async fn read_some(stdout: &mut Option<ChildStdout>, chunk: &mut [u8]) -> usize {
    let Some(pipe) = stdout else { return std::future::pending().await };
    match pipe.read(chunk).await {
        Ok(read @ 1..) => read,
        Ok(0) | Err(_) => {
            *stdout = None;
            0
        }
    }
}
