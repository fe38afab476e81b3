//! Linux' own calls.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::process::Pid;
use socket2::Socket;

use super::MarkedProcess;

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
    memory_in("/proc/self/status".as_ref())
}

/// Bytes of memory that another process has in RAM.
pub fn memory_of_process(process: Pid) -> Option<i64> {
    memory_in(format!("/proc/{}/status", process.as_raw_pid()).as_ref())
}

fn memory_in(status: &Path) -> Option<i64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<i64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Files and sockets that this process has open.
pub fn open_files() -> Option<i64> {
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// Makes this process the parent of every descendant whose own parent ends.
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Children of this process, those that have ended and were not reaped among them.
pub fn own_children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let children =
        |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let listed: Vec<String> = threads.flatten().map(children).collect();
    listed.iter().flat_map(|list| list.split_whitespace()).filter_map(process_id).collect()
}

/// The program of this process, also if its file was replaced by another version.
pub fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The moment at which a process began, in the kernel's ticks; `None` if it has ended. Tells it from a later process with
/// the same number.
pub fn process_start(process: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    // The name of the program stands in parentheses and may contain anything; the state is the first field after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let has_ended = matches!(fields.first(), Some(&("Z" | "X")));
    fields.get(19).filter(|_| !has_ended)?.parse().ok()
}

/// Every living process of this user that has the variable in its environment.
pub fn processes_with(variable: &str) -> Vec<MarkedProcess> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|entry| entry.uid() == user);
    let marked = |entry: fs::DirEntry| {
        let process = process_id(entry.file_name().to_str()?)?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
        let group = rustix::process::getpgid(Some(process)).ok()?;
        Some(MarkedProcess { process, group, value: String::from_utf8_lossy(value).into_owned() })
    };
    processes.flatten().filter(is_ours).filter_map(marked).collect()
}

fn process_id(digits: &str) -> Option<Pid> {
    digits.parse().ok().and_then(Pid::from_raw)
}
