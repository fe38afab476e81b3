//! Positions of asks and answers in their turn, so that the next process repeats them at the same positions.

use std::collections::HashMap;

use rusqlite::{Row, params};

use super::read_answer;
use crate::access::GrantScope;
use crate::agent::{AskChoice, AskPosition, AskResolved, DenyReason, PriorAsk};
use crate::ids::{AskId, TurnId};
use crate::store::{Result, Tx};

/// An ask of an unfinished turn, with its answer.
struct StoredAsk {
    turn: TurnId,
    asked: AskPosition,
    /// Position of the answer; `None` if no process has logged it.
    ended: Option<AskPosition>,
    answered: AskResolved,
}

impl Tx<'_> {
    /// Stores the position of an ask that is not where it was expected.
    pub fn ask_stands(&self, id: &AskId, ask_position: AskPosition) -> Result<()> {
        let mut update = self.conn.prepare_cached("UPDATE asks SET told = ?2, nth = ?3 WHERE id = ?1")?;
        update.execute(params![id.0, ask_position.emitted, ask_position.nth])?;
        Ok(())
    }

    /// Stores the position of an answer.
    pub fn answer_stands(&self, id: &AskId, ask_position: AskPosition) -> Result<()> {
        let mut update =
            self.conn.prepare_cached("UPDATE asks SET ended_told = ?2, ended_nth = ?3 WHERE id = ?1")?;
        update.execute(params![id.0, ask_position.emitted, ask_position.nth])?;
        Ok(())
    }

    /// The asks and answers of all unfinished turns, in order. An answer that no process has logged, such as the
    /// denial of a restart, gets its position here: behind all others.
    pub fn asks_so_far(&self) -> Result<HashMap<TurnId, Vec<PriorAsk>>> {
        let mut query = self.conn.prepare_cached(
            "SELECT asks.turn, asks.id, told, nth, ended_told, ended_nth, asks.state, rule, scope, chosen, answer
             FROM asks JOIN turns ON turns.id = asks.turn
             WHERE asks.state IN ('taken', 'denied') AND turns.state IN ('queued', 'dispatched', 'streaming')
             ORDER BY asks.seq",
        )?;
        let mut turns: HashMap<TurnId, Vec<(AskPosition, PriorAsk)>> = HashMap::new();
        let mut untold = Vec::new();
        for row in query.query_map([], read_stored)? {
            let StoredAsk { turn, asked, ended, answered } = row?;
            let (emitted, id) = (asked.emitted, answered.id.clone());
            let so_far = turns.entry(turn.clone()).or_default();
            so_far.push((asked, PriorAsk { emitted, id: id.clone(), answered: None }));
            match ended {
                Some(at) => {
                    so_far.push((at, PriorAsk { emitted: at.emitted, id, answered: Some(answered) }));
                }
                None => untold.push((turn, answered)),
            }
        }
        for (turn, answered) in untold {
            let so_far = turns.entry(turn).or_default();
            let emitted = so_far.iter().map(|(at, _)| at.emitted).max().unwrap_or_default();
            let nth = so_far.iter().map(|(at, _)| at.nth.saturating_add(1)).max().unwrap_or_default();
            let (at, id) = (AskPosition { emitted, nth }, answered.id.clone());
            self.answer_stands(&id, at)?;
            so_far.push((at, PriorAsk { emitted, id, answered: Some(answered) }));
        }
        let in_order = |(turn, mut so_far): (_, Vec<(AskPosition, PriorAsk)>)| {
            so_far.sort_by_key(|(at, _)| at.nth);
            (turn, so_far.into_iter().map(|(_, prior)| prior).collect())
        };
        Ok(turns.into_iter().map(in_order).collect())
    }
}

fn read_stored(row: &Row<'_>) -> rusqlite::Result<StoredAsk> {
    let ended = match (row.get(4)?, row.get(5)?) {
        (Some(emitted), Some(nth)) => Some(AskPosition { emitted, nth }),
        _ => None,
    };
    let (state, rule): (String, Option<String>) = (row.get(6)?, row.get(7)?);
    let choice = match state.as_str() {
        // An answer that cannot be read is the narrowest approval. Nothing is allowed by it: the agent has it.
        "taken" => read_answer(row, 8)?.unwrap_or(AskChoice::Allow(GrantScope::Once)),
        _ => AskChoice::Deny(DenyReason::named(rule.as_deref().unwrap_or_default())),
    };
    Ok(StoredAsk {
        turn: TurnId(row.get(0)?),
        asked: AskPosition { emitted: row.get(2)?, nth: row.get(3)? },
        ended,
        answered: AskResolved { id: AskId(row.get(1)?), choice },
    })
}
