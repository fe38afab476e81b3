//! The HTTP client under a streamable-HTTP server.
//!
//! rmcp reads an answer into memory whole, of any size, and puts the body of an error into its words. This client reads at
//! most [`BODY_BYTES`] of each answer, keeps bodies and addresses out of errors, and leaves the rest to rmcp.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::connection::first_cause;
use super::guarded_transport::{LINE_BYTES, LinkState};
use super::server_state::McpFailureKind;
use crate::config::{BaseUrl, McpServerConfig, Secret, UpstreamTimeouts};
use crate::openai::client;

/// Most bytes of one answer: as much as a process may send in one line.
const BODY_BYTES: usize = LINE_BYTES;

/// Bytes of an error's body that are read to find the server's own words.
const ERROR_BYTES: usize = 64 * 1024;

/// The reason for which an answer is not read to its end.
const TOO_LONG: &str = "its answer is too long";

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: &str = "mcp-session-id";

/// Makes the transport to a server. The error is a reason for people.
pub(super) fn connect(
    url: &BaseUrl,
    headers: &std::collections::BTreeMap<String, Secret>,
    config: &McpServerConfig,
    link: Arc<LinkState>,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let wrong = || format!("the header `{name}` cannot be sent");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        custom.insert(header, value);
    }
    let timeouts = UpstreamTimeouts {
        connect: config.connect_timeout,
        first_byte: config.timeout,
        idle: config.timeout,
        keepalive_idle: config.timeout,
    };
    // A header may be a key: then it goes in the clear only to a private address.
    let client = client::build(url, headers.values().next(), false, &timeouts)
        .map_err(|_| "no HTTP client could be made".to_owned())?;
    let mut settings = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    settings.custom_headers = custom;
    settings.max_sse_event_size = BODY_BYTES;
    Ok(StreamableHttpClientTransport::with_client(BoundedClient { client, link }, settings))
}

/// A client whose answers are bounded.
#[derive(Clone)]
pub(super) struct BoundedClient {
    client: Client,
    /// Broken off when an answer is too long: rmcp would hide the reason.
    link: Arc<LinkState>,
}

/// Error of a request.
type HttpError = StreamableHttpError<reqwest::Error>;

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let mut headers: HeaderMap = custom_headers.into_iter().collect();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        let has_session = session_id.is_some();
        if let Some(session) = session_id.and_then(|session| HeaderValue::from_str(&session).ok()) {
            headers.insert(SESSION, session);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let body = serde_json::to_vec(&message)?;
        let sent = self.client.post(uri.as_ref()).headers(headers).body(body).send().await;
        let response = sent.map_err(|error| {
            self.link.note_trouble(McpFailureKind::Unreachable);
            without_url(error)
        })?;
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let kind = media_type(&response);
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if has_session => {
                self.link.note_trouble(McpFailureKind::Ended);
                Err(StreamableHttpError::SessionExpired)
            }
            status if !status.is_success() => refused(response, kind, self.link.clone()).await,
            _ => {
                let session = response.headers().get(SESSION);
                let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
                match kind {
                    MediaType::Events => {
                        Ok(StreamableHttpPostResponse::Sse(events(response, self.link.clone()), session))
                    }
                    MediaType::Json => {
                        let body = read_body(response, BODY_BYTES, self.link.clone()).await?;
                        match serde_json::from_slice(&body) {
                            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                            // Nothing is expected in answer to a notification.
                            Err(_) if !is_request => Ok(StreamableHttpPostResponse::Accepted),
                            Err(_) => Err(self.faulty("its answer is no message of the protocol")),
                        }
                    }
                    MediaType::Other if !is_request => Ok(StreamableHttpPostResponse::Accepted),
                    MediaType::Other => Err(self.faulty("its answer is neither JSON nor a stream of events")),
                }
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let deleted = self.client.delete_session(uri, session_id, auth_header, custom_headers).await;
        deleted.map_err(quiet)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        // The library bounds each event of this stream.
        let opened = self.client.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            BODY_BYTES,
        );
        opened.await.map_err(quiet)
    }
}

impl BoundedClient {
    /// An answer that does not follow the protocol.
    fn faulty(&self, words: &str) -> HttpError {
        self.link.note_trouble(McpFailureKind::Faulty);
        unexpected(words)
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaType {
    Json,
    Events,
    Other,
}

fn media_type(response: &Response) -> MediaType {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    if kind.starts_with(JSON) {
        MediaType::Json
    } else if kind.starts_with(EVENTS) {
        MediaType::Events
    } else {
        MediaType::Other
    }
}

/// An answer with an error status: the server's own error if it is a message of the protocol, otherwise the status.
async fn refused(
    response: Response,
    kind: MediaType,
    link: Arc<LinkState>,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    link.note_trouble(McpFailureKind::Refused { status: status.as_u16() });
    let is_access = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if kind == MediaType::Json && !is_access && status != StatusCode::TOO_MANY_REQUESTS {
        let body = read_body(response, ERROR_BYTES, link).await?;
        if let Ok(message @ JsonRpcMessage::Error(_)) = serde_json::from_slice::<ServerJsonRpcMessage>(&body)
        {
            return Ok(StreamableHttpPostResponse::Json(message, None));
        }
    }
    let words = match status {
        StatusCode::UNAUTHORIZED => "it wants another key (status 401)".to_owned(),
        StatusCode::FORBIDDEN => "it forbids this to our key (status 403)".to_owned(),
        status if status.is_redirection() => {
            format!("it sends us elsewhere (status {}), where Talaria does not follow", status.as_u16())
        }
        status => format!("it answers with status {}", status.as_u16()),
    };
    Err(unexpected(words))
}

fn events(response: Response, link: Arc<LinkState>) -> BoxStream<'static, Result<Sse, SseError>> {
    SseStream::from_bytes_stream(Box::pin(bounded(response, BODY_BYTES, link))).boxed()
}

async fn read_body(response: Response, limit: usize, link: Arc<LinkState>) -> Result<Vec<u8>, HttpError> {
    let parts = bounded(response, limit, link).try_fold(Vec::new(), async |mut body: Vec<u8>, part| {
        body.extend_from_slice(&part);
        Ok(body)
    });
    Ok(parts.await?)
}

/// The body, with an error in place of everything beyond the limit.
fn bounded(
    response: Response,
    limit: usize,
    link: Arc<LinkState>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    // `None` once it has failed: nothing may follow an error.
    response.bytes_stream().scan(Some(limit), move |left, part| {
        let taken = left.take().map(|before| match part {
            Ok(part) if part.len() <= before => {
                *left = Some(before - part.len());
                Ok(part)
            }
            Ok(_) => {
                link.break_off(McpFailureKind::Faulty, TOO_LONG);
                Err(io::Error::other(TOO_LONG))
            }
            Err(error) => Err(io::Error::other(error.without_url())),
        });
        futures_util::future::ready(taken)
    })
}

/// An error in our own words. rmcp's own kinds have prefixes for programmers, and hide the cause.
fn unexpected(words: impl Into<String>) -> HttpError {
    StreamableHttpError::Io(io::Error::other(words.into()))
}

/// The first cause of an error, without an address.
fn without_url(error: reqwest::Error) -> HttpError {
    unexpected(first_cause(&error.without_url()))
}

/// An error of the library, without an address.
fn quiet(error: HttpError) -> HttpError {
    match error {
        StreamableHttpError::Client(error) => without_url(error),
        other => other,
    }
}
