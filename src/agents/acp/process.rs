//! A process of an agent: started and greeted, with at most one conversation.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;

use super::abilities::{AgentAbilities, initialize_params};
use super::environment::acp_environment;
use super::pool::AcpPool;
use super::session::OpenSession;
use crate::agents::jsonrpc::{
    IncomingMessage, ProcessFailure, RequestId, RpcClient, RpcDialect, RpcError, RpcFault, RpcIncoming,
    RpcLimits,
};
use crate::agents::process::{EndPatience, ProcessSpec, StdinMode};
use crate::config::AcpConfig;

/// Exit status of the shim for a program that is not there.
const NOT_FOUND: i32 = 127;

/// Code of our answer to a request outside a turn.
const NO_TURN: i64 = -32_600;

/// A running agent.
pub struct AcpProcess {
    /// The connection.
    pub rpc: RpcClient,
    /// Its messages.
    pub incoming: CountedIncoming,
    /// What it can do.
    pub abilities: AgentAbilities,
    /// By what it and everything that it starts are known.
    pub marker: String,
    /// The conversation that is open in it.
    pub session: Option<OpenSession>,
}

/// The messages of an agent, and how many were taken.
pub struct CountedIncoming {
    incoming: RpcIncoming,
    /// Number of messages that were taken: an answer whose position is not higher came after all of them.
    pub taken: u64,
}

/// Why there is no process. The words are for the log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system does not start it.
    #[error("the program cannot be started: {0}")]
    System(#[from] io::Error),
    /// The program is not there.
    #[error("the program is not found: {0}")]
    Missing(ProcessFailure),
    /// It ended when it was greeted.
    #[error("the program ended at its start: {0}")]
    Exited(ProcessFailure),
    /// It did not answer in time, and was ended.
    #[error("the program did not answer in time and was ended: {0}")]
    Silent(ProcessFailure),
    /// It refused the greeting.
    #[error("the program refused the greeting: {error}; standard error: {stderr}")]
    Refused {
        /// Its words.
        error: RpcError,
        /// The end of its standard error.
        stderr: String,
    },
    /// It speaks another version of the protocol.
    #[error("the program speaks version {version:?} of the protocol; standard error: {stderr}")]
    Version {
        /// The version; `None` if it names none, so it is no agent.
        version: Option<u64>,
        /// The end of its standard error.
        stderr: String,
    },
}

impl AcpProcess {
    /// Starts an agent in the folder of a session. It has to be [greeted](Self::greet) before anything else.
    pub fn spawn(pool: &AcpPool, config: &AcpConfig, folder: &Path) -> io::Result<Self> {
        let process = pool.host.spawn(ProcessSpec {
            program: (&config.command).into(),
            args: config.args.iter().map(Into::into).collect(),
            env: acp_environment(config, folder),
            cwd: folder.to_owned(),
            stdin: StdinMode::Piped,
            patience: EndPatience::default(),
        })?;
        let marker = process.marker().to_owned();
        let (rpc, incoming) = RpcClient::start(process, RpcDialect::Strict, RpcLimits::default());
        let incoming = CountedIncoming { incoming, taken: 0 };
        Ok(Self { rpc, incoming, abilities: AgentAbilities::default(), marker, session: None })
    }

    /// Greets a process that was just started. It has ended by itself or by us if that fails.
    pub async fn greet(&mut self, deadline: Duration) -> Result<(), StartError> {
        let Self { rpc, incoming, .. } = self;
        // An agent that talks before it answers must not fill the queue.
        let answer = tokio::select! {
            answer = rpc.call("initialize", initialize_params(), deadline) => answer,
            () = skip_all(incoming) => Err(RpcError::Gone(rpc.gone().await)),
        };
        let answer = match answer {
            Ok(answer) => answer.result,
            Err(error) => return Err(start_error(error, rpc).await),
        };
        self.abilities = match AgentAbilities::read(&answer) {
            Ok(abilities) => abilities,
            Err(version) => {
                rpc.end().await;
                return Err(StartError::Version { version, stderr: rpc.stderr_tail() });
            }
        };
        let AgentAbilities { name, loads, .. } = &self.abilities;
        tracing::info!(agent = name, loads, "an agent runs");
        Ok(())
    }

