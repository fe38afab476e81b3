//! Tests of the text that is visible while a turn runs, and of the final text.

use proptest::prelude::*;

use super::*;
use crate::i18n::{LocalizedText, TextCatalog};

const EDIT: ShowStyle = ShowStyle::Edit { max: 200 };

fn reply(text: &str) -> Reply {
    let mut reply = Reply::default();
    reply.push_text(text);
    reply
}

fn step(id: &str, title: &str, state: StepState) -> Step {
    Step { id: id.into(), title: title.into(), detail: None, state }
}

#[test]
fn text_is_shown_as_it_comes() {
    let mut reply = Reply::default();
    assert_eq!(reply.snapshot(EDIT), "");
    reply.push_text("Hel");
    assert_eq!(reply.snapshot(EDIT), "Hel");
    reply.push_text("lo\n\n");
    assert_eq!(reply.snapshot(EDIT), "Hello");
    assert_eq!(reply.snapshot(ShowStyle::Append), "Hello");
}

#[test]
fn running_tools_have_one_line_at_the_end() {
    let mut reply = reply("Let me look.\n");
    reply.step(step("1", "web_search", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ web_search…");
    reply.step(step("2", "read", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ web_search, read…");
    reply.step(step("1", "web_search", StepState::Done));
    reply.step(step("2", "read file", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "Let me look.\n\n⚙️ read file…");
    reply.step(step("2", "read file", StepState::Failed));
    reply.step(step("3", "never seen", StepState::Done));
    assert_eq!(reply.snapshot(EDIT), "Let me look.");
}

#[test]
fn a_tool_before_the_first_word_stands_alone() {
    let mut reply = Reply::default();
    reply.step(step("1", "calc", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "⚙️ calc…");
    assert_eq!(reply.snapshot(ShowStyle::Append), "");
}

#[test]
fn a_tool_name_is_cleaned() {
    let mut reply = Reply::default();
    reply.step(step("1", "rm\u{202e}\n\t -rf\u{7}\u{200b}", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "⚙️ rm -rf…");
    reply.step(step("1", "\u{2066}", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "⚙️ …", "a name for it is given before it comes here");
    reply.step(step("1", &"ä".repeat(100), StepState::Running));
    assert_eq!(reply.snapshot(EDIT), format!("⚙️ {}…", "ä".repeat(45)), "at most half of 200 bytes");
    assert_eq!(reply.snapshot(ShowStyle::Edit { max: 1000 }), format!("⚙️ {}…", "ä".repeat(60)));
}

#[test]
fn a_notice_goes_before_the_tools_until_it_is_taken_away() {
    let mut reply = reply("So far");
    reply.step(step("1", "calc", StepState::Running));
    reply.notice(Some("Trying again until 14:05.".into()));
    assert_eq!(reply.snapshot(EDIT), "So far\n\nTrying again until 14:05.");
    reply.notice(None);
    assert_eq!(reply.snapshot(EDIT), "So far\n\n⚙️ calc…");
}

#[test]
fn an_open_fence_is_closed_but_not_where_text_is_appended() {
    let mut reply = reply("Run:\n   ```sh\n   ls\n");
    reply.step(step("1", "calc", StepState::Running));
    assert_eq!(reply.snapshot(EDIT), "Run:\n   ```sh\n   ls\n   ```\n\n⚙️ calc…");
    assert_eq!(reply.snapshot(ShowStyle::Append), "Run:\n   ```sh\n   ls");
}

#[test]
fn what_does_not_fit_shows_its_beginning() {
    let mut reply = reply(&"word ".repeat(100));
    let shown = reply.snapshot(EDIT).into_owned();
    assert!(shown.starts_with("word word") && shown.ends_with("word …") && shown.len() > 190, "{shown}");
    reply.step(step("1", "calc", StepState::Running));
    let shown = reply.snapshot(EDIT).into_owned();
    assert!(shown.ends_with("word …\n\n⚙️ calc…") && shown.len() <= 200, "{shown}");
}

#[test]
fn after_a_crash_never_less_is_shown_than_before() {
    let mut reply = Reply::new("One two three".into());
    assert_eq!(reply.snapshot(EDIT), "One two three");
    reply.push_text("One two");
    assert_eq!(reply.snapshot(EDIT), "One two three");
    assert_eq!(reply.snapshot(ShowStyle::Append), "One two three");
    assert_eq!(reply.text(), "One two");
    reply.push_text(" three four");
    assert_eq!(reply.snapshot(EDIT), "One two three four");
    assert_eq!(reply.snapshot(ShowStyle::Append), "One two three four");
}

#[test]
fn appended_text_is_not_taken_back_when_a_repeat_turns_out_differently() {
    let mut reply = Reply::new("One two".into());
    reply.push_text("Uno due tre");
    assert_eq!(reply.snapshot(EDIT), "Uno due tre");
    assert_eq!(reply.snapshot(ShowStyle::Append), "One two");
}

#[test]
fn the_end_is_said_below_the_text() {
    let words = || LocalizedText::from("the connection broke");
    for (outcome, with_text, alone) in [
        (TurnOutcome::Done, "Hi", "(No response from remote agent)"),
        (TurnOutcome::Stopped, "Hi\n\n(stopped)", "(stopped)"),
        (
            TurnOutcome::Limit,
            "Hi\n\n(cut short: the length limit was reached)",
            "(cut short: the length limit was reached)",
        ),
        (
            TurnOutcome::CutShort { words: words() },
            "Hi\n\n(cut short: the connection broke)",
            "(cut short: the connection broke)",
        ),
        (TurnOutcome::Failed { words: words() }, "Hi\n\n⚠️ the connection broke", "⚠️ the connection broke"),
        (TurnOutcome::Failed { words: "⚠️ Busy.".into() }, "Hi\n\n⚠️ Busy.", "⚠️ Busy."),
        (
            TurnOutcome::Interrupted,
            "Hi\n\n(interrupted — /retry runs it again)",
            "(interrupted — /retry runs it again)",
        ),
        (TurnOutcome::Cancelled { words: words() }, "the connection broke", "the connection broke"),
    ] {
        assert_eq!(finished("Hi \n", &outcome, &TextCatalog::default()), with_text);
        assert_eq!(finished(" \n", &outcome, &TextCatalog::default()), alone);
    }
}

#[test]
fn an_open_fence_is_closed_before_the_end_is_said() {
    assert_eq!(
        finished("~~~\nls", &TurnOutcome::Stopped, &TextCatalog::default()),
        "~~~\nls\n~~~\n\n(stopped)"
    );
}

#[test]
fn an_outcome_can_be_stored() {
    for outcome in [TurnOutcome::Interrupted, TurnOutcome::Failed { words: "no".into() }] {
        let stored = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<TurnOutcome>(&stored).unwrap(), outcome);
    }
    assert_eq!(serde_json::to_string(&TurnOutcome::Done).unwrap(), r#""done""#);
    let earlier = r#"{"failed":{"words":"no"}}"#;
    assert_eq!(
        serde_json::from_str::<TurnOutcome>(earlier).unwrap(),
        TurnOutcome::Failed { words: "no".into() }
    );
}

proptest! {
    #[test]
    fn snapshots_fit_and_appended_ones_only_grow(
        chunks in prop::collection::vec("(?s)([a-zü\n ]|```|~~~){0,60}", 0..20),
        already_shown in "[a-z`\n]{0,30}",
        title in "(?s).{0,80}",
        notice in prop::option::of("(?s).{0,300}"),
        max in 200usize..400,
    ) {
        let mut reply = Reply::new(already_shown);
        reply.step(step("1", &title, StepState::Running));
        reply.notice(notice);
        let mut before = String::new();
        for chunk in chunks {
            reply.push_text(&chunk);
            let shown = reply.snapshot(ShowStyle::Edit { max });
            prop_assert!(shown.len() <= max, "{} bytes", shown.len());
            let now = reply.snapshot(ShowStyle::Append).into_owned();
            prop_assert!(now.starts_with(&before));
            before = now;
        }
    }
}
