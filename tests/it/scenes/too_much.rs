//! Limits per person, and programs that would talk to each other for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_snapshot;
use talaria::access::AccessLists;
use talaria::chat_command::ChatCommand;
use talaria::rules::{AccountRules, PersonLimits};

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

fn limits(per_minute: usize, per_hour: usize) -> PersonLimits {
    PersonLimits { per_minute, per_hour, ..PersonLimits::default() }
}

async fn gateway(limits: PersonLimits) -> TestGateway {
    let rules = AccountRules::listed(AccessLists { allow_all: true, ..AccessLists::default() });
    let rules = AccountRules { limits: Some(limits), ..rules };
    TestGateway::with(Setup { rules, ..Setup::default() }).await
}

/// The room's text without the seconds to wait, which depend on the real clock.
fn without_wait(shown: &str) -> String {
    let Some((before, behind)) = shown.split_once("send it again in ") else { return shown.to_owned() };
    let rest = behind.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}send it again in …{rest}")
}

/// Asks and waits for the answer, which takes hardly any time.
async fn asks(room: &Room, who: &str, text: &str) {
    let before = room.ours().len();
    room.says(who, text).await;
    room.chat.until("it is answered", || (room.ours().len() > before).then_some(())).await;
    room.chat.is_quiet(Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_of_a_minute_is_refused_and_said_once() {
    let gateway = gateway(limits(2, 100)).await;
    let room = gateway.shared_room();
    asks(&room, "@ann", "one").await;
    asks(&room, "@ann", "two").await;
    room.says("@ann", "three").await;
    room.says("@ann", "/status").await;
    // Others are not limited by it.
    room.says("@bob", "me too").await;
    assert_snapshot!(without_wait(&room.settled().await), @"
    @ann  one
    bot   ok
    @ann  two
    bot   ok
    @ann  three
    @ann  /status
    @bob  me too
    note  That is more than 2 messages in a minute, so this one was not taken. Please send it again in … s.
    bot   ok
    ");
    // A minute has passed.
    asks(&room, "@ann", "four").await;
    assert!(room.now().ends_with("@ann  four\nbot   ok\n"), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_hour_holds_over_a_restart() {
    let mut gateway = gateway(limits(100, 3)).await;
    for text in ["one", "two", "three"] {
        asks(&gateway.room(), "@ann", text).await;
    }
    gateway.restart().await;
    gateway.room().says("@ann", "four").await;
    let shown = gateway.room().settled().await;
    assert!(
        shown.ends_with("That is more than 3 messages in an hour, so this one was not taken. Please send it again in 60 min.\n"),
        "{shown}"
    );
    assert_eq!(gateway.agent_itself().heard().len(), 3);

    tokio::time::sleep(Duration::from_secs(3601)).await;
    asks(&gateway.room(), "@ann", "five").await;
    assert_eq!(gateway.agent_itself().heard().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn thirty_in_a_minute_are_answered_by_default_and_the_next_is_told_when_it_goes_on() {
    let gateway = gateway(PersonLimits::default()).await;
    let room = gateway.room();
    for number in 1..=30 {
        asks(&room, "@ann", &format!("question {number}")).await;
        tokio::time::sleep(Duration::from_millis(1400)).await;
    }
    room.says("@ann", "too much").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 30);
    let last = room.ours().pop().unwrap();
    let (_, wait) = last.split_once("send it again in ").unwrap();
    let wait: u64 = wait.split_once(" s").unwrap().0.parse().unwrap();
    assert!((1..=10).contains(&wait), "{last}");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    asks(&room, "@ann", "as it was said").await;
    assert_eq!(gateway.agent_itself().heard().len(), 31, "{last}");
}

/// A person who waited as told and then asks too much again gets a new notice.
#[tokio::test(start_paused = true)]
async fn each_window_has_one_notice() {
    let gateway = gateway(limits(3, 1000)).await;
    let room = gateway.room();
    let notices = || room.ours().iter().filter(|words| words.contains("in a minute")).count();
    for window in 1..=3 {
        for number in 1..=3 {
            asks(&room, "@ann", &format!("question {window}.{number}")).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        for _ in 0..3 {
            room.says("@ann", "too much").await;
        }
        room.settled().await;
        assert_eq!(notices(), window);
        tokio::time::sleep(Duration::from_secs(31)).await;
    }
    // There is no new notice for each message that leaves the window.
    for number in 0..120 {
        room.says("@ann", &format!("on and on {number}")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    room.settled().await;
    assert!(notices() <= 6, "{}", notices());
}

#[tokio::test(start_paused = true)]
async fn stop_is_heard_beyond_every_limit() {
    let gateway = gateway(limits(1, 1)).await;
    let agent = gateway.agent().says(["Let me think"]).then_hangs();
    let room = gateway.room();
    room.says("@ann", "plan my week").await;
    agent.is_hanging().await;
    room.settled().await;
    room.says("@ann", "/stop").await;
    assert_snapshot!(room.settled().await, @"
    @ann  plan my week
    bot   Let me think
          (stopped)
    @ann  /stop
    ");
}

/// A refusal is an answer too: a program that echoes it must not keep us talking.
#[tokio::test(start_paused = true)]
async fn that_only_admins_may_is_said_within_the_limits() {
    let admin_commands = BTreeSet::from([ChatCommand::Undo]);
    let lists = AccessLists { allow_all: true, admin_commands, ..AccessLists::default() };
    let limits = Some(limits(2, 100));
    let rules = AccountRules { limits, ..AccountRules::listed(lists) };
    let gateway = TestGateway::with(Setup { rules, ..Setup::default() }).await;
    let room = gateway.room();
    for _ in 0..5 {
        room.says("@ann", "/undo").await;
    }
    // A command that is never allowed gets no answer, however often it comes.
    for _ in 0..5 {
        room.says("@ann", "/approve always").await;
    }
    room.settled().await;
    assert_eq!(
        room.ours().iter().map(|text| without_wait(text)).collect::<Vec<_>>(),
        [
            "Only admins can use /undo here.",
            "Only admins can use /undo here.",
            "That is more than 2 messages in a minute, so this one was not taken. Please send it again in … s.",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limits_a_stop_is_not_answered() {
    let gateway = gateway(limits(2, 100)).await;
    let room = gateway.room();
    for _ in 0..20 {
        room.says("@ann", "/stop").await;
        room.says("@ann", "/deny").await;
    }
    room.settled().await;
    assert_eq!(room.ours().len(), 2, "{:?}", room.ours());
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limits_an_approval_counts_without_a_word() {
    let gateway = gateway(limits(1, 100)).await;
    let room = gateway.room();
    gateway.agent().asks("run a command", "rm -r build").says(["Done."]);
    room.says("@ann", "clean up").await;
    room.is_asked("run a command").await;
    room.says("@ann", "/approve").await;
    let shown = room.settled().await;
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
    assert!(!shown.contains("Allowed, this once"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn programs_that_talk_to_each_other_are_noticed_and_left_alone() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for number in 1..=8 {
        asks(&room, "@rob", &format!("beep {number}")).await;
    }
    room.says("@rob", "beep 9").await;
    room.says("@rob", "beep 10").await;
    // Another program that is as quick does not end the silence.
    room.says("@roy", "boop").await;
    room.says("@rob", "beep 11").await;
    let shown = room.settled().await;
    assert_snapshot!(shown.lines().skip(14).collect::<Vec<_>>().join("\n"), @"
    @rob  beep 8
    bot   ok
    @rob  beep 9
    @rob  beep 10
    @roy  boop
    @rob  beep 11
    note  This looks like programs talking to each other, so I am silent here until somebody writes after a pause, or 10 minutes have passed.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 8);

    // A person who took their time ends the silence.
    asks(&room, "@ann", "who is there?").await;
    asks(&room, "@rob", "me").await;
    assert_eq!(gateway.agent_itself().heard().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn programs_that_take_turns_are_noticed_too() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for _ in 0..4 {
        asks(&room, "@rob", "beep").await;
        asks(&room, "@roy", "boop").await;
    }
    asks(&room, "@rob", "beep").await;
    for _ in 0..4 {
        room.says("@roy", "boop").await;
        room.says("@rob", "beep").await;
    }
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 8);
    assert_eq!(room.ours().len(), 9, "eight answers, and why there are no more");
}

#[tokio::test(start_paused = true)]
async fn the_silence_ends_after_ten_minutes() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for _ in 0..8 {
        asks(&room, "@rob", "beep").await;
    }
    // They never pause.
    for _ in 0..300 {
        room.says("@rob", "beep").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 8);
    tokio::time::sleep(Duration::from_secs(2)).await;
    asks(&room, "@rob", "boop").await;
    assert_eq!(gateway.agent_itself().heard().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_reads_before_answering_is_no_program() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for _ in 0..20 {
        asks(&room, "@ann", "and then?").await;
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_asks_two_seconds_after_each_answer_is_no_program() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.room();
    for number in 1..=60 {
        asks(&room, "@ann", &format!("question {number}")).await;
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_same_text_again_and_again_is_a_program() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.room();
    for _ in 1..=8 {
        asks(&room, "@rob", "Sorry, what?").await;
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
    room.says("@rob", "sorry,  what?").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_quiz_answered_with_the_same_few_letters_is_no_program() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.room();
    for number in 0..45 {
        asks(&room, "@ann", ["A", "B", "C"][number % 3]).await;
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 45);
}

#[tokio::test(start_paused = true)]
async fn two_accounts_that_take_turns_without_a_pause_are_programs() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for number in 0..8 {
        asks(&room, ["@rob", "@roy"][number % 2], &format!("thought {number}")).await;
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
    room.says("@rob", "one more thought").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_also_sends_what_bots_send_is_a_program() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.room();
    room.a_bot_says("@rob", "rob 1.0 is ready").await;
    for number in 1..=8 {
        asks(&room, "@rob", &format!("thought {number}")).await;
        tokio::time::sleep(Duration::from_millis(1700)).await;
    }
    room.says("@rob", "one more thought").await;
    room.settled().await;
    assert_eq!(gateway.agent_itself().heard().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn without_the_guard_programs_may_talk_within_the_limits() {
    let gateway = gateway(PersonLimits { loop_guard: false, ..limits(100, 1000) }).await;
    let room = gateway.room();
    for _ in 1..=20 {
        asks(&room, "@rob", "beep").await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_thinks_before_it_writes_is_noticed_after_a_while() {
    let gateway = gateway(limits(100, 1000)).await;
    let room = gateway.shared_room();
    for _ in 0..40 {
        asks(&room, "@rob", "and then?").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    for _ in 0..3 {
        room.says("@rob", "and then?").await;
        room.chat.is_quiet(Duration::from_secs(10)).await;
    }
    assert_eq!(gateway.agent_itself().heard().len(), 40);
    let notices = room.ours().iter().filter(|words| words.contains("talking to each other")).count();
    assert_eq!(notices, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_refused_that_was_asked_while_nobody_read() {
    let mut gateway = gateway(limits(2, 3)).await;
    gateway.drain().await;
    let asked: Vec<_> = (1..=30).map(|number| format!("question {number}")).collect();
    for text in &asked {
        gateway.room().posts("@ann", text, Vec::new());
    }
    gateway.chat().was_not_read();
    gateway.restart().await;

    let shown = gateway.room().settled().await;
    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, asked);
    assert!(!shown.contains("note"), "{shown}");

    gateway.room().says("@ann", "and now?").await;
    let shown = gateway.room().settled().await;
    assert!(shown.contains("more than 3 messages in an hour"), "{shown}");
}
