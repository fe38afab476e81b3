//! Helpers of the tests: gateways, rooms, agents, servers and clients.
#![allow(dead_code, reason = "each helper is used by some of the test files")]

#[cfg(feature = "testing")]
pub mod agent_server;
pub mod binary;
pub mod fake_codex;
#[cfg(feature = "testing")]
pub mod gateway;
pub mod literals;
pub mod logged;
pub mod mcp;
#[cfg(feature = "testing")]
pub mod network;
#[cfg(feature = "testing")]
pub mod operator;
pub mod person;
#[cfg(feature = "testing")]
pub mod ports;
pub mod raw;
#[cfg(feature = "testing")]
pub mod relay;
#[cfg(feature = "testing")]
pub mod room;
#[cfg(feature = "testing")]
pub mod scripted;
pub mod scripted_process;
#[cfg(feature = "testing")]
pub mod served;
#[cfg(feature = "testing")]
pub mod stream;
pub mod terminal;
pub mod upstream;
