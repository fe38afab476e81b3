//! The table of all endpoints. The router, `/v1/capabilities` and the OpenAPI document are built from it.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};

use super::route::{Route, delete, get, patch, post};
use super::{
    ApiError, Server, approvals, caller, chat, discovery, forge, health, metrics, openapi, origin_guard,
    responses, run_events, runs, sessions, skills,
};

/// Path of the list of sessions.
const SESSIONS: &str = "/api/sessions";

/// Path of one session.
const SESSION: &str = "/api/sessions/{session_id}";

/// All endpoints.
pub fn all() -> Vec<Route> {
    vec![
        get("health", "/health", "Whether the server is there", discovery::health)
            .open()
            .answers::<discovery::HealthResponse>(200),
        get("health_v1", "/v1/health", "The same, where some clients look", discovery::health)
            .open()
            .answers::<discovery::HealthResponse>(200),
        get(
            "health_detailed",
            "/health/detailed",
            "How things are, and what is in the way",
            health::detailed,
        )
        .answers::<health::DetailedHealth>(200)
        .answers::<health::DetailedHealth>(503),
        get("metrics", "/metrics", "What is counted, for Prometheus", metrics::metrics)
            .answers_as::<String>(200, metrics::OPEN_METRICS),
        get("openapi", "/openapi.json", "This list, for programs", openapi::document)
            .answers::<openapi::OpenApiDocument>(200),
        get("models", "/v1/models", "The one model there is: the agent", discovery::models)
            .answers::<discovery::ModelList>(200),
        get("model", "/v1/models/{model_id}", "One model, by its id", discovery::model)
            .answers::<discovery::ModelEntry>(200)
            .fails([404]),
        get("capabilities", "/v1/capabilities", "What this server can do", discovery::capabilities)
            .answers::<discovery::ServerCapabilities>(200),
        post(
            "chat_completions",
            "/v1/chat/completions",
            "Ask the agent, with or without a session",
            chat::complete,
        )
        .takes::<chat::ChatRequest>()
        .answers::<chat::ChatCompletion>(200)
        .streams()
        .runs()
        .fails([502]),
        post("runs", "/v1/runs", "Start a run and look after it later", runs::start)
            .takes::<runs::RunRequest>()
            .answers::<runs::StartedRun>(202)
            .runs(),
        get("run", "/v1/runs/{run_id}", "How a run is, or how it ended", runs::show)
            .answers::<runs::RunView>(200)
            .fails([404]),
        get("run_events", "/v1/runs/{run_id}/events", "A run as it happens, or as it was", run_events::read)
            .asks::<run_events::RunQuery>()
            .streams()
            .fails([404]),
        post(
            "run_approval",
            "/v1/runs/{run_id}/approval",
            "Answer what the agent asks in a run",
            approvals::respond,
        )
        .takes::<approvals::ApprovalRequest>()
        .answers::<approvals::ApprovalResponse>(200)
        .fails([404, 409]),
        post("run_stop", "/v1/runs/{run_id}/stop", "Ends a run, whether it runs or waits", runs::stop)
            .answers::<runs::StoppingRun>(200)
            .fails([404]),
        post("responses", "/v1/responses", "The same in the shape of the newer protocol", responses::create)
            .takes::<responses::ResponsesRequest>()
            .answers::<responses::ResponseObject<'static>>(200)
            .streams()
            .runs()
            .fails([404, 409, 502]),
        get(
            "response",
            "/v1/responses/{response_id}",
            "A response that was kept, as it is now or as a stream",
            responses::retrieve,
        )
        .asks::<responses::ResponseQuery>()
        .answers::<responses::ResponseObject<'static>>(200)
        .streams()
        .fails([404]),
        delete(
            "response_delete",
            "/v1/responses/{response_id}",
            "Forgets a response; what was said stays in its session",
            responses::remove,
        )
        .answers::<responses::DeletedResponse>(200)
        .fails([404]),
        post(
            "response_cancel",
            "/v1/responses/{response_id}/cancel",
            "Stops a response, and answers with what there is of it",
            responses::cancel,
        )
        .answers::<responses::ResponseObject<'static>>(200)
        .fails([404]),
        get(
            "response_input_items",
            "/v1/responses/{response_id}/input_items",
            "What a response was asked",
            responses::input_items,
        )
        .asks::<responses::ItemsQuery>()
        .answers::<responses::InputItems>(200)
        .fails([404]),
        get("skills", "/v1/skills", "The skills of the agents, by name", skills::list)
            .answers::<skills::SkillList>(200),
        get("sessions", SESSIONS, "Sessions, the last used first", sessions::list)
            .asks::<sessions::ListQuery>()
            .answers::<sessions::SessionListing>(200),
        post("session_create", SESSIONS, "Begin a session", sessions::create)
            .takes::<sessions::NewRequest>()
            .answers::<sessions::SessionDetail>(201)
            .fails([409]),
        get("session", SESSION, "One session", sessions::show)
            .answers::<sessions::SessionDetail>(200)
            .fails([404]),
        patch("session_update", SESSION, "Rename a session, or say that it is over", sessions::change)
            .takes::<sessions::ChangeRequest>()
            .answers::<sessions::SessionDetail>(200)
            .fails([404]),
        delete(
            "session_delete",
            SESSION,
            "Stop what runs in a session and remove all of it",
            sessions::remove,
        )
        .answers::<sessions::DeletedSession>(200)
        .fails([404, 409]),
        get(
            "session_messages",
            "/api/sessions/{session_id}/messages",
            "What was said, oldest first",
            sessions::messages,
        )
        .asks::<sessions::PageQuery>()
        .answers::<sessions::MessagePage>(200)
        .fails([404]),
        post(
            "session_fork",
            "/api/sessions/{session_id}/fork",
            "Begin another session with all that was said in this one, which is over with that",
            sessions::fork,
        )
        .takes::<sessions::ForkRequest>()
        .answers::<sessions::SessionDetail>(201)
        .fails([404, 409]),
        post(
            "session_chat",
            "/api/sessions/{session_id}/chat",
            "Ask in a session; one of a room remembers it, and the room is shown nothing of it",
            sessions::chat,
        )
        .takes::<sessions::ChatRequest>()
        .answers::<sessions::SessionCompletion>(200)
        .runs()
        .fails([404, 502]),
        post(
            "session_chat_stream",
            "/api/sessions/{session_id}/chat/stream",
            "The same, and the answer comes as it grows",
            sessions::chat_stream,
        )
        .takes::<sessions::ChatRequest>()
        .streams()
        .runs()
        .fails([404]),
    ]
    .into_iter()
    .chain(forge_routes())
    .collect()
}

