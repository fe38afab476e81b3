//! The tools of one server, as it describes them: filtered by the configuration, and cut to size. Pure.
//!
//! Names, descriptions and schemas are a stranger's text. Each of them is sent to the model with every request, so all of
//! them are bounded, and the operator is told which tools were left out.

use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::agents::secret_mask::SecretMask;
use crate::config::{McpServerConfig, ToolPermission};
use crate::util::{clip, one_line};

/// Most tools of one server. A model chooses badly among more.
pub(super) const TOOLS: usize = 128;

/// Most pages of a list that are read. A server that always has another page would never end.
pub(super) const PAGES: usize = 64;

/// Characters of a description.
const DESCRIPTION: usize = 2_000;

/// Bytes of one schema. Larger ones exist, and would fill a small model's window alone.
const SCHEMA_BYTES: usize = 16 * 1024;

/// Bytes of all schemas and descriptions of a server.
const LIST_BYTES: usize = 192 * 1024;

/// Characters of a tool's name.
const NAME: usize = 128;

/// The tools of a server that may be offered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ToolList {
    /// In the order of their names.
    pub tools: Vec<ListedTool>,
    /// Tools that are not offered although they should be, and why; one sentence each.
    pub left_out: Vec<String>,
}

/// One tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedTool {
    /// Name at the server.
    pub name: String,
    /// The server's description, cut.
    pub description: String,
    /// JSON schema of the arguments.
    pub schema: Value,
    /// Whether a person is asked before a call.
    pub permission: ToolPermission,
}

/// Builds a list from the pages of a server.
pub(super) struct ToolListBuilder<'a> {
    config: &'a McpServerConfig,
    /// Descriptions and schemas are sent to the model, and may quote a key that the server got from us.
    mask: SecretMask,
    list: ToolList,
    bytes: usize,
    /// Tools that did not fit into the list as a whole.
    over: usize,
}

impl<'a> ToolListBuilder<'a> {
    pub(super) fn new(config: &'a McpServerConfig) -> Self {
        Self { config, mask: SecretMask::of(config), list: ToolList::default(), bytes: 0, over: 0 }
    }

    /// Adds the tools of one page.
    pub(super) fn add(&mut self, page: Vec<Tool>) {
        for tool in page {
            let name = tool.name.as_ref();
            if !is_offered(self.config, name) || self.list.tools.iter().any(|listed| listed.name == name) {
                continue;
            }
            if name.is_empty() || name.chars().nth(NAME).is_some() {
                self.leave_out(format!("the tool {} has no usable name", one_line(name, 40)));
                continue;
            }
            let description = self.mask.hide(tool.description.as_deref().unwrap_or_default());
            let description = clip(&description, DESCRIPTION).to_owned();
            let schema = self.mask.hide_in(usable_schema(&tool.input_schema));
            let size = schema.to_string().len();
            if size > SCHEMA_BYTES {
                self.leave_out(format!(
                    "the tool `{name}` describes its arguments in more than {SCHEMA_BYTES} bytes"
                ));
                continue;
            }
            self.bytes += size + description.len();
            if self.list.tools.len() == TOOLS || self.bytes > LIST_BYTES {
                self.over += 1;
                continue;
            }
            let permission = self.config.permissions.get(name).copied().unwrap_or_default();
            self.list.tools.push(ListedTool { name: name.to_owned(), description, schema, permission });
        }
    }

    /// The whole list.
    pub(super) fn finish(mut self) -> ToolList {
        if self.over > 0 {
            let (over, shown) = (self.over, self.list.tools.len());
            self.leave_out(format!(
                "{over} of its tools are left out, because {shown} is all that a model is told of; name the needed ones \
                 with `include`"
            ));
        }
        let missing = |name: &&String| !self.list.tools.iter().any(|tool| tool.name == **name);
        let denied = |name: &&String| self.config.permissions.get(*name) == Some(&ToolPermission::Deny);
        let named = self.config.include.iter().flatten().filter(|name| !denied(name));
        let unknown: Vec<_> = named.filter(missing).map(|name| format!("`{}`", one_line(name, 40))).collect();
        if !unknown.is_empty() && self.list.left_out.is_empty() {
            self.leave_out(format!(
                "`include` names tools that the server does not have: {}",
                unknown.join(", ")
            ));
        }
        self.list.tools.sort_by(|one, other| one.name.cmp(&other.name));
        self.list
    }

    fn leave_out(&mut self, words: String) {
        // A server with thousands of bad tools is told of by its first ones.
        if self.list.left_out.len() < 8 {
            self.list.left_out.push(words);
        }
    }
}

