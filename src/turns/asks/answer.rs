//! A program answers what an agent asks in its turn.

use crate::access::GrantScope;
use crate::agent::AskChoice;
use crate::ids::{AskId, TurnId};
use crate::store;
use crate::turns::Turns;

/// What became of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerResult {
    /// It counts; this was the question.
    Taken(AskId),
    /// Nothing is asked, or not that, or not any more.
    Nothing,
    /// More than one thing is asked, and it does not say which is meant.
    Unclear,
}

impl Turns {
    /// Answers what the agent asks in a turn of a program: `which` of the questions, or the only one. What is not
    /// clear decides nothing.
    pub async fn answer(
        &self,
        turn: &TurnId,
        which: Option<AskId>,
        choice: AskChoice,
        by: String,
    ) -> store::Result<AnswerResult> {
        let turn = turn.clone();
        let answered = self.store.write(move |tx| {
            let mut open = tx.open_asks_of(&turn)?;
            if let Some(which) = which {
                // Said again, because the first answer to it was lost on the way.
                if tx.answered_so(&turn, &which, &by, choice)? {
                    return Ok(AnswerResult::Taken(which));
                }
                open.retain(|ask| ask.id == which);
            }
            let ask = match (open.pop(), open.is_empty()) {
                (None, _) => return Ok(AnswerResult::Nothing),
                (Some(_), false) => return Ok(AnswerResult::Unclear),
                (Some(ask), true) => ask,
            };
            let counts = match choice {
                AskChoice::Allow(grant) => tx.approve_ask(&ask.id, &by, grant)?,
                AskChoice::Deny => {
                    let denied = tx.deny_ask(&ask.id, &by, "denied")?;
                    if denied && let Some(row) = tx.turn_head(&turn)? {
                        tx.audit_ask(&row, &ask.digest, &by, None, "denied")?;
                    }
                    denied
                }
            };
            Ok(if counts { AnswerResult::Taken(ask.id) } else { AnswerResult::Nothing })
        });
        let answer = answered.await?;
        if let AnswerResult::Taken(ask) = &answer {
            self.answered(ask);
        }
        Ok(answer)
    }
}

/// How far an answer over HTTP reaches, by the word for it.
pub fn choice(word: &str) -> Option<AskChoice> {
    match word {
        "deny" => Some(AskChoice::Deny),
        word => GrantScope::ALL.into_iter().find(|grant| grant.name() == word).map(AskChoice::Allow),
    }
}
