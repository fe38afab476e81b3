//! Agents whose turns are done by `codex app-server`, against a [scripted](scripted_peer) one that does what the real one
//! seldom does.

mod asking;
pub mod bad_peers;
mod deadline;
mod foreign_turns;
mod log_lines;
mod ours;
mod own_server;
mod scene;
pub mod scripted_peer;
mod seed_003;
mod stopping;
mod threads;
mod transcript;
mod turns;
