//! Opens the database: checks first, writes afterwards.
//!
//! A file that is damaged, newer than this program, another program's, or in use is refused with a sentence that says
//! what to do, and is left as it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::maintenance::BUSY;
use super::schema::{APPLICATION_ID, MIGRATIONS};

/// Value of `PRAGMA auto_vacuum` for a file whose free pages can be given back step by step.
const INCREMENTAL: i64 = 2;

/// Free space in bytes that a conversion leaves untouched.
const RESERVE: u64 = 64 * 1024 * 1024;

/// Why the database was not opened. Each message is one sentence; [`OpenError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error("the database {} is damaged ({detail}); it was left as it is", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error(
        "the database {} was written by a newer talaria (schema {found}, this one knows {known}); it was left as it is",
        path.display()
    )]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("{} is a database of another program; it was left as it is", path.display())]
    Foreign { path: PathBuf },
    #[error("the database {} is locked by another program", path.display())]
    Locked { path: PathBuf },
    #[error("the database {} cannot be opened: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the database {} cannot be opened: {source}", path.display())]
    Other { path: PathBuf, source: rusqlite::Error },
    #[error("no thread for the store: {0}")]
    Thread(io::Error),
}

impl OpenError {
    /// The next step, for people.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => {
                "restore it from a backup, or move it away to begin anew (conversations start empty)"
            }
            Self::Newer { .. } => {
                "install the newer talaria again, or restore the backup from before the upgrade"
            }
            Self::Foreign { .. } => "point TALARIA_HOME at a folder of its own",
            Self::Locked { .. } => "close the other program (`fuser` names it) and start again",
            Self::Io { .. } | Self::Other { .. } => "check the folder's owner, its rights and the free space",
            Self::Thread(_) => "check the limits on processes and threads",
        }
    }
}

/// Opens the connection that writes and the one that reads.
pub fn open(path: &Path) -> Result<(Connection, Connection), OpenError> {
    let other = |source: rusqlite::Error| classify(path, source);
    create_private(path)?;
    prove(path)?;

    let writing = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(other)?;
    writing.busy_timeout(BUSY).map_err(other)?;
    writing.set_prepared_statement_cache_capacity(64);
    // `auto_vacuum` is first: it can be chosen only while the file is empty. `secure_delete` overwrites deleted rows,
    // in the file at once and in the log with the next checkpoint.
    writing
        .execute_batch(
            "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 4194304;
             PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF;",
        )
        .map_err(other)?;
    migrate(&writing).map_err(other)?;
    make_shrinkable(&writing, path).map_err(other)?;

    let reading = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(other)?;
    reading.busy_timeout(BUSY).map_err(other)?;
    // The second pragma also keeps this connection from ever checkpointing.
    reading.execute_batch("PRAGMA query_only = ON; PRAGMA wal_autocheckpoint = 0;").map_err(other)?;
    Ok((writing, reading))
}

/// Makes sure that the file exists. A new file is readable only by its owner, under any umask.
fn create_private(path: &Path) -> Result<File, OpenError> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| OpenError::Io { path: path.into(), source })
}

/// Checks without writing that the file is ours, intact, and of a version that we know.
fn prove(path: &Path) -> Result<(), OpenError> {
    match prove_by(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
        // A process died in the middle of a change, before there was a write-ahead log: our own process can do so only
        // while it creates the database. The half-done change must be undone before anything can be read.
        Err(OpenError::Other { source, .. }) if is_half_done(&source) => {
            prove_by(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        }
        proven => proven,
    }
}

pub(super) fn is_half_done(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
}

fn prove_by(path: &Path, flags: OpenFlags) -> Result<(), OpenError> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0) {
        return Ok(());
    }
    let conn = Connection::open_with_flags(path, flags).map_err(|source| classify(path, source))?;
    prove_on(&conn, path)
}

/// Checks on an open connection that the database is ours, intact, and of a version that we know.
pub(super) fn prove_on(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let other = |source: rusqlite::Error| classify(path, source);
    conn.busy_timeout(BUSY).map_err(other)?;
    let number = |pragma: &str| conn.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(other);

    let id = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    if id != i64::from(APPLICATION_ID) {
        // A process that died before its first migration leaves an empty database without our mark.
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        return if tables == 0 && id == 0 { Ok(()) } else { Err(OpenError::Foreign { path: path.into() }) };
    }
    let found = usize::try_from(version).unwrap_or(usize::MAX);
    if found > MIGRATIONS.len() {
        return Err(OpenError::Newer { path: path.into(), found, known: MIGRATIONS.len() });
    }
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(other)?;
    if verdict != "ok" {
        return Err(OpenError::Damaged { path: path.into(), detail: verdict });
    }
    Ok(())
}

