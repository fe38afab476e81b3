//! What happens to an event, all of it inside one transaction.

use std::sync::Arc;

use talaria_platform::{
    AccountId, Batch, Body, BodyKind, Capabilities, Event, EventId, EventKind, Invite, Message, RoomId,
    SendKey, UserId,
};

use super::limits::{self, Hearing};
use super::strangers::Stranger;
use super::{deletions, doubts, edits, pairing};
use crate::access::{Action, Actor, Channel, Decision, Grant, Rule, Where};
use crate::agent::{AgentInfo, Rewind};
use crate::command::{self, After, Command, Desk, Parsed};
use crate::notice::Notice;
use crate::rules::{AccountRules, AgentName, Live};
use crate::session::hash;
use crate::store::{OutboxKind, OutboxRow, Result, Tx};
use crate::words::{Phrase, Text, Words};

/// What a transaction needs to know.
pub(super) struct Taking {
    pub account: AccountId,
    /// Asked once in the transaction, not before: it may have waited for others, and for a reload among them.
    pub live: Arc<Live>,
    pub agents: Agents,
    pub about: Capabilities,
}

/// What those who may answer say of themselves.
pub(super) struct Agents {
    pub main: AgentInfo,
    /// For rooms that want it.
    pub local: Option<AgentInfo>,
}

impl Agents {
    fn named(&self, name: Option<AgentName>) -> &AgentInfo {
        match name {
            Some(AgentName::Local) => self.local.as_ref().unwrap_or(&self.main),
            Some(AgentName::Proxy) | None => &self.main,
        }
    }
}

/// What a transaction came to.
#[derive(Default)]
pub(super) struct Taken {
    pub after: Vec<After>,
    pub strangers: Vec<Stranger>,
}

impl Taking {
    /// Takes a whole batch.
    pub fn accept(&self, tx: &Tx<'_>, batch: &Batch) -> Result<Taken> {
        let mut taken = Taken::default();
        let now = self.live.now();
        let rules = now.account(&self.account);
        for event in &batch.events {
            if tx.see(&self.account, &event.place.room, &event.id)? {
                let late = batch.late;
                let taking = One { all: self, tx, words: &now.words, rules: &rules, event, late };
                taken.after.extend(taking.event(&mut taken.strangers)?);
            }
        }
        for (key, value) in &batch.parked {
            tx.park(&self.account, key, value)?;
        }
        for (key, value) in &batch.notes {
            tx.set_note(&self.account, key, value)?;
        }
        if let Some(cursor) = &batch.cursor {
            tx.set_cursor(&self.account, cursor)?;
        }
        Ok(taken)
    }

