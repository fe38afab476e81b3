//! `talaria codex`: hands the turns of a model agent to codex, and takes them back; and keeps codex' configuration up to date.

use std::fmt::Write as _;

use clap::Subcommand;

use super::operator::OutputFormat;
use super::table::table;
use crate::control::CommandError;
use crate::control::client::{CommandNeed, ControlClient};
use crate::control::codex::{
    CodexProblem, CodexProgram, CodexStatus, CodexStatusRequest, ConfigurationView, RuntimeView,
    SwitchRequest, SwitchedRuntime,
};
use crate::rules::AgentRuntime;
use crate::util::one_line;

/// Most characters of a note about an agent.
const NOTE: usize = 500;

/// Commands about the codex runtime.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum CodexCommand {
    /// Show the runtime of each agent, and the codex that is installed
    #[command(
        after_help = "An agent of kind `model` runs its turns itself (`auto`), or codex does (`codex_app_server`). `runtime:` in its\nentry says which, unless it was switched since.\n\nExamples:\n  talaria codex status\n  talaria codex status --json | jq .agents"
    )]
    Status {
        /// This agent only
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Have codex run the turns of an agent, from its next message on; or bring codex' configuration up to date
    #[command(
        after_help = "Needs codex 0.125 or newer on this machine (npm install -g @openai/codex), logged in with `codex login`; nothing\nbelow 0.166 was run by us. Writes Talaria's MCP servers into $CODEX_HOME/config.toml, between two markers; everything else in that file stays as it\nis. Run it again after a change of `mcp_servers`. Only an agent at OpenAI's own address, or one with `runtime:` in\nits entry, can be switched; for one of `kind: codex` only the file is written. Running turns end as they began.\n\nExamples:\n  talaria codex on --dry-run        what would be written\n  talaria codex on\n  talaria codex on --agent small"
    )]
    On {
        /// The agent [default: the default agent, or the only one that codex can run]
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Show what would be written for codex, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
    /// Have an agent run its turns itself again; the configuration of codex stays as it is
    #[command(after_help = "Examples:\n  talaria codex off\n  talaria codex off --agent small")]
    Off {
        /// The agent [default: the default agent, or the only one that can be switched]
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Output format
        #[command(flatten)]
        output: OutputFormat,
    },
}

impl CodexCommand {
    pub(super) fn needs(&self) -> CommandNeed {
        match self {
            // Works before the first start too, so that a machine can be set up in one go.
            Self::On { .. } => CommandNeed::NewStore,
            Self::Status { .. } | Self::Off { .. } => CommandNeed::Store,
        }
    }

    pub(super) async fn carry_out(&self, client: &ControlClient) -> Result<String, CommandError> {
        let (agent, runtime, dry_run, output) = match self {
            Self::Status { agent, output } => {
                let asked = CodexStatusRequest { agent: agent.clone() };
                let status: CodexStatus = client.post("/codex/status", &asked).await?;
                return Ok(output.show(&status, show_status)?);
            }
            Self::On { agent, dry_run, output } => (agent, AgentRuntime::CodexAppServer, *dry_run, output),
            Self::Off { agent, output } => (agent, AgentRuntime::Auto, false, output),
        };
        let asked = SwitchRequest { agent: agent.clone(), runtime, dry_run };
        let switched: SwitchedRuntime = client.post("/codex/switch", &asked).await?;
        Ok(output.show(&switched, show_switched)?)
    }
}

fn show_status(status: &CodexStatus) -> String {
    let mut text = match (&status.codex, &status.problem) {
        (Some(CodexProgram { program, version }), _) => format!("codex {version} ({program})\n"),
        (None, Some(CodexProblem { message, hint })) => format!("codex cannot be used: {message}; {hint}\n"),
        (None, None) => String::new(),
    };
    if status.agents.is_empty() {
        return text + "No agent is configured.";
    }
    let rows: Vec<_> = status.agents.iter().map(row).collect();
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&table(["AGENT", "RUNTIME"], &rows));
    // Not in the table, which cuts long cells: the reason stands at the end of a note.
    for view in &status.agents {
        for note in notes(view) {
            let _ = write!(text, "\n{}: {}\n", view.agent, one_line(&note, NOTE));
        }
    }
    text
}

