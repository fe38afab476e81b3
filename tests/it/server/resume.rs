//! A repeated request runs once, and an interrupted stream continues where it was cut.

use std::collections::HashSet;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use talaria::agent::StepState;

use crate::support::gateway::Setup;
use crate::support::served::{Served, json, settings};
use crate::support::stream::{Event, Stream, text_of};

const CHAT: &str = "/v1/chat/completions";

fn asks(text: &str, stream: bool) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "stream": stream })
}

async fn ask(served: &Served, key: &str, body: &Value) -> Response {
    let request = served.request(Method::POST, CHAT).header("idempotency-key", key);
    request.body(body.to_string()).send().await.unwrap()
}

fn run_of(answer: &Response) -> String {
    answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned()
}

async fn resumable() -> Served {
    Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await
}

#[tokio::test]
async fn the_same_is_run_once_however_often_it_is_asked() {
    let served = Served::start().await;
    let script = served.agent().then_hangs().says(["Hello"]);
    let body = asks("hi", true);
    let many = futures_util::future::join_all((0..20).map(|_| ask(&served, "k", &body))).await;
    let runs: HashSet<_> = many.iter().map(run_of).collect();
    assert_eq!(runs.len(), 1);
    script.is_hanging().await;
    script.goes_on();
    let mut all = Vec::new();
    for answer in many {
        assert_eq!(answer.status(), 200);
        all.push(Stream::of(answer).rest().await);
    }
    assert!(all.iter().all(|one| *one == all[0]));
    // After its end it is replayed, to the byte.
    assert_eq!(Stream::of(ask(&served, "k", &body).await).rest().await, all[0]);
    assert_eq!(served.gateway.agent_itself().heard().len(), 1);
}

#[tokio::test]
async fn a_whole_answer_is_the_same_too() {
    let served = Served::start().await;
    let script = served.agent().then_hangs().says(["Hello"]).uses(3, 2);
    let body = asks("hi", false);
    let (first, second, ()) = tokio::join!(ask(&served, "k", &body), ask(&served, "k", &body), async {
        script.is_hanging().await;
        script.goes_on();
    });
    let (first, second) = (first.text().await.unwrap(), second.text().await.unwrap());
    assert_eq!(first, second);
    assert_eq!(ask(&served, "k", &body).await.text().await.unwrap(), first);
    assert_eq!(served.gateway.agent_itself().heard().len(), 1);
}

#[tokio::test]
async fn a_key_is_for_one_request_on_every_endpoint() {
    let served = Served::start().await;
    assert_eq!(ask(&served, "k", &asks("hi", false)).await.status(), 200);
    let other = ask(&served, "k", &asks("ho", false)).await;
    assert_eq!(other.status(), 422);
    assert_eq!(json(other).await["error"]["code"], "idempotency_key_reused");
    // Another endpoint is another request.
    let start = |body: Value| {
        let request = served.request(Method::POST, "/v1/runs").header("idempotency-key", "r");
        request.body(body.to_string()).send()
    };
    let first = json(start(json!({ "input": "hi" })).await.unwrap()).await;
    let again = json(start(json!({ "input": "hi" })).await.unwrap()).await;
    assert_eq!(first["run_id"], again["run_id"]);
    assert_eq!(start(json!({ "input": "ho" })).await.unwrap().status(), 422);
    let chat = ask(&served, "r", &asks("hi", false)).await;
    assert_eq!(chat.status(), 422);
}

#[tokio::test]
async fn a_key_belongs_to_whoever_used_it() {
    let served = Served::start().await;
    let body = asks("hi", false);
    let mut runs = HashSet::from([run_of(&ask(&served, "k", &body).await)]);
    for app in ["one", "two"] {
        let token = served.app(app).await;
        let request = served.bare(Method::POST, CHAT).bearer_auth(token).header("idempotency-key", "k");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        runs.insert(run_of(&answer));
    }
    assert_eq!(runs.len(), 3);
}

#[tokio::test]
async fn what_was_refused_has_not_used_up_its_key() {
    let mut few = settings();
    few.runs = (1, 1);
    let served = Served::with(Setup::default(), few).await;
    let script = served.agent().then_hangs();
    let first = ask(&served, "a", &asks("one", true)).await;
    script.is_hanging().await;
    let refused = ask(&served, "b", &asks("two", false)).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    // The running one can be found all the same.
    assert_eq!(run_of(&ask(&served, "a", &asks("one", true)).await), run_of(&first));
    script.goes_on();
    Stream::of(first).rest().await;
    assert_eq!(ask(&served, "b", &asks("two", false)).await.status(), 200);
}

