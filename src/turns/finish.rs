//! Ends a turn: decides which text stays, and stores it together with the final messages of the room.

use std::sync::Arc;

use talaria_platform::{AnswerRemark, BodyKind, MessageBody, ShowMode};

use super::review::DueReview;
use super::run::PriorProgress;
use super::source::{self, may_retry, permitted};
use super::{Turns, answer_files, fallback_notices, token_budget};
use crate::agent::{AgentInfo, AgentKind, NamedAgent, REMARKS_FACT, RewindSupport};
use crate::delivery::REQUEST;
use crate::i18n::{TextCatalog, TextKey};
use crate::ids::AgentName;
use crate::openai::wire::RelayedRemark;
use crate::reply::{self, TurnOutcome};
use crate::store::{self, FinishedTurn, StoreError, TurnRow, unix_now};
use crate::turn_log::{TurnLog, TurnSummary};
use crate::turn_source::{RoomQuestion, TurnSource};

/// Answers with more bytes end one after the other: storing one takes several times its size in memory.
const LARGE: usize = 1024 * 1024;

/// Conditions at the end of a turn, read from the store.
struct EndConditions {
    /// Whether the asker may still ask.
    permitted: bool,
    /// A message that shows the turn was sent, or may have been.
    anchored: bool,
    /// The agent that the request was made for, if there was one.
    asked: Option<AgentName>,
    /// Messages that the agent recorded during the turn.
    recorded: u32,
    /// Rounds of tool calls in the turn.
    tool_rounds: u32,
    /// Whether the author of the turn may use `/retry`: where not, it is not offered.
    may_retry: bool,
}

impl Turns {
    /// Stores the end of a turn, together with the messages that its room must show.
    pub(super) async fn finish(
        &self,
        turn: &Arc<TurnRow>,
        log: &TurnLog,
        before: PriorProgress,
        outcome: TurnOutcome,
    ) -> store::Result<()> {
        let _permit = match log.size() > LARGE {
            true => self.long_ends.acquire().await.ok(),
            false => None,
        };
        let TurnSummary {
            text,
            differs,
            tools,
            files,
            more_files,
            attached,
            usage,
            mut facts,
            remarks,
            shown: seen,
        } = log.take_summary();
        let (edited, history) = (before.edited, before.history);
        let conditions = self.end_conditions(turn).await?;
        let text_replaced = differs || !goes_on(&text, &before.already_shown, &outcome);
        let (text, outcome) = match conditions.permitted {
            true => (longer(text, before.already_shown, &outcome), outcome),
            false => only_seen(text, seen, before, conditions.anchored),
        };
        let whole = is_whole(&outcome);
        let blank = text.trim().is_empty();
        let account = self.account_of(&turn.source);
        // The process before this one may have died with an edit under way, which could still arrive after the final:
        // then the final is shown once more when that edit has timed out.
        let edits =
            account.as_ref().is_some_and(|account| matches!(account.about().show, ShowMode::Edit { .. }));
        let again = edited && edits;
        let kind = if blank && outcome != TurnOutcome::Done { BodyKind::Notice } else { BodyKind::Answer };
        let rules = self.live.now();
        let words: &TextCatalog = match conditions.may_retry {
            true => &rules.words,
            false => &rules.words.without_retry_offers(),
        };
        let own = self.agent_of(turn);
        let about = own.agent.about();
        let asked = about.taking(&own.name, conditions.asked.as_ref().unwrap_or(&own.name));
        let remembered = asked.is_none_or(AgentInfo::is_remembered);
        let asked_kind = asked.map(|asked| asked.kind);
        let model = asked_kind == Some(AgentKind::Model);
        let is_guide = asked_kind == Some(AgentKind::Guide);
        let final_text = || match blank && outcome == TurnOutcome::Done && model {
            true => words.say(&TextKey::EmptyAnswerModel.into()),
            false => reply::finished(&text, &outcome, words),
        };
        // An asker who may no longer be answered gets no files either.
        let (files, more) = if conditions.permitted { (files, more_files) } else { (Vec::new(), 0) };
        let takes = account.is_some_and(|account| account.about().media);
        let (files, notes) = answer_files::sort(files, more, takes, words);
        let notes = remarks.iter().fold(notes, |notes, remark| format!("{notes}\n\n{}", words.say(remark)));
        let parts = match &turn.source {
            TurnSource::Room(question) => {
                let shown = final_text() + notes.as_str();
                let max = source::max_text(&self.delivery, &turn.source);
                final_parts(
                    question,
                    &text,
                    shown,
                    max,
                    MessageBody { failed: blank || !whole, ..MessageBody::new(kind, "") },
                )
            }
            // Readers of an app's turn render the text themselves, and everything that stands below it.
            TurnSource::App(_) => {
                if !remarks.is_empty() {
                    let remarks: Vec<_> = remarks.iter().map(RelayedRemark::of).collect();
                    facts.insert(REMARKS_FACT.to_owned(), serde_json::json!(remarks));
                }
                Vec::new()
            }
        };
        let attached = source::attached(&turn.source, attached);
        let said = (remembered && (!blank || conditions.recorded > 0)).then(|| {
            let mut said = source::prompt(turn) + attached.as_str();
            // In place, because the text may be large.
            said.drain(..said.len() - said.trim_start_matches('\n').len());
            said
        });
        let (name, why) = outcome.for_the_log();
        tracing::info!(outcome = name, why, bytes = text.len(), "turn ended");
        let finish = FinishedTurn {
            api_calls: match asked_kind {
                // The requests to the model are the agent's own.
                Some(AgentKind::Codex | AgentKind::Acp) => conditions.recorded.min(1),
                Some(AgentKind::Proxy | AgentKind::Model | AgentKind::Guide) | None => conditions.recorded,
            }
            .max(u32::from(whole || matches!(outcome, TurnOutcome::Stopped))),
            tools,
            history_offset: history,
            usage,
            facts,
            may_have_run: !is_guide && may_have_run(&outcome, !blank || conditions.recorded > 0),
            text,
            text_replaced,
            outcome,
            said,
            parts,
            files,
        };
        let mark = conditions.permitted.then(|| mark(&finish.outcome)).flatten();
        let finish = Arc::new(finish);
        let due = self.keep_end(turn.clone(), finish.clone(), again, conditions.tool_rounds).await?;
        if let Some(due) = due {
            self.keep_due_review(due);
        }
        self.surface(&turn.source).ended(&finish.outcome);
        if let Some(mark) = mark {
            self.mark(&turn.source, mark);
        }
        Ok(())
    }

