//! A look at a database that no process uses, which leaves every file as it is.
//!
//! Opening a database in the usual way makes files beside it, even for reading: its log and the index of that. Where
//! there is nothing in a log, the file is read as one that never changes, and nothing is made. The caller sees to it
//! that nobody begins to use it meanwhile.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::open::{classify, is_half_done, prove_on};
use super::schema::MIGRATIONS;
use super::{OpenError, Result, Tx};

/// Runs `job` on what is there, and refuses what opening it would refuse. `None` if a start would first have to bring
/// the file up to date or put it right: an older talaria may still want it as it is.
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
    // A dead process left a log. What is in it counts, and its files are there already.
    if is_filled("-wal") || is_filled("-journal") {
        return Connection::open_with_flags(path, flags);
    }
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        let _ = write!(uri, "%{byte:02X}");
    }
    Connection::open_with_flags(uri + "?immutable=1", flags | OpenFlags::SQLITE_OPEN_URI)
}
