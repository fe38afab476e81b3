//! Budgets of tokens: a turn without tokens is not asked, and people are told before and at the limit.

use std::time::Duration;

use insta::assert_snapshot;
use talaria::rules::BudgetConfig;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn gateway(person: Option<u64>, agent: Option<u64>) -> TestGateway {
    TestGateway::with(Setup { budget: BudgetConfig { person, agent }, ..Setup::default() }).await
}

/// Asks something that takes this many tokens.
async fn uses(gateway: &TestGateway, room: &Room, who: &str, tokens: u64) {
    gateway.agent().says(["so"]).uses(tokens / 2, tokens - tokens / 2);
    room.says(who, "ask").await;
    room.settled().await;
}

/// The room without the times of the day.
fn shown(room: &Room) -> String {
    let text = room.now();
    let mut clean = String::new();
    for line in text.lines() {
        match line.split_once(" after ").and_then(|(before, rest)| Some((before, rest.split_once(" UTC")?.1)))
        {
            Some((before, rest)) => clean.push_str(&format!("{before} after TIME UTC{rest}\n")),
            None => clean.push_str(&format!("{line}\n")),
        }
    }
    clean
}

fn left(gateway: &TestGateway) -> Vec<Option<u64>> {
    gateway.agent_itself().heard().into_iter().map(|heard| heard.tokens_left).collect()
}

#[tokio::test(start_paused = true)]
async fn a_person_is_told_before_the_limit_and_at_it_and_then_nothing_is_asked() {
    let gateway = gateway(Some(1000), None).await;
    let room = gateway.room();
    for tokens in [700, 150, 50, 200] {
        uses(&gateway, &room, "@ann", tokens).await;
    }
    room.says("@ann", "more?").await;
    room.settled().await;
    assert_snapshot!(shown(&room), @r"
    @ann  ask
    bot   so
    @ann  ask
    bot   so
    note  Of your 1000 tokens for 24 hours, 150 are left. /usage shows what was used.
    @ann  ask
    bot   so
    @ann  ask
    bot   so
    note  Your 1000 tokens for 24 hours are used up. They become free again as the hours pass; /usage shows how many are left.
    @ann  more?
    note  ⚠️ Your 1000 tokens for 24 hours are used up, so nothing was asked. Please try again after TIME UTC; /usage shows what was used.
    ");
    assert_eq!(left(&gateway), [Some(1000), Some(300), Some(150), Some(100)], "nothing was sent after that");
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_person_count_everywhere_and_for_nobody_else() {
    let gateway = gateway(Some(1000), None).await;
    let (room, other) = (gateway.shared_room(), gateway.direct_room("!ann"));
    uses(&gateway, &room, "@ann", 600).await;
    uses(&gateway, &other, "@ann", 600).await;
    // A new conversation, and taking the question back, give nothing back.
    for text in ["/undo", "/new"] {
        other.says("@ann", text).await;
        other.settled().await;
    }
    room.says("@ann", "may I?").await;
    room.settled().await;
    assert!(room.ours().pop().unwrap().contains("are used up, so nothing was asked"));
    uses(&gateway, &room, "@bob", 10).await;
    assert_eq!(left(&gateway), [Some(1000), Some(400), Some(1000)]);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_free_again_after_a_day() {
    let gateway = gateway(Some(1000), None).await;
    let room = gateway.room();
    uses(&gateway, &room, "@ann", 900).await;
    tokio::time::sleep(10 * HOUR).await;
    uses(&gateway, &room, "@ann", 900).await;
    tokio::time::sleep(13 * HOUR).await;
    room.says("@ann", "too early").await;
    room.settled().await;
    assert!(room.ours().pop().unwrap().contains("are used up, so nothing was asked"));
    tokio::time::sleep(HOUR).await;
    uses(&gateway, &room, "@ann", 10).await;
    assert_eq!(left(&gateway), [Some(1000), Some(100), Some(100)]);
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_an_agent_are_for_everybody_together() {
    let gateway = gateway(Some(1000), Some(1500)).await;
    let (room, other) = (gateway.shared_room(), gateway.direct_room("!bob"));
    uses(&gateway, &room, "@ann", 700).await;
    uses(&gateway, &other, "@bob", 600).await;
    uses(&gateway, &room, "@eve", 200).await;
    other.says("@bob", "more?").await;
    other.settled().await;
    assert_snapshot!(shown(&other), @r"
    @bob  ask
    bot   so
    note  Of the 1500 tokens that everybody together may use with the agent proxy in 24 hours, 200 are left. /usage shows what was used.
    @bob  more?
    note  ⚠️ The 1500 tokens that everybody together may use with the agent proxy in 24 hours are used up, so nothing was asked. Please try again after TIME UTC.
    ");
    assert!(room.now().ends_with(
        "note  The 1500 tokens that everybody together may use with the agent proxy in 24 hours are used up.\n"
    ));
    assert_eq!(left(&gateway), [Some(1000), Some(800), Some(200)], "the least of both counts");
    // Another agent has tokens of its own.
    other.says("@bob", "/agent local").await;
    other.says("@bob", "and you?").await;
    other.settled().await;
    assert_eq!(gateway.stand_in().heard()[0].tokens_left, Some(400));
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_budget() {
    let mut gateway = gateway(Some(100), None).await;
    let room = gateway.room();
    uses(&gateway, &room, "@ann", 100).await;
    gateway.setup().budget.person = Some(200);
    gateway.reload(Setup::default().rules);
    uses(&gateway, &room, "@ann", 10).await;
    gateway.setup().budget.person = None;
    gateway.reload(Setup::default().rules);
    uses(&gateway, &room, "@ann", 1_000_000).await;
    assert_eq!(left(&gateway), [Some(100), Some(100), None]);
}

#[tokio::test(start_paused = true)]
async fn usage_shows_the_budgets_and_what_is_left() {
    let gateway = gateway(Some(1000), Some(5000)).await;
    let room = gateway.shared_room();
    uses(&gateway, &room, "@ann", 300).await;
    uses(&gateway, &room, "@bob", 100).await;
    room.says("@ann", "/usage").await;
    room.settled().await;
    assert_snapshot!(room.ours().pop().unwrap(), @r"
    This conversation: questions: 2, tokens in: 200, tokens out: 200.
    You, in the last 24 hours: questions: 1, tokens in: 150, tokens out: 150.
    You, in the last 30 days: questions: 1, tokens in: 150, tokens out: 150.
    Your budget: 300 of 1000 tokens used in the last 24 hours, 700 left.
    Budget of the agent proxy, for everybody together: 400 of 5000 tokens used in the last 24 hours, 4600 left.
    ");
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_no_tokens() {
    let mut gateway = gateway(Some(1000), None).await;
    let room = gateway.room();
    uses(&gateway, &room, "@ann", 1000).await;
    gateway.restart().await;
    room.says("@ann", "may I?").await;
    room.settled().await;
    assert!(room.ours().pop().unwrap().contains("are used up, so nothing was asked"));
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_silences_the_notices_but_not_the_refusal() {
    let mut setup = Setup { budget: BudgetConfig { person: Some(10), agent: None }, ..Setup::default() };
    setup.words.reword("budget_person_reached", "").unwrap();
    let gateway = TestGateway::with(setup).await;
    let room = gateway.room();
    uses(&gateway, &room, "@ann", 10).await;
    assert_eq!(room.ours(), ["so"]);
    room.says("@ann", "more?").await;
    room.settled().await;
    assert!(room.ours().pop().unwrap().contains("are used up"));
}
