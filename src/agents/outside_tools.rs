//! Tools of ours for programs outside, such as a codex that runs `talaria mcp`: skills, and MCP tools that need no question.
//!
//! Nobody can be asked there, and the program may be anybody's who has our user: so neither notes nor files nor commands
//! are offered, skills can only be read, and of the MCP tools only those that the configuration allows outright.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use talaria_platform::{BoxFuture, CancellationToken};

use super::AgentServices;
use super::mcp::{McpServers, ServerFilter};
use super::skills::SkillLibrary;
use super::tools::blocking::{CancelFlag, run_blocking};
use super::tools::skills::{describe, read_failure, whole_text};
use super::tools::{ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::agent::{
    AgentError, AgentOutput, AgentTurn, Ask, AskChoice, DenyReason, SessionMessage, TurnEvent,
};
use crate::ids::{AgentName, SessionId, TurnId};
use crate::util::code_span;

/// Name of the tool that lists the skills.
pub const SKILLS_LIST: &str = "skills_list";

/// Name of the tool that reads a skill.
pub const SKILL_VIEW: &str = "skill_view";

/// Longest wait for MCP servers when their tools are listed. The start of the program outside waits for it, and goes on
/// with the tools that are known by then.
const LIST: Duration = Duration::from_secs(8);

/// Longest wait for the server of one tool. Its own limit for a start is usually shorter.
const START: Duration = Duration::from_secs(120);

/// Most tools that are offered. Each of them is in every request of the model outside.
const TOOLS: usize = 200;

/// Characters of a tool's name in a sentence.
const NAME_CHARS: usize = 80;

/// The tools of the process for programs outside.
pub struct OutsideTools {
    mcp: Arc<McpServers>,
    skills: Arc<SkillLibrary>,
}

/// A tool, as a program outside is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutsideTool {
    /// The description.
    pub spec: ToolSpec,
    /// Whether it is known to change nothing.
    pub is_read_only: bool,
}

impl OutsideTools {
    /// The tools of these services.
    pub fn new(services: &AgentServices) -> Self {
        Self { mcp: services.mcp.clone(), skills: services.skills.clone() }
    }

    /// All tools, of MCP servers only those that `filter` offers. Starts servers; takes a few seconds at most.
    pub async fn list(&self, filter: &ServerFilter) -> Vec<OutsideTool> {
        let theirs = self.mcp.tools_without_asking(None, filter, LIST).await;
        for problem in &theirs.problems {
            tracing::warn!(problem, "tools are missing in the list for `talaria mcp`");
        }
        let ours = skill_specs().into_iter().map(|spec| OutsideTool { spec, is_read_only: true });
        let theirs = theirs.tools.iter().map(|tool| OutsideTool { spec: tool.spec(), is_read_only: false });
        ours.chain(theirs).take(TOOLS).collect()
    }

    /// Calls a tool. Dropping the future ends everything that the call started.
    pub async fn call(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        filter: &ServerFilter,
    ) -> Result<String, ToolFailure> {
        let stop = CancellationToken::new();
        match name {
            SKILLS_LIST => Ok(cap_result(describe(&self.skills.current().await))),
            SKILL_VIEW => self.view_skill(arguments, &stop).await,
            _ => self.call_server(name, arguments, filter, &stop).await,
        }
    }

    async fn view_skill(
        &self,
        arguments: &Map<String, Value>,
        stop: &CancellationToken,
    ) -> Result<String, ToolFailure> {
        let (name, library) = (required_text(arguments, "name")?.to_owned(), self.skills.clone());
        run_blocking(stop, move |_: &CancelFlag| match library.read(&name) {
            Ok(text) => Ok(cap_result(whole_text(&text))),
            Err(error) => Err(ToolFailure::failed(read_failure(&name, SKILLS_LIST, &error))),
        })
        .await
    }

    async fn call_server(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        filter: &ServerFilter,
        stop: &CancellationToken,
    ) -> Result<String, ToolFailure> {
        let found = self.mcp.tools_without_asking(Some(name), filter, START).await;
        let Some(tool) = found.tools.iter().find(|tool| tool.spec().name == name) else {
            let why = match found.problems.first() {
                Some(problem) => problem.clone(),
                None => "Tools that need an approval are not offered here.".to_owned(),
            };
            return Err(ToolFailure::failed(format!(
                "There is no tool {}. {why}",
                code_span(name, NAME_CHARS)
            )));
        };
        // An MCP tool looks at none of these: the call belongs to no conversation of ours.
        let (turn, session) = (TurnId(OUTSIDE.to_owned()), SessionId(OUTSIDE.to_owned()));
        let turn = AgentTurn::new(turn, AgentName::local(), session);
        tool.call(ToolCall { arguments, turn: &turn, out: &NobodyThere, progress: &|_| {}, stop }).await
    }
}

/// Stands for the turn and the session of a call that has none.
const OUTSIDE: &str = "outside";

fn skill_specs() -> [ToolSpec; 2] {
    let spec = |name: &str, description: &str, parameters: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    };
    let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let named = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "description": "Name of the skill, from the list" } },
        "required": ["name"],
        "additionalProperties": false,
    });
    [
        spec(
            SKILLS_LIST,
            "Lists the skills of Talaria: instructions for certain tasks, each with a line that says when to use it.",
            nothing,
        ),
        spec(
            SKILL_VIEW,
            "Reads one skill of Talaria by its name. Read it before you begin a task that it is about.",
            named,
        ),
    ]
}

/// Output of a call without people: an ask is denied, and nothing else is expected of a tool.
struct NobodyThere;

impl AgentOutput for NobodyThere {
    fn emit(&self, _event: TurnEvent<'_>) {}

    fn ask(&self, _ask: Ask) -> BoxFuture<'static, AskChoice> {
        Box::pin(async { AskChoice::Deny(DenyReason::Gone) })
    }

    fn record(&self, _message: SessionMessage) -> BoxFuture<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }
}
