//! Processes of a scene. Each scene calls codex by a path of its own, so that a test finds its processes and no others.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use memchr::memmem;
use rustix::process::{Pid, Signal, kill_process};

/// Ids of the processes whose command line names something in this folder. A zombie has no command line.
pub fn mentioning(folder: &Path) -> Vec<i32> {
    let is_meant = |pid: &i32| memmem::find(&command_line(*pid), folder.as_os_str().as_bytes()).is_some();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_meant).collect()
}

/// Ids of the processes that were called by this path.
pub fn called(program: &Path) -> Vec<i32> {
    let is_it = |pid: &i32| {
        command_line(*pid).split(|byte| *byte == 0).next() == Some(program.as_os_str().as_bytes())
    };
    mentioning(program).into_iter().filter(is_it).collect()
}

/// Ids of the processes that were found in PATH as `codex`, and whose configuration is in this folder.
pub fn with_codex_home(folder: &Path) -> Vec<i32> {
    let home = [b"CODEX_HOME=", folder.as_os_str().as_bytes(), b"\0"].concat();
    let is_it = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        command_line(*pid).starts_with(b"codex\0app-server") && memmem::find(&environment, &home).is_some()
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).collect()
}

/// Kills a process at once.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The command line, with zeros between the words.
fn command_line(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
