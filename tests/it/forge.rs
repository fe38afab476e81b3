//! The forge surface: programs run agents in sessions, over a real socket.

mod acp;
mod admin;
mod bad_peers;
mod files;
mod isolation;
mod many;
mod permissions;
mod races;
mod readme;
mod run;
mod scene;
mod seed_002;
mod seed_cases;
mod sessions;
mod streams;
mod tokens;
mod turns;
