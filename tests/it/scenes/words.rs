//! The texts of rooms: another language, other words, and silence.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::agent::{AgentErrorKind, StepState};
use talaria::chat_command::ChatCommand;
use talaria::i18n::{TextCatalog, TextKey, TextKind};
use talaria::rules::AccountRules;
use talaria_platform::{PlatformErrorKind, ShowMode};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Fault;

fn with(words: TextCatalog) -> Setup {
    Setup { words, ..Setup::default() }
}

/// A catalogue with every optional notice silenced.
fn silent() -> TextCatalog {
    let mut words = TextCatalog::default();
    for text in TextKey::ALL.iter().filter(|text| text.kind() == TextKind::Notice) {
        words.reword(text.key(), "").unwrap();
    }
    words
}

/// A program that echoes our text would give us a command, and we would answer it.
#[test]
fn nothing_that_we_say_of_ourselves_is_a_command() {
    for language in TextCatalog::languages() {
        let words = TextCatalog::of(language).unwrap();
        for text in TextKey::ALL.iter().filter(|text| text.kind() == TextKind::Notice) {
            let said = words.say(&(*text).into());
            assert!(!said.starts_with('/'), "{language}: {said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_room_is_told_everything_in_its_language() {
    let gateway = TestGateway::with(with(TextCatalog::of("de").unwrap())).await;
    let room = gateway.room();
    let agent = gateway.agent().says(["Montag: "]).then_hangs();
    room.says("@ann", "Plane meine Woche").await;
    agent.is_hanging().await;
    room.says("@ann", "und den Monat").await;
    room.settled().await;
    room.says("@ann", "/stop").await;
    room.settled().await;
    gateway.agent().then_fails(AgentErrorKind::Refused, TextKey::CannotResume);
    room.says("@ann", "/retry").await;
    room.settled().await;
    gateway.agent().says(["Mon"]).then_fails(AgentErrorKind::Unknown { after: None }, TextKey::BrokeOff);
    room.says("@ann", "/retry").await;
    room.settled().await;
    room.says("@ann", "/stauts").await;

    assert_snapshot!(room.settled().await, @r"
    @ann  Plane meine Woche
    @ann  und den Monat
    note  Vorgemerkt: Eine andere Nachricht kommt zuerst. /stop beendet beide.
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
    let gateway = TestGateway::with(with(TextCatalog::of("de").unwrap())).await;
    let after = Some(Duration::from_secs(60));
    gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, TextKey::BrokeServerSilent);

    gateway.room().says("@ann", "hallo").await;

    gateway.room().shows("⚠️ Der Agentenserver hat nicht geantwortet. Neue Versuche bis ").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_silenced_is_not_said_and_nothing_else_is_missing() {
    let words = silent();
    for show in [ShowMode::Edit { pause: Duration::from_secs(1) }, ShowMode::Append, ShowMode::Once] {
        let gateway = TestGateway::with(Setup { show, ..with(words.clone()) }).await;
        let room = gateway.room();
        let after = Some(Duration::from_secs(60));
        gateway.agent().then_fails(AgentErrorKind::NothingRan { after }, "The agent is busy.");
        room.says("@ann", "one").await;
        room.says("@ann", "two").await;
        room.settled().await;
        room.says("@ann", "/stop").await;

        let shown = room.settled().await;
        insta::allow_duplicates!(assert_snapshot!(shown, @r"
        @ann  one
        @ann  two
        bot   ok
        bot   ok
        @ann  /stop
        note  Nothing is running.
        "));
        assert_eq!(room.history_of_first(), ["ok"], "nothing was said while it was tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_sends_a_command_is_answered_however_much_is_silenced() {
    // At the other end of a pipe a program waits for the answer.
    let admins = ["@ann:test".into()].into();
    let lists = AccessLists { allow_all: true, admins, ..AccessLists::default() };
    let rules = AccountRules { limits: None, ..AccountRules::listed(lists) };
    let gateway = TestGateway::with(Setup { rules, ..with(silent()) }).await;
    let commands = ChatCommand::all()
        .flat_map(|command| ["", " 99"].map(|behind| format!("/{}{behind}", command.name())));
    for text in commands.chain(["/dance".to_owned()]) {
        let room = gateway.direct_room(&text);
        room.says("@ann", &text).await;
        room.settled().await;
        assert!(!room.ours().is_empty(), "{text} has no answer: which text of it is a notice?");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silenced_notice_is_not_sent_as_an_empty_message() {
    let mut words = TextCatalog::default();
    words.reword("unshown", "").unwrap();
    let gateway = TestGateway::with(Setup { show: ShowMode::Once, ..with(words) }).await;
    let room = gateway.room();
    gateway.chat().next_send(Fault::Answers(PlatformErrorKind::Rejected));

    room.says("@ann", "speak").await;
    room.settled().await;

    assert_eq!(room.ours(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_name_is_called_one() {
    let gateway = TestGateway::with(with(TextCatalog::of("de").unwrap())).await;
    let agent = gateway.agent().step("1", "\u{200b}", StepState::Running).then_hangs();

    gateway.room().says("@ann", "hallo").await;
    agent.is_hanging().await;

    gateway.room().shows("⚙️ Werkzeug…").await;
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_reworded_is_said_so() {
    let mut words = TextCatalog::default();
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