fn migrate(conn: &Connection) -> rusqlite::Result<()> {
    let version: usize = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        conn.execute_batch(&format!(
            "BEGIN IMMEDIATE; {migration} PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {}; COMMIT;",
            index + 1
        ))?;
    }
    Ok(())
}

/// Rewrites a file of an earlier version once, so that its free pages can be given back to the disk from now on.
/// Without room for the copy, a later start does it.
fn make_shrinkable(conn: &Connection, path: &Path) -> rusqlite::Result<()> {
    let mode: i64 = conn.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    if mode == INCREMENTAL {
        return Ok(());
    }
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    let size = || std::fs::metadata(path).map_or(0, |file| file.len());
    let (before, folder) = (size(), path.parent().unwrap_or(Path::new(".")));
    // VACUUM first makes the copy in a temporary file, then writes it through the log.
    let needed = before.saturating_mul(2).saturating_add(RESERVE);
    let free = rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < needed {
        tracing::warn!(
            bytes = before,
            free,
            needed,
            "the database cannot be made to shrink for want of free space; the next start tries again"
        );
        return Ok(());
    }
    tracing::info!(
        bytes = before,
        "the database is rewritten once, so that it can shrink; this may take a while"
    );
    // Not in /tmp, which may be small and is shared.
    let folder = folder.display().to_string().replace('\'', "''");
    conn.execute_batch(&format!("PRAGMA temp_store_directory = '{folder}'"))?;
    let rewritten = conn.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    conn.execute_batch("PRAGMA temp_store_directory = ''")?;
    match rewritten {
        Ok(()) => tracing::info!(before, after = size(), "the database was rewritten"),
        // Nothing was changed.
        Err(error) => {
            tracing::warn!(%error, "the database could not be rewritten; the next start tries again")
        }
    }
    Ok(())
}

