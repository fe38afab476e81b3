//! The tools that one turn of an agent may call.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::agents::tools::{AgentTool, ToolSpec};

/// Tools by their names.
#[derive(Clone, Default)]
pub struct ToolSet {
    tools: BTreeMap<String, Arc<dyn AgentTool>>,
    /// The tools as a request lists them, in the order in which they were added.
    listed: Vec<Value>,
}

impl ToolSet {
    /// The tools of a list. Of two tools with one name the first is kept.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn AgentTool>>) -> Self {
        let mut set = Self::default();
        for tool in tools {
            let ToolSpec { name, description, parameters } = tool.spec();
            if set.tools.contains_key(&name) {
                tracing::warn!(tool = name, "two tools have one name; the second is left out");
                continue;
            }
            set.listed.push(json!({
                "type": "function",
                "function": { "name": name, "description": description, "parameters": parameters },
            }));
            set.tools.insert(name, tool);
        }
        set
    }

    /// Whether there is no tool at all.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AgentTool>> {
        self.tools.get(name)
    }

    /// The tools as a request lists them.
    pub fn listed(&self) -> &[Value] {
        &self.listed
    }

    /// The names of all tools, for a model that called another one.
    pub fn names(&self) -> String {
        self.tools.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}
