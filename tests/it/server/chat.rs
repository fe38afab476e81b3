//! `POST /v1/chat/completions`.

use reqwest::Method;
use serde_json::{Value, json};
use talaria::agent::{AgentErrorKind, StepState, TurnEnd};

use crate::support::gateway::Setup;
use crate::support::served::{Served, json, settings};
use crate::support::stream::{Stream, kinds, text_of};

const CHAT: &str = "/v1/chat/completions";

fn asks(text: &str, stream: bool) -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }], "stream": stream })
}

#[tokio::test]
async fn an_answer_comes_whole() {
    let served = Served::start().await;
    served.agent().says(["Hel", "lo"]).uses(3, 2);
    let answer = served.post(CHAT, &asks("hi", false)).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["x-hermes-session-id"].to_str().unwrap().starts_with("api_"));
    let answer = json(answer).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!((&answer["usage"]["total_tokens"], &answer["model"]), (&json!(5), &json!("m")));
}

#[tokio::test]
async fn an_answer_comes_as_it_grows() {
    let served = Served::start().await;
    let script = served.agent().then_hangs().says(["Hel"]).then_hangs().says(["lo"]).uses(3, 2);
    let answer = served.post(CHAT, &asks("hi", true)).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["cache-control"], "no-cache");
    assert_eq!(answer.headers()["x-accel-buffering"], "no");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    let mut stream = Stream::of(answer);
    // Sent before the agent's first text.
    let role = stream.next().await;
    assert_eq!(role.id.as_deref(), Some("start"));
    assert_eq!(role.json()["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    script.goes_on();
    stream.until_text("Hel").await;
    script.is_hanging().await;
    script.goes_on();
    let rest = stream.rest().await;
    assert_eq!(text_of(&rest), "lo");
    let (done, finish) = (&rest[rest.len() - 1], rest[rest.len() - 2].json());
    assert_eq!((done.data.as_str(), done.id.as_deref()), ("[DONE]", None));
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!(finish["usage"]["prompt_tokens"], 3);
    // All of the text came in deltas.
    assert_eq!(finish["hermes"].get("text"), None);
    assert_eq!(finish.get("error"), None);
}

#[tokio::test]
async fn steps_and_thoughts_come_beside_the_text() {
    let served = Served::start().await;
    let script = served.agent().thinks("hm").step("c1", "search", StepState::Running);
    script.step("c1", "search", StepState::Done).says(["x"]).step("c2", "rm", StepState::Failed);
    let events = Stream::of(served.post(CHAT, &asks("hi", true)).await).rest().await;
    assert_eq!(events[1].json()["choices"][0]["delta"]["reasoning_content"], "hm");
    let steps: Vec<_> = events.iter().filter(|event| event.kind() == "hermes.tool.progress").collect();
    let told: Vec<_> = steps.iter().map(|step| step.json()).collect();
    let told = told.iter().map(|step| (&step["tool"], &step["label"], &step["toolCallId"], &step["status"]));
    insta::assert_snapshot!(told.map(|step| format!("{step:?}\n")).collect::<String>(), @r#"
    (String("search"), String("search"), String("c1"), String("running"))
    (String("search"), String("search"), String("c1"), String("completed"))
    (String("rm"), String("rm"), String("c2"), String("failed"))
    "#);
    // A chunk without content, so that clients that do not know such events ignore it.
    assert!(steps.iter().all(|step| step.json()["choices"] == json!([])));
    assert!(events.iter().all(|event| event.id.is_some() || event.data == "[DONE]"));
}

#[tokio::test]
async fn whoever_waits_in_line_is_answered_at_once_that_they_wait() {
    let served = Served::start().await;
    let first = served.agent().when("one").then_hangs();
    let ask = |text: &str| {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "s");
        request.body(asks(text, true).to_string()).send()
    };
    let mut one = Stream::of(ask("one").await.unwrap());
    first.is_hanging().await;
    served.agent().when("two").says(["second"]);
    let mut two = Stream::of(ask("two").await.unwrap());
    assert_eq!(two.next().await.id.as_deref(), Some("start"));
    assert_eq!(served.gateway.agent_itself().heard().len(), 1);
    first.goes_on();
    one.rest().await;
    assert_eq!(text_of(&two.rest().await), "second");
    let heard = served.gateway.agent_itself().heard();
    assert_eq!(heard.iter().map(|heard| heard.prompt.as_str()).collect::<Vec<_>>(), ["one", "two"]);
}

#[tokio::test]
async fn a_ninth_that_would_wait_is_sent_away() {
    let served = Served::start().await;
    let first = served.agent().when("0").then_hangs();
    let ask = |text: String| {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "s");
        request.body(asks(&text, true).to_string()).send()
    };
    let mut streams = Vec::new();
    for n in 0..9 {
        let answer = ask(n.to_string()).await.unwrap();
        assert_eq!(answer.status(), 200, "{n}");
        streams.push(Stream::of(answer));
    }
    let refused = ask("9".to_owned()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(json(refused).await["error"]["code"], "rate_limit_exceeded");
    first.is_hanging().await;
    first.goes_on();
    for stream in &mut streams {
        stream.rest().await;
    }
    let heard = served.gateway.agent_itself().heard();
    let prompts: Vec<_> = heard.iter().map(|heard| heard.prompt.clone()).collect();
    assert_eq!(prompts, (0..9).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_turn_that_fails_says_so_and_keeps_its_text() {
    let served = Served::start().await;
    let fails = |text: &[&str]| {
        let script = served.agent().says(text.iter().copied());
        script.then_fails(AgentErrorKind::CutShort, "the model broke");
    };
    fails(&["Half"]);
    let events = Stream::of(served.post(CHAT, &asks("hi", true)).await).rest().await;
    let [.., finish, error, done] = &events[..] else { panic!("{events:?}") };
    assert_eq!(text_of(&events), "Half");
    assert_eq!(
        (done.kind().as_str(), error.id.as_deref(), finish.id.as_deref()),
        ("done", Some("end"), None)
    );
    let (finish, error) = (finish.json(), error.json());
    // No finish reason: at `error` LiteLLM stops reading, and never sees the event after it.
    assert_eq!(finish["choices"], json!([{ "index": 0, "delta": {}, "finish_reason": null }]));
    assert_eq!((&finish["hermes"]["status"], finish.get("error")), (&json!("failed"), None));
    // An event of its own, with all four fields: clients drop an error inside a chunk. LiteLLM reads the code as a
    // status.
    let message = "The answer was cut short: the model broke";
    let mut wanted = json!({ "message": message, "type": "server_error", "param": null, "code": 502 });
    wanted["outcome"] = json!("cut_short");
    assert_eq!(error, json!({ "error": wanted }));

    // Without a stream: common clients take every 200 for a whole answer.
    fails(&["Half"]);
    let answer = served.post(CHAT, &asks("hi", false)).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["x-should-retry"], "false");
    let mut wanted =
        json!({ "message": message, "type": "server_error", "param": null, "code": "cut_short" });
    wanted["partial"] = json!("Half");
    assert_eq!(json(answer).await, json!({ "error": wanted }));

    // Unless the client accepts a partial answer, because it cannot be had again.
    fails(&["Half"]);
    let request = served.request(Method::POST, CHAT).header("x-talaria-partial", "true");
    let answer = request.body(asks("hi", false).to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = json(answer).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Half");
    assert_eq!(answer["choices"][0]["finish_reason"], "error");
    assert!(answer["hermes"]["error"]["message"].as_str().unwrap().contains("the model broke"));
    assert_eq!(answer.get("error"), None);

    // There is no text. Clients must not repeat it by themselves: it may have run.
    fails(&[]);
    let answer = served.post(CHAT, &asks("hi", false)).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["x-should-retry"], "false");
    assert!(answer.headers().contains_key("x-hermes-run-id"));
    assert_eq!(json(answer).await["error"]["type"], "server_error");
}

#[tokio::test]
async fn an_answer_that_was_cut_by_its_length_says_so() {
    let served = Served::start().await;
    served.agent().says(["Long"]).then_ends(TurnEnd::Limit);
    let answer = json(served.post(CHAT, &asks("hi", false)).await).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn nothing_comes_twice_when_the_model_breaks_and_is_resumed() {
    let served = Served::with(Setup { resumable: true, ..Setup::default() }, settings()).await;
    let script = served.agent().thinks("hm").step("c1", "search", StepState::Running);
    script.says(["Hel"]).then_fails(AgentErrorKind::Unknown { after: None }, "the line broke");
    let script = served.agent().thinks("hm").step("c1", "search", StepState::Running);
    script.says(["He", "llo"]).step("c1", "search", StepState::Done);
    let events = Stream::of(served.post(CHAT, &asks("hi", true)).await).rest().await;
    assert_eq!(text_of(&events), "Hello");
    let thoughts = events.iter().filter(|event| event.data.contains("reasoning_content")).count();
    let steps = events.iter().filter(|event| event.kind() == "hermes.tool.progress").count();
    assert_eq!((thoughts, steps), (1, 2));
}

#[tokio::test]
async fn what_is_for_models_is_taken_and_ignored() {
    let served = Served::start().await;
    let mut body = asks("hi", false);
    for (name, value) in [
        ("n", json!(1)),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("stream_options", json!({ "include_usage": true })),
        ("temperature", json!(0.1)),
        ("max_tokens", json!(5)),
        ("response_format", json!({ "type": "json_object" })),
        ("user", json!("u")),
        ("stop", json!(["x"])),
        ("unheard_of", json!({ "a": [1] })),
    ] {
        body[name] = value;
    }
    let answer = json(served.post(CHAT, &body).await).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 1);
    assert_eq!(answer["choices"][0]["message"]["content"], "ok");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let served = Served::start().await;
    let user = json!({ "role": "user", "content": "x" });
    for (body, param) in [
        (json!({ "messages": "hi" }), json!("messages")),
        (json!({ "messages": [user], "stream": "yes" }), json!("stream")),
        (json!({ "messages": [user], "model": 7 }), json!("model")),
        (json!({ "messages": [] }), json!("messages")),
        (json!({ "messages": [{ "role": "user", "content": " " }] }), json!("messages")),
        (json!({ "messages": [user, { "role": "assistant", "content": "x" }] }), json!("messages")),
        (json!({ "messages": [{ "role": 1, "content": "x" }] }), json!("messages[0].role")),
        (json!({ "messages": [user, { "role": "boss", "content": "x" }] }), json!("messages[1].role")),
        (json!({ "messages": [{ "role": "user", "content": 7 }] }), json!("messages[0].content")),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "file", "file": {} }] }] }),
            json!("messages[0].content"),
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [
                { "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }] }] }),
            json!("messages[0].content"),
        ),
        (json!({}), Value::Null),
        (json!([]), Value::Null),
    ] {
        let answer = served.post(CHAT, &body).await;
        assert_eq!(answer.status(), 400, "{body}");
        let error = json(answer).await["error"].clone();
        assert_eq!(error["param"], param, "{body}");
        assert_eq!(error["type"], "invalid_request_error", "{body}");
    }
    assert!(served.gateway.agent_itself().heard().is_empty());
}

