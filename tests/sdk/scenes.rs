//! Scenes for OpenAI's packages; they check the client's result and the requests that the model got.

use serde_json::{Value, json};

use crate::it::upstream::{Answer, DONE, Gate, Upstream, delta, event, finish};
use crate::parts::Client;
use crate::served::Served;

/// A picture of one pixel.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Makes a test of each scene for each client.
macro_rules! scenes {
    ($($scene:ident),* $(,)?) => {
        mod python {
            $(#[tokio::test]
            async fn $scene() {
                super::$scene(super::Client::Python).await;
            })*
        }
        mod node {
            $(#[tokio::test]
            async fn $scene() {
                super::$scene(super::Client::Node).await;
            })*
        }
    };
}

scenes![
    models,
    a_chat,
    a_chat_as_it_grows,
    responses,
    responses_as_they_grow,
    pictures,
    errors,
    a_server_that_is_busy,
    steps,
    a_model_that_fails,
    many_at_once,
    an_agent_with_tools,
];

/// An answer that reports its token usage.
fn says<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Answer {
    let usage = json!({ "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 });
    let deltas: String = pieces.into_iter().map(delta).collect();
    let last = event(&json!({ "choices": [], "usage": usage }));
    Answer::events(deltas + &*finish("stop") + &*last + DONE)
}

/// The agent behind the server reads a file; the client sees only the answer, and the tokens of both requests.
async fn an_agent_with_tools(client: Client) {
    let model = Upstream::plain().await;
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("note.txt"), "buy milk\n").unwrap();
    for _ in 0..2 {
        model
            .answers(Answer::calls("I look. ", &[("c1", "read_file", r#"{"path":"note.txt"}"#)]))
            .answers(says(["Buy milk."]));
    }
    let config =
        format!("agents: {{local: {{workspace: {}, tools: [read_file]}}}}\n", workspace.path().display());
    Served::before(&model, &config).await.content(client, "an_agent_with_tools").await;
    let requests = model.prompts();
    let last = requests[1].json()["messages"].as_array().unwrap().last().unwrap().clone();
    assert!(last["role"] == "tool" && last["content"].as_str().unwrap().contains("buy milk"), "{last}");
}

async fn models(client: Client) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content(client, "models").await;
}

async fn a_chat(client: Client) {
    let model = Upstream::plain().await;
    model.answers(says(["Hel", "lo"])).answers(says(["Again"]));
    Served::before(&model, "").await.content(client, "a_chat").await;
    let asked = model.messages();
    let roles: Vec<_> = asked[0].iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user"]);
    assert!(asked[0][0].1.contains("Be brief"));
    // The second continues in the session of the first, which the client names in a header.
    let said: Vec<_> =
        asked[1].iter().filter(|(role, _)| role != "system").map(|(_, said)| said.as_str()).collect();
    assert_eq!(said, ["hi", "Hello", "and now?"]);
}

async fn a_chat_as_it_grows(client: Client) {
    let model = Upstream::plain().await;
    model.answers(says(["Hel", "lo"])).answers(says(["Hel", "lo"]));
    Served::before(&model, "").await.content(client, "a_chat_as_it_grows").await;
}

async fn responses(client: Client) {
    let model = Upstream::plain().await;
    model.answers(says(["one"])).answers(says(["two"])).answers(says(["three"]));
    Served::before(&model, "").await.content(client, "responses").await;
    let asked = model.messages();
    let said = |at: usize| -> Vec<_> {
        asked[at].iter().filter(|(role, _)| role != "system").map(|(_, said)| said.as_str()).collect()
    };
    assert_eq!(said(1), ["1", "one", "2"]);
    // The third continues from the first, although the second did too.
    assert_eq!(said(2), ["1", "one", "3"]);
}

async fn responses_as_they_grow(client: Client) {
    let model = Upstream::plain().await;
    model.answers(says(["Hel", "lo"])).answers(says(["Hel", "lo"]));
    Served::before(&model, "").await.content(client, "responses_as_they_grow").await;
}

async fn pictures(client: Client) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content(client, "pictures").await;
    let parts = json!([
        { "type": "text", "text": "what is this?" },
        { "type": "image_url", "image_url": { "url": PICTURE } },
    ]);
    let contents: Vec<Value> = model
        .prompts()
        .iter()
        .map(|prompt| prompt.json()["messages"].as_array().unwrap().last().unwrap()["content"].clone())
        .collect();
    assert_eq!(contents, [parts.clone(), parts]);
}

async fn errors(client: Client) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content(client, "errors").await;
    assert_eq!(model.prompts().len(), 1, "only what the key was first used for");
}

async fn a_server_that_is_busy(client: Client) {
    let model = Upstream::plain().await;
    let gate = Gate::new();
    model.answers(
        Answer::stream().sends(delta("Hel")).waits(&gate).sends(delta("lo") + &*finish("stop") + DONE).ends(),
    );
    let served = Served::before(&model, "server: {runs: 1}\n").await;
    let mut asking = served.asked_by(&mut client.plays("a_server_that_is_busy"));
    // The client was refused, and repeats the request by itself as soon as it may.
    asking.shows("turned away").await;
    gate.open();
    served.assert_well(&asking.ended().await);
    assert_eq!(model.prompts().len(), 2);
}

async fn steps(client: Client) {
    let upstream = Upstream::plain().await;
    let step = |status: &str| {
        let data = json!({ "tool": "search", "label": "search", "toolCallId": "call_1", "status": status });
        format!("event: hermes.tool.progress\n{}", event(&data))
    };
    let answer = || {
        let thought = event(&json!({ "choices": [{ "index": 0, "delta": { "reasoning_content": "Hm." } }] }));
        let body =
            thought + &*step("running") + &*step("completed") + &*delta("Hello") + &*finish("stop") + DONE;
        Answer::events(body)
    };
    (0..4).for_each(|_| {
        upstream.answers(answer());
    });
    Served::relay(&upstream).await.content(client, "steps").await;
}

async fn a_model_that_fails(client: Client) {
    let model = Upstream::plain().await;
    (0..2).for_each(|_| {
        model.answers(Answer::status(400, r#"{"error":{"message":"No such model"}}"#));
    });
    Served::before(&model, "").await.content(client, "a_model_that_fails").await;
    assert_eq!(model.prompts().len(), 2, "nothing that failed is asked again");
}

async fn many_at_once(client: Client) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content(client, "many_at_once").await;
    assert_eq!(model.prompts().len(), 50);
}
