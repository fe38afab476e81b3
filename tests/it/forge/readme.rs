//! The example in `.github/docs/forge.md`, as it is written there: its configuration and its requests.

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use super::scene::ADMIN;
use crate::acp::scripted_agent::{Act, Script, ScriptedAgent};
use crate::support::binary::Talaria;
use crate::support::served::json;

/// The documentation of this surface.
fn section() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/.github/docs/forge.md")).unwrap()
}

/// The first block of code in this language.
fn block(section: &str, language: &str) -> String {
    let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// The bodies of the requests, in order.
fn bodies(commands: &str) -> Vec<Value> {
    let quoted = commands.split("--json '").skip(1).map(|rest| rest.split_once('\'').unwrap().0);
    quoted.map(|body| serde_json::from_str(body).unwrap()).collect()
}

#[tokio::test]
async fn the_example_works_as_it_is_written() {
    let section = section();
    let scripted =
        ScriptedAgent::new(&Script::default().turn("Reply with JSON", [Act::says(&["[1, 2, 3]"])]));
    let command = format!("command: {}", scripted.command().display());
    let config = block(&section, "yaml").replace("command: claude-agent-acp", &command);
    assert!(config.contains(&command), "{config}");
    let talaria = Talaria::new()
        .config(&format!("{config}\nserver: {{port: 0}}\n"))
        .var("TALARIA_ADMIN_TOKEN", ADMIN)
        .args(["serve"]);
    let mut server = talaria.starts();
    let address = server.serves().await;
    let client = Client::builder().no_proxy().build().unwrap();
    let request = |key: &str, method: Method, path: &str| {
        client.request(method, format!("{address}{path}")).bearer_auth(key)
    };
    let sends = async |request: RequestBuilder, body: &Value| -> Response {
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{body}");
        answer
    };
    let commands = block(&section, "sh");
    let [token, run, session, turn, stream] = bodies(&commands).try_into().unwrap();

    let made = json(sends(request(ADMIN, Method::POST, "/admin/tokens"), &token).await).await;
    let app = made["token"].as_str().unwrap();
    assert!(app.starts_with("cf_"));
    let answer = json(sends(request(app, Method::POST, "/run"), &run).await).await;
    assert_eq!(answer["result"], serde_json::json!([1, 2, 3]));
    let made = json(sends(request(app, Method::POST, "/sessions"), &session).await).await;
    let path = format!("/sessions/{}", made["session_id"].as_str().unwrap());
    let turns = format!("{path}/turn");
    let answer = json(sends(request(app, Method::POST, &turns), &turn).await).await;
    assert_eq!(answer["events"][0]["content"], turn["prompt"], "the agent repeats it");
    let streamed = request(app, Method::POST, &turns).header("accept", "text/event-stream");
    let streamed = sends(streamed, &stream).await.text().await.unwrap();
    assert!(streamed.contains("event: done"), "{streamed}");
    let closed = request(app, Method::DELETE, &path).send().await.unwrap();
    assert_eq!(closed.status(), 200);
}
