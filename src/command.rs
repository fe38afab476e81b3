//! The commands of a chat: which text is one, and what each does.
//!
//! A command's effect and the row that says it was seen are one transaction, and its answer is a row of
//! the outbox in the same transaction: a crash repeats nothing and loses nothing. What must happen
//! outside the store afterwards is returned as [`After`].

pub mod asks;
mod sessions;

use std::fmt::Write as _;

use talaria_platform::{AccountId, Author, Event, EventId, Place, UserId};

use crate::access::{Action, Channel, Decision, Where};
use crate::agent::{AgentInfo, Rewind};
use crate::hub::pairing::Letter;
use crate::reply::one_line;
use crate::rules::AccountRules;
use crate::session::{AskId, SessionId, SessionKey, TurnId, idempotency_key};
use crate::store::{OpenTurn, Result, State, TurnRow, Tx};
use crate::words::{Phrase, Text, Words};

/// What a person asks of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
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
const COMMANDS: [(Command, &str, Text); 13] = [
    (Command::Help, "help", Text::HelpHelp),
    (Command::New, "new", Text::HelpNew),
    (Command::Stop, "stop", Text::HelpStop),
    (Command::Retry, "retry", Text::HelpRetry),
    (Command::Undo, "undo", Text::HelpUndo),
    (Command::Status, "status", Text::HelpStatus),
    (Command::Sessions, "sessions", Text::HelpSessions),
    (Command::Resume, "resume", Text::HelpResume),
    (Command::Title, "title", Text::HelpTitle),
    (Command::Whoami, "whoami", Text::HelpWhoami),
    (Command::Usage, "usage", Text::HelpUsage),
    (Command::Approve, "approve", Text::HelpApprove),
    (Command::Deny, "deny", Text::HelpDeny),
];

impl Command {
    /// Every command.
    pub fn all() -> impl Iterator<Item = Self> {
        COMMANDS.iter().map(|(command, ..)| *command)
    }

    /// As people write it, without the slash.
    pub fn name(self) -> &'static str {
        COMMANDS.iter().find(|(command, ..)| *command == self).map_or("help", |(_, name, _)| name)
    }

    /// What a person does who sends it with these words behind it.
    pub fn action(self, behind: &str) -> Action {
        match self {
            Self::Approve => Action::Approve(asks::wanted(behind)),
            Self::Deny => Action::Deny,
            other => Action::Command(other),
        }
    }
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Words for the agent.
    Prompt,
    /// Words for us, and what stands behind the command.
    Command(Command, String),
    /// It looks like a command, but there is none of that name; with what to say about it.
    Unknown(Phrase),
}

/// What must happen once the transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// A turn waits in this session's line.
    Run(SessionId, TurnId),
    /// This turn was asked to stop.
    StopTurn(SessionId, TurnId),
    /// The message that the transaction was about was taken up.
    Read(Place, EventId),
    /// This question was answered.
    Answered(AskId),
    /// A stranger is to be given a code, which is kept nowhere else.
    GiveCode(Box<Letter>),
}

/// What a command has before it: the open transaction, and who sent it where.
pub struct Desk<'a> {
    /// Everything that the command changes, it changes here.
    pub tx: &'a Tx<'a>,
    /// The account it came to.
    pub account: &'a AccountId,
    /// The message it is.
    pub event: &'a Event,
    /// How this account behaves.
    pub rules: &'a AccountRules,
    /// What rooms are told.
    pub words: &'a Words,
    /// Who answers.
    pub agent: &'a AgentInfo,
    /// Why its author may send it.
    pub decision: Decision,
}

impl Desk<'_> {
    /// The session that is talked about here.
    pub fn key(&self) -> SessionKey {
        let Event { place, room, author, .. } = self.event;
        SessionKey::new(self.account, place, room.direct, &author.id, self.rules.session)
    }
}

/// What a command comes to: what to do after the commit, and what to answer, if anything.
pub type Done = (Vec<After>, Option<Phrase>);

