//! Reads what the network and the agent server saw, and names every broken promise.
//!
//! We promise that a prompt is run at most once (exactly once if the upstream can resume), has exactly one finished
//! answer, in its room's order, and that a room never shows less than before.

#[cfg(test)]
mod tests;

use super::trial::{History, MAX_TEXT, Prompt};
use crate::support::agent_server::Kind;
use crate::support::network::Shown;

/// Notices for an answer that cannot be had without running the prompt again: because the gateway died, the server
/// behind it, or the model behind that.
pub const INTERRUPTED: [&str; 7] = [
    "(interrupted — /retry runs it again)",
    "(cut short: the agent server restarted; /retry asks again)",
    "(cut short: the agent reported an error; /retry asks again)",
    "(cut short: the answer broke off; /retry asks again)",
    "(cut short: Model connection error at the agent server: the connection was lost; /retry asks again)",
    "(cut short: Model connection error at the agent server: the connection was reset; /retry asks again)",
    "⚠️ Proxy connection error: the connection was lost. It may have run all the same; /retry runs it again.",
];

/// A broken promise, with the prompt it concerns.
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
    /// The answer differs from the agent server's text.
    Garbled(String),
    /// Given up although it could have been answered.
    GivenUp(String),
    /// Answered before an earlier prompt of the same room.
    OutOfOrder(String),
    /// A message showed less than before.
    Shrunk(String),
}

/// How an answer ended.
#[derive(PartialEq, Eq)]
enum End {
    Whole,
    Interrupted,
    Other,
}

/// Finds every broken promise of a history.
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

/// Counts the prompts that ended as interrupted.
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
            // A run whose request was never sent is looked for in vain.
            Kind::Plain | Kind::Runs => {}
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
    // Only a prompt that was running at a death can be uncertain, and a room runs one at a time.
    let uncertain = prompts.iter().filter(|prompt| end(history, prompt) == End::Interrupted);
    broken.extend(uncertain.skip(history.deaths).map(|prompt| Broken::GivenUp(prompt.text.clone())));
}

/// Counts the answers that the messages make up. A further part continues the message before it, and so does the
/// interruption mark alone if it did not fit below the text.
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

/// Whether a later body of an answer lacks text that an earlier one showed. In the finished answer the text may be in
/// a further part.
fn shrinks(answers: &[&Shown]) -> bool {
    let Some((first, parts)) = answers.split_first() else { return false };
    let whole = words(answers);
    // While we wait for the agent, a status line may replace the last words.
    let told: Vec<_> =
        first.bodies.iter().filter(|body| body.done || !body.markdown.contains("⚠️")).collect();
    let lacks = told.windows(2).any(|bodies| {
        let later = if bodies[1].done { whole.clone() } else { pressed(unfinished(&bodies[1].markdown)) };
        !later.starts_with(&pressed(unfinished(&bodies[0].markdown)))
    });
    lacks || parts.iter().any(|part| part.bodies.iter().any(|body| body != part.body()))
}

/// A growing text without the mark that more follows.
fn unfinished(text: &str) -> &str {
    text.strip_suffix(" …").unwrap_or(text)
}

/// The text of all parts of an answer.
fn words(answers: &[&Shown]) -> String {
    answers.iter().map(|answer| pressed(&answer.body().markdown)).collect()
}

/// The text without spaces: splitting a long text may drop spaces and line ends.
pub fn pressed(text: &str) -> String {
    text.split_whitespace().collect()
}
