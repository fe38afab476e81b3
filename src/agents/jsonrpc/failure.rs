//! Failures of a connection.

use std::fmt;

use serde_json::Value;

use crate::agents::process::ProcessExit;
use crate::util::one_line;

/// Characters of standard error that a failure shows in one line.
const SHOWN_STDERR: usize = 400;

/// A call without a result, or a message that was not sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RpcError {
    /// The peer refused.
    #[error("the peer refused: {0}")]
    Fault(RpcFault),
    /// The peer did not answer in time, or does not read.
    #[error("no answer in time")]
    Deadline,
    /// The process is gone.
    #[error("the process is gone: {0}")]
    Gone(ProcessFailure),
    /// The message is too long to be sent. The peer knows nothing of it.
    #[error("the message has {bytes} bytes, at most {limit} are sent")]
    TooLarge {
        /// Bytes of the message.
        bytes: usize,
        /// Most bytes of a message.
        limit: usize,
    },
}

/// The error object of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcFault {
    /// The number that names the error.
    pub code: i64,
    /// The error in words. A peer's words may be long.
    pub message: String,
    /// More about it.
    pub data: Option<Value>,
}

impl RpcFault {
    /// The code for a method that the other side does not know.
    pub const UNKNOWN_METHOD: i64 = -32_601;

    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

impl fmt::Display for RpcFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", one_line(&self.message, SHOWN_STDERR), self.code)
    }
}

/// A process that is gone. Its display is for the log, not for a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFailure {
    /// The exit status.
    pub exit: ProcessExit,
    /// The end of its standard error.
    pub stderr: String,
    /// Why we ended it, if we did so because it misbehaved.
    pub cause: Option<BreakCause>,
}

/// Misbehaviour for which we end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakCause {
    /// It sent too many bytes in a row that are no message.
    #[error("it sends no messages, only noise")]
    Noise,
    /// It did not take a line of ours in time.
    #[error("it does not read its standard input")]
    NotReading,
}

impl ProcessFailure {
    /// A process of which nobody knows how it ended.
    pub(super) fn unknown() -> Self {
        Self { exit: ProcessExit { code: None }, stderr: String::new(), cause: None }
    }
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cause) = self.cause {
            write!(formatter, "{cause}; ")?;
        }
        match self.exit.code {
            Some(code) => write!(formatter, "exit status {code}")?,
            None => write!(formatter, "exit status unknown")?,
        }
        let stderr = one_line(&self.stderr, SHOWN_STDERR);
        if stderr.is_empty() { Ok(()) } else { write!(formatter, "; standard error: {stderr}") }
    }
}
