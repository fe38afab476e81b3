//! Takes one event inside the transaction of its batch.

use std::sync::Arc;

use talaria_platform::{
    AccountId, BodyKind, EventBatch, EventId, IncomingMessage, MessageBody, PlatformCapabilities, RoomEvent,
    RoomEventKind, RoomId, RoomInvite, SendKey, UserId,
};

use super::limits::{self, LimitVerdict};
use super::refusal_log::RefusedPerson;
use super::{deletions, edits, pairing, reactions, untrusted_notices};
use crate::access::{
    AGENT_RULE, AccessAction, AccessDecision, AccessRule, Actor, AgentAsker, EntryChannel, GrantScope,
    PlaceKind,
};
use crate::agent::{AgentInfo, AgentInfos, RewindSupport};
use crate::chat_command::ChatCommand;
use crate::command::{self, CommandContext, ParsedMessage};
use crate::i18n::{LocalizedText, TextKey};
use crate::ids::AgentName;
use crate::notice::{Notice, notice_key};
use crate::post_commit::PostCommit;
use crate::rules::{AccountRules, LiveRules, Rules, SessionKey};
use crate::store::{OutboxKind, OutboxRow, Result, TurnRow, Tx};

/// Data that the transaction of a batch needs.
pub(super) struct AcceptBatch {
    pub account: AccountId,
    /// Read once inside the transaction, not before: a reload may have come while the transaction waited.
    pub live: Arc<LiveRules>,
    pub agents: AgentInfos,
    pub about: PlatformCapabilities,
}

/// Result of the transaction of a batch.
#[derive(Default)]
pub(super) struct Accepted {
    pub after: Vec<PostCommit>,
    pub strangers: Vec<RefusedPerson>,
}

