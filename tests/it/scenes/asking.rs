//! A question that still waits can be changed or taken back, by its author.

use insta::assert_snapshot;

use crate::support::gateway::TestGateway;

#[tokio::test(start_paused = true)]
async fn an_edited_question_that_waits_is_asked_as_edited() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    let asked = room.says("@ann", "tow").await;
    room.edits("@ann", &asked, "two").await;
    room.edits("@eve", &asked, "something else").await;
    agent.goes_on();
    room.settled().await;

    let heard: Vec<_> = gateway.agent_itself().heard().into_iter().map(|turn| turn.prompt).collect();
    assert_eq!(heard, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_question_that_waits_is_not_asked() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().says(["The first answer"]).then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    room.settled().await;
    let asked = room.says("@ann", "two").await;
    room.settled().await;
    room.deletes("@ann", &asked).await;
    agent.goes_on();

    assert_snapshot!(room.settled().await, @r"
    @ann  one
    bot   The first answer
    @ann  two
    note  Noted; one is before it. /stop ends all of them.
    note  Not run: it was stopped before its turn came.
    ");
    assert_eq!(gateway.agent_itself().heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_else_can_delete_a_question() {
    let gateway = TestGateway::start().await;
    let room = gateway.room();
    let agent = gateway.agent().then_hangs();

    room.says("@ann", "one").await;
    agent.is_hanging().await;
    let asked = room.says("@ann", "two").await;
    room.deletes("@eve", &asked).await;
    agent.goes_on();
    room.settled().await;

    assert_eq!(gateway.agent_itself().heard().len(), 2);
}
