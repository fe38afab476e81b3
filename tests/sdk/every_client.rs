//! Scenes that every client plays; they check the client's result and the requests that the model got.
//!
//! Every client plays every scene, with every API that it supports:
//!
//! | client | chat | responses | compatible | what it cannot do, and what is checked instead |
//! |---|---|---|---|---|
//! | openai for Python, newest and 1.x | yes | yes | – | – |
//! | openai for Node.js | yes | yes | – | – |
//! | openai-agents | in full | yes | – | – |
//! | Vercel's AI SDK | yes | yes | yes | – |
//! | langchain-openai | in full | in full | – | – |
//! | pydantic-ai | in full | in full | – | – |
//! | LiteLLM | in full | in full | in full | hides the body of an error in responses and compatible: its class and our message are checked; in chat (`openai/…`) an error in a stream always has the status 500, because OpenAI's package drops it |
//! | LiteLLM's proxy | in full | in full | – | rewords errors: the status and our message are checked |
//! | llm | in full | – | – | does not support responses; the only way to stop reading is to end it, which must reach the model too |

use std::time::Duration;

use serde_json::json;

use crate::it::upstream::{Answer, DONE, Gate, Nobody, Upstream, delta, event, finish};
use crate::parts::{Api, Client};
use crate::served::{PATIENCE, Served};
use crate::tap::Tap;

/// Makes a test of each scene for each client and each API that it supports.
macro_rules! every_client {
    ($($name:ident: $client:ident { $($speaks:ident: $api:ident),* })*) => {
        $(mod $name {
            $(mod $speaks {
                $crate::every_client::every_client!(@scenes $client $api:
                    chat silence away_at_first picture error_before error_midway unsupported unavailable unreachable
                    cancel);
            })*
        })*
    };
    (@scenes $client:ident $api:ident: $($scene:ident)*) => {
        use $crate::every_client;
        use $crate::parts::{Api, Client};

        $(#[tokio::test]
        async fn $scene() {
            every_client::$scene(Client::$client, Api::$api).await;
        })*
    };
}
pub(crate) use every_client;

every_client! {
    python: Python { chat: Chat, responses: Responses }
    agents: Agents { responses: Responses }
    node: Node { chat: Chat, responses: Responses }
    vercel: Vercel { chat: Chat, responses: Responses, compatible: Compatible }
}

/// The server's comment in a stream in which nothing happens.
const KEEPALIVE: &str = ": keepalive";

/// A whole answer comes, and the model got the instructions.
pub async fn chat(client: Client, api: Api) {
    let model = Upstream::plain().await;
    model.answers(Answer::says(["Hel", "lo"]));
    Served::before(&model, "").await.content_with(client, api, "chat").await;
    let asked = model.messages().remove(0);
    let roles: Vec<_> = asked.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user"]);
    assert!(asked[0].1.contains("Be brief"), "{asked:?}");
    assert_eq!(asked[1].1, "hi");
}

/// The model is silent for so long that keepalives pass, before its first words and between them.
pub async fn silence(client: Client, api: Api) {
    let model = Upstream::plain().await;
    let (thinks, pauses) = (Gate::new(), Gate::new());
    let answer = Answer::stream().waits(&thinks).sends(delta("Hel")).waits(&pauses);
    model.answers(answer.sends(delta("lo") + &*finish("stop") + DONE).ends());
    // Every day short silences; in full 20 s before the first words, as real models take them.
    let (interval, keepalives) = match is_full() {
        true => (Duration::from_secs(1), 20),
        false => (Duration::from_millis(20), 3),
    };
    let served = Served::with_keepalive(&model, interval).await;
    let mut tap = Tap::to(served.address()).await;
    let asking = served.asked_at(&tap.address(), &mut client.plays_with(api, "silence"));
    tap.has_heard(KEEPALIVE, keepalives).await;
    thinks.is_reached().await;
    thinks.open();
    pauses.is_reached().await;
    tap.has_heard(KEEPALIVE, keepalives + 3).await;
    pauses.open();
    served.assert_well(&asking.ended_within(PATIENCE).await);
}

