//! Behaviour tests: one file per behaviour; they assert what the room shows.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

mod acp;
#[cfg(feature = "testing")]
mod ask;
mod catalogue;
mod codex;
mod command_line;
mod console;
#[cfg(feature = "testing")]
mod control;
#[cfg(feature = "testing")]
mod forge;
mod hostile;
#[cfg(feature = "testing")]
mod kill;
mod layers;
#[cfg(feature = "matrix")]
mod matrix_config;
mod mcp;
mod piping;
mod processes;
mod proxy;
mod retention;
#[cfg(feature = "testing")]
mod scenes;
mod seeds;
#[cfg(feature = "testing")]
mod server;
mod serving;
mod support;
#[cfg(feature = "testing")]
mod tools;
#[cfg(feature = "testing")]
mod upgrade;
