//! The commands of a chat: which text is one, and what each does.
//!
//! A command's effect and the row that says it was seen are one transaction, and its answer is a row of
//! the outbox in the same transaction: a crash repeats nothing and loses nothing. What must happen
//! outside the store afterwards is returned as [`PostCommit`].

pub mod asks;
mod sessions;

use std::fmt::Write as _;

use talaria_platform::{AccountId, EventAuthor, EventId, Place, RoomEvent, UserId};

use crate::access::{AccessAction, AccessDecision, EntryChannel, PlaceKind};
use crate::agent::{AgentInfo, RewindSupport};
use crate::hub::pairing::PairingCodeMessage;
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::ids::{AskId, SessionId, TurnId, idempotency_key};
use crate::rules::AccountRules;
use crate::rules::SessionKey;
use crate::store::{OpenTurn, Result, TurnRow, TurnState, Tx};
use crate::util::one_line;

/// What a person asks of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChatCommand {
    /// What can be said.
    Help,
    /// Begin a new session.
    New,
    /// End the running turn.
    Stop,
    /// Ask the last question again.
    Retry,
    /// Take the last question and its answer back.
    Undo,
    /// What is going on.
    Status,
    /// The sessions of this place.
    Sessions,
    /// Go back to an earlier session.
    Resume,
    /// Name this session.
    Title,
    /// Who the person is to us.
    Whoami,
    /// What was used.
    Usage,
    /// Allow what an agent asks for.
    Approve,
    /// Refuse what an agent asks for.
    Deny,
}

/// Every command with its name and what it is for, as `/help` shows it.
const COMMANDS: [(ChatCommand, &str, TextKey); 13] = [
    (ChatCommand::Help, "help", TextKey::HelpHelp),
    (ChatCommand::New, "new", TextKey::HelpNew),
    (ChatCommand::Stop, "stop", TextKey::HelpStop),
    (ChatCommand::Retry, "retry", TextKey::HelpRetry),
    (ChatCommand::Undo, "undo", TextKey::HelpUndo),
    (ChatCommand::Status, "status", TextKey::HelpStatus),
    (ChatCommand::Sessions, "sessions", TextKey::HelpSessions),
    (ChatCommand::Resume, "resume", TextKey::HelpResume),
    (ChatCommand::Title, "title", TextKey::HelpTitle),
    (ChatCommand::Whoami, "whoami", TextKey::HelpWhoami),
    (ChatCommand::Usage, "usage", TextKey::HelpUsage),
    (ChatCommand::Approve, "approve", TextKey::HelpApprove),
    (ChatCommand::Deny, "deny", TextKey::HelpDeny),
];

impl ChatCommand {
    /// Every command.
    pub fn all() -> impl Iterator<Item = Self> {
        COMMANDS.iter().map(|(command, ..)| *command)
    }

    /// As people write it, without the slash.
    pub fn name(self) -> &'static str {
        COMMANDS.iter().find(|(command, ..)| *command == self).map_or("help", |(_, name, _)| name)
    }

    /// What a person does who sends it with these words behind it.
    pub fn action(self, behind: &str) -> AccessAction {
        match self {
            Self::Approve => AccessAction::Approve(asks::wanted(behind)),
            Self::Deny => AccessAction::Deny,
            other => AccessAction::Command(other),
        }
    }
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedMessage {
    /// Words for the agent.
    Prompt,
    /// Words for us, and what stands behind the command.
    Command(ChatCommand, String),
    /// It looks like a command, but there is none of that name; with what to say about it.
    Unknown(LocalizedText),
}

/// What must happen once the transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostCommit {
    /// A turn waits in this session's line.
    Run(SessionId, TurnId),
    /// This turn was asked to stop.
    StopTurn(SessionId, TurnId),
    /// The message that the transaction was about was taken up.
    Read(Place, EventId),
    /// This question was answered.
    Answered(AskId),
    /// A stranger is to be given a code, which is kept nowhere else.
    GiveCode(Box<PairingCodeMessage>),
}