#[tokio::test]
async fn a_session_that_is_not_known_begins_with_the_body_and_then_remembers_itself() {
    let served = Served::start().await;
    let ask = |messages: Value| {
        let request = served.request(Method::POST, CHAT).header("x-hermes-session-id", "mine");
        request.body(json!({ "messages": messages }).to_string()).send()
    };
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let tool = json!({ "role": "tool", "tool_call_id": "c", "content": "forged" });
    let first = json!([
        said("system", "Be kind."),
        said("user", "a"),
        said("assistant", "b"),
        tool,
        said("user", "c"),
    ]);
    let answer = ask(first).await.unwrap();
    assert_eq!(answer.headers()["x-hermes-session-id"], "mine");
    answer.text().await.unwrap();
    // Earlier messages in the body no longer count; its system message does, for this turn.
    ask(json!([said("system", "Be brief."), said("user", "forged"), said("user", "d")])).await.unwrap();
    let heard = served.gateway.agent_itself().heard();
    let history = |n: usize| {
        let said = heard[n].history.iter().map(|message| message.content.as_str());
        (heard[n].context.as_str(), said.collect::<Vec<_>>().join(" "), heard[n].prompt.as_str())
    };
    assert_eq!(history(0), ("Be kind.", "a b".to_owned(), "c"));
    assert_eq!(history(1), ("Be brief.", "a b c ok".to_owned(), "d"));
    assert_eq!(heard[0].session, "mine");
}

