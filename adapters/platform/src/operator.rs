//! Operator commands of a kind of platform: `talaria <kind> …`.
//!
//! While a gateway runs, it has the account open: the command sends requests over the control socket, and
//! [`Platform::answer_operator`](crate::Platform::answer_operator) answers them. Otherwise
//! [`AccountSettings::run_command`](crate::AccountSettings::run_command) opens the account itself.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BoxFuture, RateLimit, one_line};

/// Most characters of one cell. Ids and names can be anything that a person typed.
const CELL: usize = 80;

/// A fault and its hint, for the operator. Also the source of a [`PlatformError`](crate::PlatformError) that an adapter
/// made itself, so that the log says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (hint: {hint})")]
pub struct OperatorError {
    /// The fault.
    pub message: String,
    /// The next step.
    pub hint: String,
}

/// Output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReport {
    /// Text for standard output.
    pub text: String,
    /// Whether the exit code says success.
    pub well: bool,
}

/// Why a command printed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandFailure {
    /// The command needs a running gateway, and none runs.
    NotRunning,
    /// The command failed; the operator is told why.
    Failed(OperatorError),
}

impl From<OperatorError> for CommandFailure {
    fn from(error: OperatorError) -> Self {
        Self::Failed(error)
    }
}

/// An account of the running gateway, at the other end of the control socket.
pub trait AccountLink: Send + Sync {
    /// Sends a request and returns the answer, both as JSON. `question` is an object or null; the core adds `account`.
    fn request<'a>(
        &'a self,
        action: &'a str,
        question: serde_json::Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, OperatorError>>;
}

impl dyn AccountLink + '_ {
    /// Sends a request, and reads the answer.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        action: &str,
        question: &impl Serialize,
    ) -> Result<T, OperatorError> {
        let strange = |error: serde_json::Error| OperatorError {
            message: format!("the answer is not understood: {error}"),
            hint: "the talaria that runs is probably another version; restart it".to_owned(),
        };
        let question = serde_json::to_value(question).map_err(strange)?;
        serde_json::from_slice(&self.request(action, question).await?).map_err(strange)
    }
}

/// A request of an operator's command, as the running account gets it.
#[derive(Clone, Copy, Debug)]
pub struct OperatorRequest<'a> {
    /// The action that the command names.
    pub action: &'a str,
    /// The question as JSON.
    pub question: &'a [u8],
    /// Rate that the network has taught the core since the start, if it refused requests.
    pub learned_rate: Option<RateLimit>,
}

impl OperatorRequest<'_> {
    /// Reads the question.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, RequestRefusal> {
        serde_json::from_slice(self.question).map_err(|error| RequestRefusal::Malformed(error.to_string()))
    }
}

/// Writes the answer to an [`OperatorRequest`].
pub fn write_answer(answer: &impl Serialize) -> Result<Vec<u8>, RequestRefusal> {
    serde_json::to_vec(answer).map_err(|error| RequestRefusal::Malformed(error.to_string()))
}

/// Why an account does not answer an [`OperatorRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The account does not know the action: the command belongs to another version.
    UnknownAction,
    /// The question cannot be read.
    Malformed(String),
    /// The request failed; the operator is told why.
    Failed(OperatorError),
}

impl From<OperatorError> for RequestRefusal {
    fn from(error: OperatorError) -> Self {
        Self::Failed(error)
    }
}

/// Output format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct OutputFormat {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl OutputFormat {
    /// Whether the answer is printed as JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// The answer as JSON, or in `words`.
    pub fn show<T: Serialize>(
        self,
        answer: &T,
        words: impl Fn(&T) -> String,
    ) -> Result<String, OperatorError> {
        if !self.json {
            return Ok(words(answer));
        }
        serde_json::to_string_pretty(answer).map_err(|error| OperatorError {
            message: error.to_string(),
            hint: "leave --json out".to_owned(),
        })
    }
}

/// Aligned columns under a header.
pub fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let mut lines = vec![names.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| row.clone().map(|cell| one_line(&cell, CELL))));
    let width = |column: usize| {
        lines.iter().map(|line| line.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
