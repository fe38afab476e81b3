//! System calls that only Linux has. Every other operating system gets the substitute that `os/elsewhere.rs` states.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{bound_unsent_bytes, deny_debuggers, open_files, resident_memory};
#[cfg(target_os = "linux")]
pub use linux::{bound_unsent_bytes, deny_debuggers, open_files, resident_memory};
