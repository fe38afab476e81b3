//! `runtime`, by which an agent of kind `model` is handed to codex.
//!
//! Only a model at OpenAI's own address, or one whose entry has `runtime`, can be switched: what is said to a private
//! model must not go elsewhere because of a command in a chat.

use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

use super::codex::CodexConfig;
use crate::config::{BaseUrl, McpSelection, UrlHost};
use crate::rules::AgentRuntime;

/// Host of OpenAI's own model server.
const OPENAI_HOST: &str = "api.openai.com";

/// Settings of a model agent whose turns codex may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The runtime without an override.
    pub runtime: AgentRuntime,
    /// The codex that runs the turns then.
    pub codex: CodexConfig,
    /// The MCP servers that codex gets: those of its `tools`, or all if its entry has no such key.
    pub servers: McpSelection,
}

/// `runtime` as written: a name in any case.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct RuntimeSetting(pub(super) AgentRuntime);

impl<'de> Deserialize<'de> for RuntimeSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RuntimeVisitor)
    }
}

struct RuntimeVisitor;

impl Visitor<'_> for RuntimeVisitor {
    type Value = RuntimeSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`auto` or `codex_app_server`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RuntimeSetting, E> {
        let runtime = AgentRuntime::named(text.trim()).map(RuntimeSetting);
        runtime.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl SwitchConfig {
    /// The settings of the agent `name` with this server, whose entry has `written`; `None` if it cannot be switched.
    /// `home` is the state folder.
    pub(super) fn of(
        name: &str,
        url: &BaseUrl,
        written: Option<RuntimeSetting>,
        home: &Path,
    ) -> Option<Self> {
        let runtime = match written {
            Some(RuntimeSetting(runtime)) => runtime,
            None if is_openai(url) => AgentRuntime::Auto,
            None => return None,
        };
        let codex = CodexConfig::new(home.join("codex").join(name));
        Some(Self { runtime, codex, servers: McpSelection::All })
    }
}

/// Whether an address is OpenAI's own: what is said there reaches OpenAI already.
fn is_openai(url: &BaseUrl) -> bool {
    match url.host() {
        UrlHost::Name(name) => url.is_encrypted() && name.trim_end_matches('.') == OPENAI_HOST,
        UrlHost::Address(_) => false,
    }
}
