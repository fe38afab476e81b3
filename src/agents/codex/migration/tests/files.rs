//! The file itself: links, permissions, somebody else's changes, and nothing left over.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::SystemTime;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A folder for codex that does not exist yet.
struct CodexFolder {
    root: TempDir,
}

impl CodexFolder {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn with(text: &str) -> Self {
        let folder = Self::new();
        fs::create_dir(folder.path()).unwrap();
        fs::write(folder.file(), text).unwrap();
        folder
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("codex")
    }

    fn file(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn mode(&self) -> u32 {
        fs::metadata(self.file()).unwrap().mode() & 0o777
    }

    /// Names of everything in the folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn migrate(&self) -> FinishedMigration {
        self.migrate_with(&mut NoHooks)
    }

    fn migrate_with(&self, hooks: &mut dyn MigrationHooks) -> FinishedMigration {
        migrate_now(&self.path(), &wanting_all(), MigrationMode::Write, hooks)
    }
}

/// Does something at each moment of a migration.
struct FileMeddler<R: FnMut(), B: FnMut()> {
    read: R,
    rename: B,
}

impl<R: FnMut(), B: FnMut()> MigrationHooks for FileMeddler<R, B> {
    fn after_read(&mut self) {
        (self.read)();
    }

    fn before_rename(&mut self) {
        (self.rename)();
    }
}

#[tokio::test]
async fn a_new_file_and_its_folder_are_private_and_nothing_else_is_left() {
    let folder = CodexFolder::new();
    let migration = migrate(folder.path(), wanting_all(), MigrationMode::Write).await;
    assert_eq!(migration.report.outcome, MigrationOutcome::Written, "{:?}", migration.report);
    assert_eq!(folder.text(), format!("{}\n", migration.block));
    assert_eq!((folder.mode(), fs::metadata(folder.path()).unwrap().mode() & 0o777), (0o600, 0o700));
    assert_eq!(folder.names(), ["config.toml"]);

    let inode = fs::metadata(folder.file()).unwrap().ino();
    assert_eq!(folder.migrate().report.outcome, MigrationOutcome::Unchanged);
    assert_eq!(fs::metadata(folder.file()).unwrap().ino(), inode, "not written again");
}

#[test]
fn a_dry_run_touches_nothing_and_tells_all() {
    let folder = CodexFolder::new();
    let dry = migrate_now(&folder.path(), &wanting_all(), MigrationMode::DryRun, &mut NoHooks);
    assert_eq!(dry.report.outcome, MigrationOutcome::Planned);
    assert!(dry.block.contains("[mcp_servers.time]") && !folder.path().exists());

    let folder = CodexFolder::with("model = \"x\"\n[a]\n");
    let dry = migrate_now(&folder.path(), &wanting_all(), MigrationMode::DryRun, &mut NoHooks);
    assert_eq!(
        (folder.text().as_str(), folder.names()),
        ("model = \"x\"\n[a]\n", vec!["config.toml".to_owned()])
    );
    let written = folder.migrate();
    assert_eq!((written.block, written.report.migrated), (dry.block, dry.report.migrated));
}