/// Path of one session of the forge surface.
const FORGE_SESSION: &str = "/sessions/{session_id}";

/// Path of one token.
const ADMIN_TOKEN: &str = "/admin/tokens/{name}";

/// The endpoints of the forge surface. Their names begin with `forge_`, and each is also there with a `/` behind it.
fn forge_routes() -> Vec<Route> {
    vec![
        get(
            "forge_health",
            "/healthz",
            "Whether the server is there, and which agents it has",
            forge::health,
        )
        .open()
        .answers::<forge::ForgeHealth>(200),
        post("forge_session_create", "/sessions", "Begin a session with an agent", forge::create)
            .takes::<forge::NewSessionBody>()
            .answers::<forge::MadeForgeSession>(200),
        get("forge_sessions", "/sessions", "The app's sessions with agents, the newest first", forge::list)
            .asks::<forge::ForgeListQuery>()
            .answers::<forge::ForgeSessionList>(200),
        get("forge_session", FORGE_SESSION, "One session with an agent", forge::show)
            .answers::<forge::ForgeSessionView>(200)
            .fails([404]),
        delete(
            "forge_session_close",
            FORGE_SESSION,
            "Stop what runs in a session and close it",
            forge::close,
        )
        .answers::<forge::ClosedForgeSession>(200)
        .fails([404]),
        post(
            "forge_turn",
            "/sessions/{session_id}/turn",
            "Ask the agent of a session; the answer has the agent's own events",
            forge::turn,
        )
        .takes::<forge::TurnBody>()
        .answers::<forge::TurnAnswerSchema>(200)
        .answers::<forge::TurnAnswerSchema>(502)
        .streams()
        .runs()
        .fails([404, 410]),
        post(
            "forge_turn_cancel",
            "/sessions/{session_id}/cancel",
            "Stop the turn that runs in a session",
            forge::cancel,
        )
        .answers::<forge::CancelledTurn>(200)
        .fails([404]),
        get(
            "forge_session_audit",
            "/sessions/{session_id}/audit",
            "What happened to a session; also for 30 days after it was deleted",
            forge::audit,
        )
        .answers::<forge::AuditView>(200)
        .fails([404]),
        post("forge_run", "/run", "Ask an agent once", forge::run)
            .takes::<forge::RunBody>()
            .answers::<forge::RunResult>(200)
            .runs()
            .fails([502]),
        post("forge_file", "/files", "Send a file for later turns", forge::upload)
            .takes_form::<forge::UploadForm>()
            .answers::<forge::UploadedFile>(200),
        post("forge_token_make", "/admin/tokens", "Make the token of an app", forge::make_token)
            .admin()
            .takes::<forge::NewAppToken>()
            .answers::<forge::MadeToken>(200)
            .fails([404, 409]),
        get("forge_tokens", "/admin/tokens", "The apps, without their tokens", forge::list_tokens)
            .admin()
            .answers::<forge::AdminTokenList>(200)
            .fails([404]),
        get("forge_token", ADMIN_TOKEN, "One app, without its token", forge::one_token)
            .admin()
            .answers::<forge::AppTokenView>(200)
            .fails([404]),
        delete("forge_token_revoke", ADMIN_TOKEN, "Revoke the token of an app at once", forge::revoke_token)
            .admin()
            .answers::<forge::RevokedAppToken>(200)
            .fails([404]),
    ]
}

/// Builds the router: authentication around each handler that needs it, and the origin guard around everything.
pub fn router(server: Arc<Server>) -> Router {
    let identify = from_fn_with_state(server.clone(), caller::identify);
    let admit_admin = from_fn_with_state(server.clone(), forge::authenticate);
    let mut router = Router::new();
    for route in all() {
        // Around the handler alone: a wrong method is answered before a key is required.
        let handler = match (route.open, route.admin) {
            (true, _) => route.handler,
            (false, true) => route.handler.route_layer(admit_admin.clone()),
            (false, false) => route.handler.route_layer(identify.clone()),
        };
        if forge::is_forge_path(route.path) {
            // Clients of this surface follow no redirect.
            router = router.route(&format!("{}/", route.path), handler.clone());
        }
        router = router.route(route.path, handler);
    }
    router
        .fallback(async || unknown_address())
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(server.clone(), origin_guard::guard))
        .layer(from_fn(forge::reshape))
        .with_state(server)
}

/// The error for an address that does not exist.
pub fn unknown_address() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no such address; GET /v1/capabilities lists them",
    )
}

async fn wrong_method() -> ApiError {
    let message = "This address does not take that method; GET /v1/capabilities lists them";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
