//! Remembers the patches of items that began: a request for approval names only the item.

use std::collections::VecDeque;

use serde_json::Value;

use crate::agents::codex::patch_summary::PatchSummary;
use crate::agents::sorted_json::{list_field, text_field};

/// Patches that are remembered. Codex works on one at a time; more would be a flood.
const PATCHES: usize = 32;

/// Longest summary that is kept, in bytes. No room shows more in one message.
const SUMMARY_BYTES: usize = 64 * 1024;

/// The patches of a turn, by their items.
#[derive(Clone, Debug, Default)]
pub struct ItemCache {
    /// At most [`PATCHES`], oldest first.
    patches: VecDeque<(String, PatchSummary)>,
}

impl ItemCache {
    /// Takes the item of `item/started`.
    pub fn started(&mut self, item: &Value) {
        if text_field(item, "type") == "fileChange" {
            self.keep(text_field(item, "id"), list_field(item, "changes"));
        }
    }

    /// Takes the parameters of `item/fileChange/patchUpdated`, which replaces a patch.
    pub fn patch_updated(&mut self, params: &Value) {
        self.keep(text_field(params, "itemId"), list_field(params, "changes"));
    }

    /// Forgets the item of `item/completed`.
    pub fn completed(&mut self, item: &Value) {
        let id = text_field(item, "id");
        self.patches.retain(|(known, _)| known != id);
    }

    /// The patch of an item that began and did not end. `None` also for one that nobody could be shown.
    pub(super) fn patch(&self, item_id: &str) -> Option<&PatchSummary> {
        self.patches.iter().find(|(known, _)| known == item_id).map(|(_, patch)| patch)
    }

    fn keep(&mut self, item_id: &str, changes: &[Value]) {
        self.patches.retain(|(known, _)| known != item_id);
        let Some(patch) = PatchSummary::of(changes) else { return };
        if patch.text.len() > SUMMARY_BYTES || item_id.is_empty() || item_id.len() > SUMMARY_BYTES {
            return;
        }
        if self.patches.len() == PATCHES {
            self.patches.pop_front();
        }
        self.patches.push_back((item_id.to_owned(), patch));
    }
}
