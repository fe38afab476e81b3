//! The chat-completions protocol: framing of its streams, and its messages.
//!
//! Used from both ends: the proxy and the local agent read what a server sends, and our own server writes the
//! same messages. [`sse`] and [`wire`] are pure; [`client`], [`event_stream`] and [`stream_reader`] do the I/O, and [`error`]
//! says what a failure means.

pub mod client;
pub mod error;
pub mod event_stream;
pub mod hashed_text;
pub mod sse;
pub mod stream_reader;
pub mod wire;
