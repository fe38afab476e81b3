//! Live tests: a Synapse, foreign clients, the binary people run, and a scripted upstream.
//!
//! `tests/live/parts` installs the programs; `tests/run` starts one Synapse for all tests and checks its database at
//! the end. A test that is run by itself starts one of its own. Every test has its own people, bot and rooms.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

#[path = "../it/support"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod it {
    pub mod agent_server;
    pub mod binary;
    pub mod ports;
    pub mod upstream;
}

/// A real hermes-agent and its scripted model.
#[path = "hermes/hermes_process.rs"]
#[allow(dead_code, reason = "the tests of hermes-agent use the rest")]
mod hermes_process;
#[path = "hermes/scripted_model.rs"]
#[allow(dead_code, reason = "the tests of hermes-agent use the rest")]
mod scripted_model;

/// The real codex and its scripted provider.
#[path = "../codex"]
#[allow(dead_code, reason = "the tests of codex use the rest")]
mod codex_parts {
    pub mod codex_home;
    pub mod responses;
}

/// Real ACP agents, and their scripted provider.
#[path = "../acp"]
#[allow(dead_code, reason = "the tests of ACP agents use the rest")]
mod acp_parts {
    pub mod provider;
    pub mod real_agents;
}
use codex_parts::responses;

mod acp;
mod answering;
mod asks;
mod codex;
mod conformance;
mod deleting;
mod hermes_asks;
mod hostile;
mod identity;
mod killing;
mod limits;
mod media;
mod notifying;
mod outage;
mod parts;
mod restarting;
mod rooms;
mod stumbling;
mod support;
mod talking;
mod tools;
mod trusting;
mod verifying;
