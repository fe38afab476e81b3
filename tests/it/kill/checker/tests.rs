//! Tests of the checker: each promise is broken once in a history that is otherwise good.

use std::collections::HashMap;

use talaria_platform::{BodyKind, MessageBody, Place};

use super::{Broken, INTERRUPTED, check};
use crate::kill::trial::{History, Prompt};
use crate::support::agent_server::Kind;
use crate::support::network::Shown;

/// Two prompts in a room: the first was answered while the gateway died once, the second afterwards.
fn good(kind: Kind) -> History {
    let prompt = |text: &str, undisturbed| Prompt {
        event: text.into(),
        room: "garden",
        text: text.to_owned(),
        undisturbed,
    };
    let prompts = vec![prompt("one", false), prompt("two", true)];
    History {
        kind,
        deaths: 1,
        messages: prompts.iter().map(|prompt| answer(prompt, &prompt.said())).collect(),
        executions: prompts.iter().map(|prompt| (prompt.text.clone(), 1)).collect(),
        prompts,
        log: String::new(),
    }
}

/// A message that grew in two steps.
fn answer(prompt: &Prompt, text: &str) -> Shown {
    let body = |done, text: &str| MessageBody {
        reply_to: Some(prompt.event.clone()),
        done,
        ..MessageBody::new(BodyKind::Answer, text)
    };
    let half = text.get(..text.len() / 2).unwrap_or_default();
    Shown { place: Place::room(prompt.room), bodies: vec![body(false, half), body(true, text)] }
}

/// The checker's result for a good history after `damage`.
fn after(kind: Kind, damage: impl FnOnce(&mut History)) -> Vec<Broken> {
    let mut history = good(kind);
    damage(&mut history);
    check(&history)
}

fn one() -> String {
    "one".to_owned()
}

#[test]
fn a_good_history_breaks_no_promise() {
    assert_eq!(after(Kind::Idempotent, |_| {}), []);
    assert_eq!(after(Kind::Plain, |_| {}), []);
}

#[test]
fn an_answer_that_is_missing_or_never_ends_is_lost() {
    let missing = after(Kind::Plain, |history| drop(history.messages.remove(0)));
    assert_eq!(missing, [Broken::Lost(one())]);
    let endless = after(Kind::Plain, |history| history.messages[0].bodies[1].done = false);
    assert_eq!(endless, [Broken::Lost(one())]);
}

#[test]
fn a_second_answer_of_any_kind_is_a_double_one() {
    for again in [None, Some(INTERRUPTED[0])] {
        let broken = after(Kind::Plain, |history| {
            let prompt = &history.prompts[0];
            let second = answer(prompt, again.unwrap_or(&prompt.said()));
            history.messages.insert(1, second);
        });
        assert_eq!(broken, [Broken::Doubled(one())], "{again:?}");
    }
}

#[test]
fn executions_are_counted() {
    let twice = after(Kind::Plain, |history| history.executions.extend([(one(), 2)]));
    assert_eq!(twice, [Broken::ExecutedAgain(one(), 2)]);
    let never =
        after(Kind::Idempotent, |history| history.executions = HashMap::from([("two".to_owned(), 1)]));
    assert_eq!(never, [Broken::NeverExecuted(one())]);
}

#[test]
fn text_that_the_agent_never_said_is_garbled() {
    let broken = after(Kind::Plain, |history| history.messages[0].bodies[1].markdown.push_str(" and more"));
    assert_eq!(broken, [Broken::Garbled(one())]);
}

#[test]
fn only_what_ran_on_a_plain_upstream_when_the_gateway_died_may_be_given_up() {
    let give_up = |at: usize| {
        move |history: &mut History| history.messages[at] = answer(&history.prompts[at], INTERRUPTED[0])
    };
    let two = || "two".to_owned();
    assert_eq!(after(Kind::Plain, give_up(0)), []);
    assert_eq!(after(Kind::Idempotent, give_up(0)), [Broken::GivenUp(one())]);
    assert_eq!(after(Kind::Plain, give_up(1)), [Broken::GivenUp(two())]);
    let both = after(Kind::Plain, |history| {
        history.prompts[1].undisturbed = false;
        give_up(0)(history);
        give_up(1)(history);
    });
    assert_eq!(both, [Broken::GivenUp(two())], "one death cannot have met two turns of a room");
}

#[test]
fn answers_in_another_order_than_the_prompts_are_out_of_order() {
    assert_eq!(after(Kind::Plain, |history| history.messages.swap(0, 1)), [Broken::OutOfOrder(one())]);
}

#[test]
fn less_text_than_before_is_noticed_even_if_it_comes_back() {
    let broken = after(Kind::Plain, |history| {
        let mut less = history.messages[0].bodies[0].clone();
        less.markdown.truncate(5);
        history.messages[0].bodies.insert(1, less);
    });
    assert_eq!(broken, [Broken::Shrunk(one())]);
}
