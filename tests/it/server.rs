//! The agent server: what a program gets over a real socket.

mod chat;
mod responses;
