//! The audit: every access decision and its rule, never the text of a message.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use talaria_platform::{AccountId, RoomId, UserId};

use super::{AskRow, Result, TurnRow, Tx, stored_question, unix_now};
use crate::access::{AccessAction, PlaceKind};
use crate::agent::{AnswerForm, AskChoice, OptionKind};
use crate::ids::HTTP;
use crate::util::hash;

/// Decisions that are kept; the oldest go first.
const KEPT: i64 = 200_000;

/// Refusals that are kept besides. Strangers can cause any number of them, and must not be able to displace the records
/// of approvals and pairings.
const KEPT_REFUSALS: i64 = 50_000;

/// SQL condition of a row that anybody can cause: a refusal in a room or over HTTP. Rows of the operator and results of
/// asks do not match.
const REFUSAL: &str = "(allowed = 0 AND place <> 'operator' AND digest IS NULL)";

/// Rows between two prunings. Many: each pruning costs a little.
const PRUNE_EACH: i64 = 1000;

/// Actor of a result that nobody decided: an ask that timed out, was stopped, or outlived its process. No network has
/// such an id.
pub const GATEWAY: &str = "(gateway)";

/// Actor of a row that is about no person: the operator, at the command line.
pub const OPERATOR: &str = "(operator)";

/// A stored decision.
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

/// Selects decisions. A field that is `None` selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditFilter {
    /// Only decisions of this account.
    pub account: Option<String>,
    /// Only decisions about this person.
    pub actor: Option<String>,
    /// Only decisions in these rooms, given as [`room_hash`]es; empty for all.
    pub rooms: Vec<String>,
    /// Only decisions that allowed (`true`) or denied (`false`).
    pub allowed: Option<bool>,
    /// Only decisions at or after this time, in seconds since 1970.
    pub since: Option<i64>,
    /// Only decisions with a smaller number than this: pages through a long list.
    pub before: Option<i64>,
    /// Most rows; the newest are chosen.
    pub limit: Option<i64>,
}

/// The events of a person that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCount<'a> {
    /// Messages and commands that were answered, even if only with a refusal.
    Asking,
    /// Messages, commands and answers to asks.
    Anything,
    /// Messages and commands that this rule refused.
    Refused(&'a str),
}

/// An action of the operator at the command line.
#[derive(Clone, Copy, Debug)]
pub struct OperatorAction<'a> {
    /// The account concerned; empty for all accounts.
    pub account: &'a str,
    /// The person concerned; [`OPERATOR`] if it concerns no person.
    pub actor: &'a str,
    /// The room concerned, if there is one.
    pub room: Option<&'a RoomId>,
    /// Name of the action in the audit.
    pub action: &'a str,
    /// Whether the action lets somebody do something.
    pub allowed: bool,
    /// The reason in the audit.
    pub rule: &'a str,
}

/// A person on no list who tried something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RefusedRow {
    pub account: String,
    pub actor: String,
    pub place: String,
    pub times: usize,
    pub last: i64,
}

/// The audit's name of a room: enough to distinguish rooms and to look for a known one, no more.
pub fn room_hash(account: &AccountId, room: &RoomId) -> String {
    let mut digest = hash(["room", account.as_str(), room.as_str()]);
    digest.truncate(16);
    digest
}

impl Tx<'_> {
    /// Stores a decision. `rule` names its reason.
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

    /// Stores an action of the operator at the command line, which belongs to no event in a room.
    pub fn audit_operator(&self, about: &OperatorAction<'_>) -> Result<()> {
        let OperatorAction { account, actor, room, action, allowed, rule } = *about;
        let account = AccountId::from(account);
        let room = room.map(|room| room_hash(&account, room)).unwrap_or_default();
        self.add_audit(&account, actor, &room, "operator", action, allowed, rule, None)
    }

    /// Stores that an HTTP request was refused before its caller was known. Anybody can cause this row, so it counts as
    /// the refusal of a stranger.
    pub fn audit_turned_away(&self, address: &str, rule: &str) -> Result<()> {
        self.add_audit(&AccountId::from(HTTP), address, "", "http", "request", false, rule, None)
    }

    /// Stores that a known caller over HTTP was refused a turn. Counts as a refusal that anybody can cause.
    pub fn audit_app_refused(&self, actor: &str, rule: &str) -> Result<()> {
        self.add_audit(&AccountId::from(HTTP), actor, "", "http", "message", false, rule, None)
    }

    /// Stores the result of an ask, once for each. `actor` is the person who decided it, or [`GATEWAY`].
    pub fn audit_ask(&self, turn: &TurnRow, ask: &AskRow, actor: &str, choice: &AskChoice) -> Result<()> {
        self.audit_decision(turn, &ask.digest, &ask.form, actor, choice, choice.rule())
    }

    /// Stores the result of an ask that was never open: a rule denied it, or an earlier approval still holds. Never
    /// stores the words of an answer, only the kind that the agent gave the chosen option.
    pub fn audit_decision(
        &self,
        turn: &TurnRow,
        digest: &str,
        form: &AnswerForm,
        actor: &str,
        choice: &AskChoice,
        rule: &str,
    ) -> Result<()> {
        let kind = match choice {
            AskChoice::Option(id) => form.option(id).map(|option| option.kind).unwrap_or_default(),
            AskChoice::Deny(_) | AskChoice::Allow(_) | AskChoice::Text(_) => OptionKind::Answer,
        };
        let (action, allowed) = match choice {
            AskChoice::Deny(_) => ("ask".to_owned(), false),
            AskChoice::Allow(scope) => (format!("ask {}", scope.name()), true),
            AskChoice::Option(_) => (format!("ask {}", kind.name()), !kind.rejects()),
            AskChoice::Text(_) => ("ask text".to_owned(), true),
        };
        let question = stored_question(&turn.id, &turn.source);
        let (account, place) = (&question.account, PlaceKind::from(question.direct).name());
        let room = room_hash(account, &question.place.room);
        self.add_audit(account, actor, &room, place, &action, allowed, rule, Some(digest))
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

    /// The newest decisions that match, oldest first.
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

    /// People on no list who tried something since `since`, the latest first.
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

    /// Time of the `nth` newest (from 1) counted event of a person, if it is after `since`. Events in the future do not
    /// count: a clock that was set back must not shut anybody out.
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
                 AND CASE WHEN ?5 IS NULL THEN allowed = 1 OR rule IN ('admins only', 'agent') ELSE rule = ?5 END
             ORDER BY at DESC LIMIT 1 OFFSET ?7",
        )?;
        let skip = i64::try_from(nth.saturating_sub(1)).unwrap_or(i64::MAX);
        let params = params![account.as_str(), actor.as_str(), since, unix_now(), rule, anything, skip];
        Ok(query.query_row(params, |row| row.get(0)).optional()?)
    }

    /// Deletes the oldest decisions beyond the limits. Also called at each start.
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

    /// A refused message of a person on no list.
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
