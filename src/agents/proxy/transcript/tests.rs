use serde_json::json;

use super::*;

fn transcript(data: Value) -> UpstreamTranscript {
    serde_json::from_value(json!({ "data": data })).unwrap()
}

fn kept(data: Value) -> Option<KeptAnswer> {
    transcript(data).last_answer(|text| text == "and now?")
}

fn found(data: Value, before: usize) -> SearchResult {
    transcript(data).find("and now?", EqualTurns { answered: before, unclear: 0 })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn agent(text: &str) -> Value {
    json!({ "role": "assistant", "content": text, "tool_calls": null, "finish_reason": "stop" })
}

fn complete(text: &str) -> SearchResult {
    SearchResult::Answer(RecoveredAnswer::Complete(text.to_owned()))
}

const UNFINISHED: SearchResult = SearchResult::Unfinished { asked_at: None };

fn calls() -> Value {
    json!({ "role": "assistant", "content": "Let me see.", "tool_calls": [{ "id": "1" }] })
}

#[test]
fn the_answer_behind_the_last_question_is_ours_if_the_question_is() {
    let tool = json!({ "role": "tool", "content": "42" });
    let all = json!([user("hi"), agent("hello"), user(" and now? "), calls(), tool, agent("42 it is")]);
    assert_eq!(found(all, 0), complete("Let me see.\n\n42 it is"));
}

#[test]
fn a_kept_answer_is_whole_if_its_last_message_is_the_output_of_the_run() {
    let tool = json!({ "role": "tool", "content": "42" });
    let with_tool = json!([user("hi"), agent("hello"), user("and now?"), calls(), tool, agent("42 it is")]);
    let answer = kept(with_tool).unwrap();
    assert_eq!(answer.whole(" 42 it is\n").as_deref(), Some("Let me see.\n\n42 it is"));
    assert_eq!(answer.whole("").as_deref(), Some("Let me see.\n\n42 it is"));
    assert_eq!(answer.whole("something else"), None);
    assert_eq!(answer.whole("42 it is\n\nA note.").as_deref(), Some("Let me see.\n\n42 it is\n\nA note."));
    assert_eq!(answer.end, AnswerEnd::Whole);
    let cut = json!({ "role": "assistant", "content": "Half", "finish_reason": "length" });
    let cut = kept(json!([user("and now?"), cut])).unwrap();
    assert_eq!((cut.end, cut.whole("Half, and an error")), (AnswerEnd::Cut, None));
    assert!(kept(json!([])).is_none());
}

#[test]
fn only_an_end_that_the_upstream_kept_of_our_question_proves_anything() {
    let end = |data: Value| kept(data).unwrap().end;
    assert_eq!(end(json!([user("and now?")])), AnswerEnd::Unproven);
    assert_eq!(end(json!([user("and now?"), calls()])), AnswerEnd::Unproven);
    assert_eq!(end(json!([user("and now?"), agent("a"), user("other"), agent("b")])), AnswerEnd::Doubtful);
}

/// hermes-agent keeps its own requests to go on as messages of a person.
#[test]
fn an_answer_goes_on_behind_the_words_of_the_agent_itself() {
    let own = |words: &str| user(&format!("[System: {words}]"));
    let again =
        own("Your previous response was truncated. Continue exactly where you left off. Do not restart.");
    let half = json!({ "role": "assistant", "content": "Half a sen", "finish_reason": "length" });
    let cut = json!([user("and now?"), half, again, agent("tence.")]);
    assert_eq!(found(cut.clone(), 0), complete("Half a sentence."));
    assert_eq!(kept(cut).unwrap().whole("Half a sentence.").as_deref(), Some("Half a sentence."));

    let nudged =
        json!([user("and now?"), calls(), own("Continue now. Execute the tool calls."), agent("42.")]);
    assert_eq!(found(nudged, 0), complete("Let me see.\n\n42."));
    assert_eq!(found(json!([user("and now?"), half_of("a"), own("Continue now.")]), 0), UNFINISHED);
    let asked_like_that = json!([user("hi"), agent("hello"), user("[System: who are you?]"), agent("Me.")]);
    let found = transcript(asked_like_that).find("[System: who are you?]", EqualTurns::default());
    assert_eq!(found, complete("Me."), "a person may begin like that, too");
}

fn half_of(text: &str) -> Value {
    json!({ "role": "assistant", "content": text, "finish_reason": "incomplete" })
}

#[test]
fn what_was_asked_before_is_told_apart_by_how_often() {
    let once = json!([user("and now?"), agent("first")]);
    let twice = json!([user("and now?"), agent("first"), user("and now?"), agent("second")]);
    assert_eq!(found(once.clone(), 1), UNFINISHED, "ours has not come there yet");
    assert_eq!(found(twice.clone(), 1), complete("second"));
    assert_eq!(found(twice, 0), SearchResult::Never, "somebody else asked the same");
    assert_eq!(found(once, 2), SearchResult::Never, "it has forgotten some of it");
}

/// A turn that was stopped may have left its question there or not.
#[test]
fn what_was_asked_before_without_an_answer_counts_if_it_is_there() {
    let before = EqualTurns { answered: 0, unclear: 1 };
    let find = |data: Value| transcript(data).find("and now?", before);
    assert_eq!(find(json!([])), UNFINISHED);
    assert_eq!(find(json!([user("and now?"), agent("Whose?")])), SearchResult::Never);
    assert_eq!(find(json!([user("and now?"), user("and now?"), agent("Ours.")])), complete("Ours."));
}

#[test]
fn somebody_elses_later_question_makes_it_doubtful() {
    assert_eq!(
        found(json!([user("and now?"), agent("a"), user("other"), agent("b")]), 0),
        SearchResult::Never
    );
}

#[test]
fn what_is_not_complete_is_waited_for() {
    for tail in [json!([]), json!([calls()]), json!([calls(), { "role": "tool", "content": "x" }])] {
        let mut all = vec![user("and now?")];
        all.extend(tail.as_array().unwrap().iter().cloned());
        assert_eq!(found(Value::from(all), 0), UNFINISHED);
    }
    assert_eq!(found(json!([]), 0), UNFINISHED, "nothing has come there");
}

#[test]
fn without_proof_of_its_end_an_answer_is_a_part() {
    for reason in [Value::Null, json!("length"), json!("incomplete"), json!(7)] {
        let cut = json!({ "role": "assistant", "content": "Half", "finish_reason": reason });
        let partial = SearchResult::Answer(RecoveredAnswer::Partial("Half".to_owned()));
        assert_eq!(found(json!([user("and now?"), cut]), 0), partial);
    }
    let unsaid = json!({ "role": "assistant", "content": "Half" });
    let partial = SearchResult::Answer(RecoveredAnswer::Partial("Half".to_owned()));
    assert_eq!(found(json!([user("and now?"), unsaid]), 0), partial);
}

#[test]
fn an_end_without_text_is_no_answer() {
    let empty = json!({ "role": "assistant", "content": "", "finish_reason": "content_filter" });
    assert_eq!(found(json!([user("and now?"), empty]), 0), SearchResult::Never);
}

#[test]
fn odd_kinds_are_no_messages() {
    let odd = json!([
        { "role": 7, "content": "and now?" }, { "role": "user", "content": ["and now?"] },
        { "content": null }, {},
    ]);
    assert_eq!(found(odd, 0), UNFINISHED);
    let odd_end = json!([user("and now?"), { "role": "assistant", "content": { "a": 1 } }]);
    assert_eq!(found(odd_end, 0), UNFINISHED);
}
