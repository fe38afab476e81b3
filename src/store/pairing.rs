//! Pairing requests of strangers, and people who were let in.
//!
//! A request that came to nothing stays for a while with an empty code, which matches nothing: its time still counts.
//! The row of a person who brought us into a room and has not asked yet counts too; [`INVITED`] marks it.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, Tx};

/// A person who asked to be let in, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct Pairing {
    pub account: String,
    pub person: String,
    pub name: Option<String>,
    pub room: String,
    /// The request waits for the operator.
    pub pending: bool,
    pub at: i64,
}

/// Salted hash of a code: enough to recognise the code, too little to reveal it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct HashedCode {
    pub salt: String,
    pub digest: String,
}

/// Replaces the salt in the row of a person who brought us into a room and has not asked yet.
const INVITED: &str = "invited";

/// Numbers of an account's strangers, without the person concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrangerCounts {
    /// Strangers whose request waits for the operator, or who may be about to ask.
    pub waiting: usize,
    /// Strangers who asked recently without success.
    pub turned_away: usize,
}

/// Time limits for the rows of strangers, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct StrangerExpiry {
    /// A request made at this time or before has expired.
    pub asked: i64,
    /// A row without a valid code, made at this time or before, has expired.
    pub void: i64,
    /// The current time. Rows after it have expired too: the clock was set back.
    pub now: i64,
}

