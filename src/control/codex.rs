//! Commands that show and change the runtimes of agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::ControlState;
use super::command_error::CommandError;
use super::routes::{HandlerResult, RawRequest, read};
use crate::agents::codex::binary::{CodexBinary, CodexBinaryError};
use crate::agents::codex::enable::EnableReport;
use crate::agents::codex::migration::{EntryName, MigrationOutcome, MigrationReport};
use crate::agents::runtime_switch::{
    FixedRuntime, RuntimeChange, RuntimeControl, RuntimeRefusal, RuntimeState,
};
use crate::ids::AgentName;
use crate::rules::AgentRuntime;
use crate::store::{self, OPERATOR, OperatorAction, Tx};
use crate::util::one_line;

/// `POST /codex/status`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodexStatusRequest {
    /// Restricts the answer to this agent.
    pub agent: Option<String>,
}

/// Response to `POST /codex/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodexStatus {
    /// The program that the agents below use or would use; `None` if it cannot be used.
    pub codex: Option<CodexProgram>,
    /// Why it cannot be used, and the next step.
    pub problem: Option<CodexProblem>,
    /// The agents, by name.
    pub agents: Vec<RuntimeView>,
}

/// A codex that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodexProgram {
    /// Path of the program.
    pub program: String,
    /// Its version.
    pub version: String,
}

/// A codex that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodexProblem {
    /// The reason.
    pub message: String,
    /// The next step.
    pub hint: String,
}

/// The runtime of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeView {
    /// Name of the agent.
    pub agent: String,
    /// The runtime of its next turn; `None` for an agent whose turns codex cannot run.
    pub runtime: Option<AgentRuntime>,
    /// The runtime that the configuration gives it. Another `runtime` was chosen with a command.
    pub configured: Option<AgentRuntime>,
    /// Why it cannot be switched.
    pub fixed: Option<String>,
    /// Codex runs its turns and has nothing of ours in its configuration yet.
    pub unmigrated: bool,
}

/// `POST /codex/switch`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchRequest {
    /// The agent; `None` for the default one, or the only one for which this can be done.
    pub agent: Option<String>,
    /// The runtime of its turns from now on.
    pub runtime: AgentRuntime,
    /// Only says what would be written for codex.
    #[serde(default)]
    pub dry_run: bool,
}

/// Response to `POST /codex/switch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedRuntime {
    /// Name of the agent.
    pub agent: String,
    /// Its runtime before.
    pub before: AgentRuntime,
    /// Its runtime now.
    pub runtime: AgentRuntime,
    /// The runtime that the configuration gives it.
    pub configured: AgentRuntime,
    /// Whether it has another runtime too. Not so for an agent of kind `codex`.
    pub switchable: bool,
    /// Whether nothing was changed, because only a report was wanted.
    pub dry_run: bool,
    /// Whether a running gateway goes by it already; otherwise the next start does.
    pub running: bool,
    /// Fewer people and programs may talk to it on codex than on its own runtime.
    pub narrows_access: bool,
    /// The codex that runs its turns, if it was switched on.
    pub codex: Option<CodexProgram>,
    /// Report about codex' configuration, if it was switched on.
    pub configuration: Option<ConfigurationView>,
    /// Codex was switched on and says that it has no login, without which it answers nothing.
    pub logged_out: bool,
}

/// Report about codex' configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationView {
    /// Path of the file; `None` if codex has no folder.
    pub file: Option<String>,
    /// `written`, `unchanged`, `planned` or `failed`.
    pub outcome: String,
    /// Entries of ours that the file has, or would have.
    pub migrated: Vec<String>,
    /// Keys of the user's that stand in the place of ours.
    pub clashes: Vec<String>,
    /// Servers that codex does not get.
    pub skipped_servers: Vec<String>,
    /// Keys of migrated servers that codex has no place for.
    pub skipped_keys: BTreeMap<String, Vec<String>>,
    /// Installed plugins that are not migrated.
    pub skipped_plugins: Vec<String>,
    /// Reasons to leave the file as it is.
    pub errors: Vec<String>,
    /// All of it in sentences, the errors first.
    pub lines: Vec<String>,
    /// Our part of the file, if only a report was wanted.
    pub block: Option<String>,
}

/// Routes about runtimes.
pub(super) fn routes() -> Router<Arc<ControlState>> {
    Router::new().route("/codex/status", post(status)).route("/codex/switch", post(switch))
}

