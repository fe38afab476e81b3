//! The owner talks over HTTP in the session of a room: one queue, one history, and the room shows nothing of it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::served::{Served, json};

/// The id of the only session.
async fn only_session(served: &Served) -> String {
    let listed = json(served.get("/api/sessions").await).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["data"][0]["source"], "test", "the account of the room");
    listed["data"][0]["id"].as_str().unwrap().to_owned()
}

fn history(served: &Served) -> Vec<String> {
    let heard = served.gateway.agent_itself().heard().pop().unwrap();
    heard.history.into_iter().map(|said| said.content).collect()
}

#[tokio::test]
async fn a_room_and_a_program_wait_for_each_other_and_remember_the_same() {
    let served = Served::start().await;
    let room = served.gateway.room();
    let of_the_room = served.agent().when("from the room").then_hangs().says(["to the room"]);
    room.says("@ann", "from the room").await;
    of_the_room.is_hanging().await;

    let id = only_session(&served).await;
    let of_the_program = served.agent().when("from a program").then_hangs().says(["to the program"]);
    let path = format!("/api/sessions/{id}/chat/stream");
    let mut stream = served.post(&path, &json!({ "message": "from a program" })).await;
    assert!(stream.chunk().await.unwrap().is_some(), "the stream has begun");
    assert_eq!(served.gateway.agent_itself().heard().len(), 1, "the turn waits for the room's");

    of_the_room.goes_on();
    of_the_program.is_hanging().await;
    assert_eq!(history(&served), ["from the room", "to the room"]);
    let next = served.agent().when("and then?").says(["that was all"]);
    room.says("@ann", "and then?").await;
    assert_eq!(served.gateway.agent_itself().heard().len(), 2, "now the room waits");
    of_the_program.goes_on();
    assert!(stream.text().await.unwrap().contains("to the program"));
    room.shows("that was all").await;
    drop(next);
    assert_eq!(history(&served), ["from the room", "to the room", "from a program", "to the program"]);

    let shown = room.now();
    assert!(!shown.contains("program"), "{shown}");
    let messages = json(served.get(&format!("/api/sessions/{id}/messages")).await).await;
    let contents: Vec<&Value> =
        messages["data"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(
        contents,
        ["from the room", "to the room", "from a program", "to the program", "and then?", "that was all"]
    );
}

#[tokio::test]
async fn a_room_repeats_and_takes_back_only_what_was_asked_in_it() {
    let served = Served::start().await;
    let room = served.gateway.room();
    served.agent().when("from the room").says(["first answer"]);
    room.says("@ann", "from the room").await;
    room.shows("first answer").await;
    let id = only_session(&served).await;
    served.agent().when("from a program").says(["for nobody else"]);
    let chat = format!("/api/sessions/{id}/chat");
    assert_eq!(served.post(&chat, &json!({ "message": "from a program" })).await.status(), 200);

    served.agent().when("from the room").says(["second answer"]);
    room.says("@ann", "/retry").await;
    room.shows("second answer").await;
    let prompts: Vec<_> =
        served.gateway.agent_itself().heard().into_iter().map(|heard| heard.prompt).collect();
    assert_eq!(prompts, ["from the room", "from a program", "from the room"]);
    assert!(!room.now().contains("nobody else"));
}

#[tokio::test]
async fn the_owner_may_rename_and_remove_the_session_of_a_room() {
    let served = Served::start().await;
    let room = served.gateway.room();
    served.agent().says(["remembered"]);
    room.says("@ann", "remember this").await;
    room.shows("remembered").await;
    let path = format!("/api/sessions/{}", only_session(&served).await);
    let renamed = served.request(Method::PATCH, &path).body(json!({ "title": "Ann's" }).to_string());
    assert_eq!(json(renamed.send().await.unwrap()).await["session"]["title"], "Ann's");
    assert_eq!(served.request(Method::DELETE, &path).send().await.unwrap().status(), 200);

    served.agent().says(["never heard of it"]);
    room.says("@ann", "what was it?").await;
    room.shows("never heard of it").await;
    assert_eq!(history(&served), [""; 0]);
    assert!(room.now().contains("remembered"), "what the room shows stays");
}