    /// Reads the conditions now that the answer is there. Retries while the store fails: otherwise the answer would be
    /// lost.
    async fn end_conditions(&self, turn: &Arc<TurnRow>) -> store::Result<EndConditions> {
        loop {
            let (row, live) = (turn.clone(), self.live.clone());
            let conditions = self.store.read(move |tx| {
                let (anchored, asked) = (tx.anchor(&row.id)?.is_some(), tx.request_agent(&row.id)?);
                let rules = live.now();
                let (permitted, may_retry) =
                    (permitted(tx, &rules, &row.source)?, may_retry(tx, &rules, &row.source)?);
                Ok(EndConditions {
                    permitted,
                    anchored,
                    asked,
                    recorded: tx.recorded_answers(&row.id)?,
                    tool_rounds: tx.recorded_rounds(&row.id)?,
                    may_retry,
                })
            });
            match conditions.await {
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) if !self.draining.is_cancelled() => {
                    tracing::error!(%error, "an answer waits for the store");
                    tokio::time::sleep(super::STORE_PAUSE).await;
                }
                conditions => return conditions,
            }
        }
    }

    /// Writes the end of a turn. Retries while the store fails, such as on a full disk: otherwise the answer would be
    /// lost.
    async fn keep_end(
        &self,
        turn: Arc<TurnRow>,
        finish: Arc<FinishedTurn>,
        again: bool,
        tool_rounds: u32,
    ) -> store::Result<Option<DueReview>> {
        loop {
            let (row, end, now) = (turn.clone(), finish.clone(), unix_now());
            let NamedAgent { name: own, agent } = self.agent_of(&turn);
            let about = agent.about();
            let (rewind, thresholds) = (about.rewind, self.review_thresholds());
            let stays = finish.said.is_some();
            let whole = is_whole(&finish.outcome);
            let max = source::max_text(&self.delivery, &turn.source);
            let rules = self.live.now();
            let written = self.store.write(move |tx| {
                let counted = tx.finish(&row, &end)?;
                let mut due = None;
                if let Some(asked) = tx.request_agent(&row.id)? {
                    token_budget::tell_crossed_marks(tx, &row, &asked, counted, &rules, max)?;
                    if stays {
                        tx.agent_answered(&row.session, &asked)?;
                        let learns = about.taking(&own, &asked).map(|asked| asked.learns).unwrap_or_default();
                        let reasons = match learns.any() {
                            true => tx.count_for_review(&row.session, learns, tool_rounds, thresholds)?,
                            false => learns,
                        };
                        let (turn, asked) = (row.clone(), asked.clone());
                        due = reasons.any().then_some(DueReview { turn, asked, about: reasons });
                    }
                    // Only with a whole answer: an agent that was asked again may have failed again.
                    if whole && asked == own && tx.fallback_ends(&row.session)? {
                        let knows =
                            rewind != RewindSupport::Impossible && tx.knows_all(&row.session, &asked)?;
                        let notices = fallback_notices::back(&row, max, knows, &rules.words);
                        notices.iter().try_for_each(|notice| tx.add_outbox(notice))?;
                    }
                }
                match row.source.room() {
                    Some(question) if again => {
                        let late = now + REQUEST.as_secs() as i64;
                        tx.show_again(&row.id, question, end.parts.first(), late)?;
                    }
                    Some(_) | None => {}
                }
                Ok(due)
            });
            match written.await {
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) if !self.draining.is_cancelled() => {
                    tracing::error!(%error, "an answer waits for the store");
                    tokio::time::sleep(super::STORE_PAUSE).await;
                }
                written => return written,
            }
        }
    }
}

