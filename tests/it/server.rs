//! The agent server: what a program gets over a real socket.

mod chat;
mod door;
mod hostile;
mod isolation;
mod keys;
mod metrics;
mod openapi;
mod responses;
mod revoking;
mod secrets;
