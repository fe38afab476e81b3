//! Tokens of the last 24 hours, by the person or app that pays and by agent: the measure of budgets.
//!
//! They are apart from the turns: a session that expires, or that an app deletes, takes its turns with it and must not
//! give tokens back. Tokens count from the end of their turn.

use rusqlite::params;

use super::{Result, Tx, actor, unix_now};
use crate::agent::TokenUsage;
use crate::ids::{AgentName, HTTP};
use crate::turn_source::TurnSource;
use crate::util::hash;

/// Length of the window of a budget, in seconds.
const DAY: i64 = 24 * 60 * 60;

/// Most tokens that one number of an upstream counts for. A sum that overflows would be an error.
const MOST: u64 = 1_000_000_000;

/// The party that pays for a turn: a person, an app, or one session key of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPayer {
    account: String,
    author: String,
    session_key: Option<String>,
}

impl TokenPayer {
    /// The party that pays for a turn of this source.
    pub fn of(source: &TurnSource) -> Self {
        match source {
            TurnSource::Room(question) => Self::person(question.account.as_str(), &question.author),
            TurnSource::App(request) => Self {
                account: HTTP.to_owned(),
                author: actor(&request.app),
                // Only a hash: the key itself may be a secret of the app.
                session_key: request.memory.as_ref().map(|key| hash([key.as_str()])),
            },
        }
    }

    /// A person on an account.
    pub fn person(account: &str, person: &str) -> Self {
        Self { account: account.to_owned(), author: person.to_owned(), session_key: None }
    }
}

