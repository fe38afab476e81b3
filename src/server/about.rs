//! What the server says of itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};

use super::{Server, routes};
use crate::store::unix_now;

/// `GET /health`, `GET /v1/health`: open to everybody.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "platform": "talaria", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /v1/models`
pub async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    let model = json!({ "id": server.settings.model, "object": "model", "created": unix_now(), "owned_by": "talaria" });
    Json(json!({ "object": "list", "data": [model] }))
}

/// `GET /v1/capabilities`
pub async fn capabilities(State(server): State<Arc<Server>>) -> Json<Value> {
    let mut endpoints = Map::new();
    for route in routes::all() {
        endpoints
            .insert(route.name.to_owned(), json!({ "method": route.method.as_str(), "path": route.path }));
    }
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
        "idempotency": true, "resumable_runs": true, "approvals": true,
    });
    Json(json!({
        "object": "capabilities", "platform": "talaria", "version": env!("CARGO_PKG_VERSION"),
        "model": server.settings.model, "features": features, "endpoints": endpoints,
    }))
}
