//! `write_file`: creates a file of the workspace, or replaces all of it.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use talaria_platform::BoxFuture;

use super::arguments::subject_line;
use super::blocking::{CancelFlag, run_blocking};
use super::workspace::Workspace;
use super::{AgentTool, ToolCall, ToolFailure, ToolSpec, cap_result, required_text};
use crate::agents::confined_dir::{ReplaceCondition, WrittenFile};

/// Largest file that a model writes at once, in bytes. No model writes more in one call.
const CONTENT_BYTES: usize = 4 * 1024 * 1024;

/// The tool `write_file` of one agent.
pub struct WriteFileTool {
    workspace: Arc<Workspace>,
}

impl WriteFileTool {
    /// A tool for the files of this workspace.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl AgentTool for WriteFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".to_owned(),
            description:
                "Writes a whole file of the workspace. A file that is there is replaced; missing folders are \
                          made. To change a part of a file use `edit_file`."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "Path relative to the workspace" },
                    "content": { "type": "string", "description": "The whole new content" },
                },
                "required": ["path", "content"],
            }),
        }
    }

    fn subject(&self, arguments: &Map<String, Value>) -> String {
        subject_line(arguments, "path")
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<String, ToolFailure>> {
        Box::pin(async move {
            let path = self.workspace.resolve_file(required_text(call.arguments, "path")?)?;
            let content = required_text(call.arguments, "content")?;
            if content.len() > CONTENT_BYTES {
                let bytes = content.len();
                return Err(ToolFailure::failed(format!(
                    "the content has {bytes} bytes, and at most {CONTENT_BYTES} are possible; write less at once"
                )));
            }
            let (workspace, content) = (self.workspace.clone(), content.to_owned());
            let write = move |cancel: &CancelFlag| {
                let _change = workspace.begin_change();
                let replaced = workspace.dir().replace_file(
                    path.as_path(),
                    content.as_bytes(),
                    ReplaceCondition::Always,
                    &|| cancel.is_set(),
                );
                let done = match replaced.map_err(|problem| path.failure(&problem))? {
                    WrittenFile::Created => "Created",
                    WrittenFile::Replaced => "Replaced",
                };
                let (lines, bytes) = (content.lines().count(), content.len());
                Ok(format!("{done} {path}: {lines} lines, {bytes} bytes."))
            };
            run_blocking(call.stop, write).await.map(cap_result)
        })
    }
}
