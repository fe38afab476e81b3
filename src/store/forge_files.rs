//! Uploaded files of apps: whose they are, how they are called, and until when they stay.

use rusqlite::{OptionalExtension as _, params};

use super::{Result, Tx};

/// Files that one sweep forgets. Other writers wait for it.
const AT_ONCE: i64 = 200;

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

/// The files of an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Number of its files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Tx<'_> {
    /// Stores that a file was uploaded.
    pub fn add_forge_file(&self, file: &ForgeFile) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO forge_files (digest, app, name, size, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![file.digest, file.app, file.name, file.size, file.expires])?;
        Ok(())
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

    /// How much an app has uploaded that is still there.
    pub fn forge_file_use(&self, app: &str) -> Result<FileUse> {
        let mut query = self
            .conn
            .prepare_cached("SELECT count(*), coalesce(sum(size), 0) FROM forge_files WHERE app = ?1")?;
        Ok(query.query_row([app], |row| Ok(FileUse { files: row.get(0)?, bytes: row.get(1)? }))?)
    }

    /// Forgets files whose time is over.
    pub fn prune_forge_files(&self, now: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "DELETE FROM forge_files WHERE digest IN
                     (SELECT digest FROM forge_files WHERE expires <= ?1 LIMIT ?2)",
            )?
            .execute([now, AT_ONCE])?;
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

    #[tokio::test]
    async fn a_file_is_its_apps_own_and_has_its_time() {
        let (_dir, store) = temporary();
        store
            .write(|tx| {
                let file = ForgeFile {
                    digest: "d".to_owned(),
                    app: "forge".to_owned(),
                    name: "x.txt".to_owned(),
                    size: 7,
                    expires: 100,
                };
                tx.add_forge_file(&file)?;
                assert_eq!(tx.forge_file("forge", "d", 99)?, Some(file));
                assert_eq!(tx.forge_file("forge", "d", 100)?, None);
                assert_eq!(tx.forge_file("other", "d", 99)?, None);
                assert_eq!(tx.forge_file_use("forge")?, FileUse { files: 1, bytes: 7 });
                assert_eq!(tx.forge_file_use("other")?, FileUse::default());
                tx.prune_forge_files(99)?;
                assert_eq!(tx.forge_file_names()?, ["d"]);
                tx.prune_forge_files(100)?;
                assert!(tx.forge_file_names()?.is_empty());
                Ok(())
            })
            .await
            .unwrap();
    }
}
