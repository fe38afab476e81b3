//! Reads what the network and the agent server saw, and names every promise that was broken.
//!
//! We promise that a prompt is run at most once (exactly once where the upstream can be asked again),
//! has exactly one finished answer, in its room's order, and that nobody is ever shown less than
//! before.

#[cfg(test)]
mod tests;

use super::trial::{History, MAX_TEXT, Prompt};
use crate::support::agent_server::Kind;
use crate::support::network::Shown;

/// What the room is told when an answer cannot be had without running the prompt again: because the gateway died, the
/// server behind it, or the model behind that.
const INTERRUPTED: [&str; 6] = [
    "(interrupted — /retry runs it again)",
    "(cut short: the agent server restarted; /retry asks again)",
    "(cut short: the agent reported an error; /retry asks again)",
    "(cut short: the answer broke off; /retry asks again)",
    "(cut short: Model connection error at the agent server: the connection was lost; /retry asks again)",
    "(cut short: Model connection error at the agent server: the connection was reset; /retry asks again)",
];

/// A broken promise, with the prompt it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// No answer, or one that never ends.
    Lost(String),
    /// More than one answer.
    Doubled(String),
    /// Run this many times.
    ExecutedAgain(String, usize),
    /// Answered without having been run.
    NeverExecuted(String),
    /// The answer is not what the agent server said.
    Garbled(String),
    /// Given up although it could have been answered.
    GivenUp(String),
    /// Answered before something that was asked earlier in the same room.
    OutOfOrder(String),
    /// A message showed less than it had shown before.
    Shrunk(String),
}

/// How an answer came out.
#[derive(PartialEq, Eq)]
enum End {
    Whole,
    Interrupted,
    Other,
}

/// Every broken promise of a history.
pub fn check(history: &History) -> Vec<Broken> {
    let mut broken = Vec::new();
    for prompt in &history.prompts {
        check_prompt(history, prompt, &mut broken);
    }
    let rooms = history.prompts.iter().map(|prompt| prompt.room);
    for room in rooms.collect::<std::collections::BTreeSet<_>>() {
        let prompts: Vec<_> = history.prompts.iter().filter(|prompt| prompt.room == room).collect();
        check_room(history, &prompts, &mut broken);
    }
    broken
}

/// How many prompts ended as interrupted.
pub fn interrupted(history: &History) -> usize {
    history.prompts.iter().filter(|prompt| end(history, prompt) == End::Interrupted).count()
}

fn check_prompt(history: &History, prompt: &Prompt, broken: &mut Vec<Broken>) {
    let name = || prompt.text.clone();
    let executions = history.executions(prompt);
    if executions > 1 {
        broken.push(Broken::ExecutedAgain(name(), executions));
    }
    let answers = prompt.answers(&history.messages);
    if answers.is_empty() || answers.iter().any(|answer| !answer.body().done) {
        broken.push(Broken::Lost(name()));
        return;
    }
    if beginnings(prompt, &answers) > 1 {
        broken.push(Broken::Doubled(name()));
        return;
    }
    match end(history, prompt) {
        End::Whole if executions == 0 => broken.push(Broken::NeverExecuted(name())),
        End::Whole => {}
        End::Interrupted if prompt.undisturbed => broken.push(Broken::GivenUp(name())),
        End::Interrupted => match history.kind {
            Kind::Idempotent => broken.push(Broken::GivenUp(name())),
            Kind::Plain => {}
        },
        End::Other => broken.push(Broken::Garbled(name())),
    }
    if shrinks(&answers) {
        broken.push(Broken::Shrunk(name()));
    }
}

fn check_room(history: &History, prompts: &[&Prompt], broken: &mut Vec<Broken>) {
    let about = |shown: &Shown| {
        prompts.iter().position(|prompt| !prompt.answers(std::slice::from_ref(shown)).is_empty())
    };
    let mut latest = 0;
    for at in history.messages.iter().filter_map(about) {
        if at < latest {
            broken.push(Broken::OutOfOrder(prompts[at].text.clone()));
        }
        latest = latest.max(at);
    }
    // Only what was running when something died can be uncertain, and a room runs one at a time.
    let uncertain = prompts.iter().filter(|prompt| end(history, prompt) == End::Interrupted);
    broken.extend(uncertain.skip(history.deaths).map(|prompt| Broken::GivenUp(prompt.text.clone())));
}

/// How many answers the messages make up. A further part goes on with the one before it, and so does
/// the mark alone if it did not fit below the text.
fn beginnings(prompt: &Prompt, answers: &[&Shown]) -> usize {
    let opening = prompt.said().split_inclusive(':').next().unwrap_or_default().to_owned();
    let mut before = 0;
    let begins = answers.iter().filter(|answer| {
        let text = &answer.body().markdown;
        let full = std::mem::replace(&mut before, text.len()) + "\n\n".len() + text.len() > MAX_TEXT;
        text.starts_with(&opening) || (INTERRUPTED.contains(&text.as_str()) && !full)
    });
    begins.count()
}

fn end(history: &History, prompt: &Prompt) -> End {
    let (shown, said) = (words(&prompt.answers(&history.messages)), pressed(&prompt.said()));
    match INTERRUPTED.iter().find_map(|mark| shown.strip_suffix(&pressed(mark))) {
        Some(text) if said.starts_with(text) => End::Interrupted,
        None if shown == said => End::Whole,
        _ => End::Other,
    }
}

/// Whether a later body of an answer lacks what an earlier one showed. The finished answer may have it
/// in a further part.
fn shrinks(answers: &[&Shown]) -> bool {
    let Some((first, parts)) = answers.split_first() else { return false };
    let whole = words(answers);
    // A line that says what is waited for may take the place of the last words for as long as it stands there.
    let told: Vec<_> =
        first.bodies.iter().filter(|body| body.done || !body.markdown.contains("⚠️")).collect();
    let lacks = told.windows(2).any(|bodies| {
        let later = if bodies[1].done { whole.clone() } else { pressed(unfinished(&bodies[1].markdown)) };
        !later.starts_with(&pressed(unfinished(&bodies[0].markdown)))
    });
    lacks || parts.iter().any(|part| part.bodies.iter().any(|body| body != part.body()))
}

/// A growing text without the mark that there is more of it.
fn unfinished(text: &str) -> &str {
    text.strip_suffix(" …").unwrap_or(text)
}

/// What all parts of an answer say.
fn words(answers: &[&Shown]) -> String {
    answers.iter().map(|answer| pressed(&answer.body().markdown)).collect()
}

/// Without any space: where a long text is split, spaces and line ends may go.
fn pressed(text: &str) -> String {
    text.split_whitespace().collect()
}
