//! Apps and their tokens. A row stays when its token is revoked: the app's data still exists, and nobody else may get
//! it by taking the name.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::{Result, Tx, unix_now};
use crate::access::{AppPermissions, IpRange};
use crate::token::TokenDigest;

/// What an app may do with its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRights {
    /// Whether the app may send system messages and instructions.
    pub instructions: bool,
    /// Addresses from which the token may be used; `None` for all.
    #[serde(default)]
    pub networks: Option<Vec<IpRange>>,
    /// The policy for permissions that agents ask for in the app's turns, on every surface. `None`: none was set, so
    /// forge sessions deny them, and elsewhere the app answers itself.
    #[serde(default)]
    pub permissions: Option<AppPermissions>,
    /// Whether the app may replace the operator's system text in `POST /run`.
    #[serde(default)]
    pub may_replace: bool,
}

impl Default for AppRights {
    fn default() -> Self {
        Self { instructions: true, networks: None, permissions: None, may_replace: false }
    }
}

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
    /// Addresses from which the token may be used; `None` for all.
    #[serde(default)]
    pub networks: Option<Vec<IpRange>>,
    /// The policy for permissions in the app's turns; `None` if none was set.
    #[serde(default)]
    pub permissions: Option<AppPermissions>,
    /// Whether the app may replace the operator's system text in `POST /run`.
    #[serde(default)]
    pub may_replace: bool,
}

impl AppInfo {
    /// What the app may do.
    pub fn rights(&self) -> AppRights {
        AppRights {
            instructions: self.instructions,
            networks: self.networks.clone(),
            permissions: self.permissions.clone(),
            may_replace: self.may_replace,
        }
    }
}

/// A valid token, as the authentication looks it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// The app that it belongs to.
    pub app: String,
    /// Hash that a presented token is compared with.
    pub digest: Vec<u8>,
    /// What the app may do.
    pub rights: AppRights,
}

/// Columns of the rights, in the order that [`read_rights`] expects.
const RIGHTS: &str = "instructions, networks, permissions, may_replace";

impl Tx<'_> {
    /// Gives an app a token with these rights, in place of an earlier one. `false` if a token with this id exists.
    pub fn add_token(&self, app: &str, token: &TokenDigest, rights: &AppRights) -> Result<bool> {
        let networks = rights.networks.as_ref().map(serde_json::to_string).transpose()?;
        let permissions = rights.permissions.as_ref().map(serde_json::to_string).transpose()?;
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO tokens (app, id, digest, created, instructions, networks, permissions, may_replace)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE id = ?2)
                 ON CONFLICT (app) DO UPDATE
                     SET id = excluded.id, digest = excluded.digest, created = excluded.created,
                         used = NULL, revoked = NULL, instructions = excluded.instructions,
                         networks = excluded.networks, permissions = excluded.permissions,
                         may_replace = excluded.may_replace",
            )?
            .execute(params![
                app,
                token.id,
                token.digest,
                unix_now(),
                rights.instructions,
                networks,
                permissions,
                rights.may_replace
            ])?;
        Ok(added > 0)
    }

    /// Every app, by name.
    pub fn apps(&self) -> Result<Vec<AppInfo>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT app, id, created, used, revoked, {RIGHTS} FROM tokens ORDER BY app"
        ))?;
        let mut rows = query.query([])?;
        let mut apps = Vec::new();
        while let Some(row) = rows.next()? {
            apps.push(read_app(row)?);
        }
        Ok(apps)
    }

    /// The app with this name.
    pub fn app(&self, name: &str) -> Result<Option<AppInfo>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT app, id, created, used, revoked, {RIGHTS} FROM tokens WHERE app = ?1"
        ))?;
        let mut rows = query.query([name])?;
        rows.next()?.map(read_app).transpose()
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
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT app, digest, {RIGHTS} FROM tokens WHERE id = ?1 AND revoked IS NULL"
        ))?;
        let mut rows = query.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(TokenRecord { app: row.get(0)?, digest: row.get(1)?, rights: read_rights(row, 2)? }))
    }

    /// The policy of an app for permissions that agents ask for; `None` if none was set.
    pub fn app_permissions(&self, app: &str) -> Result<Option<AppPermissions>> {
        let mut query = self.conn.prepare_cached("SELECT permissions FROM tokens WHERE app = ?1")?;
        let stored: Option<Option<String>> = query.query_row([app], |row| row.get(0)).optional()?;
        Ok(stored.flatten().as_deref().map(serde_json::from_str).transpose()?)
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

fn read_app(row: &rusqlite::Row<'_>) -> Result<AppInfo> {
    let AppRights { instructions, networks, permissions, may_replace } = read_rights(row, 5)?;
    Ok(AppInfo {
        name: row.get(0)?,
        token: row.get(1)?,
        created: row.get(2)?,
        used: row.get(3)?,
        revoked: row.get(4)?,
        instructions,
        networks,
        permissions,
        may_replace,
    })
}

/// Reads [`RIGHTS`], the first of which has the index `first`. A damaged value is an error: it must not allow more.
fn read_rights(row: &rusqlite::Row<'_>, first: usize) -> Result<AppRights> {
    let (networks, permissions): (Option<String>, Option<String>) =
        (row.get(first + 1)?, row.get(first + 2)?);
    Ok(AppRights {
        instructions: row.get(first)?,
        networks: networks.as_deref().map(serde_json::from_str).transpose()?,
        permissions: permissions.as_deref().map(serde_json::from_str).transpose()?,
        may_replace: row.get(first + 3)?,
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
        let (one, two) = (token::make(token::PREFIX).unwrap(), token::make(token::FORGE_PREFIX).unwrap());
        let (old, new) = (kept(&one), kept(&two));
        let rights = AppRights {
            instructions: false,
            networks: Some(vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]),
            permissions: Some(AppPermissions::Allow(vec!["ls".to_owned()])),
            may_replace: true,
        };
        store
            .write(move |tx| {
                assert_eq!(tx.app("forge")?, None);
                assert!(!tx.app_may_ask("forge")?);
                assert!(tx.add_token("forge", &old, &rights)?);
                let digest = old.digest.to_vec();
                assert_eq!(tx.app_permissions("forge")?, rights.permissions);
                assert_eq!(tx.app_permissions("other")?, None);
                let record = TokenRecord { app: "forge".to_owned(), digest, rights };
                assert_eq!(tx.token(&old.id)?, Some(record));
                assert!(tx.app_may_ask("forge")?);
                assert!(!tx.add_token("other", &old, &AppRights::default())?, "an id is one token's");
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

                assert!(tx.add_token("forge", &new, &AppRights::default())?);
                assert_eq!(tx.token(&old.id)?, None, "the old one is unknown now");
                assert_eq!(
                    tx.token(&new.id)?.map(|token| (token.app, token.rights)),
                    Some(("forge".to_owned(), AppRights::default()))
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
