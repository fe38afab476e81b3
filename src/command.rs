//! The commands of a chat: tells them from prompts, and carries them out.
//!
//! One transaction marks the message as seen, applies the command and adds its answer to the outbox: a crash repeats
//! nothing and loses nothing. Steps outside the store are returned as [`PostCommit`] and follow the commit. A command
//! whose effect needs I/O is only stored in that transaction, and [`CommandRunner`] carries it out.

mod after_commit;
pub mod agents;
mod approvals;
pub mod asks;
mod codex_runtime;
mod memory;
mod models;
#[cfg(feature = "testing")]
mod self_check;
mod sessions;
mod skills;
mod status;

use std::fmt::Write as _;

use talaria_platform::{AccountId, EventAuthor, EventId, RoomEvent, UserId};

use crate::access::{AccessAction, AccessDecision, EntryChannel, GrantScope, PlaceKind};
use crate::agent::{AgentInfo, AgentInfos, RewindSupport};
use crate::chat_command::ChatCommand;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::ids::{SessionId, TurnId, idempotency_key};
use crate::post_commit::PostCommit;
use crate::rules::{AccountRules, AgentRules, BudgetConfig, SessionKey};
use crate::store::{OpenTurn, Result, RoomTurn, SessionRow, TurnRow, TurnState, Tx};
use crate::turn_source::{RoomQuestion, TurnSource};
use crate::util::one_line;
use after_commit::{AfterCommit, RestartPolicy};
pub use after_commit::{COMMAND_DEADLINE, COMMANDS_AT_ONCE, COMMANDS_WAITING, CommandRunner};

/// Moment at which a command is carried out, and the function that does it.
#[derive(Clone, Copy)]
enum CommandRun {
    /// In the transaction that takes its message.
    InTransaction(fn(&CommandCall<'_>) -> Result<CommandOutcome>),
    /// After that transaction, because its effect needs I/O. It is always answered, so it must not be a command that
    /// is heard beyond the limits.
    AfterCommit(AfterCommit),
}

/// A command with its session and that session's open turns.
struct CommandCall<'a> {
    context: &'a CommandContext<'a>,
    key: SessionKey,
    /// The session that is talked about here.
    session: SessionRow,
    /// The turns of that session that run or wait.
    open: Vec<OpenTurn>,
    /// The words after the command.
    behind: &'a str,
}

impl ChatCommand {
    /// The table of commands: the line of `/help` about each, and how it is carried out.
    fn entry(self) -> (Option<TextKey>, CommandRun) {
        use CommandRun::InTransaction;
        let late = TextKey::CommandTooSlow;
        let after_commit = |run, restart| CommandRun::AfterCommit(AfterCommit { run, restart, late });
        let (help, run) = match self {
            Self::Help => (TextKey::HelpHelp, InTransaction(help)),
            Self::New => (TextKey::HelpNew, InTransaction(new)),
            Self::Agent => (TextKey::HelpAgent, InTransaction(agents::run)),
            Self::Model => (TextKey::HelpModel, InTransaction(models::run)),
            Self::Stop => (TextKey::HelpStop, InTransaction(stop)),
            Self::Retry => (TextKey::HelpRetry, InTransaction(retry)),
            Self::Undo => (TextKey::HelpUndo, InTransaction(undo)),
            Self::Status => (TextKey::HelpStatus, after_commit(status::run, RestartPolicy::Repeat)),
            Self::Sessions => {
                (TextKey::HelpSessions, InTransaction(|call| sessions::list(call.context, &call.key)))
            }
            Self::Resume => (TextKey::HelpResume, InTransaction(resume)),
            Self::Title => (
                TextKey::HelpTitle,
                InTransaction(|call| sessions::title(call.context, &call.key, &call.session, call.behind)),
            ),
            Self::Whoami => {
                (TextKey::HelpWhoami, InTransaction(|call| sessions::whoami(call.context, &call.session)))
            }
            Self::Usage => {
                (TextKey::HelpUsage, InTransaction(|call| sessions::usage(call.context, &call.session)))
            }
            Self::Memory => (TextKey::HelpMemory, InTransaction(memory::run)),
            Self::Skills => (TextKey::HelpSkills, after_commit(skills::run, RestartPolicy::Repeat)),
            Self::Approve => {
                (TextKey::HelpApprove, InTransaction(|call| asks::approve(call.context, call.behind)))
            }
            Self::Deny => (TextKey::HelpDeny, InTransaction(|call| asks::deny(call.context, call.behind))),
            Self::Answer => {
                (TextKey::HelpAnswer, InTransaction(|call| asks::answer(call.context, call.behind)))
            }
            Self::Approvals => (TextKey::HelpApprovals, InTransaction(approvals::run)),
            Self::CodexRuntime => {
                // A change is carried out to its end.
                let (restart, late) = (RestartPolicy::Refuse, TextKey::RuntimeTooSlow);
                let run = AfterCommit { run: codex_runtime::run, restart, late };
                (TextKey::HelpCodexRuntime, CommandRun::AfterCommit(run))
            }
            #[cfg(feature = "testing")]
            Self::SelfCheck => return (None, after_commit(self_check::run, RestartPolicy::Refuse)),
        };
        (Some(help), run)
    }

