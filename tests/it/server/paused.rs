//! The agent server without its socket, on a paused clock.

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::support::gateway::{Setup, TestGateway};
use crate::support::served::{KEY, settings};

/// A server that is called in the test's own process.
pub struct Scene {
    pub gateway: TestGateway,
}

impl Scene {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let mut gateway = TestGateway::with(setup).await;
        gateway.serve(settings()).await;
        Self { gateway }
    }

    pub async fn get(&self, path: &str) -> Response<Body> {
        self.ask("GET", path, &[], &Value::Null).await
    }

    /// Makes a GET request with these headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        self.ask("GET", path, headers, &Value::Null).await
    }

    pub async fn delete(&self, path: &str) -> Response<Body> {
        self.ask("DELETE", path, &[], &Value::Null).await
    }

    /// Ends and starts again on the same store.
    pub async fn restart(&mut self) {
        self.gateway.restart().await;
        self.gateway.serve(settings()).await;
    }

    /// Makes a POST request with these headers besides the owner's key.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        self.ask("POST", path, headers, body).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        request = request.header("authorization", format!("Bearer {KEY}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        talaria::server::router(self.gateway.server()).oneshot(request).await.unwrap()
    }
}
