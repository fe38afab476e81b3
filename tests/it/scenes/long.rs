//! Answers that are longer than the part that is shown while they grow.

use std::time::Duration;

use talaria_platform::ShowMode;

use crate::support::gateway::{Setup, TestGateway};

#[tokio::test(start_paused = true)]
async fn what_comes_when_the_message_is_full_is_kept_all_the_same() {
    let gateway = TestGateway::with(Setup { max_text: 300, ..Setup::default() }).await;
    let room = gateway.room();
    let pieces: Vec<String> = (0..20).map(|number| format!("This is sentence number {number}. ")).collect();
    let pace = Duration::from_secs(1);
    let agent = gateway.agent().says_slowly(pace, pieces.iter().map(String::as_str)).then_hangs();

    room.says("@ann", "tell me all of it").await;
    agent.is_hanging().await;
    gateway.chat().is_quiet(Duration::from_secs(3)).await;

    let kept = gateway.store().read(|tx| {
        let open = tx.all_open_turns()?;
        open.first().map_or(Ok(String::new()), |(_, turn)| tx.checkpointed(turn))
    });
    assert_eq!(kept.await.unwrap(), pieces.concat(), "a crash now must not lose what came");
    assert!(room.now().len() < pieces.concat().len(), "the message was full long before");
    agent.goes_on();
}

#[tokio::test(start_paused = true)]
async fn a_terminal_is_given_a_long_text_less_often() {
    let gateway =
        TestGateway::with(Setup { show: ShowMode::Append, max_text: usize::MAX / 2, ..Setup::default() })
            .await;
    let room = gateway.room();
    let long = "All that was said before. ".repeat(8000);
    let frame = Duration::from_millis(30);
    gateway.agent().says([long.as_str()]).says_slowly(frame, ["And a word more. "; 100]);

    room.says("@ann", "go on").await;
    room.settled().await;

    let shown = room.history_of_first();
    assert!((3..20).contains(&shown.len()), "{} times the whole text", shown.len());
    assert!(shown.last().is_some_and(|text| text.len() > long.len() + 1600));
}
