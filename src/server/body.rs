//! Reads the JSON body of a request, with limits on size, time, memory and depth.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use futures_util::{Stream, StreamExt as _};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{ApiError, Caller, Server};
use crate::turns::{BudgetPayer, InputBudget, InputPermit};
use crate::util::one_line;

/// Most bytes of a body.
pub const LARGEST_BODY: usize = 10_000_000;

/// Longest time for a whole body: ten megabytes over a poor line.
const WHOLE: Duration = Duration::from_secs(120);

/// Longest time without a new piece of the body.
const PIECE: Duration = Duration::from_secs(30);

/// Longest wait of a request for a share of the input budget.
const BUDGET_WAIT: Duration = Duration::from_secs(10);

/// `Retry-After` if the input budget is used up.
const AGAIN: Duration = Duration::from_secs(2);

/// Deepest nesting of the JSON.
const DEPTH: usize = 64;

/// Characters of the request that an error message repeats.
const SAID: usize = 200;

/// A request body, as bytes and parsed.
pub struct JsonBody<T> {
    /// The exact bytes, for the fingerprint that recognises a repeated request.
    pub bytes: CountedBody,
    /// The parsed body.
    pub value: T,
}

/// Bytes of a body, and their share of the input budget that all requests share.
pub struct CountedBody {
    bytes: Bytes,
    permit: InputPermit,
}

impl CountedBody {
    /// Drops the bytes. Their share of the budget stays taken, for the data that was made from them.
    pub fn into_permit(self) -> InputPermit {
        self.permit
    }
}

impl Deref for CountedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<Server>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, ApiError> {
        // Without an authenticated caller there is no key, and every client is the owner.
        let payer = request.extensions().get::<Caller>().map_or(BudgetPayer::Owner, Caller::payer);
        Self::whole(request, (server.turns.input_budget(), &payer), &server.draining).await
    }
}

impl<T: DeserializeOwned> JsonBody<T> {
    /// Reads and parses a body, unless the process ends first.
    async fn whole(
        request: Request,
        charged_to: (&Arc<InputBudget>, &BudgetPayer),
        draining: &CancellationToken,
    ) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let collecting = collect(&parts.headers, body.into_data_stream(), charged_to);
        let collected = tokio::select! {
            biased;
            collected = tokio::time::timeout(WHOLE, collecting) => collected,
            // A half-sent request does not hold up shutdown.
            () = draining.cancelled() => return Err(ApiError::draining()),
        };
        let bytes = collected.map_err(|_| too_slow())??;
        check_kind(&parts.headers, &bytes)?;
        let value = read(&bytes)?;
        // serde reads a list as the fields in their order; no client means that.
        if bytes.trim_ascii_start().starts_with(b"[") {
            let message = "The request must be a JSON object";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", message));
        }
        Ok(Self { bytes, value })
    }
}

/// Reads a body to its end, at most [`LARGEST_BODY`] bytes.
async fn collect(
    headers: &HeaderMap,
    mut body: impl Stream<Item = Result<Bytes, axum::Error>> + Unpin,
    (budget, payer): (&Arc<InputBudget>, &BudgetPayer),
) -> Result<CountedBody, ApiError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > LARGEST_BODY as u64) {
        return Err(too_large());
    }
    let announced = announced.map_or(0, |length| usize::try_from(length).unwrap_or(LARGEST_BODY));
    // Takes the share for the whole announced length at once: two requests that each hold half of what they
    // need would wait for each other.
    let waiting = tokio::time::timeout(BUDGET_WAIT, budget.take(payer, announced));
    let mut permit = waiting.await.map_err(|_| no_capacity())?;
    let mut all = Vec::with_capacity(announced);
    loop {
        let next = tokio::time::timeout(PIECE, body.next()).await.map_err(|_| too_slow())?;
        let Some(piece) = next else { return Ok(CountedBody { bytes: all.into(), permit }) };
        let piece = piece.map_err(|error| {
            tracing::debug!(%error, "a request broke off");
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_body", "The request broke off before its end")
        })?;
        if all.len() + piece.len() > LARGEST_BODY {
            return Err(too_large());
        }
        if !permit.grow_to(all.len() + piece.len()) {
            return Err(no_capacity());
        }
        all.extend_from_slice(&piece);
    }
}

