//! The tools of one agent, built from its configuration.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::tool_set::ToolSet;
use crate::agent::{LearningTools, NoteScope};
use crate::agents::mcp::McpServers;
use crate::agents::process::sandbox::SandboxState;
use crate::agents::services::AgentServices;
use crate::agents::skills::SkillLibrary;
use crate::agents::tools::AgentTool;
use crate::agents::tools::edit_file::EditFileTool;
use crate::agents::tools::memory::{self, MemoryTool};
use crate::agents::tools::read_file::ReadFileTool;
use crate::agents::tools::search_files::SearchFilesTool;
use crate::agents::tools::skills::{SkillWriting, SkillsTool};
use crate::agents::tools::terminal::{TerminalParts, TerminalTool};
use crate::agents::tools::workspace::Workspace;
use crate::agents::tools::write_file::WriteFileTool;
use crate::config::{BuiltinTool, McpSelection, ModelConfig, make_workspace};
use crate::i18n::LocalizedText;
use crate::store::Store;

/// The tools of one agent, and the sources of the notes and skills in its system message.
#[derive(Default)]
pub struct AgentTools {
    builtin: Vec<Arc<dyn AgentTool>>,
    /// Servers whose tools the agent has, and which of them.
    mcp: Option<(Arc<McpServers>, McpSelection)>,
    /// The store with the notes, if the agent has a memory.
    notes: Option<Store>,
    /// The skills, if the agent has them.
    skills: Option<Arc<SkillLibrary>>,
}

/// The tools of one turn, and sentences about those that are missing.
pub struct TurnTools {
    /// The tools.
    pub tools: Arc<ToolSet>,
    /// For the model and for people: why some tools are not there.
    pub problems: Vec<String>,
}

impl AgentTools {
    /// The tools that a configuration names. Makes the workspace if it is not there; starts nothing.
    pub fn new(config: &ModelConfig, services: &AgentServices) -> io::Result<Self> {
        let workspace = config.workspace.as_deref().map(open_workspace).transpose()?;
        let mut tools = Self::default();
        // Of one type for all tools: a tool that needs a workspace is not configured without one.
        let has_skills = config.tools.contains(&BuiltinTool::Skills);
        for tool in &config.tools {
            let workspace = workspace.as_ref();
            let built: Option<Arc<dyn AgentTool>> = match tool {
                BuiltinTool::ReadFile => workspace.map(|one| Arc::new(ReadFileTool::new(one.clone())) as _),
                BuiltinTool::WriteFile => workspace.map(|one| Arc::new(WriteFileTool::new(one.clone())) as _),
                BuiltinTool::EditFile => workspace.map(|one| Arc::new(EditFileTool::new(one.clone())) as _),
                BuiltinTool::SearchFiles => {
                    workspace.map(|one| Arc::new(SearchFilesTool::new(one.clone())) as _)
                }
                BuiltinTool::Terminal => {
                    workspace.map(|one| Arc::new(terminal(one, services, has_skills)) as _)
                }
                BuiltinTool::Memory => {
                    tools.notes = Some(services.store.clone());
                    Some(Arc::new(MemoryTool::new(services.store.clone())))
                }
                BuiltinTool::Skills => {
                    tools.skills = Some(services.skills.clone());
                    Some(Arc::new(SkillsTool::new(services.skills.clone(), SkillWriting::Ask)))
                }
            };
            tools.builtin.extend(built);
        }
        if config.mcp != McpSelection::None {
            tools.mcp = Some((services.mcp.clone(), config.mcp.clone()));
        }
        Ok(tools)
    }

    /// Exactly these tools, without notes, skills and servers.
    pub fn only(builtin: impl IntoIterator<Item = Arc<dyn AgentTool>>) -> Self {
        Self { builtin: builtin.into_iter().collect(), ..Self::default() }
    }

    /// Whether the agent has no tools at all.
    pub fn is_empty(&self) -> bool {
        self.builtin.is_empty() && self.mcp.is_none()
    }

    /// The tools with which the agent learns.
    pub fn learning(&self) -> LearningTools {
        LearningTools { memory: self.notes.is_some(), skills: self.skills.is_some() }
    }

    /// The tools of a turn. Starts the servers that the agent uses and waits for each within its time limit.
    pub async fn for_turn(&self) -> TurnTools {
        let (mut tools, mut problems) = (self.builtin.clone(), Vec::new());
        if let Some((servers, selection)) = &self.mcp {
            let theirs = servers.tools_for(&servers.selected(selection)).await;
            tools.extend(theirs.tools);
            problems = theirs.problems;
        }
        TurnTools { tools: Arc::new(ToolSet::new(tools)), problems }
    }

    /// The tools that a review is about. They write without asking.
    pub fn for_review(&self, about: LearningTools) -> ToolSet {
        let notes = self.notes.as_ref().filter(|_| about.memory);
        let notes = notes.map(|store| Arc::new(MemoryTool::new(store.clone())) as Arc<dyn AgentTool>);
        let skills = self.skills.as_ref().filter(|_| about.skills);
        let skills = skills.map(|library| {
            Arc::new(SkillsTool::new(library.clone(), SkillWriting::Review)) as Arc<dyn AgentTool>
        });
        ToolSet::new(notes.into_iter().chain(skills))
    }

    /// The sections of the system message about notes and skills.
    pub async fn prompt_sections(&self, scope: Option<&NoteScope>) -> Vec<String> {
        let mut sections = Vec::new();
        if let Some(store) = &self.notes {
            match memory::load_section(store, scope).await {
                Ok(section) => sections.extend(section),
                Err(error) => tracing::error!(%error, "a turn runs without its notes"),
            }
        }
        if let Some(library) = &self.skills {
            sections.extend(library.current().await.prompt_section());
        }
        sections
    }

    /// Lines about the servers of the agent for `/status`.
    pub fn state_lines(&self) -> Vec<LocalizedText> {
        let lines = self.mcp.as_ref().map(|(servers, selection)| servers.state_lines(selection));
        lines.unwrap_or_default()
    }
}

fn open_workspace(path: &Path) -> io::Result<Arc<Workspace>> {
    make_workspace(path)?;
    Ok(Arc::new(Workspace::open(path)?))
}

/// `has_skills`: only an agent that reads skills gets the variables that they need.
fn terminal(workspace: &Workspace, services: &AgentServices, has_skills: bool) -> TerminalTool {
    let skills = services.skills.clone();
    TerminalTool::new(TerminalParts {
        host: services.host.clone(),
        slots: services.command_slots.clone(),
        sandbox: SandboxState::detect().clone(),
        workspace: workspace.root().to_owned(),
        hidden: services.hidden.clone(),
        config: services.terminal.clone(),
        further_variables: Arc::new(move || match has_skills {
            true => skills.required_variables(),
            false => Vec::new(),
        }),
    })
}