impl Tx<'_> {
    /// Deletes requests that have expired.
    pub fn forget_lapsed_pairings(&self, lapse: StrangerExpiry) -> Result<()> {
        self.conn
            .prepare_cached(
                "DELETE FROM pairings WHERE code IS NOT NULL
                     AND NOT (at > CASE code WHEN '' THEN ?2 ELSE ?1 END AND at <= ?3)",
            )?
            .execute(params![lapse.asked, lapse.void, lapse.now])?;
        Ok(())
    }

    /// Time at which a person last asked, or was let in.
    pub fn pairing_of(&self, account: &AccountId, person: &UserId) -> Result<Option<i64>> {
        let mut query = self
            .conn
            .prepare_cached("SELECT at FROM pairings WHERE account = ?1 AND person = ?2 AND salt <> ?3")?;
        let params = params![account.as_str(), person.as_str(), INVITED];
        Ok(query.query_row(params, |row| row.get(0)).optional()?)
    }

    /// The room in which a stranger asked, or into which they brought us.
    pub fn room_of_stranger(&self, account: &AccountId, person: &UserId) -> Result<Option<RoomId>> {
        let mut query = self.conn.prepare_cached(
            "SELECT room FROM pairings WHERE account = ?1 AND person = ?2 AND code IS NOT NULL",
        )?;
        let room =
            query.query_row(params![account.as_str(), person.as_str()], |row| row.get(0)).optional()?;
        Ok(room.map(|room: String| RoomId::new(room)))
    }

    /// Counts the other strangers of an account.
    pub fn other_strangers(&self, account: &AccountId, person: &UserId) -> Result<StrangerCounts> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*) FILTER (WHERE code <> '' OR salt = ?3), count(*) FILTER (WHERE code = '' AND salt <> ?3)
             FROM pairings WHERE account = ?1 AND person <> ?2 AND code IS NOT NULL",
        )?;
        Ok(query.query_row(params![account.as_str(), person.as_str(), INVITED], |row| {
            Ok(StrangerCounts { waiting: row.get(0)?, turned_away: row.get(1)? })
        })?)
    }

    /// Reserves a place for a stranger who brings us into a room, unless they have one.
    pub fn expect_pairing(
        &self,
        account: &AccountId,
        person: &UserId,
        room: &RoomId,
        now: i64,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR IGNORE INTO pairings (account, person, room, code, salt, at)
                 VALUES (?1, ?2, ?3, '', ?4, ?5)",
            )?
            .execute(params![account.as_str(), person.as_str(), room.as_str(), INVITED, now])?;
        Ok(())
    }

    /// Stores a request; it replaces an earlier one of the same person.
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

    /// Voids a request whose code never arrived, unless it was approved or replaced meanwhile.
    pub fn withdraw_pairing(&self, account: &AccountId, person: &UserId, code: &HashedCode) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE pairings SET code = '', salt = '' WHERE account = ?1 AND person = ?2 AND code = ?3",
            )?
            .execute(params![account.as_str(), person.as_str(), code.digest])?;
        Ok(())
    }

    /// Everybody who waits or was let in, the oldest first.
    pub fn pairings(&self) -> Result<Vec<Pairing>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, code IS NOT NULL, at FROM pairings WHERE code IS NOT ''
             ORDER BY at, account, person",
        )?;
        let rows = query.query_map([], read_pairing)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Everybody who waits, each with the hash of their code.
    pub fn waiting_pairings(&self) -> Result<Vec<(Pairing, HashedCode)>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, person, name, room, 1, at, salt, code FROM pairings WHERE code <> ''",
        )?;
        let rows = query.query_map([], |row| {
            Ok((read_pairing(row)?, HashedCode { salt: row.get(6)?, digest: row.get(7)? }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Lets a person in who waits.
    pub fn pair(&self, pairing: &Pairing, now: i64) -> Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE pairings SET code = NULL, salt = '', at = ?3 WHERE account = ?1 AND person = ?2",
            )?
            .execute(params![pairing.account, pairing.person, now])?;
        Ok(())
    }

    /// Deletes the pairing of a person who was let in, and voids the request of one who waits; `None` means on every
    /// account. Returns the rows concerned.
    pub fn unpair(&self, account: Option<&str>, person: &str) -> Result<Vec<Pairing>> {
        let mut gone = Vec::new();
        for statement in [
            "DELETE FROM pairings WHERE (?1 IS NULL OR account = ?1) AND person = ?2 AND code IS NULL
             RETURNING account, person, name, room, 0, at",
            "UPDATE pairings SET code = '', salt = ''
             WHERE (?1 IS NULL OR account = ?1) AND person = ?2 AND code <> ''
             RETURNING account, person, name, room, 1, at",
        ] {
            let mut query = self.conn.prepare_cached(statement)?;
            for row in query.query_map(params![account, person], read_pairing)? {
                gone.push(row?);
            }
        }
        Ok(gone)
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
    use crate::store::tests::temporary;

    fn code(digest: &str) -> HashedCode {
        HashedCode { salt: "salt".to_owned(), digest: digest.to_owned() }
    }

    /// Runs a job on a new store.
    async fn on_a_store(job: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static) {
        let (_folder, store) = temporary();
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
            // Made before the clock was set back: it would be valid for too long.
            ask(tx, "a", "@future", "4", 201)?;
            let in_pairing = tx.pairings()?.into_iter().find(|pairing| pairing.person == "@in").unwrap();
            tx.pair(&in_pairing, 60)?;
            tx.forget_lapsed_pairings(StrangerExpiry { asked: 100, void: 150, now: 200 })?;
            let left: Vec<_> = tx.pairings()?.into_iter().map(|p| (p.person, p.pending, p.at)).collect();
            assert_eq!(left, [("@in".to_owned(), false, 60), ("@new".to_owned(), true, 101)]);
            assert!(tx.is_paired(&"a".into(), "@in")? && !tx.is_paired(&"a".into(), "@new")?);
            assert_eq!(
                tx.other_strangers(&"a".into(), &"@in".into())?,
                StrangerCounts { waiting: 1, turned_away: 0 }
            );
            assert_eq!(
                tx.other_strangers(&"a".into(), &"@new".into())?,
                StrangerCounts { waiting: 0, turned_away: 0 }
            );
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
            // The delivery of the first code fails only now; the second request must stay.
            tx.withdraw_pairing(&"a".into(), &"@eve".into(), &code("1"))?;
            assert_eq!(tx.pairings()?.len(), 1);
            tx.withdraw_pairing(&"a".into(), &"@eve".into(), &code("2"))?;
            assert!(tx.pairings()?.is_empty() && tx.waiting_pairings()?.is_empty());
            assert_eq!(tx.pairing_of(&"a".into(), &"@eve".into())?, Some(200), "it was made all the same");
            let others = tx.other_strangers(&"a".into(), &"@ann".into())?;
            assert_eq!(others, StrangerCounts { waiting: 0, turned_away: 1 });
            tx.forget_lapsed_pairings(StrangerExpiry { asked: 100, void: 200, now: 300 })?;
            assert_eq!(tx.pairing_of(&"a".into(), &"@eve".into())?, None);
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
