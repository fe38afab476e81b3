//! Agents with tools, between a room and a scripted model server: the loop, its limits, and its transcript.

mod after_codex;
mod budget;
mod commands;
mod limits;
mod looping;
mod mcp;
mod notes;
mod plain;
mod review;
mod review_elsewhere;
mod secrets;
mod skills;
mod steps;
mod stopping;
pub mod support;
mod terminal;
mod transcript;
