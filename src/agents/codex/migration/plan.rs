//! Makes the new config.toml from the old one. Pure: bytes in, bytes and a report out.

use std::collections::BTreeSet;

use toml_edit::{Document, DocumentMut, Item, Table};

use super::entry_name::{EntryName, PLUGINS_KEY, PROFILE_KEY, SERVERS_KEY};
use super::managed_block::{BlockFault, SplitFile, join_file, render_block, split_file};
use super::plain_value::{plain_table, unite};
use super::report::{MigrationError, MigrationOutcome, MigrationReport, SkipReason};
use super::server_table::{ServerTable, server_table, text_value};
use super::tools_server::{TOOLS_SERVER, ToolsServer};
use super::user_keys::UserKeys;
use super::wanted::{BUILT_IN_PROFILES, PluginChoice, WantedEntries};
use crate::config::McpServerConfig;

/// A migration that nobody has written yet.
#[derive(Clone, Debug)]
pub struct MigrationPlan {
    /// The whole file; the old bytes if it must stay as it is.
    pub bytes: Vec<u8>,
    /// Our part of it, with its markers; empty if there is none.
    pub block: String,
    /// The outcome is `Failed`, `Unchanged` or `Planned`.
    pub report: MigrationReport,
}

impl MigrationPlan {
    /// Plans the file that has all wanted entries that it can have.
    pub fn make(old: &[u8], wanted: &WantedEntries) -> Self {
        Self::try_make(old, wanted).unwrap_or_else(|error| Self {
            bytes: old.to_vec(),
            block: String::new(),
            report: MigrationReport::failed(error),
        })
    }

    fn try_make(old: &[u8], wanted: &WantedEntries) -> Result<Self, MigrationError> {
        let text = str::from_utf8(old).map_err(|_| MigrationError::NotText)?;
        let SplitFile { rest, behind, block: old_block } = match split_file(text) {
            Ok(split) => split,
            Err(BlockFault::Damaged) => return Err(MigrationError::Block(BlockFault::Damaged)),
            Err(fault) => {
                // A marker of text that is no TOML may be none.
                parse(text)?;
                return Err(MigrationError::Block(fault));
            }
        };
        let user_text = join_file(&rest, &old_block.moved, None);
        let theirs = parse(&user_text)?;
        let keys = UserKeys::of(&theirs);
        check_completeness(&keys, &old_block.entries, wanted)?;

        let moved = [old_block.moved.names.as_slice(), &behind].concat();
        let mut report = MigrationReport { moved, ..MigrationReport::default() };
        let ours = OwnEntries::collect(wanted, &old_block.entries, &keys, &mut report);
        let block = (!ours.names.is_empty()).then(|| render_block(&ours.names, &ours.document.to_string()));
        let new = join_file(&rest, &old_block.moved, block.as_deref());

        let found = parse(&new).map_err(|_| MigrationError::Unsafe)?;
        let expected = unite(&plain_table(theirs.as_table()), &plain_table(ours.document.as_table()));
        let is_found_again =
            split_file(&new).is_ok_and(|split| split.rest == user_text && split.block.entries == ours.names);
        if expected != Some(plain_table(found.as_table())) || !is_found_again {
            return Err(MigrationError::Unsafe);
        }
        report.outcome = match new.as_bytes() == old {
            true => MigrationOutcome::Unchanged,
            false => MigrationOutcome::Planned,
        };
        report.migrated = ours.names.into_iter().collect();
        Ok(Self { bytes: new.into_bytes(), block: block.unwrap_or_default(), report })
    }
}

/// Parses a file, or says in which line it is no TOML.
fn parse(text: &str) -> Result<Document<String>, MigrationError> {
    Document::parse(text.to_owned()).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        MigrationError::NotToml(1 + before.matches('\n').count())
    })
}

/// Refuses a file in which the user completes an entry of ours: without ours codex does not start, and with it the
/// server would be neither theirs nor ours.
fn check_completeness(
    keys: &UserKeys<'_>,
    old: &BTreeSet<EntryName>,
    wanted: &WantedEntries,
) -> Result<(), MigrationError> {
    let before = old.iter().filter_map(|name| match name {
        EntryName::Server(name) => Some(name.as_str()),
        EntryName::Profile | EntryName::Plugin(_) => None,
    });
    let tools = wanted.tools_server.iter().map(|_| TOOLS_SERVER);
    let mut names = wanted.servers.keys().map(String::as_str).chain(before).chain(tools);
    match names.find(|name| keys.is_incomplete(name)) {
        Some(name) => Err(MigrationError::Incomplete(name.to_owned())),
        None => Ok(()),
    }
}