impl AcceptBatch {
    /// Applies the new events of a batch and stores its position and notes.
    pub fn accept(&self, tx: &Tx<'_>, batch: &EventBatch) -> Result<Accepted> {
        let mut accepted = Accepted::default();
        let now = self.live.now();
        let rules = now.account(&self.account);
        for event in &batch.events {
            if tx.mark_new(&self.account, &event.place.room, &event.id)? {
                let late = batch.late;
                let context = EventContext { acceptor: self, tx, all: &now, rules: &rules, event, late };
                accepted.after.extend(context.apply(&mut accepted.strangers)?);
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
        Ok(accepted)
    }

    /// Whether the outcome of an event depends on a capability that its agent has not reported yet. Read-only.
    pub fn needs_abilities(&self, tx: &Tx<'_>, batch: &EventBatch) -> Result<bool> {
        let now = self.live.now();
        let rules = now.account(&self.account);
        for event in &batch.events {
            let late = batch.late;
            let context = EventContext { acceptor: self, tx, all: &now, rules: &rules, event, late };
            if context.remembered_by()?.iter().any(|agent| agent.rewind == RewindSupport::Unknown) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Decides whether to follow an invitation. Returns the author as well if no list names them, for the log.
    pub fn invite(&self, tx: &Tx<'_>, invite: &RoomInvite) -> Result<(bool, Option<RefusedPerson>)> {
        let RoomInvite { room, about, author, .. } = invite;
        let place = PlaceKind::from(about.direct);
        // A person who invites us is a member of that room.
        let actor = Actor { left: false, ..tx.actor(&self.account, room, author, EntryChannel::Bare)? };
        let rules = self.live.now().account(&self.account);
        let policy = rules.access_in(room);
        let AccessDecision { allowed, rule } = policy.authorize(actor, place, AccessAction::Invite);
        let follow = allowed
            && (rule != AccessRule::Pairing || pairing::may_bring_us(tx, &self.account, &author.id, room)?);
        let why = if allowed && !follow { "too many strangers" } else { rule.name() };
        tx.audit(&self.account, &author.id, room, place, AccessAction::Invite, follow, why)?;
        if follow {
            // We saw them leave; but we were not in the room, and so did not see them come back.
            tx.arrive(&self.account, room, &author.id)?;
        }
        let stranger = || RefusedPerson::new(&self.account, &rules, &author.id, place, "invited us");
        Ok((follow, (rule == AccessRule::NotListed).then(stranger)))
    }
}

/// One event with everything that its handling needs.
pub struct EventContext<'a> {
    pub(super) acceptor: &'a AcceptBatch,
    /// The open transaction of the batch; the event has all its effects there.
    pub tx: &'a Tx<'a>,
    /// All rules, with the texts that rooms are shown.
    pub all: &'a Rules,
    /// Rules of the account.
    pub rules: &'a AccountRules,
    /// The event itself.
    pub event: &'a RoomEvent,
    /// The event happened while we were not reading.
    pub(super) late: bool,
}

impl EventContext<'_> {
    /// Applies the event and returns the steps for after the commit. People who are on no list go to `strangers`.
    fn apply(&self, strangers: &mut Vec<RefusedPerson>) -> Result<Vec<PostCommit>> {
        let (tx, event) = (self.tx, self.event);
        let (account, room, author) = (self.account(), &event.place.room, &event.author.id);
        match &event.kind {
            RoomEventKind::Message(message) if message.addressed => self.message(message, strangers),
            RoomEventKind::Message(_) => Ok(Vec::new()),
            RoomEventKind::Edited { of, text } => edits::take(self, of, text),
            RoomEventKind::Deleted { of } => deletions::take(self, of),
            RoomEventKind::Reacted { to, mark } => reactions::react(self, to, mark),
            // The answer to a person who left must not be shown to those who stay.
            RoomEventKind::Left => {
                // Strangers come and go in large numbers, and are refused whether they left or not.
                if self.rules.access_in(room).may_admit(author) || tx.is_known(account, author)? {
                    tx.depart(account, room, author)?;
                }
                stop_turns_of(tx, account, Some(room), author)
            }
            RoomEventKind::Joined => {
                tx.arrive(account, room, author)?;
                Ok(Vec::new())
            }
            RoomEventKind::Unreadable => {
                untrusted_notices::unreadable(self)?;
                Ok(Vec::new())
            }
            RoomEventKind::Missed { count } => {
                // A room where nobody was ever answered is a room of strangers, who get no notice.
                if tx.is_served(account, room)? {
                    self.notice(&TextKey::Missed.with("count", *count))?;
                }
                Ok(Vec::new())
            }
        }
    }

    /// Agents that may remember something which the event takes back: a turn of ours, on the word of one who is obeyed.
    fn remembered_by(&self) -> Result<Vec<&AgentInfo>> {
        match &self.event.kind {
            RoomEventKind::Message(message) if message.addressed => match command::parse(&message.text) {
                ParsedMessage::Command(command @ (ChatCommand::Retry | ChatCommand::Undo), _)
                    if self.decide(AccessAction::Command(command))?.allowed =>
                {
                    let Some(session) = self.tx.current_session(&self.key())? else { return Ok(Vec::new()) };
                    let last = self.tx.last_turn_of_people(&session.id)?;
                    Ok(last.iter().map(|last| self.agent_of(&last.row)).collect())
                }
                ParsedMessage::Command(..) | ParsedMessage::Prompt | ParsedMessage::Unknown(_) => {
                    Ok(Vec::new())
                }
            },
            RoomEventKind::Edited { of, .. } => Ok(edits::remembered_by(self, of)?.into_iter().collect()),
            RoomEventKind::Deleted { of } => deletions::remembered_by(self, of),
            RoomEventKind::Message(_)
            | RoomEventKind::Reacted { .. }
            | RoomEventKind::Left
            | RoomEventKind::Joined
            | RoomEventKind::Unreadable
            | RoomEventKind::Missed { .. } => Ok(Vec::new()),
        }
    }

    /// The account that received the event.
    pub fn account(&self) -> &AccountId {
        &self.acceptor.account
    }

    /// Decides about an action of the event's author, and writes the decision to the audit.
    pub fn authorize(&self, action: AccessAction) -> Result<AccessDecision> {
        let decision = self.decide(action)?;
        self.audit(action, decision.allowed, decision.rule.name())?;
        Ok(decision)
    }

    pub(super) fn decide(&self, action: AccessAction) -> Result<AccessDecision> {
        let RoomEvent { author, room, place, .. } = self.event;
        let actor = self.tx.actor(self.account(), &place.room, author, EntryChannel::of(self.event))?;
        Ok(self.rules.access_in(&place.room).authorize(actor, PlaceKind::from(room.direct), action))
    }

    /// Writes a decision to the audit.
    pub(super) fn audit(&self, action: AccessAction, allowed: bool, rule: &str) -> Result<()> {
        let RoomEvent { author, room, place, .. } = self.event;
        let kind = PlaceKind::from(room.direct);
        self.tx.audit(self.account(), &author.id, &place.room, kind, action, allowed, rule)
    }

    fn message(
        &self,
        message: &IncomingMessage,
        strangers: &mut Vec<RefusedPerson>,
    ) -> Result<Vec<PostCommit>> {
        let parsed = command::parse(&message.text);
        let action = match &parsed {
            ParsedMessage::Command(command, behind) => command.action(behind),
            ParsedMessage::Prompt | ParsedMessage::Unknown(_) => AccessAction::Message,
        };
        let decision = self.decide(action)?;
        // Limits apply wherever we post something: to permitted messages and to refusals because of `AdminsOnly`. They
        // do not apply to other refusals, so `Full` there means "not limited".
        let verdict = match decision {
            AccessDecision { allowed: true, .. } | AccessDecision { rule: AccessRule::AdminsOnly, .. } => {
                limits::check(self, action, &message.text)?
            }
            AccessDecision { allowed: false, .. } => LimitVerdict::Full,
        };
        let answered = match verdict {
            LimitVerdict::Full => true,
            LimitVerdict::Quiet => false,
            LimitVerdict::Refused(too_much) => {
                self.audit(action, false, too_much.rule)?;
                too_much.notice.iter().try_for_each(|phrase| self.notice(phrase))?;
                return Ok(Vec::new());
            }
        };
        if decision.allowed
            && let Some(refusal) = self.agent_refusal(&parsed, decision.rule)?
        {
            self.audit(action, false, AGENT_RULE)?;
            if answered {
                self.notice(&refusal)?;
            }
            return Ok(Vec::new());
        }
        self.audit(action, decision.allowed, decision.rule.name())?;
        if !decision.allowed {
            return if answered { self.refuse(decision.rule, &parsed, strangers) } else { Ok(Vec::new()) };
        }
        let mut after = vec![PostCommit::Read(self.event.place.clone(), self.event.id.clone())];
        after.extend(self.obey(message, parsed, decision, answered)?);
        Ok(after)
    }

    /// Carries out a permitted message. If `answered` is false, the command takes effect without a confirmation,
    /// because its author is over the limit.
    fn obey(
        &self,
        message: &IncomingMessage,
        parsed: ParsedMessage,
        decision: AccessDecision,
        answered: bool,
    ) -> Result<Vec<PostCommit>> {
        match parsed {
            ParsedMessage::Prompt => self.prompt(message),
            ParsedMessage::Unknown(words) => {
                let notice = self.notice_as(self.notice_key("n", &self.event.id), &self.event.id);
                notice.refuse(self.tx, &self.all.words, &words)?;
                Ok(Vec::new())
            }
            ParsedMessage::Command(command, behind) => {
                let (mut after, answer) = command::apply(&self.context(decision)?, command, &behind)?;
                if let Some(phrase) = answer.filter(|_| answered) {
                    self.notice(&phrase)?;
                }
                if command == ChatCommand::New && !behind.is_empty() {
                    after.extend(self.prompt(&IncomingMessage { text: behind, ..message.clone() })?);
                }
                Ok(after)
            }
        }
    }

    /// Description of the agent that a turn was for. It may not be the one that answers here now.
    pub(super) fn agent_of(&self, turn: &TurnRow) -> &AgentInfo {
        self.acceptor.agents.named_or_default(turn.agent.as_ref())
    }

    /// Description of the agent that answers here.
    fn agent(&self) -> Result<&AgentInfo> {
        let name = self.agent_name(self.tx.chosen_agent(&self.key())?);
        Ok(self.acceptor.agents.named_or_default(Some(&name)))
    }

    /// The agent that answers here: the one that was chosen for the session, else the room's, else the default one.
    pub(super) fn agent_name(&self, chosen: Option<AgentName>) -> AgentName {
        let of_room = || self.rules.agent_in(&self.event.place.room).cloned();
        chosen.or_else(of_room).unwrap_or_else(|| self.acceptor.agents.default_name().clone())
    }

    /// The reason why the agent of a message must not get it, if there is one. `rule` permitted the message itself.
    fn agent_refusal(&self, parsed: &ParsedMessage, rule: AccessRule) -> Result<Option<LocalizedText>> {
        let agent = match parsed {
            ParsedMessage::Prompt => self.agent_name(self.tx.chosen_agent(&self.key())?),
            ParsedMessage::Command(ChatCommand::New | ChatCommand::Model, behind) if !behind.is_empty() => {
                self.agent_name(self.tx.chosen_agent(&self.key())?)
            }
            ParsedMessage::Command(ChatCommand::Agent, behind) => {
                match command::agents::wanted(behind, &self.acceptor.agents) {
                    Some(chosen) => self.agent_name(chosen),
                    None => return Ok(None),
                }
            }
            ParsedMessage::Command(..) | ParsedMessage::Unknown(_) => return Ok(None),
        };
        Ok(self.judge_agent(&agent, rule))
    }

    /// The reason why the author of the event must not repeat a question to this agent, if there is one. Writes a
    /// refusal to the audit.
    pub(super) fn refusal_of(&self, agent: Option<&AgentName>) -> Result<Option<LocalizedText>> {
        let rule = self.decide(AccessAction::Message)?.rule;
        let agent = agent.unwrap_or_else(|| self.acceptor.agents.default_name());
        let refusal = self.judge_agent(agent, rule);
        if refusal.is_some() {
            self.audit(AccessAction::Message, false, AGENT_RULE)?;
        }
        Ok(refusal)
    }

    /// The reason why an agent must not be asked, if there is one. `rule` permitted the author's message itself.
    fn judge_agent(&self, agent: &AgentName, rule: AccessRule) -> Option<LocalizedText> {
        if !self.acceptor.agents.has(agent) {
            return Some(TextKey::AgentGone.with("name", agent.as_str()));
        }
        let is_refused = !self.all.agents.admit(agent, self.asker(rule));
        is_refused.then(|| TextKey::AgentRefused.with("name", agent.as_str()))
    }

    /// The author of the event, as the list of an agent knows them. `rule` permitted their message itself.
    fn asker(&self, rule: AccessRule) -> AgentAsker<'_> {
        AgentAsker::of(rule, &self.event.author.id, &self.event.place.room)
    }

    /// Key of the session that the event's place and author belong to.
    pub(super) fn key(&self) -> SessionKey {
        let RoomEvent { place, room, author, .. } = self.event;
        SessionKey::new(self.account(), place, room.direct, &author.id, self.rules.session)
    }

    /// Collects everything that a command needs.
    pub fn context(&self, decision: AccessDecision) -> Result<CommandContext<'_>> {
        Ok(CommandContext {
            tx: self.tx,
            account: self.account(),
            event: self.event,
            rules: self.rules,
            words: &self.all.words,
            agent: self.agent()?,
            agents: &self.acceptor.agents,
            agent_rules: &self.all.agents,
            budget: self.all.budget,
            decision,
        })
    }

