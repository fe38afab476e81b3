//! Substitutes where Linux' own calls are missing, as on macOS.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Pid;
use socket2::Socket;

use super::MarkedProcess;

/// macOS lets nobody but root read the memory of a process that was not built for debugging; nothing is to be done.
pub fn deny_debuggers() {}

/// TCP keepalive, which is set everywhere, ends a silent connection within twice the time. The kernel's send buffer
/// bounds what it takes.
pub fn bound_unsent_bytes(_socket: &Socket, _lost: Duration, _unsent: u32) -> io::Result<()> {
    Ok(())
}

/// Unknown: the gauge is not set.
pub fn resident_memory() -> Option<i64> {
    None
}

/// Files and sockets that this process has open.
pub fn open_files() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/dev/fd").ok()?.count()).ok()
}

/// Orphans go to the first process of the system; those that stay in their process group are found by that.
pub fn adopt_orphans() {}

/// Unknown.
pub fn own_children() -> Vec<Pid> {
    Vec::new()
}

/// The program of this process, if it has not been moved.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("talaria"))
}

/// Unknown.
pub fn process_start(_process: Pid) -> Option<u64> {
    None
}

/// Nobody may look at another process.
pub fn memory_of_process(_process: Pid) -> Option<i64> {
    None
}

/// Nobody may read the environment of another process.
pub fn processes_with(_variable: &str) -> Vec<MarkedProcess> {
    Vec::new()
}
