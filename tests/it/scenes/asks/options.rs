//! Asks with options and free text: how people answer them, and what decides nothing.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{Ask, AskChoice, DenyReason, OptionKind};
use talaria_platform::{EventId, IncomingMessage, RoomEventKind};

use super::{gateway, masked, outcomes, people, settled};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::{Asked, Room};
use crate::support::scripted::{ask, choice, option, or_text};

/// A permission as agents of the field ask for it.
fn permission() -> Ask {
    let options = [
        option("allow", "Allow", OptionKind::AllowOnce),
        option("always", "Always allow", OptionKind::AllowAlways),
        option("reject", "Reject", OptionKind::RejectOnce),
    ];
    choice("run a command", "rm -r build", options)
}

fn colours() -> Ask {
    let options = [option("r", "red", OptionKind::Answer), option("b", "blue", OptionKind::Answer)];
    or_text(choice("Colour", "Which colour shall it be?", options))
}

fn chosen(id: &str) -> AskChoice {
    AskChoice::Option(id.to_owned())
}

/// A gateway whose agent makes this ask in a room, which shows it.
async fn asked(ask: Ask) -> (TestGateway, Room, Asked) {
    let gateway = gateway().await;
    let room = gateway.room();
    let title = ask.title.to_string();
    gateway.agent().asks_all([ask]).says(["Well."]);
    room.says("@ann", "go on").await;
    let asked = room.is_asked(&title).await;
    room.chat.is_quiet(Duration::from_secs(5)).await;
    (gateway, room, asked)
}

/// The answers that the agent got.
fn told(gateway: &TestGateway) -> Vec<AskChoice> {
    gateway.agent_itself().answers().into_iter().map(|answer| answer.choice).collect()
}