    /// The action that access rules judge when a person sends the command with these words after it.
    pub fn action(self, behind: &str) -> AccessAction {
        match self {
            Self::Approve => AccessAction::Approve(asks::wanted(behind)),
            Self::Deny => AccessAction::Deny,
            // An answer can allow as much as an approval.
            Self::Answer => AccessAction::Approve(GrantScope::Once),
            other => AccessAction::Command(other),
        }
    }
}

/// A message, read as a prompt or as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedMessage {
    /// Words for the agent.
    Prompt,
    /// A command, and the words after it.
    Command(ChatCommand, String),
    /// A text that looks like a command, but there is none of that name; with the reply to it.
    Unknown(LocalizedText),
}

/// Everything that a command is given: the open transaction, its message, and the rules.
pub struct CommandContext<'a> {
    /// The open transaction, in which the command makes all its changes.
    pub tx: &'a Tx<'a>,
    /// The account that received the command.
    pub account: &'a AccountId,
    /// The message that contains the command.
    pub event: &'a RoomEvent,
    /// Rules of the account.
    pub rules: &'a AccountRules,
    /// Texts that rooms are shown.
    pub words: &'a TextCatalog,
    /// The agent that answers here.
    pub agent: &'a AgentInfo,
    /// All agents.
    pub agents: &'a AgentInfos,
    /// Rules about who may talk to which agent.
    pub agent_rules: &'a AgentRules,
    /// Budgets of tokens.
    pub budget: BudgetConfig,
    /// The decision that permitted the command.
    pub decision: AccessDecision,
}

impl CommandContext<'_> {
    /// Description of the agent that a turn was for. It may not be the one that answers here now.
    fn agent_of(&self, turn: &TurnRow) -> &AgentInfo {
        self.agents.named_or_default(turn.agent.as_ref())
    }

    /// The session that is talked about here.
    pub fn key(&self) -> SessionKey {
        let RoomEvent { place, room, author, .. } = self.event;
        SessionKey::new(self.account, place, room.direct, &author.id, self.rules.session)
    }
}

/// Result of a command: steps for after the commit, and the answer, if there is one.
pub type CommandOutcome = (Vec<PostCommit>, Option<LocalizedText>);

/// Tells commands from prompts. Only `/` and a word that can be a name, at the very start, is a command: a path or a
/// date is a prompt.
pub fn parse(text: &str) -> ParsedMessage {
    let Some(rest) = text.strip_prefix('/') else { return ParsedMessage::Prompt };
    let word = rest.split_whitespace().next().unwrap_or_default();
    if word.is_empty() || !rest.starts_with(word) || !ChatCommand::can_be_named(word) {
        return ParsedMessage::Prompt;
    }
    let word = word.to_ascii_lowercase();
    if let Some(command) = ChatCommand::named(&word) {
        let behind = rest.get(word.len()..).unwrap_or_default().trim();
        return ParsedMessage::Command(command, behind.to_owned());
    }
    let word = one_line(&word, 32);
    let near = ChatCommand::all().map(ChatCommand::name).find(|name| strsim::osa_distance(name, &word) <= 2);
    ParsedMessage::Unknown(match near {
        Some(name) => TextKey::UnknownCommandNear.with("word", word).with("near", name),
        None => TextKey::UnknownCommand.with("word", word),
    })
}

/// Carries a command out.
pub fn apply(context: &CommandContext<'_>, command: ChatCommand, behind: &str) -> Result<CommandOutcome> {
    let (_, run) = command.entry();
    match run {
        CommandRun::InTransaction(run) => {
            let key = context.key();
            let session = context.tx.session_for(&key)?;
            let open = context.tx.open_turns(&session.id)?;
            run(&CommandCall { context, key, session, open, behind })
        }
        CommandRun::AfterCommit(_) => after_commit::store(context, command, behind),
    }
}

/// `/stop`
fn stop(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    match call.open.is_empty() {
        true => say(TextKey::NothingRunning),
        // The stopped answers say so themselves.
        false => Ok((stop_all(call.context.tx, &call.session.id, &call.open)?, None)),
    }
}

