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
    let choice = &answer.choice;
    let title = answer.asked.ask.title.to_string();
    let between = |did: &Did| did.order.0 > answer.asked.order && did.order.1 < answer.order;
    if history.did.iter().any(|did| between(did) && stops(did, &answer.asked)) {
        return Some(Broken::Stopped(title));
    }
    if history.did.iter().any(|did| between(did) && matches!(did.what, What::Ended)) {
        return Some(Broken::Ended(title));
    }
    // An earlier approval of the same action may hold for longer than once.
    let same = |asked: &&Asked| asked.ask == answer.asked.ask && asked.order < answer.asked.order;
    let granted = |asked: &Asked| flaws(history, asked, answer.order, choice).contains(&None);
    let holds = matches!(choice, AskChoice::Allow(GrantScope::Session | GrantScope::Always));
    if holds && history.asked.iter().filter(same).any(granted) {
        return None;
    }
    let flaws = flaws(history, &answer.asked, answer.order, choice);
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

/// Every action before `until` that may give this answer to the ask, with its flaw.
fn flaws(history: &History, asked: &Asked, until: u64, choice: &AskChoice) -> Vec<Option<Flaw>> {
    let said = history.did.iter().filter(|did| (asked.order..until).contains(&did.order.0));
    said.filter_map(|did| flaw(history, did, asked, choice)).collect()
}

/// The answer that the words of a command give to an ask, if they fit it.
fn given(asked: &Asked, command: &str, words: &str) -> Option<AskChoice> {
    let option = |id: &str| Some(AskChoice::Option(id.to_owned()));
    match (command, asked.ask.form.options.is_empty(), words) {
        ("/approve", true, "" | "once") => Some(AskChoice::Allow(GrantScope::Once)),
        ("/approve", true, "session") => Some(AskChoice::Allow(GrantScope::Session)),
        ("/approve", true, "always") => Some(AskChoice::Allow(GrantScope::Always)),
        // The only option that allows.
        ("/approve", false, "" | "once") => option("yes"),
        ("/answer", false, "1" | "do it") => option("yes"),
        ("/answer", false, "2") => option("part"),
        ("/answer", false, words) => Some(AskChoice::Text(words.to_owned())),
        _ => None,
    }
}

