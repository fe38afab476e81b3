//! What the server says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::path::ModelName;
use super::route::Route;
use super::{Problem, Server, routes};
use crate::store::unix_now;

/// What this program is called where several kinds of server are told apart.
pub const PLATFORM: &str = "talaria";

/// That the server is there.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

/// The models there are.
#[derive(Serialize, JsonSchema)]
pub struct Models {
    object: &'static str,
    data: Vec<Model>,
}

/// One of them.
#[derive(Serialize, JsonSchema)]
pub struct Model {
    id: String,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

/// The skills there are.
#[derive(Serialize, JsonSchema)]
pub struct Skills {
    object: &'static str,
    #[schemars(with = "Vec<Value>")]
    data: [Value; 0],
}

/// What the server can do, and where.
#[derive(Serialize, JsonSchema)]
pub struct Capabilities {
    object: &'static str,
    platform: &'static str,
    version: &'static str,
    model: String,
    /// Whether it can; and the names of headers.
    #[schemars(with = "Map<String, Value>")]
    features: Value,
    /// By the name of what can be asked.
    endpoints: BTreeMap<&'static str, Endpoint>,
}

/// Where something is asked.
#[derive(Serialize, JsonSchema)]
struct Endpoint {
    method: String,
    path: &'static str,
}

/// `GET /health`, `GET /v1/health`: open to everybody.
pub async fn health() -> Json<Health> {
    Json(Health { status: "ok", platform: PLATFORM, version: env!("CARGO_PKG_VERSION") })
}

/// `GET /v1/models`
pub async fn models(State(server): State<Arc<Server>>) -> Json<Models> {
    Json(Models { object: "list", data: vec![Model::of(&server)] })
}

/// `GET /v1/models/{model_id}`
pub async fn model(
    State(server): State<Arc<Server>>,
    ModelName(name): ModelName,
) -> Result<Json<Model>, Problem> {
    match name == server.settings.model {
        true => Ok(Json(Model::of(&server))),
        false => Err(Problem::no_model()),
    }
}

impl Model {
    /// The agent, under the name that it is asked by.
    fn of(server: &Server) -> Self {
        let id = server.settings.model.clone();
        Self { id, object: "model", created: unix_now(), owned_by: PLATFORM }
    }
}

/// `GET /v1/skills`: there are none here; an agent has its own and does not tell.
pub async fn skills() -> Json<Skills> {
    Json(Skills { object: "list", data: [] })
}

/// `GET /v1/capabilities`
pub async fn capabilities(State(server): State<Arc<Server>>) -> Json<Capabilities> {
    let named = |route: &Route| Endpoint { method: route.method.to_string(), path: route.path };
    let endpoints: BTreeMap<_, _> = routes::all().iter().map(|route| (route.name, named(route))).collect();
    let has = |name: &str| endpoints.contains_key(name);
    let features = json!({
        "chat_completions": has("chat_completions"), "chat_completions_streaming": has("chat_completions"),
        "responses_api": has("responses"), "responses_streaming": has("responses"),
        "run_submission": has("runs"), "run_status": has("run"), "run_events_sse": has("run_events"),
        "run_stop": has("run_stop"), "run_approval_response": has("run_approval"),
        "tool_progress_events": true, "approval_events": true,
        "session_resources": has("sessions"), "session_chat": has("session_chat"),
        "session_chat_streaming": has("session_chat_stream"), "session_fork": has("session_fork"),
        "skills_api": has("skills"),
        "admin_config_rw": false, "jobs_admin": false, "memory_write_api": false, "audio_api": false,
        "realtime_voice": false, "cors": !server.settings.origins.is_empty(),
        "session_continuity_header": "X-Hermes-Session-Id", "session_key_header": "X-Hermes-Session-Key",
        "client_tools": false, "idempotency": true, "resumable_runs": true, "approvals": true,
    });
    Json(Capabilities {
        object: "capabilities",
        platform: PLATFORM,
        version: env!("CARGO_PKG_VERSION"),
        model: server.settings.model.clone(),
        features,
        endpoints,
    })
}
