//! What agents asked. Here it is decided who was first: an answer, the end of the time, a stop or another process.
//!
//! An ask is open, then approved by a person or denied; an approved one is taken when the agent is told. Each
//! step is one `UPDATE` that names the state before it, so that of two at the same moment one finds nothing.

use std::collections::HashMap;

use rusqlite::{OptionalExtension as _, Row, params};
use talaria_platform::{AccountId, MessageId, Place, RoomId, ThreadId};

use super::grants::KEPT;
use super::{Result, TurnRow, Tx, stored_question, unix_now};
use crate::access::GrantScope;
use crate::agent::{AskChoice, AskPosition, AskResolved, PriorAsk};
use crate::ids::{AskId, SessionId, TurnId};
use crate::testing::broken;

/// Questions after which those that are long over are looked for.
const PRUNE_EACH: i64 = 100;

/// An ask as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema says what each column is")]
pub struct AskRow {
    pub id: AskId,
    pub code: String,
    pub turn: TurnId,
    pub session: SessionId,
    pub account: AccountId,
    pub place: Place,
    pub title: String,
    pub digest: String,
}

impl AskRow {
    /// A new ask of a turn, without its code.
    pub fn of(turn: &TurnRow, id: AskId, title: String, digest: String) -> Self {
        let question = stored_question(&turn.id, &turn.source);
        Self {
            id,
            code: String::new(),
            turn: turn.id.clone(),
            session: turn.session.clone(),
            account: question.account.clone(),
            place: question.place.clone(),
            title,
            digest,
        }
    }
}

/// An ask that may be answered now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAsk {
    /// Which.
    pub ask: AskRow,
    /// The message that asks is known to be in the room.
    pub shown: bool,
}

/// How far an ask has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskState {
    /// Nobody has answered.
    Open,
    /// A person has allowed it; the agent does not know yet.
    Approved {
        /// How far.
        grant: GrantScope,
        /// Who.
        by: String,
    },
    /// It is over.
    Over,
}

const COLUMNS: &str =
    "asks.id, code, asks.turn, asks.session, asks.account, asks.room, asks.thread, asks.title, digest";

/// Whoever is asked to stop must not be allowed anything any more.
const NOT_STOPPED: &str = "(SELECT stop FROM turns WHERE turns.id = asks.turn) = 0";

