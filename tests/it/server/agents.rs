//! Agents over HTTP: `model` names one, `GET /v1/models` lists those that the caller may ask, and a session that goes over
//! to another agent is another one to that agent.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use talaria::access::AgentAccess;
use talaria::ids::AgentName;
use talaria::rules::{AgentPolicy, AgentRules};

use crate::support::gateway::Setup;
use crate::support::served::{KEY, Served, json};

/// A server whose agent `local` only the app `forge` may ask, besides the owner.
async fn guarded() -> Served {
    let served = Served::start().await;
    reload(&served, &["forge"]);
    served
}

fn reload(served: &Served, apps: &[&str]) {
    let apps = apps.iter().map(|app| (*app).to_owned()).collect();
    let policy =
        AgentPolicy { access: AgentAccess { apps, ..AgentAccess::default() }, ..AgentPolicy::default() };
    let by_name = [(AgentName::proxy(), AgentPolicy::default()), (AgentName::local(), policy)];
    served.gateway.reload_agents(
        Setup::default().rules,
        AgentRules { by_name: by_name.into(), ..AgentRules::default() },
    );
}

async fn post(served: &Served, key: &str, path: &str, body: Value) -> Response {
    served.bare(Method::POST, path).bearer_auth(key).body(body.to_string()).send().await.unwrap()
}

async fn models(served: &Served, key: &str) -> Vec<String> {
    let listed = served.bare(Method::GET, "/v1/models").bearer_auth(key).send().await.unwrap();
    let listed = json(listed).await;
    listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

fn chat(model: Option<&str>) -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "model": model })
}

/// How many turns the default agent and the agent `local` got.
fn heard(served: &Served) -> (usize, usize) {
    (served.gateway.agent_itself().heard().len(), served.gateway.stand_in().heard().len())
}

#[tokio::test]
async fn the_model_of_a_request_names_the_agent() {
    let served = Served::start().await;
    let mut expected = (0, 0);
    for (model, local) in [
        (None, false),
        (Some("talaria"), false),
        (Some("proxy"), false),
        (Some("local"), true),
        (Some("gpt-4o"), false),
        (Some(" "), false),
        (Some("no/name of ours"), false),
    ] {
        let requests = [
            ("/v1/chat/completions", chat(model)),
            ("/v1/responses", json!({ "input": "hi", "model": model })),
            ("/v1/runs", json!({ "input": "hi", "model": model })),
        ];
        for (path, body) in requests {
            let answer = post(&served, KEY, path, body).await;
            assert!(answer.status().is_success(), "{path} {model:?}: {}", answer.text().await.unwrap());
            let answer = json(answer).await;
            assert_eq!(answer["model"], model.unwrap_or("talaria"), "{path}: it is echoed");
            served.gateway.idle().await;
            match local {
                true => expected.1 += 1,
                false => expected.0 += 1,
            }
            assert_eq!(heard(&served), expected, "{path} {model:?}");
        }
    }
}

#[tokio::test]
async fn a_run_that_is_looked_at_names_the_agent_that_answers_it() {
    let served = Served::start().await;
    for (model, named) in [(Some("local"), "local"), (None, "local"), (Some("proxy"), "talaria")] {
        let body = json!({ "input": "hi", "model": model, "session_id": "s" });
        let started = json(post(&served, KEY, "/v1/runs", body).await).await;
        assert_eq!(started["model"], model.unwrap_or(named), "a name is echoed");
        let run = format!("/v1/runs/{}", started["run_id"].as_str().unwrap());
        let shown = served.bare(Method::GET, &run).bearer_auth(KEY).send().await.unwrap();
        assert_eq!(json(shown).await["model"], named, "{model:?}");
        served.gateway.idle().await;
    }
}

#[tokio::test]
async fn the_list_of_models_has_those_that_the_caller_may_ask() {
    let served = guarded().await;
    let (forge, phone) = (served.app("forge").await, served.app("phone").await);
    for (key, listed) in [
        (KEY, &["talaria", "proxy", "local"][..]),
        (&forge, &["talaria", "proxy", "local"]),
        (&phone, &["talaria", "proxy"]),
    ] {
        assert_eq!(models(&served, key).await, listed);
    }
}