    /// Whether it depends on what an agent has not said of itself yet what becomes of an event. Changes nothing.
    pub fn needs_abilities(&self, tx: &Tx<'_>, batch: &Batch) -> Result<bool> {
        let now = self.live.now();
        let rules = now.account(&self.account);
        for event in &batch.events {
            let taking = One { all: self, tx, words: &now.words, rules: &rules, event, late: batch.late };
            if taking.agent().rewind == Rewind::Unknown && taking.may_rewind()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether to follow an invitation; if not because no list names its author, with a word for the operator.
    pub fn invite(&self, tx: &Tx<'_>, invite: &Invite) -> Result<(bool, Option<Stranger>)> {
        let Invite { room, about, author, .. } = invite;
        let place = Where::from(about.direct);
        // Whoever invites us is in the room.
        let actor = Actor { left: false, ..tx.actor(&self.account, room, author, Channel::Bare)? };
        let rules = self.live.now().account(&self.account);
        let policy = rules.access_in(room);
        let Decision { allowed, rule } = policy.authorize(actor, place, Action::Invite);
        let follow =
            allowed && (rule != Rule::Pairing || pairing::may_bring_us(tx, &self.account, &author.id, room)?);
        let why = if allowed && !follow { "too many strangers" } else { rule.name() };
        tx.audit(&self.account, &author.id, room, place, Action::Invite, follow, why)?;
        if follow {
            // That they left, we saw; that they came back, we did not, if we were not there.
            tx.arrive(&self.account, room, &author.id)?;
        }
        let stranger = || Stranger::new(&self.account, &author.id, place, "invited us");
        Ok((follow, (rule == Rule::NotListed).then(stranger)))
    }
}

/// One event.
pub struct One<'a> {
    pub(super) all: &'a Taking,
    /// Everything that happens to it happens here.
    pub tx: &'a Tx<'a>,
    /// What rooms are told.
    pub words: &'a Words,
    /// How this account behaves.
    pub rules: &'a AccountRules,
    /// What happened.
    pub event: &'a Event,
    /// It happened while we were not reading.
    pub(super) late: bool,
}

impl One<'_> {
    fn event(&self, strangers: &mut Vec<Stranger>) -> Result<Vec<After>> {
        let (tx, event) = (self.tx, self.event);
        let (account, room, author) = (self.account(), &event.place.room, &event.author.id);
        match &event.kind {
            EventKind::Message(message) if message.addressed => self.message(message, strangers),
            EventKind::Message(_) => Ok(Vec::new()),
            EventKind::Edited { of, text } => edits::take(self, of, text),
            EventKind::Deleted { of } => deletions::take(self, of),
            EventKind::Reacted { to, mark } => command::asks::reaction(self, to, mark),
            // What somebody asked who is gone must not be shown to those who stay.
            EventKind::Left => {
                // A room of strangers comes and goes, and none of them would be obeyed anyway.
                if self.rules.access_in(room).may_admit(author) || tx.is_known(account, author)? {
                    tx.depart(account, room, author)?;
                }
                stop_turns_of(tx, account, Some(room), author)
            }
            EventKind::Joined => {
                tx.arrive(account, room, author)?;
                Ok(Vec::new())
            }
            EventKind::Unreadable => {
                doubts::unreadable(self)?;
                Ok(Vec::new())
            }
            EventKind::Missed { count } => {
                // A room where nobody was ever answered is a room of strangers.
                if tx.is_served(account, room)? {
                    self.notice(&Text::Missed.with("count", *count))?;
                }
                Ok(Vec::new())
            }
        }
    }

    /// Whether it may take back something that an agent remembers: a turn of ours, on the word of one who is obeyed.
    fn may_rewind(&self) -> Result<bool> {
        match &self.event.kind {
            EventKind::Message(message) if message.addressed => match command::parse(&message.text) {
                Parsed::Command(command @ (Command::Retry | Command::Undo), _) => {
                    Ok(self.decide(Action::Command(command))?.allowed)
                }
                Parsed::Command(..) | Parsed::Prompt | Parsed::Unknown(_) => Ok(false),
            },
            EventKind::Edited { of, .. } => edits::may_rewind(self, of),
            EventKind::Deleted { of } => deletions::may_rewind(self, of),
            EventKind::Message(_)
            | EventKind::Reacted { .. }
            | EventKind::Left
            | EventKind::Joined
            | EventKind::Unreadable
            | EventKind::Missed { .. } => Ok(false),
        }
    }

    /// The account it came to.
    pub fn account(&self) -> &AccountId {
        &self.all.account
    }

    /// Decides about an action of the event's author, and keeps the decision.
    pub fn authorize(&self, action: Action) -> Result<Decision> {
        let decision = self.decide(action)?;
        self.audit(action, decision.allowed, decision.rule.name())?;
        Ok(decision)
    }

    pub(super) fn decide(&self, action: Action) -> Result<Decision> {
        let Event { author, room, place, .. } = self.event;
        let actor = self.tx.actor(self.account(), &place.room, author, Channel::of(self.event))?;
        Ok(self.rules.access_in(&place.room).authorize(actor, Where::from(room.direct), action))
    }