/// The table of a server, or why codex does not get it.
fn translated(
    name: &str,
    config: &McpServerConfig,
    wanted: &WantedEntries,
) -> Result<ServerTable, SkipReason> {
    if name == TOOLS_SERVER && wanted.tools_server.is_some() {
        return Err(SkipReason::ReservedName);
    }
    let table = server_table(config)?;
    wanted.out_of_reach.get(name).map_or(Ok(table), |reason| Err(reason.clone()))
}

/// The entries of our part.
struct OwnEntries {
    names: BTreeSet<EntryName>,
    document: DocumentMut,
}

impl OwnEntries {
    /// Takes the wanted entries that the user's file leaves room for, and reports the others.
    fn collect(
        wanted: &WantedEntries,
        old: &BTreeSet<EntryName>,
        keys: &UserKeys<'_>,
        report: &mut MigrationReport,
    ) -> Self {
        let mut ours = Self { names: BTreeSet::new(), document: DocumentMut::new() };
        if let Some(profile) = &wanted.profile {
            if !BUILT_IN_PROFILES.contains(&profile.as_str()) && !keys.has_profile(profile) {
                report.unknown_profile = Some(profile.clone());
            } else if ours.has_room(EntryName::Profile, keys, report) {
                ours.document[PROFILE_KEY] = text_value(profile).into();
            }
        }
        let mut servers: Vec<(&str, ServerTable)> = Vec::new();
        for (name, config) in &wanted.servers {
            match translated(name, config, wanted) {
                Ok(server) => servers.push((name, server)),
                Err(reason) => _ = report.skipped_servers.insert(name.clone(), reason),
            }
        }
        // The first of the servers, so that people find it.
        if let Some(tools_server) = &wanted.tools_server {
            let has_room = |name: &&str| keys.clash(&EntryName::Server((*name).to_owned())).is_none();
            let migrated: Vec<&str> = servers.iter().map(|(name, _)| *name).filter(has_room).collect();
            match tools_server.table(&ToolsServer::args(&wanted.offered, &migrated)) {
                Ok(table) => ours.insert(EntryName::Server(TOOLS_SERVER.to_owned()), table, keys, report),
                Err(reason) => _ = report.skipped_servers.insert(TOOLS_SERVER.to_owned(), reason),
            }
        }
        for (name, server) in servers {
            let entry = EntryName::Server(name.to_owned());
            ours.insert(entry.clone(), server.table, keys, report);
            if ours.names.contains(&entry) {
                let variables = server.variables.into_iter().collect();
                let lists = [(&mut report.skipped_keys, server.skipped), (&mut report.variables, variables)];
                for (place, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
                    place.insert(name.to_owned(), list);
                }
            }
        }
        ours.insert_plugins(wanted, old, keys, report);
        ours
    }

    fn insert_plugins(
        &mut self,
        wanted: &WantedEntries,
        old: &BTreeSet<EntryName>,
        keys: &UserKeys<'_>,
        report: &mut MigrationReport,
    ) {
        let plugins: Vec<EntryName> = match &wanted.plugins {
            PluginChoice::Off => Vec::new(),
            PluginChoice::Listed(listing) => {
                report.skipped_plugins.clone_from(&listing.others);
                listing.curated.iter().cloned().map(EntryName::Plugin).collect()
            }
            PluginChoice::Unknown => {
                old.iter().filter(|entry| matches!(entry, EntryName::Plugin(_))).cloned().collect()
            }
        };
        for plugin in plugins {
            let mut table = Table::new();
            table["enabled"] = toml_edit::value(true);
            self.insert(plugin, table, keys, report);
        }
    }

    /// Adds the table of an entry, unless the user has it.
    fn insert(&mut self, entry: EntryName, table: Table, keys: &UserKeys<'_>, report: &mut MigrationReport) {
        let (parent, name) = match &entry {
            EntryName::Profile => return,
            EntryName::Server(name) => (SERVERS_KEY, name.clone()),
            EntryName::Plugin(name) => (PLUGINS_KEY, name.clone()),
        };
        if self.has_room(entry, keys, report) {
            let mut empty = Table::new();
            // Without a header of its own: the user's file may have that.
            empty.set_implicit(true);
            let parent = self.document.entry(parent).or_insert(Item::Table(empty));
            parent[name.as_str()] = Item::Table(table);
        }
    }

    /// Notes an entry, or the user's key that stands in its place.
    fn has_room(&mut self, entry: EntryName, keys: &UserKeys<'_>, report: &mut MigrationReport) -> bool {
        match keys.clash(&entry) {
            Some(clash) => {
                if !report.clashes.contains(&clash) {
                    report.clashes.push(clash);
                }
                false
            }
            None => self.names.insert(entry),
        }
    }
}