/// A budget of tokens, by the party that it limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenBudget<'a> {
    /// The budget of one person, app, or session key of an app, with all agents.
    Payer(&'a TokenPayer),
    /// The budget of one agent, for all who ask it.
    Agent(&'a AgentName),
}

/// Number of tokens that usage counts for in budgets.
pub(crate) fn counted_tokens(usage: TokenUsage) -> u64 {
    usage.input.min(MOST) + usage.output.min(MOST)
}

impl Tx<'_> {
    /// Counts tokens that were used just now.
    pub fn add_token_use(&self, payer: &TokenPayer, agent: &AgentName, usage: TokenUsage) -> Result<()> {
        let (now, tokens) = (unix_now(), counted_tokens(usage));
        self.conn.prepare_cached("DELETE FROM token_use WHERE at <= ?1")?.execute([now - DAY])?;
        if tokens > 0 {
            self.conn
                .prepare_cached(
                    "INSERT INTO token_use (at, account, author, session_key, agent, tokens)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    now,
                    payer.account,
                    payer.author,
                    payer.session_key,
                    agent.as_str(),
                    i64::try_from(tokens).unwrap_or(i64::MAX),
                ])?;
        }
        Ok(())
    }

    /// Tokens that count for a budget now.
    pub fn tokens_used(&self, budget: TokenBudget<'_>) -> Result<u64> {
        let since = unix_now() - DAY;
        Ok(match budget {
            TokenBudget::Payer(TokenPayer { account, author, session_key }) => self
                .conn
                .prepare_cached(
                    "SELECT coalesce(sum(tokens), 0) FROM token_use
                     WHERE account = ?1 AND author = ?2 AND session_key IS ?3 AND at > ?4",
                )?
                .query_row(params![account, author, session_key, since], |row| row.get(0))?,
            TokenBudget::Agent(agent) => self
                .conn
                .prepare_cached(
                    "SELECT coalesce(sum(tokens), 0) FROM token_use WHERE agent = ?1 AND at > ?2",
                )?
                .query_row(params![agent.as_str(), since], |row| row.get(0))?,
        })
    }

    /// Seconds until less than `limit` tokens count for a budget, if nothing more is used; 0 if that is so now.
    pub fn seconds_until_below(&self, budget: TokenBudget<'_>, limit: u64) -> Result<i64> {
        let now = unix_now();
        let mut left = self.tokens_used(budget)?;
        if left < limit {
            return Ok(0);
        }
        let uses: Vec<(i64, u64)> = match budget {
            TokenBudget::Payer(TokenPayer { account, author, session_key }) => {
                let mut query = self.conn.prepare_cached(
                    "SELECT at, tokens FROM token_use
                     WHERE account = ?1 AND author = ?2 AND session_key IS ?3 AND at > ?4 ORDER BY at",
                )?;
                let rows = query.query_map(params![account, author, session_key, now - DAY], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
                rows.collect::<rusqlite::Result<_>>()?
            }
            TokenBudget::Agent(agent) => {
                let mut query = self.conn.prepare_cached(
                    "SELECT at, tokens FROM token_use WHERE agent = ?1 AND at > ?2 ORDER BY at",
                )?;
                let rows = query
                    .query_map(params![agent.as_str(), now - DAY], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect::<rusqlite::Result<_>>()?
            }
        };
        for (at, tokens) in uses {
            left = left.saturating_sub(tokens);
            if left < limit {
                return Ok((at + DAY - now).max(1));
            }
        }
        // A limit of 0 is never undercut.
        Ok(DAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::temporary;
    use crate::turn_source::AppRequest;

    fn app(app: &str, key: Option<&str>) -> TokenPayer {
        let request =
            AppRequest { app: app.to_owned(), memory: key.map(ToOwned::to_owned), ..AppRequest::default() };
        TokenPayer::of(&TurnSource::App(Box::new(request)))
    }

    #[tokio::test]
    async fn each_party_pays_for_itself_and_an_agent_counts_all_of_them() {
        let (_folder, store) = temporary();
        store
            .write(|tx| {
                let payers = [
                    TokenPayer::person("a", "@ann"),
                    TokenPayer::person("a", "@bob"),
                    TokenPayer::person("b", "@ann"),
                    app("forge", None),
                    app("forge", Some("one")),
                    app("forge", Some("two")),
                    app("other", Some("one")),
                    app("", None),
                ];
                for (n, payer) in (1..).zip(&payers) {
                    let agent = if n == 1 { AgentName::local() } else { AgentName::proxy() };
                    tx.add_token_use(payer, &agent, TokenUsage { input: n, output: 10 * n })?;
                }
                for (n, payer) in (1..).zip(&payers) {
                    assert_eq!(tx.tokens_used(TokenBudget::Payer(payer))?, 11 * n, "{payer:?}");
                }
                assert_eq!(tx.tokens_used(TokenBudget::Agent(&AgentName::local()))?, 11);
                assert_eq!(tx.tokens_used(TokenBudget::Agent(&AgentName::proxy()))?, 11 * (36 - 1));
                assert_eq!(tx.tokens_used(TokenBudget::Payer(&TokenPayer::person("a", "@eve")))?, 0);
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn tokens_count_for_a_day_and_say_when_they_are_free_again() {
        let (_folder, store) = temporary();
        store
            .write(|tx| {
                let (ann, agent) = (TokenPayer::person("a", "@ann"), AgentName::proxy());
                let budgets = [TokenBudget::Payer(&ann), TokenBudget::Agent(&agent)];
                // A hostile upstream overflows nothing.
                tx.add_token_use(&ann, &agent, TokenUsage { input: u64::MAX, output: u64::MAX })?;
                tx.conn.execute("UPDATE token_use SET at = at - ?1", [DAY - 100])?;
                tx.add_token_use(&ann, &agent, TokenUsage { input: 50, output: 0 })?;
                for budget in budgets {
                    assert_eq!(tx.tokens_used(budget)?, 2 * MOST + 50);
                    let free = tx.seconds_until_below(budget, 1000)?;
                    assert!((98..=100).contains(&free), "{free}");
                    assert_eq!(tx.seconds_until_below(budget, 3 * MOST)?, 0);
                    assert!(tx.seconds_until_below(budget, 50)? > DAY - 5);
                    assert_eq!(tx.seconds_until_below(budget, 0)?, DAY);
                }
                tx.conn.execute("UPDATE token_use SET at = at - 200", [])?;
                assert_eq!(tx.tokens_used(TokenBudget::Payer(&ann))?, 50);
                tx.add_token_use(&ann, &agent, TokenUsage::default())?;
                let rows: i64 = tx.conn.query_row("SELECT count(*) FROM token_use", [], |row| row.get(0))?;
                assert_eq!(rows, 1, "what no longer counts is deleted");
                Ok(())
            })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_sum_reads_an_index_only() {
        let (_folder, store) = temporary();
        let plans = store.read(|tx| {
            let plan = |sql: &str| -> Result<String> {
                let mut query = tx.conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                Ok(query.query_row([], |row| row.get(3))?)
            };
            Ok([
                plan(
                    "SELECT sum(tokens) FROM token_use
                      WHERE account = 'a' AND author = 'b' AND session_key IS NULL AND at > 1",
                )?,
                plan("SELECT sum(tokens) FROM token_use WHERE agent = 'a' AND at > 1")?,
            ])
        });
        for plan in plans.await.unwrap() {
            assert!(plan.contains("COVERING INDEX"), "{plan}");
        }
    }
}