fn no_capacity() -> ApiError {
    ApiError::busy("Too much is sent at once; send it again in a moment", AGAIN)
}

/// Accepts JSON, and a body without a content type. The types that a web page can send without a CORS preflight
/// are refused.
fn check_kind(headers: &HeaderMap, bytes: &[u8]) -> Result<(), ApiError> {
    let Some(kind) = headers.get(CONTENT_TYPE).filter(|_| !bytes.is_empty()) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind.is_empty() || kind == "application/json" || kind.ends_with("+json") {
        return Ok(());
    }
    let message = "The request must be JSON; send Content-Type: application/json";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

fn too_large() -> ApiError {
    let message = format!("The request is larger than {LARGEST_BODY} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn too_slow() -> ApiError {
    ApiError::new(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        "The request did not come to its end in time",
    )
}

/// Parses JSON; an empty body counts as an empty object.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if deeper_than(bytes, DEPTH) {
        let message = format!("The JSON is nested deeper than {DEPTH} levels");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message));
    }
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        // The path `.` is the whole body, which needs no name.
        let param = Some(error.path().to_string()).filter(|path| path != ".");
        let error = error.into_inner();
        let code = if error.is_data() { "invalid_request" } else { "invalid_json" };
        let param = param.filter(|_| error.is_data()).map(|path| one_line(&path, SAID));
        ApiError { param, ..not_understood(code, &error) }
    })?;
    from.end().map_err(|error| not_understood("invalid_json", &error))?;
    Ok(value)
}

/// Builds the error. Shortened, because serde's message can quote the whole request.
fn not_understood(code: &'static str, error: &serde_json::Error) -> ApiError {
    let message = format!("The request is not understood: {}", one_line(&error.to_string(), SAID));
    ApiError::new(StatusCode::BAD_REQUEST, code, message)
}