/// What a command has before it: the open transaction, and who sent it where.
pub struct CommandContext<'a> {
    /// Everything that the command changes, it changes here.
    pub tx: &'a Tx<'a>,
    /// The account it came to.
    pub account: &'a AccountId,
    /// The message it is.
    pub event: &'a RoomEvent,
    /// How this account behaves.
    pub rules: &'a AccountRules,
    /// What rooms are told.
    pub words: &'a TextCatalog,
    /// Who answers.
    pub agent: &'a AgentInfo,
    /// Why its author may send it.
    pub decision: AccessDecision,
}

impl CommandContext<'_> {
    /// The session that is talked about here.
    pub fn key(&self) -> SessionKey {
        let RoomEvent { place, room, author, .. } = self.event;
        SessionKey::new(self.account, place, room.direct, &author.id, self.rules.session)
    }
}

/// What a command comes to: what to do after the commit, and what to answer, if anything.
pub type CommandOutcome = (Vec<PostCommit>, Option<LocalizedText>);

/// Tells commands from prompts. Only `/` and letters, at the very start, can be a command: a path or a
/// date is a prompt.
pub fn parse(text: &str) -> ParsedMessage {
    let Some(rest) = text.strip_prefix('/') else { return ParsedMessage::Prompt };
    let word = rest.split_whitespace().next().unwrap_or_default();
    if word.is_empty() || !rest.starts_with(word) || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return ParsedMessage::Prompt;
    }
    let word = word.to_ascii_lowercase();
    if let Some((command, ..)) = COMMANDS.iter().find(|(_, name, _)| *name == word) {
        let behind = rest.get(word.len()..).unwrap_or_default().trim();
        return ParsedMessage::Command(*command, behind.to_owned());
    }
    let word = one_line(&word, 32);
    let near = COMMANDS.iter().map(|(_, name, _)| *name).find(|name| strsim::osa_distance(name, &word) <= 2);
    ParsedMessage::Unknown(match near {
        Some(name) => TextKey::UnknownCommandNear.with("word", word).with("near", name),
        None => TextKey::UnknownCommand.with("word", word),
    })
}

/// Carries a command out.
pub fn apply(context: &CommandContext<'_>, command: ChatCommand, behind: &str) -> Result<CommandOutcome> {
    let tx = context.tx;
    let key = context.key();
    let session = tx.session_for(&key)?;
    let open = tx.open_turns(&session.id)?;
    match command {
        ChatCommand::Help => say(LocalizedText::Said(help(context)?)),
        ChatCommand::Status => say(status(context, &session.id, &open)?),
        // Whoever adds a wish to these means more than the command does; half of it would be a surprise.
        ChatCommand::Retry | ChatCommand::Undo if !behind.is_empty() => say(TextKey::NoWordsAfter),
        ChatCommand::Stop if open.is_empty() => say(TextKey::NothingRunning),
        // The stopped answers say so themselves.
        ChatCommand::Stop => Ok((stop_all(tx, &session.id, &open)?, None)),
        ChatCommand::New => {
            let after = stop_all(tx, &session.id, &open)?;
            // One in which nothing was said is as good as new.
            if session.title.is_some() || tx.is_used(&session.id)? {
                tx.begin_session(&key)?;
            }
            // The hub asks what stands behind it; the answer to that is answer enough.
            Ok((after, behind.is_empty().then(|| TextKey::NewSession.into())))
        }
        ChatCommand::Retry | ChatCommand::Undo if !open.is_empty() => say(TextKey::StillRunning),
        ChatCommand::Undo if context.agent.rewind == RewindSupport::Impossible => say(TextKey::CannotRewind),
        ChatCommand::Undo if context.agent.rewind == RewindSupport::Unknown => say(TextKey::CannotRewindNow),
        ChatCommand::Undo => match tx.last_turn_of_people(&session.id)? {
            None => say(TextKey::NothingToUndo),
            Some(last) => {
                tx.take_back(&last)?;
                say(TextKey::Undone)
            }
        },
        ChatCommand::Retry => match tx.last_turn_of_people(&session.id)? {
            None => say(TextKey::NothingToRetry),
            // Decided before anything is taken back: the answer there is would be lost for none.
            Some(last) if !may_be_asked_again(context, &last)? => say(TextKey::RetryGone),
            Some(last) => {
                // An agent that may not forget the first try is asked the same once more, in the same session.
                if context.agent.rewind == RewindSupport::Possible {
                    tx.take_back(&last)?;
                }
                tx.use_session(&session.id)?;
                let turn = again(last, &context.event.id, context.event);
                tx.add_turn(&turn)?;
                Ok((vec![PostCommit::Run(turn.session, turn.id)], None))
            }
        },
        ChatCommand::Sessions => sessions::list(context, &key),
        ChatCommand::Resume if !open.is_empty() => say(TextKey::StillRunning),
        ChatCommand::Resume => sessions::resume(context, &key, behind),
        ChatCommand::Title => sessions::title(context, &key, &session, behind),
        ChatCommand::Whoami => sessions::whoami(context, &session),
        ChatCommand::Usage => sessions::usage(context, &session),
        ChatCommand::Approve => asks::approve(context, behind),
        ChatCommand::Deny => asks::deny(context, behind),
    }
}

