//! `/v1/runs` and the routes below it.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, StepState};

use crate::support::served::{Served, json};
use crate::support::stream::{Stream, kinds, text_of};

/// Starts a run and returns its id.
async fn started(served: &Served, body: Value) -> String {
    let answer = served.post("/v1/runs", &body).await;
    assert_eq!(answer.status(), 202, "{}", answer.text().await.unwrap());
    json(answer).await["run_id"].as_str().unwrap().to_owned()
}

async fn show(served: &Served, run: &str) -> Value {
    json(served.get(&format!("/v1/runs/{run}")).await).await
}

async fn events(served: &Served, run: &str) -> Stream {
    let answer = served.get(&format!("/v1/runs/{run}/events")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    Stream::of(answer)
}

#[tokio::test]
async fn a_run_is_started_looked_at_and_read() {
    let served = Served::start().await;
    let script = served.agent().then_hangs().thinks("hm").step("c1", "search", StepState::Running);
    let script = script.step("c1", "search", StepState::Done).says(["Hel", "lo"]).uses(3, 2);
    let answer = served.post("/v1/runs", &json!({ "input": "hi", "session_id": "s", "model": "m" })).await;
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.headers()["x-hermes-session-id"], "s");
    let begun = json(answer).await;
    assert!(["queued", "running"].contains(&begun["status"].as_str().unwrap()), "{begun}");
    assert_eq!(begun["model"], "m");
    let run = begun["run_id"].as_str().unwrap();
    assert!(run.starts_with("run_"));
    script.is_hanging().await;
    let shown = show(&served, run).await;
    assert_eq!((&shown["status"], &shown["session_id"]), (&json!("running"), &json!("s")));
    assert_eq!(shown.get("output"), None);

    let mut stream = events(&served, run).await;
    script.goes_on();
    let all = stream.rest().await;
    assert_eq!(text_of(&all), "Hello");
    assert_eq!(kinds(&all)[..3], ["reasoning.available", "tool.started", "tool.completed"]);
    let end = all.last().unwrap();
    assert_eq!((end.kind().as_str(), end.id.as_deref()), ("run.completed", Some("end")));
    // The text came in deltas, so the end does not repeat it.
    assert_eq!((end.json().get("output"), &end.json()["usage"]["total_tokens"]), (None, &json!(5)));
    assert!(all.iter().all(|event| event.name.is_none() && event.json()["run_id"] == json!(run)));
    assert_eq!(stream.comments, ["stream closed"]);

    let shown = show(&served, run).await;
    assert_eq!((&shown["status"], &shown["output"]), (&json!("completed"), &json!("Hello")));
    assert_eq!(shown["usage"]["input_tokens"], 3);
}

#[tokio::test]
async fn a_step_that_goes_on_does_not_begin_again() {
    let served = Served::start().await;
    let script =
        served.agent().step("c1", "search", StepState::Running).step("c1", "search", StepState::Running);
    script.step("c1", "search", StepState::Done).says(["x"]);
    let run = started(&served, json!({ "input": "hi" })).await;
    let all = events(&served, &run).await.rest().await;
    assert_eq!(kinds(&all)[..3], ["tool.started", "tool.progress", "tool.completed"]);
}

