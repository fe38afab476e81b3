//! Broken and hostile agent servers against the real binary: it must not panic (every test checks that, see
//! `support::binary`), not hang, not grow, and show the right words.
//!
//! The comments number the failures: F19 a refusal (401, 403), F20 a wait (429, 503), F21 a body that is no stream,
//! F22 a redirect, F23 a compressed bomb, F24 an endless line or turn, F25 odd bytes, F26 wrong event ids, F27
//! slowness, F28 a peer that vanished, F29 a stream without its end, F30 a connection that stays open after the end,
//! F45 a full disk. `openai::sse` compares parsing itself (F25) with a reference.

mod bodies;
mod cuts;
mod flood;
mod full_disk;
mod neighbours;
mod numbers;
mod redirects;
mod refusals;
mod silence;
