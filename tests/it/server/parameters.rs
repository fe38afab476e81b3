//! Model parameters of clients: passed on, reported as ignored, or refused.

use std::fs::File;

use reqwest::{Client, Method, RequestBuilder, Response};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::binary::{Process, Talaria};
use crate::support::served::{Served, json};
use crate::support::stream::{Stream, text_of};
use crate::support::upstream::{Answer, Gate, Upstream};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const KEY: &str = "a-key-of-the-owner-that-is-long-enough";

/// A question with these additional fields.
fn asks(path: &str, fields: &Value) -> Value {
    let mut body = match path {
        CHAT => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
        _ => json!({ "input": "hi" }),
    };
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn ignored(answer: &Response) -> Option<&str> {
    answer.headers().get("x-talaria-ignored").map(|value| value.to_str().unwrap())
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "answer": { "type": "integer" } } })
}

#[tokio::test]
async fn what_nobody_can_do_is_refused_and_named() {
    let served = Served::start().await;
    let tool = json!({ "type": "function", "function": { "name": "f" }, "name": "f" });
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "1" }] });
    let result = json!({ "role": "tool", "tool_call_id": "1", "content": "7" });
    let user = json!({ "role": "user", "content": "hi" });
    let structured = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema() } });
    let format = json!({ "type": "json_schema", "name": "a", "schema": schema() });
    let output = json!({ "type": "function_call_output", "call_id": "1", "output": "7" });
    for (path, fields, param) in [
        (CHAT, json!({ "tools": [tool] }), "tools"),
        (CHAT, json!({ "tools": [tool], "tool_choice": "auto", "stream": true }), "tools"),
        (CHAT, json!({ "tool_choice": "required" }), "tool_choice"),
        (CHAT, json!({ "functions": [{ "name": "f" }] }), "functions"),
        (CHAT, json!({ "function_call": { "name": "f" } }), "function_call"),
        (CHAT, json!({ "n": 2 }), "n"),
        (CHAT, json!({ "logprobs": true }), "logprobs"),
        (CHAT, json!({ "modalities": ["text", "audio"] }), "modalities"),
        (CHAT, json!({ "response_format": structured }), "response_format"),
        (CHAT, json!({ "response_format": { "type": "grammar" } }), "response_format"),
        (CHAT, json!({ "messages": [user, call, result] }), "messages[2].role"),
        (RESPONSES, json!({ "tools": [tool] }), "tools"),
        (RESPONSES, json!({ "tools": [{ "type": "web_search" }] }), "tools"),
        (RESPONSES, json!({ "tool_choice": { "type": "function", "name": "f" } }), "tool_choice"),
        (RESPONSES, json!({ "text": { "format": format } }), "text.format"),
        (RESPONSES, json!({ "prompt": { "id": "pmpt_1" } }), "prompt"),
        (RESPONSES, json!({ "top_logprobs": 3 }), "top_logprobs"),
        (RESPONSES, json!({ "input": [user, output] }), "input[1].type"),
        ("/v1/runs", json!({ "input": [user, result] }), "input[1].role"),
    ] {
        let refused = served.post(path, &asks(path, &fields)).await;
        assert_eq!(refused.status(), 400, "{path} {fields}");
        let error = json(refused).await["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"], &error["type"]),
            (&json!("unsupported_parameter"), &json!(param), &json!("invalid_request_error")),
            "{path} {fields}"
        );
    }
    for (path, fields, param) in [
        (CHAT, json!({ "temperature": 2.1 }), "temperature"),
        (CHAT, json!({ "top_p": -1 }), "top_p"),
        (CHAT, json!({ "max_tokens": 0 }), "max_tokens"),
        (CHAT, json!({ "n": 0 }), "n"),
        (CHAT, json!({ "stop": [] }), "stop"),
        (CHAT, json!({ "stop": [7] }), "stop"),
        (CHAT, json!({ "tools": {} }), "tools"),
        (CHAT, json!({ "response_format": { "type": "json_schema" } }), "response_format"),
        (RESPONSES, json!({ "max_output_tokens": 0 }), "max_output_tokens"),
    ] {
        let refused = served.post(path, &asks(path, &fields)).await;
        assert_eq!(refused.status(), 400, "{path} {fields}");
        assert_eq!(json(refused).await["error"]["param"], param, "{path} {fields}");
    }
    assert!(served.gateway.agent_itself().heard().is_empty(), "nobody was asked");
}