#[tokio::test]
async fn what_is_asked_may_be_text_parts_or_messages() {
    let served = Served::start().await;
    let picture = "data:image/png;base64,iVBORw0KGgo=";
    for input in [
        json!("plain"),
        json!([{ "type": "input_text", "text": "see" }, { "type": "input_image", "image_url": picture }]),
        json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
               { "role": "user", "content": [{ "type": "text", "text": "c" }] }]),
    ] {
        let run = started(&served, json!({ "input": input, "instructions": "Be kind." })).await;
        events(&served, &run).await.rest().await;
    }
    let body = json!({ "input": "d", "conversation_history": [{ "role": "user", "content": "before" }] });
    let run = started(&served, body).await;
    events(&served, &run).await.rest().await;
    let heard = served.gateway.agent_itself().heard();
    let told: Vec<_> = heard.iter().map(|heard| (heard.prompt.as_str(), heard.history.len())).collect();
    assert_eq!(told, [("plain", 0), ("see", 0), ("c", 2), ("d", 1)]);
    assert!(heard[..3].iter().all(|heard| heard.context == "Be kind."));

    for (body, param) in [
        (json!({}), "input"),
        (json!({ "input": " " }), "input"),
        (json!({ "input": 7 }), "input"),
        (json!({ "input": [{ "type": "input_file" }] }), "input"),
        (json!({ "input": [{ "role": "user", "content": 7 }] }), "input[0].content"),
        (json!({ "input": "x", "session_id": "../x" }), "session_id"),
        (json!({ "input": "x", "session_id": 7 }), "session_id"),
        (
            json!({ "input": "x", "conversation_history": [{ "role": "x", "content": "" }] }),
            "conversation_history[0].role",
        ),
    ] {
        let answer = served.post("/v1/runs", &body).await;
        assert_eq!(answer.status(), 400, "{body}");
        assert_eq!(json(answer).await["error"]["param"], param, "{body}");
    }
}

#[tokio::test]
async fn any_run_of_the_caller_can_be_read_whatever_started_it() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().says(["lo"]);
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true });
    let answer = served.post("/v1/chat/completions", &body).await;
    let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
    let mut other = events(&served, &run).await;
    other.until_text("Hel").await;
    script.is_hanging().await;
    script.goes_on();
    assert_eq!(text_of(&other.rest().await), "lo");
    assert!(text_of(&Stream::of(answer).rest().await).ends_with("lo"));
    // Long after its end.
    assert_eq!(text_of(&events(&served, &run).await.rest().await), "Hello");
}

#[tokio::test]
async fn the_owner_reads_what_happens_in_rooms() {
    let served = Served::start().await;
    let script = served.agent().says(["Hel"]).then_hangs().thinks("hidden").says(["lo"]);
    served.gateway.room().says("@ann", "hi").await;
    script.is_hanging().await;
    let open = served.gateway.store().read(|tx| tx.all_open_turns()).await.unwrap();
    let run = open[0].1.0.clone();
    let mut stream = events(&served, &run).await;
    stream.until_text("Hel").await;
    assert_eq!(show(&served, &run).await["status"], "running");
    // The people of a room answer its asks.
    let answer = served.post(&format!("/v1/runs/{run}/approval"), &json!({ "choice": "once" })).await;
    assert_eq!(answer.status(), 409);
    assert_eq!(json(answer).await["error"]["code"], "approval_in_room");
    script.goes_on();
    let rest = stream.rest().await;
    assert_eq!(text_of(&rest), "lo");
    assert!(!kinds(&rest).contains(&"reasoning.available".to_owned()));
    assert_eq!(text_of(&events(&served, &run).await.rest().await), "Hello");
}

#[tokio::test]
async fn a_room_turn_that_waits_can_be_read_until_it_runs() {
    let served = Served::start().await;
    let first = served.agent().when("one").then_hangs();
    served.agent().when("two").says(["second"]);
    served.gateway.room().says("@ann", "one").await;
    first.is_hanging().await;
    served.gateway.room().says("@ann", "two").await;
    let open = served.gateway.store().read(|tx| tx.all_open_turns()).await.unwrap();
    let run = open[1].1.0.clone();
    assert_eq!(show(&served, &run).await["status"], "queued");
    let mut stream = events(&served, &run).await;
    first.goes_on();
    assert_eq!(text_of(&stream.rest().await), "second");
}