impl Tx<'_> {
    /// Opens a question that may be answered until `expires`. `false`: its code is taken.
    pub fn add_ask(&self, ask: &AskRow, ask_position: AskPosition, expires: i64) -> Result<bool> {
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO asks (id, code, turn, session, account, room, thread, title, digest, asked, expires,
                     told, nth)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
                 ON CONFLICT (account, code) WHERE state = 'open' DO NOTHING",
            )?
            .execute(params![
                ask.id.0,
                ask.code,
                ask.turn.0,
                ask.session.0,
                ask.account.as_str(),
                ask.place.room.as_str(),
                ask.place.thread.as_ref().map(ThreadId::as_str),
                ask.title,
                ask.digest,
                unix_now(),
                expires,
                ask_position.emitted,
                ask_position.nth,
            ])?;
        if added == 1 && self.conn.last_insert_rowid() % PRUNE_EACH == 0 {
            self.prune_asks()?;
        }
        Ok(added == 1)
    }

    /// How many questions a turn has asked, and how many of them are open.
    pub fn asked_by(&self, turn: &TurnId) -> Result<(usize, usize)> {
        let mut query = self.conn.prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE state = 'open') FROM asks WHERE turn = ?1",
        )?;
        Ok(query.query_row([&turn.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// The questions of a place that may be answered now, oldest first.
    pub fn open_asks(&self, account: &AccountId, place: &Place) -> Result<Vec<OpenAsk>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS}, EXISTS (SELECT 1 FROM outbox WHERE key = 'a.' || asks.id AND outbox.state = 'sent')
             FROM asks WHERE account = ?1 AND (room = ?2 OR ?5) AND (thread IS ?3 OR ?5) AND state = 'open'
                 AND expires > ?4 AND {NOT_STOPPED} ORDER BY seq",
        ))?;
        let rows = query.query_map(
            params![
                account.as_str(),
                place.room.as_str(),
                place.thread.as_ref().map(ThreadId::as_str),
                if broken("ask-expiry") { 0 } else { unix_now() },
                broken("ask-place"),
            ],
            |row| Ok(OpenAsk { ask: read_ask(row)?, shown: row.get(9)? }),
        )?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The questions of a turn of a program that may be answered now, oldest first.
    pub fn open_asks_of(&self, turn: &TurnId) -> Result<Vec<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks JOIN turns ON turns.id = asks.turn
             WHERE asks.turn = ?1 AND turns.brought IS NOT NULL AND asks.state = 'open' AND expires > ?2
                 AND {NOT_STOPPED} ORDER BY asks.seq",
        ))?;
        let rows = query.query_map(params![turn.0, unix_now()], read_ask)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether this very answer to a question of a turn is the one that counts already.
    pub fn answered_so(&self, turn: &TurnId, id: &AskId, by: &str, choice: AskChoice) -> Result<bool> {
        let (states, scope) = match choice {
            AskChoice::Allow(grant) => (["approved", "taken"], Some(grant.name())),
            AskChoice::Deny => (["denied", "denied"], None),
        };
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM asks WHERE turn = ?1 AND id = ?2 AND by = ?3 AND scope IS ?4
                 AND state IN (?5, ?6))",
        )?;
        Ok(query.query_row(params![turn.0, id.0, by, scope, states[0], states[1]], |row| row.get(0))?)
    }

    /// The question that a message of ours in this room asks, if it may be answered now.
    pub fn ask_shown_by(
        &self,
        account: &AccountId,
        place: &Place,
        message: &MessageId,
    ) -> Result<Option<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks JOIN outbox ON outbox.key = 'a.' || asks.id
             WHERE asks.account = ?1 AND asks.room = ?2 AND asks.state = 'open' AND expires > ?3
                 AND {NOT_STOPPED} AND outbox.account = asks.account AND outbox.room = asks.room AND message = ?4",
        ))?;
        Ok(query
            .query_row(params![account.as_str(), place.room.as_str(), unix_now(), message.as_str()], |row| {
                read_ask(row)
            })
            .optional()?)
    }

    /// Whether a message of ours in this room asks something, or did.
    pub fn is_ask(&self, account: &AccountId, place: &Place, message: &MessageId) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM outbox
                 WHERE account = ?1 AND room = ?2 AND message = ?3 AND substr(key, 1, 2) = 'a.')",
        )?;
        let values = params![account.as_str(), place.room.as_str(), message.as_str()];
        Ok(query.query_row(values, |row| row.get(0))?)
    }

    /// Whether a question of this place came to its end after `since`.
    pub fn ask_ended_since(&self, account: &AccountId, place: &Place, since: i64) -> Result<bool> {
        let mut query = self.conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM asks WHERE account = ?1 AND room = ?2 AND thread IS ?3
                 AND state <> 'open' AND ended > ?4)",
        )?;
        let thread = place.thread.as_ref().map(ThreadId::as_str);
        Ok(query
            .query_row(params![account.as_str(), place.room.as_str(), thread, since], |row| row.get(0))?)
    }

    /// A person allows it. `false`: too late.
    pub fn approve_ask(&self, id: &AskId, by: &str, grant: GrantScope) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(&format!(
                "UPDATE asks SET state = 'approved', scope = ?2, by = ?3, ended = ?4
                 WHERE id = ?1 AND state = 'open' AND (expires > ?4 OR ?5) AND {NOT_STOPPED}"
            ))?
            .execute(params![id.0, grant.name(), by, unix_now(), broken("ask-expiry")])?;
        Ok(changed == 1)
    }

    /// A person, or for some `rule` the gateway, refuses it. `false`: too late.
    pub fn deny_ask(&self, id: &AskId, by: &str, rule: &str) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE asks SET state = 'denied', by = ?2, rule = ?3, ended = ?4 WHERE id = ?1 AND state = 'open'",
            )?
            .execute(params![id.0, by, rule, unix_now()])?;
        Ok(changed == 1)
    }

    /// How far a question has come.
    pub fn ask_state(&self, id: &AskId) -> Result<AskState> {
        let mut query = self.conn.prepare_cached("SELECT state, scope, by FROM asks WHERE id = ?1")?;
        let found = query
            .query_row([&id.0], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, Option<String>>(1)?,
                    row.get::<_, Option<String>>(2)?,
                ))
            })
            .optional()?;
        Ok(match found {
            Some((state, ..)) if state == "open" => AskState::Open,
            Some((state, Some(scope), Some(by))) if state == "approved" => {
                AskState::Approved { grant: granted(Some(scope)), by }
            }
            _ => AskState::Over,
        })
    }

    /// The agent is about to be told that it may act: an approval counts once, and never after a stop.
    pub fn take_ask(&self, id: &AskId) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(&format!(
                "UPDATE asks SET state = 'taken', rule = 'approved' WHERE id = ?1 AND state = 'approved'
                     AND ({NOT_STOPPED} OR ?2)"
            ))?
            .execute(params![id.0, broken("ask-stop")])?;
        Ok(changed == 1)
    }

    /// Whatever a person said, nothing may be done any more. `false`: it was over before.
    pub fn withdraw_ask(&self, id: &AskId, rule: &str) -> Result<bool> {
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE asks SET state = 'denied', rule = ?2, ended = ?3
                 WHERE id = ?1 AND state IN ('open', 'approved')",
            )?
            .execute(params![id.0, rule, unix_now()])?;
        Ok(changed == 1)
    }

    /// Every question that an earlier process left; nobody waits for its answer.
    pub fn left_asks(&self) -> Result<Vec<AskRow>> {
        let mut query = self.conn.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM asks WHERE state IN ('open', 'approved') ORDER BY seq"
        ))?;
        let rows = query.query_map([], read_ask)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// A question stands elsewhere in its turn than was foreseen.
    pub fn ask_stands(&self, id: &AskId, ask_position: AskPosition) -> Result<()> {
        let mut update = self.conn.prepare_cached("UPDATE asks SET told = ?2, nth = ?3 WHERE id = ?1")?;
        update.execute(params![id.0, ask_position.emitted, ask_position.nth])?;
        Ok(())
    }

    /// Where it stands in its turn how a question came out.
    pub fn answer_stands(&self, id: &AskId, ask_position: AskPosition) -> Result<()> {
        let mut update =
            self.conn.prepare_cached("UPDATE asks SET ended_told = ?2, ended_nth = ?3 WHERE id = ?1")?;
        update.execute(params![id.0, ask_position.emitted, ask_position.nth])?;
        Ok(())
    }

    /// What was asked and answered so far in the turns that go on, in order. Answers that no process has told, as those
    /// of a restart, get their place here: behind all that was.
    pub fn asks_so_far(&self) -> Result<HashMap<TurnId, Vec<PriorAsk>>> {
        let mut query = self.conn.prepare_cached(
            "SELECT asks.turn, asks.id, told, nth, ended_told, ended_nth, asks.state, scope, rule
             FROM asks JOIN turns ON turns.id = asks.turn
             WHERE asks.state IN ('taken', 'denied') AND turns.state IN ('queued', 'dispatched', 'streaming')
             ORDER BY asks.seq",
        )?;
        let rows = query.query_map([], |row| {
            let id = AskId(row.get(1)?);
            let asked = AskPosition { emitted: row.get(2)?, nth: row.get(3)? };
            let ended = match (row.get(4)?, row.get(5)?) {
                (Some(emitted), Some(nth)) => Some(AskPosition { emitted, nth }),
                _ => None,
            };
            let (state, scope): (String, Option<String>) = (row.get(6)?, row.get(7)?);
            let choice = if state == "taken" { AskChoice::Allow(granted(scope)) } else { AskChoice::Deny };
            let answered = AskResolved { id: id.clone(), choice, rule: known_rule(row.get(8)?) };
            Ok((TurnId(row.get(0)?), asked, ended, answered))
        })?;
        let mut turns: HashMap<TurnId, Vec<(AskPosition, PriorAsk)>> = HashMap::new();
        let mut untold = Vec::new();
        for row in rows {
            let (turn, asked, ended, answered) = row?;
            let (emitted, id) = (asked.emitted, answered.id.clone());
            let so_far = turns.entry(turn.clone()).or_default();
            so_far.push((asked, PriorAsk { emitted, id: id.clone(), answered: None }));
            match ended {
                Some(ask_position) => so_far.push((
                    ask_position,
                    PriorAsk { emitted: ask_position.emitted, id, answered: Some(answered) },
                )),
                None => untold.push((turn, answered)),
            }
        }
        for (turn, answered) in untold {
            let so_far = turns.entry(turn).or_default();
            let emitted =
                so_far.iter().map(|(ask_position, _)| ask_position.emitted).max().unwrap_or_default();
            let nth = so_far
                .iter()
                .map(|(ask_position, _)| ask_position.nth.saturating_add(1))
                .max()
                .unwrap_or_default();
            let (ask_position, id) = (AskPosition { emitted, nth }, answered.id.clone());
            self.answer_stands(&id, ask_position)?;
            so_far.push((ask_position, PriorAsk { emitted, id, answered: Some(answered) }));
        }
        let in_order = |(turn, mut so_far): (_, Vec<(AskPosition, PriorAsk)>)| {
            so_far.sort_by_key(|(ask_position, _)| ask_position.nth);
            (turn, so_far.into_iter().map(|(_, left)| left).collect())
        };
        Ok(turns.into_iter().map(in_order).collect())
    }

    /// Forgets what is long over. Also called at each start.
    pub fn prune_asks(&self) -> Result<()> {
        let now = unix_now();
        self.conn
            .execute("DELETE FROM asks WHERE state IN ('taken', 'denied') AND asked < ?1", [now - KEPT])?;
        self.conn.execute("DELETE FROM grants WHERE expires <= ?1", [now])?;
        Ok(())
    }
}

