//! Keys that the user's own part of config.toml has. They win over ours.

use toml_edit::{Document, Item, TableLike};

use super::entry_name::{EntryName, PLUGINS_KEY, PROFILE_KEY, SERVERS_KEY};

/// Root keys that decide about permissions. With a default profile codex ignores the other two, so a user who set one
/// would silently get other permissions.
const PERMISSION_KEYS: [&str; 3] = [PROFILE_KEY, "sandbox_mode", "sandbox_workspace_write"];

/// The user's own keys. toml_edit has read them, so every spelling counts: headers, dotted keys, inline tables, quotes.
pub(super) struct UserKeys<'a> {
    document: &'a Document<String>,
}

impl<'a> UserKeys<'a> {
    pub(super) fn of(document: &'a Document<String>) -> Self {
        Self { document }
    }

    /// The user's key that stands in the way of an entry of ours.
    pub(super) fn clash(&self, entry: &EntryName) -> Option<String> {
        match entry {
            EntryName::Profile => {
                let mut keys = PERMISSION_KEYS.iter().copied();
                keys.find(|key| self.document.as_table().contains_key(key)).map(str::to_owned)
            }
            EntryName::Server(name) => self.clash_in(SERVERS_KEY, name, entry),
            EntryName::Plugin(name) => self.clash_in(PLUGINS_KEY, name, entry),
        }
    }

    fn clash_in(&self, table: &str, name: &str, entry: &EntryName) -> Option<String> {
        match self.document.as_table().get(table)? {
            Item::Table(entries) => entries.contains_key(name).then(|| entry.to_string()),
            // Nothing can be added to a table in braces from outside of them, nor to something that is no table.
            Item::Value(_) | Item::ArrayOfTables(_) | Item::None => Some(table.to_owned()),
        }
    }

    /// Whether the user's file says something about a server, but not how to reach it. codex does not start with such a
    /// file unless our entry completes it.
    pub(super) fn is_incomplete(&self, server: &str) -> bool {
        let servers = self.document.as_table().get(SERVERS_KEY).and_then(Item::as_table_like);
        let entry = servers.and_then(|servers| servers.get(server)).and_then(Item::as_table_like);
        entry.is_some_and(|entry: &dyn TableLike| {
            !["command", "url"].iter().any(|key| entry.contains_key(key))
        })
    }

    /// Whether the user defined a permission profile with this name.
    pub(super) fn has_profile(&self, name: &str) -> bool {
        let profiles = self.document.as_table().get("permissions").and_then(Item::as_table_like);
        profiles.is_some_and(|profiles| profiles.contains_key(name))
    }
}
