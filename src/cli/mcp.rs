//! `talaria mcp`: an MCP server on standard input and output, whose tools are those of the running gateway.
//!
//! It holds nothing itself: each request goes to the control socket. The user's own codex starts it too, so without a
//! running gateway it offers no tools and is no failure. Standard output belongs to the protocol.

mod stdio_transport;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, RoleServer, ServerHandler, serve_server};
use tokio::sync::Semaphore;

use self::stdio_transport::{InputProblem, StdioTransport};
use super::{complain, complain_about};
use crate::agents::mcp::ServerFilter;
use crate::config::{ConfigSources, env};
use crate::control::CommandError;
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::tools::{CALL, CALL_BYTES, CallRequest, CallResult, ToolView, ToolsList, ToolsRequest};

/// Calls at a time. Models call few tools at once; more of them wait.
const CALLS: usize = 8;

/// Longest wait for the list: the gateway waits a few seconds for its servers.
const LIST: Duration = Duration::from_secs(20);

/// Wait for the answer to a call beyond the gateway's own limit, whose words are better.
const MARGIN: Duration = Duration::from_secs(10);

pub(super) const HELP: &str = "\
Speaks the Model Context Protocol on standard input and output, and ends with its input. Programs start it; it is of
no use at a prompt.

It offers:
  skills_list, skill_view   the skills in the skills folder, to read
  mcp_<server>_<tool>       tools of `mcp_servers` with `permissions: {<tool>: allow}`; all others need a question,
                            which nobody could answer here
It never offers commands, files or notes, and no tools at all while talaria does not run. TALARIA_HOME says which
talaria is meant; no configuration file is read.

Examples:
  codex mcp add talaria -- talaria mcp
  claude mcp add talaria -- talaria mcp --without-server time";

/// Arguments of `talaria mcp`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct McpArguments {
    /// Leave out the tools of this MCP server, because the program has them already; may be repeated
    #[arg(long = "without-server", value_name = "NAME")]
    without: Vec<String>,
    /// Offer the tools of these MCP servers only; an empty list offers none of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    servers: Option<Vec<String>>,
}

/// Serves until standard input ends.
pub fn run(arguments: &McpArguments, sources: &ConfigSources) -> ExitCode {
    if sources.config.is_some() {
        let hint = "leave `--config` out; TALARIA_HOME says which talaria is meant";
        complain("this command reads no configuration file", Some(hint));
        return ExitCode::FAILURE;
    }
    let home = match crate::config::home(&env::process) {
        Ok(home) => home,
        Err(error) => return complain_about(&CommandError::config(vec![error])),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain_about(&CommandError::wrong(error.to_string(), "try again")),
    };
    let server = ToolsServer {
        home,
        sources: sources.clone(),
        servers: ServerFilter { only: arguments.servers.clone(), without: arguments.without.clone() },
        free: Semaphore::new(CALLS),
    };
    let ended = runtime.block_on(serve(server));
    // A read of standard input that never returns must not hold the process.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            complain(&words, Some("the program that started `talaria mcp` does not speak MCP as it should"));
            ExitCode::FAILURE
        }
    }
}

/// Serves standard input and output until the input ends. The error says in words why it ended early.
async fn serve(server: ToolsServer) -> Result<(), String> {
    let problem = Arc::<InputProblem>::default();
    let transport = StdioTransport::open(tokio::io::stdin(), tokio::io::stdout(), problem.clone());
    let ended = match serve_server(server, transport).await {
        Ok(running) => running.waiting().await.map(|_| ()).map_err(|error| error.to_string()),
        // A program that only looked whether we start.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(crate::util::one_line(&error.to_string(), 300)),
    };
    problem.words().map_or(ended, Err)
}

/// The server. Every request asks the gateway that runs at that moment.
struct ToolsServer {
    /// The state folder.
    home: PathBuf,
    sources: ConfigSources,
    /// MCP servers whose tools are offered.
    servers: ServerFilter,
    /// Calls that may begin.
    free: Semaphore,
}

impl ToolsServer {
    async fn client(&self) -> Result<ControlClient, CommandError> {
        ControlClient::open(&self.home, &self.sources, CommandNeed::Running).await
    }

    async fn list(&self) -> Result<ToolsList, CommandError> {
        let asked = ToolsRequest { servers: self.servers.clone() };
        self.client().await?.post_within("/tools", &asked, LIST).await
    }

    /// Calls a tool. The error says in words why there is no result.
    async fn call(&self, request: CallToolRequestParams) -> Result<CallResult, String> {
        let _permit = self.free.acquire().await;
        let asked = CallRequest {
            name: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
            servers: self.servers.clone(),
        };
        // The limit of the gateway, which answers a longer request with less clear words.
        if serde_json::to_vec(&asked).map_or(usize::MAX, |bytes| bytes.len()) > CALL_BYTES {
            return Err(format!("The arguments are longer than {CALL_BYTES} bytes; nothing was called."));
        }
        let client = self.client().await;
        let client = client.map_err(|problem| format!("Nothing was called: {}", words(&problem)))?;
        let called = client.post_within("/tools/call", &asked, CALL + MARGIN).await;
        called.map_err(|problem: CommandError| match problem.status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
                format!("It is not known whether the call had an effect: {}", words(&problem))
            }
            _ => format!("The call failed: {}", words(&problem)),
        })
    }
}

impl ServerHandler for ToolsServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("talaria", env!("CARGO_PKG_VERSION")))
            // The newest version has no handshake; a client that begins with one gets this.
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = tokio::select! {
            listed = self.list() => listed,
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        let tools = listed.unwrap_or_else(|problem| {
            complain(&format!("no tools are offered: {}", words(&problem)), None);
            ToolsList::default()
        });
        Ok(ListToolsResult::with_all_items(tools.tools.into_iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let called = tokio::select! {
            called = self.call(request) => called,
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        let content = |text: String| vec![ContentBlock::text(text)];
        Ok(match called {
            Ok(CallResult { text, failed: false }) => CallToolResult::success(content(text)),
            Ok(CallResult { text, failed: true }) => CallToolResult::error(content(text)),
            Err(words) => CallToolResult::error(content(words)),
        }
        .into())
    }
}

fn tool(view: ToolView) -> Tool {
    let ToolView { name, description, parameters, is_read_only } = view;
    let tool = Tool::new(name, description, parameters);
    match is_read_only {
        true => tool.with_annotations(ToolAnnotations::new().read_only(true)),
        false => tool,
    }
}

/// The problem in words, for a model or a log.
fn words(problem: &CommandError) -> String {
    let complaints = problem.complaints.iter().map(|one| match &one.hint {
        Some(hint) => format!("{} ({hint}).", one.message),
        None => format!("{}.", one.message),
    });
    complaints.collect::<Vec<_>>().join(" ")
}

/// The answer to a request that the client took back; the library does not send it.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}