    /// Whether the conversation is lost with the process: something was said in it, and no other process can open it.
    pub fn is_all_there_is(&self) -> bool {
        !self.abilities.loads && self.session.as_ref().is_some_and(|session| session.is_begun)
    }

    /// Takes all messages that have come; refuses requests. What came between two turns, or is left of a conversation
    /// that was opened again, is no part of the next one.
    pub async fn refuse_waiting(&mut self) {
        while let Some(Some((message, _))) = self.incoming.next().now_or_never() {
            refuse(&self.rpc, message).await;
        }
    }

    /// Takes all messages until the process is gone; refuses requests. May be dropped at any time.
    pub async fn refuse_all(&mut self) {
        refuse_all(&self.rpc, &mut self.incoming).await;
    }

    /// Calls a method, and takes all messages that come before the answer. For calls that are no turn.
    pub async fn call(&mut self, method: &str, params: Value, deadline: Duration) -> Result<Value, RpcError> {
        let Self { rpc, incoming, .. } = self;
        let calling = rpc.call(method, params, deadline);
        tokio::pin!(calling);
        let answer = tokio::select! {
            answer = &mut calling => answer?,
            () = refuse_all(rpc, incoming) => calling.await?,
        };
        while incoming.taken < answer.position {
            match incoming.next().await {
                Some((message, _)) => refuse(rpc, message).await,
                None => break,
            }
        }
        Ok(answer.result)
    }

    /// Ends the process in order.
    pub async fn end(self) {
        let exit = self.rpc.end().await;
        tracing::info!(code = exit.code, agent = self.abilities.name, "an agent has ended");
    }
}

impl CountedIncoming {
    /// The next message and its line; `None` when the process is gone. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<(IncomingMessage, Vec<u8>)> {
        let next = self.incoming.next_line().await;
        self.taken += u64::from(next.is_some());
        next
    }
}

/// Takes all messages until the process is gone, and answers none: a program that sends back what it gets would take our
/// answer for its own.
async fn skip_all(incoming: &mut CountedIncoming) {
    while incoming.next().await.is_some() {}
}

/// Takes all messages until the process is gone. Nobody is there whom a request could be shown.
async fn refuse_all(rpc: &RpcClient, incoming: &mut CountedIncoming) {
    while let Some((message, _)) = incoming.next().await {
        refuse(rpc, message).await;
    }
}

async fn refuse(rpc: &RpcClient, message: IncomingMessage) {
    let IncomingMessage { method, request, .. } = message;
    match request {
        Some(id) => {
            tracing::warn!(method, "a request of an agent belongs to no turn and is refused");
            let fault = RpcFault::new(NO_TURN, "no turn of the client waits for this");
            send_reply(rpc, id, Err(fault)).await;
        }
        None => tracing::trace!(method, "a message of an agent belongs to no turn"),
    }
}

/// Sends an answer to a request of the agent. A result that is too long for a line is an error instead.
pub async fn send_reply(rpc: &RpcClient, id: RequestId, reply: Result<Value, RpcFault>) {
    let sent = match rpc.reply(id.clone(), reply).await {
        Err(RpcError::TooLarge { bytes, limit }) => {
            let words = format!("the answer has {bytes} bytes, at most {limit} can be sent");
            rpc.reply(id, Err(RpcFault::new(NO_TURN, words))).await
        }
        sent => sent,
    };
    if let Err(error) = sent {
        // The messages end if the process is gone.
        tracing::warn!(%error, "an answer to an agent was not sent");
    }
}

/// The reason of a failed start. The process is ended first, so that the log has its last words.
async fn start_error(error: RpcError, rpc: &RpcClient) -> StartError {
    match error {
        RpcError::Gone(failure) if failure.exit.code == Some(NOT_FOUND) => StartError::Missing(failure),
        RpcError::Gone(failure) => StartError::Exited(failure),
        RpcError::Deadline => {
            rpc.end().await;
            StartError::Silent(rpc.gone().await)
        }
        error @ (RpcError::Fault(_) | RpcError::TooLarge { .. }) => {
            rpc.end().await;
            StartError::Refused { error, stderr: rpc.stderr_tail() }
        }
    }
}
