//! The chat-completions protocol: how its streams are framed and what its messages look like.
//!
//! Used from both ends: the proxy and the local agent read what a server sends, and our own server
//! speaks the same words. [`sse`] and [`wire`] are pure; [`client`] and [`read`] do the I/O, and [`fault`]
//! says what a failure means.

pub mod client;
pub mod fault;
pub mod read;
pub mod sse;
pub mod wire;