#[test]
fn permissions_and_links_stay() {
    let folder = CodexFolder::with("model = \"x\"\n");
    let real = folder.root.path().join("dotfiles.toml");
    fs::rename(folder.file(), &real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../dotfiles.toml", folder.file()).unwrap();
    assert_eq!(folder.migrate().report.outcome, MigrationOutcome::Written);
    assert_eq!(fs::read_link(folder.file()).unwrap(), PathBuf::from("../dotfiles.toml"));
    assert!(fs::read_to_string(&real).unwrap().starts_with("model = \"x\"\n# >>> talaria >>>"));
    assert_eq!(folder.mode(), 0o640);

    // A link to a file that is yet to be made.
    fs::remove_file(&real).unwrap();
    assert_eq!(folder.migrate().report.outcome, MigrationOutcome::Written);
    assert!(fs::symlink_metadata(folder.file()).unwrap().is_symlink() && real.exists());
    assert_eq!((folder.mode(), folder.names()), (0o600, vec!["config.toml".to_owned()]));
    let all: Vec<_> = fs::read_dir(folder.root.path()).unwrap().collect();
    assert_eq!(all.len(), 2, "{all:?}");

    fs::remove_file(folder.file()).unwrap();
    symlink("config.toml", folder.file()).unwrap();
    assert_eq!(folder.migrate().report.outcome, MigrationOutcome::Failed);
}

#[test]
fn a_change_that_comes_between_is_kept() {
    let folder = CodexFolder::with("model = \"x\"\n");
    let (mut first, file) = (true, folder.file());
    let read = || {
        if std::mem::take(&mut first) {
            fs::write(&file, "model = \"y\"\n[mcp_servers.time]\ncommand = \"mine\"\n").unwrap();
        }
    };
    let report = folder.migrate_with(&mut FileMeddler { read, rename: || () }).report;
    assert_eq!(
        (report.outcome, report.clashes),
        (MigrationOutcome::Written, vec!["mcp_servers.time".to_owned()])
    );
    assert!(folder.text().starts_with("model = \"y\"\n") && folder.text().ends_with("command = \"mine\"\n"));
    assert_eq!(folder.names(), ["config.toml"]);
}

#[test]
fn a_file_that_comes_between_is_kept() {
    let folder = CodexFolder::new();
    let (mut first, file) = (true, folder.file());
    let read = || {
        if std::mem::take(&mut first) {
            fs::write(&file, "model = \"y\"\n").unwrap();
        }
    };
    folder.migrate_with(&mut FileMeddler { read, rename: || () });
    assert!(folder.text().starts_with("model = \"y\"\n# >>> talaria >>>"), "{}", folder.text());
}

#[test]
fn a_file_that_never_rests_is_given_up() {
    let folder = CodexFolder::with("");
    let (mut count, file) = (0, folder.file());
    let read = || {
        count += 1;
        fs::write(&file, format!("n = {count}\n")).unwrap();
    };
    let report = folder.migrate_with(&mut FileMeddler { read, rename: || () }).report;
    assert_eq!(report.errors, [MigrationError::File(FileProblem::Busy)]);
    assert_eq!((folder.text(), folder.names()), (format!("n = {TRIES}\n"), vec!["config.toml".to_owned()]));
}

#[test]
fn no_temporary_file_is_left_when_the_rename_fails() {
    let folder = CodexFolder::with("model = \"x\"\n");
    let file = folder.file();
    let rename = || {
        fs::remove_file(&file).unwrap();
        fs::create_dir_all(file.join("inside")).unwrap();
    };
    let report = folder.migrate_with(&mut FileMeddler { read: || (), rename }).report;
    assert!(matches!(&*report.errors, [MigrationError::File(FileProblem::Io(_))]), "{report:?}");
    assert_eq!(folder.names(), ["config.toml"]);
    assert!(sentences(&report).contains("the log says why"), "{}", sentences(&report));
}

#[test]
fn files_that_must_not_be_written_stay() {
    let folder = CodexFolder::with("model = \"x\"\n");
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(folder.migrate().report.errors, [MigrationError::File(FileProblem::Protected)]);
    assert_eq!((folder.text().as_str(), folder.names().len()), ("model = \"x\"\n", 1));

    let folder = CodexFolder::with(&"# long\n".repeat(200_000));
    assert_eq!(folder.migrate().report.errors, [MigrationError::File(FileProblem::TooLarge)]);

    let folder = CodexFolder::new();
    fs::create_dir_all(folder.file()).unwrap();
    assert_eq!(folder.migrate().report.errors, [MigrationError::File(FileProblem::NotAFile)]);

    let folder = CodexFolder::new();
    fs::write(folder.path(), "not a folder").unwrap();
    let errors = folder.migrate().report.errors;
    assert!(matches!(&*errors, [MigrationError::File(FileProblem::Io(_))]), "{errors:?}");
}

#[test]
fn temporary_files_of_a_killed_process_are_removed_and_new_ones_are_not() {
    let folder = CodexFolder::with("");
    let [old, new] = ["00", "11"].map(|id| folder.path().join(format!(".config.toml.talaria-{id}.tmp")));
    fs::write(&new, "").unwrap();
    let file = fs::File::create(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(2 * 60 * 60)).unwrap();
    folder.migrate();
    assert_eq!(folder.names(), [".config.toml.talaria-11.tmp", "config.toml"]);
}

#[test]
fn our_tools_server_is_known_only_if_our_part_has_exactly_it() {
    let folder = CodexFolder::new();
    let ours = tools_server();
    assert_eq!(ours.written_args(&folder.path()), None);
    folder.migrate();
    let args = ["mcp", "--without-server=time"].map(str::to_owned);
    assert_eq!(ours.written_args(&folder.path()).as_deref(), Some(args.as_slice()));
    let other = ToolsServer { home: PathBuf::from("/elsewhere"), ..ours.clone() };
    assert_eq!(other.written_args(&folder.path()), None, "the entry of another state folder");

    let text = folder.text();
    for changed in [
        text.replace("/usr/bin/talaria", "/tmp/evil"),
        text.replace("TALARIA_CONFIG", "TALARIA_OTHER"),
        text.replace("\"mcp\"", "\"serve\""),
        text.replace("--without-server=time", "--config=evil"),
        text.replace("mcp_servers.talaria, ", ""),
        text.replace("# <<<", "# <"),
        format!("{text}[mcp_servers.talaria.tools.x]\napproval_mode = \"approve\"\n"),
        removed(&text),
        format!("{}[mcp_servers.talaria]\ncommand = \"/usr/bin/talaria\"\n", removed(&text)),
    ] {
        assert_ne!(changed, text);
        fs::write(folder.file(), &changed).unwrap();
        assert_eq!(ours.written_args(&folder.path()), None, "{changed}");
    }
}

#[test]
fn our_tools_server_is_known_in_codex_effective_configuration() {
    // As codex 0.169 answers `config/read`.
    let answer = |command: &str, args: &[&str], home: &str| {
        let env = json!({ "TALARIA_HOME": home, "TALARIA_CONFIG": "/etc/talaria.yaml" });
        let entry = json!({ "command": command, "args": args, "env": env, "environment_id": "local", "enabled": true });
        json!({ "config": { "mcp_servers": { "talaria": entry } }, "origins": {} })
    };
    let ours = tools_server();
    let args = ["mcp", "--servers=a"];
    let runs = |answer: &Value| ours.is_effective(answer, &args.map(str::to_owned));
    assert!(runs(&answer("/usr/bin/talaria", &args, "/var/lib/talaria")));
    for other in [
        answer("/tmp/evil", &args, "/var/lib/talaria"),
        answer("/usr/bin/talaria", &["mcp"], "/var/lib/talaria"),
        answer("/usr/bin/talaria", &args, "/elsewhere"),
        json!({}),
        json!(null),
    ] {
        assert!(!runs(&other), "{other}");
    }
}
