//! Endpoints about a stored response besides reading it: cancel it, and list its input.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

use super::object::ResponseInfo;
use crate::server::path_params::ResponseName;
use crate::server::turn_result::TurnResult;
use crate::server::{ApiError, Caller, Server};
use crate::store::StoredResponse;

/// Longest wait for the end of a cancelled response before it is returned as it is. The engine gives an agent
/// less.
const CANCELLED: Duration = Duration::from_secs(10);

/// Most items of one page in the protocol.
const PAGE: u32 = 100;

/// `POST /v1/responses/{response_id}/cancel`. A finished response stays as it is, and is returned like that.
pub async fn cancel(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
) -> Result<Response, ApiError> {
    let kept = find(&server, &caller, id).await?;
    let run = kept.turn.clone();
    if !TurnResult::is_there(&server, &run).await? {
        server.turns.stop(&kept.session, &run).await?;
        if let Some(log) = server.turns.log_of(&run) {
            let _ = tokio::time::timeout(CANCELLED, log.ended()).await;
        }
    }
    ResponseInfo::kept(kept).so_far(&server, &caller, &run).await
}

/// Input of a response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseInputItems")]
pub struct InputItems {
    object: &'static str,
    /// The prompt. Messages before it belong to earlier responses.
    data: Vec<InputItem>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseInputMessage")]
struct InputItem {
    id: String,
    r#type: &'static str,
    role: &'static str,
    status: &'static str,
    content: [InputText; 1],
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseInputText")]
struct InputText {
    r#type: &'static str,
    /// The prompt as the history keeps it: pictures are only named.
    text: String,
}

/// Page of items that is wanted. There is only one item, so `order` changes nothing.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub struct ItemsQuery {
    /// Id of the last item of the page before.
    after: Option<String>,
    /// From 1 to 100.
    #[schemars(range(min = 1, max = PAGE))]
    limit: Option<u32>,
}

impl ItemsQuery {
    fn read(query: &str) -> Result<Self, ApiError> {
        let mut wanted = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "after" => wanted.after = Some(value.to_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                    let wrong = || ApiError::wrong("limit", format!("It is a number from 1 to {PAGE}"));
                    wanted.limit = Some(limit.ok_or_else(wrong)?);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

/// `GET /v1/responses/{response_id}/input_items`
pub async fn input_items(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    ResponseName(id): ResponseName,
    RawQuery(query): RawQuery,
) -> Result<Json<InputItems>, ApiError> {
    let wanted = ItemsQuery::read(query.as_deref().unwrap_or_default())?;
    let kept = find(&server, &caller, id).await?;
    let turn = kept.turn.clone();
    let question = server.store.read(move |tx| tx.question_of(&turn)).await?;
    let id = format!("{}_input", ResponseInfo::kept(kept).message_id());
    let message = |text| {
        let content = [InputText { r#type: "input_text", text }];
        InputItem { id: id.clone(), r#type: "message", role: "user", status: "completed", content }
    };
    let is_behind = wanted.after.as_ref() == Some(&id);
    let data: Vec<_> = question.into_iter().filter(|_| !is_behind).map(message).collect();
    let shown = data.first().map(|item| item.id.clone());
    Ok(Json(InputItems { object: "list", first_id: shown.clone(), last_id: shown, data, has_more: false }))
}

/// Finds a stored response of the caller.
async fn find(server: &Server, caller: &Caller, id: String) -> Result<StoredResponse, ApiError> {
    let app = caller.app().to_owned();
    server.store.read(move |tx| tx.response(&app, &id)).await?.ok_or_else(ApiError::no_response)
}