/// Whether the configuration lets the model know of a tool.
pub(super) fn is_offered(config: &McpServerConfig, tool: &str) -> bool {
    let included = config.include.as_ref().is_none_or(|names| names.iter().any(|name| name == tool));
    let excluded = config.exclude.iter().any(|name| name == tool);
    let permission = config.permissions.get(tool).copied().unwrap_or_default();
    included && !excluded && permission != ToolPermission::Deny
}

/// The schema in the form that model servers accept: an object with properties, without the name of its own schema.
fn usable_schema(schema: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    schema.remove("$schema");
    schema.insert("type".to_owned(), json!("object"));
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::McpTransport;

    fn config(
        include: Option<&[&str]>,
        exclude: &[&str],
        permissions: &[(&str, ToolPermission)],
    ) -> McpServerConfig {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        McpServerConfig {
            transport: McpTransport::Stdio {
                command: "true".to_owned(),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
            },
            enabled: true,
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            include: include.map(owned),
            exclude: owned(exclude),
            permissions: permissions.iter().map(|(name, may)| ((*name).to_owned(), *may)).collect(),
            origins: BTreeMap::new(),
        }
    }

    fn tool(name: &str, description: &str, schema: Value) -> Tool {
        let tool = json!({ "name": name, "description": description, "inputSchema": schema });
        serde_json::from_value(tool).unwrap()
    }

    fn list(config: &McpServerConfig, names: impl IntoIterator<Item = String>) -> ToolList {
        let mut builder = ToolListBuilder::new(config);
        builder.add(names.into_iter().map(|name| tool(&name, "does it", json!({}))).collect());
        builder.finish()
    }

    fn names(list: &ToolList) -> Vec<&str> {
        list.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn include_exclude_and_deny_decide_what_is_offered() {
        use ToolPermission::{Allow, Ask, Deny};
        let all = || ["read", "write", "drop", "read"].map(str::to_owned);
        assert_eq!(names(&list(&config(None, &[], &[]), all())), ["drop", "read", "write"]);
        assert_eq!(names(&list(&config(Some(&["read"]), &[], &[]), all())), ["read"]);
        assert_eq!(names(&list(&config(Some(&["read", "write"]), &["write"], &[]), all())), ["read"]);
        let judged = list(&config(None, &[], &[("drop", Deny), ("read", Allow)]), all());
        let of: Vec<_> = judged.tools.iter().map(|tool| (tool.name.as_str(), tool.permission)).collect();
        assert_eq!(of, [("read", Allow), ("write", Ask)]);
        assert!(judged.left_out.is_empty());
        let unknown = list(&config(Some(&["read", "raed"]), &[], &[]), all());
        insta::assert_snapshot!(unknown.left_out.join("\n"), @"`include` names tools that the server does not have: `raed`");
    }

    #[test]
    fn a_long_list_is_cut_and_says_so_but_an_include_reaches_its_end() {
        let many = || (0..300).map(|number| format!("t{number:03}"));
        let cut = list(&config(None, &[], &[]), many());
        assert_eq!(cut.tools.len(), TOOLS);
        insta::assert_snapshot!(cut.left_out.join("\n"), @"172 of its tools are left out, because 128 is all that a model is told of; name the needed ones with `include`");
        assert_eq!(names(&list(&config(Some(&["t299"]), &[], &[]), many())), ["t299"]);
    }

    #[test]
    fn descriptions_and_schemas_are_bounded() {
        let config = config(None, &[], &[]);
        let mut builder = ToolListBuilder::new(&config);
        let huge =
            json!({ "type": "object", "properties": { "x": { "description": "y".repeat(SCHEMA_BYTES) } } });
        builder.add(vec![
            tool("long", &"ü".repeat(50_000), json!({ "$schema": "http://x", "type": "object" })),
            tool("huge", "", huge),
            tool(&"n".repeat(500), "", json!({})),
            tool("", "", json!({})),
        ]);
        let list = builder.finish();
        assert_eq!(names(&list), ["long"]);
        assert_eq!(list.tools[0].description.chars().count(), DESCRIPTION);
        assert_eq!(list.tools[0].schema, json!({ "type": "object", "properties": {} }));
        assert_eq!(list.left_out.len(), 3, "{:?}", list.left_out);
        let mut builder = ToolListBuilder::new(&config);
        let large = json!({ "type": "object", "properties": { "x": { "description": "y".repeat(10_000) } } });
        builder.add((0..100).map(|number| tool(&format!("t{number}"), "", large.clone())).collect());
        let list = builder.finish();
        assert!(list.tools.len() < 20 && list.left_out[0].contains("left out"), "{}", list.tools.len());
    }
}
