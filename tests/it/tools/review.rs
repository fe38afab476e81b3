//! The background review: when it comes, what it gets, and that it disturbs nobody.

use insta::assert_snapshot;
use reqwest::Method;
use serde_json::json;
use talaria::config::{BuiltinTool, ReviewConfig};
use talaria::ids::AgentName;
use talaria::rules::BudgetConfig;

use super::support::{agent_using, built, calls, config_with, offered, says_using, shown, system, told};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::logged::Logged;
use crate::support::served::{Served, settings};
use crate::support::upstream::{Answer, Request, Upstream};

/// The line of a room in which a note was written.
pub const NOTED: &str = "(I noted something for later; /memory shows it.)";

fn at(memory: u32, skills: u32) -> Setup {
    Setup { review: ReviewConfig { memory, skills, agent: None }, ..Setup::default() }
}

/// Whether a request is one of a review.
pub fn is_review(request: &Request) -> bool {
    system(request).starts_with("You look over a conversation")
}

/// Every request so far: `R` is one of a review, `q` any other.
pub fn order(upstream: &Upstream) -> String {
    upstream.prompts().iter().map(|prompt| if is_review(prompt) { 'R' } else { 'q' }).collect()
}

/// Asks something that the model answers with the same words in capital letters.
async fn asks(gateway: &TestGateway, upstream: &Upstream, words: &str) {
    let answer = words.to_uppercase();
    upstream.answers(Answer::says([answer.as_str()]));
    gateway.room().says("@ann", words).await;
    shown(gateway, &answer).await;
}

/// A call of the tool `memory` that adds a note.
pub fn notes(text: &str) -> Answer {
    calls("", &[("n", "memory", &json!({ "action": "add", "text": text }).to_string())])
}

