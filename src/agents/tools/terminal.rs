//! `terminal`: runs a shell command in the workspace, if a person approves it.
//!
//! A command sees a built-up environment without our secrets, and runs in a sandbox where there is one. Its process group
//! ends with it, at its time limit, when the turn is stopped, and when we die.

mod command_output;
mod command_slots;
mod follow_command;
mod plain_text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use self::follow_command::{CommandEnd, follow_command};
use super::approval::approve;
use super::{AgentTool, RESULT_BYTES, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::agent::{AnswerForm, Ask};
use crate::agents::process::environment::{COMMAND_VARIABLES, process_environment, secret_files};
use crate::agents::process::sandbox::{SandboxPolicy, SandboxState, socket_paths};
use crate::agents::process::{EndPatience, HiddenFiles, ProcessExit, ProcessHost, ProcessSpec, StdinMode};
use crate::config::{BuiltinTool, TerminalConfig};
use crate::testing::failpoint;
use crate::util::one_line;
pub use command_slots::CommandSlots;

/// Characters of a command in the line that names a step.
const SUBJECT: usize = 200;

/// Runs the command in `$0`, with standard error in the same stream as standard output.
const WRAPPER: &str = r#"exec 2>&1; exec sh -c -- "$0""#;

/// Pause between SIGTERM and SIGKILL. Short, because a person who stops a turn waits for it.
const AFTER_TERM: Duration = Duration::from_secs(1);

/// Names of variables that commands get beside the configured ones, asked for before each command.
pub type FurtherVariables = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The tool `terminal` of one agent.
pub struct TerminalTool {
    parts: TerminalParts,
}

/// Everything that the tool needs for all its commands.
pub struct TerminalParts {
    /// Starts the commands.
    pub host: Arc<ProcessHost>,
    /// Limits the commands of all agents together.
    pub slots: CommandSlots,
    /// The sandbox of this machine.
    pub sandbox: SandboxState,
    /// The folder that commands run in.
    pub workspace: PathBuf,
    /// Files and folders of ours that a sandboxed command must not see.
    pub hidden: HiddenFiles,
    /// The operator's settings.
    pub config: TerminalConfig,
    /// Variables that skills of the operator need.
    pub further_variables: FurtherVariables,
}

/// A command, checked.
struct CommandRequest<'a> {
    command: &'a str,
    /// The folder, with its links resolved.
    cwd: PathBuf,
    /// The folder as people are shown it.
    shown_cwd: String,
    /// Whether the model named another folder than the workspace.
    is_elsewhere: bool,
    limit: Duration,
}

impl TerminalTool {
    /// The tool with these parts.
    pub fn new(parts: TerminalParts) -> Self {
        Self { parts }
    }