/// The flaw of this action as this answer to the ask; the outer `None` if it does not give this answer at all.
fn flaw(history: &History, did: &Did, asked: &Asked, choice: &AskChoice) -> Option<Option<Flaw>> {
    let What::Said { room, who, text } = &did.what else { return None };
    let (command, behind) = text.split_once(' ').unwrap_or((text, ""));
    let (first, rest) = behind.split_once(' ').unwrap_or((behind, ""));
    let is_code = first.len() == 4 && !["once", "part"].contains(&first);
    let (code, words) = if is_code { (Some(first), rest) } else { (None, behind) };
    if given(asked, command, words.trim()).as_ref() != Some(choice) {
        return None;
    }
    let meant = match code {
        Some(code) => history
            .codes
            .iter()
            .any(|(_, title, known)| known == code && *title == asked.ask.title.to_string()),
        // Without a code it can only mean an ask that is the only open one.
        None => !history.answers.iter().any(|other| is_open_beside(other, asked, did)),
    };
    let may = match choice {
        AskChoice::Allow(GrantScope::Always) => *who == "@ada",
        AskChoice::Allow(GrantScope::Once | GrantScope::Session) => *who != "@eve",
        AskChoice::Option(_) | AskChoice::Text(_) => *who != "@eve",
        AskChoice::Deny(_) => true,
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
    asked.ask.title.to_string().split(' ').next().and_then(|room| room.parse().ok()).unwrap()
}

/// The checker itself: in a history where all is well it finds nothing, and each planted fault is found.
#[cfg(test)]
mod tests {
    use talaria::agent::OptionKind;
    use tokio::time::Instant;

    use super::*;
    use crate::support::scripted::{ask, choice, option, or_text};

    const DIGEST: &str = "digest";

    fn said(room: usize, who: &'static str, text: &str, order: u64, at: Instant) -> Did {
        let what = What::Said { room, who, text: text.to_owned() };
        Did { what, at, order: (order, order + 1), batch: order }
    }

    /// The agent asks in room 0 at 10, Ann answers at 20, and the agent gets the answer at 30.
    fn history(question: bool, words: &str, choice_told: AskChoice) -> History {
        let now = Instant::now();
        let asks = match question {
            false => ask("0 1", "do 1"),
            true => or_text(choice("0 1", "do 1", [option("yes", "Do it", OptionKind::AllowOnce)])),
        };
        let asked = Asked { ask: asks, at: now, order: 10 };
        let answer = Answer { asked: asked.clone(), choice: choice_told, at: now, order: 30 };
        History {
            did: vec![said(0, "@ann", words, 20, now)],
            asked: vec![asked],
            answers: vec![answer],
            codes: vec![(0, "0 1".to_owned(), "BCDF".to_owned())],
            stored: vec![("`0 1`".to_owned(), "taken".to_owned(), DIGEST.to_owned())],
            audited: vec![(DIGEST.to_owned(), true, "approved".to_owned())],
            killed: false,
        }
    }

    fn approved() -> History {
        history(false, "/approve BCDF", AskChoice::Allow(GrantScope::Once))
    }

    /// One history of each kind of answer.
    fn good() -> [History; 4] {
        [
            approved(),
            history(false, "/approve session", AskChoice::Allow(GrantScope::Session)),
            history(true, "/answer BCDF 1", AskChoice::Option("yes".to_owned())),
            history(true, "/answer because it rains", AskChoice::Text("because it rains".to_owned())),
        ]
    }

    #[test]
    fn a_good_history_breaks_nothing() {
        for history in good() {
            assert_eq!(check(&history), [], "{history}");
        }
    }

    #[test]
    fn an_answer_that_came_too_late_is_found() {
        for mut history in good() {
            history.did[0].at += FIVE_MINUTES;
            assert_eq!(check(&history), [Broken::TooLate("0 1".to_owned())], "{history}");
        }
    }

    #[test]
    fn an_answer_from_another_place_is_found() {
        for mut history in good() {
            let What::Said { room, .. } = &mut history.did[0].what else { panic!("somebody says it") };
            *room = 1;
            assert_eq!(check(&history), [Broken::Elsewhere("0 1".to_owned())], "{history}");
        }
    }

    #[test]
    fn an_answer_of_a_stranger_is_found() {
        for mut history in good() {
            let What::Said { who, .. } = &mut history.did[0].what else { panic!("somebody says it") };
            *who = "@eve";
            assert_eq!(check(&history), [Broken::Unauthorized("0 1".to_owned())], "{history}");
        }
        let always = history(false, "/approve always", AskChoice::Allow(GrantScope::Always));
        assert_eq!(check(&always), [Broken::Unauthorized("0 1".to_owned())]);
    }

    #[test]
    fn an_answer_that_nobody_gave_is_found() {
        for mut history in good() {
            history.did.clear();
            assert_eq!(check(&history), [Broken::Unasked("0 1".to_owned())], "{history}");
        }
        let other = history(true, "/answer BCDF 1", AskChoice::Text("1".to_owned()));
        assert_eq!(check(&other), [Broken::Unasked("0 1".to_owned())]);
    }

    #[test]
    fn an_action_after_a_stop_or_after_the_end_of_the_process_is_found() {
        for mut history in good() {
            let now = history.did[0].at;
            history.did.push(said(0, "@bob", "/stop", 25, now));
            assert_eq!(check(&history), [Broken::Stopped("0 1".to_owned())], "{history}");
            history.did[1].what = What::Ended;
            assert_eq!(check(&history), [Broken::Ended("0 1".to_owned())], "{history}");
        }
    }

    #[test]
    fn an_ask_that_is_never_decided_or_not_audited_once_is_found() {
        let mut open = approved();
        open.stored[0].1 = "open".to_owned();
        assert_eq!(check(&open), [Broken::Undecided("`0 1`".to_owned())]);
        let mut silent = approved();
        silent.audited.clear();
        let all = Broken::Audited("all".to_owned(), 0);
        assert_eq!(check(&silent), [Broken::Audited("`0 1`".to_owned(), 0), all, Broken::Unrecorded(1, 0)]);
        let mut twice = approved();
        twice.audited.extend(twice.audited.clone());
        let all = Broken::Audited("all".to_owned(), 2);
        assert_eq!(check(&twice), [Broken::Audited("`0 1`".to_owned(), 2), all]);
    }
}
