//! Reads configuration: the file with its lines, the environment, secrets, and the values that have a form of their own.
//!
//! The core reads the whole file with these modules, and each [`PlatformKind`](crate::PlatformKind) reads its own
//! entries with [`EntryReader`]. Both therefore refuse a wrong value in the same words, with its line and a hint.

pub mod document;
mod entry;
pub mod env;
mod error;
pub mod secret;
pub mod secret_sources;
pub mod setting;
pub mod suggest;
pub mod url;
pub mod value;
pub mod yaml_error;
pub mod yaml_lines;

pub use entry::{EntryReader, NETWORK_KEYS};
pub use env::{EnvVar, VarCategory};
pub use error::ConfigError;
pub use secret::{Secret, SecretForm};
pub use setting::GivenValue;
pub use url::BaseUrl;
