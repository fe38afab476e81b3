//! Opens a connection to a server: starts its process or dials its address, and shakes hands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, Implementation, ProtocolVersion, ServerRequest,
};
use rmcp::service::{ClientInitializeError, RequestContext, RunningService, Service};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientLifecycleMode, ErrorData, RoleClient, serve_client_with_lifecycle};
use talaria_platform::CancellationToken;

use super::connection::{Connection, RequestFailure, send_failure};
use super::guarded_transport::{BoundedReader, GuardedTransport, LinkState};
use super::server_state::{McpFailure, McpFailureKind};
use super::{http_client, tool_names};
use crate::agents::process::environment::{COMMAND_VARIABLES, process_environment};
use crate::agents::process::shim::is_start_failure;
use crate::agents::process::{EndPatience, ManagedProcess, ProcessHost, ProcessSpec, StdinMode};
use crate::agents::secret_mask::SecretMask;
use crate::config::{McpServerConfig, McpTransport, Secret};
use crate::util::one_line;

/// Characters of standard error that a reason quotes.
const STDERR: usize = 400;

/// Characters of a library's words about a failed handshake.
const HANDSHAKE: usize = 300;

/// The reason of a connection that the server closed.
const ENDED: &str = "it ended";

/// Time for the exit status of a process whose output has ended.
const EXIT: Duration = Duration::from_millis(500);

/// Time for the library to close its side. An HTTP server is told that the session is over.
const CLOSE: Duration = Duration::from_secs(2);

/// An open connection with everything that must end with it.
pub(super) struct OpenLink {
    pub connection: Arc<Connection>,
    service: RunningService<RoleClient, RefusingClient>,
    process: Option<ManagedProcess>,
}

/// A server that did not come up. Its process may still run.
pub(super) struct FailedLink {
    /// Why it did not.
    pub failure: McpFailure,
    process: Option<ManagedProcess>,
}

impl FailedLink {
    fn without_process(failure: McpFailure) -> Self {
        Self { failure, process: None }
    }

    /// A server whose process or client could not be made.
    fn not_started(reason: impl Into<String>) -> Self {
        Self::without_process(McpFailure::new(McpFailureKind::NotStarted, reason))
    }

    /// Ends the process in order, if there is one.
    pub(super) async fn end(self) {
        if let Some(process) = self.process {
            process.end().await;
        }
    }
}

/// Starts or dials the server called `name`, within its time limit and until `stop`. `home` is the state folder.
pub(super) async fn open(
    name: &str,
    config: &McpServerConfig,
    host: &ProcessHost,
    home: &Path,
    mask: &SecretMask,
    stop: &CancellationToken,
) -> Result<OpenLink, FailedLink> {
    let link = Arc::<LinkState>::default();
    match &config.transport {
        McpTransport::Http { url, headers } => {
            let transport =
                http_client::connect(url, headers, config, link.clone()).map_err(FailedLink::not_started)?;
            let shaken =
                shake_hands(GuardedTransport::new(transport, link.clone()), &link, true, config, stop).await;
            let (service, connection) =
                shaken.map_err(|failure| FailedLink::without_process(masked(failure, mask)))?;
            Ok(OpenLink { connection, service, process: None })
        }
        McpTransport::Stdio { command, args, env, cwd } => {
            let folder = cwd.clone().unwrap_or_else(|| home.join("mcp").join(tool_names::reduce(name)));
            let spec = process_spec(command, args, env, &folder);
            let mut process = start(host, spec, cwd.is_none()).map_err(FailedLink::not_started)?;
            let (Some(stdin), Some(stdout)) = (process.take_stdin(), process.take_stdout()) else {
                return Err(FailedLink::not_started("its process has no input or no output"));
            };
            let transport = AsyncRwTransport::new(BoundedReader::new(stdout, link.clone()), stdin);
            match shake_hands(GuardedTransport::new(transport, link.clone()), &link, false, config, stop)
                .await
            {
                Ok((service, connection)) => Ok(OpenLink { connection, service, process: Some(process) }),
                Err(failure) => {
                    let failure = masked(with_process(failure, &process, link.is_gone(), mask).await, mask);
                    Err(FailedLink { failure, process: Some(process) })
                }
            }
        }
    }
}

impl OpenLink {
    /// Waits until the connection is gone. Returns the reason.
    pub(super) async fn died(&self, mask: &SecretMask) -> McpFailure {
        let link = self.connection.link();
        match &self.process {
            Some(process) => {
                tokio::select! {
                    () = link.gone() => {}
                    _ = process.exited() => {}
                }
                masked(with_process(failure_of(link), process, true, mask).await, mask)
            }
            None => {
                link.gone().await;
                let closed = || McpFailure::new(McpFailureKind::Ended, "it closed the connection");
                masked(link.failure().cloned().unwrap_or_else(closed), mask)
            }
        }
    }

    /// Ends the connection and the process in order.
    pub(super) async fn end(mut self) {
        self.connection.link().break_off(McpFailureKind::Ended, "it was ended");
        // The process first: the library waits for answers that a hanging server never takes.
        if let Some(process) = &self.process {
            process.end().await;
        }
        let _ = self.service.close_with_timeout(CLOSE).await;
    }
}

