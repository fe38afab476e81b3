//! How the gateway ends, and how a failed platform comes back.

use std::time::Duration;

use talaria_platform::PlatformErrorKind;
use tokio::time::Instant;

use crate::support::gateway::TestGateway;
use crate::support::room::{Fault, Gate};

#[tokio::test(start_paused = true)]
async fn the_end_waits_eight_seconds_and_no_longer_for_what_does_not_arrive() {
    let mut gateway = TestGateway::start().await;
    let room = gateway.room();
    let gate = Gate::default();
    gateway.chat().next_send(Fault::Waits(gate.clone()));
    room.says("@ann", "/status").await;
    gateway.chat().until("it is under way", || (!gateway.chat().requests().is_empty()).then_some(())).await;

    let asked = Instant::now();
    gateway.drain().await;
    let took = asked.elapsed();
    assert!((Duration::from_secs(8)..Duration::from_secs(9)).contains(&took), "it took {took:?}");
    gate.open();
}

/// The answer is there, and the store cannot be read at that moment.
#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_a_store_that_cannot_be_read() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["The whole "]).then_hangs().says(["answer."]);
    room.says("@ann", "tell me all").await;
    agent.is_hanging().await;
    room.shows("The whole").await;
    // At its end, the turn looks up there whether its author may still be answered.
    let database = rusqlite::Connection::open(gateway.database()).unwrap();
    database.execute_batch("ALTER TABLE pairings RENAME TO hidden").unwrap();
    agent.goes_on();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(room.now().contains("bot…  The whole"), "{}", room.now());
    database.execute_batch("ALTER TABLE hidden RENAME TO pairings").unwrap();
    room.shows("bot   The whole answer.").await;
}

#[tokio::test(start_paused = true)]
async fn an_end_with_nothing_to_wait_for_is_quick() {
    let mut gateway = TestGateway::start().await;
    gateway.room().says("@ann", "hello").await;
    gateway.room().settled().await;
    let asked = Instant::now();
    gateway.drain().await;
    assert!(asked.elapsed() < Duration::from_secs(1), "it took {:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_stops_reading_is_started_again_and_misses_nothing() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    room.says("@ann", "one").await;
    room.settled().await;
    for _ in 0..3 {
        gateway.chat().reading_fails(PlatformErrorKind::Retry { after: None });
    }
    room.says("@ann", "two").await;
    room.settled().await;
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two"]);
    assert!(gateway.chat().runs() >= 4, "it was started {} times", gateway.chat().runs());
}