pub(super) fn classify(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path, detail: source.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked { path },
        _ => OpenError::Other { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> OpenError {
        let before = std::fs::read(path).unwrap();
        let error = open(path).map(|_| ()).unwrap_err();
        assert_eq!(std::fs::read(path).unwrap(), before, "a refused file is left untouched");
        error
    }

    #[test]
    fn a_new_database_is_private_and_opens_again() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        drop(open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(open(&path).unwrap());
    }

    #[test]
    fn a_process_that_died_while_it_made_the_database_does_not_keep_the_next_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let (making, path) = (dir.path().join("making.db"), dir.path().join("talaria.db"));
        let conn = Connection::open(&making).unwrap();
        // Too much for the cache: some of it is in the file before the transaction ends.
        conn.execute_batch(
            "PRAGMA cache_size = 1; BEGIN; CREATE TABLE t (x);
             INSERT INTO t VALUES (zeroblob(100000)), (zeroblob(100000));",
        )
        .unwrap();
        std::fs::copy(&making, &path).unwrap();
        std::fs::copy(dir.path().join("making.db-journal"), dir.path().join("talaria.db-journal")).unwrap();
        assert_ne!(std::fs::metadata(&path).unwrap().len(), 0);
        drop(open(&path).unwrap());
        drop(open(&path).unwrap());
    }

    #[test]
    fn what_is_no_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        std::fs::write(&path, "certainly not a database, but quite some text in a file").unwrap();
        assert!(matches!(refused(&path), OpenError::Damaged { .. }));
    }

    #[test]
    fn a_damaged_page_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let (writing, reading) = open(&path).unwrap();
        writing.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop((writing, reading));
        let mut bytes = std::fs::read(&path).unwrap();
        let len = bytes.len();
        for byte in &mut bytes[4096..len.min(4096 * 6)] {
            *byte ^= 0x5a;
        }
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(refused(&path), OpenError::Damaged { .. }));
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let (writing, reading) = open(&path).unwrap();
        writing.execute_batch("PRAGMA user_version = 999; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop((writing, reading));
        let error = refused(&path);
        assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
    }

    #[test]
    fn sessions_of_the_first_schema_are_numbered_by_age_and_know_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(&format!(
            "{} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;
             INSERT INTO sessions (id, key, current, created) VALUES
                 ('b', 'one', 0, 20), ('a', 'one', 0, 20), ('c', 'one', 1, 10), ('d', 'two', 1, 5);
             INSERT INTO turns (id, session, account, room, event, author, direct, prompt, media, attempt,
                     key, state, created)
                 VALUES ('t1', 'a', 'test', '!all', 'e', '@ann', 0, 'x', '[]', 0, 'k', 'done', 30),
                        ('t2', 'a', 'test', '!all', 'f', '@ann', 0, 'x', '[]', 0, 'k', 'done', 40);",
            MIGRATIONS[0]
        ))
        .unwrap();
        drop(old);
        let (conn, _reading) = open(&path).unwrap();
        let mut query = conn
            .prepare("SELECT id, number, used, account, room FROM sessions ORDER BY key, number")
            .unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let (id, number, used): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (account, room): (String, String) = (row.get(3)?, row.get(4)?);
            Ok(format!("{id} {number} {used} {account} {room}"))
        };
        let rows: Vec<String> = query.query_map([], row).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, ["c 1 10  ", "a 2 40 test !all", "b 3 20  ", "d 1 5  "]);
    }

    #[test]
    fn a_database_of_the_version_before_can_shrink_and_loses_only_what_clients_keep_themselves() {
        const VERSION: usize = 9;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch("PRAGMA journal_mode = WAL").unwrap();
        for migration in &MIGRATIONS[..VERSION] {
            old.execute_batch(migration).unwrap();
        }
        old.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};
             INSERT INTO sessions (id, key, account, room, created, used, passing, parent) VALUES
                 ('single', '1', '@http', '', 1, 1, 1, NULL), ('running', '2', '@http', '', 1, 1, 1, NULL),
                 ('response', '3', '@http', '', 1, 1, 1, NULL), ('fork', '4', '@http', '', 1, 1, 1, 'response'),
                 ('named', '5', '@http', '', 1, 1, 0, NULL), ('gone_on', '6', '@http', '', 1, 1, 1, NULL);
             INSERT INTO turns (id, session, account, room, event, author, direct, prompt, media, attempt, key, state,
                     created)
                 VALUES ('t', 'running', '@http', '', 'e', 'owner', 1, 'x', '[]', 0, 'k', 'queued', 1),
                     ('t4', 'gone_on', '@http', '', 'e4', 'owner', 1, 'x', '[]', 0, 'k', 'done', 1),
                     ('t5', 'gone_on', '@http', '', 'e5', 'owner', 1, 'x', '[]', 0, 'k', 'done', 1);
             INSERT INTO responses VALUES ('resp', '', 't3', 'response', NULL, '{{}}', 1);
             INSERT INTO messages (session, turn, role, content)
                 SELECT id, '', 'user', hex(zeroblob(200000)) FROM sessions;
             INSERT INTO messages (session, turn, role, content) SELECT id, 't1', 'user', 'mine' FROM sessions;"
        ))
        .unwrap();
        drop(old);
        let before = std::fs::metadata(&path).unwrap().len();
        let (conn, _reading) = open(&path).unwrap();
        let mode: i64 = conn.query_row("PRAGMA auto_vacuum", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, INCREMENTAL);
        let mut query = conn.prepare("SELECT session FROM messages WHERE turn = '' ORDER BY 1").unwrap();
        let left: Vec<String> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(left, ["fork", "gone_on", "named", "response", "running"]);
        let all: i64 = conn.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).unwrap();
        assert_eq!(all, 11);
        assert!(std::fs::metadata(&path).unwrap().len() < before - 250_000, "its space was given back");
        let mut temporary = std::fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
        assert!(temporary.all(|entry| entry.file_name().to_string_lossy().starts_with("talaria.db")));
    }

    #[test]
    fn a_fallback_of_the_version_before_has_a_name_and_rooms_stay_told_of_it() {
        const VERSION: usize = 12;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let old = Connection::open(&path).unwrap();
        for migration in &MIGRATIONS[..VERSION] {
            old.execute_batch(migration).unwrap();
        }
        old.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};
             INSERT INTO sessions (id, key, account, room, created, used, forks, away) VALUES
                 ('told', '1', 'test', '!1', 1, 1, 3, 1), ('unaware', '2', 'test', '!2', 1, 1, 0, 2),
                 ('own', '3', 'test', '!3', 1, 1, 0, 0);
             INSERT INTO turns (id, session, account, room, event, author, direct, prompt, media, attempt, key, state,
                     created, request, stand_in, agent, api_calls)
                 VALUES ('t1', 'told', 'test', '!1', 'e1', '@ann', 1, 'x', '[]', 0, 'k1', 'dispatched', 1, 'r', 1, NULL, 0),
                     ('t2', 'unaware', 'test', '!2', 'e2', '@ann', 1, 'x', '[]', 0, 'k2', 'done', 1, NULL, 0, NULL, 1),
                     ('t3', 'unaware', 'test', '!2', 'e3', '@ann', 1, 'x', '[]', 0, 'k3', 'done', 1, NULL, 1, NULL, 1),
                     ('t4', 'own', 'test', '!3', 'e4', '@ann', 1, 'x', '[]', 0, 'k4', 'streaming', 1, 'r', 0, 'local', 0),
                     ('t5', 'own', 'test', '!3', 'e5', '@ann', 1, 'x', '[]', 0, 'k5', 'queued', 1, NULL, 0, NULL, 0),
                     ('t6', 'own', 'test', '!3', 'e6', '@ann', 1, 'x', '[]', 0, 'k6', 'queued', 1, 'r', 0, NULL, 0);"
        ))
        .unwrap();
        drop(old);
        let (conn, _reading) = open(&path).unwrap();
        let all = |sql: &str| -> Vec<String> {
            let mut query = conn.prepare(sql).unwrap();
            query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(
            all("SELECT id || ' ' || request_for FROM turns WHERE request_for IS NOT NULL ORDER BY id"),
            ["t1 local", "t4 local", "t6 proxy"]
        );
        assert_eq!(
            all("SELECT id || ' ' || away FROM sessions ORDER BY id"),
            ["own 0", "told 1", "unaware 1"]
        );
        // The agent of that session has a memory of it, and was not told of the fallback's answers.
        assert_eq!(
            all("SELECT session || ' ' || agent || ' ' || forks || ' ' || missed FROM session_agents"),
            ["unaware proxy 0 1"]
        );
    }

    #[test]
    fn a_database_from_before_codex_keeps_its_messages_requests_and_sessions() {
        const VERSION: usize = 18;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        let old = Connection::open(&path).unwrap();
        for migration in &MIGRATIONS[..VERSION] {
            old.execute_batch(migration).unwrap();
        }
        old.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};
             INSERT INTO sessions (id, key, account, room, created, used) VALUES ('s', '1', 'test', '!1', 1, 1);
             INSERT INTO turns (id, session, account, room, event, author, direct, prompt, media, attempt, key, state,
                     created, request, request_for)
                 VALUES ('t1', 's', 'test', '!1', 'e1', '@ann', 1, 'x', '[]', 0, 'k1', 'dispatched', 1, x'72', 'local');
             INSERT INTO messages (session, turn, role, content) VALUES ('s', 't0', 'user', 'hi'), ('s', 't0', 'assistant', 'ho');
             INSERT INTO turn_records (turn, number, role, content, tools, text_end) VALUES ('t1', 0, 'assistant', 'so', NULL, 2);
             INSERT INTO session_agents (session, agent, forks, missed) VALUES ('s', 'local', 0, 0);"
        ))
        .unwrap();
        drop(old);
        let (conn, _reading) = open(&path).unwrap();
        let tx = crate::store::Tx { conn: &conn };
        let session = crate::ids::SessionId("s".to_owned());
        let said: Vec<_> =
            tx.history(&session, 10, 1000).unwrap().into_iter().map(|said| said.content).collect();
        assert_eq!(said, ["hi", "ho"]);
        let turn = tx.turn(&crate::ids::TurnId("t1".to_owned())).unwrap().unwrap();
        let prepared = turn.prepared.unwrap();
        assert_eq!((prepared.runtime, &*prepared.request), (crate::rules::AgentRuntime::Auto, &b"r"[..]));
        assert_eq!(tx.recorded_answers(&turn.id).unwrap(), 1);
        let local = crate::ids::AgentName::local();
        let asked = tx
            .ask_agent(
                &session,
                &local,
                crate::rules::AgentRuntime::Auto,
                None,
                crate::agent::RewindSupport::Possible,
            )
            .unwrap();
        assert_eq!((asked.id.0.as_str(), asked.replaced), ("s", false), "the session goes on");
        assert!(tx.runtime_overrides().unwrap().is_empty());
    }

    #[test]
    fn somebody_elses_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE recipes (name)").unwrap();
        assert!(matches!(refused(&path), OpenError::Foreign { .. }));
    }

    #[test]
    fn a_locked_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("talaria.db");
        drop(open(&path).unwrap());
        let holder = Connection::open(&path).unwrap();
        holder
            .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; CREATE TABLE held (x)")
            .unwrap();
        assert!(matches!(open(&path).map(|_| ()).unwrap_err(), OpenError::Locked { .. }));
    }
}
