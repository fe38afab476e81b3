//! A kind of platform describes itself: how it is configured, what it logs, and what an operator can do with it.
//!
//! The core keeps one list of kinds and knows nothing else about them. It reads an entry of the configuration with
//! [`PlatformKind::read`]; the [`AccountSettings`] that come back answer everything that is asked of one account.

use std::any::Any;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use clap::ArgMatches;

use crate::config::{ConfigError, EntryReader, EnvVar};
use crate::operator::{AccountLink, CommandFailure, CommandReport};
use crate::{AuthorTrust, BoxFuture, Platform, RoomId};

/// A kind of platform.
pub trait PlatformKind: Send + Sync {
    /// The word behind `kind:` in the configuration. An entry of this name may leave `kind` out, and the variables
    /// configure that entry. Also the name of the folder for its files and of its operator commands.
    fn name(&self) -> &'static str;

    /// The network as people write it, such as `Matrix`.
    fn title(&self) -> &'static str;

    /// Facts about the people of the network. `None` for the terminal of this process: it belongs to the person who
    /// started the process, so its entry has none of the keys about people.
    fn people(&self) -> Option<PeopleTraits>;

    /// Environment variables that configure the entry with the name of this kind, in the order in which people look
    /// for them. A variable that is missing here is never read.
    fn variables(&self) -> &'static [EnvVar] {
        &[]
    }

    /// Log levels of the network's library.
    fn library_log(&self) -> Option<LibraryLog> {
        None
    }

    /// Reads and checks one entry. Reports every fault to `entry`; the core then refuses the configuration. `None` if
    /// the entry cannot be read at all: the core then does not judge the rest of it either.
    fn read(&self, entry: &mut EntryReader<'_>) -> Option<Arc<dyn AccountSettings>>;

    /// The command `talaria <name>` for operators, if there is one. The core adds `--account NAME` to it and chooses
    /// the account.
    fn command(&self) -> Option<clap::Command> {
        None
    }

    /// Runs the operator's command for an account of the running gateway, which answers on `account`. Called only if
    /// there is a [`command`](Self::command).
    fn run_command<'a>(
        &'a self,
        _arguments: &'a ArgMatches,
        _account: &'a dyn AccountLink,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(async { Err(CommandFailure::NotRunning) })
    }
}

/// Facts about the people of a network, for the access lists.
#[derive(Clone, Copy)]
pub struct PeopleTraits {
    /// Whether a text is the full, immutable id of one person.
    pub is_id: fn(&str) -> bool,
    /// Two ids as hints show them.
    pub examples: [&'static str; 2],
    /// The variable that replaces `access.people` of the entry that variables configure.
    pub variable: Option<&'static EnvVar>,
}

/// Log levels of a library.
#[derive(Clone, Copy, Debug)]
pub struct LibraryLog {
    /// Target that all its log lines begin with. A filter of the operator's that names it replaces `filter`.
    pub target: &'static str,
    /// Levels, as a filter.
    pub filter: &'static str,
}

/// One account, as it is configured. Settings of the same account that differ need a restart.
pub trait AccountSettings: Any + Debug + Send + Sync {
    /// Whether `other` has the same type and the same values.
    fn same_as(&self, other: &dyn AccountSettings) -> bool;

    /// Proof that an author must give before the core listens to them.
    fn author_proof(&self) -> AuthorProof {
        AuthorProof::default()
    }

    /// All secrets, in every form in which they could appear. The log removes them.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// One line for `talaria check`. `rooms` have rules of their own in the configuration.
    fn describe(&self, _rooms: HashSet<&RoomId>) -> Option<String> {
        None
    }

    /// A fault that the configuration alone does not show and that would certainly keep the account from starting, for
    /// `talaria check`. Changes nothing.
    fn start_problem(&self, _name: &str) -> Option<ConfigError> {
        None
    }

    /// The account as a platform. Must not touch the network.
    fn open(&self) -> AccountPlatform;

    /// Runs the operator's command while no gateway runs. The core holds the lock of the state folder meanwhile, so the
    /// account may be opened.
    fn run_command<'a>(
        &'a self,
        _arguments: &'a ArgMatches,
    ) -> BoxFuture<'a, Result<CommandReport, CommandFailure>> {
        Box::pin(async { Err(CommandFailure::NotRunning) })
    }
}

/// Proof that an author must give before the core listens to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthorProof {
    /// Least trust in the author of an encrypted event; `None` takes the network's word.
    pub trust: Option<AuthorTrust>,
    /// Whether events are refused that could have come encrypted and did not.
    pub secure_only: bool,
}

/// An account as a platform.
pub enum AccountPlatform {
    /// An account on a chat network.
    Network(Arc<dyn Platform>),
    /// The terminal of this process. The core opens it, because what runs beside it depends on standard input, and its
    /// texts are in the catalogue.
    Terminal,
}
