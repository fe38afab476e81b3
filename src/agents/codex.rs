//! The codex runtime: turns that a `codex app-server` process answers.

pub mod migration;
