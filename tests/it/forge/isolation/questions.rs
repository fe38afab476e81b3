//! The requests of the matrix, from the table of routes.

use std::collections::BTreeMap;

use reqwest::Method;
use talaria::server::routes;

use crate::forge::scene::ForgeScene;

/// The kind of thing that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A session of the app, whose id is filled in.
    Session,
    /// A run, whose id is filled in.
    Run,
    /// Nothing with an id, or something that is always the caller's own.
    Oneself,
    /// Open to everybody, and with a key that holds it says more.
    Health,
    /// For the admin token alone.
    Admin,
    /// No such address or method, which everybody is told.
    Nothing,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Question {
    pub about: About,
    method: Method,
    /// With `ID` for the id.
    path: String,
    body: &'static str,
}

/// Bodies for every route of this surface, and for the routes about runs, which this surface makes too.
const BODIES: &[(&str, &[&str])] = &[
    ("forge_health", &[""]),
    ("forge_session_create", &[r#"{"agent":"claude"}"#, "not json"]),
    ("forge_sessions", &[""]),
    ("forge_session", &[""]),
    ("forge_session_close", &[""]),
    ("forge_turn", &[r#"{"prompt":"hi"}"#, r#"{"prompt":""}"#, "not json"]),
    ("forge_turn_cancel", &[""]),
    ("forge_session_audit", &[""]),
    ("forge_run", &[r#"{"prompt":"hi"}"#, r#"{"prompt":""}"#]),
    // No form.
    ("forge_file", &[WRONG_FORM]),
    ("forge_token_make", &[r#"{"name":"more"}"#]),
    ("forge_tokens", &[""]),
    ("forge_token", &[""]),
    ("forge_token_revoke", &[""]),
    ("run", &[""]),
    ("run_events", &[""]),
    ("run_approval", &[r#"{"choice":"once"}"#]),
    ("run_stop", &[""]),
];

/// A body that is no form.
const WRONG_FORM: &str = "no form";

/// Bodies that are answered with 400 whoever sends them with a key that holds.
const WRONG: [&str; 3] = [r#"{"prompt":""}"#, "not json", WRONG_FORM];

/// Requests beside those of the routes.
const MORE: &[(About, &str, &str)] = &[
    (About::Oneself, "GET", "/sessions?include_closed=true"),
    (About::Nothing, "PUT", "/sessions/ID"),
    (About::Nothing, "PATCH", "/sessions/ID"),
    (About::Nothing, "GET", "/sessions/ID/turn"),
    (About::Nothing, "GET", "/sessions/ID/nothing"),
];

impl Question {
    /// Whether its body is refused.
    pub fn is_wrong(&self) -> bool {
        WRONG.contains(&self.body)
    }
}

/// All requests about these things.
pub fn questions(wanted: impl Fn(About) -> bool) -> Vec<Question> {
    let mut all = Vec::new();
    for route in routes() {
        let is_about_runs = route.path.contains("{run_id}");
        if !route.name.starts_with("forge_") && !is_about_runs {
            continue;
        }
        let bodies = BODIES.iter().find(|(name, _)| *name == route.name).map(|(_, bodies)| bodies);
        let bodies = bodies.unwrap_or_else(|| panic!("{} has no line in BODIES", route.name));
        let about = match (route.admin, route.open, route.path.split_once('{').map(|(_, name)| name)) {
            (true, _, _) => About::Admin,
            (false, true, None) => About::Health,
            (false, false, None) => About::Oneself,
            (false, false, Some(name)) if name.starts_with("session_id}") => About::Session,
            (false, false, Some(name)) if name.starts_with("run_id}") => About::Run,
            (false, _, Some(_)) => panic!("{} names something: whose is it?", route.path),
        };
        let path =
            route.path.replace("{session_id}", "ID").replace("{run_id}", "ID").replace("{name}", "forge");
        let method = Method::from_bytes(route.method.as_str().as_bytes()).unwrap();
        for body in *bodies {
            all.push(Question { about, method: method.clone(), path: path.clone(), body });
        }
        if about == About::Session {
            // Each address of this surface is also there with a slash behind it.
            all.push(Question { about, method, path: format!("{path}/"), body: bodies[0] });
        }
    }
    let more = MORE.iter().map(|(about, method, path)| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Question { about: *about, method, path: (*path).to_owned(), body: "" }
    });
    all.into_iter().chain(more).filter(|question| wanted(question.about)).collect()
}

/// A response without the time of day.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub status: u16,
    headers: BTreeMap<String, Vec<u8>>,
    pub body: String,
}

/// Asks with a key, or without one.
pub async fn ask(scene: &ForgeScene, key: Option<&str>, question: &Question, id: &str) -> Seen {
    let Question { method, path, body, .. } = question;
    let mut request = scene.served.bare(method.clone(), &path.replace("ID", id));
    if !body.is_empty() {
        request = request.body(*body);
    }
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    Seen { status, headers, body: response.text().await.unwrap() }
}
