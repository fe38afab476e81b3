//! One open connection to a server: its requests, each with a time limit, and the list of its tools.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ListToolsRequest, PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use talaria_platform::{CancellationToken, spawn_task};
use tokio::time::Instant;

use super::guarded_transport::LinkState;
use super::server_state::McpFailureKind;
use super::tool_list::{PAGES, ToolList, ToolListBuilder};
use super::tool_result::{ToolAnswer, read_answer};
use crate::config::McpServerConfig;
use crate::util::one_line;

/// Longest wait until the server has taken a cancellation. One that does not read its input never takes it.
const CANCEL: Duration = Duration::from_secs(2);

/// Characters of a server's words about an error.
const ERROR: usize = 2_000;

/// Codes of JSON-RPC errors by which HTTP servers say that they do not know our session.
const LOST_SESSION: [i32; 2] = [-32_000, -32_001];

/// An open connection.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    link: Arc<LinkState>,
    /// Whether the server is reached over HTTP: then it may forget us without closing anything.
    over_http: bool,
    /// Replaced when the server says that it changed.
    list: Mutex<Arc<ToolList>>,
    usage: Mutex<LinkUsage>,
}

/// When a connection was used, for its idle end.
struct LinkUsage {
    /// Calls that run.
    running: usize,
    last: Instant,
    /// Set by the idle end: nobody may begin a call any more.
    closed: bool,
}

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// The turn was stopped.
    Stopped,
    /// It took too long, or the server said no; in words that follow the server's name.
    Failed(String),
    /// The connection is gone; its owner knows why.
    Gone,
}

impl Connection {
    /// Learns the tools of a server that has just been initialized.
    pub(super) async fn open(
        peer: Peer<RoleClient>,
        link: Arc<LinkState>,
        over_http: bool,
        config: &McpServerConfig,
    ) -> Result<Self, RequestFailure> {
        let usage = Mutex::new(LinkUsage { running: 0, last: Instant::now(), closed: false });
        let connection = Self { peer, link, over_http, list: Mutex::default(), usage };
        let list = connection.read_list(config).await?;
        *connection.list.lock() = Arc::new(list);
        Ok(connection)
    }

    /// State that the connection shares with its transport.
    pub(super) fn link(&self) -> &Arc<LinkState> {
        &self.link
    }

    /// The tools. Reads them again if the server said that they changed; if that fails, the old ones stay.
    pub(super) async fn tools(&self, config: &McpServerConfig) -> Arc<ToolList> {
        // A turn that reads the list may call soon.
        self.usage.lock().last = Instant::now();
        if self.link.take_list_changed() {
            let reading = tokio::time::timeout(config.connect_timeout, self.read_list(config));
            match reading.await {
                Ok(Ok(list)) => *self.list.lock() = Arc::new(list),
                Ok(Err(_)) | Err(_) => self.link.set_list_changed(),
            }
        }
        self.list.lock().clone()
    }

    /// The tools as they were last read.
    pub(super) fn known_tools(&self) -> Arc<ToolList> {
        self.list.lock().clone()
    }

    async fn read_list(&self, config: &McpServerConfig) -> Result<ToolList, RequestFailure> {
        let mut builder = ToolListBuilder::new(config);
        let mut cursor = None;
        for _ in 0..PAGES {
            let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request = ListToolsRequest { params, ..ListToolsRequest::default() };
            let answer =
                self.request(ClientRequest::ListToolsRequest(request), config.connect_timeout).await?;
            let ServerResult::ListToolsResult(page) = answer else {
                return Err(RequestFailure::Failed("answers with no list of tools".to_owned()));
            };
            builder.add(page.tools);
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() {
                break;
            }
        }
        Ok(builder.finish())
    }

    /// Calls a tool. Must follow [`begin`](Self::begin).
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        limit: Duration,
        progress: &(dyn Fn(&str) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<ToolAnswer, RequestFailure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let calling = self.request_with_progress(request, limit, progress);
        let answer = tokio::select! {
            answer = calling => answer?,
            () = stop.cancelled() => return Err(RequestFailure::Stopped),
        };
        let unsupported =
            || RequestFailure::Failed("answers with something that is no result of a tool".to_owned());
        read_answer(answer).ok_or_else(unsupported)
    }

