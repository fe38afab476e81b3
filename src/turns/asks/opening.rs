//! The transaction that opens an ask, unless a rule denies it or an earlier approval still holds.

use talaria_platform::SendKey;
use tokio_util::sync::CancellationToken;

use super::message::{ask_message, ask_text, tell};
use crate::access::{AppPermissions, GrantScope, PermissionDecision};
use crate::agent::{Ask, AskChoice, AskPosition, DenyReason};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::{AgentName, AskId};
use crate::rules::Rules;
use crate::store::{AskRow, GATEWAY, Result, TurnRow, Tx, unix_now};
use crate::turn_source::TurnSource;
use crate::turns::source::grant_holds;
use crate::util::{code_span, hash, one_line, random_code};

/// Open asks of one turn. People could not tell more of them apart.
const OPEN: usize = 8;

/// Asks of one turn. An agent that asks in circles must not fill the room for ever.
pub const PER_TURN: usize = 100;

/// Characters of a code. Short enough to type; it is no secret, because the room shows it.
const CODE: usize = 4;

/// Attempts to find a free code. One is enough unless the account has very many open asks.
const CODES: usize = 16;

/// Characters of a title. It only names the action, which is shown in full below it.
const TITLE: usize = 120;

/// Result of the transaction.
pub(super) enum AskOpening {
    /// The ask is stored at this position and waits for an answer.
    Waits(Box<AskRow>, AskPosition),
    /// It is allowed without a question: an approval for longer than once still holds, or the app's policy permits it.
    Granted(AskChoice),
    /// A rule denied it; nobody was asked.
    Denied(DenyReason),
}

/// The transaction that opens an ask.
pub(super) struct OpenAskTx<'a> {
    pub tx: &'a Tx<'a>,
    pub rules: &'a Rules,
    pub turn: &'a TurnRow,
    pub ask: &'a Ask,
    pub digest: String,
    /// The agent of turns and grants that name none.
    pub default_agent: &'a AgentName,
    /// Longest message of the platform, in bytes.
    pub max: usize,
    /// Position of the ask in its turn.
    pub ask_position: AskPosition,
}

