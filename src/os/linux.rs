//! Linux' own calls.

use std::time::Duration;
use std::{fs, io};

use socket2::Socket;

/// Keeps other processes of the same user from reading this one's memory.
pub fn deny_debuggers() {
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Closes a connection whose peer acknowledges nothing for `lost`, and has the kernel take no more than `unsent` bytes
/// that it has not sent.
pub fn bound_unsent_bytes(socket: &Socket, lost: Duration, unsent: u32) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(lost))?;
    socket.set_tcp_notsent_lowat(unsent)
}

/// Bytes of memory that this process has in RAM.
pub fn resident_memory() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<i64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Files and sockets that this process has open.
pub fn open_files() -> Option<i64> {
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}
