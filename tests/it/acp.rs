//! Agents of kind `acp`, against a [scripted](scripted_agent) one that does what real ones seldom do.

mod asking;
mod bad_peers;
mod files;
mod forge_turns;
mod pool;
mod scene;
pub mod scripted_agent;
mod sessions;
mod status;
mod stopping;
mod turns;