fn row(RuntimeView { agent, runtime, .. }: &RuntimeView) -> [String; 2] {
    [agent.clone(), runtime.map_or("-", AgentRuntime::name).to_owned()]
}

/// Why an agent cannot be switched, and what is still to be done for it.
fn notes(view: &RuntimeView) -> impl Iterator<Item = String> {
    let RuntimeView { agent, runtime, configured, fixed, unmigrated } = view;
    let fixed = match (fixed, configured) {
        (Some(why), _) => Some(format!("cannot be switched: {why}")),
        (None, Some(configured)) if *runtime != Some(*configured) => {
            Some(format!("chosen with a command; the configuration says {configured}"))
        }
        (None, _) => None,
    };
    let next = unmigrated.then(|| format!("not migrated yet; run `talaria codex on --agent {agent}`"));
    [next, fixed].into_iter().flatten()
}

fn show_switched(switched: &SwitchedRuntime) -> String {
    let SwitchedRuntime { agent, before, runtime, configured, switchable, dry_run, running, .. } = switched;
    let when = if *running { "from its next message on" } else { "from the next start on" };
    let mut text = match (dry_run, before, runtime) {
        (true, AgentRuntime::CodexAppServer, _) => {
            format!(
                "Nothing was changed. `talaria codex on` would bring codex' configuration up to date for {agent}.\n"
            )
        }
        (true, AgentRuntime::Auto, _) => {
            format!("Nothing was changed. `talaria codex on` would hand the turns of {agent} to codex.\n")
        }
        (false, AgentRuntime::Auto, AgentRuntime::CodexAppServer) => {
            format!("Codex runs the turns of {agent} {when}.\n")
        }
        (false, AgentRuntime::CodexAppServer, AgentRuntime::CodexAppServer) => {
            format!("Codex runs the turns of {agent} already.\n")
        }
        (false, AgentRuntime::CodexAppServer, AgentRuntime::Auto) => format!(
            "The agent {agent} runs its turns itself again {when}. The configuration of codex stays as it is.\n"
        ),
        (false, AgentRuntime::Auto, AgentRuntime::Auto) => {
            format!("The agent {agent} runs its turns itself already.\n")
        }
    };
    if !dry_run && runtime != configured {
        let _ =
            writeln!(text, "The configuration says {configured}; this choice wins until it is taken back.");
    }
    if let Some(CodexProgram { program, version }) = &switched.codex {
        let _ = writeln!(text, "\ncodex {version} ({program})");
    }
    if let Some(report) = &switched.configuration {
        describe(report, &mut text);
        if *switchable {
            text.push_str(
                "\nNot available on this runtime: the tools of the agent for files and commands (codex has its own), \
                 /model, and the sampling settings of apps.\n",
            );
        }
        if switched.narrows_access {
            let _ = writeln!(
                text,
                "On this runtime {agent} is for admins and the owner only, because codex acts on the machine; \
                 `agents.{agent}.access` lets others in."
            );
        }
        text.push_str(match switched.logged_out {
            true => "Codex is not logged in, so it answers nothing yet: run `codex login` as the user who runs Talaria.\n",
            false => "Codex has an account of its own: `codex login` logs it in.\n",
        });
    }
    text
}

/// The report about codex' configuration.
fn describe(report: &ConfigurationView, text: &mut String) {
    if let Some(file) = &report.file {
        let _ = writeln!(text, "configuration  {file}");
    }
    for line in &report.lines {
        let _ = writeln!(text, "- {line}");
    }
    if let Some(block) = report.block.as_deref().filter(|block| !block.trim().is_empty()) {
        let _ = writeln!(text, "\n{}", block.trim_end());
    }
}
