//! A response as a stream.

use serde_json::{Value, json};
use talaria::agent::StepState;

use super::{asks, get};
use crate::support::served::Served;

/// The events of a stream: id, name and data.
fn events(text: &str) -> Vec<(Option<String>, String, Value)> {
    let frames = text.split("\n\n").filter(|frame| !frame.trim().is_empty());
    let read = |frame: &str| {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let data: Value = serde_json::from_str(&field("data: ")?).unwrap();
        let name = field("event: ").unwrap();
        // An ask has an event name of ours, and a type that every client knows.
        assert!(data["type"] == name.as_str() || name.starts_with("approval."), "{frame}");
        Some((field("id: "), name, data))
    };
    frames.filter_map(read).collect()
}

/// The names of the events, without repetitions in a row.
fn names(events: &[(Option<String>, String, Value)]) -> Vec<&str> {
    let mut names: Vec<_> = events.iter().map(|(_, name, _)| name.as_str()).collect();
    names.dedup();
    names
}

/// The text of all deltas.
fn text(events: &[(Option<String>, String, Value)]) -> String {
    let deltas = events.iter().filter(|(_, name, _)| name == "response.output_text.delta");
    deltas.map(|(_, _, data)| data["delta"].as_str().unwrap()).collect()
}

async fn stream(served: &Served) -> String {
    let answer = served.post("/v1/responses", &asks("hi", json!({ "stream": true }))).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    answer.text().await.unwrap()
}

