//! A restart while the fallback answers: nothing runs a second time, and nothing runs at the wrong agent.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::AgentErrorKind;
use talaria_platform::MediaKind;

use super::{NOTHING_RAN, PAUSE, with, with_a_stand_in};
use crate::support::gateway::Setup;
use crate::support::room::file;

#[tokio::test(start_paused = true)]
async fn what_was_made_ready_for_a_stand_in_that_failed_is_never_sent_to_the_agent() {
    for fallback in [true, false] {
        let mut gateway = with_a_stand_in().await;
        let room = gateway.room();
        gateway.agent_itself().goes_away();
        for _ in 0..50 {
            gateway.stand_in().script().then_fails(NOTHING_RAN, "The model cannot be reached.");
        }

        room.says("@ann", "anybody?").await;
        room.shows("Trying again").await;
        match fallback {
            true => {
                tokio::time::sleep(PAUSE).await;
                gateway.agent_itself().comes_back();
            }
            false => {
                gateway.drain().await;
                gateway.agent_itself().comes_back();
                gateway.setup().fallback = false;
                gateway.restart().await;
            }
        }

        let shown = room.settled().await;
        assert!(shown.contains("bot   ok\n"), "{shown}");
        let heard = gateway.agent_itself().heard();
        assert_eq!((heard.len(), heard[0].request.as_str()), (1, "scripted, request 1: anybody?"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_the_stand_in_runs_runs_nothing_a_second_time() {
    let mut gateway = with(Setup { resumable: true, ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    let hanging = gateway.stand_in().script().says(["I stand "]).then_hangs();

    room.says("@ann", "hello?").await;
    hanging.is_hanging().await;
    gateway.agent_itself().comes_back();
    gateway.restart().await;

    assert_snapshot!(room.settled().await, @r"
    @ann  hello?
    note  The agent is away. Until it is back, model small is asked instead.
    bot   I stand
          (interrupted — /retry runs it again)
    ");
    assert_eq!((gateway.agent_itself().heard().len(), gateway.stand_in().heard().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_stand_in_may_have_run_is_taken_up_by_the_stand_in_or_by_nobody() {
    for stays in [true, false] {
        let setup = Setup { stand_in_resumable: true, ..Setup::default() };
        let mut gateway = with(setup).await;
        let room = gateway.room();
        gateway.agent_itself().goes_away();
        let hanging = gateway.stand_in().script().says(["I stand "]).then_hangs();
        gateway.stand_in().script().says(["I stand in."]);

        room.says("@ann", "hello?").await;
        hanging.is_hanging().await;
        gateway.drain().await;
        gateway.agent_itself().comes_back();
        gateway.setup().fallback = stays;
        gateway.restart().await;

        let shown = room.settled().await;
        let end = if stays { "bot   I stand in.\n" } else { "(interrupted — /retry runs it again)\n" };
        assert!(shown.ends_with(end), "{shown}");
        let heard = gateway.stand_in().heard();
        assert_eq!((gateway.agent_itself().heard().len(), heard.len()), (0, if stays { 2 } else { 1 }));
        assert!(heard.iter().all(|turn| turn.key == heard[0].key && turn.request == heard[0].request));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_changes_neither_who_is_away_nor_what_was_said_about_it() {
    let mut gateway = with_a_stand_in().await;
    let room = gateway.room();
    gateway.agent_itself().goes_away();
    room.says("@ann", "one").await;
    room.settled().await;
    gateway.restart().await;
    room.says("@ann", "two").await;
    room.settled().await;
    gateway.agent_itself().comes_back();
    gateway.restart().await;
    room.says("@ann", "three").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    note  The agent is away. Until it is back, model small is asked instead.
    bot   ok
    @ann  two
    bot   ok
    @ann  three
    bot   ok
    note  The agent is back and answers again.
    ");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_busy_agent_over_a_restart_can_still_go_over_with_its_pictures() {
    let mut gateway = with_a_stand_in().await;
    let room = gateway.room();
    let busy = AgentErrorKind::NothingRan { after: Some(Duration::from_secs(10)) };
    gateway.agent().then_fails(busy, "The agent is busy.");
    gateway.chat().keeps("cat", b"\x89PNG\r\n\x1a\nand so on");

    room.brings("@ann", "what is it?", vec![file("cat", MediaKind::Image, "cat.png")]).await;
    room.shows("Trying again").await;
    gateway.drain().await;
    gateway.agent_itself().goes_away();
    gateway.restart().await;
    room.settled().await;

    let heard = gateway.stand_in().heard();
    assert_eq!((heard.len(), heard[0].images.len()), (1, 1));
}
