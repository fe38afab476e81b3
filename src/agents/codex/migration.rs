//! Migrates settings of ours into codex' config.toml: MCP servers, our own tools server, plugins and the permission
//! profile.
//!
//! codex reads only its own file, and so does the codex that the user runs in a terminal. So we write as little as
//! possible, between two markers; the user's bytes around them stay, and the user's keys win over ours. The new file
//! is parsed before it is written and must have exactly the user's values and ours. A failure is reported and stops
//! nothing: the runtime works without the migration.

mod codex_home;
mod config_file;
mod entry_name;
mod managed_block;
mod plain_value;
mod plan;
mod plugins;
mod report;
mod server_table;
mod statements;
#[cfg(test)]
mod tests;
mod tools_server;
mod user_keys;
mod wanted;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{info, warn};

pub use codex_home::find_codex_home;
pub use config_file::FileProblem;
pub use entry_name::EntryName;
pub use managed_block::BlockFault;
pub use plan::MigrationPlan;
pub use plugins::PluginListing;
pub use report::{MigrationError, MigrationOutcome, MigrationReport, SkipReason};
pub use tools_server::{TOOLS_SERVER, ToolsServer};
pub use wanted::{DEFAULT_PROFILE, MigratedAgent, PluginChoice, WantedEntries};

use config_file::{ConfigFile, ReplaceOutcome, make_folder};
use managed_block::split_file;

/// Times that the file is read again because somebody changed it meanwhile. Two programs that write at once are done
/// after one of them; more is a program that writes without end.
const TRIES: usize = 5;

/// Time limit of a migration. It reads and writes a few kilobytes; only a network disk that is away takes longer. With
/// the other steps of `/codex-runtime on` it stays below the limit of that command.
const DEADLINE: Duration = Duration::from_secs(5);

/// Whether the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationMode {
    /// Write it.
    Write,
    /// Only tell what would be written.
    DryRun,
}

/// A finished migration.
#[derive(Clone, Debug)]
pub struct FinishedMigration {
    /// Our part of the file, with its markers; empty if there is none.
    pub block: String,
    /// The result for each wanted entry.
    pub report: MigrationReport,
}

/// Writes the wanted entries into the config.toml of this folder, which is made if it is missing. Never fails: problems
/// are in the report and in the log. A write that is late may still happen afterwards.
pub async fn migrate(folder: PathBuf, wanted: WantedEntries, mode: MigrationMode) -> FinishedMigration {
    let work = tokio::task::spawn_blocking(move || migrate_now(&folder, &wanted, mode, &mut NoHooks));
    let migration = match tokio::time::timeout(DEADLINE, work).await {
        Ok(Ok(migration)) => migration,
        Ok(Err(_)) => failed(MigrationError::Unsafe),
        Err(_) => failed(MigrationError::Late),
    };
    let report = &migration.report;
    for error in &report.errors {
        warn!(?error, "codex' config.toml was left as it is");
    }
    info!(outcome = ?report.outcome, entries = report.migrated.len(), "migrated settings to codex' config.toml");
    migration
}

/// Whether this folder's config.toml has no part of ours, and would have one after a migration.
pub async fn is_unmigrated(folder: PathBuf, wanted: WantedEntries) -> bool {
    let look = tokio::task::spawn_blocking(move || {
        let file = ConfigFile::read(&folder).ok()?;
        let split = split_file(str::from_utf8(&file.bytes).ok()?).ok()?;
        let plan = MigrationPlan::make(&file.bytes, &wanted);
        Some(split.block.entries.is_empty() && !plan.block.is_empty())
    });
    matches!(tokio::time::timeout(DEADLINE, look).await, Ok(Ok(Some(true))))
}

/// Moments of a migration at which a test changes the file.
trait MigrationHooks {
    /// After each read.
    fn after_read(&mut self) {}
    /// Between the last look at the file and the rename.
    fn before_rename(&mut self) {}
}

/// Lets a migration run by itself.
struct NoHooks;

impl MigrationHooks for NoHooks {}

fn migrate_now(
    folder: &Path,
    wanted: &WantedEntries,
    mode: MigrationMode,
    hooks: &mut dyn MigrationHooks,
) -> FinishedMigration {
    let mut attempt = || -> Result<FinishedMigration, FileProblem> {
        if mode == MigrationMode::Write {
            // codex does not start without it either.
            make_folder(folder)?;
        }
        for _ in 0..TRIES {
            let file = ConfigFile::read(folder)?;
            hooks.after_read();
            let MigrationPlan { bytes, block, mut report } = MigrationPlan::make(&file.bytes, wanted);
            let is_planned = report.outcome == MigrationOutcome::Planned;
            if !is_planned || mode == MigrationMode::DryRun {
                return Ok(FinishedMigration { block, report });
            }
            match file.replace(&bytes, &mut || hooks.before_rename())? {
                ReplaceOutcome::Done => {
                    report.outcome = MigrationOutcome::Written;
                    return Ok(FinishedMigration { block, report });
                }
                ReplaceOutcome::Changed => {}
            }
        }
        Err(FileProblem::Busy)
    };
    attempt().unwrap_or_else(|problem| failed(MigrationError::File(problem)))
}

fn failed(error: MigrationError) -> FinishedMigration {
    FinishedMigration { block: String::new(), report: MigrationReport::failed(error) }
}
