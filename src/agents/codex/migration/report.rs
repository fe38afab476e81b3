//! The result of a migration: the data, and the sentences for the person who asked for it.

use std::collections::BTreeMap;

use super::config_file::FileProblem;
use super::entry_name::EntryName;
use super::managed_block::BlockFault;
use crate::i18n::{LocalizedText, TextKey};
use crate::util::code_span;

/// Longest name in a sentence.
const LONGEST_NAME: usize = 80;

/// Names in one sentence. More are counted.
const MOST_NAMES: usize = 20;

/// Result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// Whether the file was written.
    pub outcome: MigrationOutcome,
    /// Entries of ours that the file has now, or would have.
    pub migrated: Vec<EntryName>,
    /// Keys of the user's that stand in the place of ours.
    pub clashes: Vec<String>,
    /// Servers that codex does not get, each with the reason.
    pub skipped_servers: BTreeMap<String, SkipReason>,
    /// Keys of migrated servers that codex has no place for.
    pub skipped_keys: BTreeMap<String, Vec<String>>,
    /// Installed plugins that are not migrated.
    pub skipped_plugins: Vec<String>,
    /// A permission profile that codex would not know.
    pub unknown_profile: Option<String>,
    /// Variables that migrated servers take from codex' environment.
    pub variables: BTreeMap<String, Vec<String>>,
    /// Keys of the user's that stood between our markers, or in our last table behind them, and were moved out.
    pub moved: Vec<String>,
    /// Reasons to leave the file as it is.
    pub errors: Vec<MigrationError>,
}

/// Effect of a migration on the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationOutcome {
    /// The file was left as it is, because of an error.
    #[default]
    Failed,
    /// The file has all that already.
    Unchanged,
    /// The file was written.
    Written,
    /// The file would be written; the caller asked for no more.
    Planned,
}

/// Reason to keep a server out of config.toml. Names the key of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The key takes a variable with another name, and codex passes variables on only under their own.
    Renamed(String),
    /// The key is put together from a variable and other text.
    Composed(String),
    /// The key holds a secret, which must not be in a second file.
    SecretLiteral(String),
    /// codex gets no variable of this name, and an agent of kind `codex` could pass it on.
    Unpassed(String),
    /// codex gets no variable of this name, and only models that were switched would use the server.
    UnpassedSwitched(String),
    /// No tool is offered.
    NoTools,
    /// The name is that of our own tools server.
    ReservedName,
    /// A path is not valid text.
    OddPath,
}

/// Reason to leave the file as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationError {
    /// The file is not UTF-8.
    NotText,
    /// The file is no TOML, in this line.
    NotToml(usize),
    /// The markers or the text between them have a fault.
    Block(BlockFault),
    /// The user's file has this server without an address or a program, so codex needs our entry that it hides.
    Incomplete(String),
    /// The new file would not have exactly the user's values and ours.
    Unsafe,
    /// The file cannot be read or written.
    File(FileProblem),
    /// The disk took too long.
    Late,
}

impl MigrationReport {
    /// A report about a file that was left as it is.
    pub(super) fn failed(error: MigrationError) -> Self {
        Self { errors: vec![error], ..Self::default() }
    }

