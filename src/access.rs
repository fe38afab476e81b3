//! Who may do what, where: the one place that decides it. Pure.
//!
//! Nobody may do anything unless a list names them by their full, immutable id, byte for byte. Direct chats
//! and rooms have lists of their own, because what a person may say to us alone says nothing about a room
//! that others read. The rule that decided is part of the answer: it is what the audit keeps.

use std::collections::BTreeSet;

use talaria_platform::{AuthorTrust, RoomEvent, RoomEventKind, UserId};

use crate::command::ChatCommand;

/// Who may do what on one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Whoever reaches the account owns it: a person at the terminal of this very process.
    Owner,
    /// Those who are listed.
    Listed(AccessLists),
}

/// The lists of an account. Empty means nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// May do everything everywhere.
    pub admins: BTreeSet<UserId>,
    /// May talk to us in direct chats and in rooms.
    pub people: BTreeSet<UserId>,
    /// May talk to us in direct chats.
    pub direct: BTreeSet<UserId>,
    /// May talk to us in rooms.
    pub rooms: BTreeSet<UserId>,
    /// Everybody may talk to us, as if listed in `people`.
    pub allow_all: bool,
    /// Strangers may ask to be let in, in direct chats.
    pub pairing: bool,
    /// Commands that only admins may use.
    pub admin_commands: BTreeSet<ChatCommand>,
    /// How sure we must be of the author of something that came encrypted; `None` takes the network's word.
    pub trust: Option<AuthorTrust>,
    /// What could have come encrypted and did not is refused. Where it is not, nothing can be proven of it, and the
    /// network's word is taken.
    pub secure_only: bool,
}

/// Somebody who does something.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The immutable id.
    pub id: &'a UserId,
    /// How sure the adapter is of it.
    pub trust: AuthorTrust,
    /// How what they do reached us.
    pub channel: EntryChannel,
    /// Marked as a program by the network.
    pub bot: bool,
    /// Let in by the operator through pairing.
    pub paired: bool,
    /// Has left the room.
    pub left: bool,
}

impl<'a> Actor<'a> {
    /// Somebody whose message was judged when it came, of whom nothing else is known: only lists speak for them.
    pub fn known(id: &'a UserId) -> Self {
        let (trust, channel) = (AuthorTrust::Verified, EntryChannel::Secure);
        Self { id, trust, channel, bot: false, paired: false, left: false }
    }
}

/// How something reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChannel {
    /// End-to-end encrypted: whose it is can be proven.
    Secure,
    /// In the clear, although it could have been encrypted.
    Plain,
    /// In the clear, like everything of its kind on every network: marks and invitations. Nobody can prove such a
    /// thing, so it can only ever take something back or refuse it, or bring us somewhere.
    Bare,
}

impl EntryChannel {
    /// How an event came.
    pub fn of(event: &RoomEvent) -> Self {
        if event.secure {
            return Self::Secure;
        }
        match event.kind {
            RoomEventKind::Reacted { .. } => Self::Bare,
            RoomEventKind::Message(_)
            | RoomEventKind::Edited { .. }
            | RoomEventKind::Deleted { .. }
            | RoomEventKind::Left
            | RoomEventKind::Joined
            | RoomEventKind::Unreadable
            | RoomEventKind::Missed { .. } => Self::Plain,
        }
    }
}

/// What kind of place something is done in. A thread is as its room is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// A chat between one person and us.
    Direct,
    /// A room that others read.
    Room,
}

/// What somebody does. Every entry into the gateway is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessAction {
    /// Asks the agent something.
    Message,
    /// Asks the gateway something.
    Command(ChatCommand),
    /// Changes what they asked.
    Edit,
    /// Takes back what they asked.
    Delete,
    /// Puts a mark on a message of ours.
    Reaction,
    /// Allows what an agent asks for.
    Approve(GrantScope),
    /// Refuses what an agent asks for.
    Deny,
    /// Wants us in a room.
    Invite,
}

/// How far an approval reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantScope {
    /// This once.
    Once,
    /// The same again in this session.
    Session,
    /// The same again in this place, until it is revoked or expires.
    Always,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether it may happen.
    pub allowed: bool,
    /// What decided it.
    pub rule: AccessRule,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// The account's owner.
    Owner,
    /// An admin.
    Admin,
    /// A list names them.
    Listed,
    /// The operator let them in.
    Paired,
    /// Everybody may.
    Everybody,
    /// A stranger's direct chat, where pairing is switched on.
    Pairing,
    /// The keys contradict the author.
    Violated,
    /// A program.
    Bot,
    /// Has left the room.
    Left,
    /// A list names them, but we are not sure enough that it is they.
    Untrusted,
    /// A list names them, but it came in the clear.
    Plain,
    /// Only admins may.
    AdminsOnly,
    /// No list names them.
    NotListed,
}