    /// Keeps a decision.
    pub(super) fn audit(&self, action: Action, allowed: bool, rule: &str) -> Result<()> {
        let Event { author, room, place, .. } = self.event;
        let kind = Where::from(room.direct);
        self.tx.audit(self.account(), &author.id, &place.room, kind, action, allowed, rule)
    }

    fn message(&self, message: &Message, strangers: &mut Vec<Stranger>) -> Result<Vec<After>> {
        let parsed = command::parse(&message.text);
        let action = match &parsed {
            Parsed::Command(command, behind) => command.action(behind),
            Parsed::Prompt | Parsed::Unknown(_) => Action::Message,
        };
        let decision = self.decide(action)?;
        // Whoever is told that they may not is answered, too.
        let hearing = match decision {
            Decision { allowed: true, .. } | Decision { rule: Rule::AdminsOnly, .. } => {
                limits::check(self, action, &message.text)?
            }
            Decision { allowed: false, .. } => Hearing::Full,
        };
        let answered = match hearing {
            Hearing::Full => true,
            Hearing::Quiet => false,
            Hearing::Refused(too_much) => {
                self.audit(action, false, too_much.rule)?;
                too_much.notice.iter().try_for_each(|phrase| self.notice(phrase))?;
                return Ok(Vec::new());
            }
        };
        self.audit(action, decision.allowed, decision.rule.name())?;
        if !decision.allowed {
            return if answered { self.refuse(decision.rule, &parsed, strangers) } else { Ok(Vec::new()) };
        }
        let mut after = vec![After::Read(self.event.place.clone(), self.event.id.clone())];
        after.extend(self.obey(message, parsed, decision, answered)?);
        Ok(after)
    }

    /// Does what somebody wants who may want it. `answered`: says so, too.
    fn obey(
        &self,
        message: &Message,
        parsed: Parsed,
        decision: Decision,
        answered: bool,
    ) -> Result<Vec<After>> {
        match parsed {
            Parsed::Prompt => self.prompt(message),
            Parsed::Unknown(words) => {
                let notice = self.notice_as(self.notice_key("n", &self.event.id), &self.event.id);
                notice.refuse(self.tx, self.words, &words)?;
                Ok(Vec::new())
            }
            Parsed::Command(command, behind) => {
                let (mut after, answer) = command::apply(&self.desk(decision), command, &behind)?;
                if let Some(phrase) = answer.filter(|_| answered) {
                    self.notice(&phrase)?;
                }
                if command == Command::New && !behind.is_empty() {
                    after.extend(self.prompt(&Message { text: behind, ..message.clone() })?);
                }
                Ok(after)
            }
        }
    }

    /// Who answers here.
    pub(super) fn agent(&self) -> &AgentInfo {
        self.all.agents.named(self.rules.agent_in(&self.event.place.room))
    }