    async fn request(&self, request: ClientRequest, limit: Duration) -> Result<ServerResult, RequestFailure> {
        self.request_with_progress(request, limit, &|_| {}).await
    }

    /// Sends a request and waits for its answer. When the time is up, or when this future is dropped, the server is told
    /// that nobody waits any more.
    async fn request_with_progress(
        &self,
        request: ClientRequest,
        limit: Duration,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ServerResult, RequestFailure> {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        let too_slow =
            || RequestFailure::Failed(format!("gave no answer within {} seconds", limit.as_secs_f32()));
        let sent = tokio::select! {
            sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()) => sent,
            () = &mut deadline => return Err(too_slow()),
            () = self.link.gone() => return Err(RequestFailure::Gone),
        };
        let handle = sent.map_err(|error| self.explain(error))?;
        let RequestHandle { mut rx, id, progress_token, .. } = handle;
        let mut call = self.link.follow(progress_token);
        let mut waiting = CancelOnDrop { peer: &self.peer, request: Some(id) };
        loop {
            tokio::select! {
                answer = &mut rx => {
                    waiting.request = None;
                    return answer.unwrap_or(Err(ServiceError::TransportClosed)).map_err(|error| self.explain(error));
                }
                Ok(()) = call.lines.changed() => progress(&call.lines.borrow_and_update().clone()),
                () = &mut deadline => return Err(too_slow()),
                () = self.link.gone() => {
                    waiting.request = None;
                    return Err(RequestFailure::Gone);
                }
            }
        }
    }

    /// The failure in words. A connection that cannot be used any more is broken off.
    fn explain(&self, error: ServiceError) -> RequestFailure {
        match error {
            ServiceError::McpError(error) => {
                let words = format!("refused the call: {}", one_line(&error.message, ERROR));
                if self.over_http && LOST_SESSION.contains(&error.code.0) {
                    self.link.break_off(McpFailureKind::Ended, "it does not know our session any more");
                }
                RequestFailure::Failed(words)
            }
            ServiceError::TransportSend(error) => {
                self.link.break_off_unsent(send_failure(&*error.error));
                RequestFailure::Gone
            }
            ServiceError::TransportClosed => RequestFailure::Gone,
            other => RequestFailure::Failed(format!("failed: {}", one_line(&other.to_string(), ERROR))),
        }
    }

    /// Notes that a call begins. `None` if the connection is ending; then there may be another.
    pub(super) fn begin(self: &Arc<Self>) -> Option<ConnectionUse> {
        let mut usage = self.usage.lock();
        if usage.closed || self.link.is_gone() {
            return None;
        }
        usage.running += 1;
        Some(ConnectionUse(self.clone()))
    }

    /// Whether a call may begin.
    pub(super) fn is_usable(&self) -> bool {
        !self.usage.lock().closed && !self.link.is_gone()
    }

    /// Closes the connection for further calls if nobody has used it for `idle`; otherwise the time when that may be so.
    pub(super) fn close_if_idle(&self, idle: Duration) -> Result<(), Instant> {
        let mut usage = self.usage.lock();
        let due = if usage.running > 0 { Instant::now() + idle } else { usage.last + idle };
        if due > Instant::now() {
            return Err(due);
        }
        usage.closed = true;
        Ok(())
    }
}

/// The reason of a failed send.
pub(super) fn send_failure(error: &(dyn std::error::Error + 'static)) -> String {
    format!("the request failed: {}", first_cause(error))
}

/// The first cause of an error: the words of the errors above it say only that something failed.
pub(super) fn first_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    one_line(&cause.to_string(), ERROR)
}

/// A call that runs.
pub(super) struct ConnectionUse(Arc<Connection>);

impl std::ops::Deref for ConnectionUse {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.running = usage.running.saturating_sub(1);
        usage.last = Instant::now();
    }
}

/// Tells the server that nobody waits for an answer any more, unless the request was taken out.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        // Without a runtime the process ends, and the server with it.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let peer = self.peer.clone();
        let reason = "nobody waits for it any more".to_owned();
        let param = CancelledNotificationParam::new(Some(request), Some(reason));
        let notification = ClientNotification::CancelledNotification(CancelledNotification::new(param));
        drop(spawn_task("mcp-cancel", async move {
            let _ = tokio::time::timeout(CANCEL, peer.send_notification(notification)).await;
        }));
    }
}