#[tokio::test]
async fn an_agent_that_the_caller_may_not_ask_is_refused_and_no_other_is_asked() {
    let served = guarded().await;
    let (forge, phone) = (served.app("forge").await, served.app("phone").await);
    let session = post(&served, &phone, "/api/sessions", json!({ "id": "mine" })).await;
    assert_eq!(session.status(), 201);
    let requests = || {
        [
            ("/v1/chat/completions", chat(Some("local"))),
            ("/v1/responses", json!({ "input": "hi", "model": "local" })),
            ("/v1/runs", json!({ "input": "hi", "model": "local" })),
            ("/api/sessions", json!({ "id": "other", "model": "local" })),
            ("/api/sessions/mine/chat", json!({ "message": "hi", "model": "local" })),
            ("/api/sessions/mine/chat/stream", json!({ "message": "hi", "model": "local" })),
        ]
    };
    for (path, body) in requests() {
        let refused = post(&served, &phone, path, body).await;
        assert_eq!(refused.status(), 403, "{path}");
        let error = json(refused).await["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"], &error["type"]),
            (&json!("model_not_allowed"), &json!("model"), &json!("permission_error")),
            "{path}"
        );
    }
    let refused = served.turned_away(requests().len()).await;
    assert!(
        refused.iter().all(|row| (row.actor.as_str(), row.rule.as_str()) == ("app phone", "agent")),
        "{refused:?}"
    );
    assert_eq!(heard(&served), (0, 0), "neither agent was asked");
    assert_eq!(post(&served, &forge, "/v1/chat/completions", chat(Some("local"))).await.status(), 200);
    assert_eq!(heard(&served), (0, 1));
}

/// A client whose stream broke asks for the answer that there is.
#[tokio::test]
async fn a_repeat_is_answered_although_its_app_may_no_longer_ask_the_agent() {
    let served = guarded().await;
    let forge = served.app("forge").await;
    let session = post(&served, &forge, "/api/sessions", json!({ "id": "mine" })).await;
    assert_eq!(session.status(), 201);
    let requests = [
        ("/v1/chat/completions", chat(Some("local"))),
        ("/v1/responses", json!({ "input": "hi", "model": "local" })),
        ("/v1/runs", json!({ "input": "hi", "model": "local" })),
        ("/api/sessions/mine/chat", json!({ "message": "hi", "model": "local" })),
    ];
    let ask = async |key: &str, path: &str, body: &Value| {
        let request = served.bare(Method::POST, path).bearer_auth(&forge).header("idempotency-key", key);
        request.body(body.to_string()).send().await.unwrap().status().as_u16()
    };
    for (path, body) in &requests {
        let status = ask(&format!("once{path}"), path, body).await;
        assert!((200..300).contains(&status), "{path}: {status}");
        served.gateway.idle().await;
    }
    reload(&served, &[]);
    for (path, body) in &requests {
        let status = ask(&format!("once{path}"), path, body).await;
        assert!((200..300).contains(&status), "{path}: {status}");
        assert_eq!(ask(&format!("twice{path}"), path, body).await, 403, "{path}: another request");
    }
    assert_eq!(heard(&served), (0, 4));
}

#[tokio::test]
async fn a_turn_that_waits_is_not_run_once_its_app_is_off_the_list() {
    let served = guarded().await;
    let forge = served.app("forge").await;
    let running = served.gateway.stand_in().script().then_hangs();
    let run = async || {
        let body = json!({ "input": "hi", "model": "local", "session_id": "s" });
        json(post(&served, &forge, "/v1/runs", body).await).await["run_id"].as_str().unwrap().to_owned()
    };
    run().await;
    running.is_hanging().await;
    let waiting = run().await;
    reload(&served, &[]);
    running.goes_on();
    served.gateway.idle().await;
    let path = format!("/v1/runs/{waiting}");
    let ended = json(served.bare(Method::GET, &path).bearer_auth(&forge).send().await.unwrap()).await;
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(ended["error"].as_str().unwrap().contains("may not talk to the agent local"), "{ended}");
    assert_eq!(heard(&served), (0, 1));
}

