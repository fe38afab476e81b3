//! F29: a stream that is cut at any event, in order and in disorder, is never shown as whole.

use crate::support::binary::Talaria;
use crate::support::upstream::{Answer, DONE, Upstream, delta, finish};

const WORDS: [&str; 4] = ["one", " two", " three", " four"];

/// The stream up to the event with this index.
fn until(index: usize) -> String {
    WORDS[..index].iter().copied().map(delta).collect()
}

#[tokio::test]
async fn a_plain_stream_is_marked_wherever_it_is_cut() {
    let upstream = Upstream::plain().await;
    let (mut shown, mut said) = (String::new(), String::new());
    for index in 0..=WORDS.len() {
        let torn = until(index) + "data: {\"choices\":[{\"delta\":{\"content\":\" to";
        upstream
            .answers(Answer::stream().sends(until(index)).closes())
            .answers(Answer::stream().sends(until(index)).ends())
            .answers(Answer::stream().sends(torn).closes());
        for why in ["the connection was lost", "the answer broke off", "the connection was lost"] {
            match index {
                0 => said += &*format!("⚠️ {why}. It may have run all the same; /retry runs it again.\n"),
                _ => {
                    shown += &*format!("{}\n", WORDS[..index].concat());
                    said += &*format!("(cut short: {why} — /retry runs it again)\n");
                }
            }
        }
    }
    let count = 3 * (WORDS.len() + 1);
    let talaria = Talaria::to(&upstream).var("TALARIA_LOG", "off");
    let ended = talaria.reads(&"hi\n".repeat(count)).await;
    ended.failed_with(&shown);
    assert_eq!(upstream.prompts().len(), count, "none of them was repeated");
    assert_eq!(ended.err, said);
    let whole = "SELECT count(*) FROM turns WHERE state = 'done'";
    assert_eq!(talaria.stored().query_row(whole, [], |row| row.get::<_, u32>(0)).unwrap(), 0);
}

#[tokio::test]
async fn an_idempotent_stream_is_whole_in_the_end_wherever_it_is_cut() {
    let upstream = Upstream::idempotent().await;
    for index in 0..=WORDS.len() {
        upstream.answers(Answer::stream().sends(until(index)).closes()).answers(Answer::says(WORDS));
    }
    let count = WORDS.len() + 1;
    Talaria::to(&upstream).reads(&"hi\n".repeat(count)).await.showed(&"one two three four\n".repeat(count));
    assert_eq!(upstream.prompts().len(), 2 * count);
}

/// A finish reason ends a stream too: some servers send nothing after it.
#[tokio::test]
async fn a_stream_that_said_why_it_ends_is_whole() {
    let upstream = Upstream::plain().await;
    let whole = until(4) + &*finish("stop");
    upstream
        .answers(Answer::stream().sends(&whole).ends())
        .answers(Answer::stream().sends(&whole).closes())
        .answers(Answer::stream().sends(whole + DONE).closes());
    Talaria::to(&upstream).reads("1\n2\n3\n").await.showed(&"one two three four\n".repeat(3));
}
