//! Agents whose turns are done by `codex app-server`, against a [scripted](scripted_peer) one that does what the real one
//! seldom does.

mod bad_peers;
pub mod scripted_peer;
