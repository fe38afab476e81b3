//! Foreign clients against the binary people run, with a scripted model behind it: OpenAI's own packages for Python
//! and Node.js, other packages for the same protocol, and schemathesis, which makes any request that the OpenAPI
//! document permits.
//!
//! `tests/sdk/parts` installs them; those in `full` only for `tests/run full`. The clients in `clients/` assert what
//! they see; the tests here assert the requests that the model got.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]

#[path = "../it/support"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod it {
    pub mod binary;
    pub mod mcp;
    pub mod person;
    pub mod upstream;
}

mod every_client;
mod full;
mod mcp;
mod parts;
mod scenes;
mod schemathesis;
mod served;
mod tap;