/// An agent's memory is its own: the other one is told what was said, under another name of the session.
#[tokio::test]
async fn a_session_that_goes_over_to_another_agent_is_another_one_to_it() {
    let served = Served::start().await;
    let ask = async |model: Option<&str>, path: &str| {
        let body = match path {
            "/v1/chat/completions" => chat(model),
            _ => json!({ "message": "hi", "model": model }),
        };
        let request =
            served.request(Method::POST, path).header("x-hermes-session-id", "s").body(body.to_string());
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    ask(Some("talaria"), "/v1/chat/completions").await;
    ask(Some("proxy"), "/v1/chat/completions").await;
    ask(Some("local"), "/v1/chat/completions").await;
    // Without a name it goes on with the agent of the turn before.
    ask(None, "/v1/chat/completions").await;
    ask(None, "/api/sessions/s/chat").await;
    ask(Some("talaria"), "/api/sessions/s/chat").await;
    let sessions = |heard: Vec<crate::support::scripted::Heard>| {
        heard.into_iter().map(|heard| (heard.session, heard.history.len())).collect::<Vec<_>>()
    };
    let own = |name: &str, history| (name.to_owned(), history);
    assert_eq!(sessions(served.gateway.agent_itself().heard()), [own("s", 0), own("s", 2), own("s.2", 10)]);
    assert_eq!(sessions(served.gateway.stand_in().heard()), [own("s.1", 4), own("s.1", 6), own("s.1", 8)]);
}

#[tokio::test]
async fn a_session_can_be_created_for_an_agent() {
    let served = Served::start().await;
    let created =
        json(post(&served, KEY, "/api/sessions", json!({ "id": "s", "model": "local" })).await).await;
    assert_eq!(created["session"]["model"], "local", "{created}");
    let fork = post(&served, KEY, "/api/sessions/s/fork", json!({ "id": "t" })).await;
    assert_eq!(fork.status(), 201);
    for path in ["/api/sessions/s/chat", "/api/sessions/t/chat"] {
        assert_eq!(post(&served, KEY, path, json!({ "message": "hi" })).await.status(), 200);
    }
    assert_eq!(heard(&served), (0, 2));
    // Once that agent is gone, another must be named.
    served.gateway.removes_local();
    let gone = post(&served, KEY, "/api/sessions/s/chat", json!({ "message": "hi" })).await;
    assert_eq!(
        (gone.status().as_u16(), json(gone).await["error"]["code"].clone()),
        (404, json!("model_not_found"))
    );
    let named =
        post(&served, KEY, "/api/sessions/s/chat", json!({ "message": "hi", "model": "talaria" })).await;
    assert_eq!(named.status(), 200);
    assert_eq!(heard(&served), (1, 2));
}

#[tokio::test]
async fn health_names_every_agent() {
    let served = Served::start().await;
    served.gateway.stand_in().goes_away();
    let detailed = served.get("/health/detailed").await;
    assert_eq!(detailed.status(), 200, "the default agent answers");
    let agents = json(detailed).await["agents"].clone();
    assert_eq!((&agents["proxy"]["ok"], &agents["proxy"]["default"]), (&json!(true), &json!(true)));
    assert_eq!((&agents["local"]["ok"], &agents["local"]["default"]), (&json!(false), &json!(false)));
    let status = served.gateway.operator().status().await;
    assert_eq!(status["agents"][0]["name"], "proxy");
    assert!(status["agents"][1]["trouble"].as_str().unwrap().starts_with("is away"), "{status}");
    assert!(
        status["health"]["words"].as_str().unwrap().starts_with("ok, but the agent local is away"),
        "{status}"
    );
}
