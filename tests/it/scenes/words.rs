//! What rooms are told: another language, other words, and silence.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::AgentErrorKind;
use talaria::words::{Kind, Text, Words};

use crate::support::gateway::{Setup, TestGateway};

fn with(words: Words) -> Setup {
    Setup { words, ..Setup::default() }
}

#[tokio::test(start_paused = true)]
async fn a_room_is_told_everything_in_its_language() {
    let gateway = TestGateway::with(with(Words::of("de").unwrap())).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Montag: "]).then_hangs();
    room.says("@ann", "Plane meine Woche").await;
    agent.is_hanging().await;
    room.says("@ann", "und den Monat").await;
    room.settled().await;
    room.says("@ann", "/stop").await;
    room.settled().await;
    gateway.agent().then_fails(AgentErrorKind::Refused, Text::CannotResume);
    room.says("@ann", "/retry").await;
    room.settled().await;
    gateway.agent().says(["Mon"]).then_fails(AgentErrorKind::Unknown { after: None }, Text::BrokeOff);
    room.says("@ann", "/retry").await;
    room.settled().await;
    room.says("@ann", "/stauts").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  Plane meine Woche
    @ann  und den Monat
    note  Notiert; eine ist noch davor. /stop beendet alle.
    bot   Montag:
          (gestoppt)
    @ann  /stop
    note  Nicht ausgeführt: gestoppt, bevor es an die Reihe kam.
    @ann  /retry
    note  ⚠️ Der Agentenserver wurde durch einen ersetzt, der nichts fortsetzen kann. /retry fragt noch einmal.
    @ann  /retry
    bot   Mon
          (abgeschnitten: die Antwort brach ab — /retry startet es noch einmal)
    @ann  /stauts
    note  Es gibt keinen Befehl /stauts. Meintest du /status?
    ");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_agent_is_said_in_the_language_of_the_room() {
    let gateway = TestGateway::with(with(Words::of("de").unwrap())).await;
    let after = Some(Duration::from_secs(60));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, Text::BrokeServerSilent);

    gateway.room().says("@ann", "hallo").await;

    gateway.room().shows("⚠️ Der Agentenserver hat nicht geantwortet. Neue Versuche bis ").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_silenced_is_not_said_and_nothing_else_is_missing() {
    let mut words = Words::default();
    for text in Text::ALL.iter().filter(|text| text.kind() == Kind::Notice) {
        words.reword(text.key(), "").unwrap();
    }
    let gateway = TestGateway::with(with(words)).await;
    let room = gateway.room();
    let after = Some(Duration::from_secs(60));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, "The agent is busy.");
    room.says("@ann", "one").await;
    room.says("@ann", "two").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    @ann  two
    bot   ok
    bot   ok
    ");
    assert_eq!(room.history_of_first(), ["ok"], "nothing was said while it was tried again");
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_reworded_is_said_so() {
    let mut words = Words::default();
    words.reword("stopped", "*stopped by a person*").unwrap();
    words.reword("nothing_running", "All quiet.").unwrap();
    let gateway = TestGateway::with(with(words)).await;
    let room = gateway.room();
    room.says("@ann", "/stop").await;
    room.settled().await;
    let agent = gateway.agent().says(["Let me ", "think"]).then_hangs();
    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.says("@ann", "/stop").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  /stop
    note  All quiet.
    @ann  plan my week
    @ann  /stop
    bot   Let me think
          *stopped by a person*
    ");
}