#[tokio::test]
async fn without_a_session_every_request_is_its_own() {
    let served = Served::start().await;
    let mut names = Vec::new();
    for _ in 0..2 {
        let answer = served.post(CHAT, &asks("the same words", false)).await;
        names.push(answer.headers()["x-hermes-session-id"].clone());
    }
    assert_ne!(names[0], names[1]);
    let heard = served.gateway.agent_itself().heard();
    assert!(heard.iter().all(|heard| heard.history.is_empty()));
    assert_ne!(heard[0].session, heard[1].session);
}

#[tokio::test]
async fn whoever_has_no_key_is_turned_away() {
    let served = Served::start().await;
    let answer = served.bare(Method::GET, "/v1/models").send().await.unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(json(answer).await["error"]["code"], "invalid_api_key");
    assert_eq!(served.bare(Method::GET, "/health").send().await.unwrap().status(), 200);
}

/// A reader that lost the connection between the last chunk and the error gets both.
#[tokio::test]
async fn a_reader_who_comes_back_behind_the_text_still_hears_of_the_failure() {
    let served = Served::start().await;
    served.agent().says(["Half"]).then_fails(AgentErrorKind::CutShort, "the model broke");
    let ask = async |after: Option<&str>| {
        let request = served.request(Method::POST, CHAT).header("idempotency-key", "k");
        let request = match after {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        Stream::of(request.body(asks("hi", true).to_string()).send().await.unwrap()).rest().await
    };
    let all = ask(None).await;
    let seen = all.iter().rev().filter_map(|event| event.id.as_deref()).nth(1).unwrap();
    let rest = ask(Some(seen)).await;
    assert_eq!(rest, all[all.len() - 3..]);
    assert_eq!(kinds(&ask(Some("end")).await), ["done"]);
}

#[tokio::test]
async fn a_header_that_decides_where_a_turn_goes_is_sent_once() {
    let served = Served::start().await;
    for name in ["x-hermes-session-id", "x-hermes-session-key", "idempotency-key", "last-event-id"] {
        for second in ["a", "b"] {
            let request = served.request(Method::POST, CHAT).header(name, "a").header(name, second);
            let refused = request.body(asks("hi", false).to_string()).send().await.unwrap();
            assert_eq!(refused.status(), 400, "{name}");
            let error = json(refused).await["error"].clone();
            assert_eq!((&error["code"], &error["param"]), (&json!("invalid_request"), &json!(name)));
        }
    }
    assert!(served.gateway.agent_itself().heard().is_empty());
}

#[tokio::test]
async fn a_model_is_found_by_its_id() {
    let served = Served::start().await;
    let listed = json(served.get("/v1/models").await).await["data"][0]["id"].clone();
    let model = json(served.get(&format!("/v1/models/{}", listed.as_str().unwrap())).await).await;
    assert_eq!((&model["id"], &model["object"]), (&listed, &json!("model")));
    for name in ["gpt-4o", "a%2Fb", "%FF"] {
        let missing = served.get(&format!("/v1/models/{name}")).await;
        assert_eq!(missing.status(), 404, "{name}");
        assert_eq!(json(missing).await["error"]["code"], "model_not_found", "{name}");
    }
    assert_eq!(served.bare(Method::GET, "/v1/models/talaria").send().await.unwrap().status(), 401);
}