async fn status(State(control): State<Arc<ControlState>>, asked: RawRequest) -> HandlerResult<CodexStatus> {
    let CodexStatusRequest { agent } = read(asked)?;
    let runtimes = control.runtimes()?;
    let mut states = runtimes.states();
    if let Some(wanted) = &agent {
        states.retain(|(name, _)| name.as_str() == wanted);
        if states.is_empty() {
            return Err(unknown_agent(wanted, runtimes));
        }
    }
    // One program for all of them: only an agent of kind `codex` can have another, and has to be named for that.
    let asked = match &states[..] {
        [(only, _)] => Some(only),
        states => states.iter().find(|(_, state)| state.is_ok()).map(|(name, _)| name),
    };
    let (codex, problem) = match asked {
        Some(agent) => match runtimes.find_codex(agent).await {
            Ok(binary) => (Some(CodexProgram::from(&binary)), None),
            Err(error) => (None, Some(CodexProblem::from(&error))),
        },
        None => (None, None),
    };
    let mut agents = Vec::new();
    for (agent, state) in states {
        let unmigrated = runtimes.is_unmigrated(&agent).await;
        agents.push(RuntimeView { unmigrated, ..view(&agent, state) });
    }
    Ok(Json(CodexStatus { codex, problem, agents }))
}

async fn switch(
    State(control): State<Arc<ControlState>>,
    asked: RawRequest,
) -> HandlerResult<SwitchedRuntime> {
    let SwitchRequest { agent, runtime, dry_run } = read(asked)?;
    let runtimes = control.runtimes()?;
    let agent = choose(&control, runtimes, agent.as_deref(), runtime)?;
    let refuse = |refusal: RuntimeRefusal| refused(&agent, refusal);
    let change = match (dry_run, runtime) {
        (true, AgentRuntime::CodexAppServer) => {
            let state = runtimes.state(&agent).map_err(|why| refuse(why.into()))?;
            let enabled = runtimes.dry_run(&agent).await.map_err(refuse)?;
            RuntimeChange { before: state.runtime, state, enabled: Some(enabled) }
        }
        (true, AgentRuntime::Auto) => {
            return Err(CommandError::wrong(
                "there is nothing to try out",
                "switching off writes no configuration; leave `--dry-run` out",
            ));
        }
        (false, _) => {
            let name = agent.clone();
            let permit = move |tx: &Tx<'_>| audit(tx, &name, runtime).map(|()| true);
            runtimes.change(&agent, runtime, Arc::new(permit)).await.map_err(refuse)?
        }
    };
    let RuntimeChange { before, state, enabled } = change;
    let (codex, configuration) = enabled.unzip();
    let logged_out = configuration.as_ref().is_some_and(|report| report.is_logged_out);
    Ok(Json(SwitchedRuntime {
        agent: agent.to_string(),
        before,
        runtime: state.runtime,
        configured: state.configured,
        switchable: state.is_switchable,
        dry_run,
        running: control.running.is_some(),
        narrows_access: state.narrows_access,
        codex: codex.as_ref().map(CodexProgram::from),
        configuration: configuration.map(|report| ConfigurationView::of(report, dry_run)),
        logged_out,
    }))
}

impl ControlState {
    /// The control of runtimes; an error if the configuration is wrong.
    fn runtimes(&self) -> Result<&Arc<RuntimeControl>, CommandError> {
        match &self.runtimes {
            Some(runtimes) => Ok(runtimes),
            None => Err(self.rules_now().err().unwrap_or_else(|| CommandError::not_running(&self.home))),
        }
    }

    /// Name of the agent that answers where no other is named.
    fn default_agent(&self) -> Option<AgentName> {
        match (&self.running, &self.rules) {
            (Some(running), _) => Some(running.turns.agents().default_name().clone()),
            (None, super::ControlRules::Written(config)) => {
                config.as_ref().as_ref().ok().map(|config| config.agents.default.clone())
            }
            (None, super::ControlRules::Live(_)) => None,
        }
    }
}

/// The agent to switch: the one that is named, or the default one, or the only one that can have this runtime.
fn choose(
    control: &ControlState,
    runtimes: &RuntimeControl,
    named: Option<&str>,
    runtime: AgentRuntime,
) -> Result<AgentName, CommandError> {
    if let Some(named) = named {
        let known = |name: &AgentName| runtimes.states().iter().any(|(known, _)| known == name);
        return AgentName::new(named).filter(known).ok_or_else(|| unknown_agent(named, runtimes));
    }
    let fits = |agent: &AgentName| {
        let on = runtime == AgentRuntime::CodexAppServer;
        runtimes.state(agent).is_ok_and(|state| on || state.is_switchable)
    };
    let default = control.default_agent();
    if let Some(default) = default.clone().filter(fits) {
        return Ok(default);
    }
    let mut fitting = runtimes.states().into_iter().map(|(name, _)| name).filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(one), Some(two)) => Err(CommandError::new(
            StatusCode::CONFLICT,
            format!("several agents can be meant: `{one}`, `{two}` …"),
            "name one with `--agent NAME`; `talaria codex status` lists them",
        )),
        (None, _) => Err(match default.map(|default| (runtimes.state(&default), default)) {
            Some((Err(why), default)) => refused(&default, why.into()),
            Some((Ok(_), default)) => refused(&default, FixedRuntime::Codex.into()),
            None => refused(&AgentName::guide(), FixedRuntime::NoAgent.into()),
        }),
    }
}