    /// Handles a refused message. Strangers get no answer, unless they may ask to be let in; the log names them.
    fn refuse(
        &self,
        rule: AccessRule,
        parsed: &ParsedMessage,
        strangers: &mut Vec<RefusedPerson>,
    ) -> Result<Vec<PostCommit>> {
        let mut after = Vec::new();
        match rule {
            AccessRule::AdminsOnly => {
                if let ParsedMessage::Command(command, behind) = parsed {
                    let words = match command.action(behind) {
                        // Less would be allowed, so say which words were too much.
                        action @ AccessAction::Approve(GrantScope::Always) => action.name(),
                        _ => command.name().to_owned(),
                    };
                    self.notice(&TextKey::AdminsOnly.with("command", words))?;
                }
            }
            AccessRule::NotListed => {
                let direct = self.event.room.direct;
                let policy = self.rules.access_in(&self.event.place.room);
                if direct && policy.pairs() && policy.serves(EntryChannel::of(self.event)) {
                    after.extend(pairing::ask(self)?);
                }
                let (account, id) = (self.account(), &self.event.author.id);
                let place = PlaceKind::from(direct);
                let stranger = RefusedPerson::new(account, self.rules, id, place, "wrote");
                strangers.push(match after.is_empty() {
                    true => stranger,
                    false => stranger.given_a_code(account, self.rules),
                });
            }
            AccessRule::Untrusted => {
                strangers.push(untrusted_notices::untrusted(self)?);
                untrusted_notices::mark_untrusted(self)?;
            }
            AccessRule::Plain => untrusted_notices::plain(self)?,
            AccessRule::Violated => strangers.extend(untrusted_notices::violated(self)),
            AccessRule::Bot | AccessRule::Left => {}
            // These allow; none of them comes here.
            AccessRule::Owner
            | AccessRule::Admin
            | AccessRule::Listed
            | AccessRule::Paired
            | AccessRule::Everybody
            | AccessRule::Pairing => {}
        }
        Ok(after)
    }

