//! F26: a server that numbers its events may repeat some, lose some, and leave some without a number.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta};

/// Events with these ids and texts; `None` sends no id.
fn numbered(events: &[(Option<u32>, &str)]) -> String {
    let one = |(number, text): &(Option<u32>, &str)| match number {
        Some(number) => format!("id: {number}\n{}", delta(text)),
        None => delta(text),
    };
    events.iter().map(one).collect()
}

#[tokio::test]
async fn an_event_that_comes_again_is_left_out() {
    let upstream = Upstream::idempotent().await;
    let events = numbered(&[(Some(1), "a"), (Some(2), "b"), (Some(2), "b"), (Some(1), "a"), (Some(3), "c")]);
    upstream.answers(Answer::events(events + "id: 4\n" + DONE));
    Talaria::to(&upstream).reads("hi\n").await.showed("abc\n");
    assert_eq!(upstream.prompts().len(), 1);
}

#[tokio::test]
async fn a_missing_event_makes_the_run_be_read_again() {
    let upstream = Upstream::idempotent().await;
    let gap = numbered(&[(Some(1), "a"), (Some(3), "c")]);
    let whole = numbered(&[(Some(1), "a"), (Some(2), "b"), (Some(3), "c")]);
    upstream
        .answers(Answer::events(gap + "id: 4\n" + DONE))
        .answers(Answer::events(whole + "id: 4\n" + DONE));
    Talaria::to(&upstream).reads("hi\n").await.showed("abc\n");
    assert_eq!(upstream.prompts().len(), 2);
}

/// In SSE an id stays in force for the events after it, but it is not their number.
#[tokio::test]
async fn an_event_without_a_number_is_not_taken_for_a_repeated_one() {
    let upstream = Upstream::idempotent().await;
    let events = numbered(&[(Some(1), "a"), (None, "b"), (Some(2), "c"), (None, "d")]);
    upstream.answers(Answer::events(events + DONE));
    Talaria::to(&upstream).reads("hi\n").await.showed("abcd\n");
    assert_eq!(upstream.prompts().len(), 1);
}

/// From a plain server, ids mean nothing to us.
#[tokio::test]
async fn a_plain_server_may_number_as_it_likes() {
    let upstream = Upstream::plain().await;
    let events = numbered(&[(Some(7), "a"), (Some(7), "b"), (Some(1), "c")]);
    upstream.answers(Answer::events(events + DONE));
    Talaria::to(&upstream).reads("hi\n").await.showed("abc\n");
}