#[tokio::test(start_paused = true)]
async fn an_option_is_chosen_by_its_number() {
    let (gateway, room, asked) = asked(permission()).await;
    room.says("@ann", &format!("/answer {} 1", asked.code)).await;

    assert_snapshot!(settled(&room).await, @"
    @ann  go on
    ask   The agent asks: `run a command`
          ```
          rm -r build
          ```
          1. `Allow`
          2. `Always allow`
          3. `Reject`
          `/answer CODE 1` chooses the first option; its text works instead of the number, too. `/deny CODE` refuses to answer.
    @ann  /answer CODE 1
    note  Chosen: `Allow`, for `run a command`
    bot   Well.
    ");
    assert_eq!(told(&gateway), [chosen("allow")]);
    assert_eq!(gateway.agent_itself().ran(), ["rm -r build"]);
    assert_eq!(outcomes(&gateway).await, ["ask allow_once yes by @ann:test (answered)"]);
}

#[tokio::test(start_paused = true)]
async fn an_option_is_chosen_by_its_label() {
    for (words, id, outcome) in [
        ("reject", "reject", "ask reject_once no by @ann:test (answered)"),
        ("  ALLOW ", "allow", "ask allow_once yes by @ann:test (answered)"),
        ("`Reject`", "reject", "ask reject_once no by @ann:test (answered)"),
        ("#3", "reject", "ask reject_once no by @ann:test (answered)"),
    ] {
        let (gateway, room, asked) = asked(permission()).await;
        room.says("@ann", &format!("/answer {} {words}", asked.code.to_lowercase())).await;
        room.settled().await;
        assert_eq!(told(&gateway), [chosen(id)], "{words:?}");
        assert_eq!(outcomes(&gateway).await, [outcome], "{words:?}");
    }
}

/// A room shows labels only, so an agent must not turn somebody's own words into an option with another label.
#[tokio::test(start_paused = true)]
async fn the_id_of_an_option_chooses_nothing_in_a_room() {
    let disguised = choice("Deploy?", "What now?", [option("wait", "Deploy now", OptionKind::AllowOnce)]);
    let (gateway, room, asked) = asked(or_text(disguised)).await;
    room.says("@ann", &format!("/answer {} wait", asked.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [AskChoice::Text("wait".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_in_own_words_which_nobody_else_is_told() {
    let (gateway, room, asked) = asked(colours()).await;
    let words = "a secret green,\nlike moss\n\n1. or so";
    room.says("@ann", &format!("/answer {} {words}", asked.code)).await;

    assert_snapshot!(settled(&room).await, @"
    @ann  go on
    ask   The agent asks: `Colour`
          ```
          Which colour shall it be?
          ```
          1. `red`
          2. `blue`
          `/answer CODE 1` chooses the first option; any other words after the code are your own answer. `/deny CODE` refuses to answer.
    @ann  /answer CODE a secret green,
          like moss
          1. or so
    note  Answered: `Colour`
    bot   Well.
    ");
    assert_eq!(told(&gateway), [AskChoice::Text(words.to_owned())]);
    assert_eq!(outcomes(&gateway).await, ["ask text yes by @ann:test (answered)"]);
    let audit = gateway.store().read(|tx| tx.audited(&Default::default())).await.unwrap();
    assert!(!format!("{audit:?}").contains("secret"), "{audit:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_without_options_takes_any_words() {
    let (gateway, room, asked) = asked(or_text(ask("Name", "What is it called?"))).await;
    assert_snapshot!(masked(&room), @"
    @ann  go on
    ask   The agent asks: `Name`
          ```
          What is it called?
          ```
          Write `/answer CODE` and then your answer. `/deny CODE` refuses to answer.
    ");
    room.says("@ann", &format!("/answer {} #1", asked.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [AskChoice::Text("#1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_decides_nothing_and_says_how() {
    let (gateway, room, asked) = asked(permission()).await;
    let code = &asked.code;
    for (words, said) in [
        (format!("/answer {code} 4"), "There is no such option"),
        (format!("/answer {code} maybe"), "There is no such option"),
        (format!("/answer {code}"), "I understand `/answer`"),
        ("/answer".to_owned(), "I understand `/answer`"),
        (
            "/answer ZZZZ 1".to_owned(),
            "Nothing with the code ZZZZ is waiting for an answer here. Write `/answer`",
        ),
        (format!("/approve {code}"), "This is a question"),
        (format!("/approve {code} session"), "This is a question"),
    ] {
        let before = room.ours().len();
        room.says("@ann", &words).await;
        room.chat.is_quiet(Duration::from_secs(5)).await;
        let answers = room.ours().split_off(before);
        assert!(answers.len() == 1 && answers[0].starts_with(said), "{words:?}: {answers:?}");
    }
    let list = room.ours().into_iter().find(|text| text.starts_with("There is no such option")).unwrap();
    assert!(list.contains("1. `Allow`\n2. `Always allow`\n3. `Reject`"), "{list}");
    assert_eq!((told(&gateway), outcomes(&gateway).await), (vec![], vec![]), "nothing is decided");
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_not_answered_with_an_option() {
    let (gateway, room, asked) = asked(ask("run a command", "rm -r build")).await;
    room.says("@ann", &format!("/answer {} yes", asked.code)).await;
    room.shows(&format!("This asks for permission: `/approve {}` allows it", asked.code)).await;
    assert_eq!(told(&gateway), []);
}

#[tokio::test(start_paused = true)]
async fn a_text_has_a_limit() {
    let (gateway, room, asked) = asked(colours()).await;
    room.says("@ann", &format!("/answer {} {}", asked.code, "ü".repeat(4_001))).await;
    room.shows("An answer has at most 4000 characters").await;
    assert_eq!(told(&gateway), []);
    room.says("@ann", &format!("/answer {} {}", asked.code, "ü".repeat(4_000))).await;
    room.settled().await;
    assert_eq!(told(&gateway), [AskChoice::Text("ü".repeat(4_000))]);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_could_be_two_options_chooses_none() {
    let options = [option("a", "2", OptionKind::Answer), option("b", "4", OptionKind::Answer)];
    let (gateway, room, asked) = asked(choice("How many?", "How many copies?", options)).await;
    room.says("@ann", &format!("/answer {} 2", asked.code)).await;
    room.shows(&format!(
        "That could be more than one of the options, so nothing was decided. `/answer {} #1`",
        asked.code
    ))
    .await;
    assert_eq!(told(&gateway), []);
    room.says("@ann", &format!("/answer {} #1", asked.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [chosen("a")]);
}

#[tokio::test(start_paused = true)]
async fn with_two_open_each_answer_goes_to_its_own_ask() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all([permission(), colours()]);
    room.says("@ann", "go on").await;
    let (first, second) = (room.is_asked("run a command").await, room.is_asked("Colour").await);
    room.chat.is_quiet(Duration::from_secs(5)).await;
    room.says("@ann", "/answer 1").await;
    room.shows("Which one? Write for example `/answer code`").await;
    assert_eq!(told(&gateway), []);
    room.says("@ann", &format!("/answer {} 2", second.code)).await;
    room.shows("Chosen: `blue`, for `Colour`").await;
    room.says("@ann", &format!("/answer {} 3", first.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [chosen("b"), chosen("reject")]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_once() {
    let (gateway, room, asked) = asked(permission()).await;
    let first = room.says("@ann", &format!("/answer {} 1", asked.code)).await;
    room.shows("Chosen: `Allow`").await;
    room.says("@bob", &format!("/answer {} 3", asked.code)).await;
    room.delivers_again(&first).await;
    room.settled().await;
    assert!(
        room.now().contains(&format!("Nothing with the code {} is waiting", asked.code)),
        "{}",
        room.now()
    );
    assert_eq!(told(&gateway), [chosen("allow")]);
    assert_eq!(outcomes(&gateway).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_needs_no_code() {
    for (words, expected) in [("blue", chosen("b")), ("QRST", AskChoice::Text("QRST".to_owned()))] {
        let (gateway, room, asked) = asked(colours()).await;
        let reply_to = Some(EventId::new(asked.message.as_str()));
        let message = IncomingMessage { reply_to, ..IncomingMessage::text(format!("/answer {words}")) };
        room.does(room.event("@ann", RoomEventKind::Message(message))).await;
        room.settled().await;
        assert_eq!(told(&gateway), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_and_a_cross_deny_a_question_and_no_other_mark_answers_it() {
    for cross in [false, true] {
        let (gateway, room, asked) = asked(permission()).await;
        for mark in ["✅", "1", "1️⃣", "Allow"] {
            room.reacts("@ada", &asked.message, mark).await;
        }
        room.chat.is_quiet(Duration::from_secs(5)).await;
        assert_eq!(told(&gateway), []);
        match cross {
            true => _ = room.reacts("@ann", &asked.message, "❌").await,
            false => _ = room.says("@ann", &format!("/deny {}", asked.code)).await,
        }
        room.settled().await;
        assert_eq!(told(&gateway), [AskChoice::Deny(DenyReason::Person)]);
        assert_eq!(outcomes(&gateway).await, ["ask no by @ann:test (denied)"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_chooses_the_only_option_that_allows() {
    let options = [option("y", "Go ahead", OptionKind::AllowOnce), option("n", "No", OptionKind::RejectOnce)];
    let (gateway, room, _) = asked(choice("run a command", "rm -r build", options)).await;
    room.says("@ann", "/approve").await;
    room.settled().await;
    assert!(room.now().contains("Chosen: `Go ahead`, for `run a command`"), "{}", room.now());
    assert_eq!(told(&gateway), [chosen("y")]);
}

#[tokio::test(start_paused = true)]
async fn an_option_that_allows_for_ever_is_for_admins() {
    let (gateway, room, asked) = asked(permission()).await;
    room.says("@ann", &format!("/answer {} 2", asked.code)).await;
    room.shows("Only admins can choose `Always allow`").await;
    assert_eq!(told(&gateway), []);
    room.says("@ada", &format!("/answer {} 2", asked.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [chosen("always")]);
    let audit = gateway.store().read(|tx| tx.audited(&Default::default())).await.unwrap();
    let decided: Vec<_> = audit
        .iter()
        .filter(|row| row.action == "approve always")
        .map(|row| (&*row.actor, row.allowed))
        .collect();
    assert_eq!(decided, [("@ann:test", false), ("@ada:test", true)]);
}

#[tokio::test(start_paused = true)]
async fn an_option_is_no_grant_for_the_next_time() {
    let (gateway, room, asked) = asked(permission()).await;
    room.says("@ada", &format!("/answer {} 2", asked.code)).await;
    room.settled().await;
    gateway.agent().asks_all([permission()]);
    room.says("@ann", "again").await;
    room.chat.until("it is asked again", || room.asked().get(1).map(drop)).await;
    // The approval of the same action without options is another ask.
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ada", "/deny").await;
    room.says("@ann", "once more").await;
    room.is_asked("The agent asks for permission").await;
}

#[tokio::test(start_paused = true)]
async fn a_label_cannot_pretend_to_be_more_than_a_label() {
    let options = [
        option("a", "Yes`\n\n2. `No", OptionKind::Answer),
        option("b", "# Approved\n```\n`/answer` is not needed", OptionKind::AllowOnce),
        option("c", "\u{202e}on\u{202c} **now** [x](http://y)", OptionKind::RejectOnce),
    ];
    let (gateway, room, asked) = asked(choice("Really?", "Shall I?", options)).await;
    assert_snapshot!(masked(&room), @"
    @ann  go on
    ask   The agent asks: `Really?`
          ```
          Shall I?
          ```
          1. `Yes'␊␊2. 'No`
          2. `# Approved␊'''␊'/answer' is not needed`
          3. `⟨U+202E⟩on⟨U+202C⟩ **now** [x](http://y)`
          `/answer CODE 1` chooses the first option; its text works instead of the number, too. `/deny CODE` refuses to answer.
    ");
    room.says("@ann", &format!("/answer {} 3", asked.code)).await;
    room.settled().await;
    assert_eq!(told(&gateway), [chosen("c")]);
}

#[tokio::test(start_paused = true)]
async fn options_that_cannot_be_shown_in_full_are_denied_and_said_so() {
    let one = |label: String| choice("Odd", "Shall I?", [option("a", &label, OptionKind::Answer)]);
    let many = (0..200).map(|n| option(&n.to_string(), "x", OptionKind::AllowOnce));
    let twins = [option("a", "Yes", OptionKind::AllowOnce), option("a", "No", OptionKind::RejectOnce)];
    for odd in [
        one("x".repeat(10_000)),
        one(String::new()),
        choice("Odd", "Shall I?", many),
        choice("Odd", "Shall I?", twins),
        choice("Odd", "Shall I?", [option("", "Yes", OptionKind::AllowOnce)]),
        choice("Odd", " ", [option("a", "Yes", OptionKind::AllowOnce)]),
    ] {
        let gateway = gateway().await;
        let room = gateway.room();
        gateway.agent().asks_all([odd.clone()]).says(["Then not."]);
        room.says("@ann", "go on").await;
        room.settled().await;
        assert!(
            room.now().contains("cannot be shown here in full and so nobody could judge it: `Odd`"),
            "{odd:?}"
        );
        assert_eq!((room.asked().len(), told(&gateway)), (0, vec![AskChoice::Deny(DenyReason::TooLong)]));
        assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (too long)"]);
    }
    // The same options fit a network with long messages, and not one with short ones.
    let long = || {
        choice(
            "Long",
            "Shall I?",
            (0..20).map(|n| option(&n.to_string(), &"x".repeat(150), OptionKind::Answer)),
        )
    };
    for (max_text, shown) in [(400, 0), (10_000, 1)] {
        let gateway = TestGateway::with(Setup { max_text, rules: people(), ..Setup::default() }).await;
        let room = gateway.room();
        gateway.agent().asks_all([long()]);
        room.says("@ann", "go on").await;
        room.shows("`Long`").await;
        assert_eq!(room.asked().len(), shown, "{max_text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_leaves_no_question_that_anybody_could_answer() {
    let mut gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all([colours()]);
    room.says("@ann", "go on").await;
    let asked = room.is_asked("Colour").await;
    gateway.kill().await;
    room.posts("@ann", &format!("/answer {} 1", asked.code), Vec::new());
    gateway.restart().await;
    room.settled().await;
    assert!(room.now().contains("Denied, because the gateway restarted: `Colour`"), "{}", room.now());
    assert!(room.now().contains(&format!("Nothing with the code {}", asked.code)), "{}", room.now());
    assert_eq!(told(&gateway), []);
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (restart)"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_goes_on_in_the_next_process_is_asked_and_answered_again() {
    let mut gateway = TestGateway::with(Setup { resumable: true, rules: people(), ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().asks_all([colours()]);
    gateway.agent().asks_all([colours()]).says(["Blue it is."]);
    room.says("@ann", "go on").await;
    room.is_asked("Colour").await;
    gateway.restart().await;
    room.chat.until("it is asked again", || room.asked().get(1).map(drop)).await;
    room.chat.is_quiet(Duration::from_secs(10)).await;
    room.says("@ann", "/answer blue").await;
    room.settled().await;
    assert!(room.now().contains("Blue it is."), "{}", room.now());
    assert_eq!(told(&gateway).last(), Some(&chosen("b")));
    let expected = ["ask no by (gateway) (restart)", "ask answer yes by @ann:test (answered)"];
    assert_eq!(outcomes(&gateway).await, expected);
}