    /// Tells the room something about the event, once; nothing if the operator silenced it.
    pub fn notice(&self, phrase: &LocalizedText) -> Result<()> {
        self.notice_on(&self.event.id, "n", phrase)
    }

    /// Tells the room something about an earlier message, once for each message and `what`.
    pub(super) fn notice_on(&self, message: &EventId, what: &str, phrase: &LocalizedText) -> Result<()> {
        self.notice_as(self.notice_key(what, message), message).tell(self.tx, &self.all.words, phrase)
    }

    /// Tells the room something about an earlier message, once for each value of `about`.
    pub(super) fn notice_once(
        &self,
        what: &str,
        about: &[&str],
        message: &EventId,
        phrase: &LocalizedText,
    ) -> Result<()> {
        self.notice_as(notice_key(what, about), message).tell(self.tx, &self.all.words, phrase)
    }

    /// The key of what [`notice_on`](Self::notice_on) says.
    pub(super) fn notice_key(&self, what: &str, message: &EventId) -> SendKey {
        notice_key(what, &[self.account().as_str(), self.event.place.room.as_str(), message.as_str()])
    }

    /// Changes the text of an earlier notice, not before this time. Only the latest change is shown.
    pub(super) fn change_notice(
        &self,
        key: &SendKey,
        revision: usize,
        phrase: &LocalizedText,
        not_before: i64,
    ) -> Result<()> {
        let notice = self.notice_as(key.clone(), &self.event.id);
        notice.change(self.tx, &self.all.words, phrase, revision, not_before)
    }

