//! Agents with tools, between a room and a scripted model server: the loop, its limits, and its transcript.

mod budget;
mod limits;
mod looping;
mod notes;
mod review;
mod review_elsewhere;
mod secrets;
mod skills;
mod steps;
pub mod support;
mod transcript;
