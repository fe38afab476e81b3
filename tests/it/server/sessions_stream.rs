//! `POST /api/sessions/{session_id}/chat/stream`: the events of a turn, whole and resumed.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, StepState, TurnEnd};

use super::events::{Event, events};
use super::sessions::begin;
use crate::support::served::Served;

async fn asks(served: &Served, key: Option<&str>, after: Option<&str>) -> Vec<Event> {
    let mut request = served.request(Method::POST, "/api/sessions/s/chat/stream");
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    if let Some(after) = after {
        request = request.header("Last-Event-ID", after);
    }
    let answer = request.body(json!({ "message": "go" }).to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    events(&answer.text().await.unwrap())
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

fn last<'a>(events: &'a [Event], name: &str) -> &'a Value {
    &events.iter().rfind(|event| event.name == name).unwrap_or_else(|| panic!("{name} in {events:?}")).data
}

#[tokio::test]
async fn events_come_in_order_and_say_where_they_belong() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    served
        .agent()
        .says(["Let me look. "])
        .step("call_1", "web_search", StepState::Running)
        .step("call_1", "web_search", StepState::Done)
        .step("call_2", "terminal", StepState::Running)
        .step("call_2", "terminal", StepState::Failed)
        .thinks("hmm")
        .says(["Found ", "it."])
        .uses(7, 3);
    let told = asks(&served, None, None).await;
    assert_eq!(
        names(&told),
        [
            "run.started",
            "message.started",
            "assistant.delta",
            "tool.started",
            "tool.completed",
            "tool.started",
            "tool.failed",
            "tool.progress",
            "assistant.delta",
            "assistant.completed",
            "run.completed",
            "done",
        ]
    );
    let mut seq = 0;
    for Event { name, id, data } in &told {
        assert!(!id.is_empty(), "{name} has an id");
        assert_eq!(data["session_id"], "s", "{name}");
        assert_eq!(data["run_id"], told[0].data["run_id"], "{name}");
        assert!(data["ts"].as_f64().unwrap() > 1.7e9, "{name}");
        let next = data["seq"].as_u64().unwrap();
        assert!(next > seq, "{name}: {next} after {seq}");
        seq = next;
    }
    let message = &told[1].data["message"]["id"];
    assert!(message.as_str().unwrap().starts_with("msg_"));
    let of_the_message = told.iter().filter(|event| event.data.get("message_id").is_some());
    assert!(
        of_the_message.clone().count() >= 9
            && of_the_message.clone().all(|event| event.data["message_id"] == *message)
    );
    assert_eq!(told[0].data["user_message"], json!({ "role": "user", "content": "go" }));
    assert_eq!(told[3].data["tool_name"], "web_search");
    assert_eq!(told[3].data["tool_call_id"], "call_1");
    assert_eq!((&told[7].data["tool_name"], &told[7].data["delta"]), (&json!("_thinking"), &json!("hmm")));
    let said = last(&told, "assistant.completed");
    assert_eq!((&said["content"], &said["completed"]), (&json!("Let me look. Found it."), &json!(true)));
    let end = last(&told, "run.completed");
    assert_eq!(end["completed"], true);
    assert_eq!(end["usage"], json!({ "input_tokens": 7, "output_tokens": 3, "total_tokens": 10 }));
    assert_eq!(end["messages"], json!([{ "role": "assistant", "content": "Let me look. Found it." }]));
}

#[tokio::test]
async fn a_turn_that_failed_is_never_completed() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    served.agent().says(["Half an "]).then_fails(AgentErrorKind::CutShort, "The agent broke off.");
    let told = asks(&served, None, None).await;
    assert!(names(&told).ends_with(&["assistant.completed", "run.failed", "done"]), "{:?}", names(&told));
    let said = last(&told, "assistant.completed");
    assert_eq!(
        (&said["content"], &said["completed"], &said["partial"]),
        (&json!("Half an "), &json!(false), &json!(true))
    );
    let end = last(&told, "run.failed");
    assert_eq!((&end["completed"], &end["content"]), (&json!(false), &json!("Half an ")));
    assert!(end["error"]["message"].as_str().unwrap().contains("broke off"), "{end}");

    served.agent().says(["Stopp"]).then_ends(TurnEnd::Stopped);
    let told = asks(&served, None, None).await;
    assert!(names(&told).ends_with(&["assistant.completed", "run.cancelled", "done"]), "{:?}", names(&told));
    assert_eq!(last(&told, "assistant.completed")["interrupted"], true);
}

