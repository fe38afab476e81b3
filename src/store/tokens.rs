//! Programs with a token of their own. A row stays when its token is revoked: what the app had is still there, and
//! nobody else may come to it by taking the name.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::{Result, Tx, unix_now};
use crate::token::TokenDigest;

/// An app, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppInfo {
    /// What it is called.
    pub name: String,
    /// Which token it has; no secret.
    pub token: String,
    /// When that was made, in seconds since 1970.
    pub created: i64,
    /// When it was last used, give or take a minute.
    pub used: Option<i64>,
    /// When it was revoked.
    pub revoked: Option<i64>,
    /// Whether it may send system messages and instructions.
    pub instructions: bool,
}

/// A token that holds, as it is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Whose it is.
    pub app: String,
    /// What it is compared with.
    pub digest: Vec<u8>,
    /// Whether the app may send system messages and instructions.
    pub instructions: bool,
}

impl Tx<'_> {
    /// Gives an app its token; one that it had no longer counts. `instructions` is whether it may instruct the agent.
    /// `false` if another app has a token with this id.
    pub fn add_token(&self, app: &str, token: &TokenDigest, instructions: bool) -> Result<bool> {
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO tokens (app, id, digest, created, instructions) SELECT ?1, ?2, ?3, ?4, ?5
                     WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE id = ?2)
                 ON CONFLICT (app) DO UPDATE
                     SET id = excluded.id, digest = excluded.digest, created = excluded.created,
                         used = NULL, revoked = NULL, instructions = excluded.instructions",
            )?
            .execute(params![app, token.id, token.digest, unix_now(), instructions])?;
        Ok(added > 0)
    }

    /// Every app, by name.
    pub fn apps(&self) -> Result<Vec<AppInfo>> {
        let mut query = self.conn.prepare_cached(
            "SELECT app, id, created, used, revoked, instructions FROM tokens ORDER BY app",
        )?;
        let rows = query.query_map([], read_app)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// One app.
    pub fn app(&self, name: &str) -> Result<Option<AppInfo>> {
        let mut query = self.conn.prepare_cached(
            "SELECT app, id, created, used, revoked, instructions FROM tokens WHERE app = ?1",
        )?;
        Ok(query.query_row([name], read_app).optional()?)
    }

    /// Takes an app's token away. `false` if it has none that counts.
    pub fn revoke_token(&self, app: &str) -> Result<bool> {
        let revoked = self
            .conn
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE app = ?1 AND revoked IS NULL")?
            .execute(params![app, unix_now()])?;
        Ok(revoked > 0)
    }

    /// A token that holds, by the part of it that is no secret.
    pub fn token(&self, id: &str) -> Result<Option<TokenRecord>> {
        let mut query = self.conn.prepare_cached(
            "SELECT app, digest, instructions FROM tokens WHERE id = ?1 AND revoked IS NULL",
        )?;
        let found = query.query_row([id], |row| {
            Ok(TokenRecord { app: row.get(0)?, digest: row.get(1)?, instructions: row.get(2)? })
        });
        Ok(found.optional()?)
    }

    /// Whether an app may still ask. The owner, who has no name, always may.
    pub fn app_may_ask(&self, app: &str) -> Result<bool> {
        if app.is_empty() {
            return Ok(true);
        }
        let mut query = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM tokens WHERE app = ?1 AND revoked IS NULL)")?;
        Ok(query.query_row([app], |row| row.get(0))?)
    }

    /// Notes that a token is used. The caller sees to it that this is not a write for every request.
    pub fn touch_token(&self, id: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE tokens SET used = ?2 WHERE id = ?1")?
            .execute(params![id, unix_now()])?;
        Ok(())
    }

    /// The app whose token this was, until it was revoked.
    pub fn revoked_app(&self, id: &str) -> Result<Option<String>> {
        let mut query =
            self.conn.prepare_cached("SELECT app FROM tokens WHERE id = ?1 AND revoked IS NOT NULL")?;
        Ok(query.query_row([id], |row| row.get(0)).optional()?)
    }
}

fn read_app(row: &rusqlite::Row<'_>) -> rusqlite::Result<AppInfo> {
    Ok(AppInfo {
        name: row.get(0)?,
        token: row.get(1)?,
        created: row.get(2)?,
        used: row.get(3)?,
        revoked: row.get(4)?,
        instructions: row.get(5)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;
    use crate::token;

    fn kept(token: &str) -> TokenDigest {
        TokenDigest::of(token).unwrap()
    }

    #[tokio::test]
    async fn a_token_counts_until_it_is_revoked_or_replaced() {
        let (_dir, store) = temporary();
        let (one, two) = (token::make().unwrap(), token::make().unwrap());
        let (old, new) = (kept(&one), kept(&two));
        store
            .write(move |tx| {
                assert_eq!(tx.app("forge")?, None);
                assert!(!tx.app_may_ask("forge")?);
                assert!(tx.add_token("forge", &old, false)?);
                let digest = old.digest.to_vec();
                let record = TokenRecord { app: "forge".to_owned(), digest, instructions: false };
                assert_eq!(tx.token(&old.id)?, Some(record));
                assert!(tx.app_may_ask("forge")?);
                assert!(!tx.add_token("other", &old, true)?, "an id is one token's");
                assert!(!tx.app_may_ask("other")?);

                assert_eq!(tx.revoked_app(&old.id)?, None);
                tx.touch_token(&old.id)?;
                assert!(tx.app("forge")?.unwrap().used.is_some());
                assert!(tx.revoke_token("forge")?);
                assert!(!tx.revoke_token("forge")?, "once is enough");
                assert!(!tx.revoke_token("other")?);
                assert!(!tx.app_may_ask("forge")?);
                assert_eq!(tx.token(&old.id)?, None);
                assert_eq!(tx.revoked_app(&old.id)?.as_deref(), Some("forge"));

                assert!(tx.add_token("forge", &new, true)?);
                assert_eq!(tx.token(&old.id)?, None, "the old one is unknown now");
                assert_eq!(
                    tx.token(&new.id)?.map(|token| (token.app, token.instructions)),
                    Some(("forge".to_owned(), true))
                );
                assert!(tx.app_may_ask("forge")?);
                let apps = tx.apps()?;
                assert_eq!((apps.len(), apps[0].token.as_str(), apps[0].used), (1, new.id.as_str(), None));
                Ok(())
            })
            .await
            .unwrap();
    }
}