fn unknown_agent(named: &str, runtimes: &RuntimeControl) -> CommandError {
    let names: Vec<_> = runtimes.states().iter().map(|(name, _)| format!("`{name}`")).collect();
    let hint = match names.is_empty() {
        true => "no agent is configured".to_owned(),
        false => format!("the agents are {}", names.join(", ")),
    };
    CommandError::missing(format!("no agent is called `{}`", one_line(named, 80)), hint)
}

fn refused(agent: &AgentName, refusal: RuntimeRefusal) -> CommandError {
    match refusal {
        RuntimeRefusal::Fixed(why) => {
            let (message, hint) = fixed_words(agent, why);
            CommandError::new(StatusCode::CONFLICT, message, hint)
        }
        RuntimeRefusal::Binary(error) => {
            CommandError::new(StatusCode::CONFLICT, error.to_string(), error.hint())
        }
        RuntimeRefusal::Store(error) => CommandError::store(&error),
        // Our permit refuses nothing: running turns end as they began.
        RuntimeRefusal::Busy | RuntimeRefusal::Broken => CommandError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "a bug interrupted the switch, which may have taken effect all the same",
            "look at the log; `talaria codex status` shows what holds now",
        ),
    }
}

/// Why an agent has one runtime only, and the next step.
fn fixed_words(agent: &AgentName, why: FixedRuntime) -> (String, &'static str) {
    match why {
        FixedRuntime::Proxy => (
            format!("the agent `{agent}` is a remote agent server, which runs its turns itself"),
            "run `talaria codex on` on the machine of that server",
        ),
        FixedRuntime::Codex => (
            format!("the agent `{agent}` is codex itself, so there is nothing to switch"),
            "`talaria codex on` brings the configuration of codex up to date for it",
        ),
        FixedRuntime::Acp => (
            format!("the agent `{agent}` is a program of its own, which runs its turns itself"),
            "`talaria codex status` lists the agents that can be switched",
        ),
        FixedRuntime::Private => (
            format!(
                "the model server of the agent `{agent}` is not OpenAI's, and codex would send what is said to it \
                 elsewhere"
            ),
            "if that is wanted, write `runtime: auto` into the entry of the agent and run `talaria reload`",
        ),
        FixedRuntime::NoAgent => (
            "no agent is configured that could be switched".to_owned(),
            "set `OPENAI_MODEL` and `OPENAI_API_KEY`, or write an agent of `kind: codex`",
        ),
    }
}

fn view(agent: &AgentName, state: Result<RuntimeState, FixedRuntime>) -> RuntimeView {
    let (runtime, configured, why) = match state {
        Ok(RuntimeState { runtime, configured, is_switchable, .. }) => {
            (Some(runtime), Some(configured), (!is_switchable).then_some(FixedRuntime::Codex))
        }
        Err(why) => (None, None, Some(why)),
    };
    let fixed = why.map(|why| fixed_words(agent, why).0);
    RuntimeView { agent: agent.to_string(), runtime, configured, fixed, unmigrated: false }
}

fn audit(tx: &Tx<'_>, agent: &AgentName, runtime: AgentRuntime) -> store::Result<()> {
    tx.audit_operator(&OperatorAction {
        account: "",
        actor: OPERATOR,
        room: None,
        action: &format!("switch {agent} to {runtime}"),
        allowed: true,
        rule: "operator",
    })
}

impl ConfigurationView {
    fn of(report: EnableReport, dry_run: bool) -> Self {
        let EnableReport { file, block, migration, is_logged_out: _ } = report;
        // In the language of the log: these are for the operator.
        let lines: Vec<_> = migration.lines().iter().map(ToString::to_string).collect();
        let MigrationReport { outcome, migrated, clashes, skipped_servers, skipped_keys, .. } = migration;
        Self {
            file: file.map(|file| file.display().to_string()),
            outcome: match outcome {
                MigrationOutcome::Failed => "failed",
                MigrationOutcome::Unchanged => "unchanged",
                MigrationOutcome::Written => "written",
                MigrationOutcome::Planned => "planned",
            }
            .to_owned(),
            migrated: migrated.iter().map(EntryName::to_string).collect(),
            clashes,
            skipped_servers: skipped_servers.into_keys().collect(),
            skipped_keys,
            skipped_plugins: migration.skipped_plugins,
            errors: lines.iter().take(migration.errors.len()).cloned().collect(),
            lines,
            block: dry_run.then_some(block),
        }
    }
}

impl From<&CodexBinary> for CodexProgram {
    fn from(binary: &CodexBinary) -> Self {
        Self { program: binary.program.display().to_string(), version: binary.version.to_string() }
    }
}

impl From<&CodexBinaryError> for CodexProblem {
    fn from(error: &CodexBinaryError) -> Self {
        Self { message: error.to_string(), hint: error.hint() }
    }
}
