//! Reads the people's actions and the answers that the agent got, and names every broken promise. Knows nothing of
//! how the gateway decides.

use std::time::Duration;

use talaria::access::GrantScope;
use talaria::agent::AskChoice;

use super::trial::{Did, History, What};
use crate::support::scripted::{Answer, Asked};

/// The time that people have to answer.
const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// A broken promise, with the ask it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Allowed, although no authorized person had approved before the time was over.
    TooLate(String),
    /// Allowed, although only an unauthorized person had approved.
    Unauthorized(String),
    /// Allowed, although the approval came in another place.
    Elsewhere(String),
    /// Allowed, although nobody had approved.
    Unasked(String),
    /// Allowed after a stop.
    Stopped(String),
    /// Allowed although the process had ended in between.
    Ended(String),
    /// Neither allowed nor denied in the end.
    Undecided(String),
    /// Not in the audit exactly once.
    Audited(String, usize),
    /// More actions ran than the audit has.
    Unrecorded(usize, usize),
}

/// Why an approval does not count for an ask. The nearer it is to a valid one, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flaw {
    Place,
    Person,
    Time,
    /// Withdrawn in the same moment, or given after a stop.
    Stop,
}

/// Finds every broken promise of a history.
pub fn check(history: &History) -> Vec<Broken> {
    let mut broken: Vec<Broken> = history.allowed().filter_map(|answer| judge(history, answer)).collect();
    for (title, state, digest) in &history.stored {
        if !matches!(state.as_str(), "taken" | "denied") {
            broken.push(Broken::Undecided(title.clone()));
        }
        let stored = history.stored.iter().filter(|(.., other)| other == digest).count();
        let asked = history.asked.iter().filter(|asked| format!("`{}`", asked.ask.title) == *title).count();
        let outcomes =
            history.audited.iter().filter(|(other, _, rule)| other == digest && rule != "granted").count();
        // An ask that is decided at once, by a grant, has no row in the store.
        if !(stored..=asked).contains(&outcomes) {
            broken.push(Broken::Audited(title.clone(), outcomes));
        }
    }
    // A killed process may lose its last audit rows.
    if !history.killed && history.audited.len() != history.asked.len() {
        broken.push(Broken::Audited("all".to_owned(), history.audited.len()));
    }
    let (done, recorded) =
        (history.allowed().count(), history.audited.iter().filter(|(_, allowed, _)| *allowed).count());
    if done > recorded {
        broken.push(Broken::Unrecorded(done, recorded));
    }
    broken
}

/// The broken promise in allowing this ask, if it was allowed.
fn judge(history: &History, answer: &Answer) -> Option<Broken> {
    let AskChoice::Allow(grant) = answer.choice else { return None };
    let title = answer.asked.ask.title.clone();
    let between = |did: &Did| did.order.0 > answer.asked.order && did.order.1 < answer.order;
    if history.did.iter().any(|did| between(did) && stops(did, &answer.asked)) {
        return Some(Broken::Stopped(title));
    }
    if history.did.iter().any(|did| between(did) && matches!(did.what, What::Ended)) {
        return Some(Broken::Ended(title));
    }
    // An earlier approval of the same action may hold for longer than once.
    let same = |asked: &&Asked| asked.ask == answer.asked.ask && asked.order < answer.asked.order;
    let granted = |asked: &Asked| flaws(history, asked, answer.order, grant).contains(&None);
    if grant != GrantScope::Once && history.asked.iter().filter(same).any(granted) {
        return None;
    }
    let flaws = flaws(history, &answer.asked, answer.order, grant);
    if flaws.contains(&None) {
        return None;
    }
    Some(match flaws.into_iter().flatten().max() {
        Some(Flaw::Stop) => Broken::Stopped(title),
        Some(Flaw::Time) => Broken::TooLate(title),
        Some(Flaw::Person) => Broken::Unauthorized(title),
        Some(Flaw::Place) => Broken::Elsewhere(title),
        None => Broken::Unasked(title),
    })
}

/// Every approval before `until` that may be meant for the ask, with its flaw.
fn flaws(history: &History, asked: &Asked, until: u64, grant: GrantScope) -> Vec<Option<Flaw>> {
    let said = history.did.iter().filter(|did| (asked.order..until).contains(&did.order.0));
    said.filter_map(|did| flaw(history, did, asked, grant)).collect()
}

/// The flaw of this action as an approval of the ask; the outer `None` if it is no approval at all.
fn flaw(history: &History, did: &Did, asked: &Asked, grant: GrantScope) -> Option<Option<Flaw>> {
    let What::Said { room, who, text } = &did.what else { return None };
    let mut words = text.strip_prefix("/approve")?.split_whitespace().peekable();
    let code = words.next_if(|word| word.len() == 4 && *word != "once");
    if words.next().unwrap_or("once") != grant.name() {
        return None;
    }
    let meant = match code {
        Some(code) => {
            history.codes.iter().any(|(_, title, known)| known == code && *title == asked.ask.title)
        }
        // Without a code it can only mean an ask that is the only open one.
        None => !history.answers.iter().any(|other| is_open_beside(other, asked, did)),
    };
    let may = match grant {
        GrantScope::Once | GrantScope::Session => *who != "@eve",
        GrantScope::Always => *who == "@ada",
    };
    let stopped =
        |other: &Did| other.order.0 > asked.order && other.batch <= did.batch && stops(other, asked);
    meant.then(|| {
        if *room != home(asked) {
            Some(Flaw::Place)
        } else if !may {
            Some(Flaw::Person)
        } else if did.at >= asked.at + FIVE_MINUTES {
            Some(Flaw::Time)
        } else if history.did.iter().any(stopped) {
            Some(Flaw::Stop)
        } else {
            None
        }
    })
}

fn is_open_beside(other: &Answer, asked: &Asked, did: &Did) -> bool {
    other.asked.order != asked.order
        && home(&other.asked) == home(asked)
        && other.asked.order < did.order.0
        && other.order > did.order.1
}

/// Whether an authorized person stops the turn of this ask.
fn stops(did: &Did, asked: &Asked) -> bool {
    match &did.what {
        What::Said { room, who, text } => *room == home(asked) && *who != "@eve" && text == "/stop",
        What::Marked { .. } | What::Ended => false,
    }
}

/// The room of an ask; its title begins with the number.
fn home(asked: &Asked) -> usize {
    asked.ask.title.split(' ').next().and_then(|room| room.parse().ok()).unwrap()
}
