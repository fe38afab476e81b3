//! The isolation matrix: every route × every caller. Another caller's thing answers byte for byte like a thing that
//! does not exist.
//!
//! It walks the table of routes itself: a route that has no line in [`ROUTES`] fails it.

use std::collections::BTreeMap;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use talaria::access::AgentAccess;
use talaria::ids::AgentName;
use talaria::rules::{AgentPolicy, AgentRules};
use talaria::server::routes;

use crate::support::gateway::Setup;
use crate::support::served::{KEY, Served};

/// The kind of thing that a route is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Public: anybody may ask.
    Everybody,
    /// Only the owner may ask.
    Owner,
    /// Nothing with an id, or something that is always the caller's own.
    Oneself,
    /// A session; its id is filled in.
    Session,
    /// A run.
    Run,
    /// A response.
    Response,
    /// An agent, which is there only for those on its list.
    Model,
    /// A session of the forge surface; `tests/it/forge/isolation.rs` has more of these.
    ForgeSession,
    /// Open to everybody, and with a key that holds it says more.
    Health,
    /// For the admin token alone, which this server has not: no such address.
    Admin,
}

/// Every route by its name, its kind of thing, and its body: one line each. `ID` is filled in there too.
const ROUTES: &[(&str, About, &str)] = &[
    ("health", About::Everybody, ""),
    ("health_v1", About::Everybody, ""),
    ("health_detailed", About::Owner, ""),
    ("metrics", About::Owner, ""),
    ("openapi", About::Oneself, ""),
    ("models", About::Oneself, ""),
    ("model", About::Model, ""),
    ("capabilities", About::Oneself, ""),
    ("skills", About::Oneself, ""),
    ("chat_completions", About::Oneself, r#"{"messages":[{"role":"user","content":"hi"}]}"#),
    ("responses", About::Response, r#"{"input":"hi","previous_response_id":"ID"}"#),
    ("response", About::Response, ""),
    ("response_delete", About::Response, ""),
    ("response_cancel", About::Response, ""),
    ("response_input_items", About::Response, ""),
    ("runs", About::Oneself, r#"{"input":"hi"}"#),
    ("run", About::Run, ""),
    ("run_events", About::Run, ""),
    ("run_approval", About::Run, r#"{"choice":"once"}"#),
    ("run_stop", About::Run, ""),
    ("sessions", About::Oneself, ""),
    ("session_create", About::Oneself, "{}"),
    ("session", About::Session, ""),
    ("session_update", About::Session, r#"{"title":"mine now"}"#),
    ("session_delete", About::Session, ""),
    ("session_messages", About::Session, ""),
    ("session_fork", About::Session, "{}"),
    ("session_chat", About::Session, r#"{"message":"hi"}"#),
    ("session_chat_stream", About::Session, r#"{"message":"hi"}"#),
    ("forge_health", About::Health, ""),
    ("forge_session_create", About::Oneself, r#"{"agent":"proxy"}"#),
    ("forge_sessions", About::Oneself, ""),
    ("forge_session", About::ForgeSession, ""),
    ("forge_session_close", About::ForgeSession, ""),
    ("forge_turn", About::ForgeSession, r#"{"prompt":"hi"}"#),
    ("forge_turn_cancel", About::ForgeSession, ""),
    ("forge_session_audit", About::ForgeSession, ""),
    ("forge_run", About::Oneself, r#"{"prompt":"hi","agent":"proxy"}"#),
    ("forge_file", About::Oneself, ""),
    ("forge_token_make", About::Admin, r#"{"name":"more"}"#),
    ("forge_tokens", About::Admin, ""),
    ("forge_token", About::Admin, ""),
    ("forge_token_revoke", About::Admin, ""),
];

/// A response, as far as it must be equal: all of it but the time of day.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
    headers: BTreeMap<String, Vec<u8>>,
    body: String,
}

impl Seen {
    async fn of(response: Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().iter().filter(|(name, _)| *name != "date");
        let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        Self { status, headers, body: response.text().await.unwrap() }
    }
}

/// Two apps, one whose token was revoked, and the owner.
struct Scene {
    served: Served,
    /// The app that owns the things.
    own: String,
    other: String,
    revoked: String,
}

/// One request of the matrix.
struct Question {
    name: &'static str,
    method: Method,
    path: &'static str,
    body: &'static str,
}

impl Scene {
    async fn start() -> Self {
        let served = Served::start().await;
        let (own, other) = (served.app("forge").await, served.app("phone").await);
        let revoked = served.app("gone").await;
        served.revoke("gone").await;
        served.gateway.reload_agents(Setup::default().rules, agents());
        Self { served, own, other, revoked }
    }

    async fn asks(&self, key: Option<&str>, question: &Question, id: &str) -> Seen {
        let Question { method, path, body, .. } = question;
        let path = match path.split_once('{') {
            Some((before, rest)) => format!("{before}{id}{}", rest.split_once('}').unwrap().1),
            None => (*path).to_owned(),
        };
        let mut request = self.served.bare(method.clone(), &path);
        if !body.is_empty() {
            request = request.body(body.replace("ID", id));
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        Seen::of(request.send().await.unwrap()).await
    }

    /// Makes a thing of the app's own, anew for each request; returns its id and a similar id that does not exist.
    async fn thing(&self, about: About, number: usize) -> (String, String) {
        let ask = |path: &'static str, body: Value| {
            let request = self.served.bare(Method::POST, path).bearer_auth(&self.own);
            let request = request.header("x-hermes-session-id", format!("thing-{number:03}"));
            async move { request.body(body.to_string()).send().await.unwrap() }
        };
        let chat = json!({ "messages": [{ "role": "user", "content": "mine" }] });
        match about {
            About::Session => {
                assert_eq!(ask("/v1/chat/completions", chat).await.status(), 200);
                (format!("thing-{number:03}"), "thing-xyz".to_owned())
            }
            About::Run => {
                let answer = ask("/v1/chat/completions", chat).await;
                let run = answer.headers()["x-hermes-run-id"].to_str().unwrap().to_owned();
                let absent = other_digits(&run);
                (run, absent)
            }
            About::Response => {
                let answer: Value = serde_json::from_str(
                    &ask("/v1/responses", json!({ "input": "mine" })).await.text().await.unwrap(),
                )
                .unwrap();
                let response = answer["id"].as_str().unwrap().to_owned();
                let absent = other_digits(&response);
                (response, absent)
            }
            About::Model => ("local".to_owned(), "gpt-0".to_owned()),
            About::ForgeSession => {
                let begun = ask("/sessions", json!({ "agent": "proxy" })).await.text().await.unwrap();
                let begun: Value = serde_json::from_str(&begun).unwrap();
                let session = begun["session_id"].as_str().unwrap().to_owned();
                let absent = other_digits(&session);
                (session, absent)
            }
            About::Everybody | About::Owner | About::Oneself | About::Health | About::Admin => {
                ("unused".to_owned(), "unused".to_owned())
            }
        }
    }
}

/// The agent `local` is for the app that owns the things, the other one for everybody.
fn agents() -> AgentRules {
    let access = AgentAccess { apps: ["forge".to_owned()].into(), ..AgentAccess::default() };
    let own = AgentPolicy { access, ..AgentPolicy::default() };
    let by_name = [(AgentName::proxy(), AgentPolicy::default()), (AgentName::local(), own)];
    AgentRules { by_name: by_name.into(), ..AgentRules::default() }
}

/// An id of the same form that does not exist.
fn other_digits(id: &str) -> String {
    let (prefix, digits) = id.split_once('_').unwrap();
    format!("{prefix}_{}", "0".repeat(digits.len()))
}

fn question(route: &talaria::server::Route) -> (Question, About) {
    let row = ROUTES.iter().find(|(name, _, _)| *name == route.name);
    let (name, about, body) = row.unwrap_or_else(|| {
        panic!("{} {} has no line in ROUTES: say whose things it is about", route.method, route.path)
    });
    let is_open = matches!(about, About::Everybody | About::Health);
    assert_eq!(route.open, is_open, "{name} may be asked without a key");
    assert_eq!(route.admin, *about == About::Admin, "{name} needs the admin token");
    let method = Method::from_bytes(route.method.as_str().as_bytes()).unwrap();
    (Question { name, method, path: route.path, body }, *about)
}

#[tokio::test]
async fn without_a_key_that_holds_nobody_learns_anything() {
    let scene = Scene::start().await;
    for (number, route) in routes().iter().enumerate() {
        let (question, about) = question(route);
        let name = question.name;
        let (id, absent) = scene.thing(about, number).await;
        let nobody = scene.asks(None, &question, &id).await;
        if about == About::Everybody {
            for key in [&scene.own, &scene.revoked, KEY, "wrong"] {
                assert_eq!(scene.asks(Some(key), &question, &id).await, nobody, "{name}");
            }
            continue;
        }
        if matches!(about, About::Health | About::Admin) {
            assert_eq!(nobody.status, if about == About::Admin { 404 } else { 200 }, "{name}");
            for key in [&scene.revoked, "wrong"] {
                assert_eq!(scene.asks(Some(key), &question, &id).await, nobody, "{name}");
            }
            continue;
        }
        assert_eq!(nobody.status, 401, "{name}: {nobody:?}");
        // A token of its own for each request: a wrong key that comes too often is not checked any more.
        let revoked = scene.served.app(&format!("gone-{number}")).await;
        scene.served.revoke(&format!("gone-{number}")).await;
        assert_eq!(scene.asks(None, &question, &absent).await, nobody, "{name}");
        // A revoked key looks like one that never existed.
        let wrong = scene.asks(Some(&format!("{number} is no key")), &question, &id).await;
        assert_eq!(wrong.status, 401, "{name}: {wrong:?}");
        for id in [&id, &absent] {
            assert_eq!(scene.asks(Some(&revoked), &question, id).await, wrong, "{name} with {id}");
        }
    }
}

#[tokio::test]
async fn what_is_somebody_elses_is_like_what_is_not_there() {
    let scene = Scene::start().await;
    for (number, route) in routes().iter().enumerate() {
        let (question, about) = question(route);
        let name = question.name;
        if about == About::Admin {
            // Neither an app nor the owner is let in.
            for key in [&scene.own, KEY] {
                assert_eq!(scene.asks(Some(key), &question, "unused").await.status, 404, "{name}");
            }
            continue;
        }
        if matches!(about, About::Everybody | About::Owner | About::Oneself | About::Health) {
            assert!(!question.path.contains('{'), "{name} names something: whose is it?");
            continue;
        }
        let (id, absent) = scene.thing(about, number).await;
        // As another app, and as the owner: an app's things are its own. The owner may ask every agent.
        for (who, key) in [("another app", scene.other.as_str()), ("the owner", KEY)] {
            if about == About::Model && who == "the owner" {
                assert_eq!(scene.asks(Some(key), &question, &id).await.status, 200);
                continue;
            }
            let nothing = scene.asks(Some(key), &question, &absent).await;
            assert!((400..500).contains(&nothing.status), "{name} as {who}: {nothing:?}");
            for id in [
                id.clone(),
                format!("forge%2F{id}"),
                format!("..%2Fforge%2F{id}"),
                format!("%2e%2e%2fforge%2f{id}"),
            ] {
                let foreign = scene.asks(Some(key), &question, &id).await;
                assert_eq!(foreign, nothing, "{name} as {who} with {id}");
            }
        }
        // The thing is still there and unchanged.
        let own = scene.asks(Some(&scene.own), &question, &id).await;
        assert!(own.status < 300 || own.status == 409, "{name} with its own {id}: {own:?}");
        assert!(!own.body.contains("mine now") || name == "session_update", "{name}: {own:?}");
    }
}

#[tokio::test]
async fn no_list_names_what_is_somebody_elses() {
    let scene = Scene::start().await;
    scene.thing(About::Session, 900).await;
    scene.thing(About::Response, 901).await;
    for route in &routes() {
        let (question, about) = question(route);
        if about != About::Oneself || question.method != Method::GET {
            continue;
        }
        for (key, sees) in
            [(scene.own.as_str(), question.name == "sessions"), (&scene.other, false), (KEY, false)]
        {
            let seen = scene.asks(Some(key), &question, "").await;
            assert_eq!(seen.status, 200, "{}", question.name);
            assert_eq!(seen.body.contains("thing-900"), sees, "{}: {}", question.name, seen.body);
        }
    }
}

#[tokio::test]
async fn what_concerns_everybody_is_the_owners_alone() {
    let scene = Scene::start().await;
    for route in &routes() {
        let (question, about) = question(route);
        if about == About::Owner {
            let name = question.name;
            assert_eq!(scene.asks(Some(KEY), &question, "").await.status, 200, "{name}");
            assert_eq!(scene.asks(Some(&scene.own), &question, "").await.status, 403, "{name}");
        }
    }
}

#[tokio::test]
async fn what_somebody_says_of_himself_changes_nothing() {
    let scene = Scene::start().await;
    let served = &scene.served;
    let asks = |key: &str, text: &str| {
        let body =
            json!({ "messages": [{ "role": "user", "content": text }], "user": "owner", "app": "forge" });
        served
            .bare(Method::POST, "/v1/chat/completions?app=forge&owner=true")
            .bearer_auth(key)
            .header("x-hermes-session-id", "shared")
            .body(body.to_string())
    };
    assert_eq!(asks(&scene.own, "a secret of forge").send().await.unwrap().status(), 200);
    assert_eq!(asks(KEY, "a secret of the owner").send().await.unwrap().status(), 200);
    let mut claims = asks(&scene.other, "what was said?");
    for (name, value) in [
        ("x-hermes-user-id", "owner"),
        ("x-hermes-user-name", "forge"),
        ("x-hermes-session-key", "forge"),
        ("x-hermes-app", "forge"),
        ("x-hermes-scopes", "admin"),
        ("x-talaria-app", "forge"),
        ("x-talaria-scopes", "admin,owner"),
        ("x-openclaw-scopes", "operator.admin"),
        ("x-app-id", "forge"),
        ("x-user-id", "owner"),
        ("x-forwarded-user", "owner"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-remote-user", "owner"),
        ("x-original-url", "/health"),
        ("x-http-method-override", "GET"),
        ("forwarded", "for=127.0.0.1"),
    ] {
        claims = claims.header(name, value);
    }
    assert_eq!(claims.send().await.unwrap().status(), 200);
    let heard = served.gateway.agent_itself().heard();
    let last = heard.last().unwrap();
    assert_eq!(last.prompt, "what was said?");
    assert!(last.history.is_empty(), "it has heard what others said: {:?}", last.history);
    assert_ne!(last.memory.as_deref(), Some("forge"), "it is told what others are remembered by");
    assert_eq!(last.origin.user_id, None, "an app speaks for nobody");
    assert!(heard.iter().all(|one| heard.iter().filter(|other| other.session == one.session).count() == 1));
}

#[tokio::test]
async fn a_key_of_idempotency_is_the_apps_own() {
    let scene = Scene::start().await;
    let asks = |key: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        let request = scene.served.bare(Method::POST, "/v1/chat/completions").bearer_auth(key);
        let request = request.header("idempotency-key", "the same").body(body.to_string());
        async move { request.send().await.unwrap().headers()["x-hermes-run-id"].to_str().unwrap().to_owned() }
    };
    let runs = [asks(&scene.own).await, asks(&scene.other).await, asks(KEY).await];
    assert!(runs[0] != runs[1] && runs[1] != runs[2] && runs[0] != runs[2], "{runs:?}");
    assert_eq!(asks(&scene.own).await, runs[0]);
}