    /// Puts a mark on the event where the platform has marks.
    pub(super) fn mark(&self, mark: &str) -> Result<()> {
        if !self.acceptor.about.react {
            return Ok(());
        }
        self.tx.add_outbox(&OutboxRow {
            key: self.notice_key("mark", &self.event.id),
            account: self.account().clone(),
            place: self.event.place.clone(),
            turn: None,
            kind: OutboxKind::Mark,
            part: 0,
            body: MessageBody {
                reply_to: Some(self.event.id.clone()),
                ..MessageBody::new(BodyKind::Notice, mark)
            },
            not_before: 0,
        })
    }

    fn notice_as<'a>(&'a self, key: SendKey, reply_to: &'a EventId) -> Notice<'a> {
        let (account, place) = (self.account(), &self.event.place);
        Notice { key, account, place, reply_to: Some(reply_to), max_text: self.acceptor.about.max_text }
    }
}

/// Asks every turn to stop that somebody started.
pub fn stop_turns_of(
    tx: &Tx<'_>,
    account: &AccountId,
    room: Option<&RoomId>,
    person: &UserId,
) -> Result<Vec<PostCommit>> {
    let mut after = Vec::new();
    for (session, turn) in tx.open_turns_by(account, room, person.as_str())? {
        tx.ask_to_stop(&turn)?;
        after.push(PostCommit::StopTurn(session, turn));
    }
    Ok(after)
}
