//! F23, F24: bodies and streams that are too large. The tests measure the process's peak memory.

use crate::support::binary::{Ended, Talaria};
use crate::support::upstream::{Answer, DONE, Upstream, delta, event};

const MIB: usize = 1 << 20;

/// Memory that a dropped body may take. A stored body takes more: the smallest here has 10 MiB.
const LITTLE: usize = 8 * MIB;

/// Asks a harmless question, then the one with `answer`, then a harmless one again. Returns the result of the
/// process, and the memory that the middle one took.
async fn asked(answer: Answer, words: &str) -> (Ended, usize) {
    asked_of(Upstream::plain().await, answer, words).await
}

async fn asked_of(upstream: Upstream, answer: Answer, words: &str) -> (Ended, usize) {
    upstream.answers(Answer::says(["before"])).answers(answer).answers(Answer::says(["after"]));
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    process.types("hi\n");
    process.shows("before\n").await;
    let before = process.peak_memory();
    process.types("and now?\nand now?\n");
    process.shows("after\n").await;
    let grown = process.peak_memory() - before;
    process.leaves();
    let ended = process.ended().await;
    assert!(ended.out.contains(words) || ended.err.contains(words), "{}", ended.err);
    (ended, grown)
}

fn is_little(grown: usize) {
    assert!(grown < LITTLE, "{} MiB", grown / MIB);
}

#[tokio::test]
async fn a_line_without_end_is_cut_off() {
    let answer = Answer::stream().sends("data: ").repeats("x".repeat(MIB), 64).hangs();
    let (ended, grown) = asked(answer, "(cut short: the agent sent a line that is too long)").await;
    assert!(ended.out.len() < 1000 && ended.err.len() < 100_000);
    is_little(grown);
}

#[tokio::test]
async fn a_line_of_ten_megabytes_is_cut_off() {
    let line = delta(&"x".repeat(10 * MIB)) + DONE;
    let (_, grown) = asked(Answer::events(line), "(cut short: the agent sent a line that is too long)").await;
    is_little(grown);
}

/// The last event of an answer that can be resumed; it repeats the whole text.
fn last(text: &str) -> String {
    let last = serde_json::json!({
        "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
        "hermes": { "status": "completed", "text": text },
    });
    event(&last)
}

/// An upstream that can resume may repeat an answer once at its end, and send no other long line.
#[tokio::test]
async fn a_promise_to_resume_buys_no_longer_lines() {
    let words = "(cut short: the agent sent a line that is too long)";
    for answer in [
        Answer::stream().sends("data: ").repeats("x".repeat(MIB), 64).hangs(),
        Answer::stream().sends(delta("Hello")).sends("data: ").repeats("x".repeat(MIB), 64).hangs(),
    ] {
        let (_, grown) = asked_of(Upstream::idempotent().await, answer, words).await;
        is_little(grown);
    }
    // The amount of text before does not matter.
    let long = delta(&"word ".repeat(MIB / 10));
    let answer = Answer::stream().repeats(long, 6).sends(delta(&"x".repeat(2 * MIB))).hangs();
    asked_of(Upstream::idempotent().await, answer, words).await;
    let twice = last(&"x".repeat(2 * MIB)).repeat(2);
    asked_of(Upstream::idempotent().await, Answer::stream().sends(twice).hangs(), words).await;
}

#[tokio::test]
async fn a_long_answer_may_be_repeated_whole_at_its_end() {
    // Every second character is escaped.
    let piece = "a\n".repeat(100_000);
    let answer =
        Answer::stream().repeats(delta(&piece), 15).sends(last(&piece.repeat(15))).sends(DONE).ends();
    let (ended, _) = asked_of(Upstream::idempotent().await, answer, "after").await;
    assert!(!ended.out.contains("cut short"), "{}", ended.out.len());
}

/// The stream may have had gaps, or the agent may have changed its answer.
#[tokio::test]
async fn a_long_answer_may_be_another_than_the_little_that_was_heard() {
    for heard in ["word ", "Another"] {
        let whole = "word ".repeat(MIB / 2) + "and the end.";
        let answer = Answer::stream().sends(delta(heard)).sends(last(&whole)).sends(DONE).ends();
        let (ended, _) = asked_of(Upstream::idempotent().await, answer, "word and the end.").await;
        assert!(!ended.out.contains("cut short") && ended.out.len() > 2 * MIB, "{}", ended.out.len());
    }
}