/// Tells commands from prompts. Only `/` and letters, at the very start, can be a command: a path or a
/// date is a prompt.
pub fn parse(text: &str) -> Parsed {
    let Some(rest) = text.strip_prefix('/') else { return Parsed::Prompt };
    let word = rest.split_whitespace().next().unwrap_or_default();
    if word.is_empty() || !rest.starts_with(word) || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Parsed::Prompt;
    }
    let word = word.to_ascii_lowercase();
    if let Some((command, ..)) = COMMANDS.iter().find(|(_, name, _)| *name == word) {
        let behind = rest.get(word.len()..).unwrap_or_default().trim();
        return Parsed::Command(*command, behind.to_owned());
    }
    let word = one_line(&word, 32);
    let near = COMMANDS.iter().map(|(_, name, _)| *name).find(|name| strsim::osa_distance(name, &word) <= 2);
    Parsed::Unknown(match near {
        Some(name) => Text::UnknownCommandNear.with("word", word).with("near", name),
        None => Text::UnknownCommand.with("word", word),
    })
}

/// Carries a command out.
pub fn apply(desk: &Desk<'_>, command: Command, behind: &str) -> Result<Done> {
    let tx = desk.tx;
    let key = desk.key();
    let session = tx.session_for(&key)?;
    let open = tx.open_turns(&session.id)?;
    match command {
        Command::Help => say(Phrase::Said(help(desk)?)),
        Command::Status => say(status(desk, &session.id, &open)?),
        // Whoever adds a wish to these means more than the command does; half of it would be a surprise.
        Command::Retry | Command::Undo if !behind.is_empty() => say(Text::NoWordsAfter),
        Command::Stop if open.is_empty() => say(Text::NothingRunning),
        // The stopped answers say so themselves.
        Command::Stop => Ok((stop_all(tx, &session.id, &open)?, None)),
        Command::New => {
            let after = stop_all(tx, &session.id, &open)?;
            // One in which nothing was said is as good as new.
            if session.title.is_some() || tx.is_used(&session.id)? {
                tx.begin_session(&key)?;
            }
            // The hub asks what stands behind it; the answer to that is answer enough.
            Ok((after, behind.is_empty().then(|| Text::NewSession.into())))
        }
        Command::Retry | Command::Undo if !open.is_empty() => say(Text::StillRunning),
        Command::Undo if desk.agent.rewind == Rewind::Impossible => say(Text::CannotRewind),
        Command::Undo if desk.agent.rewind == Rewind::Unknown => say(Text::CannotRewindNow),
        Command::Undo => match tx.last_turn_of_people(&session.id)? {
            None => say(Text::NothingToUndo),
            Some(last) => {
                tx.take_back(&last)?;
                say(Text::Undone)
            }
        },
        Command::Retry => match tx.last_turn_of_people(&session.id)? {
            None => say(Text::NothingToRetry),
            // Decided before anything is taken back: the answer there is would be lost for none.
            Some(last) if !may_be_asked_again(desk, &last)? => say(Text::RetryGone),
            Some(last) => {
                // An agent that may not forget the first try is asked the same once more, in the same session.
                if desk.agent.rewind == Rewind::Possible {
                    tx.take_back(&last)?;
                }
                tx.use_session(&session.id)?;
                let turn = again(last, &desk.event.id, desk.event);
                tx.add_turn(&turn)?;
                Ok((vec![After::Run(turn.session, turn.id)], None))
            }
        },
        Command::Sessions => sessions::list(desk, &key),
        Command::Resume if !open.is_empty() => say(Text::StillRunning),
        Command::Resume => sessions::resume(desk, &key, behind),
        Command::Title => sessions::title(desk, &key, &session, behind),
        Command::Whoami => sessions::whoami(desk, &session),
        Command::Usage => sessions::usage(desk, &session),
        Command::Approve => asks::approve(desk, behind),
        Command::Deny => asks::deny(desk, behind),
    }
}

/// Only an answer.
fn say(phrase: impl Into<Phrase>) -> Result<Done> {
    Ok((Vec::new(), Some(phrase.into())))
}

/// Whether the words of a turn may be asked once more: whoever wrote them must still be one who may ask. Words of
/// somebody who is gone are not sent anywhere again.
fn may_be_asked_again(desk: &Desk<'_>, last: &TurnRow) -> Result<bool> {
    let Event { place, room, author, .. } = desk.event;
    let speaker = UserId::new(last.spoken_by().id);
    if speaker == author.id {
        return Ok(true);
    }
    let actor = desk.tx.known_actor(desk.account, &place.room, &speaker)?;
    Ok(desk.rules.access_in(&place.room).authorize(actor, Where::from(room.direct), Action::Message).allowed)
}

