//! A program answers what an agent asks in its turn.

use crate::access::Grant;
use crate::agent::Choice;
use crate::session::{AskId, TurnId};
use crate::store;
use crate::turns::Turns;

/// What became of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
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
        choice: Choice,
        by: String,
    ) -> store::Result<Answer> {
        let turn = turn.clone();
        let answered = self.store.write(move |tx| {
            let mut open = tx.open_asks_of(&turn)?;
            if let Some(which) = which {
                // Said again, because the first answer to it was lost on the way.
                if tx.answered_so(&turn, &which, &by, choice)? {
                    return Ok(Answer::Taken(which));
                }
                open.retain(|ask| ask.id == which);
            }
            let ask = match (open.pop(), open.is_empty()) {
                (None, _) => return Ok(Answer::Nothing),
                (Some(_), false) => return Ok(Answer::Unclear),
                (Some(ask), true) => ask,
            };
            let counts = match choice {
                Choice::Allow(grant) => tx.approve_ask(&ask.id, &by, grant)?,
                Choice::Deny => {
                    let denied = tx.deny_ask(&ask.id, &by, "denied")?;
                    if denied && let Some(row) = tx.turn_head(&turn)? {
                        tx.audit_ask(&row, &ask.digest, &by, None, "denied")?;
                    }
                    denied
                }
            };
            Ok(if counts { Answer::Taken(ask.id) } else { Answer::Nothing })
        });
        let answer = answered.await?;
        if let Answer::Taken(ask) = &answer {
            self.answered(ask);
        }
        Ok(answer)
    }
}

/// How far an answer over HTTP reaches, by the word for it.
pub fn choice(word: &str) -> Option<Choice> {
    match word {
        "deny" => Some(Choice::Deny),
        word => Grant::ALL.into_iter().find(|grant| grant.name() == word).map(Choice::Allow),
    }
}
