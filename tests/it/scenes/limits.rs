//! Many growing answers on one small account, and one answer that never seems to end.

use std::time::Duration;

use talaria_platform::RateLimit;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Request, What};

/// Synapse's default limit for an account.
const SYNAPSE: RateLimit = RateLimit { per_second: 0.2, burst: 10.0 };

const STREAMS: usize = 20;

/// Twenty people ask at the same moment; returns the requests that this caused.
async fn twenty_ask(gateway: &TestGateway, wave: &str) -> Vec<Request> {
    let before = gateway.chat().requests().len();
    let pieces: Vec<String> = (1..=15).map(|n| format!("piece {n} of the answer. ")).collect();
    for stream in 0..STREAMS {
        gateway.agent().says_slowly(Duration::from_secs(2), pieces.iter().map(String::as_str));
        gateway.direct_room(&format!("!{stream}")).says("@ann", wave).await;
    }
    gateway.room().settled().await;
    for stream in 0..STREAMS {
        let shown = gateway.direct_room(&format!("!{stream}")).ours();
        assert_eq!(shown.last().map(String::as_str), Some(pieces.concat().trim_end()), "stream {stream}");
    }
    gateway.chat().requests().split_off(before)
}

fn refusals(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.refused).count()
}

#[tokio::test(start_paused = true)]
async fn twenty_answers_arrive_within_a_limit_that_is_known() {
    let gateway =
        TestGateway::with(Setup { rate: Some(SYNAPSE), limit: Some(SYNAPSE), ..Setup::default() }).await;

    let requests = twenty_ask(&gateway, "the first wave").await;

    assert_eq!(refusals(&requests), 0, "of {} requests", requests.len());
    let growing = requests.iter().filter(|request| !request.body.done).count();
    assert!(growing > 0, "some were seen to grow");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_nobody_told_is_learned_and_then_kept_to() {
    let gateway = TestGateway::with(Setup { limit: Some(SYNAPSE), ..Setup::default() }).await;

    let first = twenty_ask(&gateway, "the first wave").await;
    let second = twenty_ask(&gateway, "the second wave").await;
    let third = twenty_ask(&gateway, "the third wave").await;

    assert!(refusals(&first) > 0, "there was something to learn");
    assert_eq!((refusals(&second), refusals(&third)), (0, 0), "{} in the first wave", refusals(&first));
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_of_a_limit_survives_a_restart() {
    let mut gateway = TestGateway::with(Setup { limit: Some(SYNAPSE), ..Setup::default() }).await;
    let pieces: Vec<String> = (0..300).map(|n| format!("piece {n} ")).collect();

    let mut refused = Vec::new();
    for _ in 0..2 {
        let before = gateway.chat().requests().len();
        gateway.agent().says_slowly(Duration::from_secs(1), pieces.iter().map(String::as_str));
        gateway.room().says("@ann", "speak").await;
        gateway.room().settled().await;
        refused.push(refusals(&gateway.chat().requests().split_off(before)));
        gateway.restart().await;
    }

    assert!(refused[0] > 1, "there was something to learn: {refused:?}");
    assert_eq!(refused[1], 0, "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn growing_answers_always_leave_something_for_a_finished_one() {
    let gateway =
        TestGateway::with(Setup { rate: Some(SYNAPSE), limit: Some(SYNAPSE), ..Setup::default() }).await;
    let pieces: Vec<String> = (0..200).map(|n| format!("piece {n} of the answer. ")).collect();
    for stream in 0..3 {
        gateway.agent().says_slowly(Duration::from_secs(1), pieces.iter().map(String::as_str));
        gateway.direct_room(&format!("!{stream}")).says("@ann", "speak").await;
    }
    let asking = gateway.direct_room("!asking");

    for minute in 1..=3 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = tokio::time::Instant::now();
        asking.says("@bob", "quick question").await;
        gateway.chat().until("it is answered", || (asking.ours().len() == minute).then_some(())).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "minute {minute}: it took {:?}", asked.elapsed());
    }
    assert_eq!(refusals(&gateway.chat().requests()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_hours_makes_a_bounded_number_of_edits() {
    let gateway = TestGateway::with(Setup { max_text: 40_000, ..Setup::default() }).await;
    let pieces: Vec<String> = (0..1200).map(|n| format!("line {n}\n")).collect();
    gateway.agent().says_slowly(Duration::from_secs(30), pieces.iter().map(String::as_str));

    let began = tokio::time::Instant::now();
    gateway.room().says("@ann", "watch the oven").await;
    gateway.room().shows("bot   line 0").await;
    gateway.room().settled().await;

    assert_eq!(gateway.room().ours(), [pieces.concat().trim_end()]);
    let requests = gateway.chat().requests();
    let partial: Vec<_> = requests.iter().filter(|request| !request.body.done).collect();
    assert!((150..=200).contains(&partial.len()), "{} edits", partial.len());
    assert_eq!(requests.len(), partial.len() + 1, "and the final, once");
    assert!(matches!(requests.last().unwrap().what, What::Edit(_)));
    let last_seen = partial.last().unwrap().at - began;
    assert!(last_seen > Duration::from_secs(2 * 3600), "people could watch for {last_seen:?}");
}
