//! Health, models and capabilities: the endpoints by which clients discover the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::path_params::ModelName;
use super::route::Route;
use super::{ApiError, Caller, Server, routes};
use crate::ids::AgentName;
use crate::store::unix_now;

/// Name of this program, for clients that know several kinds of server.
pub const PLATFORM: &str = "talaria";

/// Answer of the health endpoint.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub struct HealthResponse {
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

/// Models that a request can name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Models")]
pub struct ModelList {
    object: &'static str,
    data: Vec<ModelEntry>,
}

/// One model.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelEntry {
    id: String,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

/// Features of the server, and its endpoints.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Capabilities")]
pub struct ServerCapabilities {
    object: &'static str,
    platform: &'static str,
    version: &'static str,
    model: String,
    /// Features by name: whether the server has it, or the name of a header.
    #[schemars(with = "Map<String, Value>")]
    features: Value,
    /// Endpoints by name.
    endpoints: BTreeMap<&'static str, EndpointEntry>,
}

/// Method and path of an endpoint.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Endpoint")]
struct EndpointEntry {
    method: String,
    path: &'static str,
}

/// `GET /health`, `GET /v1/health`: need no key.
pub async fn health() -> Json<HealthResponse> {
    Json(HealthResponse { status: "ok", platform: PLATFORM, version: env!("CARGO_PKG_VERSION") })
}

/// `GET /v1/models`: the default agent under the name of the server's model, then each agent under its own name; only
/// those that the caller may ask.
pub async fn models(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
) -> Json<ModelList> {
    let data = model_names(&server, &caller).into_iter().map(ModelEntry::new).collect();
    Json(ModelList { object: "list", data })
}

/// `GET /v1/models/{model_id}`: a listed name, or the own name of the only agent, which requests may use too.
pub async fn model(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ModelName(name): ModelName,
) -> Result<Json<ModelEntry>, ApiError> {
    let agents = server.turns.agents();
    let agent = AgentName::new(&name).filter(|agent| agents.get(agent).is_some());
    let is_own_name = agent.is_some_and(|agent| server.admits(&caller, &agent));
    match is_own_name || model_names(&server, &caller).contains(&name) {
        true => Ok(Json(ModelEntry::new(name))),
        false => Err(ApiError::no_model()),
    }
}

/// Names among which the caller can choose. A server with one agent has one name for it, as clients expect.
fn model_names(server: &Server, caller: &Caller) -> Vec<String> {
    let (agents, model) = (server.turns.agents(), &server.settings.model);
    let own = agents.iter().filter(|_| agents.iter().count() > 1).map(|(name, _)| name);
    let own = own.filter(|name| server.admits(caller, name));
    let own = own.map(|name| name.to_string()).filter(|name| name != model);
    let default = server.admits(caller, agents.default_name()).then(|| model.clone());
    default.into_iter().chain(own).collect()
}

impl ModelEntry {
    /// An agent, under a name by which clients ask for it.
    fn new(id: String) -> Self {
        Self { id, object: "model", created: unix_now(), owned_by: PLATFORM }
    }
}

/// `GET /v1/capabilities`
pub async fn capabilities(State(server): State<Arc<Server>>) -> Json<ServerCapabilities> {
    let named = |route: &Route| EndpointEntry { method: route.method.to_string(), path: route.path };
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
        "approval_options": true,
    });
    Json(ServerCapabilities {
        object: "capabilities",
        platform: PLATFORM,
        version: env!("CARGO_PKG_VERSION"),
        model: server.settings.model.clone(),
        features,
        endpoints,
    })
}