/// The messages of an answer in its room, each like `body` but for its text.
fn final_parts(
    question: &RoomQuestion,
    text: &str,
    shown: String,
    max_text: usize,
    body: MessageBody,
) -> Vec<MessageBody> {
    let remark = remark(text, &shown);
    let parts = reply::into_parts(shown, max_text).into_iter().enumerate();
    let mut bodies: Vec<_> = parts
        .map(|(part, markdown)| MessageBody {
            markdown,
            reply_to: Some(question.event.clone()),
            // The first part notifies people, unless the live message has done so already.
            silent: part > 0,
            ..body.clone()
        })
        .collect();
    if let [body] = bodies.as_mut_slice() {
        body.remark = remark;
    }
    bodies
}

/// The gateway's own words at the end of `shown`, and the byte after which they stand.
fn remark(text: &str, shown: &str) -> Option<AnswerRemark> {
    let text = text.trim_end();
    let behind = shown.strip_prefix(text).filter(|behind| !behind.trim().is_empty())?;
    // A fence before the blank line closes a code block that the answer left open.
    let words =
        if text.is_empty() { behind } else { behind.split_once("\n\n").map_or(behind, |(_, words)| words) };
    Some(AnswerRemark { after: text.len(), words: words.trim().to_owned() })
}

/// Mark on a question whose turn ended; none if a person stopped it, because they know.
fn mark(outcome: &TurnOutcome) -> Option<&'static str> {
    match outcome {
        TurnOutcome::Done | TurnOutcome::Limit => Some("✅"),
        TurnOutcome::CutShort { .. }
        | TurnOutcome::Failed { .. }
        | TurnOutcome::Unavailable { .. }
        | TurnOutcome::Interrupted
        | TurnOutcome::Unknown { .. } => Some("❌"),
        TurnOutcome::Stopped | TurnOutcome::Cancelled { .. } => None,
    }
}

/// Whether the final text continues the text that people could already read.
fn goes_on(text: &str, already_shown: &str, outcome: &TurnOutcome) -> bool {
    text.starts_with(already_shown) || (!is_whole(outcome) && already_shown.starts_with(text))
}

/// Whether the request of a turn may have cost tokens. `has_words`: whether anything came back.
fn may_have_run(outcome: &TurnOutcome, has_words: bool) -> bool {
    match outcome {
        TurnOutcome::Done | TurnOutcome::Limit | TurnOutcome::Interrupted | TurnOutcome::Unknown { .. } => {
            true
        }
        // It may have been stopped, or have failed, before anything was sent.
        TurnOutcome::Stopped
        | TurnOutcome::CutShort { .. }
        | TurnOutcome::Failed { .. }
        | TurnOutcome::Unavailable { .. }
        | TurnOutcome::Cancelled { .. } => has_words,
    }
}

fn is_whole(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Done | TurnOutcome::Limit)
}

/// The final text. Only a whole answer may be shorter than the text that people could already read.
fn longer(text: Arc<String>, already_shown: String, outcome: &TurnOutcome) -> Arc<String> {
    if !is_whole(outcome) && text.len() < already_shown.len() { Arc::new(already_shown) } else { text }
}

/// The final text and outcome of a turn whose asker may no longer be answered: the others in the room see that it
/// ended, and no text that they had not seen. If they had seen nothing at all, they are shown nothing.
fn only_seen(
    text: Arc<String>,
    shown: usize,
    before: PriorProgress,
    anchored: bool,
) -> (Arc<String>, TurnOutcome) {
    if !anchored {
        return (Arc::default(), TurnOutcome::Cancelled { words: "".into() });
    }
    // An earlier process showed all the text that it stored, if it showed anything.
    let already_shown = if before.anchored { before.already_shown.len() } else { 0 };
    let mut text = longer(text, before.already_shown, &TurnOutcome::Stopped);
    let seen = text.floor_char_boundary(shown.max(already_shown));
    Arc::make_mut(&mut text).truncate(seen);
    (text, TurnOutcome::Stopped)
}
