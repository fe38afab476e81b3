//! Takes the answer of an app to an ask in the app's turn.

use crate::access::GrantScope;
use crate::agent::{AnswerError, AnswerForm, AskChoice, DenyReason};
use crate::ids::{AskId, TurnId};
use crate::store;
use crate::turns::Turns;

/// An answer as the app gave it. Whether it fits is known once its ask is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskReply {
    /// Approves the action.
    Approve(GrantScope),
    /// Denies the action.
    Deny,
    /// Chooses the option with this id.
    Option(String),
    /// Answers in words.
    Text(String),
}

/// Result of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerResult {
    /// The answer counts, for this ask.
    Taken(AskId, AskChoice),
    /// No ask waits for the answer.
    Nothing,
    /// More than one ask is open, and the answer names none.
    Unclear,
    /// The answer does not fit the ask, which stays open.
    Unfit(AnswerError, AnswerForm),
}

impl AskReply {
    fn choice(&self, form: &AnswerForm) -> Result<AskChoice, AnswerError> {
        match self {
            Self::Approve(scope) => form.approve(*scope),
            Self::Deny => Ok(AskChoice::Deny(DenyReason::Person)),
            Self::Option(id) => form.choose(id),
            Self::Text(text) => form.write(text),
        }
    }
}

impl Turns {
    /// Answers an ask in the turn of an app: the one with the id `which`, or the only open one. An answer that is not
    /// clear decides nothing.
    pub async fn answer(
        &self,
        turn: &TurnId,
        which: Option<AskId>,
        reply: AskReply,
        by: String,
    ) -> store::Result<AnswerResult> {
        let turn = turn.clone();
        let answered = self.store.write(move |tx| {
            let mut open = tx.open_asks_of(&turn)?;
            if let Some(which) = which {
                // A client repeats its answer if the response to it was lost.
                if let Some(ask) = tx.ask_of(&turn, &which)?
                    && let Ok(choice) = reply.choice(&ask.form)
                    && tx.is_answered_so(&ask.id, &by, &choice)?
                {
                    return Ok(AnswerResult::Taken(which, choice));
                }
                open.retain(|ask| ask.id == which);
            }
            let ask = match (open.pop(), open.is_empty()) {
                (None, _) => return Ok(AnswerResult::Nothing),
                (Some(_), false) => return Ok(AnswerResult::Unclear),
                (Some(ask), true) => ask,
            };
            let choice = match reply.choice(&ask.form) {
                Ok(choice) => choice,
                Err(error) => return Ok(AnswerResult::Unfit(error, ask.form)),
            };
            Ok(match tx.answer_ask(&ask, &by, &choice)? {
                true => AnswerResult::Taken(ask.id, choice),
                false => AnswerResult::Nothing,
            })
        });
        let answer = answered.await?;
        if let AnswerResult::Taken(ask, _) = &answer {
            self.answered(ask);
        }
        Ok(answer)
    }
}
