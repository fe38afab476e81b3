//! What a broken or hostile agent server can send, against the real binary: it must not panic (every test
//! looks for that, see `support::binary`), not hang, not grow, and say the right words.
//!
//! The numbers are those of `spec/reliability.md`, section 2.4. Parsing itself (F25) is compared with a
//! reference in `openai::sse`.

mod bodies;
mod cuts;
mod flood;
mod full_disk;
mod neighbours;
mod numbers;
mod redirects;
mod refusals;
mod silence;
