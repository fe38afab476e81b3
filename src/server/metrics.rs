//! `GET /metrics`: the counters in OpenMetrics format, which Prometheus reads.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};

use super::{ApiError, Caller, Server};
use crate::metrics::WaitingCounts;
use crate::store::unix_now;

/// Media type for the OpenAPI document.
pub const OPEN_METRICS: &str = "application/openmetrics-text";

/// `Content-Type` of the response.
const FORM: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`
pub async fn metrics(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, ApiError> {
    caller.must_be_owner()?;
    let accounts: Vec<_> = server.turns.accounts().map(|account| account.id().clone()).collect();
    let now = unix_now();
    let counted = server.store.read(move |tx| {
        accounts.iter().try_fold((0, 0), |(outbox, cleanups), account| {
            Ok((outbox + tx.pending_count(account, now)?, cleanups + tx.cleanup_count(account)?))
        })
    });
    let (_, turns) = server.turns.count();
    let (outbox, cleanups) = counted.await?;
    let waiting = WaitingCounts { turns, outbox, cleanups };
    // It looks at the processes of the system.
    let text = tokio::task::spawn_blocking(move || server.turns.metrics().text(&server.store, waiting));
    Ok(([(CONTENT_TYPE, FORM)], text.await.map_err(ApiError::mistake)?).into_response())
}
