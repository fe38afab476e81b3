//! Apps and their tokens. A row stays when its token is revoked: the app's data still exists, and nobody else may get
//! it by taking the name.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::{Result, Tx, unix_now};
use crate::token::TokenDigest;

/// An app, as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppInfo {
    /// Name of the app.
    pub name: String,
    /// Public id of its token; no secret.
    pub token: String,
    /// Time at which the token was made, in seconds since 1970.
    pub created: i64,
    /// Time of its last use, accurate to about a minute.
    pub used: Option<i64>,
    /// Time at which it was revoked.
    pub revoked: Option<i64>,
    /// Whether the app may send system messages and instructions.
    pub instructions: bool,
}

/// A valid token, as the authentication looks it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// The app that it belongs to.
    pub app: String,
    /// Hash that a presented token is compared with.
    pub digest: Vec<u8>,
    /// Whether the app may send system messages and instructions.
    pub instructions: bool,
}

impl Tx<'_> {
    /// Gives an app a token, in place of an earlier one. `instructions` allows it system messages. `false` if a token
    /// with this id exists.
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

    /// The app with this name.
    pub fn app(&self, name: &str) -> Result<Option<AppInfo>> {
        let mut query = self.conn.prepare_cached(
            "SELECT app, id, created, used, revoked, instructions FROM tokens WHERE app = ?1",
        )?;
        Ok(query.query_row([name], read_app).optional()?)
    }

    /// Revokes an app's token. `false` if it has no valid one.
    pub fn revoke_token(&self, app: &str) -> Result<bool> {
        let revoked = self
            .conn
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE app = ?1 AND revoked IS NULL")?
            .execute(params![app, unix_now()])?;
        Ok(revoked > 0)
    }

    /// The valid token with this public id.
    pub fn token(&self, id: &str) -> Result<Option<TokenRecord>> {
        let mut query = self.conn.prepare_cached(
            "SELECT app, digest, instructions FROM tokens WHERE id = ?1 AND revoked IS NULL",
        )?;
        let found = query.query_row([id], |row| {
            Ok(TokenRecord { app: row.get(0)?, digest: row.get(1)?, instructions: row.get(2)? })
        });
        Ok(found.optional()?)
    }

    /// Whether an app has a valid token. The owner, whose name is empty, needs none.
    pub fn app_may_ask(&self, app: &str) -> Result<bool> {
        if app.is_empty() {
            return Ok(true);
        }
        let mut query = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM tokens WHERE app = ?1 AND revoked IS NULL)")?;
        Ok(query.query_row([app], |row| row.get(0))?)
    }

    /// Records the use of a token. The caller makes sure that not every request causes a write.
    pub fn touch_token(&self, id: &str) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE tokens SET used = ?2 WHERE id = ?1")?
            .execute(params![id, unix_now()])?;
        Ok(())
    }

    /// The app whose revoked token has this id.
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
