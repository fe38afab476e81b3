//! Who did what and whether they might: every decision, never a word of what was said.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{Result, TurnRow, Tx, unix_now};
use crate::access::{AccessAction, GrantScope, PlaceKind};
use crate::ids::HTTP;
use crate::util::hash;

/// Decisions that are kept; the oldest go first.
const KEPT: i64 = 200_000;

/// Refusals that are kept besides. Strangers make as many of them as they like, and must not be able to wash out
/// who approved, paired and allowed what.
const KEPT_REFUSALS: i64 = 50_000;

/// What anybody can make us write down: somebody was refused, in a room or over HTTP. Neither the operator's doing nor how an
/// agent's question came out.
const REFUSAL: &str = "(allowed = 0 AND place <> 'operator' AND digest IS NULL)";

/// Decisions after which the oldest are looked for. Rare: looking costs a little.
const PRUNE_EACH: i64 = 1000;

/// The actor of what nobody decided: a question that timed out, was stopped or outlived its process. No
/// network has such an id.
pub const GATEWAY: &str = "(gateway)";

/// The actor of what is about no person: the operator himself, at the command line.
pub const OPERATOR: &str = "(operator)";

/// A decision as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct AuditRow {
    pub seq: i64,
    pub at: i64,
    pub account: String,
    pub actor: String,
    pub room: String,
    pub place: String,
    pub action: String,
    pub allowed: bool,
    pub rule: String,
    pub digest: Option<String>,
}

/// Which decisions somebody wants to see. Everything that is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditFilter {
    /// Only of this account.
    pub account: Option<String>,
    /// Only of this person.
    pub actor: Option<String>,
    /// Only of these rooms, by their hashes; empty for all.
    pub rooms: Vec<String>,
    /// Only those that were allowed, or were not.
    pub allowed: Option<bool>,
    /// Only after this time, in seconds since 1970.
    pub since: Option<i64>,
    /// Only before this one, by its number: what makes pages of a long list.
    pub before: Option<i64>,
    /// At most so many, the newest.
    pub limit: Option<i64>,
}

/// What the limits count of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCount<'a> {
    /// Messages and commands that were answered, if only with a word about who may.
    Asking,
    /// The same, and answers to what agents ask.
    Anything,
    /// Messages and commands that this rule refused.
    Refused(&'a str),
}

/// Something that the operator did at the command line.
#[derive(Clone, Copy, Debug)]
pub struct OperatorAction<'a> {
    /// The account it is about; empty for all of them.
    pub account: &'a str,
    /// Whom it is about; [`OPERATOR`] if it is about a thing.
    pub actor: &'a str,
    /// The room it is about, if there is one.
    pub room: Option<&'a RoomId>,
    /// What was done.
    pub action: &'a str,
    /// Whether it lets somebody do something.
    pub allowed: bool,
    /// Why.
    pub rule: &'a str,
}

/// Somebody no list names, who tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RefusedRow {
    pub account: String,
    pub actor: String,
    pub place: String,
    pub times: usize,
    pub last: i64,
}

/// How the audit names a room: enough to tell rooms apart and to look for a known one, no more.
pub fn room_hash(account: &AccountId, room: &RoomId) -> String {
    let mut digest = hash(["room", account.as_str(), room.as_str()]);
    digest.truncate(16);
    digest
}

