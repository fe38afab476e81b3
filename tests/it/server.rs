//! The agent server: what a program gets over a real socket.

mod abandoned;
mod approvals;
mod chat;
mod denied;
mod door;
mod drain;
mod events;
mod hostile;
mod instructions;
mod isolation;
mod keys;
mod long;
mod metrics;
mod openapi;
mod paused;
mod readers;
mod responses;
mod resume;
mod revoking;
mod runs;
mod secrets;
mod sessions;
mod sessions_gone;
mod sessions_rooms;
mod sessions_seed;
mod sessions_stream;