/// Whether brackets are nested deeper than this, outside of strings.
fn deeper_than(json: &[u8], most: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'[' | b'{') => {
                depth += 1;
                if depth > most {
                    return true;
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        assert!(!deeper_than(br#"{"a":"[[[[[[\"[["}"#, 1));
        assert!(!deeper_than(b"[][][][]", 1));
        assert!(deeper_than(b"[[]]", 1));
        assert!(read::<serde_json::Value>(&[b'['; 1000]).is_err());
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(read::<serde_json::Value>(&nested(DEPTH)).is_ok());
        assert!(read::<serde_json::Value>(&nested(DEPTH + 1)).is_err());
    }

    #[test]
    fn only_json_is_read() {
        let kind = |kind: &'static str, bytes: &[u8]| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            check_kind(&headers, bytes).map_err(|problem| problem.status.as_u16())
        };
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/ld+json", ""] {
            assert_eq!(kind(json, b"{}"), Ok(()), "{json}");
        }
        for other in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=json"]
        {
            assert_eq!(kind(other, b"{}"), Err(415), "{other}");
            assert_eq!(kind(other, b""), Ok(()), "nothing has no kind");
        }
        assert_eq!(check_kind(&HeaderMap::new(), b"{}"), Ok(()));
    }

    fn budget() -> Arc<InputBudget> {
        Arc::default()
    }

    /// Pieces that arrive `seconds` apart.
    fn slow(pieces: usize, seconds: u64) -> impl Stream<Item = Result<Bytes, axum::Error>> + Unpin {
        Box::pin(futures_util::stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Bytes::from_static(b"[]"))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_given_up() {
        let headers = HeaderMap::new();
        assert_eq!(collect(&headers, slow(3, 29), (&budget(), &BudgetPayer::Owner)).await.unwrap().len(), 6);
        assert_eq!(
            collect(&headers, slow(1, 31), (&budget(), &BudgetPayer::Owner)).await.err().unwrap().status,
            StatusCode::REQUEST_TIMEOUT
        );
        let request = Request::new(axum::body::Body::from_stream(slow(10, 20)));
        let (going, ending) = (CancellationToken::new(), CancellationToken::new());
        let whole =
            JsonBody::<serde_json::Value>::whole(request, (&budget(), &BudgetPayer::Owner), &going).await;
        assert_eq!(whole.err().map(|problem| problem.code), Some("request_timeout"));
        ending.cancel();
        let request = Request::new(axum::body::Body::from_stream(slow(1, 20)));
        let whole =
            JsonBody::<serde_json::Value>::whole(request, (&budget(), &BudgetPayer::Owner), &ending).await;
        assert_eq!(whole.err().map(|problem| problem.code), Some("gateway_draining"));
    }

    #[tokio::test]
    async fn a_body_may_not_be_larger_than_it_may() {
        let (headers, piece) = (HeaderMap::new(), Bytes::from(vec![b' '; 1_000_000]));
        let pieces =
            |count| futures_util::stream::iter((0..count).map(|_| Ok(piece.clone())).collect::<Vec<_>>());
        assert_eq!(
            collect(&headers, pieces(10), (&budget(), &BudgetPayer::Owner)).await.unwrap().len(),
            LARGEST_BODY
        );
        assert_eq!(
            collect(&headers, pieces(11), (&budget(), &BudgetPayer::Owner)).await.err().unwrap().code,
            "body_too_large"
        );
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, "10000001".parse().unwrap())]);
        assert_eq!(
            collect(&announced, slow(1, 1_000_000), (&budget(), &BudgetPayer::Owner))
                .await
                .err()
                .unwrap()
                .code,
            "body_too_large"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_app_sends_is_bounded_and_waits_for_room_at_first() {
        let (budget, app) = (budget(), BudgetPayer::app("one"));
        let pieces = |count| {
            let piece = Bytes::from_static(&[b' '; 64_000]);
            futures_util::stream::iter((0..count).map(move |_| Ok(piece.clone())).collect::<Vec<_>>())
        };
        let headers = HeaderMap::new();
        let held = collect(&headers, pieces(156), (&budget, &app)).await.unwrap();
        assert_eq!(held.len(), 9_984_000);
        let refused = collect(&headers, pieces(3), (&budget, &app)).await.err().unwrap();
        assert_eq!((refused.status, refused.retry_after), (StatusCode::TOO_MANY_REQUESTS, Some(AGAIN)));
        // A request that announces its length waits a while, and is refused if nothing becomes free.
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, "64000".parse().unwrap())]);
        let refused = collect(&announced, pieces(1), (&budget, &app)).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        // Another app and the owner have shares of their own and do not wait.
        for other in [BudgetPayer::app("two"), BudgetPayer::Owner] {
            assert_eq!(collect(&announced, pieces(1), (&budget, &other)).await.unwrap().len(), 64_000);
        }
        let waiting = collect(&announced, pieces(1), (&budget, &app));
        let later = async {
            tokio::time::sleep(BUDGET_WAIT / 2).await;
            // The bytes are dropped, but their share stays taken.
            let permit = held.into_permit();
            tokio::time::sleep(BUDGET_WAIT / 4).await;
            drop(permit);
        };
        let began = tokio::time::Instant::now();
        let (taken, ()) = tokio::join!(waiting, later);
        assert_eq!((taken.unwrap().len(), began.elapsed()), (64_000, BUDGET_WAIT / 4 * 3));
    }

    #[test]
    fn a_wrong_part_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Asked {
            list: Vec<Inner>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Inner {
            flag: bool,
        }
        let wrong = |json: &str| read::<Asked>(json.as_bytes()).unwrap_err();
        assert_eq!(wrong(r#"{"list":[{"flag":true},{"flag":1}]}"#).param.as_deref(), Some("list[1].flag"));
        assert_eq!(wrong("{}").param, None);
        assert_eq!(wrong(r#"{"list":[]} x"#).code, "invalid_json");
        assert!(wrong(&format!(r#"{{"list":"{}"}}"#, "x".repeat(10_000))).message.len() < 300);
    }
}
