//! The variable by which we know our children again, and the sweep of those that a crashed run of ours left.
//!
//! Its value is `<state folder>.<owner's process id>.<owner's start>.<number>`: the state folder as a hash, and enough of
//! the owner to tell whether it still lives although process ids are used again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgrp, kill_process_group, test_kill_process_group};

use crate::os::{self, MarkedProcess};
use crate::util::hash;

/// Name of the variable.
pub const MARKER_VARIABLE: &str = "TALARIA_CHILD";

/// Hex digits of the hash of the state folder.
const FOLDER_DIGITS: usize = 16;

/// Pause between SIGTERM and SIGKILL in a sweep. Short: the gateway starts only afterwards.
const SWEEP_PATIENCE: Duration = Duration::from_secs(1);

/// How often a sweep looks whether a group has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The part of the marker that all children of this process and state folder have in common.
#[derive(Clone, Debug)]
pub(super) struct ChildMarker {
    prefix: String,
}

impl ChildMarker {
    pub(super) fn of(state_folder: &Path) -> Self {
        let pid = std::process::id();
        let start = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(os::process_start);
        Self { prefix: format!("{}.{pid}.{}", folder_hash(state_folder), start.unwrap_or_default()) }
    }

    /// The marker of one more child.
    pub(super) fn next_child(&self) -> String {
        static CHILDREN: AtomicU64 = AtomicU64::new(0);
        format!("{}.{}", self.prefix, CHILDREN.fetch_add(1, Ordering::Relaxed))
    }
}

/// Ends the process groups that earlier processes with this state folder left, and returns their number. Blocks, for a
/// second at most, and only if there are any. Finds nothing outside Linux.
pub fn sweep(state_folder: &Path) -> usize {
    let folder = folder_hash(state_folder);
    let left =
        os::processes_with(MARKER_VARIABLE).into_iter().filter(|process| is_left(&process.value, &folder));
    let ended = end_groups(left);
    if ended > 0 {
        tracing::warn!(groups = ended, "processes that an earlier run left were ended");
    }
    ended
}

/// Number of living processes that carry the marker of this state folder.
pub fn count_children(state_folder: &Path) -> usize {
    let folder = folder_hash(state_folder);
    let ours = |process: &MarkedProcess| process.value.split('.').next() == Some(&folder);
    os::processes_with(MARKER_VARIABLE).iter().filter(|process| ours(process)).count()
}

/// Bytes of memory that the processes with these markers have in RAM, with everything that they started. Zero outside
/// Linux.
pub fn memory_of(markers: &BTreeSet<String>) -> i64 {
    if markers.is_empty() {
        return 0;
    }
    let ours =
        os::processes_with(MARKER_VARIABLE).into_iter().filter(|process| markers.contains(&process.value));
    ours.filter_map(|process| os::memory_of_process(process.process)).sum()
}

/// Ends the process groups with exactly this marker, and returns their number. Blocks like [`sweep`].
pub(super) fn end_marked(marker: &str) -> usize {
    end_groups(os::processes_with(MARKER_VARIABLE).into_iter().filter(|process| process.value == marker))
}

/// Whether a marker is of this state folder, and its owner has ended.
fn is_left(marker: &str, folder: &str) -> bool {
    let mut parts = marker.split('.');
    if parts.next() != Some(folder) {
        return false;
    }
    let owner = parts.next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let started = parts.next().and_then(|start| start.parse::<u64>().ok());
    match (owner, started) {
        (Some(owner), Some(started)) => os::process_start(owner) != Some(started),
        // Not a marker that we wrote.
        (Some(_), None) | (None, _) => false,
    }
}

fn end_groups(processes: impl Iterator<Item = MarkedProcess>) -> usize {
    let own = getpgrp();
    let groups: BTreeSet<i32> = processes
        .map(|process| process.group)
        .filter(|group| *group != own && !group.is_init())
        .map(Pid::as_raw_pid)
        .collect();
    let groups: Vec<Pid> = groups.into_iter().filter_map(Pid::from_raw).collect();
    let is_alive = |group: &Pid| test_kill_process_group(*group).is_ok();
    for group in &groups {
        // It may have ended just now.
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let until = Instant::now() + SWEEP_PATIENCE;
    while groups.iter().any(is_alive) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    for group in groups.iter().filter(|group| is_alive(group)) {
        let _ = kill_process_group(*group, Signal::KILL);
    }
    groups.len()
}

fn folder_hash(state_folder: &Path) -> String {
    // The folder exists; two names of one folder must give one hash.
    let folder = state_folder.canonicalize().unwrap_or_else(|_| state_folder.to_owned());
    let mut hash = hash([&*folder.to_string_lossy()]);
    hash.truncate(FOLDER_DIGITS);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_of_this_folder_whose_owner_has_ended_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let hash = folder_hash(folder.path());
        let ours = ChildMarker::of(folder.path());
        assert_ne!(ours.next_child(), ours.next_child());
        // We live.
        assert!(!is_left(&ours.next_child(), &hash));
        // The process with our number is another one by now.
        let pid = std::process::id();
        assert!(is_left(&format!("{hash}.{pid}.1.0"), &hash));
        assert!(!is_left(&format!("{}.{pid}.1.0", folder_hash(other.path())), &hash));
        for noise in ["", &hash, &format!("{hash}.x.1.0"), &format!("{hash}.0.1.0"), &format!("{hash}.7")] {
            assert!(!is_left(noise, &hash), "{noise}");
        }
    }
}
