//! Reads what the room, codex and the system saw of a turn by codex, and names every broken promise.
//!
//! We promise that no process is left, that every prompt has one end in the room and reaches codex at most once, that no
//! command runs twice, and that none runs that nobody allowed.

use super::super::trial::Prompt;
use super::trial::{ALLOWED, CodexHistory, LAST_WORDS, PROMPTS, PersonHabit, REFUSED, UNASKED, is_answer};
use crate::codex::scripted_peer::LogEntry;

/// A broken promise, with the prompt or command that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokenPromise {
    /// A prompt without an end in the room.
    Lost(String),
    /// A prompt with more than one answer.
    Doubled(String),
    /// A prompt that nobody disturbed and that has no whole answer.
    GivenUp(String),
    /// A prompt that codex got this many times.
    AskedAgain(String, usize),
    /// A command that ran this many times.
    RanAgain(String, usize),
    /// A command that ran although nobody allowed it.
    RanForbidden(String),
    /// This many processes were left.
    Orphans(usize),
}

/// Finds every broken promise of a history.
pub fn check(history: &CodexHistory) -> Vec<BrokenPromise> {
    let mut broken = Vec::new();
    for (prompt, last_words) in history.prompts.iter().zip(LAST_WORDS) {
        let name = || prompt.text.clone();
        match answers(history, prompt).as_slice() {
            [] => broken.push(BrokenPromise::Lost(name())),
            [(_, false)] => broken.push(BrokenPromise::Lost(name())),
            [(text, true)] if prompt.undisturbed && !text.contains(last_words) => {
                broken.push(BrokenPromise::GivenUp(name()));
            }
            [_] => {}
            _ => broken.push(BrokenPromise::Doubled(name())),
        }
    }
    for prompt in PROMPTS {
        let times = history.codex.iter().filter(|entry| is_asked(entry, prompt)).count();
        if times > 1 {
            broken.push(BrokenPromise::AskedAgain(prompt.to_owned(), times));
        }
    }
    for command in [ALLOWED, UNASKED, REFUSED] {
        let allowed = match history.person {
            PersonHabit::Picky => command != REFUSED,
            // An approval that comes after a death is for nothing; what codex asks later is another ask.
            PersonHabit::Refuses | PersonHabit::Late => command == UNASKED,
        };
        match history.runs(command) {
            0 => {}
            1 if allowed => {}
            1 => broken.push(BrokenPromise::RanForbidden(command.to_owned())),
            times => broken.push(BrokenPromise::RanAgain(command.to_owned(), times)),
        }
    }
    if history.orphans > 0 {
        broken.push(BrokenPromise::Orphans(history.orphans));
    }
    broken
}

/// Whether the first prompt of a history has no whole answer.
pub fn is_cut_short(history: &CodexHistory) -> bool {
    !answers(history, &history.prompts[0]).iter().any(|(text, _)| text.contains(LAST_WORDS[0]))
}

/// The answers to a prompt, and whether they are finished.
fn answers(history: &CodexHistory, prompt: &Prompt) -> Vec<(String, bool)> {
    let answers = history.messages.iter().filter(|shown| is_answer(prompt, shown));
    answers.map(|shown| (shown.body().markdown.clone(), shown.body().done)).collect()
}

fn is_asked(entry: &LogEntry, prompt: &str) -> bool {
    let input = entry.received("turn/start").and_then(|params| params["input"].as_array());
    let mut texts = input.into_iter().flatten().filter_map(|part| part["text"].as_str());
    texts.any(|text| text.contains(prompt))
}