#[tokio::test]
async fn reading_goes_on_wherever_it_was_cut() {
    let served = Served::start().await;
    let script = served.agent().thinks("Hm, ").thinks("so").says(["H\u{e9}", "llo"]);
    let script = script.step("c1", "search", StepState::Running).step("c1", "search", StepState::Done);
    let script = script.says([", w\u{f6}rld "]).asks("ask", "rm").says(["and"]).then_hangs().says(["more"]);
    let mut stream = Stream::of(ask(&served, "k", &asks("hi", true)).await);
    let mut whole = vec![stream.next().await];
    while whole.last().unwrap().kind() != "approval.request" {
        whole.push(stream.next().await);
    }
    let run = whole.last().unwrap().json()["run_id"].as_str().unwrap().to_owned();
    served.post(&format!("/v1/runs/{run}/approval"), &json!({ "choice": "once" })).await;
    while !text_of(&whole).ends_with("and") {
        whole.push(stream.next().await);
    }
    script.is_hanging().await;
    // While it runs: the events before the cut and the new ones together are the whole.
    let mut live = Vec::new();
    for (seen, last) in whole.iter().enumerate() {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let request = request.header("last-event-id", last.id.as_deref().unwrap());
        live.push((seen, Stream::of(request.body(asks("hi", true).to_string()).send().await.unwrap())));
    }
    script.goes_on();
    whole.extend(stream.rest().await);
    assert_eq!(text_of(&whole), "H\u{e9}llo, w\u{f6}rld andmore");
    for (seen, stream) in &mut live {
        let rest = stream.rest().await;
        together(&whole, *seen, &rest);
    }
    // After its end.
    for seen in 0..whole.len() - 1 {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let request = request.header("last-event-id", whole[seen].id.as_deref().unwrap());
        let answer = request.body(asks("hi", true).to_string()).send().await.unwrap();
        together(&whole, seen, &Stream::of(answer).rest().await);
        // The other surface knows the same position.
        let path = format!("/v1/runs/{run}/events?after={}", whole[seen].id.as_deref().unwrap());
        let rest = Stream::of(served.get(&path).await).rest().await;
        assert_eq!(text_of(&whole[..=seen]) + text_of(&rest).as_str(), text_of(&whole), "{seen}");
    }
}

/// Checks that the events before the cut and the rest are the whole: the same text, and each of the other events
/// once.
fn together(whole: &[Event], seen: usize, rest: &[Event]) {
    assert_eq!(text_of(&whole[..=seen]) + text_of(rest).as_str(), text_of(whole), "cut after {seen}");
    let others = |events: &[Event]| -> Vec<Event> {
        events.iter().filter(|event| event.text().is_none()).cloned().collect()
    };
    let joined: Vec<_> = others(&whole[..=seen]).into_iter().chain(others(rest)).collect();
    assert_eq!(joined, others(whole), "cut after {seen}");
}

#[tokio::test]
async fn an_id_that_is_none_of_ours_means_the_beginning() {
    let served = Served::start().await;
    served.agent().says(["H\u{e9}llo"]);
    let whole = Stream::of(ask(&served, "k", &asks("hi", true)).await).rest().await;
    for id in ["x", "7", "1.2.3", "0.-1.0.0"] {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let answer = request.header("last-event-id", id).body(asks("hi", true).to_string()).send();
        assert_eq!(Stream::of(answer.await.unwrap()).rest().await, whole, "{id}");
    }
    // An impossible position: the stream ends all the same, and says nothing wrong.
    for id in
        ["18446744073709551615.18446744073709551615.18446744073709551615.ffffffff", "0.2.0.0", "9.9.9.9"]
    {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let answer = request.header("last-event-id", id).body(asks("hi", true).to_string()).send();
        let rest = Stream::of(answer.await.unwrap()).rest().await;
        assert_eq!((text_of(&rest).as_str(), rest.last().unwrap().data.as_str()), ("", "[DONE]"), "{id}");
    }
}

#[tokio::test]
async fn the_next_process_answers_what_the_last_one_was_asked() {
    let mut served = resumable().await;
    let script = served.agent().says(["Hel"]).then_hangs();
    let mut stream = Stream::of(ask(&served, "k", &asks("hi", true)).await);
    let mut seen = vec![stream.next().await];
    while text_of(&seen) != "Hel" {
        seen.push(stream.next().await);
    }
    script.is_hanging().await;
    // The agent gets the same run again, and starts it from the beginning.
    let again = served.agent().says(["He", "llo"]).then_hangs().says(["!"]);
    served.restart().await;
    assert!(!script.was_told_to_stop());
    stream.until_cut().await;
    let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
    let request = request.header("last-event-id", seen.last().unwrap().id.as_deref().unwrap());
    let answer = request.body(asks("hi", true).to_string()).send().await.unwrap();
    again.is_hanging().await;
    again.goes_on();
    let rest = Stream::of(answer).rest().await;
    assert_eq!(text_of(&rest), "lo!");
    assert_eq!(rest[rest.len() - 2].json()["hermes"].get("text"), None);
    let heard = served.gateway.agent_itself().heard();
    assert_eq!(heard.len(), 2);
    assert!(heard[1].resumed && heard[0].request == heard[1].request && heard[0].key == heard[1].key);

    // Long after: from the store alone.
    served.restart().await;
    for (id, rest) in [(seen.last().unwrap().id.clone().unwrap(), "lo!"), ("end".to_owned(), "")] {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let answer = request.header("last-event-id", id).body(asks("hi", true).to_string()).send();
        assert_eq!(text_of(&Stream::of(answer.await.unwrap()).rest().await), rest);
    }
    assert_eq!(text_of(&Stream::of(ask(&served, "k", &asks("hi", true)).await).rest().await), "Hello!");
    assert_eq!(ask(&served, "k", &asks("ho", true)).await.status(), 422);
    assert_eq!(served.gateway.agent_itself().heard().len(), 2);
}
