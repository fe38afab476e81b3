//! The commands of a chat: which text is one, and what each does.
//!
//! A command's effect and the row that says it was seen are one transaction, and its answer is a row of
//! the outbox in the same transaction: a crash repeats nothing and loses nothing. What must happen
//! outside the store afterwards is returned as [`After`].

use std::fmt::Write as _;

use talaria_platform::{AccountId, Event};

use crate::agent::AgentInfo;
use crate::reply::one_line;
use crate::session::{SessionId, TurnId, idempotency_key, session_key};
use crate::store::{OpenTurn, Result, State, TurnRow, Tx};

/// What a person asks of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Every command with its name and what it is for, as `/help` shows it.
const COMMANDS: [(Command, &str, &str); 6] = [
    (Command::Help, "help", "shows this list"),
    (Command::New, "new", "ends what runs and begins a new conversation; words behind it are asked there"),
    (Command::Stop, "stop", "ends the running answer and whatever waits behind it"),
    (Command::Retry, "retry", "asks the last question again"),
    (Command::Undo, "undo", "takes the last question and its answer back"),
    (Command::Status, "status", "says what is running and what waits"),
];

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Words for the agent.
    Prompt,
    /// Words for us, and what stands behind the command.
    Command(Command, String),
    /// It looks like a command, but there is none of that name; with what to say about it.
    Unknown(String),
}

/// What must happen once the transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// A turn waits in this session's line.
    Run(SessionId, TurnId),
    /// This session's turns were asked to stop.
    Stop(SessionId),
    /// This turn was asked to stop.
    StopTurn(SessionId, TurnId),
}

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
    let near = COMMANDS.iter().map(|(_, name, _)| name).find(|name| strsim::osa_distance(name, &word) <= 2);
    Parsed::Unknown(match near {
        Some(name) => format!("There is no command /{word}. Did you mean /{name}?"),
        None => format!(
            "There is no command /{word}; /help lists what there is. To send it to the agent, put a space before it."
        ),
    })
}

/// Carries a command out. Returns what to do after the commit and what to answer, if anything.
pub fn apply(
    tx: &Tx<'_>,
    command: Command,
    behind: &str,
    account: &AccountId,
    event: &Event,
    agent: &AgentInfo,
) -> Result<(Vec<After>, Option<String>)> {
    let key = session_key(account, &event.place);
    let session = tx.session_for(&key)?;
    let open = tx.open_turns(&session.id)?;
    let say = |words: &str| Ok((Vec::new(), Some(words.to_owned())));
    match command {
        Command::Help => say(&help()),
        Command::Status => say(&status(tx, &session.id, &open, agent)?),
        // Whoever adds a wish to these means more than the command does; half of it would be a surprise.
        Command::Retry | Command::Undo if !behind.is_empty() => say(
            "This command takes no words after it, so nothing was done. Send it alone, or ask in your own words.",
        ),
        Command::Stop if open.is_empty() => say("Nothing is running."),
        // The stopped answers say so themselves.
        Command::Stop => Ok((vec![stop_all(tx, &session.id, &open)?], None)),
        Command::New => {
            let after = if open.is_empty() { Vec::new() } else { vec![stop_all(tx, &session.id, &open)?] };
            tx.begin_session(&key)?;
            // The hub asks what stands behind it; the answer to that is answer enough.
            let words = behind.is_empty().then(|| "A new conversation begins here.".to_owned());
            Ok((after, words))
        }
        Command::Retry | Command::Undo if !open.is_empty() => {
            say("An answer is still running. /stop ends it; then try again.")
        }
        Command::Retry | Command::Undo if !agent.rewind => {
            say("This agent cannot change what it remembers. /new begins a new conversation.")
        }
        Command::Undo => match tx.last_turn(&session.id)? {
            None => say("There is nothing to take back."),
            Some(last) => {
                tx.take_back(&last)?;
                say("The last question and its answer are taken back.")
            }
        },
        Command::Retry => match tx.last_turn(&session.id)? {
            None => say("There is nothing to ask again."),
            Some(last) => {
                tx.take_back(&last)?;
                let turn = again(last, event);
                tx.add_turn(&turn)?;
                Ok((vec![After::Run(turn.session, turn.id)], None))
            }
        },
    }
}

/// The same question as another attempt: another turn, with another key, that answers the `/retry`.
fn again(last: TurnRow, event: &Event) -> TurnRow {
    let attempt = last.attempt + 1;
    let (account, room) = (&last.account, &last.place.room);
    TurnRow {
        id: TurnId::new(account, room, &event.id, attempt),
        key: idempotency_key(account, room, &event.id, attempt),
        event: event.id.clone(),
        attempt,
        state: State::Queued,
        stop: false,
        prepared: None,
        ..last
    }
}

fn stop_all(tx: &Tx<'_>, session: &SessionId, open: &[OpenTurn]) -> Result<After> {
    for turn in open {
        tx.ask_to_stop(&turn.id)?;
    }
    Ok(After::Stop(session.clone()))
}

fn help() -> String {
    let mut text = "Write to talk to the agent. Commands:\n".to_owned();
    for (_, name, meaning) in COMMANDS {
        let _ = write!(text, "\n- `/{name}` {meaning}");
    }
    text
}

fn status(tx: &Tx<'_>, session: &SessionId, open: &[OpenTurn], agent: &AgentInfo) -> Result<String> {
    let running = match open {
        [] => "Nothing is running.".to_owned(),
        [one] => format!("One answer is running (turn {}).", one.id.short()),
        [first, _] => format!("One answer is running (turn {}), one message waits.", first.id.short()),
        [first, rest @ ..] => {
            format!("One answer is running (turn {}), {} messages wait.", first.id.short(), rest.len())
        }
    };
    let messages = tx.message_count(session)?;
    Ok(format!("{running}\nAgent: {}. Session {session}, {messages} messages.", agent.name))
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
        let Parsed::Unknown(words) = parse("/stpo") else { panic!() };
        assert_eq!(words, "There is no command /stpo. Did you mean /stop?");
        assert!(matches!(parse("/dance"), Parsed::Unknown(words) if words.contains("/help")));
    }
}