#[tokio::test]
async fn a_review_comes_at_the_threshold_and_then_after_as_many_turns_again() {
    let upstream = Upstream::plain().await;
    let tools = [BuiltinTool::Memory, BuiltinTool::Skills];
    let gateway = agent_using(&upstream, &tools, at(2, 2)).await;
    asks(&gateway, &upstream, "one").await;
    asks(&gateway, &upstream, "two").await;
    upstream.has_prompts(3).await;
    asks(&gateway, &upstream, "three").await;
    asks(&gateway, &upstream, "four").await;
    upstream.has_prompts(6).await;
    asks(&gateway, &upstream, "five").await;
    assert_eq!(order(&upstream), "qqRqqRq");

    let review = &upstream.prompts()[2];
    assert_eq!(offered(review), ["memory"], "only what the review is about");
    let said = told(review);
    assert_eq!(said.len(), 1, "a snapshot, and no turn of the conversation: {said:?}");
    for line in ["[person] one", "[assistant] ONE", "[person] two", "[assistant] TWO"] {
        assert!(said[0].contains(line), "{line}: {}", said[0]);
    }
    assert!(!said[0].contains("three"), "{}", said[0]);
    // The conversation knows nothing of its reviews.
    assert_eq!(told(&upstream.prompts()[3])[3..], ["assistant: TWO", "user: three"]);
    assert_snapshot!(gateway.room().now(), @r"
    @ann  one
    bot   ONE
    @ann  two
    bot   TWO
    @ann  three
    bot   THREE
    @ann  four
    bot   FOUR
    @ann  five
    bot   FIVE
    ");
}

#[tokio::test]
async fn the_counters_go_on_after_a_restart() {
    let upstream = Upstream::plain().await;
    let tools = [BuiltinTool::Memory, BuiltinTool::Skills];
    let mut gateway = agent_using(&upstream, &tools, at(3, 2)).await;
    let list = || calls("", &[("a", "skills", r#"{"action":"list"}"#)]);
    upstream.answers(list());
    asks(&gateway, &upstream, "one").await;
    gateway.restart().await;
    asks(&gateway, &upstream, "two").await;
    // The second round of tools, one before the restart and one after it.
    upstream.answers(list());
    asks(&gateway, &upstream, "three").await;
    upstream.has_prompts(6).await;
    gateway.restart().await;
    // The counters were reset together with the start of the review, also for the next process.
    asks(&gateway, &upstream, "four").await;
    asks(&gateway, &upstream, "five").await;
    assert_eq!(order(&upstream), "qqqqqRqq");
    assert_eq!(offered(&upstream.prompts()[5]), ["memory", "skills"]);
}

#[tokio::test]
async fn skills_are_counted_by_tool_rounds() {
    let upstream = Upstream::plain().await;
    let tools = [BuiltinTool::Memory, BuiltinTool::Skills];
    let gateway = agent_using(&upstream, &tools, at(0, 3)).await;
    asks(&gateway, &upstream, "no tools").await;
    let list =
        || calls("", &[("a", "skills", r#"{"action":"list"}"#), ("b", "memory", r#"{"action":"list"}"#)]);
    upstream.answers(list()).answers(list());
    asks(&gateway, &upstream, "two rounds").await;
    asks(&gateway, &upstream, "none again").await;
    upstream.answers(list());
    asks(&gateway, &upstream, "the third").await;
    upstream.has_prompts(8).await;
    assert_eq!(order(&upstream), "qqqqqqqR");
    assert_eq!(offered(&upstream.prompts()[7]), ["skills"]);
}

#[tokio::test]
async fn one_review_may_be_about_both() {
    let upstream = Upstream::plain().await;
    let tools = [BuiltinTool::Memory, BuiltinTool::Skills];
    let gateway = agent_using(&upstream, &tools, at(1, 1)).await;
    let skill =
        json!({ "action": "write", "name": "brew", "description": "How to brew tea", "body": "Boil it." });
    upstream
        .answers(calls("", &[("a", "skills", r#"{"action":"list"}"#)]))
        .answers(Answer::says(["Listed."]))
        .answers(calls(
            "",
            &[
                ("n", "memory", r#"{"action":"add","text":"Ann likes tea"}"#),
                ("s", "skills", &skill.to_string()),
            ],
        ));
    gateway.room().says("@ann", "list").await;
    gateway.room().shows("(I noted something and wrote down").await;
    gateway.room().says("@ann", "/skills").await;
    gateway.room().shows("brew").await;
    assert_snapshot!(gateway.room().now(), @r"
    @ann  list
    bot   Listed.
    note  (I noted something and wrote down how to do something; /memory and /skills show it.)
    @ann  /skills
    note  Skills of the agent:
          - brew: How to brew tea (written by an agent)
          `/skills NAME` shows one of them.
    ");
    assert_eq!(offered(&upstream.prompts()[2]), ["memory", "skills"]);
    assert_eq!(order(&upstream), "qqRR");
}

#[tokio::test]
async fn an_agent_that_cannot_keep_anything_is_not_reviewed() {
    let upstream = Upstream::plain().await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = config_with(&upstream, &[BuiltinTool::ReadFile]);
    config.workspace = Some(folder.path().join("work"));
    let build = Some(built(vec![(AgentName::proxy(), config)]));
    let mut gateway = TestGateway::with(Setup { build, ..at(1, 1) }).await;
    upstream.answers(calls("", &[("a", "read_file", r#"{"path":"x"}"#)]));
    for words in ["one", "two", "three"] {
        asks(&gateway, &upstream, words).await;
    }
    gateway.drain().await;
    assert_eq!(order(&upstream), "qqqq");
}

#[tokio::test]
async fn a_note_of_a_review_is_one_quiet_line_and_stands_in_the_next_prompt() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    upstream.answers(Answer::says(["Hello Ann."])).answers(notes("Ann likes tea"));
    upstream.answers(Answer::says(["Nobody reads this."]));
    gateway.room().says("@ann", "I am Ann and like tea").await;
    gateway.room().shows(NOTED).await;
    gateway.room().says("@ann", "/memory").await;
    assert_snapshot!(shown(&gateway, "1. Ann likes tea").await, @r"
    @ann  I am Ann and like tea
    bot   Hello Ann.
    note  (I noted something for later; /memory shows it.)
    @ann  /memory
    note  Notes about you, for your direct chats with me:
          1. Ann likes tea
          `/memory forget NUMBER` removes a note, `/memory add TEXT` adds one.
    ");
    asks(&gateway, &upstream, "and?").await;
    let prompts = upstream.prompts();
    assert!(system(&prompts[3]).contains("1. Ann likes tea"), "{}", system(&prompts[3]));
    assert_eq!(order(&upstream)[..4], *"qRRq");
}

#[tokio::test]
async fn a_review_that_keeps_nothing_says_nothing() {
    let upstream = Upstream::plain().await;
    let mut gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    upstream.answers(Answer::says(["Hello."])).answers(calls("", &[("a", "memory", r#"{"action":"list"}"#)]));
    upstream.answers(Answer::says(["Nothing to note."]));
    gateway.room().says("@ann", "hi").await;
    upstream.has_prompts(3).await;
    shown(&gateway, "Hello.").await;
    asks(&gateway, &upstream, "still there?").await;
    gateway.drain().await;
    assert_snapshot!(gateway.room().now(), @r"
    @ann  hi
    bot   Hello.
    @ann  still there?
    bot   STILL THERE?
    ");
}

#[tokio::test]
async fn a_review_that_fails_or_hangs_disturbs_nothing() {
    let upstream = Upstream::plain().await;
    let mut gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    upstream.answers(Answer::says(["Hello."])).answers(Answer::status(400, "{}"));
    gateway.room().says("@ann", "hi").await;
    upstream.has_prompts(2).await;
    shown(&gateway, "Hello.").await;
    upstream.answers(Answer::says(["Yes?"])).answers(Answer::stream().hangs());
    gateway.room().says("@ann", "hello?").await;
    upstream.has_prompts(4).await;
    shown(&gateway, "Yes?").await;
    asks(&gateway, &upstream, "are you well?").await;
    assert_eq!(order(&upstream), "qRqRq", "one review at a time");
    // The end of the process does not wait for it.
    gateway.drain().await;
    assert_snapshot!(gateway.room().now(), @r"
    @ann  hi
    bot   Hello.
    @ann  hello?
    bot   Yes?
    @ann  are you well?
    bot   ARE YOU WELL?
    ");
}

#[tokio::test]
async fn reviews_that_wait_for_a_slow_one_are_limited() {
    let logged = Logged::listen();
    let upstream = Upstream::plain().await;
    upstream.answers_by(|request| match is_review(request) {
        true => Answer::stream().hangs(),
        false => Answer::says(["ok"]),
    });
    let mut gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    let dropped = || logged.with("a conversation is not reviewed, because too many others wait").len();
    // One runs, and sixteen wait.
    for number in 0..18 {
        assert_eq!(dropped(), 0, "{number}");
        let room = gateway.direct_room(&format!("!room-{number}"));
        room.says("@ann", "hi").await;
        room.shows("ok").await;
    }
    while dropped() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(order(&upstream).matches('R').count(), 1, "one review at a time");
    gateway.drain().await;
    assert_eq!(dropped(), 1);
}

#[tokio::test]
async fn a_note_of_a_review_that_broke_off_is_told_too() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    upstream.answers(Answer::says(["Hello."])).answers(notes("Ann likes tea"));
    upstream.answers(Answer::status(400, "{}"));
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows(NOTED).await;
}

#[tokio::test]
async fn another_agent_may_do_the_reviews() {
    let (upstream, reviewer) = (Upstream::plain().await, Upstream::plain().await);
    let mut config = config_with(&reviewer, &[BuiltinTool::Memory]);
    config.model = "cheap".to_owned();
    let build = built(vec![
        (AgentName::proxy(), config_with(&upstream, &[BuiltinTool::Memory, BuiltinTool::Skills])),
        (AgentName::local(), config),
    ]);
    let review = ReviewConfig { memory: 2, skills: 2, agent: Some(AgentName::local()) };
    let gateway = TestGateway::with(Setup { build: Some(build), review, ..Setup::default() }).await;
    reviewer.answers(notes("Ann likes tea"));
    asks(&gateway, &upstream, "one").await;
    assert_eq!(reviewer.prompts().len(), 0);
    asks(&gateway, &upstream, "two").await;
    gateway.room().shows(NOTED).await;
    assert_eq!((order(&upstream).as_str(), order(&reviewer).as_str()), ("qq", "RR"));
    let review = &reviewer.prompts()[0];
    assert_eq!(review.json()["model"], "cheap");
    assert!(told(review)[0].contains("[person] one"));
    // The notes are those of the person, whichever agent wrote them.
    asks(&gateway, &upstream, "three").await;
    assert!(system(&upstream.prompts()[2]).contains("Ann likes tea"));
}

#[tokio::test]
async fn the_tokens_of_a_review_count() {
    let upstream = Upstream::plain().await;
    let budget = BudgetConfig { person: Some(1000), agent: None };
    let gateway = agent_using(&upstream, &[BuiltinTool::Memory], Setup { budget, ..at(1, 0) }).await;
    upstream.answers(says_using("Hello.", 60, 40)).answers(notes("Ann likes tea"));
    upstream.answers(says_using("Done.", 700, 85));
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("Of your 1000 tokens for 24 hours, 100 are left").await;
    gateway.room().says("@ann", "/usage").await;
    gateway.room().shows("Your budget: 900 of 1000 tokens used").await;
}

#[tokio::test]
async fn a_review_by_a_server_that_reports_no_tokens_counts_too() {
    let upstream = Upstream::plain().await;
    let budget = BudgetConfig { person: Some(100_000), agent: None };
    let mut gateway = agent_using(&upstream, &[BuiltinTool::Memory], Setup { budget, ..at(1, 0) }).await;
    // The turn takes 100 tokens; the review is estimated.
    upstream.answers(says_using("Hello.", 60, 40)).answers(Answer::says(["Nothing to note."]));
    gateway.room().says("@ann", "hi").await;
    upstream.has_prompts(2).await;
    shown(&gateway, "Hello.").await;
    let used = async |gateway: &TestGateway| {
        let payer = talaria::store::TokenPayer::person("test", "@ann:test");
        let used = gateway.store().read(move |tx| tx.tokens_used(talaria::store::TokenBudget::Payer(&payer)));
        used.await.unwrap()
    };
    let waiting = async { while used(&gateway).await <= 100 {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.expect("the review counts");
    let sent = upstream.prompts()[1].body.len() as u64 / 4;
    let review = used(&gateway).await - 100;
    assert!((sent / 3..=sent).contains(&review), "{review} of about {sent}");
    gateway.drain().await;
}

#[tokio::test]
async fn a_used_up_budget_pays_for_no_review() {
    let upstream = Upstream::plain().await;
    let budget = BudgetConfig { person: Some(100), agent: None };
    let mut gateway = agent_using(&upstream, &[BuiltinTool::Memory], Setup { budget, ..at(1, 0) }).await;
    upstream.answers(says_using("Hello.", 60, 40));
    gateway.room().says("@ann", "hi").await;
    gateway.room().shows("are used up. They become free").await;
    gateway.room().says("@ann", "and?").await;
    gateway.room().shows("so nothing was asked").await;
    gateway.drain().await;
    assert_eq!(order(&upstream), "q");
}

#[tokio::test]
async fn an_app_has_reviews_for_its_session_key_only() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Memory], at(1, 0)).await;
    let served = Served::of(gateway, settings()).await;
    let ask = async |key: Option<&str>| {
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        let request = served.request(Method::POST, "/v1/chat/completions").body(body.to_string());
        let request = key.into_iter().fold(request, |one, key| one.header("x-hermes-session-key", key));
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    ask(None).await;
    upstream.answers(Answer::says(["so"])).answers(notes("Ann likes tea"));
    ask(Some("ann")).await;
    upstream.has_prompts(4).await;
    served.gateway.idle().await;
    assert_eq!(order(&upstream), "qqRR");
    ask(Some("bob")).await;
    ask(Some("ann")).await;
    let asked: Vec<_> = upstream.prompts().into_iter().filter(|prompt| !is_review(prompt)).collect();
    let knows: Vec<_> = asked.iter().map(|prompt| system(prompt).contains("Ann likes tea")).collect();
    assert_eq!(knows, [false, false, false, true]);
}