impl AccessPolicy {
    /// Decides. What speaks against somebody comes before what speaks for them.
    pub fn authorize(&self, actor: Actor<'_>, place: PlaceKind, action: AccessAction) -> AccessDecision {
        if actor.trust == AuthorTrust::Violated {
            return deny(AccessRule::Violated);
        }
        let lists = match self {
            Self::Owner => return allow(AccessRule::Owner),
            Self::Listed(lists) => lists,
        };
        if actor.bot {
            return deny(AccessRule::Bot);
        }
        if actor.left {
            return deny(AccessRule::Left);
        }
        let admitted = match lists.admins.contains(actor.id) {
            true => Some(AccessRule::Admin),
            false => lists.admits(actor, place),
        };
        let Some(rule) = admitted else {
            // To ask for a code a stranger must be able to open a direct chat with us.
            let pairs = action == AccessAction::Invite && place == PlaceKind::Direct && lists.pairing;
            return if pairs { allow(AccessRule::Pairing) } else { deny(AccessRule::NotListed) };
        };
        // Only now: whoever is on no list is a stranger, however their words came.
        if let Some(doubt) = lists.doubts(actor, action) {
            return deny(doubt);
        }
        if rule != AccessRule::Admin && lists.is_for_admins(action) {
            deny(AccessRule::AdminsOnly)
        } else {
            allow(rule)
        }
    }

    /// Whether somebody may be let in by a list, wherever that is.
    pub fn may_admit(&self, person: &UserId) -> bool {
        match self {
            Self::Owner => true,
            Self::Listed(lists) => {
                let named = [&lists.admins, &lists.people, &lists.direct, &lists.rooms];
                lists.allow_all || named.iter().any(|list| list.contains(person))
            }
        }
    }

    /// Whether a stranger may ask to be let in.
    pub fn pairs(&self) -> bool {
        matches!(self, Self::Listed(AccessLists { pairing: true, .. }))
    }

    /// Whether anybody at all is answered where things come in this way.
    pub fn serves(&self, channel: EntryChannel) -> bool {
        !(matches!(self, Self::Listed(AccessLists { secure_only: true, .. }))
            && channel == EntryChannel::Plain)
    }
}

impl AccessLists {
    /// The rule that lets an ordinary person in.
    fn admits(&self, actor: Actor<'_>, place: PlaceKind) -> Option<AccessRule> {
        let here = match place {
            PlaceKind::Direct => &self.direct,
            PlaceKind::Room => &self.rooms,
        };
        if self.people.contains(actor.id) || here.contains(actor.id) {
            Some(AccessRule::Listed)
        } else if actor.paired && self.pairing && place == PlaceKind::Direct {
            Some(AccessRule::Paired)
        } else if self.allow_all {
            Some(AccessRule::Everybody)
        } else {
            None
        }
    }

    /// What speaks against somebody whom a list names: that it may not be they.
    fn doubts(&self, actor: Actor<'_>, action: AccessAction) -> Option<AccessRule> {
        match actor.channel {
            EntryChannel::Secure => {
                self.trust.filter(|least| actor.trust < *least).map(|_| AccessRule::Untrusted)
            }
            EntryChannel::Plain => self.secure_only.then_some(AccessRule::Plain),
            EntryChannel::Bare => match action {
                AccessAction::Reaction | AccessAction::Deny | AccessAction::Delete | AccessAction::Invite => {
                    None
                }
                AccessAction::Message
                | AccessAction::Command(_)
                | AccessAction::Edit
                | AccessAction::Approve(_) => Some(AccessRule::Plain),
            },
        }
    }

    fn is_for_admins(&self, action: AccessAction) -> bool {
        match action {
            AccessAction::Command(command) => self.admin_commands.contains(&command),
            // It outlives the conversation, and is nobody's in particular.
            AccessAction::Approve(GrantScope::Always) => true,
            AccessAction::Approve(GrantScope::Once | GrantScope::Session) => {
                self.admin_commands.contains(&ChatCommand::Approve)
            }
            AccessAction::Deny => self.admin_commands.contains(&ChatCommand::Deny),
            AccessAction::Message
            | AccessAction::Edit
            | AccessAction::Delete
            | AccessAction::Reaction
            | AccessAction::Invite => false,
        }
    }
}

impl AccessAction {
    /// Its name in the audit.
    pub fn name(self) -> String {
        match self {
            Self::Message => "message".to_owned(),
            Self::Command(command) => format!("command {}", command.name()),
            Self::Edit => "edit".to_owned(),
            Self::Delete => "delete".to_owned(),
            Self::Reaction => "reaction".to_owned(),
            Self::Approve(grant) => format!("approve {}", grant.name()),
            Self::Deny => "deny".to_owned(),
            Self::Invite => "invite".to_owned(),
        }
    }
}

impl PlaceKind {
    /// Its name on record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Room => "room",
        }
    }
}

impl GrantScope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Once, Self::Session, Self::Always];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

impl AccessRule {
    /// Its name in the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Listed => "listed",
            Self::Paired => "paired",
            Self::Everybody => "everybody",
            Self::Pairing => "pairing",
            Self::Violated => "violated",
            Self::Bot => "bot",
            Self::Left => "left",
            Self::Untrusted => "untrusted",
            Self::Plain => "plain",
            Self::AdminsOnly => "admins only",
            Self::NotListed => "not listed",
        }
    }
}

impl From<bool> for PlaceKind {
    /// From the network's own mark of a direct chat.
    fn from(direct: bool) -> Self {
        if direct { Self::Direct } else { Self::Room }
    }
}

fn allow(rule: AccessRule) -> AccessDecision {
    AccessDecision { allowed: true, rule }
}

fn deny(rule: AccessRule) -> AccessDecision {
    AccessDecision { allowed: false, rule }
}

#[cfg(test)]
mod tests;