fn process_spec(
    command: &str,
    args: &[String],
    env: &BTreeMap<String, Secret>,
    folder: &Path,
) -> ProcessSpec {
    let mut variables = process_environment(COMMAND_VARIABLES, &[]);
    variables.extend(env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value.expose()))));
    ProcessSpec {
        program: OsString::from(command),
        args: args.iter().map(OsString::from).collect(),
        env: variables,
        cwd: folder.to_owned(),
        stdin: StdinMode::Piped,
        patience: EndPatience::default(),
    }
}

fn start(host: &ProcessHost, spec: ProcessSpec, make_folder: bool) -> Result<ManagedProcess, String> {
    if make_folder {
        let folder: &PathBuf = &spec.cwd;
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("its folder cannot be made: {}", error.kind()))?;
    }
    host.spawn(spec).map_err(|error| format!("its process cannot be started: {error}"))
}

/// Initializes the connection and learns the tools, within the time limit of the configuration.
async fn shake_hands<T: Transport<RoleClient> + 'static>(
    transport: T,
    link: &Arc<LinkState>,
    over_http: bool,
    config: &McpServerConfig,
    stop: &CancellationToken,
) -> Result<(RunningService<RoleClient, RefusingClient>, Arc<Connection>), McpFailure> {
    let shaking = async {
        let served =
            serve_client_with_lifecycle(RefusingClient, transport, ClientLifecycleMode::Initialize).await;
        let service = served.map_err(|error| match (link.failure(), error) {
            (Some(failure), _) => failure.clone(),
            (None, ClientInitializeError::TransportError { error, .. }) => {
                link.break_off_unsent(send_failure(&*error.error))
            }
            (None, other) => {
                let kind = if link.is_gone() { McpFailureKind::Ended } else { McpFailureKind::Faulty };
                let words = one_line(&other.to_string(), HANDSHAKE);
                McpFailure::new(kind, format!("the handshake failed: {words}"))
            }
        })?;
        let peer = service.peer().clone();
        let connection =
            Connection::open(peer, link.clone(), over_http, config).await.map_err(|failure| {
                let McpFailure { kind, reason } = match failure {
                    RequestFailure::Failed(words) => {
                        McpFailure::new(McpFailureKind::Faulty, format!("it {words}"))
                    }
                    RequestFailure::Gone => failure_of(link),
                    RequestFailure::Stopped => McpFailure::new(McpFailureKind::Ended, "it was stopped"),
                };
                McpFailure::new(kind, format!("its tools cannot be listed: {reason}"))
            })?;
        Ok((service, Arc::new(connection)))
    };
    tokio::select! {
        shaken = shaking => shaken,
        () = stop.cancelled() => Err(McpFailure::new(McpFailureKind::Ended, "it was ended")),
        () = tokio::time::sleep(config.connect_timeout) => {
            let words = format!("it was not ready within {} seconds", config.connect_timeout.as_secs_f32());
            Err(McpFailure::new(McpFailureKind::TooSlow, words))
        }
    }
}

/// Why a connection is gone.
fn failure_of(link: &LinkState) -> McpFailure {
    link.failure().cloned().unwrap_or_else(|| McpFailure::new(McpFailureKind::Ended, ENDED))
}

fn masked(failure: McpFailure, mask: &SecretMask) -> McpFailure {
    McpFailure { reason: mask.hide(&failure.reason), ..failure }
}

/// The reason, together with the words of the process itself. `ends`: whether the process may be about to end by itself.
async fn with_process(
    failure: McpFailure,
    process: &ManagedProcess,
    ends: bool,
    mask: &SecretMask,
) -> McpFailure {
    let McpFailure { kind, reason: why } = failure;
    let exit = match ends {
        true => tokio::time::timeout(EXIT, process.exited()).await.ok().and_then(|exit| exit.code),
        false => None,
    };
    // A server that ends well after we broke the connection only did as it should.
    let exit = exit.filter(|code| *code != 0 || why == ENDED);
    let kind = match (kind, exit) {
        (McpFailureKind::Ended, Some(code)) if is_start_failure(code) => McpFailureKind::NotStarted,
        (kind, _) => kind,
    };
    let exit = exit.map(|code| format!(" (exit status {code})")).unwrap_or_default();
    // Before it is cut, so that no part of a secret is left.
    let said = mask.hide(&process.stderr_tail());
    // The end is where a failure is explained.
    let said = said.trim();
    let start = said.char_indices().rev().nth(STDERR).map_or(0, |(at, _)| at);
    let reason = match one_line(said.get(start..).unwrap_or_default(), STDERR) {
        said if said.is_empty() => format!("{why}{exit}"),
        said => format!("{why}{exit}; it said: {said}"),
    };
    McpFailure::new(kind, reason)
}

/// Our side of the protocol: it offers nothing, so every request of a server but a ping is refused.
struct RefusingClient;

impl Service<RoleClient> for RefusingClient {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            _ => Err(ErrorData::new(
                rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                "this client offers neither sampling nor elicitation nor roots",
                None,
            )),
        }
    }

    async fn handle_notification(
        &self,
        _notification: rmcp::model::ServerNotification,
        _context: rmcp::service::NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("talaria", env!("CARGO_PKG_VERSION"));
        // The newest version has no handshake, and few servers know it.
        ClientConfig::new(ClientCapabilities::default(), me)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