    /// What a command has before it.
    pub fn desk(&self, decision: Decision) -> Desk<'_> {
        Desk {
            tx: self.tx,
            account: self.account(),
            event: self.event,
            rules: self.rules,
            words: self.words,
            agent: self.agent(),
            decision,
        }
    }

    /// Strangers get nothing at all, unless they may ask to be let in; the operator hears of them.
    fn refuse(&self, rule: Rule, parsed: &Parsed, strangers: &mut Vec<Stranger>) -> Result<Vec<After>> {
        let mut after = Vec::new();
        match rule {
            Rule::AdminsOnly => {
                if let Parsed::Command(command, behind) = parsed {
                    let words = match command.action(behind) {
                        // Less would be allowed, so say which words were too much.
                        action @ Action::Approve(Grant::Always) => action.name(),
                        _ => command.name().to_owned(),
                    };
                    self.notice(&Text::AdminsOnly.with("command", words))?;
                }
            }
            Rule::NotListed => {
                let direct = self.event.room.direct;
                let policy = self.rules.access_in(&self.event.place.room);
                if direct && policy.pairs() && policy.serves(Channel::of(self.event)) {
                    after.extend(pairing::ask(self)?);
                }
                let (account, id) = (self.account(), &self.event.author.id);
                let stranger = Stranger::new(account, id, Where::from(direct), "wrote");
                strangers.push(if after.is_empty() { stranger } else { stranger.given_a_code(account) });
            }
            Rule::Untrusted => {
                strangers.push(doubts::untrusted(self)?);
                doubts::mark_untrusted(self)?;
            }
            Rule::Plain => doubts::plain(self)?,
            Rule::Violated => strangers.extend(doubts::violated(self)),
            Rule::Bot | Rule::Left => {}
            // These allow; none of them comes here.
            Rule::Owner | Rule::Admin | Rule::Listed | Rule::Paired | Rule::Everybody | Rule::Pairing => {}
        }
        Ok(after)
    }

    /// Tells the room something about the event, once; nothing if the operator silenced it.
    pub fn notice(&self, phrase: &Phrase) -> Result<()> {
        self.notice_on(&self.event.id, "n", phrase)
    }

    /// The same about an earlier message; once for each message and `what`.
    pub(super) fn notice_on(&self, message: &EventId, what: &str, phrase: &Phrase) -> Result<()> {
        self.notice_as(self.notice_key(what, message), message).tell(self.tx, self.words, phrase)
    }

    /// The same about an earlier message, once for each of whatever `about` names.
    pub(super) fn notice_once(
        &self,
        what: &str,
        about: &[&str],
        message: &EventId,
        phrase: &Phrase,
    ) -> Result<()> {
        self.notice_as(digest_key(what, about), message).tell(self.tx, self.words, phrase)
    }

    /// The key of what [`notice_on`](Self::notice_on) says.
    pub(super) fn notice_key(&self, what: &str, message: &EventId) -> SendKey {
        digest_key(what, &[self.account().as_str(), self.event.place.room.as_str(), message.as_str()])
    }

    /// Changes the text of an earlier notice, not before this time. Only the latest change is shown.
    pub(super) fn change_notice(
        &self,
        key: &SendKey,
        revision: usize,
        phrase: &Phrase,
        not_before: i64,
    ) -> Result<()> {
        let notice = self.notice_as(key.clone(), &self.event.id);
        notice.change(self.tx, self.words, phrase, revision, not_before)
    }

    /// Puts a mark on the event where the platform has marks.
    pub(super) fn mark(&self, mark: &str) -> Result<()> {
        if !self.all.about.react {
            return Ok(());
        }
        self.tx.add_outbox(&OutboxRow {
            key: self.notice_key("mark", &self.event.id),
            account: self.account().clone(),
            place: self.event.place.clone(),
            turn: None,
            kind: OutboxKind::Mark,
            part: 0,
            body: Body { reply_to: Some(self.event.id.clone()), ..Body::new(BodyKind::Notice, mark) },
            not_before: 0,
        })
    }

    fn notice_as<'a>(&'a self, key: SendKey, reply_to: &'a EventId) -> Notice<'a> {
        let (account, place) = (self.account(), &self.event.place);
        Notice { key, account, place, reply_to: Some(reply_to), max_text: self.all.about.max_text }
    }
}

fn digest_key(what: &str, about: &[&str]) -> SendKey {
    let digest = hash(about.iter().copied());
    SendKey::new(format!("{what}.{}", digest.get(..32).unwrap_or(&digest)))
}

/// Asks every turn to stop that somebody started.
pub fn stop_turns_of(
    tx: &Tx<'_>,
    account: &AccountId,
    room: Option<&RoomId>,
    person: &UserId,
) -> Result<Vec<After>> {
    let mut after = Vec::new();
    for (session, turn) in tx.open_turns_by(account, room, person.as_str())? {
        tx.ask_to_stop(&turn)?;
        after.push(After::StopTurn(session, turn));
    }
    Ok(after)
}
