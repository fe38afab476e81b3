//! Tests: events that readers get of a log, and the limits of its size.

use std::ops::ControlFlow;

use super::*;
use crate::agent::{AnswerForm, Ask, DenyReason, StepState};
use crate::ids::AskId;

fn read(log: &TurnLog, position: &mut LogPosition) -> Vec<String> {
    let mut seen = Vec::new();
    log.read(position, |event| seen.push(format!("{event:?}")));
    seen
}

fn step(id: &str) -> TurnEvent<'static> {
    TurnEvent::Step(Step { id: id.into(), title: "search".into(), detail: None, state: StepState::Running })
}

#[test]
fn readers_get_what_is_new_once_and_in_order() {
    let log = TurnLog::new(1000);
    let mut early = LogPosition::default();
    log.append(TurnEvent::Text("He")).unwrap();
    assert_eq!(read(&log, &mut early), [r#"Text("He")"#]);
    log.append(TurnEvent::Text("llo")).unwrap();
    log.append(step("1")).unwrap();
    log.append(TurnEvent::Text("!")).unwrap();
    assert_eq!(read(&log, &mut early).len(), 3);
    assert!(read(&log, &mut early).is_empty());
    log.append(TurnEvent::Text("?")).unwrap();
    assert_eq!(read(&log, &mut early), [r#"Text("?")"#]);
    assert_eq!(read(&log, &mut LogPosition::default())[0], r#"Text("Hello")"#);
}

#[test]
fn lines_of_the_agent_are_read_in_order_until_there_is_no_space_and_the_text_goes_on() {
    let log = TurnLog::for_readers(1000);
    let mut early = LogPosition::default();
    log.append(TurnEvent::Raw("{\"a\":1}")).unwrap();
    log.append(TurnEvent::Text("Hello")).unwrap();
    assert_eq!(read(&log, &mut early), [r#"Raw("{\"a\":1}")"#, r#"Text("Hello")"#]);
    log.append(TurnEvent::Raw("{\"a\":2}")).unwrap();
    assert_eq!(read(&log, &mut early), [r#"Raw("{\"a\":2}")"#]);

    // They do not count towards the turn's own cap, and their own limit does not end the turn.
    let line = "x".repeat(1024 * 1024);
    (0..60).for_each(|_| log.append(TurnEvent::Raw(&line)).unwrap());
    // No line comes behind a gap.
    log.append(TurnEvent::Raw("{\"a\":3}")).unwrap();
    log.append(TurnEvent::Text(", world")).unwrap();
    assert!(log.is_raw_cut());
    // A log that stays for a while after its end is judged by all that it holds.
    assert!(log.size() > 23 * line.len());
    let mut kinds = Vec::new();
    let mut late = LogPosition::default();
    log.read(&mut late, |event| {
        kinds.push(match event {
            TurnEvent::Raw(_) => 'r',
            TurnEvent::RawCut => 'c',
            _ => 't',
        });
    });
    let expected = format!("rtr{}ct", "r".repeat(23));
    assert_eq!(kinds.iter().collect::<String>(), expected);
    // A reader that resumes behind the cut is told of it again.
    log.append(TurnEvent::Text("!")).unwrap();
    let mut late: LogPosition = late.to_string().parse().unwrap();
    assert_eq!(read(&log, &mut late), ["RawCut", r#"Text("!")"#]);
    assert_eq!(*log.take_summary().text, "Hello, world!");
}

#[test]
fn a_position_holds_in_the_log_of_the_next_process() {
    let mut position = LogPosition::default();
    let first = TurnLog::for_readers(1000);
    first.append(TurnEvent::Text("Hel")).unwrap();
    first.append(step("1")).unwrap();
    first.append(TurnEvent::Text("lo")).unwrap();
    read(&first, &mut position);
    let mut position: LogPosition = position.to_string().parse().unwrap();

    // The next process replays the turn, in other pieces.
    let second = TurnLog::for_readers(1000);
    second.append(TurnEvent::Text("He")).unwrap();
    assert!(read(&second, &mut position).is_empty());
    second.append(TurnEvent::Text("l")).unwrap();
    second.append(step("1")).unwrap();
    second.append(TurnEvent::Text("lo, ")).unwrap();
    assert_eq!(read(&second, &mut position), [r#"Text(", ")"#]);
    second.append(step("2")).unwrap();
    second.append(TurnEvent::Text("you")).unwrap();
    assert_eq!(read(&second, &mut position).len(), 2);
}

#[test]
fn text_that_was_taken_is_not_counted_as_read() {
    let log = TurnLog::new(1000);
    log.append(TurnEvent::Text("Hello")).unwrap();
    let mut position = LogPosition::default();
    log.take_summary();
    assert!(read(&log, &mut position).is_empty());
    assert_eq!(position.text(), 0);
    // A reader that waits for more must not be woken at once.
    assert!(!log.is_beyond(&position));
}

/// The log of an app's turn stays for a while, and counts only its own text.
#[test]
fn what_an_earlier_process_told_is_not_kept_beyond_the_end() {
    let log = TurnLog::for_readers(1000);
    log.told_before("Hel".to_owned());
    log.append(TurnEvent::Text("Hello")).unwrap();
    assert_eq!(*log.take_summary().text, "Hello");
    assert_eq!(log.lock().before.capacity(), 0);
    assert_eq!(*log.text(), "Hello");
}

#[test]
fn a_position_that_nobody_had_reads_nothing_wrong() {
    let log = TurnLog::for_readers(1000);
    log.append(TurnEvent::Text("h\u{e9}llo")).unwrap();
    for id in ["", "x", "1", "1.2.3", "-1.0.0.0", "1.0.0.xyz", "99999999999999999999.0.0.0", "0.0.0.0.0"] {
        assert!(id.parse::<LogPosition>().is_err(), "{id}");
    }
    let own = format!("{:x}", log.name);
    for id in ["18446744073709551615.18446744073709551615.7.0", "7.2.9.", "0.2.0.", "9.0.0."] {
        let id = if id.ends_with('.') { format!("{id}{own}") } else { id.to_owned() };
        let mut position = id.parse().unwrap();
        log.read(&mut position, |event| panic!("{id}: {event:?}"));
        log.is_beyond(&position);
        let _ = position.count();
    }
}

#[test]
fn many_deltas_are_one_entry() {
    let log = TurnLog::new(1 << 20);
    for _ in 0..10_000 {
        log.append(TurnEvent::Text("x")).unwrap();
    }
    assert_eq!(log.lock().entries.len(), 1);
}

#[test]
fn text_thoughts_and_steps_all_count_towards_the_cap() {
    for event in [TurnEvent::Text("0123456789"), TurnEvent::Thought("0123456789"), step("1")] {
        let log = TurnLog::new(1000);
        assert!((0..1000).any(|_| log.append(event.clone()).is_err()), "{event:?} is unbounded");
    }
}

#[tokio::test]
async fn waiting_ends_with_a_change_or_with_the_end() {
    let log = TurnLog::new(1000);
    let position = LogPosition::default();
    log.append(TurnEvent::Text("x")).unwrap();
    log.changed(&position).await;
    let mut position = position;
    read(&log, &mut position);
    tokio::join!(log.changed(&position), async { log.append(TurnEvent::Text("y")).unwrap() });
    read(&log, &mut position);
    log.end();
    log.changed(&position).await;
}

#[test]
fn a_long_text_comes_in_pieces_and_reading_goes_on_behind_each() {
    // One piece ends in the middle of a character for each of these beginnings.
    for first in ["", "x", "xy", "xyz"] {
        let log = TurnLog::for_readers(1 << 20);
        let text = first.to_owned() + "😀é".repeat(3 * SLICE / 6).as_str();
        log.append(TurnEvent::Thought(&text)).unwrap();
        log.append(step("1")).unwrap();
        log.append(TurnEvent::Text(&text)).unwrap();
        let (mut position, mut places) = (LogPosition::default(), vec![(0, 0, LogPosition::default())]);
        let (mut thought, mut said, mut steps) = (String::new(), String::new(), 0);
        let mut looks = 0;
        // A reader that breaks off is called again.
        while !log.read_each(&mut position, |event, at| {
            match event {
                TurnEvent::Text(piece) => said.push_str(piece),
                TurnEvent::Thought(piece) => thought.push_str(piece),
                _ => steps += 1,
            }
            places.push((thought.len(), said.len(), at));
            ControlFlow::Break(())
        }) {
            looks += 1;
        }
        assert_eq!((&thought, &said, steps), (&text, &text, 1));
        assert!(looks >= 7, "{looks}");
        let longest = places.windows(2).map(|two| two[1].0 + two[1].1 - two[0].0 - two[0].1).max();
        assert!(longest.unwrap() <= SLICE);
        for (thought, said, at) in places {
            let mut position: LogPosition = at.to_string().parse().unwrap();
            let (mut rest_of_thought, mut rest) = (String::new(), String::new());
            log.read(&mut position, |event| match event {
                TurnEvent::Text(piece) => rest.push_str(piece),
                TurnEvent::Thought(piece) => rest_of_thought.push_str(piece),
                _ => assert_eq!(said, 0),
            });
            assert!(rest_of_thought == text[thought..] && rest == text[said..], "behind {at}");
        }
    }
}

fn question(id: &str, refused: bool) -> TurnEvent<'static> {
    let (title, detail, form) = ("one".into(), "first".into(), AnswerForm::default());
    let ask = Ask { title, detail, cwd: None, is_elsewhere: false, reason: None, form, gap: None };
    TurnEvent::Asked(AskOpened { id: AskId(id.into()), ask, expires: 0, refused })
}

fn answer(id: &str) -> TurnEvent<'static> {
    TurnEvent::Answered(AskResolved { id: AskId(id.into()), choice: AskChoice::Deny(DenyReason::Person) })
}

/// The next process replays each ask at its position.
#[test]
fn a_question_stands_where_it_is_logged_and_behind_all_that_was_asked_before() {
    let left = PriorAsk { emitted: 0, id: AskId("0".into()), answered: None };
    let log = TurnLog::for_readers(10_000).after([left].into());
    log.append(TurnEvent::Text("He")).unwrap();
    let foreseen = log.ask_position();
    // The agent goes on while the ask is being stored.
    log.append(TurnEvent::Thought("llo")).unwrap();
    log.append(step("1")).unwrap();
    assert_eq!(foreseen, AskPosition { emitted: 2, nth: 1 });
    assert_eq!(log.append_at(question("1", false)).unwrap(), AskPosition { emitted: 6, nth: 1 });
    // The next process does not know asks that were refused at once.
    log.append(question("2", true)).unwrap();
    log.append(answer("2")).unwrap();
    assert_eq!(log.append_at(answer("1")).unwrap(), AskPosition { emitted: 6, nth: 2 });
    log.append(answer("1")).unwrap();
    assert_eq!(log.ask_position(), AskPosition { emitted: 6, nth: 3 });
}

#[test]
fn of_very_many_remarks_the_last_says_that_there_were_more() {
    let log = TurnLog::new(10_000);
    for number in [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
        log.append(TurnEvent::Remark(LocalizedText::Said(format!("declined {number}")))).unwrap();
    }
    let said: Vec<_> = log.take_summary().remarks.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 9);
    assert_eq!((said[0].as_str(), said[7].as_str()), ("declined 0", "declined 7"));
    assert!(said[8].starts_with("There was more"), "{said:?}");
}
