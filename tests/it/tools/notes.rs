//! Notes end to end: the model writes them with its tool, and only those of the place stand in its prompts.

use reqwest::Method;
use serde_json::json;
use talaria::config::BuiltinTool;

use super::support::{agent_using, calls, system};
use crate::support::gateway::{Setup, TestGateway};
use crate::support::room::Room;
use crate::support::served::{KEY, Served, settings};
use crate::support::upstream::{Answer, Upstream};

fn notes(text: &str) -> Answer {
    calls("", &[("n", "memory", &json!({ "action": "add", "text": text }).to_string())])
}

/// The system message of the next question in a room.
async fn told_in(room: &Room, who: &str, upstream: &Upstream, answer: &str) -> String {
    upstream.answers(Answer::says([answer]));
    room.says(who, "and?").await;
    room.shows(answer).await;
    system(upstream.prompts().last().unwrap())
}

#[tokio::test]
async fn the_notes_of_a_person_are_in_their_direct_chat_and_nowhere_else() {
    let upstream = Upstream::plain().await;
    let mut gateway: TestGateway = agent_using(&upstream, &[BuiltinTool::Memory], Setup::default()).await;
    let (ann, bob, all) = (gateway.room(), gateway.direct_room("!bob"), gateway.shared_room());
    upstream.answers(notes("Ann likes tea")).answers(Answer::says(["Noted for Ann."]));
    ann.says("@ann", "note it").await;
    ann.shows("Noted for Ann.").await;
    upstream.answers(notes("We meet on Monday")).answers(Answer::says(["Noted for all."]));
    all.says("@ann", "note it").await;
    all.shows("Noted for all.").await;
    assert!(!system(&upstream.prompts()[2]).contains("tea"));

    // Also in a new conversation, and in another process.
    ann.says("@ann", "/new").await;
    ann.shows("A new conversation").await;
    gateway.restart().await;
    let told = told_in(&ann, "@ann", &upstream, "To Ann.").await;
    assert!(told.contains("1. Ann likes tea") && !told.contains("Monday"), "{told}");
    let told = told_in(&gateway.direct_room("!other"), "@ann", &upstream, "To Ann elsewhere.").await;
    assert!(told.contains("1. Ann likes tea") && !told.contains("Monday"), "{told}");
    let told = told_in(&bob, "@bob", &upstream, "To Bob.").await;
    assert!(!told.contains("tea") && !told.contains("Monday"), "{told}");
    for who in ["@ann", "@bob"] {
        let told = told_in(&all, who, &upstream, &format!("To all and {who}.")).await;
        assert!(told.contains("1. We meet on Monday") && !told.contains("tea"), "{told}");
    }

    // A note that a person takes back is in no later prompt.
    ann.says("@ann", "/memory forget 1").await;
    ann.shows("Ann likes tea").await;
    let told = told_in(&ann, "@ann", &upstream, "To Ann again.").await;
    assert!(!told.contains("Notes from"), "{told}");
}

#[tokio::test]
async fn over_http_the_session_key_owns_the_notes() {
    let upstream = Upstream::plain().await;
    let gateway = agent_using(&upstream, &[BuiltinTool::Memory], Setup::default()).await;
    let served = Served::of(gateway, settings()).await;
    let forge = served.app("forge").await;
    let ask = async |token: &str, key: Option<&str>| {
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        let request = served.bare(Method::POST, "/v1/chat/completions").bearer_auth(token);
        let request = key.into_iter().fold(request, |one, key| one.header("x-hermes-session-key", key));
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        upstream.prompts().pop().unwrap()
    };
    upstream.answers(notes("Ann likes tea"));
    ask(&forge, Some("ann")).await;
    upstream.answers(notes("nobody's note"));
    let refused = ask(&forge, None).await.json()["messages"].to_string();
    assert!(refused.contains("there is no memory here"), "{refused}");
    let mut knows = Vec::new();
    for (token, key) in [
        (forge.as_str(), Some("ann")),
        (&forge, Some("bob")),
        (&forge, None),
        (KEY, Some("ann")),
        (KEY, None),
    ] {
        let told = system(&ask(token, key).await);
        assert!(!told.contains("nobody's note"), "{told}");
        knows.push(told.contains("1. Ann likes tea"));
    }
    assert_eq!(knows, [true, false, false, false, false]);
}