#[tokio::test]
async fn a_run_is_stopped_once_and_stays_so() {
    let served = Served::start().await;
    let script = served.agent().says(["Half"]).then_hangs();
    let run = started(&served, json!({ "input": "hi" })).await;
    script.is_hanging().await;
    let mut stream = events(&served, &run).await;
    let stop = format!("/v1/runs/{run}/stop");
    let answer = served.post(&stop, &json!({})).await;
    assert_eq!(answer.status(), 200);
    assert!(["stopping", "cancelled"].contains(&json(answer).await["status"].as_str().unwrap()));
    let end = stream.rest().await.pop().unwrap();
    assert_eq!((end.kind().as_str(), end.json().get("output")), ("run.cancelled", None));
    assert!(script.was_told_to_stop());
    for _ in 0..2 {
        let again = json(served.post(&stop, &json!({})).await).await;
        assert_eq!(again["status"], "cancelled");
    }
    // A run that has ended stays as it is.
    let run = started(&served, json!({ "input": "hi" })).await;
    events(&served, &run).await.rest().await;
    let answer = json(served.post(&format!("/v1/runs/{run}/stop"), &json!({})).await).await;
    assert_eq!(answer["status"], "completed");
    assert_eq!(show(&served, &run).await["status"], "completed");
}

#[tokio::test]
async fn a_run_that_waits_is_stopped_without_waiting() {
    let served = Served::start().await;
    let first = served.agent().when("one").then_hangs();
    started(&served, json!({ "input": "one", "session_id": "s" })).await;
    first.is_hanging().await;
    let second = started(&served, json!({ "input": "two", "session_id": "s" })).await;
    let third = started(&served, json!({ "input": "three", "session_id": "s" })).await;
    assert_eq!(show(&served, &second).await["status"], "queued");
    served.post(&format!("/v1/runs/{second}/stop"), &json!({})).await;
    let all = events(&served, &second).await.rest().await;
    assert_eq!(kinds(&all), ["run.cancelled"]);
    first.goes_on();
    events(&served, &third).await.rest().await;
    let heard = served.gateway.agent_itself().heard();
    assert_eq!(heard.iter().map(|heard| heard.prompt.as_str()).collect::<Vec<_>>(), ["one", "three"]);
}

#[tokio::test]
async fn a_run_that_fails_says_why() {
    let served = Served::start().await;
    served.agent().says(["Half"]).then_fails(AgentErrorKind::CutShort, "the model broke");
    let run = started(&served, json!({ "input": "hi" })).await;
    let end = events(&served, &run).await.rest().await.pop().unwrap();
    assert_eq!((end.kind().as_str(), end.json().get("output")), ("run.failed", None));
    assert!(end.json()["error"].as_str().unwrap().contains("the model broke"));
    let shown = show(&served, &run).await;
    assert_eq!((&shown["status"], &shown["code"]), (&json!("failed"), &json!("cut_short")));
    assert!(shown["error"].as_str().unwrap().contains("the model broke"));
}

#[tokio::test]
async fn an_agent_that_breaks_ends_its_run_and_the_stream() {
    let served = Served::start().await;
    served.agent().says(["x"]).then_panics();
    let run = started(&served, json!({ "input": "hi" })).await;
    let end = events(&served, &run).await.rest().await.pop().unwrap();
    assert_eq!(end.kind(), "run.failed");
    served.agent().then_panics();
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(served.post("/v1/chat/completions", &body).await.status(), 502);
}

#[tokio::test]
async fn a_run_that_is_not_there_is_not_found() {
    let served = Served::start().await;
    for id in ["run_0", "x", "%ff", "..%2f", "%00"] {
        for (method, below) in [
            (Method::GET, ""),
            (Method::GET, "/events"),
            (Method::POST, "/stop"),
            (Method::POST, "/approval"),
        ] {
            let request = served.request(method, &format!("/v1/runs/{id}{below}"));
            let answer = request.body(r#"{"choice":"deny"}"#).send().await.unwrap();
            assert_eq!(answer.status(), 404, "{id}{below}");
            assert_eq!(json(answer).await["error"]["code"], "run_not_found", "{id}{below}");
        }
    }
}
