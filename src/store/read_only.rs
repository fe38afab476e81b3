//! Reads a database that no process uses, and leaves every file as it is.
//!
//! Opening a database in the usual way creates files beside it, even for reading: its log and the log's index. If the
//! log is empty, the file is opened as immutable, and nothing is created. The caller makes sure that nobody begins to
//! use the database meanwhile.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::open::{classify, is_half_done, prove_on};
use super::schema::MIGRATIONS;
use super::{OpenError, Result, Tx};

/// Runs `job` on the database, and refuses a file that a start would refuse. `None` if a start would first have to
/// migrate or repair the file: an older talaria may still want it as it is.
pub fn look<T>(path: &Path, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<Option<Result<T>>, OpenError> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0) {
        return Ok(None);
    }
    let other = |source: rusqlite::Error| classify(path, source);
    let conn = connect(path).map_err(other)?;
    match prove_on(&conn, path) {
        Err(OpenError::Other { source, .. }) if is_half_done(&source) => return Ok(None),
        proven => proven?,
    }
    let version: usize = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(other)?;
    Ok((version == MIGRATIONS.len()).then(|| job(&Tx { conn: &conn })))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let is_filled = |suffix: &str| {
        let mut beside = OsString::from(path);
        beside.push(suffix);
        std::fs::metadata(beside).is_ok_and(|meta| meta.len() > 0)
    };
    // A dead process left a log. Its content counts, and its files exist already.
    if is_filled("-wal") || is_filled("-journal") {
        return Connection::open_with_flags(path, flags);
    }
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        let _ = write!(uri, "%{byte:02X}");
    }
    Connection::open_with_flags(uri + "?immutable=1", flags | OpenFlags::SQLITE_OPEN_URI)
}
