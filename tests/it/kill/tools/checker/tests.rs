//! Tests of the checker: each promise is broken once in a history that is otherwise good.

use serde_json::json;
use talaria_platform::{BodyKind, MessageBody, Place};

use super::*;
use crate::support::network::Shown;

fn call(id: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": "add", "arguments": "{}" } })
}

fn calls(text: &str, ids: &[&str]) -> Value {
    json!({ "role": "assistant", "content": text, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>() })
}

fn result(id: &str, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

fn shown(prompt: &Prompt, text: &str) -> Shown {
    let body = MessageBody {
        reply_to: Some(prompt.event.clone()),
        done: true,
        ..MessageBody::new(BodyKind::Answer, text)
    };
    Shown { place: Place::room(prompt.room), bodies: vec![body] }
}

/// A gateway that died when the second call had run and only the result of the first was on record.
fn interrupted() -> ToolHistory {
    let prompt = |text: &str, undisturbed| Prompt {
        event: text.into(),
        room: "garden",
        text: text.to_owned(),
        undisturbed,
    };
    let prompts = vec![prompt(PROMPTS[0], false), prompt(PROMPTS[1], true)];
    let cut = format!("{}\n\n{}", WORDS[0], INTERRUPTED[0]);
    let recorded = vec![
        SessionMessage {
            tools: Some(ToolActivity::Calls { tool_calls: vec![call("c1"), call("c2")] }),
            ..SessionMessage::new(MessageRole::Assistant, WORDS[0])
        },
        SessionMessage {
            tools: Some(ToolActivity::Result { tool_call_id: "c1".into(), tool_name: "add".into() }),
            ..SessionMessage::new(MessageRole::Tool, "counted c1")
        },
    ];
    let next = vec![
        said("user", PROMPTS[0]),
        calls(WORDS[0], &["c1", "c2"]),
        result("c1", "counted c1"),
        result("c2", &format!("{NO_RESULT}it was not repeated.)")),
        said("assistant", NO_ANSWER),
        said("user", PROMPTS[1]),
    ];
    ToolHistory {
        messages: vec![shown(&prompts[0], &cut), shown(&prompts[1], LAST_WORDS)],
        prompts,
        requests: vec![vec![said("user", PROMPTS[0])], next],
        runs: [("c1".to_owned(), 1), ("c2".to_owned(), 1)].into(),
        recorded,
        log: String::new(),
    }
}

/// A gateway that died after the whole answer.
fn answered() -> ToolHistory {
    let mut history = interrupted();
    history.messages[0] = shown(&history.prompts[0], &WORDS.join("\n\n"));
    history.runs.insert("c3".to_owned(), 1);
    let next = &mut history.requests[1];
    next[3] = result("c2", "counted c2");
    next.splice(4..5, [calls(WORDS[1], &["c3"]), result("c3", "counted c3"), said("assistant", WORDS[2])]);
    history
}

/// The checker's result for an interrupted turn after `damage`.
fn after(damage: impl FnOnce(&mut ToolHistory)) -> Vec<BrokenTurn> {
    let mut history = interrupted();
    damage(&mut history);
    check(&history)
}

fn illegal(damage: impl FnOnce(&mut Vec<Value>)) -> bool {
    after(|history| damage(&mut history.requests[1]))
        .iter()
        .any(|broken| matches!(broken, BrokenTurn::Illegal(_)))
}

#[test]
fn good_histories_break_no_promise() {
    assert_eq!(check(&interrupted()), []);
    assert!(is_interrupted(&interrupted()));
    assert_eq!(check(&answered()), []);
    assert!(!is_interrupted(&answered()));
}

#[test]
fn ends_that_are_missing_doubled_or_false_are_found() {
    let work = || PROMPTS[0].to_owned();
    assert!(after(|history| drop(history.messages.remove(0))).contains(&BrokenTurn::Lost(work())));
    assert!(after(|history| history.messages[0].bodies[0].done = false).contains(&BrokenTurn::Lost(work())));
    let twice = after(|history| history.messages.push(shown(&history.prompts[0], INTERRUPTED[0])));
    assert!(twice.contains(&BrokenTurn::Doubled(work())));
    for text in ["Something else.", "I begin.", "I begin. I begin. (interrupted — /retry runs it again)"] {
        let garbled = after(|history| history.messages[0] = shown(&history.prompts[0], text));
        assert!(garbled.contains(&BrokenTurn::Garbled(work())), "{text}");
    }
    let given_up = after(|history| history.messages[1] = shown(&history.prompts[1], INTERRUPTED[0]));
    assert_eq!(given_up, [BrokenTurn::GivenUp(PROMPTS[1].to_owned())]);
}

#[test]
fn runs_are_counted() {
    let again = after(|history| history.runs.extend([("c2".to_owned(), 2)]));
    assert_eq!(again, [BrokenTurn::RanAgain("c2".to_owned(), 2)]);
    let invented = after(|history| history.runs.retain(|call, _| call != "c1"));
    assert_eq!(invented, [BrokenTurn::NeverRan("c1".to_owned())]);
    let mut history = answered();
    history.runs.remove("c3");
    assert!(check(&history).contains(&BrokenTurn::NeverRan("c3".to_owned())));
}

#[test]
fn a_round_that_is_asked_for_twice_is_found() {
    let again = after(|history| history.requests.insert(0, history.requests[0].clone()));
    assert_eq!(again, [BrokenTurn::AskedAgain(1)]);
    let again = after(|history| history.requests.push(history.requests[1].clone()));
    assert_eq!(again, [BrokenTurn::AskedAgain(6)]);
    let never = after(|history| drop(history.requests.pop()));
    assert_eq!(never, [BrokenTurn::Lost(PROMPTS[1].to_owned())]);
}

#[test]
fn requests_that_servers_refuse_are_found() {
    assert!(illegal(|next| drop(next.remove(3))), "a call without its result");
    assert!(illegal(|next| drop(next.remove(1))), "results without their call");
    assert!(illegal(|next| next.insert(4, result("c2", "again"))), "a second result");
    assert!(illegal(|next| next.swap(3, 5)), "a result after the next prompt");
    assert!(illegal(|next| drop(next.remove(4))), "the next prompt directly after a result");
    assert!(illegal(|next| next.insert(0, said("user", "hello"))), "two prompts in a row");
    assert!(illegal(|next| next[4] = said("assistant", " ")), "an empty message");
    assert!(illegal(|next| next.insert(1, said("assistant", "I"))), "two messages of the agent in a row");
    assert!(illegal(|next| drop(next.remove(0))), "no prompt at the beginning");
    assert!(illegal(|next| next.push(said("assistant", "I"))), "the agent at the end");
    assert!(
        illegal(|next| drop(next.splice(4..4, [calls("", &["c1"]), result("c1", "again")]))),
        "an id that is used twice"
    );
}

#[test]
fn what_the_next_request_lacks_is_found() {
    let forgotten = |broken: Vec<BrokenTurn>, what: &str| {
        broken.iter().any(|broken| matches!(broken, BrokenTurn::Forgotten(it) if it.starts_with(what)))
    };
    let other = after(|history| history.requests[1][2] = result("c1", "something else"));
    assert!(forgotten(other, "on record"));
    let all = after(|history| drop(history.requests[1].drain(..5)));
    assert!(forgotten(all, "call c1"));
    let text = after(|history| history.requests[1][1]["content"] = Value::Null);
    assert!(forgotten(text, "text"));
    let mut history = answered();
    history.requests[1][6] = result("c3", NO_RESULT);
    assert!(forgotten(check(&history), "result of c3") || forgotten(check(&history), "text"));
    let doubled = after(|history| history.requests[1][4] = said("assistant", WORDS[0]));
    assert!(doubled.iter().any(|broken| matches!(broken, BrokenTurn::Garbled(_))), "{doubled:?}");
}