/// How far something was allowed. What does not read back is the narrowest.
fn granted(scope: Option<String>) -> GrantScope {
    let known = |grant: &GrantScope| scope.as_deref() == Some(grant.name());
    GrantScope::ALL.into_iter().find(known).unwrap_or(GrantScope::Once)
}

/// Who or what decided, as it is told. What does not read back is a no.
fn known_rule(rule: Option<String>) -> &'static str {
    let known = ["approved", "timeout", "stopped", "restart", "gone"];
    known.into_iter().find(|known| rule.as_deref() == Some(known)).unwrap_or("denied")
}

fn read_ask(row: &Row<'_>) -> rusqlite::Result<AskRow> {
    Ok(AskRow {
        id: AskId(row.get(0)?),
        code: row.get(1)?,
        turn: TurnId(row.get(2)?),
        session: SessionId(row.get(3)?),
        account: AccountId::new(row.get::<_, String>(4)?),
        place: Place {
            room: RoomId::new(row.get::<_, String>(5)?),
            thread: row.get::<_, Option<String>>(6)?.map(ThreadId::new),
        },
        title: row.get(7)?,
        digest: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::PlaceKind;
    use crate::store::tests::temporary;

    fn question(n: i64) -> AskRow {
        AskRow {
            id: AskId(format!("ask {n}")),
            code: format!("{n}"),
            turn: TurnId("turn".to_owned()),
            session: SessionId("session".to_owned()),
            account: "a".into(),
            place: Place::room("!room"),
            title: "run a command".to_owned(),
            digest: "digest".to_owned(),
        }
    }

    #[tokio::test]
    async fn what_is_long_over_goes_while_the_process_runs() {
        let (_folder, store) = temporary();
        let left = store.write(|tx| {
            for n in 1..PRUNE_EACH {
                tx.add_ask(&question(n), AskPosition::default(), unix_now() + 300)?;
                tx.deny_ask(&AskId(format!("ask {n}")), "@ann", "denied")?;
            }
            tx.add_grant_in(&question(1), PlaceKind::Room, GrantScope::Always, "@ann")?;
            // A month passes.
            tx.conn.execute("UPDATE asks SET asked = asked - ?1", [KEPT + 1])?;
            tx.conn.execute("UPDATE grants SET expires = expires - ?1", [KEPT + 1])?;
            tx.add_ask(&question(PRUNE_EACH), AskPosition::default(), unix_now() + 300)?;
            tx.add_grant_in(&question(1), PlaceKind::Room, GrantScope::Session, "@ann")?;
            let count = "SELECT (SELECT count(*) FROM asks), (SELECT count(*) FROM grants)";
            Ok(tx.conn.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
        });
        assert_eq!(left.await.unwrap(), (1, 1));
    }
}
