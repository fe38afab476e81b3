//! Small helpers without a domain of their own: text, hashes, random values, dates. Nothing here knows rooms or agents.

mod calendar;
mod escape;
mod file_kind;
mod hash;
mod random;
mod remove_folder;
mod secret_words;

pub use calendar::UtcTime;
pub use escape::{code_block, code_span, fenced, terminal_text, visible_line, visible_text};
pub use file_kind::FileKind;
pub use hash::{hash, hex};
pub use random::{CODE_ALPHABET, random_bytes, random_code, random_hex, this_process};
pub use remove_folder::{remove_folder, remove_folder_in};
pub use secret_words::mask_secrets;
pub use talaria_platform::{clip, one_line};