    fn read<'a>(&self, arguments: &'a Map<String, Value>) -> Result<CommandRequest<'a>, ToolFailure> {
        let command = required_text(arguments, "command")?;
        if command.trim().is_empty() {
            return Err(ToolFailure::failed("`command` is empty"));
        }
        if command.contains('\0') {
            return Err(ToolFailure::failed("`command` contains a NUL character"));
        }
        let limit = match arguments.get("timeout_secs") {
            None | Some(Value::Null) => self.parts.config.timeout,
            Some(number) => match number.as_u64() {
                Some(seconds @ 1..) => self.parts.config.timeout.min(Duration::from_secs(seconds)),
                Some(0) | None => {
                    return Err(ToolFailure::failed("`timeout_secs` must be a whole number of seconds"));
                }
            },
        };
        let folder = match arguments.get("cwd") {
            None | Some(Value::Null) => "",
            Some(_) => required_text(arguments, "cwd")?,
        };
        let cwd = self.folder(Path::new(folder))?;
        // Two folders must never look alike in an ask.
        let Some(shown_cwd) = cwd.to_str().map(str::to_owned) else {
            return Err(ToolFailure::failed("the name of the folder cannot be shown to a person"));
        };
        let is_elsewhere = cwd != self.folder(Path::new(""))?;
        Ok(CommandRequest { command, cwd, shown_cwd, is_elsewhere, limit })
    }

    /// The folder of a command, which must lie in the workspace.
    fn folder(&self, relative: &Path) -> Result<PathBuf, ToolFailure> {
        if relative.is_absolute() {
            return Err(ToolFailure::failed("`cwd` must be relative to the workspace"));
        }
        let workspace = self.parts.workspace.canonicalize();
        let workspace = workspace.map_err(|_| ToolFailure::failed("the workspace is not there"))?;
        let folder = workspace.join(relative).canonicalize();
        match folder {
            Ok(folder) if !folder.starts_with(&workspace) => {
                Err(ToolFailure::failed("`cwd` leads out of the workspace"))
            }
            Ok(folder) if folder.is_dir() => Ok(folder),
            Ok(_) | Err(_) => Err(ToolFailure::failed("`cwd` is no folder of the workspace")),
        }
    }

    /// Equal for equal commands in the same folder: people can allow them once and for all.
    fn ask(&self, request: &CommandRequest<'_>) -> Ask {
        let title = match (self.parts.sandbox.is_on(), self.parts.config.network) {
            (false, _) => "run a command, not sandboxed",
            (true, true) => "run a command in the sandbox, with network",
            (true, false) => "run a command in the sandbox",
        };
        Ask {
            title: title.into(),
            detail: request.command.to_owned(),
            cwd: Some(request.shown_cwd.clone()),
            is_elsewhere: request.is_elsewhere,
            reason: None,
            form: AnswerForm::default(),
            gap: None,
        }
    }

    fn process(&self, request: &CommandRequest<'_>) -> ProcessSpec {
        let parts = &self.parts;
        let mut allowed = parts.config.env_passthrough.clone();
        allowed.extend((parts.further_variables)());
        let spec = ProcessSpec {
            program: "sh".into(),
            args: ["-c", WRAPPER, request.command].map(Into::into).into(),
            env: process_environment(COMMAND_VARIABLES, &allowed),
            cwd: request.cwd.clone(),
            stdin: StdinMode::Null,
            patience: EndPatience { after_eof: Duration::ZERO, after_term: AFTER_TERM },
        };
        let mut hidden = parts.hidden.now();
        hidden.extend(socket_paths(|name| std::env::var_os(name)));
        hidden.extend(secret_files(|name| std::env::var_os(name)));
        let policy =
            SandboxPolicy { workspace: parts.workspace.clone(), hidden, network: parts.config.network };
        parts.sandbox.wrap(spec, &policy)
    }

    async fn run(&self, call: &ToolCall<'_>) -> Result<String, ToolFailure> {
        let request = self.read(call.arguments)?;
        approve(call, self.ask(&request), "The command").await?;
        let _slot = self.parts.slots.take(call.progress, call.stop).await?;
        if call.stop.is_cancelled() {
            return Err(ToolFailure::Stopped);
        }
        // Another command may have put a link in the place of the folder while the person thought, or while this one waited.
        if self.read(call.arguments)?.cwd != request.cwd {
            return Err(ToolFailure::failed(
                "The folder changed while a person was asked, so nothing was done.",
            ));
        }
        failpoint("terminal.approved");
        let process = self.parts.host.spawn(self.process(&request)).map_err(|error| {
            tracing::warn!(%error, "a command could not be started");
            ToolFailure::failed(format!("The command could not be started: {error}"))
        })?;
        let (end, output) = follow_command(process, request.limit, call.stop, call.progress).await;
        failpoint("terminal.ended");
        match end {
            CommandEnd::Exited(exit) => Ok(cap_result(format!("{output}{}", describe_exit(exit)))),
            CommandEnd::TimedOut => Err(ToolFailure::Failed(cap_result(format!(
                "{output}[not finished after {} s: the command was ended]",
                request.limit.as_secs()
            )))),
            CommandEnd::Stopped => Err(ToolFailure::Stopped),
        }
    }
}

impl AgentTool for TerminalTool {
    fn spec(&self) -> ToolSpec {
        let TerminalConfig { network, timeout, .. } = self.parts.config;
        let limits = match (self.parts.sandbox.is_on(), network) {
            (false, _) => "It runs without a sandbox.",
            (true, true) => "It can write only the workspace and /tmp; /tmp is empty for each command.",
            (true, false) => {
                "It can write only the workspace and /tmp, which is empty for each command, and reaches no network."
            }
        };
        let description = format!(
            "Runs a shell command (`sh -c`) in the workspace and returns its output and exit status. A person is asked \
             to approve each command, so prefer few and clear ones. {limits} It has no input and no terminal. It is \
             ended after {} seconds, together with everything that it started in the background. Of output beyond {} \
             KiB only the beginning and the end are returned.",
            timeout.as_secs(),
            RESULT_BYTES / 1024
        );
        ToolSpec {
            name: BuiltinTool::Terminal.name().to_owned(),
            description,
            parameters: json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "description": "The command, exactly as the shell gets it." },
                    "timeout_secs": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Ends the command earlier than the usual limit."
                    },
                    "cwd": { "type": "string", "description": "A folder, relative to the workspace." }
                },
                "required": ["command"]
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        arguments
            .get("command")
            .and_then(Value::as_str)
            .map(|command| one_line(command, SUBJECT))
            .unwrap_or_default()
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move { self.run(&call).await })
    }
}

/// A shell reports a signal as 128 plus its number.
fn describe_exit(exit: ProcessExit) -> String {
    match exit.code {
        Some(code @ 129..=192) => format!("[exit status {code}: ended by signal {}]", code - 128),
        Some(code) => format!("[exit status {code}]"),
        None => "[the command was killed]".to_owned(),
    }
}

#[cfg(test)]
mod tests;