#[tokio::test]
async fn a_stream_goes_on_from_every_event() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    served
        .agent()
        .says(["One "])
        .step("1", "look", StepState::Running)
        .thinks("hmm")
        .step("1", "look", StepState::Done)
        .says(["two ", "thrée"])
        .uses(1, 1);
    let without_time = |events: Vec<Event>| -> Vec<Event> {
        let timeless = |mut event: Event| {
            event.data["ts"].take();
            event
        };
        events.into_iter().map(timeless).collect()
    };
    let whole = without_time(asks(&served, Some("k"), None).await);
    assert_eq!(whole, without_time(asks(&served, Some("k"), None).await), "the same again");
    for (index, seen) in whole.iter().enumerate() {
        let rest = without_time(asks(&served, Some("k"), Some(&seen.id)).await);
        match seen.name.as_str() {
            // Nothing has happened yet.
            "run.started" => assert_eq!(rest, whole),
            // The last event is sent again: only the events after it count.
            "assistant.completed" => assert_eq!(rest, whole[index..]),
            // Only the end is left to report.
            "run.completed" | "done" => {
                assert_eq!(names(&rest), ["done"]);
                assert!(rest[0].data["seq"].as_u64() > seen.data["seq"].as_u64());
            }
            _ => assert_eq!(rest, whole[index + 1..], "after {seen:?}"),
        }
    }
    assert_eq!(served.gateway.agent_itself().heard().len(), 1);
}

#[tokio::test]
async fn what_an_agent_asks_is_an_event_and_so_is_the_answer() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    served.agent().says(["May I? "]).asks("Run a command", "rm -r /tmp/x").says(["Done."]);
    let request = served.request(Method::POST, "/api/sessions/s/chat/stream");
    let mut stream = request.body(json!({ "message": "go" }).to_string()).send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("event: approval.request") || !seen.ends_with("\n\n") {
        seen += std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap();
    }
    let told = events(&seen);
    let asked = last(&told, "approval.request");
    assert_eq!(asked["command"], "rm -r /tmp/x");
    assert_eq!(asked["choices"], json!(["once", "session", "always", "deny"]));
    assert_eq!(asked["session_id"], "s");
    let run = asked["run_id"].as_str().unwrap().to_owned();
    let approval = json!({ "choice": "once", "approval_id": asked["approval_id"] });
    assert_eq!(served.post(&format!("/v1/runs/{run}/approval"), &approval).await.status(), 200);
    let told = events(&stream.text().await.unwrap());
    assert_eq!(last(&told, "approval.responded")["choice"], "once");
    assert_eq!(last(&told, "run.completed")["content"], "May I? Done.");
    assert_eq!(served.gateway.agent_itself().ran(), ["rm -r /tmp/x"]);
}

#[tokio::test]
async fn a_turn_that_failed_is_a_problem_unless_a_part_is_asked_for() {
    let served = Served::start().await;
    begin(&served, "s", None).await;
    served.agent().then_fails(AgentErrorKind::Refused, "The agent does not want to.");
    let answer = served.post("/api/sessions/s/chat", &json!({ "message": "go" })).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["x-hermes-session-id"], "s");
    let problem = crate::support::served::json(answer).await;
    assert!(problem["error"]["message"].as_str().unwrap().contains("does not want to"), "{problem}");
    let breaks =
        || served.agent().says(["Half an "]).then_fails(AgentErrorKind::CutShort, "The agent broke off.");
    breaks();
    let answer = served.post("/api/sessions/s/chat", &json!({ "message": "go" })).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(crate::support::served::json(answer).await["error"]["partial"], "Half an ");
    breaks();
    let request =
        served.request(reqwest::Method::POST, "/api/sessions/s/chat").header("x-talaria-partial", "true");
    let answer = request.body(json!({ "message": "go" }).to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = crate::support::served::json(answer).await;
    assert_eq!((&answer["completed"], &answer["message"]["content"]), (&json!(false), &json!("Half an ")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("broke off"), "{answer}");
}
