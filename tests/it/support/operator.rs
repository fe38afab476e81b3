//! The operator at the command line, acting on a gateway of the test's process as through its control socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// An operator. Not to be kept: it holds on to the store.
pub struct Operator(pub Router);

impl Operator {
    /// Enters a pairing code; the error is the text of the command line.
    pub async fn approves(&self, code: &str) -> Result<Value, String> {
        self.does("/pairings/approve", json!({ "code": code })).await
    }

    /// Revokes a person's pairing.
    pub async fn revokes(&self, person: &str) -> Result<Value, String> {
        self.does("/pairings/revoke", json!({ "person": person, "account": null })).await
    }

    /// Pairings that wait or were approved, as `id state`.
    pub async fn pairings(&self) -> Vec<String> {
        let list = self.asks("GET", "/pairings", Value::Null).await.unwrap();
        let state = |pending: &Value| if pending.as_bool().unwrap() { "waits" } else { "may talk" };
        let one = |pairing: &Value| {
            format!("{} {}", pairing["person"].as_str().unwrap(), state(&pairing["pending"]))
        };
        list["pairings"].as_array().unwrap().iter().map(one).collect()
    }

    /// The content of `talaria status`.
    pub async fn status(&self) -> Value {
        self.asks("GET", "/status", Value::Null).await.unwrap()
    }

    /// Carries out an action.
    pub async fn does(&self, what: &str, question: Value) -> Result<Value, String> {
        self.asks("POST", what, question).await
    }

    async fn asks(&self, method: &str, what: &str, question: Value) -> Result<Value, String> {
        let request =
            Request::builder().method(method).uri(what).body(Body::from(question.to_string())).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let well = response.status().is_success();
        let answer = to_bytes(response.into_body(), 1_000_000).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        if well { Ok(answer) } else { Err(answer["errors"][0]["message"].as_str().unwrap().to_owned()) }
    }
}