    /// Sentences for the person who asked, most important first. They hold no path and no value.
    pub fn lines(&self) -> Vec<LocalizedText> {
        let mut lines: Vec<LocalizedText> = self.errors.iter().map(error_line).collect();
        let list = |names: &[String]| LocalizedText::from(listed(names));
        let entries: Vec<_> = self.migrated.iter().map(EntryName::to_string).collect();
        match (self.outcome, entries.is_empty()) {
            (MigrationOutcome::Failed, _) => return lines,
            (_, true) => lines.push(TextKey::CodexTomlNothing.into()),
            (MigrationOutcome::Unchanged, false) => {
                lines.push(TextKey::CodexTomlHas.with("list", list(&entries)))
            }
            (MigrationOutcome::Written, false) => {
                lines.push(TextKey::CodexTomlWritten.with("list", list(&entries)));
            }
            (MigrationOutcome::Planned, false) => {
                lines.push(TextKey::CodexTomlPlanned.with("list", list(&entries)));
            }
        }
        if !self.clashes.is_empty() {
            lines.push(TextKey::CodexTomlClashes.with("list", list(&self.clashes)));
        }
        if !self.moved.is_empty() {
            lines.push(TextKey::CodexTomlMoved.with("list", list(&self.moved)));
        }
        for (server, reason) in &self.skipped_servers {
            let why = skip_text(reason);
            lines.push(TextKey::CodexTomlSkipped.with("server", shown_name(server)).with("why", why));
        }
        for (server, keys) in &self.skipped_keys {
            lines.push(TextKey::CodexTomlNoPlace.with("server", shown_name(server)).with("list", list(keys)));
        }
        if let Some(profile) = &self.unknown_profile {
            lines.push(TextKey::CodexTomlProfile.with("profile", shown_name(profile)));
        }
        for (server, variables) in &self.variables {
            let line = TextKey::CodexTomlVariables.with("server", shown_name(server));
            lines.push(line.with("list", list(variables)));
        }
        if !self.skipped_plugins.is_empty() {
            lines.push(TextKey::CodexTomlPlugins.with("list", list(&self.skipped_plugins)));
        }
        lines
    }
}

fn error_line(error: &MigrationError) -> LocalizedText {
    let why: LocalizedText = match error {
        MigrationError::NotText => TextKey::WhyTomlNotText.into(),
        MigrationError::NotToml(line) => TextKey::WhyTomlUnreadable.with("line", *line),
        MigrationError::Block(BlockFault::Unpaired) => TextKey::WhyTomlUnpaired.into(),
        MigrationError::Block(BlockFault::Repeated) => TextKey::WhyTomlRepeated.into(),
        MigrationError::Block(BlockFault::Damaged) => TextKey::WhyTomlDamaged.into(),
        MigrationError::Incomplete(server) => TextKey::WhyTomlIncomplete.with("server", shown_name(server)),
        MigrationError::Unsafe => TextKey::WhyTomlUnsafe.into(),
        MigrationError::File(FileProblem::TooLarge) => TextKey::WhyTomlLarge.into(),
        MigrationError::File(FileProblem::NotAFile) => TextKey::WhyTomlNoFile.into(),
        MigrationError::File(FileProblem::Protected) => TextKey::WhyTomlProtected.into(),
        MigrationError::File(FileProblem::Owner) => TextKey::WhyTomlOwner.into(),
        MigrationError::File(FileProblem::Busy) => TextKey::WhyTomlBusy.into(),
        MigrationError::File(FileProblem::Io(_)) => TextKey::WhyTomlDisk.into(),
        MigrationError::Late => TextKey::WhyTomlLate.into(),
    };
    TextKey::CodexTomlLeft.with("why", why)
}

fn skip_text(reason: &SkipReason) -> LocalizedText {
    match reason {
        SkipReason::Renamed(key) => TextKey::WhySkippedRenamed.with("key", shown_name(key)),
        SkipReason::Composed(key) => TextKey::WhySkippedComposed.with("key", shown_name(key)),
        SkipReason::SecretLiteral(key) => TextKey::WhySkippedSecret.with("key", shown_name(key)),
        SkipReason::Unpassed(name) => TextKey::WhySkippedVariable.with("variable", shown_name(name)),
        SkipReason::UnpassedSwitched(name) => {
            TextKey::WhySkippedVariableSwitched.with("variable", shown_name(name))
        }
        SkipReason::NoTools => TextKey::WhySkippedNoTools.into(),
        SkipReason::ReservedName => TextKey::WhySkippedReserved.into(),
        SkipReason::OddPath => TextKey::WhySkippedOddPath.into(),
    }
}

/// A name in a sentence. Names of the user's file and of plugins can be anything.
fn shown_name(name: &str) -> String {
    code_span(name, LONGEST_NAME)
}

fn listed(names: &[String]) -> String {
    let mut shown: Vec<_> = names.iter().take(MOST_NAMES).map(|text| shown_name(text)).collect();
    if names.len() > MOST_NAMES {
        shown.push(format!("+{}", names.len() - MOST_NAMES));
    }
    shown.join(", ")
}
