//! Strangers who asked to be let in, and those who were.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, Tx};

/// Somebody who asked to be let in, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct Pairing {
    pub account: String,
    pub person: String,
    pub name: Option<String>,
    pub room: String,
    /// They wait for the operator's word.
    pub pending: bool,
    pub at: i64,
}

/// What a code was made into: enough to recognise it, too little to tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct HashedCode {
    pub salt: String,
    pub digest: String,
}

impl Tx<'_> {
    /// Forgets requests that nobody answered: those made before `since`, and those that a clock which was
    /// set back puts after `now`.
    pub fn forget_lapsed_pairings(&self, since: i64, now: i64) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM pairings WHERE code IS NOT NULL AND NOT (at > ?1 AND at <= ?2)")?
            .execute(params![since, now])?;
        Ok(())
    }

    /// When somebody last asked, or was let in.
    pub fn pairing_of(&self, account: &AccountId, person: &UserId) -> Result<Option<i64>> {
        let mut query =
            self.conn.prepare_cached("SELECT at FROM pairings WHERE account = ?1 AND person = ?2")?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0)).optional()?)
    }

    /// How many others wait for the operator's word.
    pub fn others_waiting(&self, account: &AccountId, person: &UserId) -> Result<usize> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FROM pairings WHERE account = ?1 AND person <> ?2 AND code IS NOT NULL",
        )?;
        Ok(query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0))?)
    }

    /// Keeps a request; an earlier one of the same person no longer counts.
    pub fn ask_pairing(
        &self,
        account: &AccountId,
        person: &UserId,
        name: Option<&str>,
        room: &RoomId,
        code: &HashedCode,
        now: i64,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO pairings (account, person, name, room, code, salt, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                account.as_str(),
                person.as_str(),
                name,
                room.as_str(),
                code.digest,
                code.salt,
                now
            ])?;
        Ok(())
    }

    /// Takes back the request whose code never arrived, unless it was answered or another was made since.
    pub fn withdraw_pairing(&self, account: &AccountId, person: &UserId, code: &HashedCode) -> Result<()> {
        self.conn
            .prepare_cached("DELETE FROM pairings WHERE account = ?1 AND person = ?2 AND code = ?3")?
            .execute(params![account.as_str(), person.as_str(), code.digest])?;
        Ok(())
    }

    /// Everybody who waits or was let in, the oldest first.
    pub fn pairings(&self) -> Result<Vec<Pairing>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, code IS NOT NULL, at FROM pairings ORDER BY at, account, person",
        )?;
        let rows = query.query_map([], read_pairing)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Everybody who waits, each with what is known of their code.
    pub fn waiting_pairings(&self) -> Result<Vec<(Pairing, HashedCode)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, 1, at, salt, code FROM pairings WHERE code IS NOT NULL",
        )?;
        let rows = query.query_map([], |row| {
            Ok((read_pairing(row)?, HashedCode { salt: row.get(6)?, digest: row.get(7)? }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Lets somebody in who waits.
    pub fn pair(&self, pairing: &Pairing, now: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE pairings SET code = NULL, salt = '', at = ?3 WHERE account = ?1 AND person = ?2",
            )?
            .execute(params![pairing.account, pairing.person, now])?;
        Ok(())
    }

    /// Forgets somebody who waits or was let in; on every account for `None`. Returns whom.
    pub fn unpair(&self, account: Option<&str>, person: &str) -> Result<Vec<Pairing>> {
        let mut query = self.conn.prepare_cached(
            "DELETE FROM pairings WHERE (?1 IS NULL OR account = ?1) AND person = ?2
             RETURNING account, person, name, room, code IS NOT NULL, at",
        )?;
        let rows = query.query_map(params![account, person], read_pairing)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn read_pairing(row: &rusqlite::Row<'_>) -> rusqlite::Result<Pairing> {
    Ok(Pairing {
        account: row.get(0)?,
        person: row.get(1)?,
        name: row.get(2)?,
        room: row.get(3)?,
        pending: row.get(4)?,
        at: row.get(5)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn code(digest: &str) -> HashedCode {
        HashedCode { salt: "salt".to_owned(), digest: digest.to_owned() }
    }

    /// Runs a job on a new store.
    async fn on_a_store(job: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static) {
        let folder = tempfile::tempdir().unwrap();
        let (store, _threads) = Store::open(&folder.path().join("talaria.db")).unwrap();
        store.write(job).await.unwrap();
    }

    fn ask(tx: &Tx<'_>, account: &str, person: &str, digest: &str, at: i64) -> Result<()> {
        tx.ask_pairing(&account.into(), &person.into(), Some("Eve"), &"!eve".into(), &code(digest), at)
    }

    #[tokio::test]
    async fn requests_lapse_and_those_who_were_let_in_stay() {
        on_a_store(|tx| {
            ask(tx, "a", "@old", "1", 100)?;
            ask(tx, "a", "@new", "2", 101)?;
            ask(tx, "a", "@in", "3", 50)?;
            // From before somebody set the clock back: it would hold for longer than it may.
            ask(tx, "a", "@future", "4", 201)?;
            let in_pairing = tx.pairings()?.into_iter().find(|pairing| pairing.person == "@in").unwrap();
            tx.pair(&in_pairing, 60)?;
            tx.forget_lapsed_pairings(100, 200)?;
            let left: Vec<_> = tx.pairings()?.into_iter().map(|p| (p.person, p.pending, p.at)).collect();
            assert_eq!(left, [("@in".to_owned(), false, 60), ("@new".to_owned(), true, 101)]);
            assert!(tx.is_paired(&"a".into(), "@in")? && !tx.is_paired(&"a".into(), "@new")?);
            assert_eq!(tx.others_waiting(&"a".into(), &"@in".into())?, 1);
            assert_eq!(tx.others_waiting(&"a".into(), &"@new".into())?, 0);
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn another_request_takes_the_place_of_the_one_before() {
        on_a_store(|tx| {
            ask(tx, "a", "@eve", "1", 100)?;
            ask(tx, "a", "@eve", "2", 200)?;
            let waiting = tx.waiting_pairings()?;
            assert_eq!(waiting.len(), 1);
            assert_eq!((waiting[0].0.at, &waiting[0].1), (200, &code("2")));
            // The first one's message failed only now; the second one must not go with it.
            tx.withdraw_pairing(&"a".into(), &"@eve".into(), &code("1"))?;
            assert_eq!(tx.pairings()?.len(), 1);
            tx.withdraw_pairing(&"a".into(), &"@eve".into(), &code("2"))?;
            assert!(tx.pairings()?.is_empty());
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_code_that_was_used_is_not_withdrawn() {
        on_a_store(|tx| {
            ask(tx, "a", "@eve", "1", 100)?;
            let pairing = tx.pairings()?.remove(0);
            tx.pair(&pairing, 110)?;
            tx.withdraw_pairing(&"a".into(), &"@eve".into(), &code("1"))?;
            assert!(tx.is_paired(&"a".into(), "@eve")? && tx.waiting_pairings()?.is_empty());
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn somebody_is_forgotten_on_one_account_or_on_all() {
        on_a_store(|tx| {
            for account in ["a", "b", "c"] {
                ask(tx, account, "@eve", account, 100)?;
                ask(tx, account, "@evelyn", account, 100)?;
            }
            let gone = tx.unpair(Some("b"), "@eve")?;
            assert_eq!(gone.iter().map(|p| p.account.as_str()).collect::<Vec<_>>(), ["b"]);
            assert_eq!(tx.unpair(None, "@eve")?.len(), 2);
            assert!(tx.unpair(None, "@eve")?.is_empty());
            assert_eq!(tx.pairings()?.len(), 3, "only the whole id counts");
            Ok(())
        })
        .await;
    }
}
