//! The agent server: what a program gets over a real socket.

mod chat;
mod metrics;
mod openapi;
mod responses;
