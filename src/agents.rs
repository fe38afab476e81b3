//! The agents that this program has: one module for each kind, the fallback and the runtime switch around two of them,
//! and what builds them all from the configuration.
//!
//! The contract that they implement is [`agent`](crate::agent).

pub mod acp;
pub mod breaker;
mod build;
mod call_messages;
pub mod codex;
pub mod confined_dir;
pub mod fallback;
pub mod guide;
pub mod jsonrpc;
pub mod mcp;
pub mod model;
mod open_requests;
pub mod outside_tools;
pub mod process;
mod prompt_request;
pub mod proxy;
pub mod runtime_switch;
mod secret_mask;
mod services;
pub mod skills;
mod sorted_json;
mod step_lines;
mod timed_output;
pub mod tools;
mod turn_files;
mod work_clock;

pub use build::{AgentBuildError, BuiltAgents, build};
pub use services::{AgentServices, count_agent_processes};