/// `/new`
fn new(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let CommandCall { context, session, .. } = call;
    let mut after = stop_all(context.tx, &session.id, &call.open)?;
    // An agent that is no longer configured is not kept: the new session would answer nothing.
    let agent = session.agent.as_ref().filter(|name| context.agents.has(name));
    // A session in which nothing was said is as good as new.
    if session.title.is_some() || context.tx.is_used(&session.id)? {
        context.tx.begin_session_with(&call.key, agent)?;
        after.push(PostCommit::EndSessions);
    } else {
        context.tx.set_agent(&session.id, agent)?;
        context.tx.choose_model(&session.id, None)?;
    }
    // The hub makes a prompt of the words after `/new`; its answer needs no confirmation beside it.
    Ok((after, call.behind.is_empty().then(|| TextKey::NewSession.into())))
}

/// `/undo`
fn undo(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    if let Some(words) = not_now(call) {
        return say(words);
    }
    let tx = call.context.tx;
    let last = tx.last_turn_of_people(&call.session.id)?;
    let rewind = match &last {
        Some(last) => call.context.agent_of(&last.row).rewind,
        None => call.context.agent.rewind,
    };
    match (rewind, last) {
        (RewindSupport::Impossible, _) => say(TextKey::CannotRewind),
        (RewindSupport::Unknown, _) => say(TextKey::CannotRewindNow),
        (RewindSupport::Possible, None) => say(TextKey::NothingToUndo),
        (RewindSupport::Possible, Some(last)) => {
            tx.take_back(&last.row)?;
            say(TextKey::Undone)
        }
    }
}

/// `/retry`
fn retry(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    if let Some(words) = not_now(call) {
        return say(words);
    }
    let context = call.context;
    let tx = context.tx;
    match tx.last_turn_of_people(&call.session.id)? {
        None => say(TextKey::NothingToRetry),
        // Decided before anything is taken back: otherwise the old answer would be lost without a new one.
        Some(last) if !may_be_asked_again(context, &last)? => say(TextKey::RetryGone),
        Some(RoomTurn { row: TurnRow { agent: Some(agent), .. }, .. })
            if agents::refusal(context, &agent).is_some() =>
        {
            Ok((Vec::new(), agents::refusal(context, &agent)))
        }
        Some(last) => {
            // An agent that may not forget the first try is asked the same once more, in the same session.
            if context.agent_of(&last.row).rewind == RewindSupport::Possible {
                tx.take_back(&last.row)?;
            }
            tx.use_session(&call.session.id)?;
            let turn = again(last, &context.event.id, context.event);
            tx.add_turn(&turn)?;
            Ok((vec![PostCommit::Run(turn.session, turn.id)], None))
        }
    }
}

/// The reason why the last turn cannot be taken back or asked again now, if there is one.
fn not_now(call: &CommandCall<'_>) -> Option<TextKey> {
    // A person who adds words wants more than the command does, and doing only half of it would surprise them.
    if !call.behind.is_empty() {
        return Some(TextKey::NoWordsAfter);
    }
    (!call.open.is_empty()).then_some(TextKey::StillRunning)
}

/// `/resume`
fn resume(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    match call.open.is_empty() {
        true => sessions::resume(call.context, &call.key, call.behind),
        false => say(TextKey::StillRunning),
    }
}

/// An outcome that is only an answer.
fn say(phrase: impl Into<LocalizedText>) -> Result<CommandOutcome> {
    Ok((Vec::new(), Some(phrase.into())))
}

/// Whether the words of a turn may be asked once more: the person who wrote them must still be permitted to ask. Words
/// of a person who left are not sent anywhere again.
fn may_be_asked_again(context: &CommandContext<'_>, last: &RoomTurn) -> Result<bool> {
    let RoomEvent { place, room, author, .. } = context.event;
    let speaker = UserId::new(last.question.spoken_by().id);
    if speaker == author.id {
        return Ok(true);
    }
    let actor = context.tx.known_actor(context.account, &place.room, &speaker)?;
    Ok(context
        .rules
        .access_in(&place.room)
        .authorize(actor, PlaceKind::from(room.direct), AccessAction::Message)
        .allowed)
}

/// Makes another turn of the question of `last`, with another key, as the answer to the message `to`. The turn belongs
/// to the author of `event`: they are responsible for it, and it ends when they may no longer ask.
pub fn again(last: RoomTurn, to: &EventId, event: &RoomEvent) -> TurnRow {
    let RoomTurn { row, question } = last;
    let attempt = question.attempt + 1;
    let (account, room) = (&question.account, &question.place.room);
    let EventAuthor { id: author, name, .. } = &event.author;
    let question = RoomQuestion {
        author: author.as_str().to_owned(),
        author_name: name.clone(),
        speaker: Some(question.spoken_by()).filter(|speaker| speaker.id != author.as_str()),
        room_name: event.room.name.clone(),
        direct: event.room.direct,
        event: to.clone(),
        attempt,
        ..(*question).clone()
    };
    TurnRow {
        id: TurnId::new(account, room, to, attempt),
        key: idempotency_key(account, room, to, attempt),
        source: TurnSource::Room(question.into()),
        state: TurnState::Queued,
        stop: false,
        prepared: None,
        ..row
    }
}

