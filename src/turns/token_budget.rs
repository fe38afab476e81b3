//! Budgets of tokens in the engine: how much a turn may still use, and the notices when a budget runs low.
//!
//! Tokens count when their turn ends. A turn may use what is left when it begins, and the request that crosses the limit
//! is its last but one: it still answers. So turns that run at the same moment may pass a limit together, each by at most
//! one turn. Where no tokens were reported, because the server does not, or because the process died, they are estimated
//! from bytes (`src/agent/usage_estimate.rs`).

use std::time::{Duration, SystemTime};

use super::source;
use crate::agent::TokenUsage;
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::notice::notice_key;
use crate::rules::{BudgetConfig, Rules};
use crate::store::{self, TokenBudget, TokenPayer, TurnRow, Tx, unix_now};
use crate::util::UtcTime;

/// Percentage of a budget at which people are told that little is left.
const LOW: u64 = 80;

const DAY: i64 = 24 * 60 * 60;

/// A budget that has no token left.
pub(super) struct UsedUp {
    /// The sentence for people.
    pub words: LocalizedText,
    /// Seconds until some tokens are free again.
    pub retry_after: u64,
}

/// Tokens that a turn may use now; `None` without a budget.
pub(super) fn tokens_left(
    tx: &Tx<'_>,
    budget: BudgetConfig,
    payer: &TokenPayer,
    agent: &AgentName,
) -> store::Result<Result<Option<u64>, UsedUp>> {
    let mut least = None;
    for (party, limit) in parties(budget, payer, agent) {
        let left = limit.saturating_sub(tx.tokens_used(party)?);
        if left == 0 {
            return Ok(Err(used_up(tx, party, limit)?));
        }
        least = Some(least.map_or(left, |least: u64| least.min(left)));
    }
    Ok(Ok(least))
}

/// Tells the room of a turn if tokens that `agent` just used for it crossed a mark of a budget. Called in the transaction
/// that counts them. Each mark is told once a day, and never to an app, which has no place to be told in.
pub(super) fn tell_crossed_marks(
    tx: &Tx<'_>,
    turn: &TurnRow,
    agent: &AgentName,
    usage: TokenUsage,
    rules: &Rules,
    max_text: usize,
) -> store::Result<()> {
    let Some(question) = turn.source.room() else { return Ok(()) };
    let payer = TokenPayer::of(&turn.source);
    for (party, limit) in parties(rules.budget, &payer, agent) {
        let after = tx.tokens_used(party)?;
        let before = after.saturating_sub(store::counted_tokens(usage));
        let Some((mark, phrase)) = crossed(party, limit, before, after) else { continue };
        let (kind, account, owner) = match party {
            TokenBudget::Payer(_) => ("person", question.account.as_str(), question.author.as_str()),
            TokenBudget::Agent(agent) => ("agent", "", agent.as_str()),
        };
        let (day, limit) = ((unix_now() / DAY).to_string(), limit.to_string());
        let key = notice_key("budget", &[kind, account, owner, mark, &limit, &day]);
        if let Some(notice) = source::notice(&turn.source, key, max_text) {
            notice.tell(tx, &rules.words, &phrase)?;
        }
    }
    Ok(())
}

/// The budgets that a turn counts for, with their limits.
fn parties<'a>(
    budget: BudgetConfig,
    payer: &'a TokenPayer,
    agent: &'a AgentName,
) -> impl Iterator<Item = (TokenBudget<'a>, u64)> {
    let person = budget.person.map(|limit| (TokenBudget::Payer(payer), limit));
    let agent = budget.agent.map(|limit| (TokenBudget::Agent(agent), limit));
    person.into_iter().chain(agent)
}

/// The mark that was crossed, the higher of two, and the sentence about it.
fn crossed(
    party: TokenBudget<'_>,
    limit: u64,
    before: u64,
    after: u64,
) -> Option<(&'static str, LocalizedText)> {
    let low = u64::try_from(u128::from(limit) * u128::from(LOW) / 100).unwrap_or(limit);
    if before < limit && limit <= after {
        let phrase = match party {
            TokenBudget::Payer(_) => TextKey::BudgetPersonReached.into(),
            TokenBudget::Agent(agent) => TextKey::BudgetAgentReached.with("name", agent.as_str()),
        };
        return Some(("reached", phrase.with("limit", limit)));
    }
    if before < low && low <= after && after < limit {
        let phrase = match party {
            TokenBudget::Payer(_) => TextKey::BudgetPersonLow.into(),
            TokenBudget::Agent(agent) => TextKey::BudgetAgentLow.with("name", agent.as_str()),
        };
        return Some(("low", phrase.with("limit", limit).with("left", limit - after)));
    }
    None
}

fn used_up(tx: &Tx<'_>, party: TokenBudget<'_>, limit: u64) -> store::Result<UsedUp> {
    let wait = u64::try_from(tx.seconds_until_below(party, limit)?).unwrap_or_default();
    let free = SystemTime::now() + crate::testing::clock_lead() + Duration::from_secs(wait);
    // Rounded up to the next minute, so that the time is not too early.
    let UtcTime { hour, minute, .. } = UtcTime::from(free + Duration::from_secs(59));
    let phrase = match party {
        TokenBudget::Payer(_) => TextKey::BudgetPersonUsedUp.into(),
        TokenBudget::Agent(agent) => TextKey::BudgetAgentUsedUp.with("name", agent.as_str()),
    };
    let words = phrase.with("limit", limit).with("time", format!("{hour:02}:{minute:02}"));
    Ok(UsedUp { words, retry_after: wait })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_crossed_by_one_turn_only() {
        let payer = TokenPayer::person("a", "@ann");
        for (limit, before, after, mark) in [
            (100, 0, 79, None),
            (100, 0, 80, Some("low")),
            (100, 79, 99, Some("low")),
            (100, 80, 99, None),
            (100, 0, 100, Some("reached")),
            (100, 99, 500, Some("reached")),
            (100, 100, 500, None),
            (1, 0, 1, Some("reached")),
            (0, 0, 5, None),
            (u64::MAX, 0, u64::MAX / 10 * 9, Some("low")),
        ] {
            let told = crossed(TokenBudget::Payer(&payer), limit, before, after).map(|(mark, _)| mark);
            assert_eq!(told, mark, "{before} to {after} of {limit}");
        }
    }
}
