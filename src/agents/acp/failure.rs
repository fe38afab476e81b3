//! Errors of an agent in our own words. Pure.
//!
//! Nothing that an agent says in an error reaches a room: the words are those of the catalogue, and the log has the rest
//! with the end of the agent's standard error. A turn that may have run is never run again by itself.

use super::pool::PoolError;
use super::process::StartError;
use crate::agent::{AgentError, AgentErrorKind};
use crate::agents::jsonrpc::{RpcClient, RpcError, RpcFault};
use crate::agents::secret_mask::SecretMask;
use crate::i18n::TextKey;
use crate::util::{clip, mask_secrets, one_line};

/// Code with which agents want somebody to log in.
const LOGIN: i64 = -32_000;

/// Characters of standard error in the log.
const LOGGED: usize = 1_000;

/// Characters of standard error that programs are told.
const TOLD: usize = 2_000;

/// Turns of the same session, or of others, that have to end first.
const BUSY: AgentErrorKind = AgentErrorKind::Busy { after: None, rate_limited: false };

/// The error of a turn that got no place for a process.
pub fn no_place(error: PoolError) -> AgentError {
    match error {
        PoolError::Full => AgentError::new(BUSY, TextKey::BrokeAcpFull),
        PoolError::InUse => AgentError::new(BUSY, TextKey::BrokeAcpEarlier),
        PoolError::Ending => {
            AgentError::new(AgentErrorKind::NothingRan { after: None }, TextKey::BrokeAcpNoStart)
        }
    }
}

/// The error of a turn whose agent did not start. It is proven that nothing ran; but a program that does not start is for
/// the operator to mend, so people are told at once.
pub fn no_start(error: &StartError) -> AgentError {
    let words = match error {
        StartError::Missing(_) => TextKey::BrokeAcpMissing,
        StartError::Silent(_) => TextKey::BrokeAcpSilent,
        StartError::Version { .. } => TextKey::BrokeAcpVersion,
        StartError::System(_) | StartError::Exited(_) | StartError::Refused { .. } => {
            TextKey::BrokeAcpNoStart
        }
    };
    AgentError::new(AgentErrorKind::Refused, words)
}

/// The end of the standard error of an agent that did not start, for programs.
pub fn start_stderr(error: &StartError, secrets: &SecretMask) -> String {
    match error {
        StartError::Missing(failure) | StartError::Exited(failure) | StartError::Silent(failure) => {
            told_stderr(&failure.stderr, secrets)
        }
        StartError::Refused { stderr, .. } | StartError::Version { stderr, .. } => {
            told_stderr(stderr, secrets)
        }
        StartError::System(error) => told_stderr(&error.to_string(), secrets),
    }
}

/// The error of `session/new`.
pub fn no_session(error: &RpcError) -> AgentError {
    let words = match error {
        RpcError::Fault(RpcFault { code: LOGIN, .. }) => TextKey::BrokeAcpLogin,
        RpcError::Fault(_) | RpcError::TooLarge { .. } => TextKey::BrokeAcpSession,
        RpcError::Deadline => TextKey::BrokeAcpNoAnswer,
        RpcError::Gone(_) => TextKey::BrokeAcpDied,
    };
    AgentError::new(AgentErrorKind::Refused, words)
}

/// The error of a prompt that the agent answered with one.
pub fn refused_prompt(fault: &RpcFault) -> AgentError {
    let words = if fault.code == LOGIN { TextKey::BrokeAcpLogin } else { TextKey::BrokeAcpRefused };
    cut_short(words)
}

/// An error that keeps the text there is, and never runs the turn again.
pub fn cut_short(words: TextKey) -> AgentError {
    AgentError::new(AgentErrorKind::CutShort, words)
}

/// The end of an agent's standard error in one line, for the log.
pub fn shown_stderr(rpc: &RpcClient) -> String {
    one_line(&rpc.stderr_tail(), LOGGED)
}

/// The end of a standard error for programs: without the secrets of the agent, and without anything that looks like one.
pub fn told_stderr(stderr: &str, secrets: &SecretMask) -> String {
    let masked = mask_secrets(&secrets.hide(stderr));
    let from = masked.chars().count().saturating_sub(TOLD);
    let start = masked.char_indices().nth(from).map_or(0, |(at, _)| at);
    clip(&masked[start..], TOLD).to_owned()
}
