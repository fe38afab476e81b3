//! The processes of one command: its group, and on Linux everything that left the group.

use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, test_kill_process_group, wait,
};

use crate::os;

/// Longest pause between SIGTERM and SIGKILL for processes that the first one left behind.
const LEFTOVER_PATIENCE: Duration = Duration::from_millis(500);

/// Time that the kernel has to end processes after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// How often we look whether all have ended.
const LOOK: Duration = Duration::from_millis(5);

/// Added to the number of a signal, it is the exit status of a process that the signal ended.
const SIGNALLED: i32 = 128;

/// The processes of one command.
pub(super) struct ProcessTree {
    /// The first process, which leads the group.
    leader: Pid,
    /// Exit status of the leader, once it was reaped.
    status: Option<u8>,
}

impl ProcessTree {
    pub(super) fn new(leader: Pid) -> Self {
        Self { leader, status: None }
    }

    /// Whether the leader was reaped.
    pub(super) fn leader_has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Reaps everything that has ended: the leader, and orphans that the kernel gave us.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.leader {
                self.status = Some(exit_code(status));
            }
        }
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        // It may have ended by now.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Ends everything that is left: SIGTERM, and after the pause SIGKILL. Returns the exit status of the leader.
    pub(super) fn end_rest(&mut self, pause: Duration) -> u8 {
        self.signal_rest(Signal::TERM);
        if !self.all_end_within(pause.min(LEFTOVER_PATIENCE)) {
            self.signal_rest(Signal::KILL);
            let until = Instant::now() + AFTER_KILL;
            // A process that ends may leave us children that we did not see before.
            while !self.all_end_within(LOOK * 2) && Instant::now() < until {
                self.signal_rest(Signal::KILL);
            }
        }
        self.status.unwrap_or_else(|| code(SIGNALLED + Signal::KILL.as_raw()))
    }

    fn all_end_within(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            self.reap();
            if !self.is_anybody_left() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_anybody_left(&self) -> bool {
        test_kill_process_group(self.leader).is_ok() || !os::own_children().is_empty()
    }

    fn signal_rest(&self, signal: Signal) {
        self.signal_group(signal);
        for child in os::own_children() {
            let _ = kill_process(child, signal);
        }
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => code(status),
        (None, Some(signal)) => code(SIGNALLED + signal),
        (None, None) => u8::MAX,
    }
}

fn code(status: i32) -> u8 {
    u8::try_from(status).unwrap_or(u8::MAX)
}
