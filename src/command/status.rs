//! `/status`: what runs, what waits, and whether the agent answers now. The agent is asked after the commit.

use talaria_platform::BoxFuture;

use super::after_commit::{CommandAnswer, CommandResult, CommandTask};
use crate::agent::{AgentErrorKind, AnsweringAgent};
use crate::i18n::{LocalizedText, TextCatalog, TextKey};
use crate::ids::{AgentName, SessionId};
use crate::reply;
use crate::rules::{Rules, SessionKey};
use crate::store::{self, CommandRow, OpenTurn, Tx};
use crate::turns::AgentCheck;
use crate::util::one_line;

/// Characters of the reason that an agent is away.
const REASON: usize = 200;

/// Asks the agent of the place, and says how things are when it has answered.
pub(super) fn run(task: CommandTask) -> BoxFuture<'static, CommandResult> {
    Box::pin(async move {
        let name = task.agent_of_place().await.map_err(|error| {
            tracing::error!(%error, "the agent of a place cannot be read");
            TextKey::CommandBroken.with("command", task.row.name.as_str())
        })?;
        let CommandTask { row, turns, .. } = task;
        let check = turns.check_agent(&name).await;
        let answer: CommandAnswer = Box::new(move |tx, rules| status(tx, rules, &row, &name, check.as_ref()));
        Ok(answer)
    })
}

/// The answer about the agent `name`; without a `check` that agent is no longer there.
fn status(
    tx: &Tx<'_>,
    rules: &Rules,
    row: &CommandRow,
    name: &AgentName,
    check: Option<&AgentCheck>,
) -> store::Result<LocalizedText> {
    let of_session = rules.account(&row.account).session;
    let key = SessionKey::new(&row.account, &row.place, row.direct, &row.author, of_session);
    let session = tx.session_for(&key)?.id;
    let open = tx.open_turns(&session)?;
    let words = &rules.words;
    let (agent, answers) = match check {
        Some(check) => {
            // The default agent needs no name; another one is known by it.
            let agent = match &check.name {
                Some(name) => LocalizedText::Said(format!("{name}, {}", words.say(&check.about.answering()))),
                None => check.about.answering(),
            };
            (agent, answers(words, check))
        }
        None => (LocalizedText::Said(name.to_string()), TextKey::AgentGone.with("name", name.as_str())),
    };
    let status = going_on(tx, agent, &session, &open)?;
    let lines = check.iter().flat_map(|check| check.lines.iter().cloned());
    let lines: Vec<_> = [status, answers].into_iter().chain(lines).map(|line| words.say(&line)).collect();
    Ok(LocalizedText::Said(lines.join("\n")))
}

fn going_on(
    tx: &Tx<'_>,
    agent: LocalizedText,
    session: &SessionId,
    open: &[OpenTurn],
) -> store::Result<LocalizedText> {
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
        .with("agent", agent)
        .with("session", session.0.as_str())
        .with("messages", tx.message_count(session)?))
}

/// Whether the agent answers, as it was found out a moment ago.
fn answers(words: &TextCatalog, check: &AgentCheck) -> LocalizedText {
    let why = |phrase: &LocalizedText| one_line(reply::bare(&words.say(phrase)), REASON);
    let about = |text: TextKey| text.with("agent", check.about.name.clone());
    match (&check.reached, &check.failing, check.about.fallback.as_deref()) {
        (Err(error), ..) if error.kind == AgentErrorKind::Refused => {
            about(TextKey::StatusRefused).with("why", why(&error.words))
        }
        (Err(error), ..) => about(TextKey::StatusAway).with("why", why(&error.words)),
        (Ok(AnsweringAgent::StandIn), _, Some(other)) => {
            about(TextKey::StatusAwayStandIn).with("other", other.about.name.clone())
        }
        (Ok(_), Some((times, words)), _) => {
            about(TextKey::StatusFailing).with("times", *times).with("why", why(words))
        }
        (Ok(_), None, _) => about(TextKey::StatusAnswers),
    }
}
