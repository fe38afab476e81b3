//! Everything that can be asked: one table, which is the router and what the server says of itself.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{Problem, Server, about, body, caller, chat, guard, responses};

/// One thing that can be asked.
pub struct Route {
    /// What `/v1/capabilities` calls it.
    pub name: &'static str,
    /// How.
    pub method: Method,
    /// Where; what is in braces is for the caller to fill in.
    pub path: &'static str,
    /// What it is good for, in one line.
    pub about: &'static str,
    /// Whether anybody may ask.
    pub open: bool,
    handler: MethodRouter<Arc<Server>>,
}

/// All of them.
pub fn all() -> Vec<Route> {
    vec![
        get("health", "/health", "Whether the server is there", about::health).open(),
        get("health_v1", "/v1/health", "The same, where some clients look", about::health).open(),
        get("models", "/v1/models", "The one model there is: the agent", about::models),
        get("capabilities", "/v1/capabilities", "What this server can do", about::capabilities),
        post(
            "chat_completions",
            "/v1/chat/completions",
            "Ask the agent, with or without a session",
            chat::complete,
        ),
        post("responses", "/v1/responses", "The same in the shape of the newer protocol", responses::create),
        get(
            "response",
            "/v1/responses/{response_id}",
            "A response that was kept, as it is now or as a stream",
            responses::retrieve,
        ),
        delete(
            "response_delete",
            "/v1/responses/{response_id}",
            "Forgets a response; what was said stays in its session",
            responses::remove,
        ),
    ]
}

/// The server as a service.
pub fn router(server: Arc<Server>) -> Router {
    let (mut open, mut closed) = (Router::new(), Router::new());
    for route in all() {
        match route.open {
            true => open = open.route(route.path, route.handler),
            false => closed = closed.route(route.path, route.handler),
        }
    }
    closed
        .route_layer(from_fn_with_state(server.clone(), caller::identify))
        .merge(open)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(body::LARGEST))
        .layer(from_fn_with_state(server.clone(), guard::guard))
        .with_state(server)
}

async fn unknown() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is no such address; GET /v1/capabilities lists them",
    )
}

async fn wrong_method() -> Problem {
    let message = "This address does not take that method; GET /v1/capabilities lists them";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

impl Route {
    fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

fn get<H: Handler<T, Arc<Server>>, T: 'static>(
    name: &'static str,
    path: &'static str,
    about: &'static str,
    handler: H,
) -> Route {
    Route { name, method: Method::GET, path, about, open: false, handler: on(MethodFilter::GET, handler) }
}

fn post<H: Handler<T, Arc<Server>>, T: 'static>(
    name: &'static str,
    path: &'static str,
    about: &'static str,
    handler: H,
) -> Route {
    Route { name, method: Method::POST, path, about, open: false, handler: on(MethodFilter::POST, handler) }
}

fn delete<H: Handler<T, Arc<Server>>, T: 'static>(
    name: &'static str,
    path: &'static str,
    about: &'static str,
    handler: H,
) -> Route {
    let handler = on(MethodFilter::DELETE, handler);
    Route { name, method: Method::DELETE, path, about, open: false, handler }
}
