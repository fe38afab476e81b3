//! The access policy: decides which person may do which action in which kind of place. Pure.
//!
//! Nobody may do anything unless a list names them by their full, immutable id, byte for byte. Direct chats and rooms
//! have lists of their own: a person who may talk to us alone may not therefore talk in a room that others read. The
//! decision names the rule behind it, and the audit keeps that rule.

mod agent_access;
mod app_permissions;
mod ip_range;

use std::collections::BTreeSet;

use talaria_platform::{AuthorTrust, RoomEvent, RoomEventKind, UserId};

use crate::chat_command::ChatCommand;
pub use agent_access::{AGENT_RULE, AgentAccess, AgentAsker};
pub use app_permissions::{AppPermissions, PermissionDecision};
pub use ip_range::{IpRange, NotARange};

/// Access rules of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Everybody who reaches the account owns it: a person at the terminal of this very process.
    Owner,
    /// Only the people on these lists may do anything.
    Listed(AccessLists),
}

/// Access lists of an account. An empty list admits nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// People who may do everything everywhere.
    pub admins: BTreeSet<UserId>,
    /// People who may talk to us in direct chats and in rooms.
    pub people: BTreeSet<UserId>,
    /// People who may talk to us in direct chats only.
    pub direct: BTreeSet<UserId>,
    /// People who may talk to us in rooms only.
    pub rooms: BTreeSet<UserId>,
    /// Everybody may talk to us, as if `people` named them.
    pub allow_all: bool,
    /// Strangers may ask for a pairing code in direct chats.
    pub pairing: bool,
    /// Commands that only admins may use.
    pub admin_commands: BTreeSet<ChatCommand>,
    /// Least trust in the author of an encrypted event; `None` trusts the network's word.
    pub trust: Option<AuthorTrust>,
    /// Refuses events that could have come encrypted and did not. If false, the network's word for their author is
    /// trusted: nothing about them can be proven.
    pub secure_only: bool,
}

/// The person who does something, as the adapter and the store know them.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The immutable id on the platform.
    pub id: &'a UserId,
    /// The adapter's certainty that the action is this person's.
    pub trust: AuthorTrust,
    /// Whether the action came encrypted.
    pub channel: EntryChannel,
    /// The network marks the account as a program.
    pub bot: bool,
    /// The operator let the person in through pairing.
    pub paired: bool,
    /// The person has left the room.
    pub left: bool,
}

impl<'a> Actor<'a> {
    /// A person whose message was judged when it came, with nothing else known of them now: only the lists decide.
    pub fn known(id: &'a UserId) -> Self {
        let (trust, channel) = (AuthorTrust::Verified, EntryChannel::Secure);
        Self { id, trust, channel, bot: false, paired: false, left: false }
    }
}

/// Whether an event came encrypted, or could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChannel {
    /// End-to-end encrypted: the author can be proven.
    Secure,
    /// In the clear, although it could have been encrypted.
    Plain,
    /// In the clear, like every event of its kind on every network: reactions and invitations. Nobody can prove their
    /// author, so they may only take something back, refuse something, or bring us into a room.
    Bare,
}

impl EntryChannel {
    /// The channel of an event.
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

/// Kind of a place. A thread is of the kind of its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// A chat between one person and us.
    Direct,
    /// A room that others read.
    Room,
}

/// An action of a person. Every entry into the gateway is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessAction {
    /// Sends a prompt to the agent.
    Message,
    /// Sends a command to the gateway.
    Command(ChatCommand),
    /// Edits their own prompt.
    Edit,
    /// Deletes their own prompt.
    Delete,
    /// Reacts to a message of ours.
    Reaction,
    /// Approves an ask, or answers it with an option or a text.
    Approve(GrantScope),
    /// Denies an ask.
    Deny,
    /// Invites us into a room.
    Invite,
}

/// Asks that an approval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantScope {
    /// This ask only.
    Once,
    /// Equal asks in this session.
    Session,
    /// Equal asks in this place, until the grant is revoked or expires.
    Always,
}

/// Result of [`AccessPolicy::authorize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether the action may happen.
    pub allowed: bool,
    /// The rule that decided it.
    pub rule: AccessRule,
}

/// The rule behind a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// Allowed: the account's owner.
    Owner,
    /// Allowed: an admin.
    Admin,
    /// Allowed: a list names them.
    Listed,
    /// Allowed: the operator let them in through pairing.
    Paired,
    /// Allowed: `allow_all` is on.
    Everybody,
    /// Allowed: a stranger's invitation to a direct chat, while pairing is on.
    Pairing,
    /// Denied: the keys contradict the author.
    Violated,
    /// Denied: the actor is a program.
    Bot,
    /// Denied: the actor has left the room.
    Left,
    /// Denied: a list names them, but we are not sure enough that they are the author.
    Untrusted,
    /// Denied: a list names them, but the event came in the clear.
    Plain,
    /// Denied: the action is for admins.
    AdminsOnly,
    /// Denied: no list names them.
    NotListed,
}

impl AccessPolicy {
    /// Decides whether `actor` may do `action`. Rules against a person come before rules for them.
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
            // A stranger must be able to open a direct chat with us in order to ask for a code.
            let pairs = action == AccessAction::Invite && place == PlaceKind::Direct && lists.pairing;
            return if pairs { allow(AccessRule::Pairing) } else { deny(AccessRule::NotListed) };
        };
        // Last, because a person on no list is a stranger, no matter how their event came.
        if let Some(doubt) = lists.doubts(actor, action) {
            return deny(doubt);
        }
        if rule != AccessRule::Admin && lists.is_for_admins(action) {
            deny(AccessRule::AdminsOnly)
        } else {
            allow(rule)
        }
    }

    /// Whether some list names this person, for whichever kind of place.
    pub fn may_admit(&self, person: &UserId) -> bool {
        match self {
            Self::Owner => true,
            Self::Listed(lists) => {
                let named = [&lists.admins, &lists.people, &lists.direct, &lists.rooms];
                lists.allow_all || named.iter().any(|list| list.contains(person))
            }
        }
    }

    /// Whether a stranger may ask for a pairing code.
    pub fn pairs(&self) -> bool {
        matches!(self, Self::Listed(AccessLists { pairing: true, .. }))
    }

    /// Whether anybody at all is answered on this channel.
    pub fn serves(&self, channel: EntryChannel) -> bool {
        !(matches!(self, Self::Listed(AccessLists { secure_only: true, .. }))
            && channel == EntryChannel::Plain)
    }
}

impl AccessLists {
    /// The rule that lets a person in who is no admin.
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

    /// The rule against a person whom a list names, if we cannot be sure that they are the author.
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
            AccessAction::Command(command) => {
                command.is_for_admins() || self.admin_commands.contains(&command)
            }
            // An `always` grant outlives the conversation and belongs to no single person.
            AccessAction::Approve(GrantScope::Always) => true,
            // `/answer` is the same action, because it can allow as much: the two are guarded together.
            AccessAction::Approve(GrantScope::Once | GrantScope::Session) => {
                [ChatCommand::Approve, ChatCommand::Answer]
                    .iter()
                    .any(|command| self.admin_commands.contains(command))
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
    /// Name in the audit.
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
    /// Name in the store and in the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Room => "room",
        }
    }
}

impl GrantScope {
    /// Every scope, from the narrowest.
    pub const ALL: [Self; 3] = [Self::Once, Self::Session, Self::Always];

    /// The word that people write after `/approve`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

impl AccessRule {
    /// Name in the audit.
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
