//! Finds out whether codex lacks a login, without which it answers nothing.

use std::fs;
use std::path::Path;

use toml_edit::Document;

use super::codex_folder;
use crate::agents::codex::binary::{CodexBinary, is_logged_in};
use crate::agents::codex::environment::codex_environment;
use crate::config::CodexConfig;

/// Largest config.toml that is read, in bytes. People write a few kilobytes.
const LARGEST: u64 = 1024 * 1024;

/// Whether codex answers with an account of its own and says that it has no login. Every doubt is a no. Takes a few
/// seconds at most.
pub async fn lacks_login(codex: &CodexConfig, binary: &CodexBinary) -> bool {
    let Some(folder) = codex_folder(codex) else { return false };
    let asked = tokio::task::spawn_blocking(move || has_own_account(&folder)).await;
    asked.unwrap_or(false) && is_logged_in(binary, &codex_environment(codex)).await == Some(false)
}

/// Whether codex answers with its own account, because its configuration names no other provider.
fn has_own_account(folder: &Path) -> bool {
    let text = read_config(folder);
    Document::parse(text.as_str()).is_ok_and(|document| !document.as_table().contains_key("model_provider"))
}

/// The text of codex' config.toml; empty if it cannot be read.
pub fn read_config(folder: &Path) -> String {
    let path = folder.join("config.toml");
    let is_small = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST);
    if is_small { fs::read_to_string(&path).unwrap_or_default() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_of_somebody_else_needs_no_login() {
        let folder = tempfile::tempdir().unwrap();
        assert!(has_own_account(folder.path()));
        for (toml, is_own) in [("model = 'm'", true), ("model_provider = 'mine'", false), ("= x", false)] {
            fs::write(folder.path().join("config.toml"), toml).unwrap();
            assert_eq!(has_own_account(folder.path()), is_own, "{toml}");
        }
    }
}
