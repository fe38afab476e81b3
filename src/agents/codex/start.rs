//! Starts a codex process and shakes hands with it.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::account::AccountState;
use super::binary::{CodexVersion, MINIMUM};
use super::environment::codex_environment;
use super::link::CodexLink;
use super::servers::CodexServers;
use super::wire;
use crate::agent::{AgentError, AgentErrorKind};
use crate::agents::jsonrpc::{ProcessFailure, RpcClient, RpcDialect, RpcError, RpcIncoming, RpcLimits};
use crate::agents::process::{EndPatience, ProcessSpec, StdinMode};
use crate::config::{CodexConfig, make_workspace};
use crate::i18n::TextKey;

/// Time limit of the handshake. A program that is no codex may never answer.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Exit status of the shim for a program that is not there.
const NOT_FOUND: i32 = 127;

/// Why there is no codex process. The words are for the log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system does not start it, or its folder cannot be made.
    #[error("codex cannot be started: {0}")]
    System(#[from] std::io::Error),
    /// The program is not there.
    #[error("codex is not found: {0}")]
    Missing(ProcessFailure),
    /// It ended during the handshake.
    #[error("codex ended at its start: {0}")]
    Exited(ProcessFailure),
    /// It ended by itself after its start, and is not started again at once.
    #[error("codex ended by itself: {0}")]
    Died(ProcessFailure),
    /// It stopped to answer, or did not end a turn that was interrupted, and was ended.
    #[error("codex did not obey and was ended: {0}")]
    Stuck(ProcessFailure),
    /// It did not answer the handshake in time, and was ended.
    #[error("codex did not answer in time and was ended: {0}")]
    Silent(ProcessFailure),
    /// It refused the handshake.
    #[error("codex refused the handshake: {0}")]
    Refused(RpcError),
    /// It is too old.
    #[error("codex {0} is too old")]
    TooOld(CodexVersion),
    /// The gateway ends, or the agent is gone.
    #[error("the gateway ends")]
    Ending,
}

impl StartError {
    /// The error of a turn. It is proven that nothing ran; but a program that does not start is for the operator to
    /// mend, so people are told at once.
    pub fn agent_error(&self) -> AgentError {
        let words = match self {
            Self::Missing(_) => TextKey::BrokeCodexMissing,
            Self::TooOld(_) => TextKey::BrokeCodexTooOld,
            Self::Silent(_) => TextKey::BrokeCodexSilent,
            Self::Died(_) => TextKey::BrokeCodexDied,
            Self::Stuck(_) => TextKey::BrokeCodexNoAnswer,
            Self::System(_) | Self::Exited(_) | Self::Refused(_) => TextKey::BrokeCodexNoStart,
            Self::Ending => {
                return AgentError::new(
                    AgentErrorKind::NothingRan { after: None },
                    TextKey::BrokeCodexNoStart,
                );
            }
        };
        AgentError::new(AgentErrorKind::Refused, words)
    }
}

/// Starts codex. Dropping the future ends the process.
pub async fn start(
    config: &CodexConfig,
    servers: &Arc<CodexServers>,
    account: &Arc<Mutex<AccountState>>,
) -> Result<(Arc<CodexLink>, RpcIncoming), StartError> {
    make_workspace(&config.workspace)?;
    let process = servers.host.spawn(ProcessSpec {
        program: OsString::from(&config.command),
        args: wire::APP_SERVER.map(OsString::from).to_vec(),
        env: codex_environment(config),
        cwd: config.workspace.clone(),
        stdin: StdinMode::Piped,
        patience: EndPatience::default(),
    })?;
    let (rpc, incoming) = RpcClient::start(process, RpcDialect::Bare, RpcLimits::default());
    let version = match shake_hands(&rpc, HANDSHAKE).await {
        Ok(version) => version,
        Err(error) => return Err(handshake_error(error, &rpc).await),
    };
    if let Some(version) = version.filter(|version| *version < MINIMUM) {
        return Err(StartError::TooOld(version));
    }
    tracing::info!(version = version.map(|version| version.to_string()), "codex runs");
    Ok((CodexLink::new(rpc, version, account.clone()), incoming))
}

/// Introduces us to a codex that was started. Returns its version, if it tells one.
pub async fn shake_hands(rpc: &RpcClient, limit: Duration) -> Result<Option<CodexVersion>, RpcError> {
    let answer = rpc.call("initialize", wire::initialize_params(), limit).await?;
    rpc.notify("initialized", None).await?;
    Ok(wire::version(&answer.result))
}

/// The reason of a failed handshake. The process is ended first, so that the log has its last words.
async fn handshake_error(error: RpcError, rpc: &RpcClient) -> StartError {
    let failure = match error {
        RpcError::Gone(failure) => failure,
        RpcError::Deadline => {
            rpc.end().await;
            return StartError::Silent(rpc.gone().await);
        }
        error @ (RpcError::Fault(_) | RpcError::TooLarge { .. }) => {
            rpc.end().await;
            return StartError::Refused(error);
        }
    };
    if failure.exit.code == Some(NOT_FOUND) {
        StartError::Missing(failure)
    } else {
        StartError::Exited(failure)
    }
}