/// Asks all of these turns to stop.
pub fn stop_all(tx: &Tx<'_>, session: &SessionId, open: &[OpenTurn]) -> Result<Vec<PostCommit>> {
    let mut after = Vec::new();
    for turn in open {
        tx.ask_to_stop(&turn.id)?;
        after.push(PostCommit::StopTurn(session.clone(), turn.id.clone()));
    }
    Ok(after)
}

/// `/help`: the commands that this person may use here.
fn help(call: &CommandCall<'_>) -> Result<CommandOutcome> {
    let context = call.context;
    let mut text = context.words.say(&TextKey::Help.into());
    text.push('\n');
    for command in ChatCommand::all() {
        if let (Some(meaning), _) = command.entry()
            && may(context, command)?
        {
            let _ = write!(text, "\n- `/{}` {}", command.name(), context.words.say(&meaning.into()));
        }
    }
    say(LocalizedText::Said(text))
}

/// Whether the person who sent it may use a command here.
fn may(context: &CommandContext<'_>, command: ChatCommand) -> Result<bool> {
    may_do(context, command.action(""))
}

/// Whether the person who sent it may do something here.
fn may_do(context: &CommandContext<'_>, action: AccessAction) -> Result<bool> {
    Ok(decide(context, action)?.allowed)
}

/// Decides about an action of the person who sent the command. The caller audits the decision if it has an effect.
fn decide(context: &CommandContext<'_>, action: AccessAction) -> Result<AccessDecision> {
    let RoomEvent { author, place, room, .. } = context.event;
    let actor = context.tx.actor(context.account, &place.room, author, EntryChannel::of(context.event))?;
    Ok(context.rules.access_in(&place.room).authorize(actor, PlaceKind::from(room.direct), action))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_slash_and_a_name_can_be_a_command() {
        for (text, parsed) in [
            ("/stop", ParsedMessage::Command(ChatCommand::Stop, String::new())),
            ("/STOP please", ParsedMessage::Command(ChatCommand::Stop, "please".to_owned())),
            ("/help\n", ParsedMessage::Command(ChatCommand::Help, String::new())),
            ("/new  What is\nRust? ", ParsedMessage::Command(ChatCommand::New, "What is\nRust?".to_owned())),
            ("stop", ParsedMessage::Prompt),
            (" /stop", ParsedMessage::Prompt),
            ("/", ParsedMessage::Prompt),
            ("/ stop", ParsedMessage::Prompt),
            ("/etc/hosts is what?", ParsedMessage::Prompt),
            ("/1/2 of it", ParsedMessage::Prompt),
            ("/-", ParsedMessage::Prompt),
            ("/-stop", ParsedMessage::Prompt),
            ("/stop-", ParsedMessage::Prompt),
            ("/st--op", ParsedMessage::Prompt),
            ("/2026-11-18 was it?", ParsedMessage::Prompt),
            ("/well-known/x", ParsedMessage::Prompt),
            ("", ParsedMessage::Prompt),
        ] {
            assert_eq!(parse(text), parsed, "{text:?}");
        }
    }

    #[test]
    fn an_unknown_command_is_explained() {
        let words = |text: &str| match parse(text) {
            ParsedMessage::Unknown(phrase) => TextCatalog::default().say(&phrase),
            other => panic!("{other:?}"),
        };
        assert_eq!(words("/stpo"), "There is no command /stpo. Did you mean /stop?");
        assert_eq!(words("/sta-tus"), "There is no command /sta-tus. Did you mean /status?");
        assert!(words("/dance").contains("/help"));
        assert!(words("/Tango-Argentino now").contains("/tango-argentino;"));
    }

    proptest! {
        /// A slash and a name are never sent to the agent, and nothing else is taken from it.
        #[test]
        fn a_message_is_a_command_if_and_only_if_it_begins_with_a_name(
            word in "[a-zA-Z-]{0,12}[a-z0-9./_-]{0,3}",
            behind in "( [^/]{0,9})?",
        ) {
            let letters = word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
            let dashes = word.starts_with('-') || word.ends_with('-') || word.contains("--");
            let is_name = letters && !dashes && !word.is_empty();
            let prompt = parse(&format!("/{word}{behind}")) == ParsedMessage::Prompt;
            prop_assert_eq!(!prompt, is_name, "/{}{}", word, behind);
        }
    }

    #[test]
    fn every_command_has_a_name_of_its_own() {
        for command in ChatCommand::all() {
            assert_eq!(
                parse(&format!("/{}", command.name())),
                ParsedMessage::Command(command, String::new())
            );
        }
    }
}
