//! Agents with tools, between a room and a scripted model server: the loop, its limits, and its transcript.

mod limits;
mod looping;
pub mod support;
mod transcript;
