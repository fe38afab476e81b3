//! System calls that only Linux has. Every other operating system gets the substitute that `os/elsewhere.rs` states.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{
    adopt_orphans, bound_unsent_bytes, deny_debuggers, memory_of_process, open_files, own_children,
    own_program, process_start, processes_with, resident_memory,
};
#[cfg(target_os = "linux")]
pub use linux::{
    adopt_orphans, bound_unsent_bytes, deny_debuggers, memory_of_process, open_files, own_children,
    own_program, process_start, processes_with, resident_memory,
};

use rustix::process::Pid;

/// A process of this user with a certain variable in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedProcess {
    /// The process.
    pub process: Pid,
    /// Its process group.
    pub group: Pid,
    /// Value of the variable.
    pub value: String,
}