/// At first nothing listens at the model's address; a stream waits for the model and reports that.
pub async fn away_at_first(client: Client, api: Api) {
    let nobody = Nobody::new();
    let served = Served::before_url(&nobody.url()).await;
    let mut tap = Tap::to(served.address()).await;
    let asking = served.asked_at(&tap.address(), &mut client.plays_with(api, "away_at_first"));
    tap.has_heard(": waiting for the agent", 1).await;
    let model = nobody.becomes_an_upstream();
    model.answers(Answer::says(["Hel", "lo"]));
    served.assert_well(&asking.ended_within(PATIENCE).await);
}

/// A picture reaches the model.
pub async fn picture(client: Client, api: Api) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content_with(client, api, "picture").await;
    let content = model.prompt().json()["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let parts = content.as_array().expect("parts");
    assert_eq!(parts[0], json!({ "type": "text", "text": "what is this?" }));
    let url = parts[1]["image_url"]["url"].as_str().unwrap();
    assert!(url.starts_with("data:image/png;base64,iVBOR"), "{url}");
}

/// The model refuses, with and without a stream; no request is made twice.
pub async fn error_before(client: Client, api: Api) {
    let model = Upstream::plain().await;
    for _ in 0..2 {
        model.answers(Answer::status(400, r#"{"error":{"message":"No such model"}}"#));
    }
    Served::before(&model, "").await.content_with(client, api, "error_before").await;
    assert_eq!(model.prompts().len(), 2);
}

/// The model breaks off after its first words, with and without a stream; no request is made twice.
pub async fn error_midway(client: Client, api: Api) {
    let model = Upstream::plain().await;
    for _ in 0..2 {
        let error = event(&json!({ "error": { "message": "It broke", "type": "server_error" } }));
        model.answers(Answer::events(delta("Hel") + &*error + DONE));
    }
    Served::before(&model, "").await.content_with(client, api, "error_midway").await;
    assert_eq!(model.prompts().len(), 2);
}

/// The client offers tools, which no agent here can call: the server refuses that before anything runs.
pub async fn unsupported(client: Client, api: Api) {
    let model = Upstream::plain().await;
    Served::before(&model, "").await.content_with(client, api, "unsupported").await;
    assert_eq!(model.prompts().len(), 0);
}

/// The model is overloaded, then it limits requests: a client that does not read a stream gets an error at once.
pub async fn unavailable(client: Client, api: Api) {
    let model = Upstream::plain().await;
    for (status, after) in [(503, "7"), (429, "9")] {
        model.answers(Answer::reply(status, &[("retry-after", after)], "{}"));
    }
    Served::before(&model, "").await.content_with(client, api, "unavailable").await;
    assert_eq!(model.prompts().len(), 2);
}

/// Nothing listens at the model's address: a client that does not read a stream gets an error at once.
pub async fn unreachable(client: Client, api: Api) {
    let nobody = Nobody::new();
    Served::before_url(&nobody.url()).await.content_with(client, api, "unreachable").await;
}

/// The client stops reading, and the request to the model ends.
pub async fn cancel(client: Client, api: Api) {
    let model = Upstream::plain().await;
    let left = Gate::new();
    model.answers(Answer::stream().sends(delta("Hel")).hangs_until_left(&left));
    let served = Served::before(&model, "").await;
    let mut tap = Tap::to(served.address()).await;
    let mut asking = served.asked_at(&tap.address(), &mut client.plays_with(api, "cancel"));
    tap.has_heard("Hel", 1).await;
    left.is_reached().await;
    // The client was there all the time: it ends only now.
    asking.leaves();
    served.assert_well(&asking.ended_within(PATIENCE).await);
}

fn is_full() -> bool {
    std::env::var("TALARIA_TESTS").is_ok_and(|tests| tests == "full")
}