#[tokio::test]
async fn what_an_agent_ignores_is_named_and_what_says_nothing_is_not() {
    let served = Served::start().await;
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let sampling = json!({
        "temperature": 0.5, "top_p": 1, "max_tokens": 5, "max_completion_tokens": 5, "stop": "x", "seed": 7,
        "frequency_penalty": 0, "presence_penalty": 0, "response_format": { "type": "json_object" },
        "reasoning_effort": "low", "stream": true,
    });
    let all = "temperature, top_p, max_tokens, max_completion_tokens, stop, seed, frequency_penalty, \
               presence_penalty, response_format, reasoning_effort";
    let nothing = json!({
        "temperature": null, "n": 1, "tools": [], "tool_choice": "auto", "functions": null, "logprobs": false,
        "response_format": { "type": "text" }, "modalities": ["text"], "user": "u", "store": false,
        "stream_options": { "include_usage": true }, "parallel_tool_calls": true,
    });
    let response = json!({
        "temperature": 1, "max_output_tokens": 9, "text": { "format": { "type": "json_object" }, "verbosity": "low" },
        "reasoning": { "effort": "low" }, "include": ["reasoning.encrypted_content"],
    });
    let empty = json!({
        "tools": null, "tool_choice": "none", "include": [], "text": { "format": { "type": "text" } },
        "reasoning": null, "parallel_tool_calls": false, "truncation": "auto",
    });
    for (path, fields, named) in [
        (CHAT, sampling, Some(all)),
        (CHAT, nothing, None),
        (CHAT, json!({ "tools": [tool], "tool_choice": "none" }), None),
        (
            RESPONSES,
            response,
            Some("temperature, max_output_tokens, text.format, text.verbosity, reasoning, include"),
        ),
        (RESPONSES, empty, None),
        (RESPONSES, json!({ "tools": [] }), None),
    ] {
        let answer = served.post(path, &asks(path, &fields)).await;
        assert_eq!(answer.status(), 200, "{fields}");
        assert_eq!(ignored(&answer), named, "{fields}");
        answer.text().await.unwrap();
    }
    let capabilities = json(served.get("/v1/capabilities").await).await;
    assert_eq!(capabilities["features"]["client_tools"], false);
}

/// Clients that keep the conversation themselves send the agent's own tool calls back.
#[tokio::test]
async fn what_was_told_of_the_agents_tools_may_come_back() {
    let served = Served::start().await;
    let input = json!([
        { "role": "user", "content": "hi" },
        { "type": "mcp_call", "id": "mcp_1", "name": "search", "server_label": "agent", "arguments": "{}" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hello" }] },
        { "role": "user", "content": "more" },
    ]);
    assert_eq!(served.post(RESPONSES, &json!({ "input": input })).await.status(), 200);
    let tools = json!([
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "1" }] },
        { "role": "tool", "tool_call_id": "1", "content": "7" },
        { "role": "user", "content": "more" },
    ]);
    assert_eq!(served.post(CHAT, &json!({ "messages": tools })).await.status(), 200);
    let prompts: Vec<_> =
        served.gateway.agent_itself().heard().iter().map(|heard| heard.prompt.clone()).collect();
    assert_eq!(prompts, ["more", "more"]);
}

/// The binary in front of a model.
struct Model {
    upstream: Upstream,
    talaria: Talaria,
    process: Process,
    address: String,
}

impl Model {
    async fn start() -> Self {
        let upstream = Upstream::plain().await;
        let talaria = Talaria::new()
            .var("OPENAI_BASE_URL", &format!("{}/v1", upstream.url()))
            .var("OPENAI_MODEL", "scripted")
            .var("API_SERVER_PORT", "0")
            .var("API_SERVER_KEY", KEY)
            .args(["serve"]);
        let mut process = talaria.starts_with(File::open("/dev/null").unwrap());
        Self { address: process.serves().await, upstream, talaria, process }
    }