#[tokio::test]
async fn events_come_in_order() {
    let served = Served::start().await;
    let script = served.agent().thinks("Hm.").step("1", "search", StepState::Running).says(["Hel", "lo"]);
    script.step("1", "search", StepState::Done).uses(3, 2);
    let events = events(&stream(&served).await);
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.mcp_call.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.mcp_call.completed",
            "response.output_item.done",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<_> =
        events.iter().map(|(_, _, data)| data["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert_eq!(text(&events), "Hello");
    let (_, _, last) = events.last().unwrap();
    let output = last["response"]["output"].as_array().unwrap();
    let types: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["reasoning", "mcp_call", "message"]);
    assert_eq!(output[0]["content"][0]["text"], "Hm.");
    assert_eq!((&output[1]["name"], &output[1]["status"]), (&json!("search"), &json!("completed")));
    // The stored response equals it, except for the reasoning and the steps.
    let mut kept = get(&served, &last["response"]).await;
    assert_eq!(kept["output"], json!([output[2]]));
    kept["output"] = last["response"]["output"].clone();
    assert_eq!(kept, last["response"]);
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_cut_by_id_and_by_number() {
    let served = Served::start().await;
    let script = served.agent().thinks("Hm. ").says(["Grü"]).step("1", "search", StepState::Done);
    let script =
        script.thinks("Well.").step("2", "read", StepState::Running).step("3", "read", StepState::Failed);
    let script = script.says(["ße", " an"]).then_hangs().says([" alle"]);
    let mut answer = served.post("/v1/responses", &asks("hi", json!({ "stream": true }))).await;
    let mut whole = String::new();
    // Two pieces at least, whatever the sockets do.
    while !whole.contains(" an\"") {
        whole += std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    script.goes_on();
    whole += answer.text().await.unwrap().as_str();
    let whole = events(&whole);
    assert_eq!(text(&whole), "Grüße an alle");
    let path = format!("/v1/responses/{}?stream=true", whole[0].2["response"]["id"].as_str().unwrap());
    for (at, (id, _, data)) in whole.iter().enumerate() {
        let number = data["sequence_number"].as_u64().unwrap();
        let rest = served.get(&format!("{path}&starting_after={number}")).await;
        assert_goes_on(&whole, at, &events(&rest.text().await.unwrap()));
        if let Some(id) = id {
            let rest = served.request(reqwest::Method::GET, &path).header("last-event-id", id);
            assert_goes_on(&whole, at, &events(&rest.send().await.unwrap().text().await.unwrap()));
        }
    }
}

/// Checks that a reader who has seen everything up to `at` has now seen all of it, once.
fn assert_goes_on(
    whole: &[(Option<String>, String, Value)],
    at: usize,
    rest: &[(Option<String>, String, Value)],
) {
    let (seen, missing) = whole.split_at(at + 1);
    assert_eq!(names(rest), names(missing), "behind {at}");
    assert_eq!(text(seen) + text(rest).as_str(), text(whole), "behind {at}");
    assert_eq!(rest.last().map(|(_, _, data)| data), missing.last().map(|(_, _, data)| data), "behind {at}");
    let last = seen.last().unwrap().2["sequence_number"].as_u64();
    assert!(rest.iter().all(|(_, _, data)| data["sequence_number"].as_u64() > last), "behind {at}");
}

#[tokio::test]
async fn each_stretch_of_reasoning_is_an_item_of_its_own() {
    let served = Served::start().await;
    served.agent().thinks("One.").says(["Hel"]).thinks("Two.").says(["lo"]).thinks("Three.");
    let events = events(&stream(&served).await);
    assert_eq!(text(&events), "Hello");
    let output = events.last().unwrap().2["response"]["output"].clone();
    let said: Vec<_> =
        output.as_array().unwrap().iter().map(|item| item["content"][0]["text"].clone()).collect();
    assert_eq!(said, ["One.", "Hello", "Two.", "Three."]);
}

#[tokio::test]
async fn of_very_many_steps_only_some_are_told() {
    let served = Served::start().await;
    let steps = (0..1000).map(|number| number.to_string());
    steps.fold(served.agent(), |script, id| script.step(&id, "search", StepState::Running)).says(["Hello"]);
    let events = events(&stream(&served).await);
    let count = |wanted: &str| events.iter().filter(|(_, name, _)| name == wanted).count();
    assert_eq!((count("response.mcp_call.in_progress"), count("response.mcp_call.failed")), (256, 256));
    assert_eq!(events.last().unwrap().1, "response.completed");
}

#[tokio::test]
async fn what_a_person_must_answer_is_asked_in_the_stream() {
    let served = Served::start().await;
    served.agent().asks("remove a file", "rm notes.txt").says(["Gone."]);
    let mut answer = served.post("/v1/responses", &asks("hi", json!({ "stream": true }))).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut whole = String::new();
    while !whole.contains("event: approval.request\n") {
        whole += std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    let (_, _, asked) = events(&whole).pop().unwrap();
    assert_eq!((&asked["run_id"], &asked["detail"]), (&json!(run), &json!("rm notes.txt")));
    assert_eq!(
        (&asked["type"], &asked["item"]["type"]),
        (&json!("response.output_item.added"), &json!("mcp_approval_request"))
    );
    let choice = json!({ "choice": "once", "approval_id": asked["approval_id"] });
    assert_eq!(served.post(&format!("/v1/runs/{run}/approval"), &choice).await.status(), 200);
    whole += answer.text().await.unwrap().as_str();
    let whole = events(&whole);
    let (_, _, answered) = whole.iter().find(|(_, name, _)| name == "approval.responded").unwrap();
    assert_eq!((&answered["choice"], &answered["item"]), (&json!("once"), &asked["item"]));
    assert_eq!(
        (text(&whole), served.gateway.agent_itself().ran()),
        ("Gone.".to_owned(), vec!["rm notes.txt".to_owned()])
    );
    assert_eq!(whole.last().unwrap().2["response"]["output"][0], asked["item"]);
}

#[tokio::test]
async fn a_stream_is_read_again_when_only_the_store_knows_it() {
    let mut served = Served::start().await;
    served.agent().says(["Hel", "lo"]);
    let before = events(&stream(&served).await);
    let path = format!("/v1/responses/{}?stream=true", before[0].2["response"]["id"].as_str().unwrap());
    served.restart().await;
    let after = events(&served.get(&path).await.text().await.unwrap());
    assert_eq!(names(&after), names(&before));
    assert_eq!((text(&after), &after.last().unwrap().2), ("Hello".to_owned(), &before.last().unwrap().2));
    let (id, _, _) = before.iter().find(|(_, name, _)| name == "response.output_text.delta").unwrap();
    let request = served.request(reqwest::Method::GET, &path).header("last-event-id", id.as_ref().unwrap());
    let rest = events(&request.send().await.unwrap().text().await.unwrap());
    let seen = before.iter().find(|(_, name, _)| name == "response.output_text.delta").unwrap();
    assert_eq!(seen.2["delta"].as_str().unwrap().to_owned() + text(&rest).as_str(), "Hello");
    assert_eq!(rest.last().unwrap().1, "response.completed");
}
