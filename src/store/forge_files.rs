//! Uploaded files of apps: whose they are, how they are called, and until when they stay.

use rusqlite::{OptionalExtension as _, params};

use super::{Result, Tx};

/// Files that one transaction ends. Other writers wait for it.
const FILES_AT_ONCE: usize = 200;

/// `expires` of a file that has ended.
const ENDED: i64 = 0;

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeFile {
    /// Digest of its token, which is the name of the file that holds its content.
    pub digest: String,
    /// The app that sent it.
    pub app: String,
    /// The app's name for it, cleaned.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// End of its time, in seconds since 1970.
    pub expires: i64,
}

/// The files of an app, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Number of its files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Tx<'_> {
    /// Stores that a file was uploaded, unless its app would then have more than `most`, or all apps more than `most_of_all`
    /// bytes; returns whether it was stored. Uploads end in any order, so only this count is certain.
    pub fn add_forge_file(&self, file: &ForgeFile, most: FileUse, most_of_all: u64) -> Result<bool> {
        let (used, all) = (self.forge_file_use(&file.app)?, self.forge_file_bytes()?);
        let bytes = |used: u64| used.saturating_add(file.size);
        if used.files >= most.files || bytes(used.bytes) > most.bytes || bytes(all) > most_of_all {
            return Ok(false);
        }
        self.conn
            .prepare_cached(
                "INSERT INTO forge_files (digest, app, name, size, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![file.digest, file.app, file.name, file.size, file.expires])?;
        Ok(true)
    }

    /// The file of an app with this digest, if its time is not over.
    pub fn forge_file(&self, app: &str, digest: &str, now: i64) -> Result<Option<ForgeFile>> {
        let mut query = self.conn.prepare_cached(
            "SELECT digest, app, name, size, expires FROM forge_files
             WHERE digest = ?1 AND app = ?2 AND expires > ?3",
        )?;
        let found = query.query_row(params![digest, app, now], |row| {
            Ok(ForgeFile {
                digest: row.get(0)?,
                app: row.get(1)?,
                name: row.get(2)?,
                size: row.get(3)?,
                expires: row.get(4)?,
            })
        });
        Ok(found.optional()?)
    }

    /// How much an app has uploaded whose bytes are still there.
    pub fn forge_file_use(&self, app: &str) -> Result<FileUse> {
        let mut query = self
            .conn
            .prepare_cached("SELECT count(*), coalesce(sum(size), 0) FROM forge_files WHERE app = ?1")?;
        Ok(query.query_row([app], |row| Ok(FileUse { files: row.get(0)?, bytes: row.get(1)? }))?)
    }

    /// Bytes of the uploads of all apps that are still there.
    pub fn forge_file_bytes(&self) -> Result<u64> {
        let mut query = self.conn.prepare_cached("SELECT coalesce(sum(size), 0) FROM forge_files")?;
        Ok(query.query_row([], |row| row.get(0))?)
    }

    /// Ends files whose time is over: [`Tx::ended_forge_files`] has them until their bytes are removed. Until then they
    /// count as used, and a process that ends in between loses none. A part of the work, if there is much of it: `true` if
    /// there may be more.
    pub fn prune_forge_files(&self, now: i64) -> Result<bool> {
        let ended = self
            .conn
            .prepare_cached(
                "UPDATE forge_files SET expires = ?3 WHERE digest IN
                     (SELECT digest FROM forge_files WHERE expires <= ?1 AND expires > ?3 LIMIT ?2)",
            )?
            .execute([now, FILES_AT_ONCE as i64, ENDED])?;
        Ok(ended == FILES_AT_ONCE)
    }

    /// Digests of files that have ended and whose bytes are to be removed, behind this one: the next part of them.
    pub fn ended_forge_files(&self, after: &str) -> Result<Vec<String>> {
        let mut query = self.conn.prepare_cached(
            "SELECT digest FROM forge_files WHERE expires <= ?1 AND digest > ?2 ORDER BY digest LIMIT ?3",
        )?;
        let rows = query.query_map(params![ENDED, after, FILES_AT_ONCE as i64], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Forgets files whose bytes are removed.
    pub fn forget_forge_files(&self, digests: &[String]) -> Result<()> {
        let mut delete = self.conn.prepare_cached("DELETE FROM forge_files WHERE digest = ?1")?;
        digests.iter().try_for_each(|digest| delete.execute([digest]).map(drop))?;
        Ok(())
    }

    /// Digests of all files that are known.
    pub fn forge_file_names(&self) -> Result<Vec<String>> {
        let mut query = self.conn.prepare_cached("SELECT digest FROM forge_files")?;
        let rows = query.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;

    const MOST: FileUse = FileUse { files: 2, bytes: 10 };

    fn file(digest: &str, app: &str, size: u64) -> ForgeFile {
        let (digest, app, name) = (digest.to_owned(), app.to_owned(), "x.txt".to_owned());
        ForgeFile { digest, app, name, size, expires: 100 }
    }

    #[tokio::test]
    async fn a_file_is_its_apps_own_and_has_its_time() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let file = file("d", "forge", 7);
                assert!(tx.add_forge_file(&file, MOST, 16)?);
                assert_eq!(tx.forge_file("forge", "d", 99)?, Some(file));
                assert_eq!(tx.forge_file("forge", "d", 100)?, None);
                assert_eq!(tx.forge_file("other", "d", 99)?, None);
                assert_eq!(tx.forge_file_use("forge")?, FileUse { files: 1, bytes: 7 });
                assert_eq!(tx.forge_file_use("other")?, FileUse::default());
                tx.prune_forge_files(99)?;
                assert!(tx.ended_forge_files("")?.is_empty());
                assert!(!tx.prune_forge_files(100)?);
                // It counts until its bytes are gone, but nobody gets it any more.
                assert_eq!(tx.ended_forge_files("")?, ["d"]);
                assert_eq!(tx.forge_file("forge", "d", 99)?, None);
                assert_eq!(tx.forge_file_use("forge")?, FileUse { files: 1, bytes: 7 });
                tx.forget_forge_files(&["d".to_owned()])?;
                assert!(tx.forge_file_names()?.is_empty() && tx.ended_forge_files("")?.is_empty());
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn an_app_has_so_many_files_and_bytes_and_no_more() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                assert!(tx.add_forge_file(&file("a", "forge", 6), MOST, 16)?);
                assert!(!tx.add_forge_file(&file("b", "forge", 5), MOST, 16)?, "too many bytes");
                assert!(tx.add_forge_file(&file("b", "forge", 4), MOST, 16)?);
                assert!(!tx.add_forge_file(&file("c", "forge", 0), MOST, 16)?, "too many files");
                assert!(!tx.add_forge_file(&file("c", "other", 7), MOST, 16)?, "too many bytes of all apps");
                assert!(tx.add_forge_file(&file("c", "other", 6), MOST, 16)?, "the other app's own");
                assert_eq!(tx.forge_file_use("forge")?, FileUse { files: 2, bytes: 10 });
                Ok(())
            })
            .await
            .unwrap();
    }
}
