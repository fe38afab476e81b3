//! The real codex behind the binary people run: rooms and HTTP in front, a scripted Responses provider behind it.
//!
//! `tests/codex/parts` installs codex. Each test has a codex home, a workspace and a state folder of its own, and codex'
//! features that use the network are switched off, so nothing leaves the machine. [`facts`] drives codex
//! without us: its tests say what our agent relies on, and fail first when another version behaves differently.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

#[path = "../it/support"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod it {
    pub mod binary;
    pub mod network;
    pub mod stream;
    pub mod upstream;
}

mod approvals;
mod codex_home;
mod deaths;
mod direct;
mod facts;
mod failures;
mod kills;
mod mcp_server;
mod migration;
mod patches;
mod processes;
mod questions;
mod responses;
mod runtime;
mod sandbox;
mod scene;
mod stopping;
mod turns;
