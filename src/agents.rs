//! The agents that this program has: one module for each kind, the fallback and the runtime switch around two of them,
//! and what builds them all from the configuration.
//!
//! The contract that they implement is [`agent`](crate::agent).

pub mod breaker;
mod build;
pub mod codex;
pub mod confined_dir;
pub mod fallback;
pub mod guide;
pub mod jsonrpc;
pub mod mcp;
pub mod model;
pub mod outside_tools;
pub mod process;
pub mod proxy;
pub mod runtime_switch;
mod services;
pub mod skills;
pub mod tools;
mod work_clock;

pub use build::{AgentBuildError, BuiltAgents, build};
pub use services::AgentServices;
