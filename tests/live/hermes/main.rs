//! A real hermes-agent on both sides of Talaria: its API server behind our gateway, and its gateway in front of
//! `talaria serve`. The model is scripted, so every answer is known in full.
//!
//! A binary of its own beside the other live tests, because nothing here needs a homeserver and it builds without the
//! Matrix adapter. The rooms are those of the kill tests: a chat network in the test process that outlives any gateway.
//! `tests/live/parts` installs hermes-agent.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

#[path = "../../it/support"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod it {
    pub mod binary;
    pub mod network;
    pub mod ports;
    pub mod upstream;
}

mod breaks;
mod facts;
mod hermes_process;
mod irc_server;
mod proxy_mode;
mod relaying;
mod runs;
mod scene;
mod scripted_model;
mod wire;