/// Only an answer.
fn say(phrase: impl Into<LocalizedText>) -> Result<CommandOutcome> {
    Ok((Vec::new(), Some(phrase.into())))
}

/// Whether the words of a turn may be asked once more: whoever wrote them must still be one who may ask. Words of
/// somebody who is gone are not sent anywhere again.
fn may_be_asked_again(context: &CommandContext<'_>, last: &TurnRow) -> Result<bool> {
    let RoomEvent { place, room, author, .. } = context.event;
    let speaker = UserId::new(last.spoken_by().id);
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

/// The same question as another attempt: another turn, with another key, that answers the message `to` of whoever
/// sent `event`. It is theirs: they are answerable for it, and it ends when they may no longer ask.
pub fn again(last: TurnRow, to: &EventId, event: &RoomEvent) -> TurnRow {
    let attempt = last.attempt + 1;
    let (account, room) = (&last.account, &last.place.room);
    let EventAuthor { id: author, name, .. } = &event.author;
    TurnRow {
        author: author.as_str().to_owned(),
        author_name: name.clone(),
        speaker: Some(last.spoken_by()).filter(|speaker| speaker.id != author.as_str()),
        room_name: event.room.name.clone(),
        direct: event.room.direct,
        id: TurnId::new(account, room, to, attempt),
        key: idempotency_key(account, room, to, attempt),
        event: to.clone(),
        attempt,
        state: TurnState::Queued,
        stop: false,
        prepared: None,
        ..last
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

/// The commands that this person may use here.
fn help(context: &CommandContext<'_>) -> Result<String> {
    let mut text = context.words.say(&TextKey::Help.into());
    text.push('\n');
    for (command, name, meaning) in COMMANDS {
        if may(context, command)? {
            let _ = write!(text, "\n- `/{name}` {}", context.words.say(&meaning.into()));
        }
    }
    Ok(text)
}

/// Whether the person who sent it may use a command here.
fn may(context: &CommandContext<'_>, command: ChatCommand) -> Result<bool> {
    may_do(context, command.action(""))
}

/// Whether the person who sent it may do something here.
fn may_do(context: &CommandContext<'_>, action: AccessAction) -> Result<bool> {
    let RoomEvent { author, place, room, .. } = context.event;
    let actor = context.tx.actor(context.account, &place.room, author, EntryChannel::of(context.event))?;
    Ok(context.rules.access_in(&place.room).authorize(actor, PlaceKind::from(room.direct), action).allowed)
}

fn status(context: &CommandContext<'_>, session: &SessionId, open: &[OpenTurn]) -> Result<LocalizedText> {
    let running = match open {
        [] => TextKey::StatusIdle.into(),
        [one] => TextKey::StatusRunning.with("turn", one.id.short()),
        [first, _] => TextKey::StatusRunningOne.with("turn", first.id.short()),
        [first, rest @ ..] => {
            TextKey::StatusRunningMany.with("turn", first.id.short()).with("count", rest.len())
        }
    };
    Ok(TextKey::Status
        .with("running", running)
        .with("agent", context.agent.answering())
        .with("session", session.0.as_str())
        .with("messages", context.tx.message_count(session)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slash_and_letters_can_be_a_command() {
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
        assert!(words("/dance").contains("/help"));
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