/// Only a file may be longer than a line of text.
#[tokio::test]
async fn a_picture_of_two_megabytes_in_one_piece_is_taken() {
    let picture =
        format!("Here: ![chart](data:image/png;base64,iVBORw0KGgo{}) Good?", "A".repeat(2 * MIB + 1));
    let (ended, _) = asked(Answer::events(delta(&picture) + DONE), "Here: 📎 chart.png Good?").await;
    assert!(!ended.out.contains("cut short") && ended.out.len() < 1000, "{}", ended.out.len());
}

#[tokio::test]
async fn data_in_endless_lines_is_cut_off() {
    let answer = Answer::stream().repeats("data: xxxxxxxx\n".repeat(MIB / 16), 64).hangs();
    let (_, grown) = asked(answer, "(cut short: the agent sent a line that is too long)").await;
    is_little(grown);
}

#[tokio::test]
async fn a_refusal_with_an_endless_body_is_not_read() {
    let head = "HTTP/1.1 500 Scripted\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = Answer::bytes(head).repeats("<p>".repeat(MIB / 3), 64).hangs();
    let (_, grown) = asked(answer, "⚠️ Proxy error (500): it failed.").await;
    is_little(grown);
}

#[tokio::test]
async fn endless_keep_alives_and_thoughts_count_too() {
    let thought = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"xxxxxxxx\"}}]}\n\n".repeat(1000);
    for noise in [": alive\n\n".repeat(10_000), thought] {
        let answer = Answer::stream().repeats(&noise, 64 * MIB / noise.len()).hangs();
        let (_, grown) = asked(answer, "the agent sent more than 48 MiB").await;
        is_little(grown);
    }
}

/// The text of a turn is stored, so this takes more memory, but at most a few times the size limit of a turn.
#[tokio::test]
async fn a_turn_beyond_its_size_is_cut_off() {
    let piece = delta(&"word ".repeat(10_000));
    let answer = Answer::stream().repeats(&piece, 64 * MIB / piece.len()).hangs();
    let (ended, grown) = asked(answer, "(cut short: the answer grew beyond what one message may take)").await;
    assert!(ended.out.len() > 15 * MIB && ended.out.len() < 17 * MIB, "{}", ended.out.len());
    assert!(grown < 150 * MIB, "{} MiB", grown / MIB);
}

/// Nobody sees reasoning, but it is kept while the turn runs.
#[tokio::test]
async fn long_thoughts_count_like_text() {
    let thought =
        format!("data: {{\"choices\":[{{\"delta\":{{\"reasoning\":\"{}\"}}}}]}}\n\n", "x".repeat(1000));
    let answer = Answer::stream().repeats(&thought, 40 * MIB / thought.len()).hangs();
    let (ended, grown) = asked(answer, "the answer grew beyond what one message may take").await;
    assert!(ended.out.len() < 1000 && grown < 40 * MIB, "{} MiB", grown / MIB);
}

#[tokio::test]
async fn an_endless_answer_about_its_abilities_is_not_read() {
    let head = "HTTP/1.1 200 Scripted\r\ntransfer-encoding: chunked\r\n\r\n";
    let capabilities = Answer::bytes(head).repeats(" ".repeat(MIB), 64).hangs();
    let upstream = Upstream::with_capabilities(capabilities).await;
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    process.logs("running").await;
    let before = process.peak_memory();
    process.types("hi\n");
    process.shows("ok\n").await;
    // Includes the memory that any first request takes.
    assert!(process.peak_memory() - before < 2 * LITTLE);
    process.leaves();
    process.ended().await.showed("ok\n");
}

#[tokio::test]
async fn long_answers_do_not_add_up() {
    let upstream = Upstream::plain().await;
    let answer = delta(&"word ".repeat(MIB / 10)).repeat(2) + DONE;
    let talaria = Talaria::to(&upstream);
    let mut process = talaria.starts();
    let mut peaks = Vec::new();
    for round in 0..4 {
        for _ in 0..10 {
            upstream.answers(Answer::events(&answer));
        }
        upstream.answers(Answer::says([format!("round {round}").as_str()]));
        process.types(&"hi\n".repeat(11));
        process.shows(&format!("round {round}\n")).await;
        peaks.push(process.peak_memory() / MIB);
    }
    assert!(peaks[3] - peaks[1] < 10, "20 answers of one MiB each: {peaks:?}");
}