impl OpenAskTx<'_> {
    pub fn open(&self, id: AskId, within: i64, draining: &CancellationToken) -> Result<AskOpening> {
        let (tx, turn) = (self.tx, self.turn);
        if draining.is_cancelled() {
            return self.deny(DenyReason::Restart);
        }
        if tx.turn(&turn.id)?.is_none_or(|turn| turn.stop) {
            return self.deny(DenyReason::Stopped);
        }
        let title = self.rules.words.say(&self.ask.title);
        let title = match &turn.source {
            TurnSource::Room(_) => code_span(&title, TITLE),
            TurnSource::App(_) => one_line(&title, TITLE),
        };
        if let Some(reason) = self.unshowable_reason(&title) {
            self.tell(id.end_key(), &TextKey::AskUnshowable.with("title", title))?;
            return self.deny(reason);
        }
        if let Some(decided) = self.by_policy()? {
            return Ok(decided);
        }
        if let Some((scope, by)) = self.granted()? {
            let (form, choice) = (&self.ask.form, AskChoice::Allow(scope));
            tx.audit_decision(turn, &self.digest, form, &by, &choice, "granted")?;
            return Ok(AskOpening::Granted(choice));
        }
        // The client learns the name of the run with the answer, and could not answer before.
        let forge = turn.source.app().and_then(|request| request.forge.as_deref());
        if forge.is_some_and(|forge| forge.reads_only_the_end) {
            return self.deny(DenyReason::NotStreamed);
        }
        let (asked, open) = tx.asked_by(&turn.id)?;
        if asked >= PER_TURN || open >= OPEN {
            // All refusals of a turn have one key, so that the room is told once.
            self.tell(turn.id.send_key("asks"), &TextKey::AskTooMany.into())?;
            return self.deny(DenyReason::TooMany);
        }
        let mut row = AskRow::of(turn, id, title, self.digest.clone(), self.ask.form.clone());
        for _ in 0..CODES {
            row.code = random_code(CODE);
            if tx.add_ask(&row, self.ask_position, unix_now().saturating_add(within))? {
                if let TurnSource::Room(question) = &turn.source {
                    let Some(text) = self.text(&row.title, &row.code) else { break };
                    tx.add_outbox(&ask_message(question, row.id.send_key(), text))?;
                }
                return Ok(AskOpening::Waits(Box::new(row), self.ask_position));
            }
        }
        self.deny(DenyReason::TooMany)
    }

    /// The reason why people could not judge the ask, if they could not.
    fn unshowable_reason(&self, title: &str) -> Option<DenyReason> {
        if !self.ask.form.is_valid() {
            return Some(DenyReason::TooLong);
        }
        match &self.turn.source {
            // Every code has the same length.
            TurnSource::Room(_) => {
                let text = self.text(title, &"X".repeat(CODE));
                text.is_none_or(|text| text.len() > self.max).then_some(DenyReason::TooLong)
            }
            // An app gets all of it as data, so only an empty detail cannot be judged.
            TurnSource::App(_) => self.ask.detail.trim().is_empty().then_some(DenyReason::NothingToJudge),
        }
    }

    /// The decision of the app's policy; `None` where somebody is to be asked. A policy holds on every surface: all of them
    /// take every token, so a narrower one could be walked around.
    fn by_policy(&self) -> Result<Option<AskOpening>> {
        let Some(request) = self.turn.source.app() else { return Ok(None) };
        let policy = match self.tx.app_permissions(&request.app)? {
            Some(policy) => policy,
            None if request.forge.is_some() && !request.app.is_empty() => AppPermissions::Deny,
            // The owner, and apps whose tokens name no policy, answer themselves.
            None => AppPermissions::Ask,
        };
        match policy.decide(&self.ask.detail) {
            PermissionDecision::Ask => Ok(None),
            PermissionDecision::Deny => self.deny(DenyReason::Policy).map(Some),
            // The entry that fits may not be what would run, or not where.
            PermissionDecision::AllowOnce if self.ask.gap.is_some() || self.ask.is_elsewhere => {
                self.deny(DenyReason::Policy).map(Some)
            }
            PermissionDecision::AllowOnce => match self.ask.form.allow_once() {
                Some(choice) => {
                    let form = &self.ask.form;
                    self.tx.audit_decision(self.turn, &self.digest, form, GATEWAY, &choice, "policy")?;
                    Ok(Some(AskOpening::Granted(choice)))
                }
                None => self.deny(DenyReason::Policy).map(Some),
            },
        }
    }

    fn text(&self, title: &str, code: &str) -> Option<String> {
        ask_text(&self.rules.words, self.ask, title, code)
    }

    fn tell(&self, key: SendKey, phrase: &LocalizedText) -> Result<()> {
        tell(self.tx, &self.rules.words, self.turn, self.max, key, phrase)
    }

    fn deny(&self, reason: DenyReason) -> Result<AskOpening> {
        let (form, choice) = (&self.ask.form, AskChoice::Deny(reason));
        self.tx.audit_decision(self.turn, &self.digest, form, GATEWAY, &choice, reason.name())?;
        Ok(AskOpening::Denied(reason))
    }

    /// The approval of an equal ask that still holds, and the person who gave it and may still give it. Options and
    /// texts answer only the ask for which they were given.
    fn granted(&self) -> Result<Option<(GrantScope, String)>> {
        match self.ask.form.is_approval() && self.ask.gap.is_none() {
            true => granted(self.tx, self.rules, self.turn, &self.digest, self.default_agent),
            false => Ok(None),
        }
    }
}

/// The approval of an ask with this digest that still holds for the agent of a turn, and the person who gave it.
pub(super) fn granted(
    tx: &Tx<'_>,
    rules: &Rules,
    turn: &TurnRow,
    digest: &str,
    default_agent: &AgentName,
) -> Result<Option<(GrantScope, String)>> {
    let agent = tx.acting_agent(turn, default_agent)?;
    for (grant, by) in tx.granted(turn, digest, &agent, default_agent)? {
        if grant_holds(tx, rules, &turn.source, &agent, grant, &by)? {
            return Ok(Some((grant, by)));
        }
    }
    Ok(None)
}

/// Identifies equal asks: a hash of every word of the ask, shown or not, but for the reason. Titles are taken in the
/// default language, so that a grant outlives a change of language.
pub(super) fn digest(ask: &Ask) -> String {
    let (title, gap) = (ask.title.to_string(), ask.gap.as_ref().map(LocalizedText::to_string));
    let folder = ask.cwd.as_deref().map_or(["none", ""], |cwd| ["in", cwd]);
    let options =
        ask.form.options.iter().flat_map(|option| ["option", &option.id, &option.label, option.kind.name()]);
    let text = ask.form.takes_text.then_some("text");
    let gap = gap.iter().flat_map(|gap| ["gap", gap.as_str()]);
    hash(["ask", &title, &ask.detail].into_iter().chain(folder).chain(options).chain(text).chain(gap))
}