impl Tx<'_> {
    /// Keeps a decision. `rule` is what decided it.
    #[expect(clippy::too_many_arguments, reason = "one row, written in one place of the hub and of turns")]
    pub fn audit(
        &self,
        account: &AccountId,
        actor: &UserId,
        room: &RoomId,
        place: PlaceKind,
        action: AccessAction,
        allowed: bool,
        rule: &str,
    ) -> Result<()> {
        let room = room_hash(account, room);
        self.add_audit(account, actor.as_str(), &room, place.name(), &action.name(), allowed, rule, None)
    }

    /// Keeps what the operator did at the command line, where there is no action in a room.
    pub fn audit_operator(&self, about: &OperatorAction<'_>) -> Result<()> {
        let OperatorAction { account, actor, room, action, allowed, rule } = *about;
        let account = AccountId::from(account);
        let room = room.map(|room| room_hash(&account, room)).unwrap_or_default();
        self.add_audit(&account, actor, &room, "operator", action, allowed, rule, None)
    }

    /// Keeps that a request over HTTP was turned away before anybody knew whose it was. Anybody can make us write this, so
    /// it counts as any other refusal of a stranger.
    pub fn audit_turned_away(&self, address: &str, rule: &str) -> Result<()> {
        self.add_audit(&AccountId::from(HTTP), address, "", "http", "request", false, rule, None)
    }

    /// Keeps how an agent's question came out, once for each. `actor` is who decided it: a person, or
    /// [`GATEWAY`]; `grant` is how far it was allowed, `None` if it was not.
    pub fn audit_ask(
        &self,
        turn: &TurnRow,
        digest: &str,
        actor: &str,
        grant: Option<GrantScope>,
        rule: &str,
    ) -> Result<()> {
        let action = grant.map_or("ask".to_owned(), |grant| format!("ask {}", grant.name()));
        let (account, place) = (&turn.account, PlaceKind::from(turn.direct).name());
        let room = room_hash(account, &turn.place.room);
        self.add_audit(account, actor, &room, place, &action, grant.is_some(), rule, Some(digest))
    }

    #[expect(clippy::too_many_arguments, reason = "one row")]
    fn add_audit(
        &self,
        account: &AccountId,
        actor: &str,
        room: &str,
        place: &str,
        action: &str,
        allowed: bool,
        rule: &str,
        digest: Option<&str>,
    ) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO audit (at, account, actor, room, place, action, allowed, rule, digest)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                unix_now(),
                account.as_str(),
                actor,
                room,
                place,
                action,
                allowed,
                rule,
                digest
            ])?;
        // A flood of strangers must not fill the disk between two starts.
        if self.conn.last_insert_rowid() % PRUNE_EACH == 0 { self.prune_audit() } else { Ok(()) }
    }

    /// The newest decisions that fit, oldest first.
    pub fn audited(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>> {
        let mut query = self.conn.prepare_cached(
            "SELECT seq, at, account, actor, room, place, action, allowed, rule, digest FROM audit
             WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR actor = ?2)
                 AND (?3 = '[]' OR room IN (SELECT value FROM json_each(?3)))
                 AND (?4 IS NULL OR allowed = ?4) AND (?5 IS NULL OR at >= ?5) AND (?6 IS NULL OR seq < ?6)
             ORDER BY seq DESC LIMIT ?7",
        )?;
        let AuditFilter { account, actor, rooms, allowed, since, before, limit } = filter;
        let rooms = serde_json::to_string(rooms)?;
        let rows = query.query_map(
            params![account, actor, rooms, allowed, since, before, limit.unwrap_or(i64::MAX)],
            |row| {
                Ok(AuditRow {
                    seq: row.get(0)?,
                    at: row.get(1)?,
                    account: row.get(2)?,
                    actor: row.get(3)?,
                    room: row.get(4)?,
                    place: row.get(5)?,
                    action: row.get(6)?,
                    allowed: row.get(7)?,
                    rule: row.get(8)?,
                    digest: row.get(9)?,
                })
            },
        )?;
        let mut newest_first = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        newest_first.reverse();
        Ok(newest_first)
    }

    /// Those whom no list names and who tried since `since`, the latest first.
    pub fn refused(&self, since: i64, limit: usize) -> Result<Vec<RefusedRow>> {
        let mut query = self.conn.prepare_cached(
            "SELECT account, actor, place, count(*), max(at) FROM audit
             WHERE rule = 'not listed' AND at >= ?1 GROUP BY account, actor, place ORDER BY 5 DESC LIMIT ?2",
        )?;
        let rows = query.query_map(params![since, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(RefusedRow {
                account: row.get(0)?,
                actor: row.get(1)?,
                place: row.get(2)?,
                times: row.get(3)?,
                last: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// When the `nth` newest (from 1) of what was heard of somebody came, if that was after `since`. Nothing after
    /// `now` counts, because a clock that was set back must not shut anybody out.
    pub fn nth_heard(
        &self,
        account: &AccountId,
        actor: &UserId,
        heard: LimitCount<'_>,
        since: i64,
        nth: usize,
    ) -> Result<Option<i64>> {
        let (rule, anything) = match heard {
            LimitCount::Asking => (None, false),
            LimitCount::Anything => (None, true),
            LimitCount::Refused(rule) => (Some(rule), false),
        };
        let mut query = self.conn.prepare_cached(
            "SELECT at FROM audit WHERE account = ?1 AND actor = ?2 AND at > ?3 AND at <= ?4
                 AND (action = 'message' OR action LIKE 'command %'
                     OR ?6 AND (action LIKE 'approve %' OR action = 'deny'))
                 AND CASE WHEN ?5 IS NULL THEN allowed = 1 OR rule = 'admins only' ELSE rule = ?5 END
             ORDER BY at DESC LIMIT 1 OFFSET ?7",
        )?;
        let skip = i64::try_from(nth.saturating_sub(1)).unwrap_or(i64::MAX);
        let params = params![account.as_str(), actor.as_str(), since, unix_now(), rule, anything, skip];
        Ok(query.query_row(params, |row| row.get(0)).optional()?)
    }

    /// Forgets the oldest decisions beyond what is kept. Also called at each start.
    pub fn prune_audit(&self) -> Result<()> {
        self.prune_audit_to(KEPT_REFUSALS, KEPT)
    }

    fn prune_audit_to(&self, refusals: i64, others: i64) -> Result<()> {
        for (kind, kept) in [(REFUSAL.to_owned(), refusals), (format!("NOT {REFUSAL}"), others)] {
            self.conn
                .prepare_cached(&format!(
                    "DELETE FROM audit WHERE {kind} AND seq <=
                         (SELECT seq FROM audit WHERE {kind} ORDER BY seq DESC LIMIT 1 OFFSET ?1)"
                ))?
                .execute([kept])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;

    fn operated(actor: &str) -> OperatorAction<'_> {
        OperatorAction { account: "a", actor, room: None, action: "pair", allowed: true, rule: "operator" }
    }

    /// Somebody whom no list names.
    fn stranger(tx: &Tx<'_>, actor: &str) -> Result<()> {
        let (account, actor, room) = ("a".into(), actor.into(), "!room".into());
        tx.audit(&account, &actor, &room, PlaceKind::Room, AccessAction::Message, false, "not listed")
    }

    fn actors(tx: &Tx<'_>) -> Result<Vec<String>> {
        Ok(tx.audited(&AuditFilter::default())?.into_iter().map(|row| row.actor).collect())
    }

    #[tokio::test]
    async fn strangers_do_not_wash_out_what_matters() {
        let (_folder, store) = temporary();
        let left = store.write(|tx| {
            for actor in ["1", "2", "3"] {
                tx.audit_operator(&operated(actor))?;
            }
            // A refusal, but the operator's own.
            tx.audit_operator(&OperatorAction { allowed: false, ..operated("4") })?;
            for n in 0..50 {
                stranger(tx, &format!("@{n}"))?;
            }
            tx.prune_audit_to(2, 3)?;
            actors(tx)
        });
        assert_eq!(left.await.unwrap(), ["2", "3", "4", "@48", "@49"]);
    }

    #[tokio::test]
    async fn the_oldest_refusals_go_while_the_process_runs() {
        let (_folder, store) = temporary();
        let left = store.write(|tx| {
            tx.audit_operator(&operated("the operator"))?;
            for _ in 0..KEPT_REFUSALS + 2 * PRUNE_EACH {
                stranger(tx, "@eve")?;
            }
            Ok((actors(tx)?.len(), actors(tx)?.remove(0)))
        });
        let (left, first) = left.await.unwrap();
        assert!(left <= usize::try_from(KEPT_REFUSALS + PRUNE_EACH).unwrap(), "{left}");
        assert_eq!(first, "the operator");
    }

    #[tokio::test]
    async fn a_long_list_comes_in_pages() {
        let (_folder, store) = temporary();
        let pages = store.write(|tx| {
            for actor in ["1", "2", "3", "4", "5"] {
                tx.audit_operator(&operated(actor))?;
            }
            let (mut pages, mut before) = (Vec::new(), None);
            loop {
                let filter = AuditFilter { before, limit: Some(2), ..AuditFilter::default() };
                let page = tx.audited(&filter)?;
                let Some(oldest) = page.first() else { return Ok(pages) };
                before = Some(oldest.seq);
                pages.push(page.into_iter().map(|row| row.actor).collect::<String>());
            }
        });
        assert_eq!(pages.await.unwrap(), ["45", "23", "1"]);
    }
}
