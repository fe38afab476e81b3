//! An ask shows the whole action that would run, and nothing can hide in it.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::agent::{AnswerForm, Ask, AskChoice, DenyReason};

use super::{gateway, outcomes, people, settled};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::scripted::ask;

#[tokio::test(start_paused = true)]
async fn nothing_hides_in_a_question_and_nothing_gets_out_of_it() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway.agent().asks_all([Ask {
        title: "list files`\n\n# Approved".into(),
        detail: "ls \u{202e}fr- mr\u{202c}; \u{1b}[2K\rtrue\n```\n`/approve` is not needed".to_owned(),
        cwd: Some("/home/ann\n/tmp".to_owned()),
        is_elsewhere: false,
        reason: Some("It is `safe`.\n\n`/approve` it".to_owned()),
        form: AnswerForm::default(),
        gap: None,
    }]);

    room.says("@ann", "what is there?").await;
    room.is_asked("list files").await;
    room.says("@ann", "/deny").await;

    assert_snapshot!(settled(&room).await, @"
    @ann  what is there?
    ask   The agent asks for permission: `list files'␊␊# Approved`
          ````
          ls ⟨U+202E⟩fr- mr⟨U+202C⟩; ␛[2K␍true
          ```
          `/approve` is not needed
          ````
          in `/home/ann␊/tmp`
          The agent's reason: `It is 'safe'.␊␊'/approve' it`
          `/approve CODE` allows it once, `/deny CODE` refuses it. Add `session` to be asked this only once in this conversation.
    @ann  /deny
    note  Denied: `list files'␊␊# Approved`
    bot   (No response from remote agent)
    ");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_denied_at_once_and_said() {
    let gateway = TestGateway::with(Setup { max_text: 400, rules: people(), ..Setup::default() }).await;
    let room = gateway.room();
    // Fits as it is, but not once its hidden characters are made visible.
    let hidden = "\u{202e}".repeat(60);
    gateway.agent().asks_all([ask("long", &"x".repeat(400)), ask("hidden", &hidden), ask("nothing", " \n")]);

    room.says("@ann", "clean up").await;
    room.settled().await;

    assert_eq!(room.asked().len(), 0);
    for title in ["long", "hidden", "nothing"] {
        let said = format!("cannot be shown here in full and so nobody could judge it: `{title}`");
        assert!(room.now().contains(&said), "{}", room.now());
    }
    assert!(
        gateway
            .agent_itself()
            .answers()
            .iter()
            .all(|answer| answer.choice == AskChoice::Deny(DenyReason::TooLong))
    );
    assert_eq!(outcomes(&gateway).await, ["ask no by (gateway) (too long)"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_just_fits_is_shown_whole() {
    let gateway = TestGateway::with(Setup { max_text: 400, rules: people(), ..Setup::default() }).await;
    let room = gateway.room();
    gateway.agent().asks("measure", "x");
    room.says("@ann", "one").await;
    let free = 400 - room.is_asked("measure").await.text.len();
    room.says("@ann", "/deny").await;
    room.settled().await;
    let (fits, too_long) = ("x".repeat(free + 1), "x".repeat(free + 2));
    gateway.agent().asks_all([ask("measure", &fits), ask("measure", &too_long)]);
    room.says("@ann", "two").await;
    room.shows("cannot be shown here in full").await;
    let asked = room.is_asked(&fits).await;
    assert_eq!((room.asked().len(), asked.text.len()), (2, 400));
}

#[tokio::test(start_paused = true)]
async fn a_wording_without_the_action_lets_nothing_be_approved() {
    let gateway = gateway().await;
    let room = gateway.room();
    let mut rules = talaria::rules::Rules {
        accounts: [("test".into(), std::sync::Arc::new(people()))].into(),
        agents: crate::support::gateway::open_agents(),
        ..talaria::rules::Rules::default()
    };
    rules.words.reword("ask", "May I? `/approve {code}` {title}").unwrap();
    gateway.reload_all(rules);
    gateway.agent().asks("run a command", "rm -r build");
    room.says("@ann", "clean up").await;
    room.settled().await;
    let told = &gateway.agent_itself().answers()[0].choice;
    assert_eq!((room.asked().len(), told), (0, &AskChoice::Deny(DenyReason::TooLong)));
}

#[tokio::test(start_paused = true)]
async fn a_question_does_not_wait_for_the_end_of_the_growing_answer() {
    let gateway = gateway().await;
    let room = gateway.room();
    gateway
        .agent()
        .says_slowly(Duration::from_secs(1), ["Let ", "me ", "see. "])
        .asks("run a command", "ls")
        .says_slowly(Duration::from_secs(1), ["There ", "is ", "nothing."]);

    room.says("@ann", "what is there?").await;
    let asked = room.is_asked("run a command").await;
    assert!(room.now().contains("bot…"), "{}", room.now());
    room.chat.is_quiet(Duration::from_secs(1)).await;
    room.says("@ann", &format!("/approve {}", asked.code)).await;
    room.settled().await;
    assert!(room.now().contains("Let me see. There is nothing."), "{}", room.now());
}

#[tokio::test(start_paused = true)]
async fn an_agent_cannot_ask_more_than_people_can_answer() {
    let gateway = gateway().await;
    let room = gateway.room();
    let many: Vec<_> = (0..20).map(|number| ask(&format!("action {number}"), "x")).collect();
    gateway.agent().asks_all(many).says(["Enough."]);

    room.says("@ann", "clean up").await;
    room.shows("asks for more than anybody could answer").await;
    room.shows("Enough.").await;

    assert_eq!(room.asked().len(), 8);
    let told = room.ours().iter().filter(|text| text.contains("more than anybody")).count();
    assert_eq!(told, 1, "said once");
    let outcomes = outcomes(&gateway).await;
    let count = |rule: &str| outcomes.iter().filter(|line| line.contains(rule)).count();
    assert_eq!((count("(too many)"), count("(timeout)")), (12, 8));
    let mut codes: Vec<_> = room.asked().into_iter().map(|asked| asked.code).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), 8, "every open question has a code of its own");
}