    fn request(&self, path: &str, body: &Value) -> RequestBuilder {
        let client = Client::builder().no_proxy().build().unwrap();
        let request = client.request(Method::POST, format!("{}{path}", self.address)).bearer_auth(KEY);
        request.body(body.to_string())
    }

    /// The last request to the model, without the messages.
    fn asked(&self) -> Value {
        let mut asked = self.upstream.prompts().last().unwrap().json();
        for name in ["model", "messages", "stream", "stream_options"] {
            asked.as_object_mut().unwrap().remove(name).unwrap();
        }
        asked
    }
}

#[tokio::test]
async fn a_model_is_given_sampling_and_format_as_they_came() {
    let model = Model::start().await;
    let chat = json!({
        "temperature": 0.25, "top_p": 1, "max_tokens": 12, "max_completion_tokens": 13, "stop": ["a", "b"],
        "seed": -7, "frequency_penalty": -0.5, "presence_penalty": 2,
        "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": schema() } },
    });
    let format = json!({ "type": "json_schema", "name": "a", "strict": true, "schema": schema() });
    let wanted = json!({
        "temperature": 1, "max_tokens": 9,
        "response_format": {
            "type": "json_schema", "json_schema": { "name": "a", "strict": true, "schema": schema() },
        },
    });
    let response = json!({ "temperature": 1, "max_output_tokens": 9, "text": { "format": format } });
    for (path, fields, wanted) in [
        (CHAT, chat.clone(), chat),
        (
            CHAT,
            json!({ "response_format": { "type": "json_object" } }),
            json!({ "response_format": { "type": "json_object" } }),
        ),
        (CHAT, json!({ "response_format": { "type": "text" }, "seed": null }), json!({})),
        (RESPONSES, response, wanted),
        (RESPONSES, json!({}), json!({})),
    ] {
        model.upstream.answers(Answer::says(["{}"]));
        let answer = model.request(path, &asks(path, &fields)).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), ignored(&answer)), (200, None), "{fields}");
        answer.text().await.unwrap();
        assert_eq!(model.asked(), wanted, "{path}");
    }
    // A parameter that is not passed on to a model is reported.
    model.upstream.answers(Answer::says(["{}"]));
    let fields = json!({ "temperature": 0, "logit_bias": { "7": 1 } });
    let answer = model.request(CHAT, &asks(CHAT, &fields)).send().await.unwrap();
    assert_eq!(ignored(&answer), Some("logit_bias"));
    answer.text().await.unwrap();
    assert_eq!(model.asked(), json!({ "temperature": 0 }));
}

#[tokio::test]
async fn a_turn_that_waits_over_a_kill_asks_its_model_for_the_same() {
    let mut model = Model::start().await;
    let gate = Gate::new();
    model.upstream.answers(Answer::stream().waits(&gate).hangs());
    let ask = |model: &Model, key: &'static str, temperature: f64| {
        let body = asks(CHAT, &json!({ "temperature": temperature, "stream": true }));
        let request = model.request(CHAT, &body).header("x-hermes-session-id", "s");
        request.header("idempotency-key", key).send()
    };
    let _first = ask(&model, "one", 0.5).await.unwrap();
    gate.is_reached().await;
    // This request waits behind the first.
    let second = ask(&model, "two", 1.5).await.unwrap();
    assert_eq!(second.status(), 200);
    model.process.signal(Signal::KILL);
    model.process.dies().await;
    model.upstream.answers(Answer::says(["Hello"]));
    model.process = model.talaria.starts_with(File::open("/dev/null").unwrap());
    model.address = model.process.serves().await;
    let again = ask(&model, "two", 1.5).await.unwrap();
    assert_eq!(text_of(&Stream::of(again).rest().await), "Hello");
    assert_eq!(model.asked(), json!({ "temperature": 1.5 }));
    // Another temperature is another request.
    assert_eq!(ask(&model, "two", 1.0).await.unwrap().status(), 422);
}