/// The same question as another attempt: another turn, with another key, that answers the message `to` of whoever
/// sent `event`. It is theirs: they are answerable for it, and it ends when they may no longer ask.
pub fn again(last: TurnRow, to: &EventId, event: &Event) -> TurnRow {
    let attempt = last.attempt + 1;
    let (account, room) = (&last.account, &last.place.room);
    let Author { id: author, name, .. } = &event.author;
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
        state: State::Queued,
        stop: false,
        prepared: None,
        ..last
    }
}

/// Asks all of these turns to stop.
pub fn stop_all(tx: &Tx<'_>, session: &SessionId, open: &[OpenTurn]) -> Result<Vec<After>> {
    let mut after = Vec::new();
    for turn in open {
        tx.ask_to_stop(&turn.id)?;
        after.push(After::StopTurn(session.clone(), turn.id.clone()));
    }
    Ok(after)
}

/// The commands that this person may use here.
fn help(desk: &Desk<'_>) -> Result<String> {
    let mut text = desk.words.say(&Text::Help.into());
    text.push('\n');
    for (command, name, meaning) in COMMANDS {
        if may(desk, command)? {
            let _ = write!(text, "\n- `/{name}` {}", desk.words.say(&meaning.into()));
        }
    }
    Ok(text)
}

/// Whether the person at this desk may use a command here.
fn may(desk: &Desk<'_>, command: Command) -> Result<bool> {
    may_do(desk, command.action(""))
}

/// Whether the person at this desk may do something here.
fn may_do(desk: &Desk<'_>, action: Action) -> Result<bool> {
    let Event { author, place, room, .. } = desk.event;
    let actor = desk.tx.actor(desk.account, &place.room, author, Channel::of(desk.event))?;
    Ok(desk.rules.access_in(&place.room).authorize(actor, Where::from(room.direct), action).allowed)
}

fn status(desk: &Desk<'_>, session: &SessionId, open: &[OpenTurn]) -> Result<Phrase> {
    let running = match open {
        [] => Text::StatusIdle.into(),
        [one] => Text::StatusRunning.with("turn", one.id.short()),
        [first, _] => Text::StatusRunningOne.with("turn", first.id.short()),
        [first, rest @ ..] => {
            Text::StatusRunningMany.with("turn", first.id.short()).with("count", rest.len())
        }
    };
    Ok(Text::Status
        .with("running", running)
        .with("agent", desk.agent.answering())
        .with("session", session.0.as_str())
        .with("messages", desk.tx.message_count(session)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slash_and_letters_can_be_a_command() {
        for (text, parsed) in [
            ("/stop", Parsed::Command(Command::Stop, String::new())),
            ("/STOP please", Parsed::Command(Command::Stop, "please".to_owned())),
            ("/help\n", Parsed::Command(Command::Help, String::new())),
            ("/new  What is\nRust? ", Parsed::Command(Command::New, "What is\nRust?".to_owned())),
            ("stop", Parsed::Prompt),
            (" /stop", Parsed::Prompt),
            ("/", Parsed::Prompt),
            ("/ stop", Parsed::Prompt),
            ("/etc/hosts is what?", Parsed::Prompt),
            ("/1/2 of it", Parsed::Prompt),
            ("", Parsed::Prompt),
        ] {
            assert_eq!(parse(text), parsed, "{text:?}");
        }
    }

    #[test]
    fn an_unknown_command_is_explained() {
        let words = |text: &str| match parse(text) {
            Parsed::Unknown(phrase) => Words::default().say(&phrase),
            other => panic!("{other:?}"),
        };
        assert_eq!(words("/stpo"), "There is no command /stpo. Did you mean /stop?");
        assert!(words("/dance").contains("/help"));
    }

    #[test]
    fn every_command_has_a_name_of_its_own() {
        for command in Command::all() {
            assert_eq!(parse(&format!("/{}", command.name())), Parsed::Command(command, String::new()));
        }
    }
}
