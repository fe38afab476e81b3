//! What people see of a stored database that goes on.

use insta::assert_snapshot;
use talaria::agent::MessageRole;

use super::left_behind;
use crate::support::room::What;

/// Key of the first message of the final that was not sent.
const UNSENT: &str = "t.5699617bc4b3ed72.0";

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_its_ask_is_denied_and_the_next_one_is_answered() {
    let mut gateway = left_behind().await;
    gateway.agent().when("clean up").says(["Looking around. ", "All is clean."]);
    gateway.agent().when("and then?").says(["Then we rest."]);
    gateway.restart().await;

    let home = gateway.direct_room("!home");
    assert_snapshot!(home.settled().await, @r"
    @ann  when is tea?
    @ann  clean up
    @ann  and then?
    bot   Tea is at four.
    bot   Looking around. All is clean.
    ask   May I delete the build?
    note  Noted; one is before it. /stop ends all of them.
    bot   Then we rest.
    note  Denied, because the gateway restarted: `delete the build`
    ");
    let heard = gateway.agent_itself().heard();
    let goes_on = heard.iter().find(|turn| turn.prompt == "clean up").unwrap();
    assert!(goes_on.resumed);
    assert_eq!(goes_on.request, "scripted, request 2: clean up", "the stored bytes are sent again");
    assert_eq!(goes_on.key, "5d7dd750c6096029ff0933421fbd3d1ff031d36a601d3e7ef4a68a3b1908e636");
    let waited = heard.iter().find(|turn| turn.prompt == "and then?").unwrap();
    assert!(!waited.resumed);
    let said: Vec<_> = waited.history.iter().map(|one| (one.role, one.content.as_str())).collect();
    let (user, assistant) = (MessageRole::User, MessageRole::Assistant);
    assert_eq!(
        said,
        [
            (user, "when is tea?"),
            (assistant, "Tea is at four."),
            (user, "clean up"),
            (assistant, "Looking around. All is clean."),
        ]
    );
    assert_eq!(heard.iter().filter(|turn| turn.prompt == "and then?").count(), 1);

    home.says("@ann", "/approve QDQW").await;
    home.shows("Nothing with the code QDQW").await;
    assert_eq!(gateway.agent_itself().ran(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_final_that_was_not_sent_is_delivered_exactly_once() {
    let mut gateway = left_behind().await;
    gateway.restart().await;

    let all = gateway.direct_room("!all");
    assert_snapshot!(all.settled().await, @r"
    @bob  who is in?
    bot   Everybody is in.
    ");
    let sent = gateway.chat().requests().into_iter().filter(|request| request.key.as_str() == UNSENT);
    assert_eq!(sent.map(|request| request.what).collect::<Vec<_>>(), [What::Send]);
    assert!(gateway.agent_itself().heard().iter().all(|turn| turn.prompt != "who is in?"));

    gateway.agent().when("and now?").says(["Nobody."]);
    all.says("@bob", "and now?").await;
    all.settled().await;
    let heard = gateway.agent_itself().heard();
    let again = heard.iter().find(|turn| turn.prompt == "and now?").unwrap();
    let said: Vec<_> = again.history.iter().map(|one| one.content.as_str()).collect();
    assert_eq!(said, ["who is in?", "Everybody is in."]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_the_agent_of_its_room_is_given_to_that_agent() {
    let mut gateway = left_behind().await;
    gateway.stand_in().script().when("which model").says(["The small one."]);
    gateway.restart().await;

    assert_snapshot!(gateway.direct_room("!lab").settled().await, @r"
    @ann  which model are you?
    bot   The small one.
    ");
    assert!(gateway.agent_itself().heard().iter().all(|turn| turn.prompt != "which model are you?"));
}
